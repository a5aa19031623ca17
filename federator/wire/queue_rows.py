"""Parts of ``QueueRow``: a workload's rank, requeue causes, evictions and request."""

from __future__ import annotations

import msgspec

from federator.model.reason import Reason


class ShortfallRow(msgspec.Struct, frozen=True, kw_only=True):
    """The shortfall of a workload over quota: ``held + promised + asked > quota`` of ``unit``."""

    tenant: str = ""  # whose quota: its tenant's or an ancestor's; "": none has one
    unit: str = ""
    held: int = 0  # at sites
    promised: int = 0  # to workloads that come before it
    asked: int = 0
    quota: int = 0


class QueueRank(msgspec.Struct, frozen=True, kw_only=True):
    """The rank of a live workload, with its reasons, at one instant.

    ``credit == age_term + fair_share_term - nice_term - non_preemptible_term`` while it is pending;
    at a site ``credit`` is that of its award. A policy without quota and credit leaves their fields
    at the default.
    """

    policy: str
    by_quota: bool = True  # whether the policy knows quota and credit
    ranked_at_s: float
    priority: int  # as it ranks now: its tenant's, lower as its user asked, or 7 when over quota
    tenant_priority: int
    asked_priority: int = 1  # its user wants no higher one
    within_quota: bool = False
    credit: float = 0.0
    position: int = 0  # 1: the first to be tried; 0: it is at a site
    of: int = 0  # so many are pending; what follows only of a pending workload
    waited_s: float = 0.0
    shortfall: ShortfallRow | None = None  # when over quota
    age_term: float = 0.0
    fair_share_term: float = 0.0
    nice_term: float = 0.0
    non_preemptible_term: float = 0.0  # what it pays for not being evicted
    per_hour_waited: float = 0.0  # of the policy: what an hour adds to the age term
    age_cap_h: float = 0.0  # of the policy: waiting longer adds nothing
    usage_share_frac: float = 0.0  # its tenant's part of all use
    awarded_at_s: float = 0.0  # this and what follows only at a site
    awarded_priority: int = 0  # 0: of an older release, not known
    awarded_within_quota: bool = False
    away: bool = False  # its site is not the home of its tenant


class OutputRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data set that a workload writes, and what has become of it."""

    name: str
    version: str
    state: str  # an OutputState's value, e.g. "writing"; "": it has no folder yet
    domain: str = ""  # in which the last attempt wrote, and the path below its root
    path: str = ""
    detail: str = ""  # why it is not registered, or removed, yet


class RegionRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A region that could hold a workload with data sets, or in which it has run."""

    name: str
    data: str = ""  # a DataNearness's value, e.g. "there"; "": it has ended, or fits nowhere there
    sites: tuple[str, ...] = ()  # of the region, those that are as near to its data as that
    bytes_to_move: int = 0
    staging_s: float = 0.0  # that takes so many seconds
    ran: bool = False  # an attempt has begun to run there


class SetbackRow(msgspec.Struct, frozen=True, kw_only=True):
    """A site failed the workload and is left alone for a while."""

    reason: Reason
    failures: int = 0  # there, since it last started there
    avoid_until_s: float = 0.0  # in the past: the site is asked again


class PreemptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """Evictions of a workload, and those made for it. GPU-seconds of work destroyed."""

    preemptions: int = 0  # its own evictions so far
    lost_gpu_s: float = 0.0  # by them
    evicted_for: int = 0  # the last time; 0: it never was, or to drain its site
    evicted_at_s: float = 0.0
    leave_by_s: float = 0.0  # when its grace is over; 0: it need not leave
    at_limit: bool = False  # it must leave for its own time limit, not for another
    saved_at: str = ""  # the site where it last saved; "": no checkpoint is known
    saves_seen: int = 0  # of its family: how many save times are known
    save_p95_s: float | None = None  # what some 95 % did not exceed; inf: cut off; None: none
    victims: tuple[int, ...] = ()  # whom its last award displaces
    evictions: int = 0  # of others, who have left for it
    destroyed_gpu_s: float = 0.0  # by those
    moves: int = 0  # of the victims: so many go on at other nodes of its site
    moved_gpus: int = 0  # of those
    moves_lose_gpu_s: float = 0.0  # of work, as predicted
    waits_s: float = 0.0  # as predicted without them
    goes_on_at: str = ""  # the node that is held for it, if it moves itself
    evicted_for_hidden: bool = False  # it was for one that the caller does not see
    victims_hidden: int = 0  # so many victims are left out, for the same reason
    copied_ahead: str = ""  # what of its checkpoint is in another region while it runs, in words


class JobDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What squeue's formats show of a job beside its row. Of a het job amounts are of all jobs.

    What is planned is told once there is a plan, before that what is asked for.
    """

    partitions: tuple[str, ...] = ()  # empty: any that the federation may use
    cpus: int = 0  # in all
    mem_mib: int = 0  # in all; 0: the site's default
    min_cpus: int = 1  # of a node, as squeue counts them
    min_mem_mib: int = 0  # of a node, or what ``min_mem_of`` names
    min_mem_of: str = ""  # cpu, gpu; "": a node
    tasks: int = 0  # in all; 0: of a daemon that does not say it
    gpus_per_node: int = 0
    gpu_types: dict[str, int] = {}  # GPUs by type, as far as it is known
    features: tuple[str, ...] = ()
    exclusive: bool = False
    requeue: bool = True
    nice: int = 0
    restarts: int = 0
    begin_at_s: float = 0.0  # before which it does not start; 0: none was given
    eligible_at_s: float = 0.0  # since when it could start; 0: since its submission
    deadline_at_s: float = 0.0  # by which it is to have ended; 0: it has none
    dependency: str = ""  # what is left of it, as squeue writes it
    options: dict[str, str] = {}  # of sbatch, as given for the first job; those that squeue shows

    def tasks_on(self, nodes: int) -> int:
        """The number of its tasks on so many nodes; an earlier daemon says just what was given."""
        given = self.options.get("ntasks", "")
        asked = int(given) if given.isascii() and given.isdecimal() else 0
        return self.tasks or asked or max(1, nodes)


class PaceRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How fast a job is beside its like on other nodes, and what leaving slow nodes would bring.

    ``gain_s`` and ``cost_s``: seconds of its time, as of ``sched.passes.moves.GangMove``; 0 unless
    it is slow.
    """

    speed: str  # normal, unsure or slow
    factor: float  # its steps take so many times as long as theirs
    others: int  # runs that it was compared with
    gain_s: float = 0.0
    cost_s: float = 0.0
    stays: str = ""  # why it does not move though it would gain more than that costs


class QueueOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The end of all workloads that a call asks for, in a few numbers however many they are."""

    unsettled: int = 0  # neither ended nor held; while there are any the next two are 0
    failed: int = 0  # ended otherwise than completed, or held
    exit_code: int = 0  # the highest; 1 of what failed without one, or by a signal
