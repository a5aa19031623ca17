"""Writes alpine.txt and cedar.txt beside itself: accounting as two clusters might have it.

Made up, from one seed, and always the same: two weeks of two clusters that know nothing of each
other. More work is sent to alpine than it has GPUs in working hours, and cedar is half idle. Each
runs its jobs in order of submission ("pool-fifo" of federator simulate), which gives the
starts that a dump of sacct would hold.

    python examples/whatif/make_dumps.py
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from federator.sim.importers.trace_csv import TraceBuilder, read_pools
from federator.sim.registry import trace_policy
from federator.sim.trace import ReplayOptions, TracePool

FOLDER = Path(__file__).resolve().parent
BEGIN_S = 1_788_134_400  # Monday, 2026-08-31, 00:00 UTC
DAY_S = 86_400
COLUMNS = (
    "JobID|Cluster|Account|User|Partition|State|Submit|Eligible|Start|ElapsedRaw|TimelimitRaw|"
    "ReqTRES|AllocTRES|NNodes|NCPUS"
)
ACCOUNTS = {  # users, and their share of the jobs sent to each cluster
    "alpine": (("vision", ("ada", "bo"), 6), ("physics", ("cleo",), 3), ("guests", ("dan",), 1)),
    "cedar": (("nlp", ("eve", "finn"), 7), ("physics", ("cleo",), 2)),
}
JOBS_A_DAY = {"alpine": 38, "cedar": 18}
SIZES = ((1, 40), (2, 20), (4, 15), (8, 18), (16, 5), (32, 2))  # GPUs, and how often


def submissions(rng: random.Random, days: int) -> Iterator[int]:
    """Times of one submission: mostly in working hours, few at weekends."""
    while True:
        day = rng.randrange(days)
        if day % 7 < 5 or rng.random() < 0.2:
            hour = min(23.9, max(0.0, rng.gauss(13, 4)))
            yield BEGIN_S + day * DAY_S + int(hour * 3600)


def dump(pool: TracePool, seed: str) -> str:
    """What sacct would print of one cluster."""
    rng = random.Random(seed)  # noqa: S311 - of jobs, not of secrets
    name, days = pool.name, 14
    times = submissions(rng, days)
    builder = TraceBuilder([pool])
    rows: list[dict[str, str | int]] = []
    for submit_s in sorted(next(times) for _ in range(JOBS_A_DAY[name] * days)):
        gpus = rng.choices([size for size, _ in SIZES], [weight for _, weight in SIZES])[0]
        account, users, _ = rng.choices(ACCOUNTS[name], [share for *_, share in ACCOUNTS[name]])[0]
        duration_s = min(2 * DAY_S, int(rng.lognormvariate(9.2, 1.3)))
        rows.append(
            {
                "account": account,
                "user": rng.choice(users),
                "gpus": gpus,
                "state": rng.choices(("COMPLETED", "FAILED", "CANCELLED by 1001"), (8, 1, 1))[0],
                "limit_min": -(-max(duration_s * rng.randint(1, 4), 3600) // 3600) * 60,
            }
        )
        builder.add(
            job_id=str(len(rows)),
            line=0,
            submit_s=submit_s,
            duration_s=duration_s,
            gpus=gpus,
            num_nodes=None,
            cpus=None,
            pool=name,
            user="",
        )
    trace = builder.trace
    ran = trace_policy("pool-fifo").replay(trace, ReplayOptions())
    lines = [COLUMNS]
    for k, row in enumerate(rows):
        tres = f"cpu={8 * trace.gpus[k]},gres/gpu={trace.gpus[k]},node={trace.num_nodes[k]}"
        lines.append(
            "|".join(
                map(
                    str,
                    (
                        k + 101,
                        name,
                        row["account"],
                        row["user"],
                        "gpu",
                        row["state"],
                        trace.submit_s[k],
                        trace.submit_s[k],
                        ran.start_s[k],
                        trace.duration_s[k],
                        row["limit_min"],
                        tres,
                        tres,
                        trace.num_nodes[k],
                        8 * trace.gpus[k],
                    ),
                )
            )
        )
        if k % 90 == 50:  # now and then one that has no GPU, and one that was never started
            at = trace.submit_s[k]
            head = f"{900 + k}|{name}|{row['account']}|{row['user']}"
            lines.append(f"{head}|cpu|COMPLETED|{at}|{at}|{at + 9}|600|60|cpu=4|cpu=4,node=1|1|4")
            head = f"{1900 + k}|{name}|{row['account']}|{row['user']}"
            lines.append(f"{head}|gpu|CANCELLED by 1001|{at}|{at}|None|0|60|gres/gpu=8||1|8")
    return "\n".join([*lines, ""])


def main(folder: Path = FOLDER) -> None:
    """Write the dump of each cluster."""
    for pool in read_pools(FOLDER / "pools.csv"):
        (folder / f"{pool.name}.txt").write_text(dump(pool, f"{pool.name} 1"), encoding="utf-8")


if __name__ == "__main__":
    main()
