"""The states of an attempt at its site, what moves it between them, and what the agent does then.

The table is the whole of it: a pair of state and event that is not in it cannot happen, and one
whose row has no acts is an answer that came too late to matter. docs/lifecycle.md draws it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple


class AttemptState(Enum):
    """The state of an attempt, as far as its site knows."""

    UNKNOWN = "unknown"  # nothing was begun here
    LEASING = "leasing"  # its lease and its ticket are being made
    SUBMITTING = "submitting"  # the intent is durable; sbatch has not answered
    INTENT = "intent"  # an earlier agent began its sbatch; nobody has asked what came of it
    LOOKING = "looking"  # sweeps look for its job, for as long as an sbatch may take
    ASKING_HOOKS = "asking hooks"  # whether a job has used its lease
    WITHDRAWING = "withdrawing"  # its lease is being removed: no sbatch can start it from now on
    LAST_LOOK = "last look"  # one more sweep
    ACCOUNTING = "accounting"  # sacct is asked for its sbatch line
    CONFIRMING = "confirming"  # accounts say that it lives; one sweep is to show it
    SUBMITTED = "submitted"  # it has a job, which waits or was not seen yet
    RUNNING = "running"  # Slurm shows that it runs
    EVICTING = "evicting"  # it is told to save and to leave
    TERMINATED = "terminated"  # TERM was sent to all of it
    CANCELLED = "cancelled"  # scancel was called, KillWait before the deadline
    KILLED = "killed"  # KILL is sent until it has gone
    TAKEN_BACK = "taken back"  # it put itself into the site's queue again, and is cancelled there
    ENDED = "ended"  # Slurm shows how
    GIVING_UP = "giving up"  # that it is not here is durable; its lease is being removed
    VOID = "void"  # it is not here, and never will be


class AttemptEvent(Enum):
    """An event in the life of an attempt."""

    LAUNCH = "launch"  # a plan that fits is to be submitted
    OBSTRUCTED = "obstructed"  # the plan does not fit any more
    ADOPT = "adopt"  # its launch is ordered, and Slurm shows its job already
    SETTLE = "settle"  # somebody must know for certain whether it has a job
    ABANDON = "abandon"  # it is to end, and has no job
    LEASED = "leased"
    NOT_LEASED = "not leased"
    ACCEPTED = "accepted"  # sbatch named a job
    REFUSED = "refused"  # sbatch made none
    UNANSWERED = "unanswered"  # nobody knows
    SHOWN_WAITING = "shown waiting"  # by a sweep
    SHOWN_RUNNING = "shown running"
    SHOWN_ENDED = "shown ended"
    MISSED = "missed"  # a sweep that began late enough does not show it
    BLIND = "blind"  # Slurm did not answer a sweep
    HORIZON_OVER = "horizon over"  # no sweep shows it, and its sbatch is over by now
    BOUND = "bound"  # a job has used its lease
    UNBOUND = "unbound"
    HOOKS_SILENT = "hooks silent"
    RELEASED = "released"  # its lease is gone
    NOT_RELEASED = "not released"
    ACCOUNTS_END = "accounts end"  # sacct says how it ended
    ACCOUNTS_LIVE = "accounts live"  # sacct says that it waits or runs
    UNACCOUNTED = "unaccounted"
    EVICT = "evict"
    TERM_DUE = "term due"
    CANCEL_DUE = "cancel due"
    KILL_DUE = "kill due"  # its deadline is over
    SAVED = "saved"  # it says so, and that it may be ended now
    REQUEUED = "requeued"
    ACT_FAILED = "act failed"  # Slurm did not do what was due; it is due again


class Act(Enum):
    """An act of the agent on a transition."""

    OPEN_LEASE = "open its lease"
    SUBMIT = "journal the intent, then sbatch"
    LOOK = "sweep"
    LOOK_LATER = "sweep in a second"
    ASK_HOOKS = "ask the hooks"
    WITHDRAW = "remove its lease"
    ASK_ACCOUNTS = "ask sacct"
    SUPPOSE = "sweep for the job of the accounts"
    NOTE_ACCEPTED = "journal sbatch's answer"
    NOTE_FOUND = "journal the job that was found"
    NOTE_LATE = "journal the job, found late"
    GIVE_UP = "journal that it is void, then remove its lease"
    ANSWER = "go on with the order"
    SIGNAL_TERM = "TERM to all of it"
    SCANCEL = "scancel"
    NOTE_FORCED = "journal that it is forced"
    KILL = "KILL to all of it, then scancel"


class AttemptEdge(NamedTuple):
    """One row of the table, by state and event."""

    to: AttemptState
    acts: tuple[Act, ...] = ()


_S = AttemptState
_E = AttemptEvent
_Key = tuple[AttemptState, AttemptEvent]
_Rows = Iterator[tuple[_Key, AttemptEdge]]

SHOWN: Final[Mapping[AttemptEvent, AttemptState]] = MappingProxyType(
    {
        _E.SHOWN_WAITING: _S.SUBMITTED,
        _E.SHOWN_RUNNING: _S.RUNNING,
        _E.SHOWN_ENDED: _S.ENDED,
    }
)
LEAVING: Final = (_S.EVICTING, _S.TERMINATED, _S.CANCELLED, _S.KILLED, _S.TAKEN_BACK)
HAS_JOB: Final = (_S.SUBMITTED, _S.RUNNING, _S.ENDED, *LEAVING)
SEARCHED: Final = (
    _S.LOOKING,
    _S.ASKING_HOOKS,
    _S.WITHDRAWING,
    _S.LAST_LOOK,
    _S.ACCOUNTING,
    _S.CONFIRMING,
)
OUTCOMES: Final = (*HAS_JOB, _S.VOID)
_ANSWERS: Final = (
    _E.BOUND,
    _E.UNBOUND,
    _E.HOOKS_SILENT,
    _E.RELEASED,
    _E.NOT_RELEASED,
    _E.ACCOUNTS_END,
    _E.ACCOUNTS_LIVE,
    _E.UNACCOUNTED,
)


def _rows() -> _Rows:
    yield from _launch()
    yield from _search()
    yield from _sweeps()
    yield from _eviction()
    yield from _orders()


def _launch() -> _Rows:
    yield (_S.UNKNOWN, _E.LAUNCH), AttemptEdge(_S.LEASING, (Act.OPEN_LEASE,))
    yield (_S.UNKNOWN, _E.OBSTRUCTED), AttemptEdge(_S.GIVING_UP, (Act.GIVE_UP,))
    yield (_S.UNKNOWN, _E.ADOPT), AttemptEdge(_S.SUBMITTED, (Act.NOTE_ACCEPTED, Act.ANSWER))
    yield (_S.LEASING, _E.LEASED), AttemptEdge(_S.SUBMITTING, (Act.SUBMIT,))
    yield (_S.LEASING, _E.NOT_LEASED), AttemptEdge(_S.GIVING_UP, (Act.GIVE_UP,))
    yield (
        (_S.SUBMITTING, _E.ACCEPTED),
        AttemptEdge(_S.SUBMITTED, (Act.NOTE_ACCEPTED, Act.ANSWER)),
    )
    yield (_S.SUBMITTING, _E.REFUSED), AttemptEdge(_S.GIVING_UP, (Act.GIVE_UP,))
    yield (_S.SUBMITTING, _E.UNANSWERED), AttemptEdge(_S.LOOKING, (Act.LOOK,))


def _search() -> _Rows:
    """An sbatch whose outcome is not known is looked for until that is certain."""
    found, late = (Act.NOTE_FOUND, Act.ANSWER), (Act.NOTE_LATE, Act.ANSWER)
    give_up = AttemptEdge(_S.GIVING_UP, (Act.GIVE_UP,))
    again = AttemptEdge(_S.LOOKING, (Act.LOOK_LATER,))
    for state in SEARCHED:
        for event, to in SHOWN.items():
            yield (state, event), AttemptEdge(to, late if state is _S.CONFIRMING else found)
    for event in (_E.MISSED, _E.BLIND):
        yield (_S.LOOKING, event), again
    yield (_S.LOOKING, _E.HORIZON_OVER), AttemptEdge(_S.ASKING_HOOKS, (Act.ASK_HOOKS,))
    yield (_S.ASKING_HOOKS, _E.BOUND), AttemptEdge(_S.SUBMITTED, late)
    yield (_S.ASKING_HOOKS, _E.UNBOUND), AttemptEdge(_S.WITHDRAWING, (Act.WITHDRAW,))
    yield (_S.ASKING_HOOKS, _E.HOOKS_SILENT), again
    yield (_S.WITHDRAWING, _E.RELEASED), AttemptEdge(_S.LAST_LOOK, (Act.LOOK,))
    yield (_S.WITHDRAWING, _E.NOT_RELEASED), again
    yield (_S.LAST_LOOK, _E.BLIND), AttemptEdge(_S.LAST_LOOK, (Act.LOOK_LATER,))
    yield (_S.LAST_LOOK, _E.MISSED), AttemptEdge(_S.ACCOUNTING, (Act.ASK_ACCOUNTS,))
    yield (_S.ACCOUNTING, _E.UNACCOUNTED), give_up
    yield (_S.ACCOUNTING, _E.ACCOUNTS_END), AttemptEdge(_S.SUBMITTED, late)
    yield (_S.ACCOUNTING, _E.ACCOUNTS_LIVE), AttemptEdge(_S.CONFIRMING, (Act.SUPPOSE,))
    yield (_S.CONFIRMING, _E.BLIND), AttemptEdge(_S.CONFIRMING, (Act.LOOK_LATER,))
    yield (_S.CONFIRMING, _E.MISSED), give_up
    for state in HAS_JOB:  # a sweep has shown it while the question was on its way
        for event in _ANSWERS:
            yield (state, event), AttemptEdge(state)


def _sweeps() -> _Rows:
    for state in (_S.SUBMITTED, _S.RUNNING, _S.ENDED):
        for event, to in SHOWN.items():
            yield (state, event), AttemptEdge(to)
        yield (state, _E.MISSED), AttemptEdge(_S.SUBMITTED)
    for event, to in SHOWN.items():
        yield (_S.INTENT, event), AttemptEdge(to, (Act.NOTE_FOUND,))
    # Shown before sbatch answers, or although it was given up: the answer, or a cancel, decides.
    for state in (_S.UNKNOWN, _S.LEASING, _S.SUBMITTING, _S.GIVING_UP, _S.VOID):
        for event in SHOWN:
            yield (state, event), AttemptEdge(state)


def _eviction() -> _Rows:
    # Of what was given up a job may live all the same, beyond every limit of sbatch.
    for state in (_S.UNKNOWN, _S.SUBMITTED, _S.RUNNING, _S.ENDED, _S.VOID):
        yield (state, _E.EVICT), AttemptEdge(_S.EVICTING)
    for state in LEAVING:
        yield (state, _E.SHOWN_WAITING), AttemptEdge(state)  # see REQUEUED
        yield (state, _E.SHOWN_RUNNING), AttemptEdge(state)
        yield (state, _E.SHOWN_ENDED), AttemptEdge(_S.ENDED)
        yield (state, _E.MISSED), AttemptEdge(_S.SUBMITTED)
        yield (state, _E.REQUEUED), AttemptEdge(_S.TAKEN_BACK, (Act.SCANCEL,))
        yield (state, _E.SAVED), AttemptEdge(_S.KILLED, (Act.KILL,))
        yield (state, _E.KILL_DUE), AttemptEdge(_S.KILLED, (Act.NOTE_FORCED, Act.KILL))
    yield (_S.EVICTING, _E.TERM_DUE), AttemptEdge(_S.TERMINATED, (Act.SIGNAL_TERM,))
    for state in (_S.EVICTING, _S.TERMINATED):
        yield (state, _E.CANCEL_DUE), AttemptEdge(_S.CANCELLED, (Act.NOTE_FORCED, Act.SCANCEL))
    yield (_S.TERMINATED, _E.ACT_FAILED), AttemptEdge(_S.EVICTING)
    yield (_S.CANCELLED, _E.ACT_FAILED), AttemptEdge(_S.TERMINATED)
    for state in (_S.EVICTING, _S.KILLED, _S.TAKEN_BACK, _S.ENDED, _S.SUBMITTED, _S.RUNNING):
        yield (state, _E.ACT_FAILED), AttemptEdge(state)


def _orders() -> _Rows:
    """Orders that come again, or wait for the outcome."""
    yield (_S.INTENT, _E.SETTLE), AttemptEdge(_S.LOOKING, (Act.LOOK,))
    for state in (_S.UNKNOWN, *OUTCOMES):
        yield (state, _E.SETTLE), AttemptEdge(state, (Act.ANSWER,))
    for state in (_S.UNKNOWN, _S.INTENT, _S.VOID):
        yield (state, _E.ABANDON), AttemptEdge(_S.GIVING_UP, (Act.GIVE_UP,))
    for event in (_E.RELEASED, _E.NOT_RELEASED):  # what stays is removed after a sweep
        yield (_S.GIVING_UP, event), AttemptEdge(_S.VOID, (Act.ANSWER,))


def _table(rows: Iterable[tuple[_Key, AttemptEdge]]) -> Mapping[_Key, AttemptEdge]:
    found: dict[_Key, AttemptEdge] = {}
    for key, edge in rows:
        assert key not in found, f"two rows for {key}"
        found[key] = edge
    return MappingProxyType(found)


ATTEMPT_TRANSITIONS: Final = _table(_rows())
