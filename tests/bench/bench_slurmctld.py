"""Measures a bid beside the ``sbatch --test-only`` of a real slurmctld in the same state.

    PYTHONPATH=. python tests/bench/bench_slurmctld.py [--nodes 2500]

A container of its own runs slurmctld 22.05 from the testbed's image (``federator testbed up``
builds it), with emulated GPU nodes in racks of 20 and all GPUs taken by running jobs. Slurm is
asked first, then what it says of its nodes and jobs goes into a ``SiteScheduler``, which is asked
the same. 200 nodes, the default, take about 15 s; 2,500 take about 4 minutes on 2 cores, nearly
all of it to register nodes and to start jobs, and the ratios that count are theirs. Prints whether
the bounds are held, and asserts nothing.

No node has a slurmd. All have the address of one slurmd, which answers for them when slurmctld
asks whether they live; and one more, ended as soon as it is heard, has registered each with its
GPUs: without that, Slurm refuses to look past running jobs for any. Jobs are allocations without a
process (``salloc --no-shell``), each pinned to the nodes that a seeded layout gives it.

Without preemption, Slurm says when the job will start and Federator that it cannot start now, so
that row compares different answers. The server's time is that of the RPC in ``sdiag``, the
client's that of the whole command inside the container.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from federator.model.plan import BidRequest
from federator.model.site import Node, NodeShare, RunningJob
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.site_scheduler import SiteScheduler
from federator.slurm.parse_jobs import SQUEUE_FORMAT, parse_jobs, parse_layouts
from federator.slurm.parse_nodes import parse_nodes, parse_topology
from federator.testbed.archive import ArchivedFile, pack
from tests.fakes.build import bid_request

CONTAINER: Final = "federator-bench-slurmctld"
IMAGE: Final = "federator-site:bookworm"  # Slurm 22.05; what follows in the tag is a digest
LIFE_S: Final = 7200  # of the container, should nobody be left to remove it
RACK, GPUS, CPUS, MEM_MIB = 20, 8, 96, 1_000_000
PARTITIONS: Final = ("low", "high")
REPEATS = 15
RATIO_BOUND, BOUND_NODES = 20, 2_500
AT_ONCE = 2 * (os.cpu_count() or 1)  # commands in the container; they wait more than they work

_SLURM_CONF: Final = """\
ClusterName=bench
SlurmctldHost=bench(127.0.0.1)
SlurmUser=slurm
CommunicationParameters=EnableIPv6
AuthType=auth/munge
MailProg=/bin/true
ReturnToService=2
SlurmdTimeout=65000
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
GresTypes=gpu
TopologyPlugin=topology/tree
PriorityType=priority/basic
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd/%n
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
DebugFlags=NO_CONF_HASH
NodeName={nodes} NodeAddr=127.0.0.1 Port={ports} Sockets=2 CoresPerSocket={cores} \
ThreadsPerCore=1 RealMemory={mem_mib} Gres=gpu:h100:{gpus} State=UNKNOWN
PartitionName=low Nodes={nodes} MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=high Nodes={nodes} MaxTime=INFINITE State=UP PriorityTier=10
"""

# Runs in the container: commands, so many at a time. Of each: exit status, ms, all it printed. One
# that prints `until` has done what it was run for, and is ended; none may take longer than 30 s.
_RUNNER: Final = """
import json, subprocess, sys, time
from concurrent.futures import ThreadPoolExecutor
from threading import Timer
commands, at_once, until = json.load(sys.stdin)
def run(argv):
    start = time.perf_counter()
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, errors="replace")
    timer = Timer(30, child.kill)
    timer.start()
    said = []
    for line in child.stdout:
        said.append(line)
        if until and until in line:
            child.kill()
    status = child.wait()
    timer.cancel()
    return status, (time.perf_counter() - start) * 1e3, "".join(said)
with ThreadPoolExecutor(at_once) as pool:
    json.dump(list(pool.map(run, commands)), sys.stdout)
"""


_SILENT: Final = re.compile(r" State=\S*(\*|NOT_RESPONDING|UNKNOWN|DOWN)")  # of a node


@dataclass(frozen=True, slots=True, kw_only=True)
class Filler:
    """A job that makes the site full."""

    on: range  # nodes, by number
    gpus_per_node: int
    limit_min: int

    def salloc(self) -> list[str]:
        return [
            *("salloc", "--no-shell", "--quiet", "--partition=low", f"--time={self.limit_min}"),
            *(f"--nodes={len(self.on)}", "--ntasks-per-node=1"),
            *(f"--cpus-per-task={10 * self.gpus_per_node}", f"--gres=gpu:{self.gpus_per_node}"),
            f"--nodelist={','.join(map(node_name, self.on))}",
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request, for both sides."""

    what: str
    partition: str
    nodes: int
    gpus_per_node: int

    @property
    def preempting(self) -> bool:
        return self.partition == "high"

    def sbatch(self) -> list[str]:
        return [
            *("sbatch", "--test-only", f"--partition={self.partition}", "--time=60"),
            *(f"--nodes={self.nodes}", "--ntasks-per-node=1", "--output=/dev/null"),
            *(f"--cpus-per-task={8 * self.gpus_per_node}", f"--gres=gpu:{self.gpus_per_node}"),
            "--wrap=true",
        ]

    def bid_request(self) -> BidRequest:
        job = Job(
            name="train",
            nodes=self.nodes,
            gpus_per_node=self.gpus_per_node,
            cpus_per_node=8 * self.gpus_per_node,
            partitions=(self.partition,),
        )
        budget = inf if self.preempting else 0.0
        return bid_request(id=WorkloadId(1), jobs=(job,), priority=2, preempt_gpus=budget)


REQUESTS: Final = (
    Asked(what="64 GPUs on 8 nodes, nobody evicted", partition="low", nodes=8, gpus_per_node=8),
    Asked(what="64 GPUs on 8 nodes, preempting", partition="high", nodes=8, gpus_per_node=8),
    Asked(what="512 GPUs on 64 nodes, preempting", partition="high", nodes=64, gpus_per_node=8),
    Asked(what="1 GPU, preempting", partition="high", nodes=1, gpus_per_node=1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one side said, and how long it took."""

    ms: float  # Slurm: of the RPC, in slurmctld
    victims: int
    client_ms: float = 0.0
    says: str = ""  # where nobody is evicted


def docker(*argv: str, stdin: bytes = b"") -> bytes:
    """Run docker's command line; its stdout."""
    done = subprocess.run(["docker", *argv], input=stdin, capture_output=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).decode(errors="replace")
        raise SystemExit(f"docker {' '.join(argv)[:120]} ended with {done.returncode}: {said}")
    return done.stdout


def inside(*argv: str) -> bytes:
    """Run one command in the container; its stdout, with times as numbers."""
    return docker("exec", "--env=LC_ALL=C", "--env=SLURM_TIME_FORMAT=%s", CONTAINER, *argv)


def run_all(
    commands: Sequence[Sequence[str]], at_once: int = 1, until: str = ""
) -> list[tuple[int, float, str]]:
    """Run commands in the container: exit status, milliseconds and output of each."""
    request = json.dumps([commands, at_once, until]).encode()
    answer = docker(
        "exec",
        "--interactive",
        "--env=LC_ALL=C",
        CONTAINER,
        "python3",
        "-c",
        _RUNNER,
        stdin=request,
    )
    return [(int(status), float(ms), str(said)) for status, ms, said in json.loads(answer)]


def must(commands: Sequence[Sequence[str]]) -> None:
    """As ``run_all``; ends the benchmark if one fails."""
    for argv, (status, _, said) in zip(commands, run_all(commands), strict=True):
        if status != 0:
            raise SystemExit(f"in the container, {' '.join(argv)} failed ({status}): {said}")


@contextmanager
def container() -> Iterator[None]:
    """A container of Slurm 22.05 in which nothing runs yet; removed whatever happens."""
    repository, _, suite = IMAGE.partition(":")
    tags = docker("images", "--format={{.Repository}}:{{.Tag}}", repository).decode().split()
    images = [tag for tag in tags if tag.startswith(f"{repository}:{suite}-")]
    if not images:
        raise SystemExit(f"there is no image {IMAGE}-*; `federator testbed up` builds it")
    remove = ["docker", "rm", "--force", "--volumes", CONTAINER]
    subprocess.run(remove, capture_output=True, check=False)  # one that a killed run left
    try:
        docker(
            "run",
            "--detach",
            "--rm",
            "--init",
            "--network=none",
            "--hostname=bench",
            f"--name={CONTAINER}",
            "--entrypoint=sleep",
            images[0],
            str(LIFE_S),
        )
        yield
    finally:
        subprocess.run(remove, capture_output=True, check=False)


def node_name(k: int) -> str:
    return f"g{k + 1:04}"


def slurm_files(nodes: int) -> list[ArchivedFile]:
    """The cluster's configuration, and the one to register nodes with: a port for each."""
    hosts = f"g[0001-{nodes:04}]"
    texts = {"gres.conf": f"AutoDetect=off\nName=gpu Type=h100 File=/dev/fakegpu[0-{GPUS - 1}]\n"}
    racks = [range(first, min(first + RACK, nodes)) for first in range(0, nodes, RACK)]
    leaves = [
        f"SwitchName=r{k} Nodes=g[{rack[0] + 1:04}-{rack[-1] + 1:04}]\n"
        for k, rack in enumerate(racks)
    ]
    spine = f"SwitchName=spine Switches=r[0-{len(racks) - 1}]\n"
    texts["topology.conf"] = "".join(leaves) + spine
    files = []
    for folder, ports in (("slurm", "17000"), ("register", f"[20001-{20000 + nodes}]")):
        texts["slurm.conf"] = _SLURM_CONF.format(
            nodes=hosts, ports=ports, cores=CPUS // 2, mem_mib=MEM_MIB, gpus=GPUS
        )
        files += [
            ArchivedFile(path=f"etc/{folder}/{name}", data=text.encode())
            for name, text in texts.items()
        ]
    return files


def start_slurm(nodes: int) -> None:
    """Start munged, slurmctld, and the slurmd that answers for all nodes."""
    docker("cp", "-", f"{CONTAINER}:/", stdin=pack(slurm_files(nodes)))
    folders = ("/run/slurmctld", "/var/lib/slurm/slurmctld", "/var/log/slurm")
    munge = "/run/munge", "/etc/munge", "/var/lib/munge", "/var/log/munge"
    devices = [f"/dev/fakegpu{k}" for k in range(GPUS)]
    must(
        [
            ["install", "-d", "-o", "slurm", "-g", "slurm", *folders],
            ["install", "-d", "/var/lib/slurm/slurmd"],
            ["install", "-d", "-o", "munge", "-g", "munge", *munge],
            # Slurm counts character devices only; /dev/null's numbers need no privilege.
            *(["mknod", "--mode=0666", device, "c", "1", "3"] for device in devices),
            ["dd", "if=/dev/urandom", "of=/etc/munge/munge.key", "bs=128", "count=1"],
            ["chown", "munge:munge", "/etc/munge/munge.key"],
            ["chmod", "0400", "/etc/munge/munge.key"],
            ["su", "-s", "/bin/sh", "munge", "-c", "exec munged --force"],
        ]
    )
    docker("exec", "--detach", CONTAINER, "slurmctld", "-D")
    docker("exec", "--detach", CONTAINER, "slurmd", "-D", "-N", node_name(0))
    for _ in range(100):
        ((_, _, said),) = run_all([["scontrol", "ping"]])
        if "is UP" in said:
            return
        time.sleep(0.2)
    log = inside("tail", "/var/log/slurm/slurmctld.log").decode(errors="replace")
    raise SystemExit(f"slurmctld does not answer; its log ends with\n{log}")


def unregistered() -> list[str]:
    """Nodes whose GPUs slurmctld has not heard of yet."""
    text = inside("scontrol", "show", "nodes", "-o").decode()
    return [
        line.split()[0].removeprefix("NodeName=")
        for line in text.splitlines()
        if "SlurmdStartTime=None" in line or _SILENT.search(line)
    ]


def in_steps(what: str, commands: Sequence[Sequence[str]], until: str = "") -> int:
    """Run commands a few hundred at a time, saying how far; returns how many failed."""
    began_s, failed = time.monotonic(), 0
    step = 250
    for first in range(0, len(commands), step):
        done = run_all(commands[first : first + step], AT_ONCE, until)
        failed += sum(status != 0 for status, _, _ in done)
        passed_s = time.monotonic() - began_s
        print(
            f"  {what}: {min(first + step, len(commands)):,} of {len(commands):,}, "
            f"{passed_s:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return failed


def register_nodes() -> None:
    """Run each node's slurmd until slurmctld has answered it; more than once where it must."""
    for _ in range(4):
        missing = unregistered()
        if not missing:
            return
        slurmd = ("slurmd", "-D", "-vv", "-f", "/etc/register/slurm.conf", "-N")
        commands = [[*slurmd, name] for name in missing]
        in_steps("nodes registered", commands, until="slurmctld sent back")
    if missing := unregistered():
        raise SystemExit(f"{len(missing)} nodes do not register, among them {missing[0]}")


def layout(nodes: int, seed: int = 1) -> list[Filler]:
    """Jobs of 1 to 8 GPUs on a node, and of 2 or 4 whole nodes, until no GPU is left."""
    rng = np.random.default_rng(seed)
    taken = [0] * nodes
    jobs: list[Filler] = []
    k = 0
    while k < nodes:
        if taken[k] == GPUS:
            k += 1
            continue
        size = int(rng.choice([1, 1, 2, 2, 4, 8, 8, 16, 32]))
        on = range(k, k + max(1, size // GPUS))
        each = min(size, GPUS)
        if on[-1] < nodes and all(taken[n] + each <= GPUS for n in on):
            limit_min = int(rng.integers(60, 2 * 24 * 60))
            jobs.append(Filler(on=on, gpus_per_node=each, limit_min=limit_min))
            for n in on:
                taken[n] += each
    # Whoever starts early or late is anywhere, as on a site that has run for long.
    return [jobs[n] for n in rng.permutation(len(jobs))]


def start_jobs(jobs: Sequence[Filler]) -> None:
    """Let Slurm run them in partition low, in that order."""
    failed = in_steps("jobs started", [job.salloc() for job in jobs])
    if failed:
        print(f"  {failed} jobs could not be started", file=sys.stderr)


def ask_slurm(asked: Asked) -> Answer:
    """Ask once to warm up and for the answer, then several times for the time it takes."""
    ((status, _, said),) = run_all([asked.sbatch()])
    if status != 0:
        raise SystemExit(f"{asked.what}: Slurm refuses: {said}")
    found = re.search(r"Preempts: ([0-9,]+)", said)
    starts = re.search(r"to start at (\S+)", said)
    inside("sdiag", "--reset")
    times = [ms for _, ms, _ in run_all([asked.sbatch()] * REPEATS)]
    rpc = re.search(
        r"REQUEST_JOB_WILL_RUN\s.*count:(\d+)\s+ave_time:(\d+)", inside("sdiag").decode()
    )
    if rpc is None or int(rpc[1]) != REPEATS:
        raise SystemExit(f"sdiag did not count {REPEATS} requests: {rpc and rpc[0]}")
    return Answer(
        ms=int(rpc[2]) / 1e3,
        client_ms=statistics.median(times),
        victims=len(found[1].split(",")) if found else 0,
        says=f"starts at {starts[1]}" if starts else "",
    )


def read_site() -> tuple[tuple[Node, ...], list[RunningJob]]:
    """What that Slurm says of its nodes and of what runs on them."""
    scontrol = ("scontrol", "--details", "--oneliner", "show")
    switch_of = parse_topology(inside("scontrol", "show", "topology").decode())
    nodes = parse_nodes(inside(*scontrol, "nodes").decode(), switch_of)
    jobs = parse_jobs(inside("squeue", "-h", "-a", "-t", "R", "-O", SQUEUE_FORMAT))
    shares, refused = parse_layouts(inside(*scontrol, "jobs").decode())
    problems = (*nodes.problems, *jobs.problems, *refused.values())
    if problems:
        raise SystemExit(f"what Slurm says cannot be read: {problems[0]}")
    running = [
        RunningJob(
            id=job.job_id,
            tenant="t",
            priority=7,
            preemptible=True,
            started_at_s=job.started_at_s,
            nodes=checked(shares[job.job_id]),
        )
        for job in jobs.records
    ]
    return nodes.records, running


def checked(shares: dict[str, NodeShare]) -> dict[str, NodeShare]:
    if not all(share.gpus for share in shares.values()):
        raise SystemExit(f"a job holds no GPUs: {shares}")
    return shares


def median_ms(measure: Callable[[], object]) -> float:
    def once() -> float:
        began_s = time.perf_counter()
        measure()
        return (time.perf_counter() - began_s) * 1e3

    return statistics.median(once() for _ in range(REPEATS))


def ask_federator(scheduler: SiteScheduler, asked: Asked, now_s: float) -> Answer:
    """Bid once for the answer, then several times for the time it takes."""
    request = asked.bid_request()
    (answer,) = scheduler.bid([request], now_s)
    if asked.preempting and answer.bid is None:
        raise SystemExit(f"{asked.what}: Federator refuses: {answer.refusal}")
    return Answer(
        ms=median_ms(lambda: scheduler.bid([request], now_s)),
        victims=len(answer.bid.victims) if answer.bid else 0,
        says="starts now" if answer.bid else "not now",
    )


def show(slurm: Sequence[Answer], ours: Sequence[Answer], nodes: int) -> None:
    print(f"\n  {'':36}{'slurmctld 22.05':>29}   {'Federator':>18}")
    print(
        f"  {'request':36}{'server ms':>10}{'client ms':>11}{'victims':>8}"
        f"   {'ms':>10}{'victims':>8}{'ratio':>8}"
    )
    for asked, theirs, our in zip(REQUESTS, slurm, ours, strict=True):
        print(
            f"  {asked.what:36}{theirs.ms:10.1f}{theirs.client_ms:11.1f}{theirs.victims:8}"
            f"   {our.ms:10.3f}{our.victims:8}{theirs.ms / our.ms:8.0f}"
        )
    print(f"\n  nobody evicted: Slurm {slurm[0].says}, Federator says {ours[0].says}")
    least = min(a.ms / b.ms for a, b in zip(slurm, ours, strict=True))
    fewer = all(b.victims <= a.victims for a, b in zip(slurm, ours, strict=True))
    if nodes >= BOUND_NODES:
        verdict = f"{held_or_not(least >= RATIO_BOUND)}, least {least:.1f}"
    else:
        verdict = f"not for {nodes:,}"
    print(
        f"  bound: slurmctld's server ms at least {RATIO_BOUND} times Federator's, from "
        f"{BOUND_NODES:,} nodes on: {verdict}"
    )
    print(f"  bound: never more victims than Slurm: {held_or_not(fewer)}")


def held_or_not(held: bool) -> str:
    return "held" if held else "BROKEN"


def compare(count: int) -> None:
    """Bring slurmctld into the state, ask it, read the state, ask Federator."""
    began_s = time.monotonic()
    start_slurm(count)
    register_nodes()
    start_jobs(layout(count))
    slurm = [ask_slurm(asked) for asked in REQUESTS]
    nodes, running = read_site()
    scheduler = SiteScheduler(PARTITIONS)
    scheduler.update(nodes, ())
    for job in running:
        scheduler.started(job)
    ours = [ask_federator(scheduler, asked, time.time()) for asked in REQUESTS]
    used = sum(node.gpus_alloc for node in nodes)
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}; {REPEATS} repeats: means "
        "of the server, medians of all else"
    )
    print(
        f"{len(nodes):,} nodes, {len(running):,} running jobs, {used:,} of "
        f"{GPUS * len(nodes):,} GPUs in use; {time.monotonic() - began_s:.0f} s"
    )
    show(slurm, ours, len(nodes))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=200, help="at least 64 (default 200)")
    options = parser.parse_args()
    if not 64 <= options.nodes <= 9_999:
        parser.error("--nodes: from 64 to 9999")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the container is removed
    with container():
        compare(options.nodes)


if __name__ == "__main__":
    main()
