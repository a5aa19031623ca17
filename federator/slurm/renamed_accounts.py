"""Asks a site's accounting by the names that the site has for users."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from msgspec.structs import replace as replaced

from federator.agent.base import Missing, SiteAccounts
from federator.model.site import AttemptReport
from federator.model.site_names import SiteNames
from federator.model.workload import AttemptId
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob


class RenamedAccounts:
    """A ``SiteAccounts`` by the federation's names of users.

    Args:
        accounts: of the site, by the site's names.
        names: of the site.
    """

    def __init__(self, accounts: SiteAccounts, names: SiteNames) -> None:
        self._accounts = accounts
        self._users = names.users

    async def ends_of(self, missing: Collection[Missing]) -> Mapping[AttemptId, AttemptReport]:
        there = [replace(each, user=self._users.get(each.user, each.user)) for each in missing]
        users = {each.attempt: each.user for each in missing}
        found = await self._accounts.ends_of(there)
        return {id_: replace(report, user=users[id_]) for id_, report in found.items()}

    async def use_of(self, jobs: Sequence[EndedJob]) -> Sequence[MeasuredUse | None]:
        there = [replaced(job, user=self._users.get(job.user, job.user)) for job in jobs]
        return await self._accounts.use_of(there)
