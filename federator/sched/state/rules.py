"""The settings of the federation that its decisions depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from federator.model.data_placement import DataPlanning
from federator.model.dataset import StorageDomain
from federator.model.defragment import Defragment, QuietHours
from federator.model.lending import Lending
from federator.model.prices import PriceRule
from federator.model.quota_loan import UnusedQuotaRules
from federator.model.workload import SiteName

LEAST_GPUS: Final = 1
"""That each victim counts in the budget: one that holds no GPU is somebody's work as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Copies of data sets and checkpoints that nobody asks for.

    Attributes:
        auto: they are asked for without a user.
        most_bytes: larger data sets are not copied so.
        at_once: so many of them are under way at most.
        checkpoints: those of jobs that wait are copied to other regions, within the same bounds.
        ahead: those of jobs that run are, too, if they are likely to have to leave.
        checkpoint_kib_per_s: of each such copy; 0: nothing bounds it.
    """

    auto: bool = False
    most_bytes: int = 2**40
    at_once: int = 2
    checkpoints: bool = False
    ahead: bool = False
    checkpoint_kib_per_s: int = 0

    @property
    def copies(self) -> bool:
        """Whether anything is copied without a user."""
        return self.auto or self.checkpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowNodeRules:
    """Nodes on which trainings are slow.

    Attributes:
        budget_frac: of the nodes of a site, that gangs are kept off at most; 0: of none.
        quarantine_s: for so long, the first time.
        restart_s: from the end of a gang that moves to the first step of its next attempt.
    """

    budget_frac: float = 0.1
    quarantine_s: float = 4 * 3600.0
    restart_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DataMoving:
    """Copies by plans of where data sets should be, and the end of replicas.

    Attributes:
        planning: what follows from a plan.
        quota_bytes: that may be begun to be copied in any 24 hours.
        removal_grace_s: for which files of a retired replica stay.
        unused_s: copies made for jobs that none was given for so long are retired; 0: never.
    """

    planning: DataPlanning = DataPlanning.OFF
    quota_bytes: int = 0
    removal_grace_s: float = 86400.0
    unused_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Settings of the federation that decisions depend on.

    Attributes:
        launch_lease_s: within it a launched workload must have started.
        pass_interval_s: between two passes when nothing changes.
        bid_timeout_s: within it a site must answer.
        window: workloads asked about in one message to a site.
        preempt_gpus: that may be evicted in any ``preempt_window_s``, all sites together.
        preempt_frac: of the GPUs of all sites, that may be evicted besides; with both 0 nobody is.
        preempt_lost_gpu_s: GPU-seconds of work that evictions in any ``preempt_window_s`` may be
            predicted to destroy; 0: no bound.
        beyond_budget_frac: of the GPUs of all sites, that may be evicted in any
            ``preempt_window_s`` beyond that, for tenants with a start objective.
        max_saves_per_region: evicted workloads of a region that save at the same time; 0: any
            number.
        grace_s: that a victim has to save and to leave.
        cooldown_s: after an eviction, in which a workload is not evicted again.
        min_run_s: after its start, in which a workload is not evicted.
        defragment: whether jobs move so that a gang fits.
        defragment_moves: jobs that move in any ``preempt_window_s``, all sites together.
        defragment_margin: waiting that moves save, in GPU-seconds, is at least so many times the
            work that they lose.
        quiet_hours: in which jobs move; None: at any time.
        forecast_ends: whether sites keep room for a blocked workload by predictions of how long
            others run, where time limits promise it no start.
        cells: whether jobs break the smallest buddy cells that hold them.
        lending: whether work over quota that cannot be evicted waits for a forecast.
        unused: when a quota counts as unused.
        regions: of each site; those of one region share their storage, and with it checkpoints.
            A site that is not named is of the region "".
        shadow: sites where nothing is ever done; see ``passes.shadow``.
        advisory: those of them that are asked what they would do with a ``--test-only`` job.
        opt_in: sites whose admission rules get no limits; for those who ask for the mode.
        storage: the domains in which data sets are kept, the preferred ones first.
        staging: copies for jobs that wait.
        moving: copies by plans.
        licenses: those that all sites share, by name.
        slow_nodes: what follows from slow nodes.
        prices: what an hour costs, and of which tier it is; of each the first that matches.
        price_weight: steps in which a price of 1 counts in bids; 0: prices do not count.
        spot_interruptions: as many within a day let a workload leave spot partitions; 0: none do.
    """

    launch_lease_s: float = 60.0
    pass_interval_s: float = 300.0
    bid_timeout_s: float = 5.0
    window: int = 500
    preempt_gpus: float = 0.0
    preempt_frac: float = 0.0
    preempt_lost_gpu_s: float = 0.0
    beyond_budget_frac: float = 0.5
    preempt_window_s: float = 300.0
    max_saves_per_region: int = 0
    grace_s: float = 120.0
    cooldown_s: float = 1800.0
    min_run_s: float = 0.0
    defragment: Defragment = Defragment.OFF
    defragment_moves: int = 4
    defragment_margin: float = 2.0
    quiet_hours: QuietHours | None = None
    forecast_ends: bool = False
    cells: bool = False
    lending: Lending = Lending.OFF
    unused: UnusedQuotaRules = UnusedQuotaRules()
    regions: Mapping[SiteName, str] = field(default_factory=dict)
    shadow: frozenset[SiteName] = frozenset()
    advisory: frozenset[SiteName] = frozenset()
    opt_in: frozenset[SiteName] = frozenset()
    storage: Mapping[str, StorageDomain] = field(default_factory=dict)
    staging: Staging = Staging()
    moving: DataMoving = DataMoving()
    licenses: Mapping[str, int] = field(default_factory=dict)
    slow_nodes: SlowNodeRules = SlowNodeRules()
    prices: tuple[PriceRule, ...] = ()
    price_weight: float = 0.0
    spot_interruptions: int = 0

    @property
    def evicts(self) -> bool:
        """Whether anybody may be evicted."""
        return self.preempt_gpus > 0 or self.preempt_frac > 0

    def reaches(self, here: SiteName, there: SiteName) -> bool:
        """Tell whether a checkpoint made at one site can be read at another.

        Of a site that the federation has no more nobody knows: then it may be anywhere.
        """
        if self.regions and there not in self.regions:
            return True
        return here == there or self.regions.get(here, "") == self.regions.get(there, "")
