"""Makes a scenario of a trace at any load: its jobs as they are, in less time or in more.

Source:
    Chosen here. Sizes, run times, pools and the order of submission stay; only the times between
    submissions are multiplied, all by the same number. Bursts stay bursts; what is an hour of the
    day in the trace is not one any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from federator.errors import InvalidRequest
from federator.model.tenant import Allowance, Tenant
from federator.sim.experiments.pools import demands_gpu_s, span_s
from federator.sim.scenario import Scenario
from federator.sim.trace import Trace
from federator.sim.trace_scenario import scenario_of

_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSetup:
    """A trace's pools as sites and as tenants' quotas; as ``mast_slo.FleetSetup``.

    Attributes:
        trace: its jobs and pools.
        days: after compression, in which jobs come; later ones are left out.
        warm_up_days: of those, not measured.
        home: whether each quota is guaranteed in its own pool only, see ``Tenant.home``.
        quota_frac: of a pool's GPUs, that its tenant is guaranteed.
    """

    trace: Trace
    days: float
    warm_up_days: float
    home: bool
    quota_frac: float = 1.0

    def scenario(self, load: float, _draw: int) -> Scenario:
        """The jobs at a load: GPU time asked for / GPU time that there is while they come."""
        trace = self.trace
        asked = sum(demands_gpu_s(trace)) / (self.gpus * span_s(trace))
        begin_s, factor = min(trace.submit_s), asked / load
        found = scenario_of(trace, home=self.home)
        quotas = (Allowance(gpus=int(self.quota_frac * pool.gpus)) for pool in trace.pools)
        tenants = tuple(map(_with_quota, found.tenants, quotas))
        arrivals = (replace(a, at_s=(a.at_s - begin_s) * factor) for a in found.arrivals)
        within = tuple(a for a in arrivals if a.at_s < self.days * _DAY_S)
        return replace(found, arrivals=within, tenants=tenants)

    def check(self) -> None:
        """Refuse what leaves nothing to measure.

        Raises:
            InvalidRequest: all of the time is a warm-up, or the trace asks for no GPU.
        """
        if self.warm_up_days >= self.days:
            raise InvalidRequest("--set: warm_up_days: expected less than days")
        if not sum(demands_gpu_s(self.trace)):
            raise InvalidRequest("--trace: expected jobs with GPUs and a run time")

    @property
    def window_s(self) -> tuple[float, float]:
        """The time that is measured, in seconds of the scenario."""
        return self.warm_up_days * _DAY_S, self.days * _DAY_S

    @property
    def gpus(self) -> int:
        return self.trace.capacity


def _with_quota(tenant: Tenant, quota: Allowance) -> Tenant:
    return replace(tenant, quota=quota)
