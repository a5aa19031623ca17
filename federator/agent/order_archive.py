"""The archive of orders and ends of attempts, from which a lost queue can be rebuilt.

The order of each attempt lies beside the journal until a later one of its workload is here, or
``KEEP_S`` is over; its submission until it has completed for good. How each ended is remembered as
long. Nobody reads this but who answers ``RecoverAsk``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from federator.agent.journal import KEEP_S
from federator.agent.tenure import UNRIVALLED, AgentTenure, sync_folder
from federator.model.site import AttemptReport, SiteJobState
from federator.model.submission import Submission
from federator.model.unreadable import UNREADABLE
from federator.model.workload import AttemptId, WorkloadId
from federator.wire.agent_protocol import LaunchOrder

_Standing = tuple[SiteJobState, float, int]  # as far as it can change once it has ended


class _Ending(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file of endings."""

    at_s: float
    report: AttemptReport


_NONE: Final = Submission(components=(), script="")
_order_decoder: Final = msgspec.msgpack.Decoder(LaunchOrder)
_order_encoder: Final = msgspec.msgpack.Encoder()
_ending_decoder: Final = msgspec.json.Decoder(_Ending)


class OrderArchive:
    """One site's memory of orders and endings, on disk; used by one agent at a time.

    Args:
        folder: the agent's state folder, writable by it alone.
        now_s: Unix time, to drop what is older than ``KEEP_S``.
        tenure: of that agent.
    """

    def __init__(self, folder: Path, now_s: float, tenure: AgentTenure = UNRIVALLED) -> None:
        self._folder = folder / "orders"
        self._ends = folder / "ends"
        self._folder.mkdir(mode=0o700, exist_ok=True)  # orders hold users' environments
        self._attempts: dict[WorkloadId, set[int]] = {}
        self._ended: dict[AttemptId, AttemptReport] = {}
        self._drop_old_orders(now_s)
        self._compact(now_s, tenure)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._ends, flags)

    def close(self) -> None:
        """Let go of the file; nothing can be noted any more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _drop_old_orders(self, now_s: float) -> None:
        for entry in os.scandir(self._folder):
            attempt = _attempt_of(entry.name)
            if attempt is None or now_s - entry.stat(follow_symlinks=False).st_mtime >= KEEP_S:
                Path(entry.path).unlink()
            else:
                self._attempts.setdefault(attempt.workload, set()).add(attempt.attempt)

    def _compact(self, now_s: float, tenure: AgentTenure) -> None:
        """Keep the last word on each attempt, put in place in one step."""
        kept = {a: e for a, e in self._read().items() if now_s - e.at_s < KEEP_S}
        tenure.put_in_place(self._ends, b"".join(_line(ending) for ending in kept.values()))
        self._ended = {a: ending.report for a, ending in kept.items()}

    def _read(self) -> dict[AttemptId, _Ending]:
        found: dict[AttemptId, _Ending] = {}
        if self._ends.exists():
            for line in self._ends.read_bytes().splitlines():
                with suppress(*UNREADABLE):  # a torn line
                    ending = _ending_decoder.decode(line)
                    found[ending.report.attempt] = ending
        return found

    # ---- orders ----

    def put(self, order: LaunchOrder) -> None:
        """Remember an order; durable when this returns. Earlier ones of its workload go.

        Raises:
            OSError: it could not be written.
        """
        attempt = order.attempt
        _put_in_place(self._path(attempt), _order_encoder.encode(order))
        known = self._attempts.setdefault(attempt.workload, set())
        known.add(attempt.attempt)
        for earlier in [number for number in known if number < attempt.attempt]:
            known.discard(earlier)
            self._path(AttemptId(workload=attempt.workload, attempt=earlier)).unlink(
                missing_ok=True
            )

    def order(self, attempt: AttemptId) -> LaunchOrder | None:
        """The order of an attempt; None where it is not (any more) known."""
        if attempt.attempt not in self._attempts.get(attempt.workload, ()):
            return None
        try:
            return _order_decoder.decode(self._path(attempt).read_bytes())
        except (OSError, *UNREADABLE):
            return None

    def extend(self, attempt: AttemptId, now_s: float) -> None:
        """Its job lives: its order is as good as new."""
        with suppress(OSError):
            os.utime(self._path(attempt), (now_s, now_s))

    def _path(self, attempt: AttemptId) -> Path:
        return self._folder / f"{attempt.workload}.{attempt.attempt}"

    # ---- endings ----

    def record_ends(self, reports: Iterable[AttemptReport], now_s: float) -> None:
        """Remember how those of these that have ended did; durable when this returns.

        Raises:
            OSError: it could not be written.
        """
        fresh = [r for r in reports if r.state.ended and not self._is_known(r)]
        if not fresh:
            return
        lines = (_line(_Ending(at_s=now_s, report=report)) for report in fresh)
        data = b"\n" + b"".join(lines)  # the newline ends a line that was torn before
        if os.write(self._file, data) != len(data):
            raise OSError("the file of endings could not be written whole")
        os.fsync(self._file)
        for report in fresh:
            self._ended[report.attempt] = report
            if report.done_for_good:
                self._trim(report.attempt)

    def _is_known(self, report: AttemptReport) -> bool:
        known = self._ended.get(report.attempt)
        return known is not None and _standing(known) == _standing(report)

    def _trim(self, attempt: AttemptId) -> None:
        order = self.order(attempt)
        if order is not None and order.submission != _NONE:
            trimmed = msgspec.structs.replace(order, submission=_NONE)
            _put_in_place(self._path(attempt), _order_encoder.encode(trimmed))

    def ends(self) -> Mapping[AttemptId, AttemptReport]:
        """The ends of attempts, as far as this site has seen them."""
        return MappingProxyType(self._ended)


def _standing(report: AttemptReport) -> _Standing:
    return report.state, report.ended_at_s, report.site_job_id


def _line(ending: _Ending) -> bytes:
    return msgspec.json.encode(ending) + b"\n"


def _attempt_of(name: str) -> AttemptId | None:
    return AttemptId.parse("fed:" + name.replace(".", ":"))


def _put_in_place(path: Path, data: bytes) -> None:
    """Write a file in one step, so that it survives a crash whole, for the owner alone."""
    fresh = path.with_name(f".{path.name}.new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)
