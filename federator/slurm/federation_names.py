"""Calls what a site's Slurm shows by the federation's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from msgspec.structs import replace as replaced

from federator.agent.base import Holder, Partition, Sweep
from federator.model.local_record import LocalRecord
from federator.model.site import AttemptReport, Node
from federator.model.site_names import SiteNames, mapped, reversed_names
from federator.model.window import SiteWindow


class FederationNames:
    """The federation's name of each of a site's.

    Args:
        names: of the site.
    """

    def __init__(self, names: SiteNames) -> None:
        self._names = names
        # Slurm keeps accounts in small letters, however they are written in federation.yaml.
        self._account_of = {here: there.lower() for here, there in names.accounts.items()}
        self._accounts = reversed_names(self._account_of)
        self._partitions = reversed_names(names.partitions)
        self._gpu_types = reversed_names(names.gpu_types)
        self._features = reversed_names(names.features)
        self._users = reversed_names(names.users)

    def sweep(self, found: Sweep) -> Sweep:
        """A look at the site."""
        return replace(
            found,
            attempts=tuple(self.report(report) for report in found.attempts),
            nodes=tuple(self.node(node) for node in found.nodes),
            holders=tuple(self._holder(holder) for holder in found.holders),
            windows=tuple(self.window(window) for window in found.windows),
            qos=None if found.qos is None else self._qos(found.qos),
            local=None if found.local is None else tuple(map(self._record, found.local)),
        )

    def node(self, node: Node) -> Node:
        return replace(
            node,
            partitions=_all(node.partitions, self._partitions),
            closed_partitions=_all(node.closed_partitions, self._partitions),
            gpu_type=self._gpu_types.get(node.gpu_type, node.gpu_type),
            features=_all(node.features, self._features),
        )

    def partition(self, partition: Partition) -> Partition:
        return replace(partition, name=self._partitions.get(partition.name, partition.name))

    def report(self, report: AttemptReport) -> AttemptReport:
        """A job of the federation: of the user who has its account, and no other."""
        user = self._user(report.user)
        return report if user == report.user else replace(report, user=user)

    def window(self, window: SiteWindow) -> SiteWindow:
        """A reservation, which admits tenants by their accounts."""
        found = tuple(name for each in window.accounts for name in self._tenants(each))
        users = tuple(map(self._user_or_not, window.users))
        return replaced(window, accounts=found or window.accounts, users=users)

    def _user(self, there: str) -> str:
        return mapped(there, self._users) or f"={there}"

    def _account(self, there: str) -> str:
        return self._accounts.get(there.lower(), there)

    def _qos(self, there: frozenset[str]) -> frozenset[str]:
        """In small letters, as Slurm keeps them."""
        renamed = {here.lower(): name.lower() for here, name in self._names.qos.items()}
        known = {name.lower() for name in there}
        return frozenset(known - renamed.keys()) | {
            here for here, name in renamed.items() if name in known
        }

    def _user_or_not(self, there: str) -> str:
        """A user of a reservation, who may be excepted by -."""
        if there.startswith("-"):
            return f"-{self._user(there[1:])}"
        return self._user(there) if there else there

    def _tenants(self, account: str) -> Iterator[str]:
        """The tenants that an account of a reservation stands for, which may be excepted by -."""
        sign, name = ("-", account[1:]) if account.startswith("-") else ("", account)
        accounts = self._account_of
        tenants = [tenant for tenant, there in accounts.items() if there == name.lower()]
        if name not in accounts:
            tenants.append(name)
        # Without any it is another account than the tenant of this name has.
        yield from (f"{sign}{tenant}" for tenant in tenants or [f"={name}"])

    def _record(self, record: LocalRecord) -> LocalRecord:
        return replaced(
            record,
            user=self._user(record.user),
            account=self._account(record.account),
            partition=self._partitions.get(record.partition, record.partition),
            gpu_type=self._gpu_types.get(record.gpu_type, record.gpu_type),
            ran_on=self._gpu_types.get(record.ran_on, record.ran_on),
        )

    def _holder(self, holder: Holder) -> Holder:
        account = self._account(holder.account)
        return holder if account == holder.account else replace(holder, account=account)


def _all(names: tuple[str, ...], known: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(known.get(name, name) for name in names) if known else names
