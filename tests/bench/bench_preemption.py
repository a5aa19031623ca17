"""Measures a preemption, in time and work, on real Slurm, beside Slurm's own.

    python -m tests.bench.bench_preemption [--rounds 4] [--plain-rounds 2]

Needs the testbed, idle, for some minutes. In each round 8 guests of 8 GPUs fill one site, each
alone on a node, and 8 short jobs that may displace them are submitted as one array. Four kinds of
guests: *leaves* (told by USR1 or TERM it saves at once, exit 85), *acks* (saves as well, says so
in a file, and stays), *dies* (of TERM, by default), *deaf* (ignores every signal).

Three ways to make room, with the same scripts on the same nodes:

- the federation, with a grace of 10 s;
- Slurm's preemption by partition (`preempt/partition_prio`, requeue) with a GraceTime of 10 s;
- ``scontrol requeue`` of all guests, which gives no grace but KillWait (5 s).

Prints medians and P95. *order → start*: from when the guest was told to leave (federation), from
sbatch (by partition), from ``scontrol requeue``, to the first line of the job that gets its node.
*lost*: GPU-seconds from the last moment that was of use (told, if the guest saved then; else its
start) up to that line. A guest that saves nothing loses all since its start, so *older* tells how
long they had run. *tax*: the same as the federation charges it, up to the end that Slurm gives.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Final

from federator.model.event import Changed, decode_event
from federator.model.lifecycle import WorkloadEvent
from federator.model.workload import WorkloadId
from federator.sched.state.ledger import Ledger
from federator.sched.state.preemption_cost import destroyed_gpu_s
from federator.store.sqlite import SqliteStore
from federator.testbed.layout import GPU_NODES, LOCAL_USER, StateDir
from tests.slurm.conftest import clear, lasting
from tests.slurm.federation import Running, at, open_to_all, within

SITE, REGION, GPUS = "cedar", "east", 8
GUESTS: Final = GPU_NODES.count
GRACE_S: Final = 10.0
SETTLE_S: Final = 2.0  # that guests have run at least when they are told to leave
NAME: Final = "bench-preemption"
SBATCH: Final = ("sbatch", "--parsable", "--output=/dev/null", "-N1", "--gres=gpu:8")
NOTES: Final = f"/shared/{REGION}/{NAME}"  # as jobs see it
QUICK: Final = os.environ.get("FEDERATOR_BENCH") == "quick"  # it is to run, and to say little
ROUNDS, PLAIN_ROUNDS = (1, 1) if QUICK else (4, 2)
KINDS: Final = ("leaves",) if QUICK else ("leaves", "acks", "dies", "deaf")
TAKES_USR1: Final = ("leaves", "acks")
WINNERS: Final = f"--array=0-{GUESTS - 1}"
GUEST: Final = """#!/usr/bin/env python3
import os, signal, sys, time
KIND, name = "{kind}", "guest-" + os.environ["SLURM_JOB_ID"] + "-" + os.environ["SLURMD_NODENAME"]
def note(what):
    with open("{notes}/" + name, "a") as file:
        print(what, os.environ["SLURMD_NODENAME"], time.time(), file=file)
def told(number, frame):
    note("saved")
    if KIND == "leaves":
        os._exit(85)
    ack = os.environ.get("FED_CHECKPOINT_DIR")
    if ack:
        open(os.path.join(ack, ".fed", "saved." + os.environ["FED_ATTEMPT"]), "w").close()
for which in ("HUP", "INT", "USR1", "USR2", "TERM"):
    number = getattr(signal, "SIG" + which)
    if KIND == "deaf":
        signal.signal(number, signal.SIG_IGN)
    elif KIND != "dies":
        signal.signal(number, told)
note("started")
while True:
    time.sleep(1)
"""
WINNER: Final = """#!/bin/sh
echo "started $SLURMD_NODENAME $(date +%s.%N)" >"{notes}/winner-{round}-$SLURM_JOB_ID"
for _ in $(seq 100); do  # nobody gets the node of another who has ended
  [ "$(ls {notes}/winner-{round}-* | wc -l)" -lt {all} ] || break
  sleep 0.2
done
sleep 1
"""


@dataclass(slots=True)
class Costs:
    """What was measured for one kind of guest and one way to make room, in seconds."""

    start_s: list[float] = field(default_factory=list)  # from order to the winner's first line
    lost_gpu_s: list[float] = field(default_factory=list)  # until that line
    tax_gpu_s: list[float] = field(default_factory=list)  # as the federation charges it
    older_s: list[float] = field(default_factory=list)  # guests, when they were told
    award_s: list[float] = field(default_factory=list)  # from award to the winner's first line
    gone_s: list[float] = field(default_factory=list)  # from order to the end that is told


def guest(kind: str) -> tuple[str, tuple[str, ...]]:
    """The script of a guest and the options it needs."""
    script = GUEST.replace("{kind}", kind).replace("{notes}", NOTES)
    return script, (("--signal=B:USR1@60",) if kind in TAKES_USR1 else ())


def winner() -> str:
    """The script of those that displace guests, in one round."""
    texts = {"notes": NOTES, "round": str(time.monotonic_ns()), "all": str(GUESTS)}
    script = WINNER
    for name, text in texts.items():
        script = script.replace(f"{{{name}}}", text)
    return script


# ---- what jobs have noted ----


def folder() -> Path:
    """The notes as the host sees them."""
    return StateDir.default().shared(REGION) / NAME


def noted(prefix: str, what: str, since_s: float) -> dict[str, float]:
    """When what was last noted on each node, not before ``since_s``."""
    found: dict[str, float] = {}
    for path in folder().glob(f"{prefix}-*"):
        for line in path.read_text().splitlines():
            word, node, at_s = line.split()
            if word == what and float(at_s) >= since_s:
                found[node] = max(found.get(node, 0.0), float(at_s))
    return found


def all_noted(prefix: str, since_s: float, timeout_s: float = 60.0) -> dict[str, float]:
    """When something started on each of the nodes; it is waited for."""

    def look() -> dict[str, float]:
        found = noted(prefix, "started", since_s)
        return found if len(found) == GUESTS else {}

    return within(timeout_s, look)


# ---- the federation ----


def federated(running: Running, kind: str, rounds: int) -> None:
    """Displace all guests of one kind, again and again; the log tells what it cost."""
    script, options = guest(kind)
    since_s = time.time()
    wants = ("-N1", "--gres=gpu:h100:8")
    guests = [running.submit(script, *wants, *options, user="bio1") for _ in range(GUESTS)]
    for _ in range(rounds):
        all_noted("guest", since_s)
        within(30, lambda: all(row["state"] == "RUNNING" for row in running.rows(*guests)))
        time.sleep(SETTLE_S)
        since_s = time.time()
        array = running.submit(winner(), *wants, WINNERS)
        running.await_end(array, timeout_s=90)
    running.cancel_all()


def costs_between(log: Path, from_s: float, to_s: float) -> Costs:
    """What the evictions cost that were ordered in this time."""
    store, ledger, costs = SqliteStore(log), Ledger(), Costs()
    told_s: dict[WorkloadId, float] = {}
    for event in map(decode_event, store.records()):
        if not isinstance(event, Changed):
            ledger.apply(event)
            continue
        entry = ledger.entries[event.workload]
        before_gpu_s, started_s, plan = entry.lost_gpu_s, entry.started_at_s, entry.plan
        ledger.apply(event)
        if event.happening is WorkloadEvent.EVICTED and from_s <= event.at_s < to_s:
            told_s[event.workload] = event.at_s
            costs.older_s.append(event.at_s - started_s)
        elif event.happening is WorkloadEvent.PREEMPTED and event.workload in told_s:
            at_s, winner = told_s.pop(event.workload), entry.evicted_for
            award = ledger.entries[winner].award if winner is not None else None
            first_s = min(first_lines(next(iter(plan[0].nodes)), at_s))
            costs.gone_s.append(event.at_s - at_s)
            costs.tax_gpu_s.append(entry.lost_gpu_s - before_gpu_s)
            costs.lost_gpu_s.append(destroyed_gpu_s(GPUS, started_s, first_s, event.leave))
            costs.start_s.append(first_s - at_s)
            costs.award_s.append(first_s - award.at_s if award is not None else nan)
    store.close()
    return costs


def first_lines(node: str, since_s: float) -> Iterator[float]:
    """When winners started on a node, not before ``since_s``."""
    for path in folder().glob("winner-*"):
        _, where, at_s = path.read_text().split()
        if where == node and float(at_s) >= since_s:
            yield float(at_s)


# ---- Slurm by itself ----


@contextmanager
def by_partition() -> Iterator[None]:
    """Local work preempts the federation's partition; everything is put back as it was."""
    at(SITE, "scontrol", "update", "partitionname=local", "prioritytier=10")
    at(SITE, "scontrol", "update", "partitionname=fed", f"gracetime={GRACE_S:.0f}")
    try:
        yield
    finally:
        at(SITE, "scancel", "--partition=local")
        at(SITE, "scontrol", "update", "partitionname=local", "prioritytier=1")
        at(SITE, "scontrol", "update", "partitionname=fed", "gracetime=20")


def sbatch(script: str, user: str, *options: str) -> str:
    """Submit a script at the site; the job's id."""
    return at(SITE, *SBATCH, *options, user=user, stdin=script).strip()


def queue_winners(nodes: Iterable[str]) -> dict[str, float]:
    """One job pinned to each node, as the federation pins its own; when each was submitted.

    As an array they would be let in one by one: Slurm evicts for one task of an array at a time.
    """
    words = f"{' '.join(SBATCH)} --partition=local --nodelist=$node /tmp/{NAME}"
    loop = f"cat >/tmp/{NAME}; for node; do date +%s.%N; {words} >/dev/null; done"
    told = at(SITE, "sh", "-c", loop, "sh", *nodes, user=LOCAL_USER, stdin=winner())
    return dict(zip(nodes, map(float, told.split()), strict=True))


def plain(kind: str, rounds: int, *, requeue: bool) -> Costs:
    """The same with Slurm alone: guests are requeued by hand, or evicted by Slurm."""
    with open_to_all(SITE):
        return _plain_rounds(kind, rounds, requeue=requeue)


def _plain_rounds(kind: str, rounds: int, *, requeue: bool) -> Costs:
    costs, (script, options) = Costs(), guest(kind)
    for _ in range(rounds):
        began_s = time.time()
        ids = [sbatch(script, "bio1", "--partition=fed", *options) for _ in range(GUESTS)]
        started = all_noted("guest", began_s)
        time.sleep(SETTLE_S)
        told_s = queue_winners(sorted(started))
        if requeue:
            told_s = dict.fromkeys(told_s, time.time())
            at(SITE, "scontrol", "requeue", ",".join(ids), user="bio1")
        first_s = all_noted("winner", min(told_s.values()))
        saved_s = noted("guest", "saved", min(told_s.values()))
        for node, end_s in first_s.items():
            saved = saved_s.get(node, end_s) < end_s
            costs.start_s.append(end_s - told_s[node])
            costs.lost_gpu_s.append(GPUS * (end_s - (told_s[node] if saved else started[node])))
            costs.older_s.append(told_s[node] - started[node])
        clear()
    return costs


# ---- what it comes to ----


def p95(values: Sequence[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1) + 0.5)]


def pair(values: Sequence[float]) -> str:
    return f"{statistics.median(values):>7.2f} {p95(values):>7.2f}" if values else f"{'-':>15}"


def line(kind: str, way: str, costs: Costs) -> str:
    columns = (costs.award_s, costs.start_s, costs.gone_s, costs.lost_gpu_s, costs.tax_gpu_s)
    number, older = len(costs.start_s), statistics.median(costs.older_s)
    return f"{kind:<8} {way:<12} {number:>4} {older:>6.1f} {' '.join(map(pair, columns))}"


def ratios(kind: str, ways: dict[str, Costs]) -> str:
    ours = statistics.median(ways["federation"].start_s)
    texts = [
        f"{way} {statistics.median(costs.start_s) / ours:.2f}"
        for way, costs in ways.items()
        if way != "federation"
    ]
    return f"{kind:<8} order → start, times the federation's: {', '.join(texts)}"


def measured(rounds: int, plain_rounds: int) -> dict[str, dict[str, Costs]]:
    """By kind and way."""
    found: dict[str, dict[str, Costs]] = {kind: {} for kind in KINDS}
    preemption = {"grace_s": GRACE_S, "cooldown_s": 1.0, "budget_frac": 1.0, "budget_window_s": 0.5}
    with tempfile.TemporaryDirectory() as place:
        began_s: dict[str, float] = {}
        running = Running(
            Path(place),
            tenants={"bio": {"quota": {"gpus": 0}}},
            pass_interval_s=5.0,
            preemption=preemption,
        )
        for _ in lasting(running):
            for kind in KINDS:
                began_s[kind] = time.time()
                federated(running, kind, rounds)
        ends_s = [*list(began_s.values())[1:], time.time()]
        for (kind, start_s), end_s in zip(began_s.items(), ends_s, strict=True):
            found[kind]["federation"] = costs_between(Path(place) / "queue.db", start_s, end_s)
    for kind in KINDS:
        with by_partition():
            found[kind]["by partition"] = plain(kind, plain_rounds, requeue=False)
        found[kind]["requeue"] = plain(kind, plain_rounds, requeue=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of 8 preemptions a kind (4)")
    parser.add_argument("--plain-rounds", type=int, default=PLAIN_ROUNDS, help="of Slurm alone (2)")
    asked = parser.parse_args()
    folder().mkdir(exist_ok=True)
    folder().chmod(0o1777)
    try:
        found = measured(asked.rounds, asked.plain_rounds)
    finally:
        shutil.rmtree(folder(), ignore_errors=True)
    print(f"machine: {os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}")
    print(
        f"{'':<33}{'award → start':>15} {'order → start':>15} {'order → gone':>15} "
        f"{'lost, GPU-s':>15} {'tax, GPU-s':>15}"
    )
    print(f"{'guest':<8} {'way':<12} {'n':>4} {'older':>6}{'  median     P95' * 5}")
    for kind, ways in found.items():
        for way, costs in ways.items():
            print(line(kind, way, costs))
    for kind, ways in found.items():
        print(ratios(kind, ways))


if __name__ == "__main__":
    main()
