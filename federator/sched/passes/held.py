"""Decides which waiting workloads are held: those that every site has refused for good.

A site refuses for good when its sbatch refuses the submission itself, or one plan for it after
another, or its files cannot be opened there; one that is too small, knows no such user, or cannot
read the checkpoint, or lacks the data sets, cannot take the workload anyhow. As long as another
site may take it, though it is full or down, it waits.

What is held is tried again, since an admin may have mended what the sites complained of, and no
site would tell. Of those alike (same user, same words) one at a time is enough: once sbatch takes
it, the others follow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.plan import BidRequest
from federator.model.reason import Reason, ReasonCode
from federator.model.site import AttemptReport, SiteJobState
from federator.model.site_message import SiteAnswer
from federator.model.workload import AttemptId, SiteName, WorkloadId
from federator.sched.passes.data_places import has_data
from federator.sched.passes.eviction import checkpoint_in_reach
from federator.sched.passes.report_events import refusal_of_plan
from federator.sched.passes.site_view import SiteView, never_fits
from federator.sched.passes.transaction import Transaction
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules

TRIED_EVERY_S: Final = 300.0  # one of those alike; each a pause after its refusal at the earliest
MOST_TRIED: Final = 100  # at once
MOST_WORDS: Final = 500  # characters of the sites' own


class Holding:
    """Holds what no site takes, and releases what one may.

    Args:
        sites: as they are known, by name.
        rules: see ``Rules``.
        ledger: knows where data sets are.
    """

    def __init__(self, sites: Mapping[SiteName, SiteView], rules: Rules, ledger: Ledger) -> None:
        self._sites = sites
        self._ledger = ledger
        self.rules = rules
        self._try_at_s = 0.0
        self._stuck: dict[WorkloadId, tuple[AttemptId, Reason]] = {}

    # ---- jobs that Slurm took and can never start ----

    def reported(self, turn: Transaction, report: AttemptReport) -> None:
        """Learn why a job waits, and hold its workload if that was the last refusal of a plan."""
        id_ = report.attempt.workload
        reason = refusal_of_plan(report)
        if report.state is SiteJobState.PENDING and reason is not None:
            self._stuck[id_] = report.attempt, reason
            return
        self._stuck.pop(id_, None)
        entry = turn.ledger.entries.get(id_)
        if entry is not None and report.state.ended:
            self.hold_if_refused(turn, entry)

    def why_stuck(self, entry: WorkloadRecord) -> Reason | None:
        """The reason why its job can never start, as its site said last; None: nothing is known."""
        attempt, reason = self._stuck.get(entry.workload.id, (None, None))
        return reason if attempt == entry.attempt_id else None

    # ---- those that every site refuses ----

    def hold_if_refused(self, turn: Transaction, entry: WorkloadRecord) -> None:
        """Hold a workload that waits, if no site is left that may take it."""
        if entry.state is WorkloadState.PENDING:
            reason = self._reason_to_hold(entry, turn.now_s)
            if reason is not None:
                turn.change(entry, WorkloadEvent.HELD, reason=reason)

    def _reason_to_hold(self, entry: WorkloadRecord, now_s: float) -> Reason | None:
        """The reason to hold a workload, in the sites' words; None if it may still start."""
        if not entry.setbacks:
            return None
        refusing = [site for site in self._sites if entry.is_refused_by(site)]
        if not refusing or any(self._may_take(entry, site, now_s) for site in self._sites):
            return None
        said: dict[str, list[str]] = {}
        for site in refusing:
            said.setdefault(entry.setbacks[site].detail, []).append(site)
        text = "; ".join(f"{', '.join(of)}: {words}" for words, of in said.items())
        return Reason(code=ReasonCode.HELD, detail=text[:MOST_WORDS])

    def _may_take(self, entry: WorkloadRecord, site: SiteName, now_s: float) -> bool:
        """Whether a site may take the workload some day; one that refused it, after its pause."""
        refuses = entry.is_refused_by(site) and entry.avoid_until_s.get(site, 0.0) > now_s
        return not refuses and self._could_take(entry, site)

    def _could_take(self, entry: WorkloadRecord, site: SiteName) -> bool:
        """Whether it could, as far as is known of it, if its sbatch did not refuse."""
        is_stranger = self._sites[site].knows.get(entry.workload.user) is False
        return not is_stranger and self._has_what_it_needs(entry, site)

    def _has_what_it_needs(self, entry: WorkloadRecord, site: SiteName) -> bool:
        may_be_copied = self.rules.staging.checkpoints
        in_reach = may_be_copied or checkpoint_in_reach(entry, site, self.rules)
        in_reach = in_reach and has_data(self._ledger, entry.workload, site)
        return in_reach and never_fits(self._sites, site, entry.workload.jobs) is None

    # ---- the way back ----

    def release_for(
        self, turn: Transaction, site: SiteName, users: Collection[str] | None = None
    ) -> None:
        """Release what a site may take and has not refused: it has come, or has changed.

        Of a user whom it may not know one workload asks first; the rest follows with the answer.

        Args:
            turn: takes the changes.
            site: its name.
            users: whose; None: everybody's.
        """
        knows, asking = self._sites[site].knows, set[str]()
        for entry in turn.ledger.in_state(WorkloadState.HELD):
            user = entry.workload.user
            concerned = user not in asking and (users is None or user in users)
            if concerned and not entry.is_refused_by(site) and self._could_take(entry, site):
                if user not in knows:
                    asking.add(user)
                turn.change(entry, WorkloadEvent.RELEASED)

    def answered(
        self,
        turn: Transaction,
        site: SiteName,
        asked: Mapping[WorkloadId, BidRequest],
        answers: Iterable[SiteAnswer],
    ) -> None:
        """Learn from a site's answers which users it knows, and release what is theirs."""
        view, users = self._sites[site], set[str]()
        heard: set[tuple[str, int]] = set()  # most get the same refusal, as the same object
        for answer in answers:
            request = asked.get(answer.id)
            if request is None or (said := (request.user, id(answer.refusal))) in heard:
                continue
            heard.add(said)
            if view.answered(request.user, answer):
                users.add(request.user)
        if users:
            self.release_for(turn, site, users)

    def try_again(self, turn: Transaction) -> None:
        """Release, of those alike, the one that has been held longest and is due."""
        if turn.now_s < self._try_at_s:
            return
        self._try_at_s = turn.now_s + TRIED_EVERY_S
        tried: set[tuple[str, str]] = set()
        for entry in turn.ledger.in_state(WorkloadState.HELD):
            alike = (entry.workload.user, entry.held_for)
            if len(tried) < MOST_TRIED and alike not in tried and self._is_due(entry, turn.now_s):
                tried.add(alike)
                turn.change(entry, WorkloadEvent.RELEASED)

    def _is_due(self, entry: WorkloadRecord, now_s: float) -> bool:
        refusing = [
            site
            for site, view in self._sites.items()
            if view.ready and entry.is_refused_by(site) and self._has_what_it_needs(entry, site)
        ]
        return bool(refusing) and all(
            entry.avoid_until_s.get(site, 0.0) <= now_s for site in refusing
        )

    def release_like(self, turn: Transaction) -> None:
        """Release those that were held like one that sbatch has now taken."""
        for taken in (entry for entry in turn.accepted if entry.held_for):
            alike = (taken.workload.user, taken.held_for)
            for entry in turn.ledger.in_state(WorkloadState.HELD):
                is_alike = (entry.workload.user, entry.held_for) == alike
                if is_alike and self._may_take(entry, taken.site, turn.now_s):
                    turn.change(entry, WorkloadEvent.RELEASED)
