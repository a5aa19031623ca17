"""A workload as its user asks for it: its jobs, and what each job needs on its nodes.

Values copied from one submission; a changed workload is a new value. Terms: docs/glossary.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from math import inf
from operator import attrgetter
from typing import Final

import msgspec

from federator.errors import InvalidRequest
from federator.model.constraint import ways_of
from federator.model.data_output import ROOM, DataOutput
from federator.model.data_use import DataUse
from federator.model.gres import Gres
from federator.model.license import Licenses
from federator.model.names import SiteName as SiteName  # noqa: PLC0414 - named from here as well
from federator.model.names import TenantName as TenantName  # noqa: PLC0414
from federator.model.names import WorkloadId as WorkloadId  # noqa: PLC0414
from federator.model.node_shape import ANY_SHAPE, NodeShape
from federator.model.submission import NodeRange

FIRST_WORKLOAD_ID: Final = WorkloadId(2**32)
"""Federation ids start above every Slurm job id (26 bits, 32 with federation bits)."""

_FIRST_EPOCH: Final = 1_767_225_600  # 2026-01-01 UTC: epochs grow at least as fast as Unix time
_IDS_PER_EPOCH: Final = 2**18

MAX_AMOUNT: Final = 2**53
"""Of any one resource of a job. Counts up to here are exact in every number that meets them."""

_ATTEMPT: Final = re.compile(r"fed:([0-9]{1,19}):([0-9]{1,19})(?: .*)?", re.ASCII | re.DOTALL)
_WIRE_LIMIT: Final = 2**63  # every reader of a message holds integers below it


TERM_S: Final = 1.0
"""No two terms begin within this time, so that epochs are not ahead of the clock for long."""


def first_id_of(epoch: int) -> WorkloadId:
    """The least id that a term of this epoch gives out.

    Each epoch has 2**18 ids, and an epoch passes in each second at least. No daemon queues so many
    workloads in a second, so whatever earlier terms gave out is below this, also what no log and
    no site remembers any more.
    """
    return WorkloadId(FIRST_WORKLOAD_ID + max(0, epoch - _FIRST_EPOCH) * _IDS_PER_EPOCH)


class _KeptHash:
    """The place of a hash that is made once: a dataclass has no slots but those of its fields."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(_KeptHash):
    """One gang: all its nodes start together, on one site, as one het job component.

    Either ``nodes`` is given and the needs are per node, or ``nodes`` is None and the site takes
    the fewest nodes that hold the totals ``gpus`` and ``cpus``. Both may be given: the totals then
    spread over exactly ``nodes`` nodes.
    """

    name: str = field(compare=False)  # a label: two jobs that ask for the same are equal
    nodes: int | None = None
    gpus_per_node: int = 0
    gpus: int = 0  # total over the nodes; 0 when gpus_per_node says it
    cpus_per_node: int = 1
    cpus: int = 0  # total over the nodes, in whole cpus_per_node; 0 when that says it
    mem_mib_per_node: int = 0  # 0 leaves it to the partition's default
    mem_mib_per_cpu: int = 0  # for each CPU that a node gives to the total ``cpus``; 0: no more
    mem_mib_per_gpu: int = 0  # likewise of the total ``gpus``
    gpu_types: tuple[str, ...] = ()  # any of these; empty accepts any
    features: tuple[str, ...] = ()  # all of these, on every node
    exclusive: bool = False  # whole nodes
    partitions: tuple[str, ...] = ()  # any of these; empty: any that the federation may use
    min_gpu_mem_gib: float = 0.0  # of each GPU
    nvlink: bool = False  # GPUs of a node must have it
    tensor_parallel: int = 1  # GPUs that must be on one node together
    pipeline_stages: int = 1  # of tensor_parallel GPUs each; better in one rack together
    avoid: tuple[str, ...] = ()  # nodes of the site asked, sorted: they failed this workload
    gres: Gres = ()  # on every node, beside GPUs
    licenses: Licenses = ()  # of the site, for the whole job
    fleet_licenses: Licenses = ()  # of the federation's pools, likewise; no site knows them
    constraint: str = ""  # in place of ``features``, where --constraint is more than a&b
    nodelist: tuple[str, ...] = ()  # all of these; ``SITE:NODE``, or a node of any site; sorted
    exclude: tuple[str, ...] = ()  # none of these; as the last
    reservation: tuple[str, ...] = ()  # it runs in one of these; ``SITE:NAME``, or any site's
    switches: int = 0  # under so many leaf switches at most; 0: it does not matter
    switch_wait_s: float = inf  # so long, from when it could first start under more
    qos: str = ""  # as asked for
    shape: NodeShape = ANY_SHAPE  # that every node must have, at least
    contiguous: bool = False  # nodes that follow each other in the site's order of its nodes
    within: tuple[str, ...] = ()  # nodes of the site asked: what it may have of its reservation

    def __post_init__(self) -> None:
        if self.nodes is not None and self.nodes < 1:
            raise InvalidRequest(f"job {self.name!r}: needs at least 1 node, got {self.nodes}")
        amounts = (
            self.gpus_per_node,
            self.gpus,
            self.cpus_per_node,
            self.cpus,
            self.mem_mib_per_node,
            self.mem_mib_per_cpu,
            self.mem_mib_per_gpu,
        )
        if min(amounts) < 0:
            raise InvalidRequest(f"job {self.name!r}: GPUs, CPUs and memory cannot be negative")
        self._refuse_beyond_reason()
        self._refuse_bad_groups()
        if self.constraint:
            ways_of(self.constraint)  # it is one
        stated_twice = self.gpus and self.gpus_per_node and self.nodes is not None
        if stated_twice and self.gpus != self.gpus_per_node * (self.nodes or 0):
            raise InvalidRequest(
                f"job {self.name!r}: {self.gpus} GPUs in total contradict "
                f"{self.gpus_per_node} on each of {self.nodes} nodes"
            )

    def _refuse_beyond_reason(self) -> None:
        nodes = self.nodes or 1
        for what, amount in (
            ("nodes", nodes),
            ("GPUs", max(self.gpus, self.gpus_per_node * nodes)),
            ("CPUs", max(self.cpus, self.cpus_per_node * nodes)),
            ("MiB of memory", self.total_mem_mib),
            *((name, amount * nodes) for name, amount in self.gres),
        ):
            if amount > MAX_AMOUNT:
                raise InvalidRequest(
                    f"job {self.name!r}: {amount} {what} in all; ask for at most {MAX_AMOUNT}"
                )

    def _refuse_bad_groups(self) -> None:
        tensor, stages = self.tensor_parallel, self.pipeline_stages
        if tensor < 1 or stages < 1:
            raise InvalidRequest(
                f"job {self.name!r}: expected tensor-parallel size and pipeline stages of at "
                f"least 1, got {tensor} and {stages}"
            )
        total = self.gpus or self.gpus_per_node * (self.nodes or 1)
        if total % (tensor * stages):
            raise InvalidRequest(
                f"job {self.name!r}: {total} GPUs are no whole number of replicas of "
                f"{tensor} x {stages} (tensor-parallel size x pipeline stages)"
            )
        if self.gpus and self.gpus < tensor * (self.nodes or 1):
            raise InvalidRequest(
                f"job {self.name!r}: {self.gpus} GPUs are less than one tensor-parallel group of "
                f"{tensor} for each of {self.nodes} nodes"
            )
        if self.gpus_per_node % tensor:
            raise InvalidRequest(
                f"job {self.name!r}: {self.gpus_per_node} GPUs on each node are no whole number "
                f"of tensor-parallel groups of {tensor}, which must not span nodes"
            )

    def __hash__(self) -> int:
        """As a dataclass makes it. Those who ask for the same are looked up by their jobs."""
        try:
            return self._hash
        except AttributeError:
            found = hash(_asked_of(self))
            object.__setattr__(self, "_hash", found)
            return found

    @property
    def is_picky(self) -> bool:
        """Whether nodes that are right one by one may be wrong together, or too few of a kind."""
        if self.nodelist or self.switches or self.contiguous:
            return True
        ways = ways_of(self.constraint)
        return len(ways) > 1 or bool(ways[0].counted)

    @property
    def total_gpus(self) -> int:
        """GPUs over all nodes; exact when ``nodes`` or ``gpus`` is given."""
        return self.gpus or self.gpus_per_node * (self.nodes or 1)

    @property
    def total_mem_mib(self) -> int:
        """MiB over all nodes, as far as it is known before the job is placed."""
        return max(
            self.mem_mib_per_node * (self.nodes or 1),
            self.mem_mib_per_cpu * self.cpus,
            self.mem_mib_per_gpu * self.gpus,
        )


_asked_of: Final = attrgetter(*(each.name for each in fields(Job) if each.compare))


class ArrayTask(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Membership of a job array; the array's id is the id of its first task."""

    array_id: WorkloadId
    index: int
    max_running: int = 0  # 0: no throttle (``--array=…%N``)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The unit that is ranked, bid for and awarded: all of its jobs or none of them."""

    id: WorkloadId
    name: str
    user: str
    tenant: TenantName
    priority: int  # 1 = highest … 7 (MAST sec. 4.2 has seven levels), when it was submitted
    jobs: tuple[Job, ...]
    submission: msgspec.Raw  # a packed ``Submission``
    submitted_at_s: float  # Unix time
    asked_priority: int = 1  # never ranked above this level (--fed-priority)
    nice: int = 0  # lowers its credit (--nice); never negative
    time_limit_s: float = inf
    requeue: bool = True  # may start again after a node failure (sbatch --no-requeue: False)
    no_preempt: bool = False  # is never evicted (--fed-no-preempt), and pays for it
    continues: bool = False  # goes on in another attempt at its time limit (--fed-continue)
    migrates: bool = False  # leaves slow nodes for others when that pays (--fed-migrate)
    signal_lead_s: float = 0.0  # so long before its limit Slurm itself signals it (--signal); 0: no
    array: ArrayTask | None = None
    optional: bool = False  # goes before others of its priority (--fed-optional of its array)
    optional_jobs: tuple[int, ...] = ()  # numbers of jobs that it can do without; never the first
    deadline_at_s: float = inf  # Unix time by which it is to have ended (--deadline)
    starts_by_s: float = inf  # Unix time after which it cannot end by then, and is not started
    interactive: bool = False  # somebody waits for it at a terminal: it ranks as one long queued
    watched: bool = False  # cancelled once the command that asked for it is no longer heard
    data: tuple[DataUse, ...] = ()  # what ``datasets`` named in the catalogue, in their order
    output: DataOutput | None = None  # the data set that it writes
    # Carried and shown.
    project: str = ""  # --fed-project
    datasets: tuple[str, ...] = ()  # --fed-dataset
    # --fed-elastic; only of a workload with one job, which asks for the least of its sizes
    elastic: NodeRange | None = None
    spare: int = 0  # of the nodes of its one job; they are idle until another dies (--fed-spare)

    def __post_init__(self) -> None:
        if not self.jobs:
            raise InvalidRequest(f"workload {self.id} has no jobs")
        if self.nice < 0 or not 1 <= self.asked_priority <= 7:
            raise InvalidRequest(
                f"workload {self.id}: expected nice of at least 0 and a priority of 1 to 7, "
                f"got {self.nice} and {self.asked_priority}"
            )
        if not set(self.optional_jobs) <= set(range(1, len(self.jobs))):
            raise InvalidRequest(
                f"workload {self.id}: of {len(self.jobs)} jobs all but the first may be optional, "
                f"not {self.optional_jobs}"
            )

    @property
    def preemptible(self) -> bool:
        """Whether it may be evicted for another; what may not start again may not be."""
        return self.requeue and not self.no_preempt

    @property
    def needed_data(self) -> tuple[DataUse, ...]:
        """What a site must have: its data sets, and room where it writes one."""
        return self.data if self.output is None else (*self.data, ROOM)

    @property
    def total_gpus(self) -> int:
        return sum(job.total_gpus for job in self.jobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptId:
    """Names one try to run a workload; ``fed:<workload>:<attempt>`` in the job's comment."""

    workload: WorkloadId
    attempt: int  # 1, 2, …

    def __str__(self) -> str:
        return f"fed:{self.workload}:{self.attempt}"

    @classmethod
    def parse(cls, comment: str) -> AttemptId | None:
        """Read the attempt a Slurm comment starts with; None when it names none.

        Anyone may write any comment: numbers that no message can carry name no attempt. No
        workload has the number 0: so a site's own probes are called; see
        ``agent.services.site_check``.
        """
        match = _ATTEMPT.fullmatch(comment)
        if match is None:
            return None
        workload, attempt = int(match[1]), int(match[2])
        if not workload or max(workload, attempt) >= _WIRE_LIMIT:
            return None
        return cls(workload=WorkloadId(workload), attempt=attempt)
