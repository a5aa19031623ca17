"""The federation's view of a site: volatile, from its agent's reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from federator.model.node_names import jobs_at, names_nodes
from federator.model.partition import PartitionSummary, room_of
from federator.model.reason import ReasonCode, Refusal
from federator.model.site import Capacity
from federator.model.site_message import SiteAnswer
from federator.model.window import SiteWindow
from federator.model.workload import Job, SiteName
from federator.sched.bid.empty_site import EmptySite

MOST_GPUS: Final = 1024  # of a node that is believed
MOST_KNOWN: Final = 8_192  # requests of which it is known whether they fit
_SAY_NOTHING: Final = (ReasonCode.LAUNCH_REFUSED, ReasonCode.BAD_BID)


def gpus_of(capacity: Capacity) -> Counter[str]:
    """The GPUs by type that a site says it has; one that exaggerates must not sway the others."""
    found: Counter[str] = Counter()
    for node in capacity.nodes:
        found[node.gpu_type or ""] += min(max(0, node.gpus), MOST_GPUS)
    return found


@dataclass(slots=True)
class SiteView:
    """One site as it last was."""

    partitions: tuple[str, ...]
    shadow: bool = False  # it is only watched
    advisory: bool = False  # likewise, and asked about ``--test-only`` jobs
    up: bool = False
    ready: bool = False  # up, and its first complete report is in
    since_s: float = 0.0  # of being up or down
    slurm_version: str = ""
    login_node: str = ""  # the host of its agent; "": it does not say
    release: str = ""  # of its agent; likewise
    empty: EmptySite | None = None  # all it could ever give; None until it has told
    gpus: int = 0  # of ``empty``
    gpus_by_type: Counter[str] = field(default_factory=Counter)  # of those
    summary: tuple[PartitionSummary, ...] = ()
    windows: tuple[SiteWindow, ...] = ()  # in which nodes are not to be had
    knows: dict[str, bool] = field(default_factory=dict)  # users, as its last answers say
    _node_names: frozenset[str] = frozenset()
    _never: dict[tuple[Job, ...], Refusal | None] = field(default_factory=dict)

    def has(self, capacity: Capacity) -> None:
        """Take in what the site could give; it says so anew whenever it comes."""
        if capacity != self.capacity:
            self.empty = EmptySite(capacity)
            self._node_names = frozenset(node.name for node in capacity.nodes)
            self.gpus_by_type = gpus_of(capacity)
            self.gpus = self.gpus_by_type.total()
            self._never.clear()

    @property
    def capacity(self) -> Capacity | None:
        """All that it could give, as it last told; None until it has."""
        return None if self.empty is None else self.empty.capacity

    def shows(self, summary: tuple[PartitionSummary, ...]) -> bool:
        """Take in partitions as they are now; tell whether there may be other room than before."""
        before, self.summary = self.summary, summary
        return room_of(summary) != room_of(before)

    def has_node(self, name: str) -> bool:
        """Tell whether a site has a node of this name, as far as it has said."""
        return self.empty is None or name in self._node_names

    def never_fits(self, jobs: Sequence[Job]) -> Refusal | None:
        """The reason why the jobs would not fit even the empty site; None when they may."""
        if self.empty is None:
            return None
        asked = tuple(jobs)
        if asked not in self._never:
            if len(self._never) >= MOST_KNOWN:
                self._never.clear()
            self._never[asked] = self.empty.never_fits(asked, self.partitions)
        return self._never[asked]

    def answered(self, user: str, answer: SiteAnswer) -> bool:
        """Learn from its answer for a user; tell whether it is new that it knows them."""
        knows = True
        for reason in () if answer.refusal is None else answer.refusal.reasons:
            if reason.code in _SAY_NOTHING:
                return False
            knows = knows and reason.code is not ReasonCode.UNKNOWN_USER
        is_new = not self.knows.get(user, False)
        self.knows[user] = knows
        return is_new and knows


def never_fits(
    sites: Mapping[SiteName, SiteView], site: SiteName, jobs: tuple[Job, ...]
) -> Refusal | None:
    """The reason why jobs would not fit even one empty site; None when they may."""
    return sites[site].never_fits(jobs_at(jobs, site))


def unknown_nodes(sites: Mapping[SiteName, SiteView], jobs: tuple[Job, ...]) -> list[str]:
    """The nodes that jobs exclude though no site has them."""
    if not names_nodes(jobs):
        return []
    excluded = {name for job in jobs for name in job.exclude}
    for site, view in sites.items():
        excluded -= {name for name in excluded if view.has_node(name.removeprefix(f"{site}:"))}
    return sorted(excluded)
