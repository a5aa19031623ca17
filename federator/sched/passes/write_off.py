"""Writes off sites that are gone for good: their workloads go on elsewhere, as new attempts.

Should such a site come back after all, each attempt that it had is ended there before anything new
starts: it gets no work until its agent has answered for all of them. How an old attempt ended does
not count, for its workload has gone on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from federator.model.drain import DrainRefusal, DrainRefusalCode
from federator.model.event import SiteReturned, SiteWrittenOff, WrittenOffAttempt
from federator.model.lifecycle import AT_SITE, WorkloadEvent, WorkloadState
from federator.model.message import (
    AnswerDrained,
    AnswerDrainRefused,
    SendTo,
    Wake,
    WriteOffAsked,
)
from federator.model.reason import Reason, ReasonCode
from federator.model.site_message import CancelOrder, Report
from federator.model.workload import AttemptId, SiteName
from federator.sched.passes.rounds import Rounds
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.transaction import ORDER_AGAIN_S, Transaction
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules

AWAY_S: Final = 60.0  # for so long a site must have been away: a channel may just be made anew
_ENDS: Final[Mapping[WorkloadState, WorkloadEvent]] = {
    WorkloadState.AWARDED: WorkloadEvent.DECLINED,
    WorkloadState.LAUNCHING: WorkloadEvent.WITHDRAWN,
    WorkloadState.RUNNING: WorkloadEvent.WITHDRAWN,
    WorkloadState.PREEMPTING: WorkloadEvent.PREEMPTED,
    WorkloadState.CANCELLING: WorkloadEvent.LOST,
}


class WriteOffs:
    """Sites that are written off, and the attempts to be ended there when one returns.

    Volatile but for what the ledger keeps: which attempts have been answered for is asked again
    after a restart.

    Args:
        sites: as they last were.
        rules: see ``Rules``.
        ledger: keeps which sites are written off, with their attempts.
        rounds: of the open pass.
    """

    def __init__(
        self, sites: Mapping[SiteName, SiteView], rules: Rules, ledger: Ledger, rounds: Rounds
    ) -> None:
        self._sites = sites
        self.rules = rules
        self._ledger = ledger
        self._rounds = rounds
        self._over: dict[SiteName, set[AttemptId]] = {}  # the site has answered for them
        self._asked_at_s: dict[SiteName, float] = {}
        self.began_s = 0.0  # Unix time of the daemon's start: before it no site was heard

    def write_off(self, turn: Transaction, asked: WriteOffAsked) -> None:
        """Give all workloads of a site back to the queue, or refuse to."""
        refusal = self._against(asked.site, turn.now_s)
        if refusal is not None:
            turn.commands.append(
                AnswerDrainRefused(client=asked.client, site=asked.site, refusal=refusal)
            )
            return
        here = [e for e in self._ledger.in_state(*AT_SITE) if e.site == asked.site]
        attempts = tuple(
            WrittenOffAttempt(
                attempt=entry.attempt_id, user=entry.workload.user, site_job_id=entry.site_job_id
            )
            for entry in here
        )
        turn.record(
            SiteWrittenOff(
                at_s=turn.now_s,
                site=asked.site,
                attempts=attempts,
                unreadable=self._unreadable_without(asked.site),
                reason=asked.reason,
                by=asked.by,
            )
        )
        self._rounds.site_drained(turn, asked.site)
        self._over[asked.site] = set()
        self._rounds.is_due(turn)  # nobody may have been there, and some have waited for it
        ran = [entry for entry in here if entry.started_at_s]
        lost = [entry for entry in ran if not entry.workload.requeue]
        for entry in here:
            self._give_back(turn, entry, asked.site)
        turn.commands.append(
            AnswerDrained(
                client=asked.client,
                site=asked.site,
                running=len(ran),
                withdrawn=len(here) - len(ran),
                not_requeued=len(lost),
            )
        )

    def _give_back(self, turn: Transaction, entry: WorkloadRecord, site: SiteName) -> None:
        """The attempt is over for the federation; one that may not start again has failed."""
        event = _ENDS[entry.state]
        if entry.state is WorkloadState.RUNNING and not entry.workload.requeue:
            event = WorkloadEvent.LOST
        reason = Reason(code=ReasonCode.WRITTEN_OFF, detail=site)
        turn.change(entry, event, reason=reason, ended_at_s=turn.now_s)

    def _against(self, site: SiteName, now_s: float) -> DrainRefusal | None:
        view = self._sites.get(site)
        if view is None:
            return DrainRefusal(code=DrainRefusalCode.UNKNOWN_SITE)
        known = self._ledger.drains.written_off.get(site)
        if known is not None:
            return DrainRefusal(
                code=DrainRefusalCode.WRITTEN_OFF,
                since_s=known.at_s,
                by=known.by,
                reason=known.reason,
            )
        if view.up:
            return DrainRefusal(code=DrainRefusalCode.IN_CONTACT, since_s=view.since_s)
        earliest_s = max(view.since_s, self.began_s) + AWAY_S
        if now_s < earliest_s:
            return DrainRefusal(code=DrainRefusalCode.JUST_LEFT, earliest_s=earliest_s)
        return None

    def _unreadable_without(self, site: SiteName) -> tuple[SiteName, ...]:
        """The sites whose checkpoints nobody can read once a site is gone.

        These are the site and those of its region, if none of them is left.
        """
        gone = {site, *self._ledger.drains.written_off}
        region = [name for name in self._sites if self.rules.reaches(name, site)]
        return () if set(region) - gone else tuple(region)

    # ---- a site that returns ----

    def reported(self, site: SiteName, report: Report) -> None:
        """Learn which old attempts have ended; what its site forgot, it has none of."""
        if site not in self._ledger.drains.written_off:
            return
        over = self._over.setdefault(site, set())
        over.update(report.gone)
        for each in report.attempts:
            (over.add if each.state.ended else over.discard)(each.attempt)

    def absent(self, site: SiteName, attempt: AttemptId) -> None:
        """A site has no such attempt, and will refuse it."""
        if site in self._ledger.drains.written_off:
            self._over.setdefault(site, set()).add(attempt)

    def settle(self, turn: Transaction) -> None:
        """End old attempts at sites that are back, and open those that have answered for all."""
        for site, written_off in list(self._ledger.drains.written_off.items()):
            view = self._sites.get(site)
            if view is None or not view.ready:
                self._asked_at_s.pop(site, None)
                continue
            over = self._over.setdefault(site, set())
            left = [each for each in written_off.attempts if each.attempt not in over]
            if not left:
                turn.record(SiteReturned(at_s=turn.now_s, site=site))
                self._rounds.memory.known.forget(site)
                self._rounds.is_due(turn)
            elif turn.now_s >= self._asked_at_s.get(site, 0.0) + ORDER_AGAIN_S:
                self._asked_at_s[site] = turn.now_s
                self._end(turn, site, left)

    def _end(self, turn: Transaction, site: SiteName, left: Iterable[WrittenOffAttempt]) -> None:
        for each in left:
            order = CancelOrder(attempt=each.attempt, user=each.user, site_job_id=each.site_job_id)
            turn.commands.append(SendTo(site=site, message=order))
        turn.commands.append(Wake(at_s=turn.now_s + ORDER_AGAIN_S))
