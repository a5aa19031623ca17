"""A scenario (sites, tenants, workloads), and what became of each workload in a replay.

A trace (``federator.sim.trace``) is GPUs and seconds alone. A scenario says all that the
federation decides on: nodes of any kind, tenants with quotas, workloads of several jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log2
from typing import NamedTuple

from federator.model.draft import Draft
from federator.model.mappings import NOTHING
from federator.model.reason import Refusal
from federator.model.site import Node
from federator.model.tenant import Tenant
from federator.model.window import SiteWindow
from federator.model.workload import SiteName, WorkloadId
from federator.sched.state.ledger import Ledger
from federator.sched.state.scaling_curves import ASSUMED_GAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSite:
    """A site as its agent would see it when nothing runs there.

    ``switches``: the switch above each switch; none: every leaf switch hangs on one spine.
    ``windows``: in which nodes are not to be had, in order of their starts.
    """

    name: SiteName
    nodes: tuple[Node, ...]
    switches: Mapping[str, str] = field(default_factory=dict)
    windows: tuple[SiteWindow, ...] = ()

    @property
    def partitions(self) -> tuple[str, ...]:
        """All of its nodes', in the order in which they name them."""
        return tuple(dict.fromkeys(p for node in self.nodes for p in node.partitions))

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A submission: when, what, and how long it would run undisturbed.

    ``duration_s`` of an elastic one: on as many nodes as it asks for. ``doubling``: what twice the
    nodes bring of throughput, in truth, whatever the federation takes it to be.
    """

    at_s: float
    draft: Draft
    duration_s: float
    doubling: float = ASSUMED_GAIN

    def speed(self, nodes: int) -> float:
        """Its throughput on so many nodes, of that on as many as it asks for."""
        elastic = self.draft.elastic
        if elastic is None or not elastic.asked:
            return 1.0
        return float(self.doubling ** log2(nodes / elastic.asked))


@dataclass(frozen=True, slots=True, kw_only=True)
class StartState:
    """What a simulation finds that begins in the midst of a federation's life.

    Attributes:
        ledger: of the federation; the simulation goes on with it, so each needs one of its own.
        known: the workloads of the first arrivals, in their order: they are in the ledger.
        begin_s: Unix time.
        until_s: it ends then, whatever waits or runs.
    """

    ledger: Ledger
    known: tuple[WorkloadId, ...]
    begin_s: float
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """All that a simulation is given. ``arrivals`` are in order of time.

    ``known_durations``: the federation knows how long each will run, and need not learn it.
    """

    sites: tuple[SimulatedSite, ...]
    tenants: tuple[Tenant, ...]
    arrivals: tuple[Arrival, ...]
    start_state: StartState | None = None  # None: it begins with nothing
    known_durations: bool = False


class AttemptInterval(NamedTuple):
    """One attempt at a site, from its start until it left."""

    site: SiteName
    start_s: float
    end_s: float


@dataclass(slots=True, kw_only=True)
class JobTrace:
    """What became of one arrival. Times are on the clock of ``Arrival.at_s``; -1: not yet."""

    first_start_s: float = -1.0
    start_s: float = -1.0  # of the last attempt
    end_s: float = -1.0
    site: SiteName = SiteName("")  # of the last attempt
    stays: list[AttemptInterval] = field(default_factory=list)  # in order of time
    preemptions: int = 0  # resizes among them
    resizes: int = 0  # for which it was told to leave
    lost_gpu_s: float = 0.0  # work that was done, not saved, and done again
    useful_gpu_s: float = 0.0  # in which work was done that was kept
    within_quota: bool = False  # at its first award
    promised_s: float = -1.0  # by when it starts, as its claim says; -1: it has none
    claims_kept: int = 0  # that ended with its start by then
    claims_broken: int = 0  # that ended with a later start
    timed_out: bool = False  # ended by its time limit
    failed: bool = False  # ended with its node, and was not to be requeued
    refused: bool = False  # never queued: no site can ever run it, or too many are queued
    refusals: Mapping[SiteName, Refusal] = field(default_factory=lambda: NOTHING)  # why


class FleetSample(NamedTuple):
    """How the fleet stood from one instant to the next."""

    at_s: float
    held_gpus: int  # by workloads of the federation that have started
    waiting_gpus: int  # asked for by those in the queue
