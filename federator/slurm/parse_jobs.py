"""Parses squeue and scontrol: the jobs at a site, and what they hold.

A user may put anything into a job's name, comment and account: spaces, ``JobState=RUNNING``, line
breaks, control characters. All of Slurm's text formats print it raw (22.05, 24.11 and 26.05 alike),
so no separator is safe, and `scontrol show jobs -o` can be made to print whole records of jobs that
do not exist. Therefore jobs are read from `squeue -O` in a mixed format: first the fields that
Slurm itself composes, each ended by ``|``; then the users' fields, padded and cut by Slurm to an
exact number of **bytes**. A reader that counts bytes cannot be misled.

GPUs per node are printed by `scontrol -d show job` only (squeue knows them nowhere, JSON apart).
They are read once per start of a job, and a record in which the fields that enclose them do not
occur exactly once is refused, so a hostile text can hide its own job's GPUs and nothing else.

Measured inside the testbed's containers with 300 one-GPU jobs, 64 of them running: medians of 7
runs, ms of the command + ms of parsing (`tests/bench/bench_slurm_queries.py`, 2 cores, 2026-11-20).

========================  =============  =============  =============  =========================
way                       22.05.8        24.11.5        26.05.5        verdict
========================  =============  =============  =============  =========================
squeue -O, this format    11.8 + 1.7     10.4 + 0.6     10.0 + 0.6     safe: chosen on all three
squeue -o, no user text    8.1 + 0.2      7.8 + 0.1      7.6 + 0.1     no comment, no exit code
scontrol -d show jobs -o  25.1 + 1.8     25.0 + 1.3     25.3 + 2.1     can be forged; GPUs only
squeue --json             48.7 + 5.7    135.3 + 13.6   144.6 + 13.8    safe, 4 to 14 times slower
========================  =============  =============  =============  =========================

(JSON is v0.0.38 on 22.05, which leaves bytes that are no UTF-8 as they are, and v0.0.42 later.)
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Final

from federator.model.local_record import LocalRecord
from federator.model.site import LocalJob, NodeShare, SiteJob, SiteJobState
from federator.slurm.parse_base import (
    ABSENT,
    Reading,
    count_ids,
    expand_hosts,
    parse_count,
    parse_exit,
    parse_gpus,
    parse_other_gres,
    parse_time_s,
    problem,
)
from federator.slurm.parse_watched import read_facts, watch_format, watched_record

_SAFE_FIELDS: Final = (
    "JobID",
    "UserName",
    "State",
    "exit_code",
    "HetJobID",
    "HetJobOffset",
    "ArrayJobID",
    "ArrayTaskID",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "NodeList",
    "Partition",
    "RestartCnt",
    "PreemptTime",
)
_FREE_FIELDS: Final = (("Account", 32), ("Reason", 80), ("Name", 64), ("Comment", 128))
_RECORD: Final = re.compile(
    rb"(?:[^|\n]*+\|){%d}+[\s\S]{%d}\n"
    % (len(_SAFE_FIELDS), sum(width for _, width in _FREE_FIELDS))
)

SQUEUE_FORMAT: Final = ",".join(
    [f"{name}:|" for name in _SAFE_FIELDS] + [f"{name}:{width}" for name, width in _FREE_FIELDS]
)
"""For ``squeue -O``; ``parse_jobs`` reads this and nothing else."""

WATCHED_FORMAT: Final = watch_format(SQUEUE_FORMAT)
"""The same with more, where a site's own queue is watched."""
_WATCHED: Final = watched_record(len(_SAFE_FIELDS), sum(width for _, width in _FREE_FIELDS))

OTHERS_FORMAT: Final = "JobID:|,StartTime:|,EndTime:|,NodeList:|"
"""For ``squeue -O``, of jobs outside the federation's partitions; Slurm composes all of it."""

_FIRST_WORD: Final = re.compile(r"[A-Za-z]{1,40}")
_NO_LIMIT_S: Final = 365 * 86_400
"""What Slurm's backfill writes as the time limit of a job that has none (22.05, 24.11, 26.05)."""

_RUNNING_WORDS: Final = (
    "RUNNING",
    "COMPLETING",
    "CONFIGURING",
    "SIGNALING",
    "STAGE_OUT",
    "STOPPED",
    "RESIZING",
    "POWER_UP_NODE",
    "UPDATE_DB",
)
_PENDING_WORDS: Final = (
    "PENDING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "SPECIAL_EXIT",
    "RESV_DEL_HOLD",
    "EXPEDITING",
)
STATES: Final = (
    {state.value: state for state in SiteJobState}
    | dict.fromkeys(_RUNNING_WORDS, SiteJobState.RUNNING)
    | dict.fromkeys(_PENDING_WORDS, SiteJobState.PENDING)
    | {
        "REVOKED": SiteJobState.CANCELLED,
        "LAUNCH_FAILED": SiteJobState.FAILED,
        "RECONFIG_FAIL": SiteJobState.FAILED,
    }
)

_GROUP: Final = r"Nodes=\S+ CPU_IDs=\S* Mem=\d+ GRES=\S*"
_LAYOUT: Final = re.compile(rf" JOB_GRES=\S* +({_GROUP}(?: +{_GROUP})*) +MinCPUsNode=")
_GROUP_FIELDS: Final = re.compile(r"Nodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(\S*)")

Layout = dict[str, NodeShare]


def parse_jobs(output: bytes, *, watched: bool = False) -> Reading[SiteJob]:
    """Read the output of `squeue -h -t all -O SQUEUE_FORMAT` under ``SLURM_TIME_FORMAT=%s``; with
    ``watched`` that by ``WATCHED_FORMAT``.

    A job that holds nodes has an empty share on each of them; ``parse_layouts`` tells what it
    holds. A job in a state that is not known is taken to run, with a problem: held to have ended,
    it might be started twice.

    Raises:
        ValueError: the output breaks off or is not in this format at all, so that what follows
            the break cannot be told apart from users' text.
    """
    jobs: list[SiteJob] = []
    problems: list[str] = []
    complete = True
    at = 0
    form, read = (_WATCHED, _read_watched) if watched else (_RECORD, _read_record)
    while at < len(output):
        match = form.match(output, at)
        if match is None:
            raise ValueError(f"no record of squeue starts with {output[at : at + 60]!r}")
        at = match.end()
        try:
            job, remark = read(match[0])
        except ValueError as error:
            complete = False
            problems.append(problem("job", match[0].decode("utf-8", "replace"), error))
            continue
        jobs.append(job)
        if remark:
            problems.append(remark)
    return Reading(records=tuple(jobs), problems=tuple(problems), complete=complete)


@lru_cache(maxsize=32_768)  # most records are the same from sweep to sweep
def _read_record(record: bytes) -> tuple[SiteJob, str]:
    """Return the job, and what had to be guessed about it (mostly nothing)."""
    *raw, users = record.split(b"|", len(_SAFE_FIELDS))
    job_id, user, word, exit_, het_id, het_offset, array_id, task, *rest = map(_text, raw)
    submitted, started, ended, hosts, partition, restarts, preempted = rest
    account, reason, name, comment = _cut(users)
    remark = ""
    state = STATES.get(word)
    if state is None:
        remark = problem("the state of job", job_id, f"unknown state {word[:30]!r}")
        state = SiteJobState.RUNNING
    code, signal = parse_exit(exit_)
    nodes = expand_hosts(hosts)
    # A pending job's start is an estimate, and one cancelled before its start "started" then.
    has_started = state is not SiteJobState.PENDING and bool(nodes)
    job = SiteJob(
        job_id=parse_count(job_id),
        name=name,
        user=user,
        account=_word(account),
        partition=partition,
        state=state,
        reason=_word(reason),
        comment=_word(comment),
        exit_code=code,
        signal=signal,
        het_job_id=_id(het_id),
        het_offset=_id(het_offset),
        array_job_id=0 if task in ABSENT else parse_count(array_id),
        array_task_id=int(task) if task.isascii() and task.isdecimal() else None,
        submitted_at_s=parse_time_s(submitted),
        started_at_s=parse_time_s(started) if has_started else 0.0,
        ended_at_s=parse_time_s(ended) if state.ended else 0.0,
        ends_by_s=_ends_by_s(started, ended) if has_started and not state.ended else inf,
        nodes={} if state.ended or not has_started else dict.fromkeys(nodes, NodeShare()),
        restarts=parse_count(restarts),
        preempted_at_s=parse_time_s(preempted),
    )
    return job, remark


@lru_cache(maxsize=32_768)
def _read_watched(record: bytes) -> tuple[SiteJob, str]:
    """As ``_read_record``, with what a record of the site's own jobs is made of."""
    match = _WATCHED.fullmatch(record)
    assert match is not None
    job, remark = _read_record(match[2] + b"\n")
    facts = read_facts(match[1], match[3])
    hosts = _text(match[2].split(b"|")[_SAFE_FIELDS.index("NodeList")])
    return replace(
        job,
        hosts=expand_hosts(hosts) if job.started_at_s else (),
        local=LocalRecord(
            job_id=job.job_id,
            shown=_shown(job),
            user=job.user,
            account=job.account,
            partition=job.partition,
            state=job.state.value,
            submitted_at_s=job.submitted_at_s,
            eligible_at_s=facts.eligible_at_s,
            started_at_s=job.started_at_s,
            ended_at_s=job.ended_at_s,
            restarts=job.restarts,
            limit_s=facts.limit_s,
            gpus=facts.gpus,
            gpu_type=facts.gpu_type,
            nodes=facts.nodes,
            held_by=_held_by(job),
        ),
    ), remark


def _held_by(job: SiteJob) -> str:
    """The first word of the reason for which it waits: what follows may be names of nodes."""
    waits = job.state is SiteJobState.PENDING
    found = _FIRST_WORD.match(job.reason) if waits else None
    return found[0] if found is not None else ""


def _shown(job: SiteJob) -> str:
    """The job's id as sacct shows it."""
    if job.array_job_id and job.array_task_id is not None:
        return f"{job.array_job_id}_{job.array_task_id}"
    return f"{job.het_job_id}+{job.het_offset}" if job.het_job_id else str(job.job_id)


def _ends_by_s(started: str, ended: str) -> float:
    """Return when a running job's time limit is over; ``inf`` where it has none.

    The end of a job without a limit is printed as none if the main scheduler started it, and as a
    year after its start if backfill did: a limit of a year or more says as little.
    """
    end_s = parse_time_s(ended)
    return end_s if 0 < end_s < parse_time_s(started) + _NO_LIMIT_S else inf


def _cut(users: bytes) -> list[str]:
    """Return the users' fields, each of exactly so many bytes."""
    texts, at = [], 0
    for _, width in _FREE_FIELDS:
        texts.append(_text(users[at : at + width]).rstrip(" "))
        at += width
    return texts


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _word(text: str) -> str:
    return "" if text in ABSENT else text


def _id(text: str) -> int:
    return 0 if text in ABSENT else parse_count(text)


def parse_layouts(text: str) -> tuple[dict[int, Layout], dict[int, str]]:
    """Read `scontrol -d show job[s] -o`: what each job holds on each of its nodes.

    Returns:
        Shares by job id; and by job id why they are not known, for each job that says so in no
        or in more than one way, or whose id several records claim.
    """
    layouts: dict[int, Layout] = {}
    refused: dict[int, str] = {}
    for record in re.split(r"\n(?=JobId=\d)", text):
        head = re.match(r"JobId=(\d{1,18})\b", record)
        if head is None:
            continue
        job_id = int(head[1])
        if job_id in layouts or job_id in refused:
            refused[job_id] = "several records claim to be this job's"
            continue
        try:
            layouts[job_id] = _layout(record)
        except ValueError as error:
            refused[job_id] = str(error)
    for job_id in refused:
        layouts.pop(job_id, None)
    return layouts, refused


def parse_layout(text: str, job_id: int) -> Layout:
    """Read `scontrol -d show job JOB_ID -o`; a het leader's also prints the other components.

    Raises:
        ValueError: what the job holds is not said exactly once.
    """
    if text.count(" JOB_GRES=") == 1:
        return _layout(text)  # one record, whatever line breaks the user put into it
    layouts, refused = parse_layouts(text)
    if job_id not in layouts:
        raise ValueError(refused.get(job_id, "there is no record of it"))
    return layouts[job_id]


def _layout(record: str) -> Layout:
    found = _LAYOUT.findall(record)
    if record.count(" JOB_GRES=") != 1 or record.count(" MinCPUsNode=") != 1 or len(found) != 1:
        raise ValueError("its record does not say it exactly once")
    layout: Layout = {}
    for hosts, cpu_ids, mem, gres in _GROUP_FIELDS.findall(found[0]):
        share = NodeShare(
            gpus=sum(parse_gpus(gres).values()),
            cpus=count_ids(cpu_ids),
            mem_mib=parse_count(mem),
            gres=parse_other_gres(gres).known,
        )
        layout.update(dict.fromkeys(expand_hosts(hosts), share))
    return layout


def parse_others(output: bytes) -> Reading[LocalJob]:
    """Read `squeue -h -t R,CF,CG,S -O OTHERS_FORMAT`: what holds which nodes, and until when."""
    jobs: list[LocalJob] = []
    problems: list[str] = []
    for line in output.decode("utf-8", "replace").splitlines():
        try:
            job_id, start, end, hosts, _ = line.split("|")
            ends_by_s = _ends_by_s(start, end)
            jobs.append(
                LocalJob(id=parse_count(job_id), nodes=expand_hosts(hosts), ends_by_s=ends_by_s)
            )
        except ValueError as error:
            problems.append(problem("job", line, error))
    held = tuple(job for job in jobs if job.nodes)
    return Reading(records=held, problems=tuple(problems), complete=not problems)


def is_federated(job: SiteJob) -> bool:
    """Return whether the job says that the federation submitted it."""
    return job.comment.startswith("fed:")
