"""Jobs that fscancel finds by what they are: each is looked up, then cancelled by its id."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from federator.cli.client import ask
from federator.cli.flags import Given
from federator.cli.fscancel import IDS_IN_A_CALL, SELECTING, cancelled, say
from federator.cli.job_states import CODES
from federator.cli.node_lists import expanded
from federator.cli.queue_columns import Shown, job_id
from federator.cli.queue_filter import asks_for, option_of, partitions_of
from federator.cli.text import listed, my_name, printable, unexpected
from federator.errors import InvalidRequest, SiteUnavailable
from federator.model.lifecycle import WorkloadState
from federator.wire.client_protocol import ErrorReply, QueueCall, QueueReply, QueueRow

_S = WorkloadState
_STATES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "PENDING": (
            _S.PENDING.value,
            _S.INELIGIBLE.value,
            _S.HELD.value,
            _S.AWARDED.value,
            _S.LAUNCHING.value,
        ),
        "RUNNING": (_S.RUNNING.value, _S.PREEMPTING.value),
        "SUSPENDED": (_S.RUNNING.value,),
    }
)
"""What has not started is pending, also what its site is about to start."""
_MAX_FILE_CHARS: Final = 2**20


def run(given: Given, ids: tuple[str, ...], users: tuple[str, ...], signal: str) -> int:
    """Cancel, or signal, the jobs that the options choose; 1 if one could not be."""
    question = _question(given, ids, users)
    chosen = _Chosen(given, signal, _nodes(given.get("nodelist")))
    for start in range(0, max(len(ids), 1), IDS_IN_A_CALL):
        chosen.take(replace(question, ids=ids[start : start + IDS_IN_A_CALL]))
    if not chosen.done and not chosen.errors and "verbose" in given:
        _say_none(given, users)
    what = f"Signal {signal} to" if signal else "Terminating"
    done = chosen.done
    return say(given, tuple(done), tuple(chosen.errors), done.values(), what)


@dataclass(slots=True)
class _Chosen:
    """What became of the jobs that the options choose.

    Attributes:
        done: their ids, each with the name of the job.
        errors: each once.
    """

    given: Given
    signal: str
    nodes: frozenset[str] | None
    done: dict[int, str] = field(default_factory=dict)
    errors: dict[str, None] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)

    def take(self, question: QueueCall) -> None:
        """Cancel, or signal, those that a question is about."""
        while True:
            reply = _rows(question)
            unknown = (f"Invalid job id specified: {id_}" for id_ in reply.unknown)
            self.errors.update(dict.fromkeys(unknown))
            rows = [row for row in reply.rows if self._is_new(row)]
            self._seen.update(row.id for row in rows)
            rows = [row for row in rows if "interactive" not in self.given or _confirmed(row)]
            if rows:
                reached, refused = _act(self.given, rows, self.signal)
                names = {row.id: _name(row) for row in rows}
                self.done.update({id_: names.get(id_, str(id_)) for id_ in reached})
                self.errors.update(dict.fromkeys(refused))
            if not rows or not reply.left_off:
                break
        if reply.left_off:
            text = f"{reply.left_off} jobs could not be looked at; choose fewer, as by --user"
            self.errors[text] = None

    def _is_new(self, row: QueueRow) -> bool:
        return row.id not in self._seen and _is_meant(row, self.given, self.nodes)


def _act(
    given: Given, rows: list[QueueRow], signal: str
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Do it; return the ids of those to which it was done, and the errors."""
    ids = tuple(map(_name, rows))
    if not signal:
        reply = cancelled(ids, ())
        return reply.ids, reply.errors
    from federator.cli.send_signal import signalled  # noqa: PLC0415

    return signalled(given, ids, signal)


def _name(row: QueueRow) -> str:
    """The name of this job alone: the bare id of an array's first task means the whole array."""
    return f"{row.array_id}_{row.array_index}" if row.array_id else str(row.id)


def _question(given: Given, ids: tuple[str, ...], users: tuple[str, ...]) -> QueueCall:
    if not users and not ids and os.geteuid() != 0:
        users = (my_name(),)
    of_details = ("partition", "qos", "reservation", "wckey", "interactive")
    needs_details = any(name in given for name in of_details)
    return QueueCall(
        ids=ids,
        users=users,
        states=_states(given.get("state")),
        names=_one(given.get("name")),
        tenants=_one(given.get("account")),
        partitions=_one(given.get("partition")),
        clusters=listed(given.get("clusters")),
        brief=True,
        details=needs_details,
    )


def _one(text: str | None) -> tuple[str, ...]:
    listed(text)  # refuses what is not UTF-8
    return () if text is None else (text,)


def _states(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    word = text.upper()
    word = next((name for name, code in CODES.items() if code == word), word)
    if word not in CODES:
        raise InvalidRequest(
            f"Invalid job state specified: {text}; valid job states are PENDING, RUNNING, and "
            "SUSPENDED"
        )
    return _STATES.get(word, ("none",))


def _rows(question: QueueCall) -> QueueReply:
    reply = ask(question, lambda text: print(f"fscancel: {printable(text)}", file=sys.stderr))
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    if not isinstance(reply, QueueReply):
        raise unexpected(reply)
    if question.clusters and not reply.selects:
        raise SiteUnavailable("the daemon is of an earlier build and does not know --clusters")
    return reply


def _nodes(text: str | None) -> frozenset[str] | None:
    """The nodes of ``--nodelist``; a path names a file of names."""
    if text is None:
        return None
    if "/" not in text:
        return expanded(text, "--nodelist")
    try:
        with Path(text).open(encoding="utf-8") as file:
            content = file.read(_MAX_FILE_CHARS + 1)
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"--nodelist={text}: {error}") from error
    if len(content) > _MAX_FILE_CHARS:
        raise InvalidRequest(f"--nodelist={text}: more than {_MAX_FILE_CHARS} characters")
    return expanded(",".join(content.split()), "--nodelist")


def _is_meant(row: QueueRow, given: Given, nodes: frozenset[str] | None) -> bool:
    """Whether the options choose a row; a daemon of an older release has left none out."""
    name, account = given.get("name"), given.get("account")
    partition, qos, wckey = given.get("partition"), given.get("qos"), given.get("wckey")
    states, reservation = _states(given.get("state")), given.get("reservation")
    suspended = (given.get("state") or "").upper() in ("S", "SUSPENDED")
    return (
        row.state != _S.CANCELLING.value
        and (not states or row.state in states)
        and (not suspended or row.site_state == "SUSPENDED")
        and (name is None or row.name == name)
        and (account is None or row.tenant.lower() == account.lower())
        and (partition is None or partition in partitions_of(row))
        and (qos is None or option_of(row, "qos").lower() == qos.lower())
        and (wckey is None or option_of(row, "wckey") == wckey)
        and (reservation is None or asks_for(row, "reservation", reservation))
        and (nodes is None or not nodes.isdisjoint(row.node_names))
    )


def _confirmed(row: QueueRow) -> bool:
    partition = ",".join(partitions_of(row)) or "(null)"
    text = f"Cancel job_id={job_id(Shown(row))} name={row.name} partition={partition} [y/n]? "
    print(printable(text), end="", flush=True)
    while answer := sys.stdin.readline():
        if answer.strip().lower() in ("y", "n"):
            return answer.strip().lower() == "y"
        print("[y/n]? ", end="", flush=True)
    return False


def _say_none(given: Given, users: Iterable[str]) -> None:
    chosen = [f"{name}={given.get(name)}" for name in sorted(SELECTING) if name in given]
    chosen += [f"user_name={user}" for user in users]
    text = f"No active jobs match ALL job filters, including: {' '.join(chosen)}"
    print(printable(f"fscancel: error: {text}"), file=sys.stderr)
