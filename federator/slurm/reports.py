"""Reports each attempt's state: a site's job records, taken together per attempt.

Rules for the components of one het job (a plain job is a het job of one):

* any component runs: RUNNING; else any is suspended: SUSPENDED; else any is pending: PENDING
  (Slurm starts a het job as a whole, and requeues it component by component);
* all have ended: the worst outcome, see ``combined_state``;
* exit code and signal are the leader's, which runs the batch script; so is the reason, if any;
* what the site's watch or gate noted in a comment when it put the job back or ended it is added;
* the attempt started when its last component did, and ended when its last component did.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from federator.agent.base import Holder, KnownJobs
from federator.model.site import (
    AttemptReport,
    NodeShare,
    SiteComponent,
    SiteJob,
    SiteJobState,
    combined_state,
)
from federator.model.workload import AttemptId

MOST_SKEW_S: Final = 30.0  # of the agent's clock and slurmctld's; see agent.services.site_check
# Written by the watch (fednode/watching.py) and by the gate (fednode/lease.py). Users can write it,
# too: about their own jobs.
_NOTE: Final = re.compile(r"\S+ (fed-watch:\S{1,40}|fed-gate:\S{1,60})(?: |$)")


def is_launched(job: SiteJob, own: KnownJobs) -> bool:
    """Whether it is the very job that the agent launched under its number.

    Job ids come again where slurmctld has lost its state: another user's job, or a later submission
    by the same user, is another job. Of what was put back the time of submission is not asked, as
    it may have been renewed.
    """
    ours = own.launched.get(job.leader_id)
    if ours is None or job.user != ours.user:
        return False
    is_named = AttemptId.parse(job.comment) == ours.attempt
    return is_named or job.restarts > 0 or job.submitted_at_s <= ours.at_s + MOST_SKEW_S


def as_launched(job: SiteJob, own: KnownJobs) -> SiteJob:
    """The job with the comment that it was launched with, whatever its user has put there since.

    A user may annotate a job at any time (``scontrol update comment=``); it must not pass for
    vanished, and its workload start elsewhere.

    Args:
        job: of a site.
        own: what its agent knows.
    """
    if not is_launched(job, own):
        return job
    ours, named = own.launched[job.leader_id], AttemptId.parse(job.comment)
    if named == ours.attempt or named in own.begun:
        return job
    return replace(job, comment=str(ours.attempt))


def attempt_reports(jobs: Iterable[SiteJob]) -> tuple[AttemptReport, ...]:
    """Return one report per job, or het job, whose comment names an attempt; by job id.

    Two jobs that name one attempt give two reports. Anyone may write any comment on a job of their
    own: whoever acts on a report compares its ``user`` and job id with what was launched.
    """
    groups: dict[int, list[SiteJob]] = {}
    for job in jobs:
        groups.setdefault(job.leader_id, []).append(job)
    reports = (_report(leader, groups[leader]) for leader in sorted(groups))
    return tuple(report for report in reports if report is not None)


def _report(leader_id: int, components: list[SiteJob]) -> AttemptReport | None:
    components = sorted(components, key=lambda job: (job.het_offset, job.job_id))
    leader = components[0]  # of those the site still knows
    attempt = next(filter(None, (AttemptId.parse(job.comment) for job in components)), None)
    if attempt is None:
        return None
    state = combined_state(job.state for job in components)
    return AttemptReport(
        attempt=attempt,
        user=leader.user,
        site_job_id=leader_id,
        state=state,
        reason=_reason(components, state),
        exit_code=leader.exit_code,
        signal=leader.signal,
        started_at_s=max(job.started_at_s for job in components),
        ended_at_s=max(job.ended_at_s for job in components) if state.ended else 0.0,
        nodes=tuple(dict.fromkeys(name for job in components for name in job.nodes)),
        components={
            job.het_offset: SiteComponent(job.job_id, job.state)
            for job in components
            if job.het_job_id
        },
        restarts=max(job.restarts for job in components),
        preempted=any(
            job.preempted_at_s or job.state is SiteJobState.PREEMPTED for job in components
        ),
    )


def _reason(components: list[SiteJob], state: SiteJobState) -> str:
    """Slurm's word, and the watch's or the gate's where they may have done it: they note first."""
    words = next((job.reason for job in components if job.reason), "")
    if state not in (SiteJobState.CANCELLED, SiteJobState.PENDING):
        return words
    note = next(filter(None, (_NOTE.match(job.comment) for job in components)), None)
    return f"{words} {note[1]}".strip() if note is not None else words


def holders_of(jobs: Iterable[SiteJob]) -> tuple[Holder, ...]:
    """The holders of nodes; the components of a het job are one."""
    groups: dict[int, list[SiteJob]] = {}
    for job in jobs:
        if job.nodes:
            groups.setdefault(job.leader_id, []).append(job)
    return tuple(_holder(leader, parts) for leader, parts in groups.items())


def _holder(leader_id: int, parts: list[SiteJob]) -> Holder:
    nodes: dict[str, NodeShare] = {}
    for part in parts:
        for name, share in part.nodes.items():
            nodes[name] = nodes[name] + share if name in nodes else share
    return Holder(
        job_id=leader_id,
        attempt=next(filter(None, (AttemptId.parse(part.comment) for part in parts)), None),
        account=parts[0].account,
        started_at_s=max(part.started_at_s for part in parts),
        ends_by_s=max(part.ends_by_s for part in parts),
        nodes=nodes,
        components={part.het_offset: dict(part.nodes) for part in parts if part.het_job_id},
    )
