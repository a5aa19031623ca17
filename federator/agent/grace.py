"""The grace of an attempt that must leave: how far it has come, and when the next act is due.

It is told once, by its own signal and with its deadline in its checkpoint folder. It may go by
itself, say that it has saved (it is ended at once then), or requeue itself (the site's copy is
taken back). Shortly before the deadline TERM goes to all of it. Slurm itself ends a job only by
TERM and, KillWait later, KILL to all its processes, so it is cancelled that long before the
deadline; whatever is left then is killed, again and again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from federator.agent.attempt_table import AttemptEvent, AttemptState
from federator.wire.agent_protocol import PreemptOrder

TERM_BEFORE_S: Final = 15.0  # the deadline; of a short grace its last quarter
PAUSE_S: Final = 0.5  # between two thoughts about one, at most
AGAIN_S: Final = 2.0  # between two tries to tell or to kill


@dataclass(slots=True)
class Grace:
    """Times are of a clock that is never set."""

    order: PreemptOrder
    leave_by_s: float  # as the mark's
    restarts: int = 0  # that Slurm had counted when the order came
    checkpointed_at_s: float = 0.0  # Unix time
    saved: bool = False  # it said so
    requeued: bool = False
    acting: int = 0  # the number of the effect that is on its way; 0: none is
    telling: int = 0  # the same of giving notice, which holds up nothing else
    tell_at_s: float = 0.0
    act_at_s: float = 0.0
    shown: int = 0  # so many sweeps ended after it was told and showed it alive
    settled: bool = False  # all that can be known of it is known

    @property
    def term_at_s(self) -> float:
        """The time at which TERM is due."""
        return self.leave_by_s - min(TERM_BEFORE_S, self.order.grace_s / 4)

    def cancel_at_s(self, kill_wait_s: float) -> float:
        """The time of scancel; with a KillWait that long, half of the grace is left to the job."""
        # scancel sends TERM and, KillWait later, KILL; so it is sent that much before the
        # deadline.
        return self.leave_by_s - min(kill_wait_s, self.order.grace_s / 2)

    def due(self, state: AttemptState, now_s: float, kill_wait_s: float) -> AttemptEvent | None:
        """The event that is due now to an attempt in this state."""
        if self.requeued:
            return AttemptEvent.REQUEUED
        if self.saved:  # what it has to say is said: no KillWait for whoever handles TERM
            return AttemptEvent.SAVED
        if now_s >= self.leave_by_s:
            return AttemptEvent.KILL_DUE
        if now_s >= self.cancel_at_s(kill_wait_s):
            early = state in (AttemptState.EVICTING, AttemptState.TERMINATED)
            return AttemptEvent.CANCEL_DUE if early else None
        if now_s >= self.term_at_s and state is AttemptState.EVICTING:
            return AttemptEvent.TERM_DUE
        return None

    def pause_s(self, now_s: float, kill_wait_s: float) -> float:
        """Until the next thing is due, ``PAUSE_S`` at most."""
        if now_s >= self.leave_by_s or self.saved or self.requeued:
            return AGAIN_S
        due = (self.term_at_s, self.cancel_at_s(kill_wait_s), self.leave_by_s)
        next_s = min((at_s for at_s in due if at_s > now_s), default=now_s)
        return min(PAUSE_S, max(0.01, next_s - now_s))


def whole(at_s: float) -> float:
    """Whole seconds, as Slurm gives the ends of jobs."""
    return float(int(at_s))
