"""Reads from sacct how jobs ended that squeue has forgotten, for attempts it can prove.

A user may put anything into the comment and the sbatch line that accounting stores, line breaks and
Slurm's own field separators included. So each call has a separator of its own that nobody can
foresee; only where it follows a job's number does a record begin.

A record is an attempt's only if it is its user's, has its job id where that is known, and names the
attempt: in the comment, which sites store with AccountingStoreFlags=job_comment only, or in the
sbatch line, which every slurmdbd since 21.08 has. What does not prove that is passed over, and
absence proves nothing, since records reach slurmdbd late. That a job lives proves little: slurmdbd
does not hear of it when slurmctld loses its state.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Final

from federator.agent.base import Missing
from federator.model.site import AttemptReport, NodeShare, SiteJob
from federator.model.workload import AttemptId
from federator.slurm.parse_base import expand_hosts, parse_exit, parse_time_s
from federator.slurm.parse_jobs import STATES
from federator.slurm.reports import attempt_reports

SACCT_FIELDS: Final = (
    "JobID",
    "User",
    "State",
    "ExitCode",
    "Submit",
    "Start",
    "End",
    "NodeList",
    "Comment",
    "SubmitLine",
)
_ID: Final = re.compile(r"([0-9]{1,18})(?:\+([0-9]{1,9})|_[0-9]{1,18})?")
_COMMENT_OPTION: Final = re.compile(r"(?<!\S)'?--comment='?(fed:[0-9]{1,19}:[0-9]{1,19})(?![0-9])")


def accounted(
    output: bytes, separator: str, missing: Collection[Missing]
) -> dict[AttemptId, AttemptReport]:
    """Those of ``missing`` whose end the output of sacct proves; without a job id, or whose life.

    Args:
        output: of sacct with ``SACCT_FIELDS``, under ``SLURM_TIME_FORMAT=%s``.
        separator: of its fields; no user can have known it.
        missing: who is looked for.
    """
    records = list(_records(output.decode("utf-8", "replace"), separator))
    found: dict[AttemptId, AttemptReport] = {}
    for each in missing:
        jobs = [job for record in records if (job := _job_of(record, each)) is not None]
        if jobs:
            leader = max(job.leader_id for job in jobs)
            (report,) = attempt_reports(_last_of_each(jobs, leader))
            if report.state.ended or not each.job_id:
                found[each.attempt] = report
    return found


def _records(text: str, separator: str) -> Iterable[Sequence[str]]:
    begins = re.compile(rf"(?:^|\n)(?={_ID.pattern}{re.escape(separator)})")
    starts = [match.end() for match in begins.finditer(text)]
    for start, end in pairwise((*starts, len(text))):
        fields = text[start:end].removesuffix("\n").split(separator)
        if len(fields) == len(SACCT_FIELDS):
            yield fields


def _job_of(record: Sequence[str], wanted: Missing) -> SiteJob | None:
    """The record as a job, if it proves to be of the attempt."""
    id_, user, state, exit_, submitted, started, ended, hosts, comment, line = record
    match = _ID.fullmatch(id_)
    if match is None or user != wanted.user:
        return None
    leader, offset = int(match[1]), match[2]
    named = {AttemptId.parse(comment), *map(AttemptId.parse, _COMMENT_OPTION.findall(line))}
    if wanted.attempt not in named or wanted.job_id not in (0, leader):
        return None
    try:
        code, signal = parse_exit(exit_)
        nodes = expand_hosts("" if hosts == "None assigned" else hosts)
        return SiteJob(
            name="",
            account="",
            partition="",
            reason="",
            job_id=leader + int(offset or 0),
            het_job_id=leader if offset is not None else 0,
            het_offset=int(offset or 0),
            user=user,
            state=STATES[state.partition(" ")[0]],  # "CANCELLED by 1001"
            comment=str(wanted.attempt),
            exit_code=code,
            signal=signal,
            submitted_at_s=parse_time_s(submitted),
            started_at_s=parse_time_s(started) if nodes else 0.0,
            ended_at_s=parse_time_s(ended),
            nodes=dict.fromkeys(nodes, NodeShare()),
        )
    except (ValueError, KeyError):  # a state that nobody knows may be a live one
        return None


def _last_of_each(jobs: Iterable[SiteJob], leader: int) -> list[SiteJob]:
    """Each start of a job that was put back has a record of its own; the last one counts."""
    last: dict[int, SiteJob] = {}
    for job in sorted(jobs, key=lambda job: job.submitted_at_s):
        if job.leader_id == leader:
            last[job.het_offset] = job
    return list(last.values())
