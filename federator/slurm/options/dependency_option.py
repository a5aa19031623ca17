"""Reads ``--dependency`` and ``--kill-on-invalid-dep``.

The grammar is sbatch's: ``TYPE:JOB[+MINUTES][:JOB…]`` joined by ``,`` (all of them) or ``?`` (any
of them), not both; ``singleton``; a bare job id is ``afterany``. A job is an id, a task of an array
(``ID_3``, ``ID_[1-3]``), or all of its tasks (``ID``, ``ID_*``). Whether there is such a job is for
the daemon to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from federator.errors import InvalidRequest
from federator.model.eligibility import NO_DEPENDENCY, Condition, Dependency, DependencyKind
from federator.model.workload import WorkloadId
from federator.slurm.options import quantities

MAX_CONDITIONS: Final = 1_000  # jobs and tasks that one submission may name
MAX_MINUTES: Final = 10 * 366 * 1_440
PROBLEM: Final = "Batch job submission failed: Job dependency problem"

_SEPARATOR: Final = re.compile(r"[,?](?![^\[]*\])")  # not within brackets
_JOB: Final = re.compile(
    r"(?P<id>[0-9]{1,18})(?:_(?P<index>[0-9]{1,9}|\*|\[[0-9,:-]+\]))?(?:\+(?P<minutes>[0-9]{1,9}))?",
    re.ASCII,
)
_KINDS: Final = {kind.value: kind for kind in DependencyKind}
_NOT_HERE: Final = {
    "afterburstbuffer": "no site's burst buffer is planned with; use afterany",
    "expand": "a job cannot grow; ask for all nodes at once",
}


def read_dependency(texts: Sequence[str | None], kills: Sequence[str | None]) -> Dependency:
    """The dependency of a submission, of which each component may say the same.

    Args:
        texts: ``--dependency`` of each component; None where it is not given.
        kills: ``--kill-on-invalid-dep``, likewise.

    Raises:
        InvalidRequest: one cannot be read, or two components disagree.
    """
    asked = {text for text in texts if text is not None}
    if len(asked) > 1:
        raise InvalidRequest("--dependency differs between components; a het job has one")
    kill = [_kill(text) for text in kills if text is not None]
    text = asked.pop() if asked else ""
    if text in ("", "0"):
        return NO_DEPENDENCY
    found = dependency(text)
    return msgspec.structs.replace(found, kill=any(kill))


def dependency(text: str) -> Dependency:
    """Read the value of ``--dependency``.

    Raises:
        InvalidRequest: it is none.
    """
    separators = set(_SEPARATOR.findall(text))
    if len(separators) > 1:
        raise _refused(text, "it has both , (all) and ? (any)")
    conditions: dict[Condition, None] = {}
    for part in _SEPARATOR.split(text):
        for condition in _conditions(part, text):
            conditions[condition] = None
            if len(conditions) > MAX_CONDITIONS:
                raise _refused(text, f"it names more than {MAX_CONDITIONS} jobs")
    return Dependency(conditions=tuple(conditions), any_of="?" in separators)


def _conditions(part: str, text: str) -> Iterator[Condition]:
    word, colon, jobs = part.partition(":")
    name = word.lower()
    if name == DependencyKind.SINGLETON.value and not colon:
        yield Condition(kind=DependencyKind.SINGLETON)
        return
    if not colon and word[:1].isdecimal():
        name, jobs = DependencyKind.AFTER_ANY.value, word
    elif not colon or name == DependencyKind.SINGLETON.value:
        raise _refused(text, f"{part[:60]!r} is no TYPE:JOB")
    if name in _NOT_HERE:
        raise InvalidRequest(f"--dependency={name} is not supported: {_NOT_HERE[name]}")
    if name not in _KINDS:
        raise _refused(text, f"{word[:60]!r} is none of {', '.join(_KINDS)}")
    for job in jobs.split(":"):
        yield from _of_job(_KINDS[name], job, text)


def _of_job(kind: DependencyKind, job: str, text: str) -> Iterator[Condition]:
    match = _JOB.fullmatch(job)
    if match is None or not int(match["id"]):
        raise _refused(text, f"{job[:60]!r} is no job id")
    minutes = int(match["minutes"] or 0)
    has_delay = match["minutes"] is not None
    if has_delay and (kind is not DependencyKind.AFTER or not 0 < minutes <= MAX_MINUTES):
        raise _refused(
            text, f"{job[:60]!r}: only after:JOB+MINUTES has a delay, of a minute or more"
        )
    id_, index = WorkloadId(int(match["id"])), match["index"]
    tasks: Sequence[int | None] = (None,)
    if index is not None and index != "*":
        tasks = quantities.array(index.strip("[]"))[0]
    for task in tasks:
        yield Condition(kind=kind, job=id_, task=task, delay_s=60.0 * minutes)


def _kill(text: str) -> bool:
    if text.lower() not in ("yes", "no"):
        raise InvalidRequest(f"Invalid --kill-on-invalid-dep specification: {text[:60]}")
    return text.lower() == "yes"


def _refused(text: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{PROBLEM}: --dependency={text[:60]}: {why}")
