"""What does the event log hold? Every decision and observation that changed a workload.

State is rebuilt by applying these in order; nothing else is needed. A record keeps its meaning
for ever: a new need gets a new field with a default, or a new tag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from federator.model.lifecycle import Happening
from federator.model.plan import JobPlan, Score, Shrink
from federator.model.reason import Reason
from federator.model.site import Leave
from federator.model.workload import (
    FIRST_WORKLOAD_ID,
    ArrayTask,
    AttemptId,
    Job,
    NodeRange,
    Submission,
    TenantName,
    Workload,
    WorkloadId,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A submission that was read and found sound, before it has ids."""

    name: str
    user: str
    tenant: TenantName
    priority: int
    jobs: tuple[Job, ...]
    submission: Submission
    time_limit_s: float
    requeue: bool
    array_indices: tuple[int, ...] = ()
    array_max_running: int = 0
    asked_priority: int = 1  # the user's own demotion, see ``Workload``
    nice: int = 0
    optional: tuple[int, ...] = ()  # indices of array tasks, or numbers of jobs, to lose first
    no_preempt: bool = False
    continues: bool = False
    signal_lead_s: float = 0.0
    project: str = ""
    datasets: tuple[str, ...] = ()
    elastic: NodeRange | None = None

    @property
    def preemptible(self) -> bool:
        """As ``Workload.preemptible``."""
        return self.requeue and not self.no_preempt

    def workloads(
        self, first: WorkloadId, now_s: float, array_id: WorkloadId | None = None
    ) -> tuple[Workload, ...]:
        """What it becomes: one workload, or one for each task of its array, with ids in order.

        ``array_id``: of its array, where that has more tasks than these.

        All share one ``Submission`` and one tuple of jobs, however many they are.
        """
        return tuple(
            Workload(
                id=WorkloadId(first + k),
                name=self.name,
                user=self.user,
                tenant=self.tenant,
                priority=self.priority,
                jobs=self.jobs,
                submission=self.submission,
                submitted_at_s=now_s,
                asked_priority=self.asked_priority,
                nice=self.nice,
                time_limit_s=self.time_limit_s,
                requeue=self.requeue,
                optional=index in self.optional,
                optional_jobs=() if self.array_indices else self.optional,
                no_preempt=self.no_preempt,
                continues=self.continues,
                signal_lead_s=self.signal_lead_s,
                project=self.project,
                datasets=self.datasets,
                elastic=self.elastic,
                array=None
                if index is None
                else ArrayTask(
                    array_id=array_id or first, index=index, max_running=self.array_max_running
                ),
            )
            for k, index in enumerate(self.array_indices or (None,))
        )


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    at_s: float  # Unix time at the daemon


class EpochBegan(Event, frozen=True, kw_only=True, tag="epoch"):
    """A daemon took over. Agents refuse messages of older epochs."""

    epoch: int
    first_id: WorkloadId = FIRST_WORKLOAD_ID  # ids below it are not given out any more


class Submitted(Event, frozen=True, kw_only=True, tag="submitted"):
    """One submission, acknowledged. It is kept once, however many tasks an array has."""

    draft: Draft
    first_id: WorkloadId  # the others follow in order
    key: str  # the client's submit key
    array_id: WorkloadId | None = None  # of a task whose array's other tasks stand elsewhere

    def workloads(self) -> tuple[Workload, ...]:
        """What was queued; all of them share the draft's submission."""
        return self.draft.workloads(self.first_id, self.at_s, self.array_id)


class Awarded(Event, frozen=True, kw_only=True, tag="awarded"):
    """The intent to launch; stored before the site is told."""

    attempt: AttemptId
    site: str
    jobs: tuple[JobPlan, ...]
    priority: int = 0  # at which it went, with its standing and credit; 0: of an older release
    within_quota: bool = False
    credit: float = 0.0
    offers: dict[str, Score] = {}  # of every site that bid, the winner's among them
    victims: tuple[WorkloadId, ...] = ()  # evicted once the site has accepted
    shrinks: tuple[Shrink, ...] = ()  # optional jobs of others, taken once the site has accepted


class Changed(Event, frozen=True, kw_only=True, tag="changed"):
    """Anything else that moved a workload along ``lifecycle.TRANSITIONS``.

    ``attempt`` is 0 only for what befalls a workload that is not at any site.
    """

    workload: WorkloadId
    happening: Happening
    attempt: int = 0
    site_job_id: int = 0
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    exit_code: int = 0
    signal: int = 0
    site_state: str = ""
    reason: Reason | None = None
    by: str = ""  # the user who asked for a cancel
    leave: Leave | None = None  # of one that was told to leave
    components: tuple[int, ...] = ()  # optional jobs that it loses, or has lost
    failed_nodes: tuple[str, ...] = ()  # of its site: they ended the attempt
    saved_at_s: float = 0.0  # its last checkpoint, if it was not told to leave; 0: none is known


LogRecord = EpochBegan | Submitted | Awarded | Changed

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[LogRecord]] = msgspec.msgpack.Decoder(LogRecord)


def encode_event(event: LogRecord) -> bytes:
    return _encoder.encode(event)


def decode_event(record: bytes) -> LogRecord:
    """Decode one log record.

    Raises:
        msgspec.MsgspecError: the record is damaged or written by a later release.
    """
    return _decoder.decode(record)
