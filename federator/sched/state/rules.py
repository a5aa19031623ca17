"""The settings of the federation that its decisions depend on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from federator.model.dataset import StorageDomain
from federator.model.defragment import Defragment, QuietHours
from federator.model.lending import Lending
from federator.model.quota_loan import UnusedQuotaRules
from federator.model.workload import SiteName

LEAST_GPUS: Final = 1
"""That each victim counts in the budget: one that holds no GPU is somebody's work as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Copies of data sets for jobs that wait.

    Attributes:
        auto: they are asked for without a user.
        most_bytes: larger data sets are not copied so.
        at_once: so many of them are under way at most.
        checkpoints: those of jobs that wait are copied to other regions, within the same bounds.
        checkpoint_kib_per_s: of each such copy; 0: nothing bounds it.
    """

    auto: bool = False
    most_bytes: int = 2**40
    at_once: int = 2
    checkpoints: bool = False
    checkpoint_kib_per_s: int = 0


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
        lending: whether work over quota that cannot be evicted waits for a forecast.
        unused: when a quota counts as unused.
        regions: of each site; those of one region share their storage, and with it checkpoints.
            A site that is not named is of the region "".
        shadow: sites where nothing is ever done; see ``passes.shadow``.
        advisory: those of them that are asked what they would do with a ``--test-only`` job.
        opt_in: sites whose admission rules get no limits; for those who ask for the mode.
        storage: the domains in which data sets are kept, the preferred ones first.
        staging: copies for jobs that wait.
        licenses: those that all sites share, by name.
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
    lending: Lending = Lending.OFF
    unused: UnusedQuotaRules = UnusedQuotaRules()
    regions: Mapping[SiteName, str] = field(default_factory=dict)
    shadow: frozenset[SiteName] = frozenset()
    advisory: frozenset[SiteName] = frozenset()
    opt_in: frozenset[SiteName] = frozenset()
    storage: Mapping[str, StorageDomain] = field(default_factory=dict)
    staging: Staging = Staging()
    licenses: Mapping[str, int] = field(default_factory=dict)

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
