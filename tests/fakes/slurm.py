"""A simulated Slurm as a ``SiteDriver`` that can be made to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Self

from federator.agent.base import (
    NOTHING,
    CheckpointStatus,
    KnownJobs,
    Missing,
    Partition,
    Probe,
    Removal,
    SbatchRefused,
    SubmittedJob,
    Sweep,
    Tidying,
)
from federator.agent.services.job_outputs import status_of
from federator.errors import SiteRefused, SiteUnavailable
from federator.faults.slurm import SimulatedJob, SimulatedSlurm
from federator.model.dataset import CopyPhase
from federator.model.site import AttemptReport, Node, SiteJob, SiteJobState
from federator.model.window import SiteWindow
from federator.model.workload import AttemptId
from federator.slurm.refusals import kind_of_refusal
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import (
    CopyOrder,
    EndedJob,
    LaunchOrder,
    OutputOrder,
    OutputStatus,
    PreemptOrder,
    SignalTo,
)


class SimulatedSite:
    """A ``SiteDriver`` over a ``SimulatedSlurm``, with faults to order."""

    def __init__(self, slurm: SimulatedSlurm) -> None:
        self.slurm = slurm
        self.submitted: list[AttemptId] = []  # every sbatch that reached Slurm
        self.down = False  # slurmctld does not answer
        self.windows: tuple[SiteWindow, ...] = ()
        self.shown: tuple[SiteWindow, ...] = ()  # by the last sweep
        self.settings_looks = 0  # at what admins change by hand
        self.start_lines: dict[AttemptId, str] = {}  # in place of scripts' own
        self.keeps_accounts = False  # there is a slurmdbd
        self.renamed: set[int] = set()  # jobs by whose comments nobody knows them
        self.sweep_takes_s = 0.0  # after the jobs were read
        self.refusal = ""  # sbatch says no
        self.work_dir: str | None = ""  # that the helper used in place of the one asked for
        self.reply_is_lost = False  # sbatch reaches Slurm, its answer does not come back
        self.order_is_lost = False  # sbatch never reaches Slurm, which is not known
        self.deadlines_s: dict[AttemptId, float] = {}  # of those that were told to leave
        self.signals: list[tuple[AttemptId, str, SignalTo]] = []
        self.limits: dict[AttemptId, int] = {}  # minutes, as users have lowered them
        self.seen: dict[AttemptId, CheckpointStatus] = {}  # what jobs have left in their folders
        self.unopened: dict[AttemptId, str] = {}  # what could not be opened for them
        self.copied: list[CopyOrder] = []
        self.sealed: list[OutputOrder] = []
        self.tidied: list[tuple[str, Tidying]] = []
        self.configured: dict[str, str] = {}  # scontrol show config
        self.partition_is_up = True
        self.is_closed = False  # to whoever has no ticket
        self.no_ticket = "refused: partition gpu takes jobs of the federation only"
        self.helper_is_loose = False
        self.names_missing: Sequence[str] | None = None
        self.measurements: dict[AttemptId, MeasuredUse] = {}  # as accounts have them
        self.polls = 0  # of probes
        self.probed: list[Probe] = []
        self.probes: dict[int, Probe] = {}  # not cancelled yet
        self.on_probe: Callable[[Probe, int], SiteJob | None] = lambda _probe, _id: None
        self.on_launch: Callable[[AttemptId, str], object] = lambda _attempt, _ticket: None
        self.on_signal: Callable[[SimulatedJob, str], object] = lambda _job, _name: None

    async def version(self) -> str:
        self._answer()
        return "25.05.3"

    async def sweep(self, own: KnownJobs = NOTHING) -> Sweep:
        self._answer()
        found = Sweep(
            nodes=self.slurm.nodes(),
            attempts=tuple(
                report
                for report in self.slurm.reports()
                if report.site_job_id not in self.renamed - own.launched.keys()
            ),
            holders=self.slurm.holders(),
            windows=self.windows,
        )
        self.shown = self.windows
        if self.sweep_takes_s:
            await asyncio.sleep(self.sweep_takes_s)
        return found

    async def settings_changed(self) -> bool:
        self._answer()
        self.settings_looks += 1
        return self.shown != self.windows

    async def launch(
        self, order: LaunchOrder, ticket: str = "", start_line: str = ""
    ) -> SubmittedJob:
        self.start_lines[order.attempt] = start_line
        self.on_launch(order.attempt, ticket)
        self._answer()
        if self.refusal:
            raise SbatchRefused(self.refusal, kind_of_refusal(self.refusal))
        if self.order_is_lost:
            raise SiteUnavailable("sbatch: no answer of slurmctld")
        self.submitted.append(order.attempt)
        job_id = self.slurm.submit(order.attempt, order.user, order.jobs)
        if self.reply_is_lost:
            raise SiteUnavailable("sbatch: no answer of slurmctld")
        return SubmittedJob(job_id, self.work_dir)

    @property
    def accounts(self) -> Self:
        return self

    async def ends_of(self, missing: Collection[Missing]) -> Mapping[AttemptId, AttemptReport]:
        live = {report.attempt: report for report in self.slurm.reports()}
        accounts = live | self.slurm.accounts if self.keeps_accounts else {}
        found = ((each, accounts.get(each.attempt)) for each in missing)
        return {
            each.attempt: report
            for each, report in found
            if report is not None
            and (report.state.ended or not each.job_id)
            and report.user == each.user
            and each.job_id in (0, report.site_job_id)
        }

    async def use_of(self, jobs: Sequence[EndedJob]) -> list[MeasuredUse | None]:
        self._answer()
        return [self.measurements.get(job.attempt) for job in jobs]

    async def notify(self, order: PreemptOrder, deadline_s: float) -> None:
        self._signal(order.site_job_id, order.signal, order.signal_to)
        self.deadlines_s[order.attempt] = deadline_s

    async def signal(self, user: str, job_id: int, name: str, to: SignalTo) -> None:  # noqa: ARG002
        self._signal(job_id, name, to)

    def _signal(self, job_id: int, name: str, to: SignalTo) -> None:
        self._answer()
        job = self.slurm.jobs.get(job_id)
        if job is None or job.state is not SiteJobState.RUNNING:
            raise SiteRefused(f"job {job_id} does not run")
        self.signals.append((job.attempt, name, to))
        self.on_signal(job, name)
        if name == "KILL" and job.live:
            self.slurm.end(job.attempt, SiteJobState.FAILED, signal=9)

    async def limit(self, user: str, job_id: int, minutes: int) -> None:  # noqa: ARG002
        self._answer()
        job = self.slurm.jobs.get(job_id)
        if job is None or not job.live:
            raise SiteRefused(f"job {job_id} is not there any more")
        self.limits[job.attempt] = minutes

    async def kill_wait_s(self) -> float:
        self._answer()
        return self.slurm.kill_wait_s

    async def inspect(self, user: str, orders: Sequence[LaunchOrder]) -> list[str]:  # noqa: ARG002
        self._answer()
        return [self.unopened.get(order.attempt, "") for order in orders]

    async def tidy(self, user: str, order: Tidying) -> Removal:
        self._answer()
        self.tidied.append((user, order))
        return Removal(removed=order.ended)

    async def copy(self, order: CopyOrder) -> tuple[CopyPhase, int, str]:
        self._answer()
        self.copied.append(order)
        return CopyPhase.COPYING, 7, ""

    async def output(self, order: OutputOrder) -> OutputStatus:
        self._answer()
        self.sealed.append(order)
        return status_of(order, CopyPhase.CHECKING)

    async def read_checkpoint_status(
        self,
        user: str,  # noqa: ARG002
        told: Sequence[PreemptOrder | EndedJob],
    ) -> list[CheckpointStatus]:
        self._answer()
        return [self.seen.get(order.attempt, CheckpointStatus()) for order in told]

    async def cancel(self, user: str, job_id: int, *, pending_only: bool) -> bool:  # noqa: ARG002
        self._answer()
        self.probes.pop(job_id, None)
        return self.slurm.cancel(job_id, pending_only=pending_only)

    # ---- for whoever verifies the site ----

    async def settings(self) -> Mapping[str, str]:
        self._answer()
        return self.configured

    async def partitions(self) -> Sequence[Partition]:
        self._answer()
        names = tuple(node.name for node in self.slurm.nodes())
        return (Partition(name="gpu", nodes=names, up=self.partition_is_up),)

    async def nodes(self) -> Sequence[Node]:
        self._answer()
        return self.slurm.nodes()

    async def jobs(self, job_ids: Collection[int]) -> Mapping[int, SiteJob]:
        self._answer()
        self.polls += 1
        found = {id_: self.on_probe(self.probes[id_], id_) for id_ in job_ids}
        return {id_: job for id_, job in found.items() if job is not None}

    async def probe(self, user: str, probe: Probe) -> int:  # noqa: ARG002
        self._answer()
        self.on_launch(probe.attempt, probe.ticket)
        if self.is_closed and not probe.ticket:
            raise SiteRefused(self.no_ticket)
        self.probed.append(probe)
        job_id = 900 + len(self.probed)
        self.probes[job_id] = probe
        return job_id

    async def missing_names(self) -> Sequence[str] | None:
        return self.names_missing

    async def is_loose(self, user: str) -> bool:  # noqa: ARG002
        self._answer()
        return self.helper_is_loose

    def _answer(self) -> None:
        if self.down:
            raise SiteUnavailable("slurmctld does not answer")
