"""Measures putting the queue into MAST's order, in full, after a change, and in a live pass.

Run by ``./test bench``. Prints medians beside the bounds they are held to; asserts nothing about
time. The naive reference of the same run ranks the same queue with plain loops and two sorts, and
must come to the same order.
"""

from __future__ import annotations

import gc
import itertools
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

import numpy as np

from federator.model.draft import Draft
from federator.model.event import decode_event, encode_event
from federator.model.message import Record, SubmitAsked, Tick
from federator.model.resources import Amounts
from federator.model.submission import pack_submission
from federator.model.tenant import LOWEST_PRIORITY, Allowance, Tenancy, Tenant
from federator.model.workload import (
    FIRST_WORKLOAD_ID,
    Job,
    SiteName,
    TenantName,
    Workload,
    WorkloadId,
)
from federator.policies.mast import Mast
from federator.sched.passes.federation import Federation
from federator.sched.queue.ranking import CreditRanking, RankColumns
from federator.sched.state.backlog import Backlog
from federator.sched.state.credit import CreditWeights, fair_share_terms
from federator.sched.state.holdings import Charge, Holdings
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules
from federator.sched.state.usage import WindowAverage
from tests.fakes.build import submission

REPEATS: Final = 5
TENANTS: Final = 200
PENDING: Final = 100_000
CHANGING: Final = 3
WINDOW: Final = Rules().window
FULL_BOUNDS_S: Final = {10_000: 0.020, 100_000: 0.200, 1_000_000: 2.0}
NEXT_BOUND_S: Final = 0.001
PEAK_BOUND_MIB: Final = 1024
MEMORY_BOUND_MIB: Final = 900
MANY: Final = 1_000_000
NAIVE_UP_TO: Final = 100_000
MAST_S: Final = 34.0
"""A GMS-scan pass over 6,000 to 10,000 workloads in production; MAST (OSDI'24) sec. 4.2."""

NOW_S: Final = 1_800_000_000.0
WAITED_S: Final = 10 * 86_400.0  # the longest; beyond the age cap of a week
LEVEL_SHARES: Final = (0.03, 0.20, 0.16, 0.54, 0.002, 0.005, 0.0602)  # MAST sec. 4.2, 1 to 7

# MAST sec. 5: 70 % of the workloads use GPUs, 16 / 64 / 128 of them at P50 / P90 / P99.
GPU_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
GPU_SHARES: Final = (0.05, 0.05, 0.10, 0.25, 0.20, 0.15, 0.14, 0.055, 0.005)
CPUS_PER_GPU: Final = (8, 12, 16)
CPU_SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
CPU_ONLY: Final = 0.3
LOWERED: Final = 0.02  # ask for a priority below their tenant's
MANY_GPUS: Final = 1e9  # a quota into which everything fits

SITES: Final[dict[SiteName, tuple[str, ...]]] = {SiteName("alpine"): ("gpu",)}  # never heard


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What a queue is like."""

    name: str
    own_shape: bool = False  # no two workloads ask for the same
    families: int = 0  # under so many parents, with quotas for the sum
    random_nice: bool = False
    all_fit: bool = False
    one_tenant: bool = False  # all workloads are of one tenant


TYPICAL: Final = Input(name="typical")
INPUTS: Final = (
    TYPICAL,
    Input(name="every workload a shape of its own", own_shape=True),
    Input(name="10 families under a parent's quota", families=10),
    Input(name="random nice, 0 to 99", random_nice=True),
    Input(name="all of it fits within quota", all_fit=True),
    Input(name="one tenant has all of it", one_tenant=True),
    Input(name="the same, and all of it fits", one_tenant=True, all_fit=True),
)


# ---- queues ----


def tenancy_for(what: Input) -> Tenancy:
    """TENANTS with quotas of 64 to 128 GPUs, after their parents."""
    rng = np.random.default_rng(1)
    shares = np.array(LEVEL_SHARES) / sum(LEVEL_SHARES)
    levels = rng.choice(len(shares), TENANTS, p=shares) + 1
    gpus = rng.integers(64, 129, TENANTS)
    tenants = [
        Tenant(name=TenantName(f"group{k}"), quota=quota(1500, what)) for k in range(what.families)
    ]
    tenants += [
        Tenant(
            name=TenantName(f"team{k}"),
            priority=int(levels[k]),
            quota=quota(int(gpus[k]), what),
            parent=TenantName(f"group{k % what.families}") if what.families else None,
        )
        for k in range(TENANTS)
    ]
    return Tenancy(tenants)


def quota(gpus: int, what: Input) -> Allowance:
    if what.all_fit:
        return Allowance(gpus=MANY_GPUS, cpus=MANY_GPUS * 1000)
    return Allowance(gpus=gpus, cpus=inf if what.own_shape else gpus * 16)


def typical_job(rng: np.random.Generator) -> Job:
    if rng.random() < CPU_ONLY:
        return Job(name="prepare", nodes=1, cpus_per_node=int(rng.choice(CPU_SIZES)))
    gpus = int(rng.choice(GPU_SIZES, p=GPU_SHARES))
    cpus = gpus * int(rng.choice(CPUS_PER_GPU))
    return Job(name="train", gpus=gpus, cpus=cpus)


def workloads(number: int, what: Input) -> Iterator[Workload]:
    """As they were submitted over the last ten days; the k-th busiest tenant has 1/k as many."""
    rng = np.random.default_rng(2)
    busy = 1.0 / np.arange(1, TENANTS + 1)
    teams = rng.choice(TENANTS, number, p=busy / busy.sum())
    waited_s = np.sort(rng.random(number))[::-1] * WAITED_S
    lowered = rng.random(number) < LOWERED
    nice = rng.integers(0, 100, number) * what.random_nice
    jobs = [(typical_job(rng),) for _ in range(2000)]  # so many differ little; shapes far less
    nth_job = rng.integers(0, len(jobs), number)
    shared = pack_submission(submission())
    names = [TenantName(f"team{k}") for k in range(TENANTS)]
    for k in range(number):
        asked = jobs[nth_job[k]]
        yield Workload(
            id=WorkloadId(FIRST_WORKLOAD_ID + k),
            name="train",
            user="ada",
            tenant=names[0 if what.one_tenant else teams[k]],
            priority=LOWEST_PRIORITY,
            jobs=(replace(asked[0], cpus=2000 + k),) if what.own_shape else asked,
            submission=shared,
            submitted_at_s=NOW_S - float(waited_s[k]),
            asked_priority=LOWEST_PRIORITY if lowered[k] else 1,
            nice=int(nice[k]),
        )


def queue_of(waiting: Iterable[Workload], tenancy: Tenancy) -> tuple[Backlog, Holdings]:
    """The backlog; every tenant holds a part of its quota and has held it for three days."""
    rng = np.random.default_rng(3)
    holdings = Holdings(tenancy, WindowAverage(7 * 86_400.0))
    for row in range(len(tenancy) - TENANTS, len(tenancy)):
        gpus = int(rng.integers(0, 97))
        charge = Charge(row=row, amounts=(gpus, gpus * 12), weighted_gpus=float(gpus))
        holdings.add(charge, within_quota=gpus <= 64, at_s=NOW_S - 3 * 86_400.0)
    last = Charge(row=len(tenancy) - 1, amounts=(1, 1), weighted_gpus=1.0)
    holdings.add(last, within_quota=False, at_s=NOW_S - 60.0)  # as awards of the last minute are
    backlog = Backlog(tenancy)
    for workload in waiting:
        backlog.add(workload)
    return backlog, holdings


# ---- the naive reference ----


@dataclass(frozen=True, slots=True)
class Asked:
    """What plain loops need to know of a workload."""

    workload: Workload
    row: int
    request: Amounts


def naive_order(waiting: Iterable[Asked], holdings: Holdings, weights: CreditWeights) -> list[int]:
    """Credit for each; sort; scan one after the other; sort again. The ids in order."""
    tenancy = holdings.tenancy
    fair_share = fair_share_terms(holdings.averages(NOW_S), weights).tolist()
    by_credit = []
    for asked in waiting:
        w, own = asked.workload, tenancy.tenants[asked.row].priority
        age_term = weights.age_term(NOW_S - w.submitted_at_s)
        credit = age_term + fair_share[asked.row] - weights.nice_term(w.nice)
        credit -= weights.non_preemptible_term(w.preemptible)
        lowered = max(0, w.asked_priority - own)
        by_credit.append((lowered, -credit, w.submitted_at_s, w.id, asked))
    by_credit.sort()
    used = [list(holdings.used(row)) for row in range(len(tenancy))]
    order = []
    for lowered, negative_credit, submitted_at_s, id_, asked in by_credit:
        chain, priority = tenancy.quota_rows(asked.row), LOWEST_PRIORITY
        if chain and all(
            u + more <= most
            for r in chain
            for u, more, most in zip(used[r], asked.request, tenancy.quotas[r] or (), strict=True)
        ):
            priority = tenancy.tenants[asked.row].priority + lowered
            for r in chain:
                used[r] = [u + more for u, more in zip(used[r], asked.request, strict=True)]
        order.append((priority, negative_credit, submitted_at_s, id_))
    order.sort()
    return [item[-1] for item in order]


# ---- measuring ----


def median_s(measure: Callable[[], object], prepare: Callable[[], None] = lambda: None) -> float:
    return statistics.median(one_s(measure, prepare) for _ in range(REPEATS))


def one_s(measure: Callable[[], object], prepare: Callable[[], None] = lambda: None) -> float:
    prepare()
    began_s = time.perf_counter()
    kept = measure()  # what was made is taken down off the clock
    took_s = time.perf_counter() - began_s
    del kept
    return took_s


def touch_all(backlog: Backlog) -> None:
    """Every tenant has changed."""
    for row in backlog.rows():
        backlog.touch(row)


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak_mib() -> int:
    """The most memory in use since ``forget_peak``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:10.2f} ms"


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return (
        f"{os.cpu_count()} cores, {models[0] if models else platform.machine()}; "
        f"Python {platform.python_version()}, numpy {np.__version__}; "
        f"load {os.getloadavg()[0]:.1f}; medians of {REPEATS}"
    )


# ---- rows ----


def full_passes() -> None:
    """From nothing known to the whole order: credit, quota scan, sort."""
    print(f"\nfull pass, {TENANTS} tenants, all of them changed (bound); plain loops, and how many")
    print("times slower; most memory in use, with the queue but without the ledger (bound)")
    weights = CreditWeights()
    tenancy = tenancy_for(TYPICAL)
    for number, bound_s in FULL_BOUNDS_S.items():
        forget_peak()
        backlog, holdings = queue_of(workloads(number, TYPICAL), tenancy)

        def rank(backlog: Backlog = backlog, holdings: Holdings = holdings) -> RankColumns:
            return CreditRanking(backlog, holdings, weights, NOW_S).columns()

        fast_s = median_s(rank, partial(touch_all, backlog))
        peak = f"{peak_mib():5} MiB ({PEAK_BOUND_MIB})"
        naive = " " * 25
        if number <= NAIVE_UP_TO:
            asked = [
                Asked(w, tenancy.row(w.tenant), tenancy.resources.request(w.jobs))
                for w in workloads(number, TYPICAL)
            ]
            naive_s = median_s(lambda: naive_order(asked, holdings, weights))  # noqa: B023
            assert naive_order(asked, holdings, weights) == rank().id.tolist()
            naive = f"{ms(naive_s)}, {naive_s / fast_s:5.1f} x"
        print(f"  {number:9,} pending  {ms(fast_s)} ({bound_s * 1e3:5.0f}) {naive}  {peak}")
    print(f"  MAST, 6,000 to 10,000 pending, as published: {MAST_S:.0f} s")


def inputs() -> None:
    """Usual and adverse queues of the same length."""
    print(f"\n{PENDING:,} pending. next: the first to try, after a change in one tenant; of")
    print(
        f"{CHANGING} tenants from busy to idle (bound {NEXT_BOUND_S * 1e3:.0f} ms)."
        f" first {WINDOW}, all: asked for lazily"
    )
    print(
        f"  {'':40}{'lanes':>7}{'full pass':>13}{'next, median':>13}{'worst':>13}"
        f"{f'first {WINDOW}':>13}{'all':>13}"
    )
    for what in INPUTS:
        tenancy = tenancy_for(what)
        backlog, holdings = queue_of(workloads(PENDING, what), tenancy)
        lanes = sum(len(backlog.lanes(row)) for row in backlog.rows())
        print(f"  {what.name:40}{lanes:7}", *measured(backlog, holdings), sep="")


def changing(backlog: Backlog) -> list[int]:
    """CHANGING tenants, from the busiest to the one with least to do."""
    length = {row: sum(map(len, backlog.lanes(row))) for row in backlog.rows()}
    rows = sorted(length, key=lambda row: -length[row])
    return rows[:: max(1, len(rows) // CHANGING)]


def measured(backlog: Backlog, holdings: Holdings) -> Iterator[str]:
    """Full pass; next after a change, median and worst of some tenants; a window; all of it."""

    def ranking() -> CreditRanking:
        return CreditRanking(backlog, holdings, CreditWeights(), NOW_S)

    yield ms(median_s(lambda: ranking().columns(), lambda: touch_all(backlog)))
    next_s = [
        median_s(lambda: next(iter(ranking())), partial(backlog.touch, row))
        for row in changing(backlog)
    ]
    yield ms(statistics.median(next_s))
    yield ms(max(next_s))
    known = ranking()
    yield ms(median_s(lambda: list(itertools.islice(known, WINDOW))))
    yield ms(median_s(lambda: sum(1 for _ in known)))


def drafts(of_array: int, number: int = PENDING) -> Iterator[Draft]:
    """So many workloads as submissions of arrays of so many tasks."""
    usual = workloads(number // of_array, TYPICAL)
    indices = tuple(range(of_array)) if of_array > 1 else ()
    return (
        Draft(
            name=w.name,
            user=w.user,
            tenant=w.tenant,
            priority=w.priority,
            jobs=w.jobs,
            submission=w.submission,
            time_limit_s=3600.0,
            requeue=True,
            asked_priority=w.asked_priority,
            array_indices=indices,
        )
        for w in usual
    )


def replay(records: list[bytes]) -> Federation:
    federation = Federation(SITES, Mast(), Rules(), Ledger(tenancy_for(TYPICAL)))
    federation.replay(map(decode_event, records))
    return federation


def live(of_array: int) -> None:
    """Through the one door: submit all, try all in one pass while no site is ready, replay."""
    asked = [
        SubmitAsked(client=k, key=f"key-{k:08}", draft=draft)
        for k, draft in enumerate(drafts(of_array))
    ]
    federation = Federation(SITES, Mast(), Rules(), Ledger(tenancy_for(TYPICAL)))
    records: list[bytes] = []
    submit_s = 0.0
    for k, one in enumerate(asked):
        began_s = time.perf_counter()
        commands = federation.handle(one, NOW_S + k * 0.01)
        submit_s += time.perf_counter() - began_s
        records += [encode_event(c.event) for c in commands if isinstance(c, Record)]
    clock = itertools.count(NOW_S + 10_000.0, 1_000.0)
    backlog = federation.ledger.backlog
    ticks = (federation.handle(Tick(), now_s) for now_s in clock)
    pass_s = median_s(partial(next, ticks), partial(touch_all, backlog))
    assert len(backlog) == PENDING
    del federation, backlog, ticks  # before the same is built again
    replay_s = median_s(partial(replay, records))
    print(
        f"  arrays of {of_array:3}: submit {PENDING / submit_s:9,.0f} /s;"
        f" pass {ms(pass_s)}; replay {PENDING / replay_s:9,.0f} /s"
    )


def memory(of_array: int) -> None:
    """What a million waiting workloads take, in a process of their own, beside plain dicts."""
    command = [sys.executable, __file__, "memory", str(of_array)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    ours, base, plain = map(float, said[:3])
    print(
        f"  arrays of {of_array:3}: {ours:6,.0f} MiB ({MEMORY_BOUND_MIB}), {base:.0f} MiB of it "
        f"before the first; a dict of fields for each {plain:6,.0f} MiB, {plain / ours:.1f} x"
    )


def measure_memory(of_array: int) -> None:
    """Print the resident MiB of a federation, those before it, and those of plain dicts."""
    base = resident_mib()
    federation = Federation(SITES, Mast(), Rules(), Ledger(tenancy_for(TYPICAL)))
    for k, draft in enumerate(drafts(of_array, MANY)):
        asked = SubmitAsked(client=k, key=f"key-{k:08}", draft=draft)
        federation.handle(asked, NOW_S + k * 0.01)
    ours = resident_mib()
    entries = list(federation.ledger.entries.values())
    plain = [{name: getattr(e.workload, name) for name in e.workload.__slots__} for e in entries]
    print(ours, base, base + resident_mib() - ours, len(plain))


def resident_mib() -> float:
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def changes() -> None:
    """What it costs to keep the backlog, for each workload that comes or goes."""
    waiting = list(workloads(PENDING, TYPICAL))
    tenancy = tenancy_for(TYPICAL)
    backlog = Backlog(tenancy)

    def add() -> None:
        for workload in waiting:
            backlog.add(workload)

    def remove() -> None:
        for workload in waiting:
            backlog.remove(workload)

    add_s = median_s(add, lambda: remove() if len(backlog) else None)
    first_s = median_s(remove, lambda: None if len(backlog) else add())
    waiting.reverse()
    last_s = median_s(remove, lambda: None if len(backlog) else add())
    for what, took_s in (
        ("add, oldest first", add_s),
        ("remove, oldest first", first_s),
        ("remove, newest first", last_s),
    ):
        print(f"  backlog: {what:22}{took_s / PENDING * 1e6:6.2f} us a workload")


def main() -> None:
    print(machine())
    full_passes()
    inputs()
    print(f"\nlive, {PENDING:,} workloads through a Federation; pass: tries all, no site is ready")
    for of_array in (1, 100):
        live(of_array)
    changes()
    print(f"\nmemory of a daemon's federation, {MANY:,} workloads pending")
    for of_array in (1, 100):
        memory(of_array)


if __name__ == "__main__":
    if sys.argv[1:2] == ["memory"]:
        measure_memory(int(sys.argv[2]))
    else:
        main()
