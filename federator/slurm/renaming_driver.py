"""A ``SlurmDriver`` for a site that calls things otherwise than the federation.

What the agent sees has the federation's names, and what Slurm is told has the site's:

* account: of the tenant; of jobs that hold nodes; of reservations;
* partition: of plans, nodes, partitions and probes;
* QOS: of ``--qos``;
* GPU type: of nodes; of ``--gres``, ``--gpus…`` and ``--tres-per-…``;
* feature: of nodes; of ``--constraint``, ``--prefer``, ``--batch``.

Options in a script's ``#SBATCH`` lines were read when it was submitted and come by here, too. What
a job's script says to ``srun`` is the site's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from msgspec.structs import replace as replaced

from federator.agent.base import (
    NOTHING,
    Holder,
    KnownJobs,
    Partition,
    Probe,
    SubmittedJob,
    Sweep,
)
from federator.model.local_record import LocalRecord
from federator.model.plan import JobPlan
from federator.model.site import Node
from federator.model.site_names import SiteNames, reversed_names
from federator.model.submission import Option
from federator.model.window import SiteWindow
from federator.slurm.accounting_names import AccountingNames
from federator.slurm.client import SlurmClient
from federator.slurm.driver import SlurmDriver
from federator.slurm.runner import SubprocessRunner
from federator.wire.agent_protocol import LaunchOrder

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


class _Back(NamedTuple):
    """The federation's name of each of the site's."""

    accounts: Mapping[str, str]
    partitions: Mapping[str, str]
    gpu_types: Mapping[str, str]
    features: Mapping[str, str]


class RenamingDriver(SlurmDriver):
    """One Slurm by the federation's names.

    Args:
        site: the site's name, for the jobs' environment.
        client: asks and tells its Slurm, by the site's names.
        names: of the site.
        accounting: says which accounts and QOS there are.
    """

    def __init__(
        self, site: str, client: SlurmClient, names: SiteNames, accounting: AccountingNames
    ) -> None:
        super().__init__(site, client, accounting)
        self._calls = names
        self._accounting = accounting
        self._back = _Back(
            reversed_names(names.accounts),
            reversed_names(names.partitions),
            reversed_names(names.gpu_types),
            reversed_names(names.features),
        )

    async def sweep(self, own: KnownJobs = NOTHING) -> Sweep:
        found = await super().sweep(own)
        return replace(
            found,
            nodes=tuple(self._node(node) for node in found.nodes),
            holders=tuple(self._holder(holder) for holder in found.holders),
            windows=tuple(self._window(window) for window in found.windows),
            qos=None if found.qos is None else self._names_of_qos(found.qos),
            local=None if found.local is None else tuple(map(self._record, found.local)),
        )

    async def nodes(self) -> Sequence[Node]:
        return [self._node(node) for node in await super().nodes()]

    async def partitions(self) -> Sequence[Partition]:
        known = self._back.partitions
        return [replace(p, name=known.get(p.name, p.name)) for p in await super().partitions()]

    async def launch(
        self, order: LaunchOrder, ticket: str = "", start_line: str = ""
    ) -> SubmittedJob:
        return await super().launch(renamed(order, self._calls), ticket, start_line)

    async def probe(self, user: str, probe: Probe) -> int:
        names = self._calls
        there = replace(
            probe,
            partition=names.partitions.get(probe.partition, probe.partition),
            account=names.accounts.get(probe.account, probe.account),
        )
        return await super().probe(user, there)

    async def missing_names(self) -> Sequence[str] | None:
        names = self._calls
        nodes = await super().nodes()
        known: dict[str, Collection[str] | None] = {
            "accounts": await self._accounting.accounts() if names.accounts else (),
            "qos": await self._accounting.qos() if names.qos else (),
            "partitions": [p.name for p in await super().partitions()],
            "gpu_types": {node.gpu_type for node in nodes},
            "features": {name for node in nodes for name in node.features},
        }
        return [
            f"names.{kind}.{here}: {there}"
            for kind, found in known.items()
            for here, there in getattr(names, kind).items()
            if found is not None and there not in found
        ]

    def _node(self, node: Node) -> Node:
        back = self._back
        return replace(
            node,
            partitions=_all(node.partitions, back.partitions),
            closed_partitions=_all(node.closed_partitions, back.partitions),
            gpu_type=back.gpu_types.get(node.gpu_type, node.gpu_type),
            features=_all(node.features, back.features),
        )

    def _names_of_qos(self, there: frozenset[str]) -> frozenset[str]:
        renamed = self._calls.qos
        return frozenset([q for q in there if q not in renamed]) | {
            here for here, name in renamed.items() if name in there
        }

    def _window(self, window: SiteWindow) -> SiteWindow:
        found = [name for each in window.accounts for name in self._tenants(each)]
        return replaced(window, accounts=tuple(found)) if found else window

    def _tenants(self, account: str) -> Iterator[str]:
        """The tenants that an account of a reservation stands for, which may be excepted by -."""
        sign, name = ("-", account[1:]) if account.startswith("-") else ("", account)
        accounts = self._calls.accounts
        tenants = [tenant for tenant, there in accounts.items() if there == name]
        if name not in accounts:
            tenants.append(name)
        # Without any it is another account than the tenant of this name has.
        yield from (f"{sign}{tenant}" for tenant in tenants or [f"={name}"])

    def _record(self, record: LocalRecord) -> LocalRecord:
        back = self._back
        return replaced(
            record,
            account=back.accounts.get(record.account, record.account),
            partition=back.partitions.get(record.partition, record.partition),
            gpu_type=back.gpu_types.get(record.gpu_type, record.gpu_type),
            ran_on=back.gpu_types.get(record.ran_on, record.ran_on),
        )

    def _holder(self, holder: Holder) -> Holder:
        account = self._back.accounts.get(holder.account, holder.account)
        return holder if account == holder.account else replace(holder, account=account)


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
        value = names.qos.get(value, value)
    elif option.name in _WITH_FEATURES:
        value = _FEATURE.sub(lambda word: names.features.get(word[0], word[0]), value)
    elif option.name in _WITH_GPU_TYPES:
        value = ",".join(_gres(part, option.name, names.gpu_types) for part in value.split(","))
    return option if value == option.value else replaced(option, value=value)


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


def _all(names: tuple[str, ...], known: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(known.get(name, name) for name in names) if known else names


def open_driver(
    site: str, partitions: Sequence[str], names: SiteNames, *, watches: bool = False
) -> SlurmDriver:
    """The driver for the Slurm of this machine, seeing the jobs of these partitions.

    ``watches``: it also records the site's own jobs.
    """
    there = [names.partitions.get(name, name) for name in partitions]
    runner = SubprocessRunner()
    client = SlurmClient(runner, partitions=there, layouts=True, watches=watches)
    accounting = AccountingNames(runner)
    if not names:
        return SlurmDriver(site, client, accounting)
    return RenamingDriver(site, client, names, accounting)
