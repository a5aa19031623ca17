"""Declares ``Draft``, a submission before it has ids."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import msgspec

from federator.model.data_output import DataOutput
from federator.model.data_use import DataUse
from federator.model.eligibility import NO_DEPENDENCY, Dependency, Hold
from federator.model.submission import NodeRange
from federator.model.workload import ArrayTask, Job, TenantName, Workload, WorkloadId


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A submission that was read and found sound, before it has ids."""

    name: str
    user: str
    tenant: TenantName
    priority: int
    jobs: tuple[Job, ...]
    submission: msgspec.Raw  # a packed ``Submission``
    time_limit_s: float
    requeue: bool
    array_indices: tuple[int, ...] = ()
    array_max_running: int = 0
    asked_priority: int = 1  # the user's own demotion, see ``Workload``
    nice: int = 0
    optional: tuple[int, ...] = ()  # indices of array tasks, or numbers of jobs, to lose first
    no_preempt: bool = False
    continues: bool = False
    migrates: bool = False
    signal_lead_s: float = 0.0
    project: str = ""
    datasets: tuple[str, ...] = ()
    data: tuple[DataUse, ...] = ()
    output: DataOutput | None = None
    elastic: NodeRange | None = None
    spare: int = 0
    hold: Hold = Hold.NONE
    begin_at_s: float = 0.0  # Unix time before which it does not start (--begin)
    waits_for: Dependency = NO_DEPENDENCY  # --dependency
    deadline_at_s: float = inf  # as ``Workload``, and the next
    starts_by_s: float = inf
    interactive: bool = False  # this and the next as of ``Workload``
    watched: bool = False

    @property
    def preemptible(self) -> bool:
        """As ``Workload.preemptible``."""
        return self.requeue and not self.no_preempt

    def workloads(
        self, first: WorkloadId, now_s: float, array_id: WorkloadId | None = None
    ) -> tuple[Workload, ...]:
        """The workloads that it becomes: one, or one for each task of its array, with ids in order.

        ``array_id``: of its array, where that has more tasks than these.

        All share one packed submission and one tuple of jobs, however many they are.
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
                interactive=self.interactive,
                watched=self.watched,
                continues=self.continues,
                migrates=self.migrates,
                signal_lead_s=self.signal_lead_s,
                project=self.project,
                datasets=self.datasets,
                data=self.data,
                output=self.output,
                elastic=self.elastic,
                spare=self.spare,
                deadline_at_s=self.deadline_at_s,
                starts_by_s=self.starts_by_s,
                array=None if index is None else self._task(array_id or first, index),
            )
            for k, index in enumerate(self.array_indices or (None,))
        )

    def _task(self, array_id: WorkloadId, index: int) -> ArrayTask:
        return ArrayTask(array_id=array_id, index=index, max_running=self.array_max_running)
