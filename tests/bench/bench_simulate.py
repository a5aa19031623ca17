"""Measures jobs a second of a replay, beside AccaSim. Asserts nothing about times.

The trace is synthetic, of the size of the public Philly trace: 80,000 jobs, 11 pools of 4 to 32
nodes with 8 GPUs, 176 nodes in all, 9.4 million seconds. Seeded, so the same everywhere:

- pool: drawn by its number of nodes;
- submission: days differ in their number of jobs by a log-normal factor with sigma 1; inside a day
  uniform, 2 of 5 jobs in bursts of up to 40 at one instant;
- GPUs: 1 for 93 of 100 jobs, else 2, 4, 8, 12, 16, 32, 64 or 128, a quarter of the
  pool at most;
- duration: log-normal with sigma 2, scaled so that the load of each pool is 0.7, at most 4.6
  million seconds.

The trace for AccaSim is made alike: 10,000 jobs in 13 days for one pool of 640 GPUs, with a load of
1.3, so that queues are long; the mean wait in order of submission is then 7 hours, about that of
the first 10,000 Philly jobs on as many GPUs.

``mast`` is measured apart, each time in a process of its own: the September 2020 trace of Helios'
Venus where it lies in ``../shared/traces`` (or FEDERATOR_TRACES), and a synthetic one of its size,
24,000 jobs in 27 days on 15 pools with a load of 0.85; with reading, and peak memory. Beside it, on
their first 1,500 jobs, the federation's own code message by message, with equal results. Then, once
each, the peak memory of Venus with evictions, and of 100,000 jobs made as those of Philly.

Run by ``./test bench``, or alone: ``python tests/bench/bench_simulate.py``. AccaSim 1.1.3 is
installed into a temporary environment with pip; where that fails, the comparison is skipped.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from federator.sim.importers.trace_csv import TraceBuilder, read_pools, read_trace
from federator.sim.registry import BASELINES, trace_policy
from federator.sim.trace import ReplayOptions, Timetable, Trace, TracePool

NODES = (32, 32, 32, 32, 16, 8, 8, 4, 4, 4, 4)
SPAN_S, DAY_S = 9_400_000, 86_400
JOBS = 80_000
LOAD = 0.7
LONGEST_S = 4_600_000
REPEATS = 5
PEER_JOBS, PEER_GPUS, PEER_LOAD = 10_000, 640, 1.3
ACCASIM = "accasim==1.1.3"
SLOW_S = 5.0
VENUS_NODES = (9, 5, 8, 20, 6, 12, 4, 11, 4, 8, 3, 32, 10, 2, 1)
VENUS_JOBS, VENUS_SPAN_S, VENUS_LOAD = 24_000, 27 * DAY_S, 0.85
FIRST = 1_500
MANY_JOBS = 100_000
BESIDE = Path(__file__).resolve().parents[3] / "shared" / "traces"
TRACES = Path(os.environ.get("FEDERATOR_TRACES", BESIDE))
VENUS = TRACES / "helios-venus-sept2020.csv.gz"
VENUS_POOLS = TRACES / "helios-venus-sept2020.pools.csv"
DRIVER = Path(__file__).with_name("accasim_driver.py")


def synthetic(pools: list[TracePool], jobs: int, span_s: int, load: float, seed: int) -> Trace:
    """As described above."""
    draw = random.Random(seed)
    days = range(span_s // DAY_S)
    rates = [draw.lognormvariate(0, 1) for _ in days]
    rows: list[tuple[int, float, int, str]] = []
    use = dict.fromkeys((pool.name for pool in pools), 0.0)
    at_s, left = 0, 0
    for _ in range(jobs):
        (pool,) = draw.choices(pools, [p.nodes for p in pools])
        if not left:
            (day,) = draw.choices(days, rates)
            at_s = day * DAY_S + draw.randrange(DAY_S)
            left = draw.randint(2, 40) if draw.random() < 0.031 else 1
        left -= 1
        gpus = 1
        if draw.random() >= 0.93:
            (gpus,) = draw.choices((2, 4, 8, 12, 16, 32, 64, 128), (24, 20, 30, 1, 16, 6, 2, 1))
        rows.append((at_s, draw.lognormvariate(0, 2), min(gpus, pool.gpus // 4), pool.name))
        use[pool.name] += rows[-1][1] * rows[-1][2] / pool.gpus
    scale = {name: load * span_s / used for name, used in use.items()}
    builder = TraceBuilder(pools)
    for number, (submit_s, length, gpus, name) in enumerate(rows):
        builder.add(
            job_id=str(number),
            line=number + 2,
            submit_s=submit_s,
            gpus=gpus,
            num_nodes=None,
            duration_s=min(LONGEST_S, max(1, round(length * scale[name]))),
            cpus=None,
            pool=name,
            user=f"u{number % 319}",
        )
    return builder.trace


def philly_like(jobs: int = JOBS) -> Trace:
    pools = [TracePool(name=f"vc{k}", nodes=n, gpus_per_node=8) for k, n in enumerate(NODES)]
    return synthetic(pools, jobs, SPAN_S, LOAD, seed=1)


def one_pool() -> Trace:
    pool = TracePool(name="c80", nodes=PEER_GPUS // 8, gpus_per_node=8)
    return synthetic([pool], PEER_JOBS, SPAN_S // 8, PEER_LOAD, seed=2)


def timed(name: str, jobs: Trace) -> tuple[float, Timetable]:
    """Median CPU seconds of a replay, and its result; a slow one runs less often."""
    policy, times_s = trace_policy(name), list[float]()
    while len(times_s) < REPEATS and sum(times_s) < SLOW_S:
        gc.collect()
        began_s = time.process_time()
        table = policy.replay(jobs, ReplayOptions())
        times_s.append(time.process_time() - began_s)
    return statistics.median(times_s), table


def wait_s(jobs: Trace, table: Timetable) -> int:
    return sum(table.end_s) - sum(jobs.submit_s) - sum(jobs.duration_s)


def write(jobs: Trace, folder: Path) -> list[str]:
    """As ``T.csv`` and ``P.csv``; the options that name them."""
    pools, trace = folder / "P.csv", folder / "T.csv"
    lines = [f"{p.name},{p.nodes},{p.gpus_per_node},{p.gpus}" for p in jobs.pools]
    pools.write_text("\n".join(["pool,nodes,gpus_per_node,gpus", *lines, ""]))
    columns = zip(
        jobs.submit_s,
        jobs.duration_s,
        jobs.gpus,
        jobs.num_nodes,
        jobs.pool,
        jobs.user,
        jobs.job_id,
        strict=True,
    )
    rows = [f"{s},{d},{g},{n},{jobs.pools[p].name},{u},,,{i}" for s, d, g, n, p, u, i in columns]
    head = "submit_s,duration_s,gpus,num_nodes,pool,user,status,cpus,job_id"
    trace.write_text("\n".join([head, *rows, ""]))
    return ["--trace", str(trace), "--pools", str(pools)]


def replays(jobs: Trace) -> None:
    print(
        f"{len(jobs):,} jobs, {len(jobs.pools)} pools, {jobs.capacity:,} GPUs; medians of "
        f"{REPEATS}, CPU time of the replay alone"
    )
    for name in BASELINES:
        took_s, table = timed(name, jobs)
        mean_s = wait_s(jobs, table) / len(jobs)
        print(
            f"  {name:12}{took_s:8.3f} s{len(jobs) / took_s:12,.0f} jobs/s"
            f"   mean wait {mean_s:12.1f} s"
        )


def whole_command(name: str, words: list[str], goal: str, repeats: int = REPEATS) -> None:
    """Reading, replay and printing, in a process of its own: time and peak memory."""
    command = [sys.executable, "-m", "federator.cli.main", "simulate", "--policy", name, "--json"]
    figures = []
    for _ in range(repeats):
        began_s = time.perf_counter()
        child = subprocess.Popen([*command, *words], stdout=subprocess.PIPE)
        said = child.stdout.read() if child.stdout is not None else b""
        _, status, use = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        assert child.returncode == 0
        cpu_s = use.ru_utime + use.ru_stime
        figures.append((time.perf_counter() - began_s, cpu_s, use.ru_maxrss / 1024))
    wall_s, cpu_s, rss_mib = (statistics.median(column) for column in zip(*figures, strict=True))
    jobs = json.loads(said)["jobs"]
    settings = "".join(f" {word}" for word in words if "=" in word)
    print(
        f"  federator simulate --policy {name}{settings}, whole command, {jobs:,} jobs: "
        f"{wall_s:.2f} s ({cpu_s:.2f} s CPU, {jobs / cpu_s:,.0f} jobs/s), peak {rss_mib:.0f} MiB "
        f"(goal {goal})"
    )


def venus_like() -> Trace:
    pools = [TracePool(name=f"vc{k}", nodes=n, gpus_per_node=8) for k, n in enumerate(VENUS_NODES)]
    return synthetic(pools, VENUS_JOBS, VENUS_SPAN_S, VENUS_LOAD, seed=3)


def of_the_federation(folder: Path) -> None:
    """``mast``: two traces as a whole, by the code of daemon and agent."""
    traces = [("synthetic", venus_like())]
    if VENUS.exists():
        traces.append(("Venus", read_trace(VENUS, read_pools(VENUS_POOLS))))
    else:
        print(f"skipped: no {VENUS}")
    for name, jobs in traces:
        print(f"  {name}: {jobs.capacity:,} GPUs in {len(jobs.pools)} pools")
        whole_command("mast", write(jobs, folder), "<= 8 s, <= 500 MiB")


def memory(folder: Path) -> None:
    """Peak memory of long replays, message by message: whoever evicts, or takes time to start."""
    goal = "<= 500 MiB"
    if VENUS.exists():
        files = ["--trace", str(VENUS), "--pools", str(VENUS_POOLS)]
        evicting = ["--set", "preempt_gpus=64", "--set", "save_s=60"]
        whole_command("mast", [*files, *evicting], goal, repeats=1)
    files = write(philly_like(MANY_JOBS), folder)
    starting = ["--set", "startup_median_s=1", "--set", "startup_p90_s=2"]
    whole_command("mast", files, goal, repeats=1)
    whole_command("mast", [*files, *starting], goal, repeats=1)


def beside_accasim(folder: Path) -> None:
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    words = [str(python), "-m", "pip", "install", "--quiet", ACCASIM]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"skipped: pip could not install {ACCASIM}: {done.stderr.strip()[-200:]}")
        return
    jobs = one_pool()
    workload = folder / "w.swf"
    workload.write_text(
        "".join(
            f"{k} {jobs.submit_s[r]} -1 {jobs.duration_s[r]} {jobs.gpus[r]} -1 -1 {jobs.gpus[r]} "
            f"{jobs.duration_s[r]} -1 1 1 1 1 1 1 -1 -1\n"
            for k, r in enumerate(jobs.in_order(), 1)
        )
    )
    for asks, nodes in (("swf", PEER_GPUS // 8), ("node", 1)):
        system = folder / f"{asks}.json"
        groups = {"g": {"core": PEER_GPUS // nodes}}
        system.write_text(json.dumps({"groups": groups, "resources": {"g": nodes}}))
        print(f"  AccaSim with {nodes} nodes of {PEER_GPUS // nodes}")
        for name, theirs in (("pool-fifo-count", "FIFO"), ("pool-sjf-count", "SJF")):
            words = [str(python), str(DRIVER), str(workload), str(system), theirs, asks]
            compare(jobs, name, words)


def compare(jobs: Trace, name: str, words: list[str]) -> None:
    ours_s, table = timed(name, jobs)
    said = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    assert said["jobs"] == len(jobs)
    assert said["wait_s"] == wait_s(jobs, table), "AccaSim's waits are others"
    print(
        f"    {name:12}{ours_s:8.4f} s   AccaSim {said['cpu_s']:7.2f} s CPU "
        f"({said['wall_s']:.2f} s wall)   ratio {said['cpu_s'] / ours_s:6.0f}   "
        f"same mean wait {said['wait_s'] / len(jobs):.4f} s"
    )


def main() -> None:
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    )
    jobs = philly_like()
    replays(jobs)
    with tempfile.TemporaryDirectory() as folder:
        whole_command("pool-fifo", write(jobs, Path(folder)), "< 100 MB")
        print("\nmast: every pool bids for every job")
        of_the_federation(Path(folder))
        print("\nmemory")
        memory(Path(folder))
        print(f"\nbeside {ACCASIM}: {PEER_JOBS:,} jobs, one pool of {PEER_GPUS} GPUs as a counter")
        beside_accasim(Path(folder))


if __name__ == "__main__":
    main()
