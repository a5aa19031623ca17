"""Counts the jobs of each user in each tenant: those that live, and those that are at a site.

An array counts once for each task, as with Slurm's limits.
"""

from __future__ import annotations

from collections import Counter

from federator.model.data_output import DataOutput
from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadState
from federator.model.workload import TenantName, Workload
from federator.sched.state.fleet_licenses import asked_of_pools

Member = tuple[TenantName, str]
"""A user in a tenant: what Slurm calls an association."""


class JobCounts:
    """The numbers, kept up to date by the ledger.

    Attributes:
        live: jobs that have not ended, by member.
        at_sites: those of them that run, or are about to.
        live_of: all of a tenant itself, without tenants below it.
        at_sites_of: the same of those at sites.
        using: jobs that have not ended, by name and version of each data set that they name.
        using_at_sites: those of them that run, or are about to.
        writing: jobs that have not ended, by name and version of the data set that they write, if
            they say a version.
        outputs: those that write any, by user.
        licenses: of the federation's pools, that jobs at sites hold, by name.
    """

    def __init__(self) -> None:
        self.live: Counter[Member] = Counter()
        self.at_sites: Counter[Member] = Counter()
        self.live_of: Counter[TenantName] = Counter()
        self.at_sites_of: Counter[TenantName] = Counter()
        self.using: Counter[tuple[str, str]] = Counter()
        self.using_at_sites: Counter[tuple[str, str]] = Counter()
        self.writing: Counter[tuple[str, str]] = Counter()
        self.outputs: Counter[str] = Counter()
        self.licenses: Counter[str] = Counter()

    def came(self, workload: Workload, state: WorkloadState) -> None:
        """A workload is known now, in this state."""
        self._add(workload, state, 1)

    def left(self, workload: Workload, state: WorkloadState) -> None:
        """It is in this state no more."""
        self._add(workload, state, -1)

    def _add(self, workload: Workload, state: WorkloadState, number: int) -> None:
        if state in TERMINAL:
            return
        member = workload.tenant, workload.user
        self.live[member] += number
        self.live_of[workload.tenant] += number
        if state in AT_SITE:
            self.at_sites[member] += number
            self.at_sites_of[workload.tenant] += number
            for name, amount in asked_of_pools(workload.jobs):
                self.licenses[name] += number * amount
        if workload.output is not None:
            self._write(workload.user, workload.output, number)
        for use in workload.data:
            self._use((use.name, use.version), state, number)
        if not self.live[member]:  # of a user who may never come again
            self.live.pop(member)
            self.at_sites.pop(member, None)

    def _write(self, user: str, output: DataOutput, number: int) -> None:
        self.outputs[user] += number
        if not self.outputs[user]:
            self.outputs.pop(user)
        if output.version:
            key = output.name, output.version
            self.writing[key] += number
            if not self.writing[key]:
                self.writing.pop(key)

    def _use(self, key: tuple[str, str], state: WorkloadState, number: int) -> None:
        self.using[key] += number
        if state in AT_SITE:
            self.using_at_sites[key] += number
        if not self.using[key]:
            self.using.pop(key)
            self.using_at_sites.pop(key, None)
