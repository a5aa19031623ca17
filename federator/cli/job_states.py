"""Slurm's job states: the one that a row of the queue is in, and those that a user asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from federator.cli.text import listed
from federator.errors import InvalidRequest
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.wire.client_protocol import QueueRow

_S = WorkloadState
CODES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "PENDING": "PD", "RUNNING": "R", "SUSPENDED": "S", "COMPLETED": "CD", "CANCELLED": "CA",
        "FAILED": "F", "TIMEOUT": "TO", "NODE_FAIL": "NF", "PREEMPTED": "PR", "BOOT_FAIL": "BF",
        "DEADLINE": "DL", "OUT_OF_MEMORY": "OOM", "COMPLETING": "CG", "CONFIGURING": "CF",
        "EXPEDITING": "EX", "RESIZING": "RS", "RESV_DEL_HOLD": "RD", "REQUEUED": "RQ",
        "REQUEUE_FED": "RF", "REQUEUE_HOLD": "RH", "REVOKED": "RV", "SIGNALING": "SI",
        "SPECIAL_EXIT": "SE", "STAGE_OUT": "SO", "STOPPED": "ST",
    }
)  # fmt: skip
"""Slurm's own words, all that squeue takes, and its short codes."""

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        _S.PENDING.value: "PENDING",
        _S.INELIGIBLE.value: "PENDING",
        _S.HELD.value: "PENDING",
        _S.AWARDED.value: "CONFIGURING",
        _S.LAUNCHING.value: "CONFIGURING",
        _S.RUNNING.value: "RUNNING",
        _S.PREEMPTING.value: "COMPLETING",
        _S.CANCELLING.value: "COMPLETING",
        _S.COMPLETED.value: "COMPLETED",
        _S.FAILED.value: "FAILED",
        _S.TIMEOUT.value: "TIMEOUT",
        _S.CANCELLED.value: "CANCELLED",
    }
)
"""Slurm's word for each state of a workload; CONFIGURING: its site has it, it has not started."""

INELIGIBLE: Final = _S.INELIGIBLE.value
ENDED: Final = frozenset(state.value for state in TERMINAL)
WAITS: Final = frozenset({_S.PENDING.value, _S.INELIGIBLE.value, _S.HELD.value})
_NAMED: Final = {code: name for name, code in CODES.items()}
_FAILED, _RUNNING = _S.FAILED.value, _S.RUNNING.value  # an enum's value is slow to read
# Of what its site told: these say more than that it failed, or that it is there.
_SITE_ENDS: Final = frozenset({"NODE_FAIL", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"})


def state_name(row: QueueRow) -> str:
    """Slurm's word for the state of a row; "?" of one that only a later release knows."""
    state, at_site = row.state, row.site_state
    if at_site:
        if state == _FAILED and at_site in _SITE_ENDS:
            return at_site
        if state == _RUNNING and at_site == "SUSPENDED":
            return at_site
    return NAMES.get(state, "?")


def state_code(row: QueueRow) -> str:
    """Slurm's short code for the state of a row."""
    return CODES.get(state_name(row), "?")


def asked_states(text: str | None, known: Iterable[str] = CODES) -> frozenset[str] | None:
    """The states that ``-t`` names: Slurm's words, or the federation's own for a workload's.

    Args:
        text: as the user gave it, words or codes in any case; None: it was not given.
        known: Slurm's words that are taken.

    Returns:
        Words of Slurm's in capitals, and of the federation's; None: ``all`` of them. Where no
        states were asked for those of live jobs.

    Raises:
        InvalidRequest: one is none.
    """
    if text is None:
        return frozenset(NAMES[state] for state in NAMES if state not in ENDED) | {"SUSPENDED"}
    asked = [word.upper() for word in listed(text)]
    if asked == ["ALL"]:
        return None
    taken = {_NAMED.get(word, word) for word in asked}
    unknown = taken - set(known) - set(NAMES)
    if unknown or not asked:
        named = ",".join(sorted(unknown)) or text
        raise InvalidRequest(
            f"Invalid job state specified: {named}; valid are {','.join(known).lower()}"
        )
    return None if "ALL" in taken else frozenset(taken)


def is_asked(row: QueueRow, asked: frozenset[str] | None) -> bool:
    """Whether a row is in one of these states; what a later release calls its own always is."""
    return (
        asked is None
        or state_name(row) in asked
        or (row.state in asked and row.state not in CODES)
        or (row.state not in NAMES and "RUNNING" in asked)
    )


def workload_states(asked: frozenset[str] | None) -> tuple[str, ...]:
    """The workloads' states in which a row may be that is asked for; none: any."""
    if asked is None:
        return ()
    found = {state for state, name in NAMES.items() if name in asked or state in asked}
    if asked & _SITE_ENDS:
        found.add(_S.FAILED.value)
    if "SUSPENDED" in asked:
        found.add(_S.RUNNING.value)
    return tuple(state for state in NAMES if state in found)
