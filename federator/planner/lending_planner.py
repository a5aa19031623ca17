"""Makes lending plans: forecasts, for each tenant and GPU type, of the load that quotas admit.

The planner follows the log. Its pools are those that own GPUs: every tenant with a quota above it,
once for all GPUs, and once for each type that such a quota counts. The same code plans for the
daemon and in the simulator; it reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final, NamedTuple

from federator.model.event import LogRecord
from federator.model.lending import LendingPlan, LoadForecast
from federator.model.tenant import Tenancy
from federator.planner.anticipation import WINDOWS_S
from federator.planner.forecast import ArrivalForecast, Forecaster, SimilarJobs
from federator.planner.history import STEP_S
from federator.planner.promises import Promises
from federator.planner.workload_steps import Load, LoadStep, WorkloadStep, WorkloadSteps
from federator.sched.queue.borrowing import fits_whole_quota

LOOKS_BACK_S: Final = 35 * 86_400
"""Older history is left out when a planner begins; features look back 50 days at most, of which the
last weeks tell nearly all."""
LASTS_S: Final = 900.0  # a plan, until it expires
_GPUS: Final = 0
_CPUS: Final = 1


class _Pool(NamedTuple):
    """GPUs that a tenant may ask for within quota: of all types, or of one."""

    row: int
    resource: int
    quota_gpus: int


class LendingPlanner:
    """One planner.

    Args:
        tenancy: the tenants, as configured.
        arrivals: says whether any work will come.
        source: of the forecasts, in a word.
    """

    def __init__(self, tenancy: Tenancy, arrivals: ArrivalForecast, source: str = "") -> None:
        self._tenancy, self._arrivals, self._source = tenancy, arrivals, source
        self._pools = list(_pools_of(tenancy))
        self._pool_of = {(pool.row, pool.resource): k for k, pool in enumerate(self._pools)}
        self._steps = WorkloadSteps(tenancy)
        self._heard: list[WorkloadStep] = []  # and not taken into the forecasts yet
        self._forecaster: Forecaster | None = None
        self._promises = Promises((), ())
        self._next_s = self._promise_from_s = 0
        self._known: dict[int, bool] = {}  # jobs of the forecaster; whether they have started

    def take(self, record: LogRecord) -> None:
        """Take the next record of the log in."""
        for step in self._steps.take(record):
            if fits_whole_quota(self._tenancy, step.load.row, step.load.amounts):
                self._heard.append(step)

    def plan(self, now_s: float, lasts_s: float = LASTS_S) -> LendingPlan:
        """The plan of now; all that happened until now has been told.

        Args:
            now_s: Unix time; not before that of the last plan.
            lasts_s: until it expires.
        """
        forecaster = self._advance(now_s)
        loads = [forecaster.new_load(int(now_s), window) for window in range(len(WINDOWS_S))]
        return LendingPlan(
            made_at_s=now_s,
            expires_at_s=now_s + lasts_s,
            windows_s=tuple(map(float, WINDOWS_S)),
            forecasts=tuple(
                self._forecast(k, pool, [load[k] for load in loads])
                for k, pool in enumerate(self._pools)
            ),
            source=self._source,
        )

    def _forecast(self, number: int, pool: _Pool, new_gpus: list[int]) -> LoadForecast:
        windows = range(len(WINDOWS_S))
        promises = self._promises
        resources = self._tenancy.resources.names
        return LoadForecast(
            tenant=self._tenancy.tenants[pool.row].name,
            gpu_type="" if pool.resource == _GPUS else resources[pool.resource],
            new_gpus=tuple(min(gpus, pool.quota_gpus) for gpus in new_gpus),
            off=tuple(promises.is_off(window, number) for window in windows),
            kept=tuple(promises.kept(window, number) for window in windows),
            promises=tuple(promises.made(window) for window in windows),
        )

    # ---- time ----

    def _advance(self, now_s: float) -> Forecaster:
        """Take in what was heard, and make and settle promises at each step on the way."""
        self._heard.sort(key=lambda step: step.at_s)  # of a snapshot they come in no order
        forecaster = self._forecaster or self._begin(now_s)
        taken = 0
        while self._next_s <= now_s:
            taken = self._feed(forecaster, self._next_s, taken)
            self._promise(forecaster, self._next_s)
            self._next_s += STEP_S
        taken = self._feed(forecaster, now_s, taken)
        del self._heard[:taken]
        return forecaster

    def _begin(self, now_s: float) -> Forecaster:
        first_s = self._heard[0].at_s if self._heard else now_s
        begin_s = int(min(now_s, max(first_s, now_s - LOOKS_BACK_S)))
        ended = {s.load.id for s in self._heard if s.step is LoadStep.ENDED and s.at_s < begin_s}
        self._heard = [step for step in self._heard if step.load.id not in ended]
        self._forecaster = forecaster = Forecaster(
            len(self._pools), begin_s, self._arrivals, SimilarJobs()
        )
        windows = forecaster.history.windows
        self._promises = Promises([pool.quota_gpus for pool in self._pools], windows)
        self._next_s = begin_s
        self._promise_from_s = int(now_s) - Promises.lead_steps(windows) * STEP_S
        return forecaster

    def _promise(self, forecaster: Forecaster, at_s: int) -> None:
        if at_s < self._promise_from_s:
            return
        history = forecaster.history
        history.close(at_s)
        self._promises.settle(history)
        for window in range(len(history.windows)):
            if self._promises.is_due(history.steps, window):
                load = forecaster.new_load(at_s, window)
                self._promises.make(history.steps, window, load)

    # ---- what happened ----

    def _feed(self, forecaster: Forecaster, until_s: float, taken: int) -> int:
        while taken < len(self._heard) and self._heard[taken].at_s <= until_s:
            heard = self._heard[taken]
            at_s = max(int(heard.at_s), forecaster.history.begin_s)
            for key, pool, gpus in self._jobs(heard.load):
                self._tell(forecaster, heard, at_s, (key, pool, gpus))
            taken += 1
        return taken

    def _tell(
        self, forecaster: Forecaster, heard: WorkloadStep, at_s: int, job: tuple[int, int, int]
    ) -> None:
        key, pool, gpus = job
        if heard.step is LoadStep.CAME and key not in self._known:
            self._known[key] = False
            forecaster.arrived(key, at_s, heard.load.user, pool, gpus)
        elif heard.step is LoadStep.STARTED and key in self._known:
            self._known[key] = True
            forecaster.started(key, at_s)
        elif heard.step is LoadStep.ENDED and key in self._known:
            if self._known.pop(key):
                forecaster.ended(key, at_s)
            else:
                forecaster.left(key)

    def _jobs(self, load: Load) -> Iterator[tuple[int, int, int]]:
        """A workload as a job of each pool that it asks: its key there, the pool, the GPUs."""
        for resource, amount in enumerate(load.amounts):
            pool = self._pool_of.get((load.row, resource))
            if amount and pool is not None:
                yield load.id * len(load.amounts) + resource, pool, amount


def _pools_of(tenancy: Tenancy) -> Iterator[_Pool]:
    for row in range(len(tenancy)):
        for resource in range(len(tenancy.resources)):
            bounds = [(tenancy.quotas[at] or ())[resource] for at in tenancy.quota_rows(row)]
            most = min(bounds, default=0.0)
            if resource != _CPUS and 0 < most < inf:
                yield _Pool(row, resource, int(most))
