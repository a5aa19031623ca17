"""Reasons why a workload is not running: refusals as a code and its numbers, never prose.

Text for people is made at the edge (``federator.cli.text``). Spellings follow Slurm where Slurm
has the reason, and start with ``Fed`` where the federation adds one.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Final

from msgspec import Struct


class RefusalKind(Enum):
    WAIT = "wait"  # not now
    REJECT = "reject"  # not ever, with the site as it is built


@unique  # two names of one code would be one reason
class ReasonCode(Enum):
    """Each names what is missing; see ``Reason`` for the numbers."""

    RESOURCES = "Resources"  # fits the site, but not what is free now
    NO_PARTITION = "FedPartition"
    NO_GPU_TYPE = "FedGpuType"  # no node carries an accepted type
    NO_FEATURE = "FedFeature"
    NO_NODE = "FedNodeName"  # no node of a name in --nodelist or --exclude: ``detail``
    NODES_ASKED = "FedNodesAsked"  # nodes of --nodelist (``detail``) take no jobs, or do not suit
    NODE_TOO_SMALL = "FedNodeSize"  # no node has so many GPUs or CPUs, so much memory or gres
    TOO_FEW_NODES = "FedNodes"  # nodes of that size exist, but not so many
    LICENSES = "Licenses"  # fewer are free, or there at all: ``unit`` is their name
    SWITCHES = "FedSwitches"  # could start under ``free`` leaf switches, and wants ``needed``
    UNKNOWN_USER = "FedUser"  # the site maps no account for the user
    SITE_DOWN = "FedSiteDown"
    DRAINED = "FedDrained"  # the site takes no new work; its operator's words in ``detail``
    SHADOW = "FedShadow"  # the site is in mode shadow: nothing of the federation runs there
    TENANT_MODE = "FedTenantMode"  # its tenant (``detail``) is in mode shadow or advisory
    WRITTEN_OFF = "FedWrittenOff"  # the site is gone; of an attempt, with it: ``detail``
    NO_ANSWER = "FedNoAnswer"  # the site did not bid in time
    OLD_RELEASE = "FedRelease"  # the site's release cannot plan what is asked for
    BAD_BID = "FedBid"  # the site's offer contradicts the request
    LAUNCH_REFUSED = "FedLaunch"  # sbatch at the site said no, or the plan no longer held
    PLAN_REFUSED = "FedPlan"  # sbatch at the site refused the nodes, or the amounts, of the plan
    SBATCH_REFUSED = "FedSbatch"  # sbatch at the site refused the submission, and would again
    HELD = "JobHeldUser"  # no site takes it: each has refused it; their words in ``detail``
    USER_HOLD = "FedUserHold"  # its user holds it; shown as JobHeldUser, whose place is taken
    ADMIN_HOLD = "JobHeldAdmin"  # an operator holds it
    DEPENDENCY = "Dependency"  # on jobs in ``detail`` that have not started, or ended, yet
    NEVER_SATISFIED = "DependencyNeverSatisfied"  # as the last, and it never can be
    BEGIN_TIME = "BeginTime"  # its begin time has not come
    DEADLINE = "DeadLine"  # it cannot end by its deadline, ``until_s``, any more
    RESERVED = "FedReserved"  # would delay a gang that waits for this room; its id in ``detail``
    SITE_RESERVATION = "FedSiteReservation"  # would run into a reservation of the site's Slurm: its
    # name in ``detail``, of ``needed`` nodes, ``from_s`` and ``until_s``
    NO_RESERVATION = "FedReservation"  # none of that name (``detail``), or not for this user
    NO_QOS = "InvalidQOS"  # the site has none of that name: ``detail``
    RESERVATION = "Reservation"  # its reservation (``detail``) is from ``from_s`` to ``until_s``
    LEASE_OVER = "FedLease"  # did not start within the launch lease
    NODE_FAILED = "FedNodeFail"
    PREEMPTED = "FedPreempted"  # evicted for another, whose id is in ``detail``; or by its site
    MOVED = "FedMoved"  # goes on at another node of its site, so that a gang (``detail``) fits
    DEFRAGMENT = "FedDefragment"  # ``needed`` jobs of ``free`` GPUs could move for it, which would
    # save ``more_in_s`` of waiting for ``more`` GPU-seconds of lost work
    REQUEUED = "FedRequeued"  # it asked for it (exit 85), or was put back at its site
    SHRUNK = "FedShrunk"  # runs on without optional jobs, taken for another (``detail``)
    RESIZED = "FedResized"  # saves, to go on with ``needed`` nodes instead of ``free``
    STALLED = "FedStalled"  # finished no step within its lease (``more_in_s``); what it did instead
    SLOW_NODES = "FedSlowNodes"  # leaves slow nodes (``detail``), to lose ``more_in_s`` less;
    # 0: is kept off them
    SPOT = "FedSpot"  # its site has spot partitions only, which it leaves alone until ``until_s``
    CHECKPOINT = "FedCheckpoint"  # its checkpoint is at another site, out of reach from here
    DATA = "FedData"  # its data sets in ``detail`` are not at the site, or at no site
    CLAIM = "FedClaim"  # nodes come free for it at a site (``detail``); ``free`` GPUs are to go
    PREEMPT_BUDGET = "FedPreemptBudget"  # would have to evict more than may be evicted now
    LOST_WORK = "FedLostWork"  # its victims would lose more work than may be lost now
    SAVES = "FedSaves"  # its ``needed`` victims would save at once; ``free`` more may, in a region
    TIME_LIMIT = "FedTimeLimit"  # leaves at its time limit, to go on in another attempt
    NO_PROGRESS = "FedNoProgress"  # ``needed`` attempts in a row saved nothing before their limit
    NOT_LENT = "FedNotLent"  # may not be evicted, so it starts only within quota; the tenant's name
    KEPT = "FedKept"  # owners are expected to need them within ``more_in_s``; ``free`` are lent
    NO_PLAN = "FedNoPlan"  # nothing is lent without a lending plan, and none is in force
    BEYOND_FORECAST = "FedBeyondForecast"  # it runs longer than forecasts reach: ``more_in_s``
    FILES = "FedFiles"  # its files cannot be opened; which, and why, is in ``detail``
    SITE_CANCELLED = "FedSiteCancelled"  # at its site: by its user, an admin or the site's gate
    RECLAIMED = "FedReclaimed"  # ended by its site's watch: it did not use its GPUs
    LOST = "FedLost"  # the site has no record of it any more
    ARRAY_LIMIT = "FedArrayLimit"  # --array=…%N
    USER_JOBS = "AssocMaxJobsLimit"  # so many jobs of the user in the tenant run at once
    TENANT_JOBS = "AssocGrpJobsLimit"  # so many jobs of the tenant, or of an ancestor
    USER_SUBMIT = "AssocMaxSubmitJobLimit"  # so many jobs of the user in the tenant may live
    TENANT_SUBMIT = "AssocGrpSubmitJobsLimit"  # so many jobs of the tenant, or of an ancestor
    LIMIT = "FedLimit"  # the tenant, or an ancestor, may use no more at once
    NOT_TRIED = "FedNotTried"  # no pass has reached it yet
    UNKNOWN = "FedUnknown"  # of a later release, which this one cannot read

    @classmethod
    def _missing_(cls, _value: object) -> ReasonCode:
        """A code of a later release: the rest of its message is still of use."""
        return cls.UNKNOWN


NAME_ANOTHER: Final = frozenset(
    {ReasonCode.PREEMPTED, ReasonCode.MOVED, ReasonCode.RESERVED, ReasonCode.SHRUNK}
)
"""Reasons whose ``detail`` is the id of another workload, which may be a stranger's."""

SUBMIT_LIMITS: Final = frozenset({ReasonCode.USER_SUBMIT, ReasonCode.TENANT_SUBMIT})
"""Limits of how many jobs may wait or run: a submission beyond one is refused."""


class Reason(Struct, frozen=True, kw_only=True):
    """One cause, for one job of the workload (``job`` is "" when it concerns the whole).

    ``needed`` and ``free`` count what ``unit`` names ("nodes", "GPUs", "CPUs", "MiB", or a gres);
    ``detail`` carries names from the request or the site's own words, never a decision. The rest
    is 0 where it is not known.
    """

    code: ReasonCode
    job: str = ""
    needed: int = 0
    free: int = 0
    unit: str = ""
    detail: str = ""
    free_nodes: int = 0  # on which the free GPUs or CPUs are
    largest_rack: int = 0  # the most of ``free`` under one leaf switch
    more: int = 0  # that are free after ``more_in_s`` seconds at the latest, by time limits
    more_in_s: float = 0.0
    from_s: float = 0.0  # Unix time, as the next: of a window in which nodes are not to be had
    until_s: float = 0.0
    apart: tuple[str, ...] = ()  # jobs that need the nodes, each those that no other one has


class Alternative(Struct, frozen=True, kw_only=True):
    """A smaller or different request that would start at the site now."""

    nodes: int = 0  # 0: as many as the site needs for ``gpus``
    gpus: int = 0  # on each node; in all where ``nodes`` is 0
    gpu_types: tuple[str, ...] = ()  # what it would get, where that is more than was accepted


class Refusal(Struct, frozen=True, kw_only=True):
    """``starts_in_s``: when it could start at the latest, by the time limits of what runs.

    ``predicted``: these promise no start, and ``starts_in_s`` is by predictions of how long others
    run. ``sooner_in_s``: these promise one, and by predictions it starts before.
    ``no_end_in_sight``: it was looked for, and there is no such time.
    """

    kind: RefusalKind
    reasons: tuple[Reason, ...]  # at least one
    starts_in_s: float | None = None  # None: not known
    alternatives: tuple[Alternative, ...] = ()
    no_end_in_sight: bool = False
    predicted: bool = False
    sooner_in_s: float | None = None

    def __post_init__(self) -> None:
        if not self.reasons:
            raise ValueError("a refusal needs at least one reason")
