"""Names the files of a job: expands the federation's ids in them, as Slurm expands its own.

Two sites hand out the same job id, and share a region's storage; the id that the user was told is
one of a kind. So in ``--output``, ``--error`` and ``--input`` ``%j``, ``%J`` and ``%A`` stand for
it; in a task of an array ``%A`` for the array's id, ``%a`` for the index and ``%b`` for the index
modulo 10. The default is ``slurm-ID.out``, of a task ``slurm-ARRAY_INDEX.out``. The id that the
site gave is ``%L``, which no Slurm expands itself. All else is left to Slurm; and as with Slurm a
number pads with zeros up to 10 digits, a backslash anywhere in a pattern leaves it as it is, and
``--chdir`` is no pattern.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from federator.model.submission import Submission

if TYPE_CHECKING:
    from federator.slurm.options.options import Options

PATTERNS: Final = frozenset({"output", "error", "input"})  # options whose values are patterns
NO_FILE: Final = "/dev/null"
UNKNOWN: Final = "\0"  # stands for what only Slurm knows; no file name holds it
MAX_WIDTH: Final = 10  # Slurm's
SITE_ID: Final = "L"  # 26.05 has A, a, b, J, j, N, n, r, S, s, t, u, x

_SYMBOL: Final = re.compile(r"%(\d*)([^\d])", re.ASCII | re.DOTALL)


class FederationIds(Struct, frozen=True, kw_only=True):
    """The ids of a job: ``workload``; a task of an array also has ``array`` and ``index``."""

    workload: int
    array: int = 0  # 0: no task of an array
    index: int = 0

    @property
    def default_output(self) -> str:
        """The file that the batch script writes unless ``--output`` says."""
        own = f"{self.array}_{self.index}" if self.array else str(self.workload)
        return f"slurm-{own}.out"

    @property
    def by_symbol(self) -> dict[str, int]:
        """The number that each of our symbols stands for."""
        found = {"j": self.workload, "J": self.workload, "A": self.array or self.workload}
        return found | ({"a": self.index, "b": self.index % 10} if self.array else {})


class JobFiles(Struct, frozen=True, kw_only=True):
    """Absolute names; what only Slurm can know in them is as it was written (``%N``)."""

    work_dir: str
    stdin: str
    stdout: str
    stderr: str


def with_federation_ids(pattern: str, ids: FederationIds) -> str:
    """Expand our symbols; what is left is a pattern for the site's Slurm."""
    numbers = ids.by_symbol

    def expand(width: str, symbol: str) -> str | None:
        if symbol == SITE_ID:
            return f"%{width}j"
        return padded(numbers[symbol], width) if symbol in numbers else None

    return _expanded(pattern, expand)


def files_of(
    submission: Submission,
    ids: FederationIds,
    *,
    user: str,
    name: str,
    site_job_id: int = 0,
    work_dir: str | None = "",
) -> JobFiles:
    """The files of a job's batch script, as far as they are known outside its site.

    Args:
        submission: of its first component.
        ids: what it is called.
        user: who runs it.
        name: the job's.
        site_job_id: 0: not known yet; its symbol stays.
        work_dir: that the site used for want of the one asked for; "": it has that one; None: it is
            not known which, so what hangs on it is "".
    """
    asked = working_dir(submission)
    where = asked if work_dir == "" or names_its_dir(submission) else work_dir or ""
    words = {"u": user, "x": name} | ({SITE_ID: str(site_job_id)} if site_job_id else {})
    found = {}
    for option, pattern in _patterns(submission.components[0], ids).items():
        path = posixpath.join(where, _as_opened(pattern, ids, words))
        found[option] = path if posixpath.isabs(path) else ""
    return JobFiles(
        work_dir=where,
        stdin=found.get("input", NO_FILE),
        stdout=found["output"],
        stderr=found.get("error", found["output"]),
    )


def opened(
    submission: Submission, ids: FederationIds, *, user: str, name: str
) -> tuple[tuple[str, str, str], ...]:
    """Option, folder and name of what the batch script has open, for the site's helper.

    The name is "" where only Slurm knows it; where that is so of the folder, the file is left out.
    Relative folders are seen from where sbatch is called.
    """
    words = {"u": user, "x": name, UNKNOWN: UNKNOWN}
    base = working_dir(submission) if names_its_dir(submission) else ""
    parts = [
        (option, *posixpath.split(posixpath.join(base, _as_opened(pattern, ids, words))))
        for option, pattern in _patterns(submission.components[0], ids).items()
    ]
    return tuple(
        (option, folder, "" if UNKNOWN in file else file)
        for option, folder, file in parts
        if UNKNOWN not in folder
    )


def no_files() -> dict[str, object]:
    """Return the helper's orders for a job whose files need no care."""
    return {"names": (), "shared": (), "aside": ""}


def _patterns(options: Options, ids: FederationIds) -> dict[str, str]:
    values = {o.name: o.value for o in options if o.name in PATTERNS and o.value}
    return {"output": ids.default_output} | values


def _as_opened(pattern: str, ids: FederationIds, words: Mapping[str, str]) -> str:
    """The name that Slurm makes of a pattern, with ``text`` for what is no number of ours.

    What is in neither stays as it is, or becomes ``UNKNOWN`` if that is one of the words.
    """
    if pattern.lower() == "none":
        return NO_FILE
    if "\\" in pattern:
        return pattern.replace("\\", "")
    numbers = ids.by_symbol

    def expand(width: str, symbol: str) -> str | None:
        if symbol in numbers:
            return padded(numbers[symbol], width)
        if symbol == SITE_ID and symbol in words:
            return padded(int(words[symbol]), width)
        known = "%" if symbol == "%" and not width else words.get(symbol)
        return words.get(UNKNOWN) if known is None else known

    return _expanded(pattern, expand)


def names_its_dir(submission: Submission) -> bool:
    """Whether the batch script has a ``--chdir``: Slurm looks for nothing in its place."""
    return any(option.name == "chdir" and option.value for option in submission.components[0])


def working_dir(submission: Submission, component: int = 0) -> str:
    """The folder that a component was submitted from, or its ``--chdir`` seen from there."""
    options = submission.components[component]
    chosen = [option.value for option in options if option.name == "chdir" and option.value]
    return posixpath.join(submission.work_dir, *chosen[-1:])


def file_options(options: Options, ids: FederationIds, attempt: int) -> list[tuple[str, str]]:
    """The options of a job's files that sbatch needs beyond the job's own.

    From the second attempt on its output is appended to, as an earlier one has written there.
    """
    values = {option.name: option.value for option in options}
    said = [] if values.get("output") else [("output", ids.default_output)]
    return [*said, ("open-mode", "append")] if attempt > 1 and "open-mode" not in values else said


def padded(number: int, width: str) -> str:
    """Write a number as ``%WIDTHj`` does."""
    digits = width.lstrip("0")
    return str(number).zfill(MAX_WIDTH if len(digits) > 2 else min(MAX_WIDTH, int(digits or "0")))


def _expanded(pattern: str, expand: Callable[[str, str], str | None]) -> str:
    """Replace each symbol by what ``expand`` says of its width and letter; None: it stays."""
    if "\\" in pattern:
        return pattern

    def replacement(found: re.Match[str]) -> str:
        word = expand(found[1], found[2])
        return found[0] if word is None else word

    return _SYMBOL.sub(replacement, pattern)
