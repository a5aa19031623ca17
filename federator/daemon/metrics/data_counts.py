"""Counts copies of data sets, and how near to their data attempts start; a part of ``Counts``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import permutations
from typing import Final

from federator.model.dataset import DataReplica, DataSet, ReplicaState
from federator.model.event import Awarded, DataRecord, DataSetDropped
from federator.model.workload import SiteName
from federator.sched.passes.data_copies import source_of
from federator.sched.passes.data_regions import ran_in
from federator.sched.state.catalogue import Catalogue
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.shrink import gpus_of

HAD, STAGED, NO_DATA = "there", "staged", "none"
DATA: Final = (HAD, STAGED, NO_DATA)
DONE, GIVEN_UP, WITHDRAWN = "done", "given_up", "withdrawn"
COPY_OUTCOMES: Final = (DONE, GIVEN_UP, WITHDRAWN)
HOME, ELSEWHERE = "home", "elsewhere"
MOST_REGIONS: Final = 4  # so many or more are one series

_Labels = tuple[str, ...]
Add = Callable[[str, _Labels, float], None]  # to a counter, without its prefix and suffix
Have = Callable[[str, Iterable[_Labels]], None]  # these series from the start
SiteRegions = Callable[[], Mapping[SiteName, str]]


class DataCounts:
    """The counters of data of one term.

    Args:
        ledger: read for what a record does not say itself.
        add: counts.
        have: begins series with 0.
        regions: returns the region of each site.
    """

    def __init__(self, ledger: Ledger, add: Add, have: Have, regions: SiteRegions) -> None:
        self._ledger, self._add, self._have, self._regions = ledger, add, have, regions
        # Of each data set, the domains that it is being copied to, and the tries that failed.
        self._copying: dict[tuple[str, str], dict[str, int]] = {}
        for of, _ in ledger.catalogue.copies():
            self._note(of)
        have("copies_ended", ((outcome,) for outcome in COPY_OUTCOMES))
        for name in ("data_starts", "data_started_gpus"):
            have(name, ((word,) for word in DATA))
        for name in ("data_candidate_regions", "data_ended_workloads"):
            have(name, ((_number(count),) for count in range(1, MOST_REGIONS + 1)))

    def know(self) -> None:
        """Storage domains and homes are as they are configured now."""
        self._have("copied_bytes", permutations(self._ledger.catalogue.domains, 2))
        tenancy = self._ledger.tenancy
        at_home = [t.name for row, t in enumerate(tenancy.tenants) if tenancy.home(row)]
        places = ((name, at) for name in at_home for at in (HOME, ELSEWHERE))
        self._have("tenant_started_gpus", places)

    # ---- copies ----

    def recorded(self, event: DataRecord) -> None:
        """The catalogue has changed."""
        if isinstance(event, DataSetDropped):
            gone = self._copying.pop((event.name, event.version), {})
            self._add("copies_ended", (WITHDRAWN,), len(gone))
            return
        of = event.kept
        for domain, tries in self._copying.get((of.name, of.version), {}).items():
            self._step(of, domain, tries, asked=bool(event.by))
        self._note(of)

    def _note(self, of: DataSet) -> None:
        copies = {r.domain: r.copy.tries for r in of.replicas if r.copy is not None}
        if copies:
            self._copying[of.name, of.version] = copies
        else:
            self._copying.pop((of.name, of.version), None)

    def _step(self, of: DataSet, domain: str, tries: int, *, asked: bool) -> None:
        """Count what a copy has come to; ``asked``: somebody has changed the data set."""
        replica = of.replica_in(domain)
        if replica is not None and replica.copy is not None:
            self._add("copy_failures", (), max(0, replica.copy.tries - tries))
        elif asked:
            self._add("copies_ended", (WITHDRAWN,), 1)
        elif _is_whole(replica):
            source = source_of(of, domain, self._ledger.catalogue.domains)
            self._add("copies_ended", (DONE,), 1)
            labels = (source.domain if source is not None else "", domain)
            self._add("copied_bytes", labels, of.size_bytes)
        else:
            self._add("copy_failures", (), 1)
            self._add("copies_ended", (GIVEN_UP,), 1)

    # ---- starts ----

    def started(self, entry: WorkloadRecord, award: Awarded) -> None:
        """An attempt has begun to run."""
        catalogue = self._ledger.catalogue
        word, gpus = nearness(catalogue, entry, award), gpus_of(award.jobs, range(len(award.jobs)))
        self._add("data_starts", (word,), 1)
        self._add("data_started_gpus", (word,), gpus)
        if award.data:
            having, regions = catalogue.sites_of(entry.workload.needed_data), self._regions()
            could = len({regions.get(site, "") for site in (*having, SiteName(award.site))})
            self._add("data_candidate_regions", (_number(could),), 1)
        tenancy, tenant = self._ledger.tenancy, entry.workload.tenant
        row = tenancy.row(tenant)
        if tenancy.home(row):
            at = HOME if tenancy.is_home(row, SiteName(award.site)) else ELSEWHERE
            self._add("tenant_started_gpus", (tenant, at), gpus)

    def ended(self, entry: WorkloadRecord) -> None:
        """A workload has ended."""
        ran = len(ran_in(entry, self._regions()))
        if entry.workload.data and ran:
            self._add("data_ended_workloads", (_number(ran),), 1)


def nearness(catalogue: Catalogue, entry: WorkloadRecord, award: Awarded) -> str:
    """Whether its data was there when it was submitted, was copied for its award, or it has none.

    A copy of the same data that came later says nothing.
    """
    if not award.data:
        return NO_DATA
    since_s = entry.workload.submitted_at_s
    for path in award.data:
        of = catalogue.find(path.name, path.version)
        replica = None if of is None else of.replica_in(path.domain)
        if replica is not None and since_s < replica.copied_at_s <= award.at_s:
            return STAGED
    return HAD


def _number(regions: int) -> str:
    return str(regions) if regions < MOST_REGIONS else f"{MOST_REGIONS}+"


def _is_whole(replica: DataReplica | None) -> bool:
    return replica is not None and replica.state is ReplicaState.READY
