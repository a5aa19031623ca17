"""Reads from sacct what jobs used: CPU time, memory, and GPUs where the site's Slurm measures them.

Memory is what seff shows: of the step that used most, the sum of its tasks' highest resident sets.
Of a het job all components add up. A number that sacct leaves empty is not known: Slurm measures
nothing with ``JobAcctGatherType=jobacct_gather/none``, and of a step shorter than the interval of
its measuring it may know nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Final

from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob

USAGE_FIELDS: Final = (
    "JobID",
    "User",
    "Start",
    "NTasks",
    "TotalCPU",
    "UserCPU",
    "SystemCPU",
    "MaxRSS",
    "AllocTRES",
    "TRESUsageInTot",
    "End",
)
_START: Final = USAGE_FIELDS.index("Start")
_END: Final = USAGE_FIELDS.index("End")
STARTS_DIFFER_S: Final = 120.0  # clocks, and what slurmctld told first
_ID: Final = re.compile(r"([0-9]{1,18})(?:\+([0-9]{1,9}))?(?:\.(.+))?")
_TIME: Final = re.compile(r"(?:([0-9]+)-)?(?:([0-9]+):)?([0-9]+):([0-9]+(?:\.[0-9]+)?)")
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGTP]?)")
_MIB: Final[Mapping[str, float]] = {
    "": 2.0**-20,
    "K": 2.0**-10,
    "M": 1.0,
    "G": 2.0**10,
    "T": 2.0**20,
    "P": 2.0**30,
}


@dataclass(slots=True)
class _Component:
    """A job, or a component of a het job, with its steps."""

    allocation: Sequence[str]
    steps: list[Sequence[str]] = field(default_factory=list)


def measured(output: str, ended: Collection[EndedJob]) -> list[MeasuredUse | None]:
    """What each of these used, in their order; None: sacct has no whole record of it.

    Of a job that was requeued each run has records of its own, its steps behind it.

    Args:
        output: of ``sacct -n -P -D`` with ``USAGE_FIELDS``, under SLURM_TIME_FORMAT=%s.
        ended: the jobs, of which the records must have the user and the start.
    """
    found: dict[int, dict[int, list[_Component]]] = defaultdict(lambda: defaultdict(list))
    for line in output.splitlines():
        record = line.split("|")
        match = _ID.fullmatch(record[0])
        if match is None or len(record) != len(USAGE_FIELDS):
            continue
        runs = found[int(match[1])][int(match[2] or 0)]
        if match[3] is None:
            runs.append(_Component(record))
        elif runs:
            runs[-1].steps.append(record)
    return [_of_job(found[job.site_job_id], job) for job in ended]


def _of_job(components: Mapping[int, Sequence[_Component]], job: EndedJob) -> MeasuredUse | None:
    all_runs = [runs for runs in components.values() if runs]
    known = [_run_of(runs, job) for runs in all_runs]
    if not known or not all(_is_its(each.allocation, job) for each in known):
        return None
    uses = [_of_component(each) for each in known]
    return MeasuredUse(
        cpu_s=_sum(use.cpu_s for use in uses),
        user_cpu_s=_sum(use.user_cpu_s for use in uses),
        system_cpu_s=_sum(use.system_cpu_s for use in uses),
        mem_mib=_sum(use.mem_mib for use in uses),
        task_mem_mib=_most(use.task_mem_mib for use in uses),
        alloc_cpus=_sum(use.alloc_cpus for use in uses),
        alloc_mem_mib=_sum(use.alloc_mem_mib for use in uses),
        gpu_util_frac=_gpu_util_frac(known),
        gpu_mem_mib=_most(use.gpu_mem_mib for use in uses),
        accounts_end_at_s=max(map(partial(_end_at_s, job), known, all_runs)),
    )


def _run_of(runs: Sequence[_Component], job: EndedJob) -> _Component:
    """The run that began when the job did, as far as any has begun."""

    def distance_s(run: _Component) -> float:
        start = run.allocation[_START]
        return abs(int(start) - job.started_at_s) if start.isdecimal() else inf

    return min(runs, key=distance_s)


def _end_at_s(job: EndedJob, first: _Component, runs: Iterable[_Component]) -> float:
    """The end of its run, or of the last that its site began by itself before all was over.

    What was put back and withdrawn has a record, too, of a run that took no time.
    """
    began, ends_s = int(first.allocation[_START]), [float(first.allocation[_END])]
    for start, end in ((run.allocation[_START], run.allocation[_END]) for run in runs):
        if start.isdecimal() and end.isdecimal() and began < int(start) < int(end):
            ends_s += [float(end)] if int(start) < job.ended_at_s else []
    return max(ends_s)


def _is_its(allocation: Sequence[str], job: EndedJob) -> bool:
    """A site that lost its state counts its jobs from one again: a number proves little.

    A job of which slurmdbd has no end yet is not known either: its last steps may be to come.
    """
    user, start, end = allocation[1], allocation[_START], allocation[_END]
    near = start.isdecimal() and abs(int(start) - job.started_at_s) <= STARTS_DIFFER_S
    return user == job.user and near and end.isdecimal()


def _of_component(component: _Component) -> MeasuredUse:
    allocation = component.allocation
    tres = _tres(allocation[8])
    used = [_tres(step[9]) for step in component.steps]
    is_measured = any(used)  # else sacct shows a time of 0 for what nobody measured
    return MeasuredUse(
        cpu_s=_time_s(allocation[4]) if is_measured else None,
        user_cpu_s=_time_s(allocation[5]) if is_measured else None,
        system_cpu_s=_time_s(allocation[6]) if is_measured else None,
        mem_mib=_most(_mib(each.get("mem")) for each in used),
        task_mem_mib=_most(_mib(step[7]) for step in component.steps),
        alloc_cpus=_number(tres.get("cpu")),
        alloc_mem_mib=_mib(tres.get("mem")),
        gpu_mem_mib=_most(_mib(each.get("gres/gpumem")) for each in used),
    )


def _gpu_util_frac(components: Iterable[_Component]) -> float | None:
    """The part of its GPUs that the step kept busy that used most of them, 0-1."""
    percent = gpus = 0.0
    is_measured = False
    for each in components:
        allocated = _tres(each.allocation[8]).get("gres/gpu", "0")
        most = _most(_number(_tres(step[9]).get("gres/gpuutil")) for step in each.steps)
        is_measured |= most is not None
        percent += most or 0.0
        gpus += _number(allocated) or 0.0
    return min(1.0, percent / 100 / gpus) if is_measured and gpus else None


def _tres(text: str) -> dict[str, str]:
    parts = (word.partition("=") for word in text.split(","))
    return {name: amount for name, _, amount in parts if amount}


def _time_s(text: str) -> float | None:
    """``[days-][hours:]minutes:seconds[.fraction]`` as seconds."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60 + float(match[4])


def _mib(text: str | None) -> float | None:
    match = _SIZE.fullmatch(text or "")
    return float(match[1]) * _MIB[match[2]] if match is not None else None


def _number(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
