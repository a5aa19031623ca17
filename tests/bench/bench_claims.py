"""Measures how long the federation takes to decide on the claim of a large gang, or against it.

    python -m tests.bench.bench_claims [--nodes 500] [--rounds 3] [--profile]

Sites of nodes of 8 GPUs, full of guests; then a gang of half of all GPUs comes, within quota. The
CPU time of everything at that moment counts: submission, passes, the sites' answers with victims,
the record of the claim. Code of daemon and agent in one process, without network, log or Slurm.

*Guests of 1 GPU*: 4,000 in a fleet of 4,000. *Firm*: they may not be evicted, so no eviction
helps. *Too large*: no site could ever hold the gang.

KAI (Run:ai) publishes, end to end on 500 fake nodes with 4,000 GPUs: 102 s until a reclaim for one
job of 2,000 GPUs is done, 249.5 s until it says that one of 80 GPUs cannot start. Here is the
decision alone: guests still have to save and to leave.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from random import Random
from time import process_time
from typing import Final

from federator.model.draft import Draft
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.sim.fleet import Fleet
from federator.sim.job_records import BEGIN_S
from federator.sim.physics import Physics
from federator.sim.scenario import Arrival, Scenario, SimulatedSite
from tests.fakes.build import draft, gang, rack

COMES_AT_S: Final = 1000.0
SIZES: Final = {"8 GPUs": (8,), "1 GPU": (1,), "1 to 8 GPUs": (1, 1, 2, 4, 8)}


@dataclass(frozen=True, kw_only=True)
class Case:
    """What fills the fleet, and the gang that comes.

    ``nodes``: of the gang.
    """

    name: str
    sites: int
    site_nodes: int
    guests: Sequence[int]
    nodes: int
    firm: bool = False

    def scenario(self) -> Scenario:
        sites = tuple(
            SimulatedSite(name=SiteName(f"site{k}"), nodes=tuple(rack(f"s{k}n", self.site_nodes)))
            for k in range(self.sites)
        )
        gpus = self.sites * self.site_nodes * 8
        tenants = (
            Tenant(name=TenantName("owner"), priority=3, quota=Allowance(gpus=gpus)),
            Tenant(name=TenantName("firm"), priority=2, quota=Allowance(gpus=gpus)),
            Tenant(name=TenantName("guest")),
        )
        arrivals = [Arrival(at_s=0.0, draft=each, duration_s=1e6) for each in self._guests(gpus)]
        owner = _of("owner", self.nodes, 8)
        arrivals.append(Arrival(at_s=COMES_AT_S, draft=owner, duration_s=10.0))
        return Scenario(sites=sites, tenants=tenants, arrivals=tuple(arrivals))

    def _guests(self, gpus: int) -> Iterator[Draft]:
        draw = Random(0)
        while gpus:
            size = min(gpus, draw.choice(list(self.guests)))
            gpus -= size
            yield _of("firm" if self.firm else "guest", 1, size)


def _of(tenant: str, nodes: int, gpus: int) -> Draft:
    wanted = replace(draft(gang(nodes, gpus)), tenant=TenantName(tenant))
    return replace(wanted, time_limit_s=inf, jobs=(replace(wanted.jobs[0], cpus_per_node=gpus),))


class _OverError(Exception):
    """The moment has been measured."""


class Moment(Fleet):
    """A fleet whose CPU time is measured at the moment at which the gang comes.

    Args:
        case: see ``Case``.
        profile: of that moment; None: there is none to be made.
    """

    def __init__(self, case: Case, profile: cProfile.Profile | None) -> None:
        rules = Rules(preempt_frac=0.05, preempt_window_s=600.0, pass_interval_s=1e5)
        super().__init__(case.scenario(), Mast(), rules, Physics(save_s=60.0))
        self._profile = profile
        self._began_s = 0.0
        self.took_s = 0.0

    def measure(self) -> float:
        """CPU seconds."""
        with suppress(_OverError):
            self.run()
        return self.took_s

    def _next_s(self, at: int) -> float:
        found = super()._next_s(at)
        if self._began_s and found > self.now_s:
            self.took_s = process_time() - self._began_s
            if self._profile is not None:
                self._profile.disable()
            raise _OverError
        if not self._began_s and found - BEGIN_S >= COMES_AT_S:
            self._began_s = process_time()
            if self._profile is not None:
                self._profile.enable()
        return found

    @property
    def said(self) -> str:
        """What the gang was told."""
        ledger = self.federation.ledger
        for claim in ledger.claims.values():
            return f"claim at {claim.site}, {len(claim.victims)} victims"
        last = ledger.entries[max(ledger.entries)]
        if last.workload.tenant != "owner":
            return "refused at submission"
        return "; ".join(
            f"{site}: {r.code.value}, {r.needed} {r.unit} needed, {r.free} free"
            for site, refusal in self.federation.refusals_of(last).items()
            for r in refusal.reasons
        )


def cases(nodes: int) -> Iterator[Case]:
    half = nodes // 2
    for name, sizes in SIZES.items():
        yield Case(name=f"guests of {name}", sites=1, site_nodes=nodes, guests=sizes, nodes=half)
    yield Case(name="two sites, 1 GPU", sites=2, site_nodes=half, guests=(1,), nodes=half)
    for name in ("8 GPUs", "1 GPU"):
        for wanted in (half, 10):
            yield Case(
                name=f"firm, {name}; asks for {8 * wanted}",
                sites=1,
                site_nodes=nodes,
                guests=SIZES[name],
                nodes=wanted,
                firm=True,
            )
    yield Case(name="too large", sites=1, site_nodes=nodes, guests=(8,), nodes=nodes + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    for case in cases(options.nodes):
        profile = cProfile.Profile() if options.profile else None
        moments = [Moment(case, profile) for _ in range(options.rounds)]
        middle_s = statistics.median(moment.measure() for moment in moments)
        print(f"{case.name:28} {middle_s * 1000:9.1f} ms  {moments[0].said}", flush=True)
        if profile is not None:
            pstats.Stats(profile).sort_stats("tottime").print_stats(12)


if __name__ == "__main__":
    main()
