"""A ``SlurmDriver`` for a site that calls things otherwise than the federation.

What the agent sees has the federation's names, and what Slurm is told has the site's:

* account: of the tenant; of jobs that hold nodes; of reservations;
* partition: of plans, nodes, partitions and probes;
* QOS: of ``--qos``;
* GPU type: of nodes; of ``--gres``, ``--gpus…`` and ``--tres-per-…``;
* user: in whose name anything is done; of attempts and reservations;
* feature: of nodes; of ``--constraint``, ``--prefer``, ``--batch``.

Options in a script's ``#SBATCH`` lines were read when it was submitted and come by here, too. What
a job's script says to ``srun`` is the site's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msgspec.structs import replace as replaced

from federator.agent.base import (
    NOTHING,
    CheckpointStatus,
    KnownJobs,
    Partition,
    Probe,
    Removal,
    SubmittedJob,
    Sweep,
    Tidying,
)
from federator.agent.services.accounts import Accounts
from federator.errors import SiteRefused
from federator.model.dataset import CopyPhase
from federator.model.plan import JobPlan
from federator.model.site import Node
from federator.model.site_names import SiteNames
from federator.model.submission import Option
from federator.slurm.accounting_names import AccountingNames
from federator.slurm.client import SlurmClient
from federator.slurm.driver import SlurmDriver
from federator.slurm.federation_names import FederationNames
from federator.slurm.pyslurm_reader import Note, PyslurmRunner
from federator.slurm.renamed_accounts import RenamedAccounts
from federator.slurm.runner import SubprocessRunner
from federator.wire.agent_protocol import (
    CopyOrder,
    EndedJob,
    LaunchOrder,
    OutputOrder,
    OutputStatus,
    PreemptOrder,
    SignalTo,
)

_WITH_FEATURES: Final = frozenset({"constraint", "prefer", "batch"})
_WITH_GPU_TYPES: Final = frozenset(
    {
        "gres",
        "gpus",
        "gpus-per-node",
        "gpus-per-socket",
        "gpus-per-task",
        "tres-per-node",
        "tres-per-socket",
        "tres-per-task",
    }
)
_FEATURE: Final = re.compile(r"(?<![*A-Za-z0-9_.:=/-])[A-Za-z0-9_.:=/-]+", re.ASCII)
_GPU_GRES: Final = re.compile(r"(gres[:/])?gpu:")
_GPU_TYPE: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


class RenamingDriver(SlurmDriver):
    """One Slurm by the federation's names.

    Args:
        site: the site's name, for the jobs' environment.
        client: asks and tells its Slurm, by the site's names.
        names: of the site.
        accounting: says which accounts and QOS there are.
        has_account: whether this machine has an account.
    """

    def __init__(
        self,
        site: str,
        client: SlurmClient,
        names: SiteNames,
        accounting: AccountingNames,
        has_account: Callable[[str], bool] = lambda name: Accounts().has(name),
    ) -> None:
        self._has_account = has_account
        super().__init__(site, client, accounting)
        self._calls = names
        self._accounting = accounting
        self._here = FederationNames(names)
        if names.users:
            self.accounts = RenamedAccounts(client.accounts, names)

    async def sweep(self, own: KnownJobs = NOTHING) -> Sweep:
        return self._here.sweep(await super().sweep(self._known_there(own)))

    async def nodes(self) -> Sequence[Node]:
        return [self._here.node(node) for node in await super().nodes()]

    async def partitions(self) -> Sequence[Partition]:
        return [self._here.partition(each) for each in await super().partitions()]

    async def launch(
        self, order: LaunchOrder, ticket: str = "", start_line: str = ""
    ) -> SubmittedJob:
        self._user(order.user)
        return await super().launch(renamed(order, self._calls), ticket, start_line)

    async def notify(self, order: PreemptOrder, deadline_s: float) -> None:
        await super().notify(replaced(order, user=self._user(order.user)), deadline_s)

    async def signal(self, user: str, job_id: int, name: str, to: SignalTo) -> None:
        await super().signal(self._user(user), job_id, name, to)

    async def limit(self, user: str, job_id: int, minutes: int) -> None:
        await super().limit(self._user(user), job_id, minutes)

    async def cancel(self, user: str, job_id: int, *, pending_only: bool) -> bool:
        return await super().cancel(self._user(user), job_id, pending_only=pending_only)

    async def read_checkpoint_status(
        self, user: str, orders: Sequence[PreemptOrder | EndedJob]
    ) -> list[CheckpointStatus]:
        return await super().read_checkpoint_status(self._user(user), orders)

    async def inspect(self, user: str, orders: Sequence[LaunchOrder]) -> list[str]:
        there = [renamed(order, self._calls) for order in orders]
        return await super().inspect(self._user(user), there)

    async def tidy(self, user: str, order: Tidying) -> Removal:
        return await super().tidy(self._user(user), order)

    async def copy(self, order: CopyOrder) -> tuple[CopyPhase, int, str]:
        return await super().copy(replaced(order, user=self._user(order.user)))

    async def output(self, order: OutputOrder) -> OutputStatus:
        return await super().output(replaced(order, user=self._user(order.user)))

    async def is_loose(self, user: str) -> bool:
        return await super().is_loose(self._user(user))

    async def probe(self, user: str, probe: Probe) -> int:
        names = self._calls
        there = replace(
            probe,
            partition=names.partitions.get(probe.partition, probe.partition),
            account=names.accounts.get(probe.account, probe.account),
        )
        return await super().probe(self._user(user), there)

    async def missing_names(self) -> Sequence[str] | None:
        names = self._calls
        nodes = await super().nodes()
        known: dict[str, Collection[str] | None] = {
            "accounts": await self._accounting.accounts() if names.accounts else (),
            "qos": await self._accounting.qos() if names.qos else (),
            "partitions": [p.name for p in await super().partitions()],
            "gpu_types": {node.gpu_type for node in nodes},
            "features": {name for node in nodes for name in node.features},
            "users": set(filter(self._has_account, names.users.values())),
        }
        return [
            f"names.{kind}.{here}: {there}"
            for kind, found in known.items()
            for here, there in getattr(names, kind).items()
            if found is not None and there not in found and _as_kept(kind, there) not in found
        ]

    def _user(self, user: str) -> str:
        """Raises: SiteRefused: the site's account of this name is another's."""
        there = self._calls.user_there(user)
        if there is None:
            raise SiteRefused(f"{user} has no account here: the one of that name is another's")
        return there

    def _known_there(self, own: KnownJobs) -> KnownJobs:
        if not self._calls.users:
            return own
        users = self._calls.users
        launched = {
            job_id: replace(job, user=users.get(job.user, job.user))
            for job_id, job in own.launched.items()
        }
        return replace(own, launched=launched)


def renamed(order: LaunchOrder, names: SiteNames) -> LaunchOrder:
    """The same order as its site's Slurm is to be told."""
    submission = replaced(
        order.submission,
        components=tuple(
            tuple(_option(option, names) for option in options)
            for options in order.submission.components
        ),
    )
    return replaced(
        order,
        user=names.users.get(order.user, order.user),
        tenant=names.accounts.get(order.tenant, order.tenant),
        submission=submission,
        jobs=tuple(_plan(plan, names) for plan in order.jobs),
    )


def _plan(plan: JobPlan, names: SiteNames) -> JobPlan:
    types = {names.gpu_types.get(name, name): gpus for name, gpus in plan.gpu_types.items()}
    partition = names.partitions.get(plan.partition, plan.partition)
    return replace(plan, partition=partition, gpu_types=types)


def _option(option: Option, names: SiteNames) -> Option:
    value = option.value
    if not value:
        return option
    if option.name == "qos":
        value = ",".join(_in_any_case(each, names.qos) for each in value.split(","))
    elif option.name in _WITH_FEATURES:
        value = _FEATURE.sub(lambda word: names.features.get(word[0], word[0]), value)
    elif option.name in _WITH_GPU_TYPES:
        value = ",".join(_gres(part, option.name, names.gpu_types) for part in value.split(","))
    return option if value == option.value else replaced(option, value=value)


def _in_any_case(name: str, names: Mapping[str, str]) -> str:
    """The site's name of a QOS: Slurm makes no difference between capitals and small letters."""
    alike = (there for here, there in names.items() if here.lower() == name.lower())
    return names.get(name) or next(alike, name)


def _as_kept(kind: str, there: str) -> str:
    """A site's name as sacctmgr shows it: accounts and QOS in small letters."""
    return there.lower() if kind in ("accounts", "qos") else there


def _gres(part: str, option: str, types: Mapping[str, str]) -> str:
    """One of a list: ``gpu:TYPE[:N]``, ``gres/gpu:TYPE[:N]``, or with --gpus… ``TYPE[:N]``."""
    if option.startswith("gpus"):
        head, rest = "", part
    else:
        kind = _GPU_GRES.match(part)
        if kind is None:
            return part
        head, rest = kind[0], part[kind.end() :]
    found = _GPU_TYPE.match(rest)
    if found is None:
        return part
    return head + types.get(found[0], found[0]) + rest[found.end() :]


def open_driver(
    site: str,
    partitions: Sequence[str],
    names: SiteNames,
    *,
    may_submit: Callable[[], None],
    watches: bool = False,
    note_pyslurm: Note | None = None,
) -> SlurmDriver:
    """The driver for the Slurm of this machine, seeing the jobs of these partitions.

    ``may_submit`` raises ``StaleState`` if another agent acts. ``watches``: it also records the
    site's own jobs. ``note_pyslurm``: it reads by pyslurm, and tells this when it begins to, or
    cannot; None: it reads by commands.
    """
    there = [names.partitions.get(name, name) for name in partitions]
    runner = SubprocessRunner()
    reader = runner if note_pyslurm is None else PyslurmRunner(runner, note_pyslurm)
    client = SlurmClient(reader, partitions=there, layouts=True, watches=watches)
    client.helper.may_submit = may_submit
    accounting = AccountingNames(runner)
    if not names:
        return SlurmDriver(site, client, accounting)
    return RenamingDriver(site, client, names, accounting)
