"""The sites, and nodes of sites, that operators have drained or cordoned; part of the ledger."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from federator.model.event import (
    DrainRecord,
    SiteDrained,
    SiteResumed,
    SiteReturned,
    SiteWrittenOff,
)
from federator.model.workload import SiteName
from federator.sched.state.workload_record import WorkloadRecord


@dataclass(slots=True)
class DrainedSites:
    """Drains, cordons and quarantines that have not ended, and sites that are gone.

    Changed only by ``Ledger.apply``.

    Attributes:
        by_site: of whole sites.
        nodes: of nodes that were drained by name, by site.
        limping: of nodes that are slow, by site: no jobs of several nodes start there.
        written_off: sites that are gone, and have not returned.
    """

    by_site: dict[SiteName, SiteDrained] = field(default_factory=dict)
    nodes: dict[SiteName, dict[str, SiteDrained]] = field(default_factory=dict)
    limping: dict[SiteName, dict[str, SiteDrained]] = field(default_factory=dict)
    written_off: dict[SiteName, SiteWrittenOff] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_site or self.nodes)

    def apply(self, event: DrainRecord) -> None:
        """Take in that one began or ended."""
        if isinstance(event, SiteWrittenOff):
            self.written_off[event.site] = event
        elif isinstance(event, SiteReturned):
            self.written_off.pop(event.site, None)
        elif isinstance(event, SiteDrained):
            if event.nodes:
                among = self.limping if event.gangs else self.nodes
                known = among.get(event.site, {})
                among[event.site] = known | dict.fromkeys(event.nodes, event)
            else:
                self.by_site[event.site] = event
        elif event.nodes:
            _drop(self.limping, event)
            if not event.gangs:
                _drop(self.nodes, event)
        else:
            self.by_site.pop(event.site, None)

    def of(self, site: SiteName, nodes: Sequence[str]) -> SiteDrained | None:
        """The drain that these nodes of a site are under: of the site, or of one of them."""
        found = self.by_site.get(site)
        if found is not None or site not in self.nodes:
            return found
        drained = self.nodes[site]
        return next((drained[name] for name in nodes if name in drained), None)

    def withdraw(self, awarded: Iterable[WorkloadRecord]) -> None:
        """Mark those that were awarded to what is drained now.

        Their sites are ordered to withdraw them, and may act on that when the drain is over.
        """
        for entry in awarded:
            if self.of(entry.site, entry.node_names) is not None:
                entry.withdrawing = True

    def nodes_at(self, site: SiteName) -> tuple[str, ...]:
        """The nodes of a site that were drained by name, sorted."""
        return tuple(sorted(self.nodes[site])) if site in self.nodes else ()

    def limping_at(self, site: SiteName) -> tuple[str, ...]:
        """The nodes of a site that are slow, sorted."""
        return tuple(sorted(self.limping[site])) if site in self.limping else ()

    def at(self, site: SiteName) -> Iterator[SiteDrained]:
        """The drains of a site and of its nodes, each with the nodes that it still holds for."""
        if site in self.by_site:
            yield self.by_site[site]
        names: dict[int, list[str]] = {}
        of_nodes = (*self.nodes.get(site, {}).items(), *self.limping.get(site, {}).items())
        drains = {id(drain): drain for _, drain in of_nodes}
        for name, drain in of_nodes:
            names.setdefault(id(drain), []).append(name)
        for key, drain in drains.items():
            yield replace(drain, nodes=tuple(sorted(names[key])))

    def saved(self) -> tuple[SiteDrained, ...]:
        """All of them, for a snapshot: applied in this order they give the same."""
        sites = dict.fromkeys((*self.by_site, *self.nodes, *self.limping))
        return tuple(drain for site in sites for drain in self.at(site))

    def restore(self, saved: Iterable[DrainRecord]) -> None:
        """Know them as a snapshot has them."""
        for drain in saved:
            self.apply(drain)


def _drop(among: dict[SiteName, dict[str, SiteDrained]], event: SiteResumed) -> None:
    """Take these nodes of a site out."""
    known = among.pop(event.site, {})
    left = {name: drain for name, drain in known.items() if name not in event.nodes}
    if left:
        among[event.site] = left


def lose_checkpoints(entries: Iterable[WorkloadRecord], unreadable: Collection[SiteName]) -> None:
    """Have workloads whose checkpoints nobody can read begin anew, or where a copy is.

    Of one that runs there and never had to leave only a copy that was made ahead is known.
    """
    for entry in entries:
        if entry.copied_to in unreadable:
            entry.copied_to = SiteName("")
        ran_there = not entry.saved_at and entry.site in unreadable
        if entry.saved_at in unreadable or (ran_there and entry.copied_to):
            entry.saved_at, entry.copied_to = entry.copied_to, SiteName("")
