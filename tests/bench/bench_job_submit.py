"""Measures what the admission module costs slurmctld. Prints two tables; asserts nothing.

    python -m tests.bench.bench_job_submit [--rounds 3] [--batches 6] [alpine boreal cedar]

Needs the testbed, idle; sites are asked one after the other. The module's own time is taken inside
slurmctld: a script in place of job_submit.lua calls it again and again with the job that is being
submitted, and tells the user what the clock says. All rules are on, with 1,000 tenants.

The time of a whole submission is what sdiag says of REQUEST_SUBMIT_BATCH_JOB: its mean over a batch
of held jobs, of which the median is printed; without the plugin, with a script that does nothing,
and with the module. Slurmctld is started anew for each, and they take turns, so that a change of
load meets all of them.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from federator.testbed import inside, layout
from tests.slurm.conftest import clear
from tests.slurm.federation import at

MODULE: Final = "/opt/federator/share/job_submit/federator.lua"
SCRIPT: Final = "/etc/slurm/job_submit.lua"
RULES: Final = "/etc/federator/admission.lua"
SPOOL: Final = "/run/admission-bench"
KEPT: Final = "/root/kept-by-bench"
USER: Final = "vision1"
TOKEN: Final = "0123456789abcdef0123456789abcdef"
TENANTS: Final = 1000
QUICK: Final = os.environ.get("FEDERATOR_BENCH") == "quick"  # it is to run, and to say little
CALLS: Final = 20 if QUICK else 2000  # of the module, in one submission
BATCH: Final = 1 if QUICK else 10  # jobs between two looks at sdiag, which knows means only
TOGETHER: Final = 10  # calls between two looks at the clock, which counts microseconds

_RULES: Final = f"""return {{
    spool_dir = "{SPOOL}",
    closed = {{ "fed" }},
    require = {{ ["local"] = {{ "account", "project" }} }},
    caps = {{ partitions = {{ "local" }} }},
    advice = {{ partitions = "*" }},
}}
"""
_NOTHING: Final = """
function slurm_job_submit(job, parts, uid) return slurm.SUCCESS end
function slurm_job_modify(job, record, parts, uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""
# Calls the module with a job's own record; `looked` makes each call look at its files again.
_TIMER: Final = f"""
local federator = dofile("{MODULE}")
function slurm_job_submit(job, parts, uid)
    local log_user, real_time, times, now_s = slurm.log_user, os.time, {{}}, os.time()
    slurm.log_user = function() end
    if (job.name or ""):match("looks") then
        os.time = function() now_s = now_s + 1 return now_s end
    end
    for index = 1, {CALLS // TOGETHER} do
        local start = os.clock()
        for _ = 1, {TOGETHER} do federator.job_submit(job, parts, uid) end
        times[index] = (os.clock() - start) * 1e6 / {TOGETHER}
    end
    slurm.log_user, os.time = log_user, real_time
    table.sort(times)
    slurm.log_user("took %.1f %.1f", times[#times / 2], times[math.floor(#times * 0.99)])
    return slurm.SUCCESS
end
function slurm_job_modify() return slurm.SUCCESS end
return slurm.SUCCESS
"""
_RESTART: Final = """
pid=$(cat /run/slurmctld/slurmctld.pid); kill $pid
while kill -0 $pid 2>/dev/null; do sleep 0.1; done
slurmctld
until scontrol ping | grep -q 'is UP'; do sleep 0.1; done
until sinfo --noheader --partition=local --format=%T | grep -q idle; do sleep 0.1; done
"""
_SDIAG: Final = re.compile(r"REQUEST_SUBMIT_BATCH_JOB\s.*count:(\d+)\s+ave_time:(\d+)")
TAGGED: Final = ("--partition=local", "--account=t500", "--wckey=llm")
JOBS: Final = {
    "without GPUs, with its tags": TAGGED,
    "8 GPUs of a tenant, within its limit": (*TAGGED, "--gpus=8"),
    "a GPU model by name, advised": (*TAGGED, "--gres=gpu:a100:1"),
    "refused: the closed partition": ("--partition=fed",),
    "the federation's, with a ticket": ("--partition=fed", "--comment=fed:7:1"),
}
VARIANTS: Final = {"no plugin": None, "a script that does nothing": _NOTHING, "the module": ""}


@contextmanager
def prepared(site: str) -> Iterator[None]:
    """Rules, tenants and a ticket at a site; what was there before is put back."""
    keep = f"mkdir -p {KEPT} && cp -p {SCRIPT} {RULES} /etc/slurm/slurm.conf {KEPT}"
    back = (
        f"cp -p {KEPT}/job_submit.lua {SCRIPT}; touch {SCRIPT}; cp -p {KEPT}/admission.lua {RULES};"
        f"cp -p {KEPT}/slurm.conf /etc/slurm/; rm -rf {KEPT} {SPOOL}\n{_RESTART}"
    )
    at(site, "sh", "-c", keep)
    try:
        now_s = int(time.time())
        lines = [f"federator-admission\t1\t{now_s}"]
        lines += [f"tenant\tt{number}\t64\t{number % 64}" for number in range(TENANTS)]
        lines += ["gpu\ta100\t80\t1", "gpu\th100\t80\t1"]
        at(site, "mkdir", "-p", f"{SPOOL}/tickets")
        at(site, "tee", f"{SPOOL}/admission.tsv", stdin="\n".join(lines) + "\n")
        ticket = f"fed:7:1 {USER} {now_s + 10**6}\n"
        at(site, "tee", f"{SPOOL}/tickets/{TOKEN}", stdin=ticket)
        at(site, "tee", RULES, stdin=_RULES)
        yield
    finally:
        at(site, "sh", "-c", back)


def submit(site: str, *options: str) -> str:
    """What sbatch says of one held job."""
    argv = ["env", f"FED_TICKET={TOKEN}", "sbatch", "--hold", "--output=/dev/null", *options]
    done = inside.execute(layout.site(site), [*argv, "--wrap=true"], user=USER)
    return done.stderr


def module_us(site: str, looks: bool) -> dict[str, tuple[float, float]]:
    """Median and P99 of the module's time for each kind of job, in microseconds."""
    at(site, "tee", SCRIPT, stdin=_TIMER)
    time.sleep(1.1)  # a change in the second of the last look would not be seen
    found = {}
    for kind, options in JOBS.items():
        name = f"--job-name={'looks' if looks else 'bench'}"
        took = re.search(r"took ([\d.]+) ([\d.]+)", submit(site, name, *options))
        found[kind] = (float(took[1]), float(took[2])) if took else (float("nan"),) * 2
    return found


def submission_us(site: str, script: str | None, batches: int) -> list[float]:
    """Mean time of a submission in each batch, in microseconds, under one of the variants."""
    conf = "s/^JobSubmitPlugins.*//" if script is None else ""
    at(site, "sh", "-c", f"sed '{conf}' {KEPT}/slurm.conf > /etc/slurm/slurm.conf")
    at(site, "sh", "-c", f"cp {KEPT}/job_submit.lua {SCRIPT}")
    if script:
        at(site, "tee", SCRIPT, stdin=script)
    at(site, "sh", "-c", _RESTART)
    one = f"sbatch --hold --output=/dev/null {' '.join(TAGGED)} --gpus=8 --wrap=true"
    loop = f"for _ in $(seq {BATCH}); do {one}; done >/dev/null 2>&1"
    at(site, "sh", "-c", loop, user=USER)
    means = []
    for _ in range(batches):
        at(site, "sdiag", "--reset")
        at(site, "sh", "-c", loop, user=USER)
        told = _SDIAG.search(at(site, "sdiag"))
        assert told is not None
        assert int(told[1]) == BATCH
        means.append(float(told[2]))
    at(site, "scancel", f"--user={USER}")
    return means


def report_module(sites: Sequence[str]) -> None:
    print(
        f"module inside slurmctld, us a call: median (P99); bound 200 for the median; {CALLS} "
        f"calls, {TENANTS} tenants"
    )
    for looks in (False, True):
        print(
            "every call in a second of its own: it looks at its files"
            if looks
            else "many in one second: it does not look at its files again"
        )
        columns = {site: module_us(site, looks) for site in sites}
        for kind in JOBS:
            row = "".join(f" {columns[s][kind][0]:8.1f} ({columns[s][kind][1]:.1f})" for s in sites)
            print(f"  {kind:40}{row}")


def report_submissions(sites: Sequence[str], rounds: int, batches: int) -> None:
    print(f"submission in slurmctld (sdiag), us: median of {rounds * batches} batches of {BATCH}")
    for site in sites:
        took: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
        for _ in range(rounds):
            for variant, script in VARIANTS.items():
                took[variant] += submission_us(site, script, batches)
        base = statistics.median(took["no plugin"])
        for variant, times in took.items():
            middle = statistics.median(times)
            spread = f"{min(times):.0f}-{max(times):.0f}"
            print(f"  {site:8}{variant:30}{middle:8.0f}  ({spread})  x{middle / base:.2f}")


_SITES: Final = [site.name for site in layout.SITES[: 1 if QUICK else None]]


def main() -> None:
    """Prepare the sites, measure, and put everything back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("sites", nargs="*", default=_SITES)
    asked = parser.parse_args()
    clear()
    try:
        for site in asked.sites:
            print(f"{site} (Slurm {layout.site(site).slurm})")
            with prepared(site):
                report_module([site])
                report_submissions([site], asked.rounds, asked.batches)
    finally:
        clear()


if __name__ == "__main__":
    main()
