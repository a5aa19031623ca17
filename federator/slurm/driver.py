"""The ``SiteDriver`` of a real Slurm, on top of the client and the renderer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from federator.agent.base import (
    NOTHING,
    Holder,
    KnownJobs,
    Removal,
    SiteAccounts,
    SubmittedJob,
    Sweep,
    Tidying,
)
from federator.errors import InvalidRequest, SiteRefused, SiteUnavailable
from federator.model.dataset import CopyPhase
from federator.model.site import NodeShare
from federator.slurm.accounting_names import AccountingNames
from federator.slurm.client import SlurmClient
from federator.slurm.inspector import SlurmInspector
from federator.slurm.local_records import ArrayStay, local_records
from federator.slurm.options.file_names import files_of, names_its_dir, working_dir
from federator.slurm.recent_qos import RecentQos
from federator.slurm.render import chosen_name, files_to_open, ids_of, render
from federator.slurm.reports import as_launched, attempt_reports, holders_of
from federator.slurm.revocations import Revoked, read_revoked
from federator.wire.agent_protocol import (
    CopyOrder,
    LaunchOrder,
    OutputOrder,
    OutputStatus,
    PreemptOrder,
    SignalTo,
)


class SlurmDriver(SlurmInspector):
    """One Slurm, as ``federator.agent.base.AgentDriver``: an agent runs its jobs through it.

    Args:
        site: the site's name, for the jobs' environment.
        client: asks and tells its Slurm.
        accounting: says which QOS there are; None: nobody does.

    Attributes:
        folder: the agent's, in which a file may say that nodes are revoked; None: there is none.
    """

    def __init__(
        self, site: str, client: SlurmClient, accounting: AccountingNames | None = None
    ) -> None:
        super().__init__(client)
        self._site = site
        self.folder: Path | None = None
        self._qos = RecentQos(accounting)
        self._arrays_waited: dict[ArrayStay, str] = {}  # see ``local_records``
        self.accounts: SiteAccounts = client.accounts

    async def sweep(self, own: KnownJobs = NOTHING) -> Sweep:
        found = await self._client.sweep(own)
        if not found.jobs_complete:
            # A job left out would look as if it had vanished: better no news than that.
            raise SiteUnavailable(f"jobs cannot be read: {'; '.join(found.problems)[:500]}")
        jobs = [as_launched(job, own) for job in found.jobs]
        known = {job.job_id for job in jobs}
        others = tuple(
            Holder(
                job_id=job.id, nodes=dict.fromkeys(job.nodes, NodeShare()), ends_by_s=job.ends_by_s
            )
            for job in found.others
            if job.id not in known
        )
        revoked = Revoked() if self.folder is None else read_revoked(self.folder)
        return Sweep(
            nodes=found.nodes,
            attempts=attempt_reports(jobs),
            holders=holders_of(jobs) + others,
            switches=found.switches,
            windows=found.windows,
            licenses=found.licenses,
            qos=self._qos.names(),
            problems=found.problems + revoked.problems,
            revoked=revoked.notices,
            nodes_complete=found.nodes_complete,
            local=(
                local_records(jobs, found.nodes, own, self._arrays_waited)
                if self._client.watches
                else None
            ),
        )

    async def settings_changed(self) -> bool:
        return await self._client.settings_changed()

    async def launch(
        self, order: LaunchOrder, ticket: str = "", start_line: str = ""
    ) -> SubmittedJob:
        try:
            call = render(order, self._site, ticket=ticket, start_line=start_line)
        except InvalidRequest as error:
            raise SiteRefused(str(error)) from error
        done = await self._helper.submit(order.user, call)
        # sbatch is told a --chdir, wherever it is called.
        return done._replace(work_dir="") if names_its_dir(order.submission) else done

    async def notify(self, order: PreemptOrder, deadline_s: float) -> None:
        await self._helper.notify(order, deadline_s)

    async def signal(self, user: str, job_id: int, name: str, to: SignalTo) -> None:
        await self._helper.signal(user, job_id, name, to)

    async def limit(self, user: str, job_id: int, minutes: int) -> None:
        await self._helper.limit(user, job_id, minutes)

    async def kill_wait_s(self) -> float:
        return (await self._client.config()).kill_wait_s

    async def inspect(self, user: str, orders: Sequence[LaunchOrder]) -> list[str]:
        jobs = [(files_to_open(order), working_dir(order.submission)) for order in orders]
        seen = await self._helper.inspect(user, jobs)
        return [
            f"at {self._site}: {wrong or 'one of ' + _files_named(order)}"
            for order, wrong in zip(orders, seen, strict=True)
        ]

    async def tidy(self, user: str, order: Tidying) -> Removal:
        return await self._helper.tidy(user, order)

    async def copy(self, order: CopyOrder) -> tuple[CopyPhase, int, str]:
        return await self._helper.copy(order)

    async def output(self, order: OutputOrder) -> OutputStatus:
        return await self._helper.output(order)


def _files_named(order: LaunchOrder) -> str:
    """The files that a job would open, for people."""
    name = chosen_name(order)
    files = files_of(order.submission, ids_of(order), user=order.user, name=name)
    return ", ".join(dict.fromkeys((files.stdout, files.stderr, files.stdin)))
