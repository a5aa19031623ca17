"""Answers those who wait at a terminal, and finds the sessions that nobody waits for any more.

A session is an interactive workload: fsalloc and fsrun ask about it until it is over. One whose
command has died, or has lost its way here, would hold its GPUs until its time limit. So a watched
workload that has not been asked about for ``policy.interactive.silence_s`` is cancelled, in the
name of its user.

Nothing of this is in the log: after a restart, or when another daemon takes over, every session has
the whole time again; likewise after the daemon stood still. Silence is counted by a clock that
nobody sets. While the site from which it was last asked about is away it has the whole time, too: a
command there may live, and cannot be heard. Of a session of an earlier term nobody knows which site
that is; it has the whole time until each has been there once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from federator.config import FederationConfig
from federator.daemon.callers import Caller
from federator.daemon.queue_selection import is_seen
from federator.daemon.views import main_reason
from federator.errors import InvalidRequest
from federator.model.event import LogRecord, Submitted
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.mappings import NOTHING
from federator.model.message import CancelAsked
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.state.ledger import WorkloadRecord
from federator.wire.client_protocol import ErrorKind, ErrorReply, SessionCall, SessionReply

NO_CLIENT: Final = 0  # the answer to the core's act is for nobody
LOOKS: Final = 4  # in the time of silence: so much later at most it is found
PAUSE_S: Final = 10.0  # between two looks, at least: nobody could be heard meanwhile


@dataclass(slots=True)
class _Heard:
    """When a session was last asked about, and from where; "" on the daemon's host.

    ``silence_s``: as its command was told last. ``earlier``: in an earlier term, from somewhere.
    """

    at_s: float  # as ``elapsed``
    via: str = ""
    silence_s: float = 0.0
    earlier: bool = False


class Unheard(NamedTuple):
    """What is to be cancelled now, and the Unix time of the next look; 0: none is needed."""

    cancels: tuple[CancelAsked, ...] = ()
    look_at_s: float = 0.0


class InteractiveJobs:
    """The interactive workloads of one term.

    Args:
        config: sites' login hosts, and the time of silence.
        federation: read, never changed here.
        clock: returns Unix time.
        elapsed: seconds that nobody sets, and that never run backwards; by default ``clock``.
    """

    def __init__(
        self,
        config: FederationConfig,
        federation: Federation,
        clock: Callable[[], float],
        elapsed: Callable[[], float] | None = None,
    ) -> None:
        self._federation = federation
        self._clock, self._elapsed = clock, elapsed or clock
        self._config = config
        self._next_look_s = 0.0  # as ``elapsed``
        self._wake_at_s = 0.0  # Unix time
        self._came_by_at_s = self._elapsed()  # the daemon's loop, to look
        self._not_met = set(config.sites)  # in this term
        self._heard = {
            entry.workload.id: _Heard(self._elapsed(), earlier=True)
            for entry in federation.ledger.entries.values()
            if entry.workload.watched and entry.state not in TERMINAL
        }

    def reconfigure(self, config: FederationConfig) -> None:
        """Answer by this configuration from now on."""
        self._config = config
        self._next_look_s = 0.0

    def note(self, events: Iterable[LogRecord]) -> None:
        """Take in what has been recorded: a session that was queued is listened for."""
        for event in events:
            if isinstance(event, Submitted) and event.draft.watched:
                self._heard[event.first_id] = _Heard(self._elapsed())
                self._next_look_s = 0.0

    def take(self, call: SessionCall, caller: Caller) -> SessionReply | ErrorReply:
        """Tell the user of a session, or an operator, how it stands."""
        entry = self._federation.ledger.entries.get(WorkloadId(call.id))
        if entry is None or not is_seen(entry, caller.viewer_by(self._config)):
            raise InvalidRequest(f"Invalid job id specified: {call.id}")
        if not caller.may_change(entry.workload):
            message = f"Access/permission denied: {call.id} belongs to another user"
            return ErrorReply(message=message, kind=ErrorKind.DENIED)
        heard = self._heard.get(entry.workload.id)
        if heard is not None and not call.attach:
            silence_s = self._config.policy.interactive.silence_s
            self._heard[entry.workload.id] = _Heard(self._elapsed(), caller.via, silence_s)
        return self._reply(entry, caller)

    def _reply(self, entry: WorkloadRecord, caller: Caller) -> SessionReply:
        watched, waits = entry.workload.watched, entry.state is WorkloadState.PENDING
        refusals = self._federation.refusals_of(entry) if waits else NOTHING
        return SessionReply(
            id=entry.workload.id,
            state=entry.state.value,
            silence_s=self._config.policy.interactive.silence_s if watched else 0.0,
            attempt=entry.attempt,
            site=entry.site,
            site_job_id=entry.site_job_id,
            node_names=entry.node_names,
            login=self._login(entry.site),
            account=self._account(entry.site, caller),
            here=bool(entry.site) and caller.via == entry.site,
            reason=main_reason(entry, refusals),
            site_state=entry.site_state,
            left_s=self._left_s(entry),
            refusals={str(site): refusal for site, refusal in refusals.items()},
        )

    def _left_s(self, entry: WorkloadRecord) -> float:
        if not entry.started_at_s or entry.state in TERMINAL:
            return inf
        return entry.started_at_s + entry.workload.time_limit_s - self._clock()

    def _account(self, site: SiteName, caller: Caller) -> str:
        """What a site calls the caller; "": as the host does where the command was typed."""
        there, here = (self._config.name_at(each, caller.user) for each in (site, caller.via))
        return there if there != here else ""

    def _login(self, site: SiteName) -> str:
        """Where users of a site log in: by default where its agent is reached."""
        known = self._config.sites.get(site)
        if known is None:
            return ""
        if known.login or known.ssh is None:
            return known.login
        host = f"[{known.ssh.host}]" if ":" in known.ssh.host else known.ssh.host
        return f"{host}:{known.ssh.port}"

    # ---- who is no longer heard ----

    def unheard(self, now_s: float) -> Unheard:
        """The sessions that are to end, if it is time to look; ``now_s`` is Unix time."""
        silence_s = self._config.policy.interactive.silence_s
        at_s = self._elapsed()
        self._take_in_a_pause(at_s, max(PAUSE_S, silence_s / LOOKS * 2))
        if not self._heard:
            return Unheard()
        if (left_s := self._next_look_s - at_s) > 0:  # come by for another reason, or a set clock
            return Unheard(look_at_s=self._woken_at(now_s, left_s))
        self._not_met -= {name for name in self._not_met if self._is_up(name)}
        over = [id_ for id_ in self._heard if self._is_over(id_)]
        for id_ in over:
            del self._heard[id_]
        cancels = []
        for id_, heard in self._heard.items():
            if self._may_be_unheard(heard):
                heard.at_s = at_s
            elif at_s - heard.at_s >= max(silence_s, heard.silence_s):
                heard.at_s = at_s  # asked again only if this one comes to nothing
                user = self._federation.ledger.entries[id_].workload.user
                cancels.append(CancelAsked(client=NO_CLIENT, ids=(id_,), by=user))
        if not self._heard:
            return Unheard(tuple(cancels))
        self._next_look_s, self._wake_at_s = at_s + silence_s / LOOKS, 0.0
        return Unheard(tuple(cancels), self._woken_at(now_s, silence_s / LOOKS))

    def _woken_at(self, now_s: float, left_s: float) -> float:
        """The Unix time at which the next look is due; 0 if that has been said."""
        if now_s < self._wake_at_s:
            return 0.0
        self._wake_at_s = now_s + left_s
        return self._wake_at_s

    def _take_in_a_pause(self, at_s: float, most_s: float) -> None:
        """Give every session the whole time again if the daemon stood still, and heard nobody.

        While there are sessions, this comes by a few times within the time of silence.
        """
        since_s, self._came_by_at_s = at_s - self._came_by_at_s, at_s
        if since_s > most_s:
            for heard in self._heard.values():
                heard.at_s = at_s
            self._next_look_s = 0.0

    def _may_be_unheard(self, heard: _Heard) -> bool:
        """Tell whether its command may live at a site that is away."""
        if heard.earlier:
            return bool(self._not_met & self._config.sites.keys())
        return bool(heard.via) and not self._is_up(SiteName(heard.via))

    def _is_over(self, id_: WorkloadId) -> bool:
        entry = self._federation.ledger.entries.get(id_)
        return entry is None or entry.state in TERMINAL or entry.state is WorkloadState.CANCELLING

    def _is_up(self, name: SiteName) -> bool:
        site = self._federation.sites.get(name)
        return site is not None and site.ready
