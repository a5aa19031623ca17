"""Says of each job that started otherwise than under the federation why: the first rule that fits.

A divergence is a job that started at another site, or more than ``SAME_S`` sooner or later. The
side that started it second says why it had not done so yet: Slurm by its own word in the record,
the federation by its refusal in the replay. Where that says no more than that there was no room, it
is looked who had the GPUs on that side at that time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Final

from federator.model.reason import ReasonCode
from federator.model.workload import SiteName
from federator.sim.local_replay import SAME_S, LocalFate, LocalReplay


class DivergenceReason(Enum):
    """Why, in the order in which the rules are tried."""

    USER_HOLD = "its user or an admin held it: a dependency, begin time, hold or array throttle"
    OWN_WISH = "it had a wish that the record does not tell: reservation, feature, licence or nodes"
    NODES_OUT = "nodes it needed were down, drained or reserved"
    SITE_LIMIT = "a limit of the site held it: association, QOS or partition"
    OTHER_SITE = "the federation would have started it at another site, no later"
    SITE_ORDER = "its site had others before it, by its own priorities"
    SITE_FULL = "its site's GPUs were held by jobs that the federation would have run otherwise"
    SITE_LACKED = "its site lacked CPUs, memory or GPUs on one node, says its Slurm"
    TENANT_LIMIT = "a limit of its tenant or its user would have held it"
    QUOTA = "it would have been beyond its quota, and nothing was lent"
    KEPT_ROOM = "the federation would have kept the room for one that ranks before it"
    GUESTS = "jobs of other sites would have had the GPUs"
    ORDER = "jobs of its own site would have gone first, by priority, quota and credit"
    PLACEMENT = "enough GPUs would have been free, and not on the nodes that it needs"
    UNKNOWN = "no reason found"


_USER_HOLD: Final = frozenset(
    {
        *("Dependency", "DependencyNeverSatisfied", "BeginTime", "JobHeldUser", "JobHeldAdmin"),
        *("JobArrayTaskLimit", "JobHoldMaxRequeue", "DeadLine", "Cleaning"),
    }
)
_OWN_WISH: Final = frozenset(
    {
        *(
            "Reservation",
            "ReservationDeleted",
            "BadConstraints",
            "Licenses",
            "BurstBufferResources",
        ),
        *(
            "BurstBufferStageIn",
            "BurstBufferOperation",
            "Constraints",
            "FedJobLock",
            "NetworkResources",
        ),
    }
)
_NODES_OUT: Final = frozenset(
    {"ReqNodeNotAvail", "NodeDown", "Nodes", "PartitionDown", "PartitionInactive", "PowerNotAvail"}
)
_SITE_LIMITS: Final = ("Assoc", "QOS", "Max", "Partition", "AccountNotAllowed", "InvalidQOS")
_OF_TENANT: Final = frozenset(
    {
        *(ReasonCode.LIMIT, ReasonCode.USER_JOBS, ReasonCode.TENANT_JOBS, ReasonCode.ARRAY_LIMIT),
        *(ReasonCode.USER_SUBMIT, ReasonCode.TENANT_SUBMIT),
    }
)
_OF_QUOTA: Final = frozenset(
    {ReasonCode.KEPT, ReasonCode.NO_PLAN, ReasonCode.NOT_LENT, ReasonCode.BEYOND_FORECAST}
)
_NO_ROOM: Final = frozenset({ReasonCode.RESOURCES, ReasonCode.SWITCHES, ReasonCode.TOO_FEW_NODES})


class Occupancy:
    """How many GPUs are held at each site, at any time.

    Args:
        uses: site, start and end in Unix time, and GPUs.
    """

    def __init__(self, uses: Iterable[tuple[SiteName, float, float, int]]) -> None:
        changes: dict[SiteName, dict[float, int]] = {}
        for site, start_s, end_s, gpus in uses:
            at = changes.setdefault(site, {})
            at[start_s] = at.get(start_s, 0) + gpus
            at[end_s] = at.get(end_s, 0) - gpus
        self._times_s = {site: sorted(at) for site, at in changes.items()}
        self._held = {
            site: list(accumulate(changes[site][time_s] for time_s in times_s))
            for site, times_s in self._times_s.items()
        }

    def gpus(self, site: SiteName, at_s: float) -> int:
        """Those held at a Unix time; what ends then is not."""
        at = bisect_right(self._times_s.get(site, ()), at_s)
        return self._held[site][at - 1] if at else 0


class Waiting:
    """Who waited at each site, at any time.

    Args:
        waits: site, and when a job came and started there, in Unix time.
    """

    def __init__(self, waits: Iterable[tuple[SiteName, float, float]]) -> None:
        by_site: dict[SiteName, list[tuple[float, float]]] = {}
        for site, came_s, start_s in waits:
            by_site.setdefault(site, []).append((came_s, start_s))
        self._came_s: dict[SiteName, list[float]] = {}
        self._last_start_s: dict[SiteName, list[float]] = {}  # of all up to that one
        for site, all_of_it in by_site.items():
            all_of_it.sort()
            self._came_s[site] = [came_s for came_s, _ in all_of_it]
            self._last_start_s[site] = list(accumulate((s for _, s in all_of_it), max))

    def before(self, site: SiteName, came_s: float, at_s: float) -> bool:
        """Whether a job that had come before that time still waited at ``at_s``."""
        number = bisect_left(self._came_s.get(site, ()), came_s)
        return number > 0 and self._last_start_s[site][number - 1] > at_s


@dataclass(frozen=True, slots=True)
class Divergences:
    """What each rule looks at beside the job itself.

    Attributes:
        sizes: GPUs of each site.
        real: as it was.
        federated: as it would have been.
        guests: of that, jobs that were submitted at another site.
        waiting: as it was.
    """

    sizes: Mapping[SiteName, int]
    real: Occupancy
    federated: Occupancy
    guests: Occupancy
    waiting: Waiting

    @classmethod
    def of(cls, replayed: LocalReplay) -> Divergences:
        """Of all jobs of a replay, those that are not measured among them."""
        fates = replayed.fates
        return cls(
            sizes=replayed.gpus,
            real=Occupancy(
                (fate.past.site, start_s, end_s, gpus)
                for fate in fates
                for start_s, end_s, gpus in fate.past.held
            ),
            federated=Occupancy(_stays(fates)),
            guests=Occupancy(_stays(fates, guests=True)),
            waiting=Waiting((f.past.site, f.past.came_s, f.past.start_s) for f in fates),
        )

    def reason(self, fate: LocalFate) -> DivergenceReason | None:
        """The first that fits; None: it is no divergence."""
        if not diverges(fate):
            return None
        return next(why for why, fits in RULES if fits(self, fate))


def _stays(
    fates: Sequence[LocalFate], *, guests: bool = False
) -> Iterator[tuple[SiteName, float, float, int]]:
    for fate in fates:
        for stay in fate.federated_stays:
            if not guests or stay.site != fate.past.site:
                yield stay.site, stay.start_s, stay.end_s, fate.past.gpus


def diverges(fate: LocalFate) -> bool:
    """Whether a job started otherwise than it would have under the federation."""
    return _is_sooner(fate) or _is_later(fate) or _is_elsewhere(fate)


def _is_sooner(fate: LocalFate) -> bool:
    """Whether it is the site that held it back."""
    start_s = fate.federated_start_s
    return start_s is not None and start_s < fate.past.start_s - SAME_S


def _is_later(fate: LocalFate) -> bool:
    """Whether it is the federation that would have held it back, or never started it."""
    start_s = fate.federated_start_s
    return start_s is None or start_s > fate.past.start_s + SAME_S


def _is_elsewhere(fate: LocalFate) -> bool:
    return bool(fate.federated_stays) and fate.federated_stays[0].site != fate.past.site


def _was_full(seen: Divergences, fate: LocalFate) -> bool:
    """Whether its site had not the GPUs for it when the federation would have started it."""
    start_s = fate.federated_start_s
    if start_s is None:
        return False
    site = fate.past.site
    return seen.sizes.get(site, 0) - seen.real.gpus(site, start_s) < fate.past.gpus


def _was_behind(seen: Divergences, fate: LocalFate) -> bool:
    """Without a word of Slurm: others had come before it, and waited when it would have started."""
    start_s = fate.federated_start_s
    if fate.held_by or start_s is None or not _is_sooner(fate):
        return False
    return seen.waiting.before(fate.past.site, fate.past.came_s, start_s)


def _would_be_full(seen: Divergences, fate: LocalFate) -> bool:
    """Whether, under the federation, its site has not the GPUs for it when it really started."""
    site, at_s = fate.past.site, fate.past.start_s + SAME_S
    return seen.sizes.get(site, 0) - seen.federated.gpus(site, at_s) < fate.past.gpus


def _has_guests(seen: Divergences, fate: LocalFate) -> bool:
    at_s = fate.past.start_s + SAME_S
    return _would_be_full(seen, fate) and seen.guests.gpus(fate.past.site, at_s) > 0


Rule = Callable[[Divergences, LocalFate], bool]


def _said_by_slurm(words: frozenset[str]) -> Rule:
    return lambda _, fate: _is_sooner(fate) and fate.held_by in words


def _said_by_federation(codes: frozenset[ReasonCode]) -> Rule:
    return lambda _, fate: _is_later(fate) and fate.federated_code in codes


def _without_room(fits: Rule) -> Rule:
    return lambda seen, fate: (
        _is_later(fate) and fate.federated_code in _NO_ROOM and fits(seen, fate)
    )


RULES: Final[tuple[tuple[DivergenceReason, Rule], ...]] = (
    (DivergenceReason.USER_HOLD, _said_by_slurm(_USER_HOLD)),
    (DivergenceReason.OWN_WISH, _said_by_slurm(_OWN_WISH)),
    (DivergenceReason.NODES_OUT, _said_by_slurm(_NODES_OUT)),
    (
        DivergenceReason.SITE_LIMIT,
        lambda _, fate: _is_sooner(fate) and fate.held_by.startswith(_SITE_LIMITS),
    ),
    (
        DivergenceReason.OTHER_SITE,
        lambda _, fate: _is_elsewhere(fate) and not _is_later(fate),
    ),
    (DivergenceReason.SITE_ORDER, _said_by_slurm(frozenset({"Priority"}))),
    (
        DivergenceReason.SITE_FULL,
        lambda seen, fate: _is_sooner(fate) and _was_full(seen, fate),
    ),
    (DivergenceReason.SITE_LACKED, _said_by_slurm(frozenset({"Resources"}))),
    (DivergenceReason.SITE_ORDER, _was_behind),
    (DivergenceReason.TENANT_LIMIT, _said_by_federation(_OF_TENANT)),
    (DivergenceReason.QUOTA, _said_by_federation(_OF_QUOTA)),
    (
        DivergenceReason.KEPT_ROOM,
        _said_by_federation(frozenset({ReasonCode.RESERVED, ReasonCode.CLAIM})),
    ),
    (DivergenceReason.GUESTS, _without_room(_has_guests)),
    (DivergenceReason.ORDER, _without_room(_would_be_full)),
    (DivergenceReason.PLACEMENT, _without_room(lambda *_: True)),
    (DivergenceReason.UNKNOWN, lambda *_: True),
)
"""Every divergence fits one at least: the last."""
