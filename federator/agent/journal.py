"""The journal: the agent's memory, on disk, of what it was ordered to do with each attempt.

It makes an order repeatable: an attempt whose job id is known is never submitted again, one that
was given up is refused for ever, and one whose outcome is unknown (the agent died inside sbatch)
is looked for in Slurm first. One agent at a time holds the journal; a newer one takes it over.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from federator.agent.base import Launched
from federator.agent.tenure import UNRIVALLED, AgentTenure
from federator.errors import StaleState
from federator.model.site import AttemptReport
from federator.model.workload import AttemptId

KEEP_S: Final = 30 * 86_400.0


class JournalStep(Enum):
    """``INTENT`` is followed by ``JOB`` or ``VOID``; those two are final."""

    INTENT = "intent"  # sbatch was begun; its outcome is not known
    JOB = "job"  # submitted
    VOID = "void"  # not here, and never


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalMark:
    """The last word on one attempt."""

    step: JournalStep
    at_s: float
    user: str  # for whom
    job_id: int = 0
    checkpoint_dir: str = ""  # of its job; "": it has none, or an older release began it
    leave_by_s: float = 0.0  # it was told to leave by then; 0: it was not
    told_at_s: float = 0.0  # when it first was; 0: not yet
    saved_at_s: float = 0.0  # when the last of its checkpoints was complete; 0: none is known
    forced: bool = False  # it was killed at the end of its grace
    withdrawn: bool = False  # it was to end unless it had started
    cancelled: bool = False  # it was to end
    lived_at_s: float = 0.0  # its job was seen, about once a day
    work_dir: str | None = None  # as ``base.SubmittedJob``; None: its sbatch did not answer
    progress_s: float = 0.0  # the longest time between two of its steps; 0: none was given
    late: bool = False  # its job was found by what it had left: another may have its id since


_TORN: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What a line raises that was not written whole."""
_FIELDS: Final = tuple(each.name for each in fields(JournalMark))


class Served(NamedTuple):
    """A daemon's term, as its site remembers it."""

    epoch: int  # 0: none was served
    federation: str = ""  # its name; "": not known
    log_began: int = 0  # the epoch by which its log is told from others; 0: not known

    def is_of_another_log(self, later: Served) -> bool:
        """Whether a later term is not of the log that this one was of.

        A log that a release without this knowledge has served began by then.
        """
        if not self.epoch:
            return False
        if not self.log_began:
            return later.log_began > self.epoch
        return later.log_began != self.log_began


class MarkIndex:
    """The last word on every attempt, and whose each job is; in memory."""

    def __init__(self) -> None:
        self._marks: dict[AttemptId, JournalMark] = {}
        self._launched: dict[int, Launched] = {}
        self._begun: set[AttemptId] = set()
        self._place: dict[AttemptId, int] = {}  # of the line that began it, or gave it its job
        self._places = itertools.count()

    def remember(self, attempt: AttemptId, mark: JournalMark) -> None:
        """Take this for the last word on an attempt."""
        before = self._marks.get(attempt)
        self._place.setdefault(attempt, next(self._places))
        if mark.step is JournalStep.INTENT:
            self._begun.add(attempt)
        else:
            self._begun.discard(attempt)
        was_job = before is not None and (before.step, before.job_id) == (
            JournalStep.JOB,
            mark.job_id,
        )
        if mark.step is JournalStep.JOB and not was_job:
            self._own(attempt, mark)
        self._marks[attempt] = mark

    def _own(self, attempt: AttemptId, mark: JournalMark) -> None:
        """Ids come again: the last one counts, by the order of lines, for clocks jump.

        What was found late had its job before it was looked for: a job that was noted since then is
        a later one.
        """
        owner = self._launched.get(mark.job_id)
        if mark.late and owner and self._place[owner.attempt] > self._place[attempt]:
            return
        self._launched[mark.job_id] = Launched(attempt=attempt, user=mark.user, at_s=mark.at_s)
        self._marks.pop(attempt, None)  # so that a compacted file has this order
        self._place[attempt] = next(self._places)

    def get(self, attempt: AttemptId) -> JournalMark | None:
        """The last word on one attempt; None: there is none."""
        return self._marks.get(attempt)

    def marks(self) -> dict[AttemptId, JournalMark]:
        """The last word on every attempt."""
        return dict(self._marks)

    @property
    def launched(self) -> Mapping[int, Launched]:
        """Every attempt that is known to be a job, by its (leader's) job id."""
        return self._launched

    @property
    def begun(self) -> Collection[AttemptId]:
        """Every attempt whose sbatch may have made a job that is not known yet."""
        return self._begun

    def genuine(self, reports: Iterable[AttemptReport]) -> dict[AttemptId, AttemptReport]:
        """By attempt, without jobs whose comment only pretends.

        The journal knows for whom an attempt is and, once sbatch has answered, its job id. Where it
        knows neither (it was lost) the earliest job counts, and the daemon compares the user.
        """
        known: dict[AttemptId, AttemptReport] = {}
        for report in reports:
            mark = self.get(report.attempt)
            if mark is None or (
                mark.job_id in (0, report.site_job_id) and mark.user == report.user
            ):
                known.setdefault(report.attempt, report)
        return known

    def located(self, reports: Iterable[AttemptReport]) -> tuple[AttemptReport, ...]:
        """Add where each works, as far as its sbatch has told."""
        marks = self._marks
        return tuple(
            report
            if (mark := marks.get(report.attempt)) is None or mark.work_dir is None
            else replace(report, work_dir=mark.work_dir)
            for report in reports
        )


class Journal:
    """Append-only JSON lines, fsynced; the last line of an attempt counts.

    Args:
        folder: the agent's state folder, writable by it alone.
        now_s: Unix time, to drop marks older than ``KEEP_S``.
        tenure: of the agent that holds it; it has begun.
    """

    def __init__(self, folder: Path, now_s: float, tenure: AgentTenure = UNRIVALLED) -> None:
        self.tenure = tenure
        self._path = folder / "journal"
        self._epoch_path = folder / "epoch"
        self.index = MarkIndex()
        self._load(now_s)
        self._rewrite()
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def _load(self, now_s: float) -> None:
        if not self._path.exists():
            return
        for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
            with suppress(*_TORN):
                mark = json.loads(line)
                attempt = AttemptId.parse(mark["attempt"])
                last_s = max(mark["at_s"], mark.get("lived_at_s", 0.0))
                if attempt is not None and now_s - last_s < KEEP_S:
                    known = {name: mark[name] for name in _FIELDS if name in mark}
                    self.index.remember(
                        attempt, JournalMark(**(known | {"step": JournalStep(mark["step"])}))
                    )

    def _rewrite(self) -> None:
        """Compact: one line for each attempt, put in place in one step."""
        lines = [_line(attempt, mark) for attempt, mark in self.index.marks().items()]
        self.tenure.put_in_place(self._path, "".join(lines).encode())

    @property
    def served(self) -> Served:
        """The newest term that this site has served."""
        return last_served(self._epoch_path.parent)

    def write(self, attempt: AttemptId, mark: JournalMark) -> None:
        """Make a mark durable; ``index`` is not told.

        Raises:
            OSError: it could not be written; nothing may be done that relies on it.
            StaleState: another agent of this site acts.
        """
        self.tenure.check()
        # The newline in front keeps a line that was torn before from swallowing this one.
        data = b"\n" + _line(attempt, mark).encode()
        if os.write(self._file, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        # An order is carried out only after this: an agent that dies inside sbatch must leave its
        # intent.
        os.fsync(self._file)

    def put(self, attempt: AttemptId, mark: JournalMark) -> None:
        """Remember a mark, durably.

        Raises:
            OSError: as ``write``; it is not remembered.
        """
        self.write(attempt, mark)
        self.index.remember(attempt, mark)

    def accept(self, term: Served, *, displaces: bool = False) -> None:
        """Serve this term, and none older or of another log from now on.

        Raises:
            StaleState: a newer daemon has been here, or one of another log.
        """
        before = check_term(self._epoch_path.parent, term, displaces=displaces)
        # Equal is no news; smaller was refused by check_term, so that a daemon that was replaced
        # orders nothing here.
        if term.epoch <= before.epoch:
            return
        log_began = term.log_began or before.log_began
        said = f"{term.epoch} {term.federation} {log_began}"
        self.tenure.put_in_place(self._epoch_path, said.encode())


class OtherLog(StaleState):
    """The daemon's log is not the one that the site has served."""


def check_term(folder: Path, term: Served, *, displaces: bool = False) -> Served:
    """Return what this site has served last.

    Raises:
        StaleState: it is of a newer epoch.
        OtherLog: it is of another log, and that is not to be displaced.
    """
    before = check_epoch(folder, term.epoch)
    if term.log_began and not displaces and before.is_of_another_log(term):
        raise OtherLog(
            f"this site serves another log, of epoch {before.epoch}; this daemon's log began with "
            f"epoch {term.log_began}"
        )
    return before


def check_epoch(folder: Path, epoch: int) -> Served:
    """Return what this site has served last.

    Raises:
        StaleState: it is of a newer epoch.
    """
    before = last_served(folder)
    if epoch < before.epoch:
        raise StaleState(f"epoch {epoch} is over: this site has served epoch {before.epoch}")
    return before


def last_served(folder: Path) -> Served:
    """The newest term that this site has served."""
    path = folder / "epoch"
    said = (path.read_text() if path.exists() else "0").split(" ")
    epoch, federation, log_began = (*said, "", "")[:3]
    return Served(int(epoch), federation.strip(), int(log_began or 0))


def _line(attempt: AttemptId, mark: JournalMark) -> str:
    said = {
        name: value
        for name, value in asdict(mark).items()
        if value or name == "at_s" or (name == "work_dir" and value is not None)
    }
    return json.dumps({"attempt": str(attempt)} | said | {"step": mark.step.value}) + "\n"
