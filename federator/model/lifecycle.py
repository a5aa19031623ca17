"""The life cycle of a workload: its states, events and legal transitions, as one table.

``TRANSITIONS`` is the truth: a pair that is absent is illegal. An edge names the effects that the
daemon must carry out; this module performs none. docs/lifecycle.md shows the table as a drawing.
The states of one attempt at its site are another table: ``federator.agent.attempt_table``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from federator.errors import FederatorError


class WorkloadState(Enum):
    PENDING = "PENDING"
    INELIGIBLE = "INELIGIBLE"  # not in the queue: it is held, or its time has not come
    HELD = "HELD"  # in the queue, tried again now and then: every site has refused it
    AWARDED = "AWARDED"  # intent is in the log; the site has not confirmed the sbatch
    LAUNCHING = "LAUNCHING"  # the site has the job, it has not started
    RUNNING = "RUNNING"
    PREEMPTING = "PREEMPTING"  # evicted, or near its limit; it may save until its grace is over
    CANCELLING = "CANCELLING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"


class WorkloadEvent(Enum):
    """News from a site may come late, doubled, or out of order."""

    AWARDED = "awarded"
    ACCEPTED = "accepted by the site"
    DECLINED = "declined by the site"
    STARTED = "started"
    LEASE_OVER = "launch lease over"
    WITHDRAWN = "withdrawn before it started"
    SITE_REQUEUED = "requeued by the site"
    NODE_FAILED = "node failed"
    SITE_PREEMPTED = "preempted by the site"
    CHECKPOINTED = "left with a checkpoint"  # exit status 85: "start me again"
    GREW_IN_VAIN = "failed at a larger size"  # an elastic one, which goes on at the last good size
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "reached its time limit"
    LOST = "unknown to the site"
    DEADLINE_PASSED = "too late to end by its deadline"
    EVICTED = "evicted for another"
    REQUEUE_ASKED = "requeue asked for"
    LIMIT_NEAR = "near its time limit, to go on"
    PREEMPTED = "gone after eviction"  # or when it was told of its time limit
    LIMIT_STRUCK = "cut off at its time limit, to go on"
    SHRUNK = "optional jobs taken for another"
    SHRINK_DONE = "optional jobs are gone"
    HELD = "held, since every site has refused it"
    RELEASED = "released, since a site may take it now"
    SET_ASIDE = "out of the queue, since it may not start yet"
    ELIGIBLE = "eligible to start"
    CANCEL_ASKED = "cancel asked for"
    CANCELLED = "cancelled"


class Effect(Enum):
    """Work an edge asks of the daemon; each is safe to repeat after a crash."""

    LAUNCH = "order the attempt at its site"
    WITHDRAW = "cancel the attempt at its site if it has not started"
    CANCEL = "cancel the attempt at its site"
    EVICT = "evict the victims of the award"
    PREEMPT = "let the attempt save and leave its site"
    SHRINK = "cancel the optional jobs that were taken"
    RANK_AGAIN = "a pass is due"


class Edge(NamedTuple):
    to: WorkloadState
    effects: tuple[Effect, ...] = ()


_S, _H, _E = WorkloadState, WorkloadEvent, Effect
_FREED = (_E.RANK_AGAIN,)  # nodes came free, or a workload came back: look at the queue

TRANSITIONS: Final[Mapping[tuple[WorkloadState, WorkloadEvent], Edge]] = MappingProxyType(
    {
        (_S.PENDING, _H.AWARDED): Edge(_S.AWARDED, (_E.LAUNCH,)),
        (_S.PENDING, _H.CANCEL_ASKED): Edge(_S.CANCELLED, _FREED),  # of quota it was promised
        (_S.PENDING, _H.HELD): Edge(_S.HELD, _FREED),
        (_S.PENDING, _H.SET_ASIDE): Edge(_S.INELIGIBLE, _FREED),
        (_S.INELIGIBLE, _H.ELIGIBLE): Edge(_S.PENDING, _FREED),
        (_S.INELIGIBLE, _H.CANCEL_ASKED): Edge(_S.CANCELLED),
        (_S.HELD, _H.SET_ASIDE): Edge(_S.INELIGIBLE),
        (_S.HELD, _H.RELEASED): Edge(_S.PENDING, _FREED),
        (_S.HELD, _H.CANCEL_ASKED): Edge(_S.CANCELLED),
        (_S.PENDING, _H.DEADLINE_PASSED): Edge(_S.FAILED, _FREED),
        (_S.INELIGIBLE, _H.DEADLINE_PASSED): Edge(_S.FAILED),
        (_S.HELD, _H.DEADLINE_PASSED): Edge(_S.FAILED),
        (_S.AWARDED, _H.ACCEPTED): Edge(_S.LAUNCHING, (_E.EVICT,)),
        (_S.AWARDED, _H.DECLINED): Edge(_S.PENDING, _FREED),
        (_S.AWARDED, _H.CANCEL_ASKED): Edge(_S.CANCELLING, (_E.CANCEL,)),
        (_S.LAUNCHING, _H.STARTED): Edge(_S.RUNNING),
        (_S.LAUNCHING, _H.LEASE_OVER): Edge(_S.LAUNCHING, (_E.WITHDRAW,)),
        (_S.LAUNCHING, _H.WITHDRAWN): Edge(_S.PENDING, _FREED),
        (_S.LAUNCHING, _H.SITE_REQUEUED): Edge(_S.LAUNCHING, (_E.WITHDRAW,)),
        (_S.LAUNCHING, _H.NODE_FAILED): Edge(_S.PENDING, _FREED),
        (_S.LAUNCHING, _H.SITE_PREEMPTED): Edge(_S.PENDING, _FREED),
        (_S.LAUNCHING, _H.LOST): Edge(_S.FAILED, _FREED),
        (_S.LAUNCHING, _H.DEADLINE_PASSED): Edge(_S.FAILED, _FREED),  # its site saw it first
        (_S.LAUNCHING, _H.CANCELLED): Edge(_S.CANCELLED, _FREED),
        (_S.LAUNCHING, _H.CANCEL_ASKED): Edge(_S.CANCELLING, (_E.CANCEL,)),
        (_S.RUNNING, _H.WITHDRAWN): Edge(_S.PENDING, _FREED),  # it started as we withdrew it
        (_S.RUNNING, _H.SITE_REQUEUED): Edge(_S.LAUNCHING, (_E.WITHDRAW,)),
        (_S.RUNNING, _H.NODE_FAILED): Edge(_S.PENDING, _FREED),
        (_S.RUNNING, _H.SITE_PREEMPTED): Edge(_S.PENDING, _FREED),
        (_S.RUNNING, _H.CHECKPOINTED): Edge(_S.PENDING, _FREED),
        (_S.RUNNING, _H.GREW_IN_VAIN): Edge(_S.PENDING, _FREED),
        (_S.RUNNING, _H.COMPLETED): Edge(_S.COMPLETED, _FREED),
        (_S.RUNNING, _H.FAILED): Edge(_S.FAILED, _FREED),
        (_S.RUNNING, _H.TIMED_OUT): Edge(_S.TIMEOUT, _FREED),
        (_S.RUNNING, _H.CANCELLED): Edge(_S.CANCELLED, _FREED),
        (_S.RUNNING, _H.LOST): Edge(_S.FAILED, _FREED),
        (_S.RUNNING, _H.CANCEL_ASKED): Edge(_S.CANCELLING, (_E.CANCEL,)),
        (_S.RUNNING, _H.EVICTED): Edge(_S.PREEMPTING, (_E.PREEMPT,)),
        (_S.RUNNING, _H.REQUEUE_ASKED): Edge(_S.PREEMPTING, (_E.PREEMPT,)),
        (_S.RUNNING, _H.SHRUNK): Edge(_S.RUNNING, (_E.SHRINK,)),
        (_S.RUNNING, _H.SHRINK_DONE): Edge(_S.RUNNING, _FREED),
        (_S.RUNNING, _H.LIMIT_NEAR): Edge(_S.PREEMPTING, (_E.PREEMPT,)),
        (_S.RUNNING, _H.LIMIT_STRUCK): Edge(_S.PENDING, _FREED),  # before it could be told
        (_S.PREEMPTING, _H.PREEMPTED): Edge(_S.PENDING, _FREED),
        (_S.PREEMPTING, _H.LIMIT_STRUCK): Edge(_S.PENDING, _FREED),
        (_S.PREEMPTING, _H.COMPLETED): Edge(_S.COMPLETED, _FREED),  # it was quicker
        (_S.PREEMPTING, _H.FAILED): Edge(_S.FAILED, _FREED),
        (_S.PREEMPTING, _H.TIMED_OUT): Edge(_S.TIMEOUT, _FREED),
        (_S.PREEMPTING, _H.LOST): Edge(_S.PENDING, _FREED),  # it was told to leave, and is gone
        (_S.PREEMPTING, _H.CANCEL_ASKED): Edge(_S.CANCELLING, (_E.CANCEL,)),
        (_S.CANCELLING, _H.CANCELLED): Edge(_S.CANCELLED, _FREED),
        (_S.CANCELLING, _H.DECLINED): Edge(
            _S.CANCELLED, _FREED
        ),  # the order met a refusal: same end
        (_S.CANCELLING, _H.LOST): Edge(_S.CANCELLED, _FREED),
        (_S.CANCELLING, _H.COMPLETED): Edge(_S.COMPLETED, _FREED),  # it was quicker
        (_S.CANCELLING, _H.FAILED): Edge(_S.FAILED, _FREED),
        (_S.CANCELLING, _H.TIMED_OUT): Edge(_S.TIMEOUT, _FREED),
        (_S.CANCELLING, _H.NODE_FAILED): Edge(_S.CANCELLED, _FREED),
        (_S.CANCELLING, _H.SITE_PREEMPTED): Edge(_S.CANCELLED, _FREED),
        (_S.CANCELLING, _H.ACCEPTED): Edge(_S.CANCELLING, (_E.CANCEL,)),  # now its job id is known
    }
)

TERMINAL: Final = frozenset(WorkloadState) - {state for state, _ in TRANSITIONS}
AT_SITE: Final = frozenset(
    {
        _S.AWARDED,
        _S.LAUNCHING,
        _S.RUNNING,
        _S.PREEMPTING,
        _S.CANCELLING,
    }
)


class InvalidTransition(FederatorError):
    """No such edge: a site's late message (log and drop) or our own bug (stop)."""

    def __init__(self, state: WorkloadState, event: WorkloadEvent) -> None:
        self.state, self.event = state, event
        legal = sorted(h.value for s, h in TRANSITIONS if s is state)
        super().__init__(f"{event.value!r} is not legal in {state.value}; legal: {legal}")


def step(state: WorkloadState, event: WorkloadEvent) -> Edge:
    """Return the edge for ``event`` in ``state``.

    Raises:
        InvalidTransition: there is none; the caller's state is unchanged.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise InvalidTransition(state, event) from None
