"""Measures fed-epilog and fed-watch on a node, in the containers, with their own Python.

Run by ``./test bench``. Each run of the epilog has a job's record, an orphan that ends when told
(or none), and a stand-in for nvidia-smi that answers at once or after 0.5 s, as real ones may.
Prints median, P99 and maximum over the runs, which follow one another; no bound is enforced.
"""

from __future__ import annotations

import json
import os
import platform
import statistics

from federator.testbed import layout
from tests.slurm.federation import at

QUICK = os.environ.get("FEDERATOR_BENCH") == "quick"  # it is to run, and to say little
RUNS = 2 if QUICK else 100
_FOLDER = "/tmp/bench-epilog"
_PROGRAM = """
import json, os, resource, subprocess, sys, time
sys.path.insert(0, "/opt/federator/libexec")
from fednode import arrival
folder, runs, orphan = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "orphan"
environ = {"SLURM_JOB_ID": "900001", "SLURM_JOB_UID": str(int(sys.argv[4])),
           "SLURM_JOB_USER": "vision1", "SLURM_JOB_GPUS": "0,1,2,3,4,5,6,7",
           "SLURM_JOB_PARTITION": "fed", "SLURMD_NODENAME": "bench"}
config = folder + "/node.json"
took = []


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


for number in range(runs):
    arrival.note(environ, config)
    if orphan:
        child = subprocess.Popen(["/bin/sleep", "600"], env=environ, preexec_fn=lambda: os.setuid(
            int(sys.argv[4])))
    began, before = time.monotonic(), cpu_s()
    program = "import sys; sys.path.insert(0, '/opt/federator/libexec');" + sys.argv[5]
    subprocess.run(["/usr/bin/python3", "-ISBc", program, config], env=environ, check=True)
    took.append((time.monotonic() - began, cpu_s() - before))
    if orphan:
        assert child.wait(5) == -15
print(json.dumps(took))
"""
_CALL = "from fednode.{0} import main; import os; sys.exit(main(dict(os.environ), sys.argv[1]))"


def prepare(site: str, delay_s: float) -> None:
    """Put node.json and the stand-in into a folder of the benchmark's own."""
    rows = "".join(f"{k}, GPU-{k}, 4, 0, Disabled\\n" for k in range(8))
    smi = f'#!/bin/sh\nsleep {delay_s}\ncase "$1" in *query-gpu*) printf "{rows}" ;; esac\n'
    settings = {
        "nvidia_smi": f"{_FOLDER}/nvidia-smi",
        "state_dir": f"{_FOLDER}/state",
        "log_dir": f"{_FOLDER}/log",
        "epilog": {"dcgm_mapping_dir": f"{_FOLDER}/map"},
        "watch": {"looks": 1},
    }
    at(
        site,
        "sh",
        "-c",
        f"rm -rf {_FOLDER}; mkdir {_FOLDER}; cat >{_FOLDER}/node.json",
        stdin=json.dumps(settings),
    )
    at(site, "sh", "-c", f"cat >{_FOLDER}/nvidia-smi; chmod 755 {_FOLDER}/nvidia-smi", stdin=smi)


def measure(site: str, runs: int, orphan: str, hook: str) -> list[list[float]]:
    """Wall time and CPU time of each run, in seconds."""
    uid = dict(layout.site(site).uids)["vision1"]
    took: list[list[float]] = []
    while len(took) < runs:  # a command in a container has a minute
        some = str(min(runs, 20))
        argv = ("/usr/bin/python3", "-", _FOLDER, some, orphan, str(uid), _CALL.format(hook))
        took += json.loads(at(site, *argv, stdin=_PROGRAM))
    return took


def line(what: str, took: list[list[float]]) -> str:
    wall = sorted(wall for wall, _ in took)
    p99 = wall[int(0.99 * (len(wall) - 1) + 0.5)]
    cpu = statistics.median(cpu for _, cpu in took)
    return (
        f"{what:<54} n={len(took):<4} median {statistics.median(wall):.3f} s   P99 {p99:.3f} s   "
        f"max {max(wall):.3f} s   CPU, median {cpu:.3f} s"
    )


def main() -> None:
    load = os.getloadavg()[0]
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f} before")
    for site in layout.SITES:
        where = f"{site.name}, Python {site.python}"
        for delay_s, runs in ((0.0, RUNS), (0.5, RUNS // 5 or 1)):
            prepare(site.name, delay_s)
            said = f"nvidia-smi takes {delay_s:g} s"
            print(line(f"{where}: epilog, {said}", measure(site.name, runs, "none", "epilog")))
        prepare(site.name, 0.0)
        print(
            line(
                f"{where}: epilog that ends an orphan", measure(site.name, RUNS, "orphan", "epilog")
            )
        )
        print(line(f"{where}: watch, one look", measure(site.name, RUNS, "none", "watch")))
        at(site.name, "rm", "-rf", _FOLDER)


if __name__ == "__main__":
    main()
