"""The prolog gate on real Slurm: bad nodes are drained with their reason, jobs run elsewhere.

Three sites at once, each with its own Slurm generation. Jobs go to the partition ``local`` as any
user's do; for these tests the gate looks at that partition too. What is wrong with a node is what
its nvidia-smi, kernel log or sysfs says (tests/data/nvidia_smi).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from federator.testbed import inside, layout
from federator.testbed.layout import LOCAL_USER, StateDir
from tests.slurm.conftest import clear
from tests.slurm.federation import LONG_S, at, within

pytestmark = pytest.mark.slurm

SITES: Final = tuple(site.name for site in layout.SITES)
TESTBED: Final = "/etc/federator/testbed"
HOOK: Final = "/opt/federator/libexec/fed-prolog"
LEASES: Final = "/tmp/gate-test/leases"
HOME: Final = f"/home/{LOCAL_USER}"
NODE_JSON: Final = "/etc/federator/node.json"
SAID: Final = "/tmp/gate-test/said"  # by the gate of each node
# Of a node that takes jobs: it has one or none, is rid of its last, or backfill has a plan for it.
TAKES_JOBS: Final = ("idle", "mixed", "completing", "planned")
IN_NO_TIME: Final = re.compile(r"did not (answer|end) (within|in) ")

# The machine that a node stands for, and how the reason ends that Slurm then shows.
FIRST: Final = {
    "g1": (
        "link-down",
        "nvlink-links: GPU 3 has 11 active NVLinks, expected 12, link 5 is inactive",
    ),
    "g2": ("ecc", "ecc: GPU 0 has 2 volatile uncorrected ECC errors, expected at most 0"),
    "g3": ("remap-pending", "remapped-rows: GPU 1 row remap pending: yes, expected no"),
    "g4": (
        "gpu-lost",
        "gpus-present: Unable to determine the device handle for GPU 0000:47:00.0:"
        " GPU is lost. Reboot the system to...",
    ),
    "g5": ("pcie-width", "pcie: GPU 3 PCIe width x8, expected x16"),
    "g6": ("busy", "gpus-idle: GPU 0 is held by process 41273 with 70004 MiB"),
    "g7": ("a100-nvswitch hang", "gpus-present: nvidia-smi did not answer within 4 s"),
}
SECOND: Final = {
    "g1": ("xid-fatal", "xid: GPU 1 reported Xid 79 since boot, expected none"),
    "g2": ("retired-pages", "retired-pages: GPU 1 retired pages pending: yes, expected no"),
    "g3": ("missing-gpu", "gpus-present: 7 GPUs, expected 8"),
    "g4": ("matrix-degraded", "nvlink-matrix: GPU0-GPU5 is SYS, expected NV12 (+13 more)"),
    "g5": ("reset-required", "gpus-present: GPU 4 does not answer (lost or in need of a reset)"),
    "g6": ("no-driver", "gpus-present: NVIDIA-SMI has failed because it couldnt communicate"),
    "g7": ("held-memory", "gpus-idle: GPU 0 has 38021 MiB in use, expected at most 1024"),
}


def script(site: str, text: str) -> str:
    return at(site, "sh", "-ec", text)


def everywhere(act: Callable[[str], None]) -> None:
    with ThreadPoolExecutor(len(SITES)) as pool:
        list(pool.map(act, SITES))


def submit(site: str, *options: str, wrap: str = "true", tail: tuple[str, ...] = ()) -> str:
    """Submit a job as a local user; the id."""
    argv = ["sbatch", "--parsable", "--partition=local", "--output=/dev/null", "--time=60"]
    user = LOCAL_USER
    if any(option.startswith("--comment=fed:") for option in options):
        user = "root"  # slurmctld takes such a comment from nobody else without a ticket
        argv += [f"--uid={LOCAL_USER}", f"--gid={LOCAL_USER}", f"--chdir={HOME}"]
    done = inside.execute(layout.site(site), [*argv, *options, f"--wrap={wrap}", *tail], user=user)
    assert done.exit_status == 0, done.stderr
    return done.stdout.strip()


def state(site: str, job: str) -> str:
    return at(site, "squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").split()[
        0
    ]


def node(site: str, letter: str) -> tuple[str, str]:
    """A node's state and reason, as Slurm shows them."""
    shown = at(
        site,
        "sinfo",
        "--noheader",
        "--Node",
        f"--nodes={site}-{letter}",
        "--partition=local",
        "--format=%T|%E",
    )
    found, _, reason = shown.strip().partition("|")
    return found, reason


def only_on(site: str, *letters: str) -> str:
    """The option that leaves a job these nodes."""
    every = [
        f"{site}-{letter}"
        for letter in (["g1", "g2", "g3", "g4", "g5", "g6", "g7", "g8", "c1", "c2"])
    ]
    return "--exclude=" + ",".join(n for n in every if n.partition("-")[2] not in letters)


def configure(site: str, **gate: object) -> None:
    document = json.loads(script(site, f"cat {NODE_JSON}.aside"))
    document["gate"] |= {
        "partitions": ["local"],
        "nvidia_smi_timeout_s": 4,  # as long as a busy machine lets it be, of 5.5 for all checks
        "busy_again_s": 0,
    } | gate
    script(site, f"cat > {NODE_JSON} <<'EOT'\n{json.dumps(document)}\nEOT")


def stand_for(site: str, cases: Mapping[str, str]) -> None:
    lines = [f"echo {case} > {TESTBED}/gpus/{site}-{letter}" for letter, case in cases.items()]
    script(site, "\n".join(lines))


_ASIDE: Final = f"""
[ -e {NODE_JSON}.aside ] || cp -p {NODE_JSON} {NODE_JSON}.aside
[ -e {HOOK}.aside ] || cp -p {HOOK} {HOOK}.aside
mkdir -p {TESTBED}/kmsg {TESTBED}/expected /etc/federator/checks.d
"""
# Of a gate that lets a job start Slurm shows no word.
LISTEN: Final = f"""
mkdir -p {SAID.rpartition("/")[0]}
printf '#!/bin/sh\\nexec {HOOK}.aside 2>>{SAID}-$SLURMD_NODENAME\\n' >{HOOK}.new
chmod 755 {HOOK}.new && mv {HOOK}.new {HOOK}
"""
_BACK: Final = f"""
mv -f {NODE_JSON}.aside {NODE_JSON}; mv -f {HOOK}.aside {HOOK}
rm -rf {TESTBED}/kmsg {TESTBED}/expected {TESTBED}/sysfs {TESTBED}/gpus/*-g* /tmp/gate-test
rm -rf /etc/federator/checks.d {HOME}/ran-*
for n in 1 2 3 4 5 6 7 8; do
    SLURMD_NODENAME=$1-g$n /opt/federator/libexec/fed-gate clear >/dev/null
done
scontrol update nodename=ALL state=resume 2>/dev/null || true
rm -rf /var/lib/federator-node/*/xid-seen
"""


@pytest.fixture
def gated(testbed: StateDir) -> Iterator[None]:
    """Sites whose gate looks at the partition ``local``; as before when the test is over."""

    def prepare(site: str) -> None:
        script(site, _ASIDE)
        configure(site)

    def tidy(site: str) -> None:
        at(site, "sh", "-c", _BACK, "sh", site)

    clear()
    everywhere(prepare)
    try:
        yield
    finally:
        clear()
        everywhere(tidy)


def nodes(site: str) -> dict[str, tuple[str, str]]:
    """State and reason of each node with GPUs, by its letter and number."""
    asked = ("--Node", f"--nodes={site}-g[1-8]", "--partition=local", "--format=%N|%T|%E")
    rows = [line.split("|", 2) for line in at(site, "sinfo", "--noheader", *asked).splitlines()]
    return {name.removeprefix(f"{site}-"): (found, why) for name, found, why in rows}


def idle(site: str) -> None:
    """Wait until every node is: one that has not answered yet (idle*) gets no job."""
    within(90, lambda: {found for found, _ in nodes(site).values()} == {"idle"})


def _meet(site: str, bad: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Have a job meet each bad node, while g8 takes none: the jobs.

    A gate that cannot look in time lets a job start, and says so: there another job is to come.
    """

    def job(letter: str) -> str:
        wrap = f"echo $SLURMD_NODENAME > {HOME}/ran-{letter}"
        return submit(site, "-N1", "--gpus-per-node=2", only_on(site, letter, "g8"), wrap=wrap)

    def let_through(letter: str) -> bool:
        said = script(site, f"cat {SAID}-{site}-{letter} 2>/dev/null || true")
        ran = f"[ -e {HOME}/ran-{letter} ] && rm {HOME}/ran-{letter} {SAID}-{site}-{letter}; true"
        if state(site, jobs[letter]) != "COMPLETED":
            return False
        assert IN_NO_TIME.search(said), (site, letter, nodes(site)[letter], said)
        script(site, ran)
        return True

    def all_met() -> bool:
        found = nodes(site)
        free = [letter for letter in bad if not found[letter][0].startswith("drain")]
        jobs.update({letter: job(letter) for letter in free if let_through(letter)})
        return not free

    script(site, f"rm -f {SAID}-* {HOME}/ran-*")
    at(site, "scontrol", "update", f"nodename={site}-g8", "state=drain", "reason=not yet")
    jobs = {letter: job(letter) for letter in bad}
    within(120, all_met, 1.0)
    at(site, "scontrol", "update", f"nodename={site}-g8", "state=resume")
    return jobs


def _drains(site: str, bad: Mapping[str, tuple[str, str]], *, recorded: set[str]) -> None:
    """Each bad node is drained with its reason, and the job that met it runs on g8."""
    stand_for(site, {letter: case for letter, (case, _) in bad.items()})
    script(
        site,
        "\n".join(
            f"cp {TESTBED}/expected/{site}-g8 {TESTBED}/expected/{site}-{letter}"
            if letter in recorded
            else f"rm -f {TESTBED}/expected/{site}-{letter}"
            for letter in bad
        ),
    )
    idle(site)
    jobs = _meet(site, bad)
    within(90, lambda: all(state(site, job) == "COMPLETED" for job in jobs.values()))
    found = nodes(site)
    for letter, (_, reason) in bad.items():
        assert found[letter][0] in ("drained", "draining"), (site, letter, found)
        assert found[letter][1].startswith(f"fed-gate: {reason}"), (site, letter, found)
        assert script(site, f"cat {HOME}/ran-{letter}").strip() == f"{site}-g8"
    assert found["g8"][0].rstrip("-") in TAKES_JOBS  # "-": of backfill
    at(site, "scontrol", "update", f"nodename={site}-g[1-7]", "state=resume")


def test_a_bad_node_is_drained_with_its_reason_and_the_job_runs_elsewhere(gated: None) -> None:
    def one(site: str) -> None:
        stand_for(site, {"g8": "a100-nvswitch"})
        fed_gate = "/opt/federator/libexec/fed-gate"
        at(site, "env", f"SLURMD_NODENAME={site}-g8", fed_gate, "record")
        # A job of two GPUs meets the faults of the others as well.
        for check in ("nvlink-links", "nvlink-matrix", "pcie"):
            own = json.dumps({"id": check, "gpus": "all"})
            script(site, f"echo '{own}' > /etc/federator/checks.d/{check}.json")
        script(site, LISTEN)
        _drains(site, FIRST, recorded=set(FIRST))
        script(
            site,
            f"cp /opt/federator/testbed/nvidia_smi/xid-fatal/kmsg.txt {TESTBED}/kmsg/{site}-g1",
        )
        _drains(site, SECOND, recorded=set(SECOND) - {"g2"})
        # What was reported was seen to by an admin, and the node takes jobs again.
        stand_for(site, {"g1": "xid-fatal"})
        at(site, "env", f"SLURMD_NODENAME={site}-g1", fed_gate, "clear")
        job = submit(site, "-N1", "--gpus-per-node=2", f"--nodelist={site}-g1")
        within(60, lambda: state(site, job) == "COMPLETED")

    for site in SITES:  # not all at once: what stands for a hang is no answer within 4 s
        one(site)


def test_a_node_without_its_network_serves_jobs_of_one_node_only(gated: None) -> None:
    def one(site: str) -> None:
        for letter, state_ in (("g1", "1: DOWN"), ("g2", "4: ACTIVE"), ("g3", "4: ACTIVE")):
            port = f"{TESTBED}/sysfs/{site}-{letter}/class/infiniband/mlx5_0/ports/1"
            script(
                site,
                f"mkdir -p {port}; echo '{state_}' > {port}/state;"
                f" echo '5: LinkUp' > {port}/phys_state; echo '200 Gb/sec' > {port}/rate;"
                f' echo \'{{"ports": {{"mlx5_0/1": 200}}}}\''
                f" > {TESTBED}/expected/{site}-{letter}",
            )
        ran = f"echo $SLURM_JOB_NODELIST > {HOME}/ran-several"
        several = submit(
            site, "-N2", "--gpus-per-node=1", only_on(site, "g1", "g2", "g3"), wrap=ran
        )
        within(120, lambda: state(site, several) == "COMPLETED")
        assert script(site, f"cat {HOME}/ran-several").strip() == f"{site}-g[2-3]"
        assert "drain" not in node(site, "g1")[0]
        features = at(site, "sinfo", "--noheader", f"--nodes={site}-g1", "--format=%b")
        assert "fed_single_node" in features
        alone = submit(site, "-N1", "--gpus-per-node=1", f"--nodelist={site}-g1")
        within(60, lambda: state(site, alone) == "COMPLETED")
        at(site, "env", f"SLURMD_NODENAME={site}-g1", "/opt/federator/libexec/fed-gate", "clear")
        features = at(site, "sinfo", "--noheader", f"--nodes={site}-g1", "--format=%b")
        assert "fed_single_node" not in features

    everywhere(one)


def test_a_job_without_its_lease_ends_before_it_runs_and_no_node_is_drained(gated: None) -> None:
    def one(site: str) -> None:
        lease = json.dumps({"user": LOCAL_USER, "made_at_s": 0})
        script(
            site,
            f"mkdir -p {LEASES}; chmod 1733 {LEASES}; echo '{lease}' > {LEASES}/9001.1;"
            f" echo '{lease}' > {LEASES}/9001.2",
        )
        configure(site, lease={"dir": LEASES})
        ran = f"touch {HOME}/ran-without"
        without = [
            submit(site, "--comment=fed:9002:1", "-N1", "--gpus-per-node=1", wrap=ran),
            submit(site, "--comment=fed:9002:2", "-N2", wrap=f"{ran}; srun {ran}"),
            submit(site, "--comment=fed:9002:3", "-N1", wrap=ran, tail=(":", "-N1")),
        ]
        own = submit(site, "--comment=fed:9001:1", "-N2", wrap=f"sleep {LONG_S}")
        within(60, lambda: state(site, own) == "RUNNING")
        within(40, lambda: script(site, f"cat {LEASES}/9001.1.job || true") == f"{site} {own}\n")
        without.append(submit(site, "--comment=fed:9001:1", "-N1", wrap=ran))
        local = submit(site, "--comment=no attempt", "-N1")
        within(60, lambda: all(state(site, job) == "CANCELLED" for job in without))
        within(60, lambda: state(site, local) == "COMPLETED")
        het = submit(site, "--comment=fed:9001:2", "-N1", tail=(":", "-N1", "--comment=fed:9001:2"))
        within(60, lambda: state(site, het) == "COMPLETED")
        assert state(site, own) == "RUNNING"
        assert at(site, "scontrol", "requeue", own) == ""
        within(60, lambda: "Restarts=1" in at(site, "scontrol", "show", "job", own))
        within(90, lambda: state(site, own) == "RUNNING")  # the same job has its lease again
        at(site, "scancel", own)
        assert script(site, f"ls {HOME}").find("ran-without") < 0
        assert "drain" not in at(site, "sinfo", "--noheader", "--format=%T")

    everywhere(one)


def test_of_an_array_only_the_task_that_is_meant_is_ended_or_sent_elsewhere(gated: None) -> None:
    site = SITES[0]
    script(site, f"mkdir -p {LEASES}; chmod 1733 {LEASES}")
    configure(site, lease={"dir": LEASES})
    # The task that is split off last has the id of the array.
    array = submit(site, "--array=0-2", "-N1", "--comment=own", wrap=f"sleep {LONG_S}")
    within(60, lambda: running(site, array) == {"0", "1", "2"})
    last = at(site, "squeue", "--noheader", "--array", f"--jobs={array}", "--format=%A %K")
    (task,) = [row.split()[1] for row in last.splitlines() if row.split()[0] == array]
    # The prolog again, as at the start of that task, which now claims an attempt without a lease.
    environ = [
        f"SLURM_JOB_ID={array}",
        "SLURM_JOB_UID=1",
        f"SLURM_JOB_USER={LOCAL_USER}",
        "SLURM_JOB_PARTITION=local",
        f"SLURMD_NODENAME={site}-g1",
        f"SLURM_CLUSTER_NAME={site}",
        "SLURM_JOB_COMMENT=fed:9002:1",
    ]
    at(site, "env", *environ, HOOK)
    within(60, lambda: running(site, array) == {"0", "1", "2"} - {task})
    comments = at(
        site, "squeue", "--noheader", "--states=all", "--array", f"--jobs={array}", "--format=%K|%k"
    )
    noted = {row.partition("|")[0]: row.partition("|")[2] for row in comments.splitlines()}
    assert noted.pop(task) == "fed:9002:1 fed-gate:no-lease"
    assert set(noted.values()) == {"own"}
    at(site, "scancel", array)


def running(site: str, array: str) -> set[str]:
    """The tasks of an array that run."""
    return set(
        at(
            site,
            "squeue",
            "--noheader",
            "--array",
            "--states=RUNNING",
            f"--jobs={array}",
            "--format=%K",
        ).split()
    )


@pytest.mark.parametrize(
    "trouble",
    [
        f"rm -f {HOOK}",
        f"printf '#!/nonexistent/python3\\n' > {HOOK}",
        f"printf '#!/usr/bin/python3\\nraise SystemExit(1)\\n' > {HOOK}",
        # Then the defaults hold: the gated partition is "fed", to which only the agent may submit.
        f"printf ' x' >> {NODE_JSON}; chmod 644 {NODE_JSON}",
        f'sed -i \'s/.partitions.: ..local..,/"partitions": ["local"], "typo": 1,/\''
        f" {NODE_JSON}; grep -q typo {NODE_JSON}",
    ],
    ids=["absent", "no interpreter", "crashes", "broken configuration", "slip in configuration"],
)
def test_a_gate_that_is_absent_or_broken_never_stops_local_jobs(gated: None, trouble: str) -> None:
    def one(site: str) -> None:
        stand_for(site, {"g1": "ecc"})
        script(site, trouble)
        job = submit(site, "-N1", "--gpus-per-node=1", f"--nodelist={site}-g1")
        within(60, lambda: state(site, job) == "COMPLETED")
        assert node(site, "g1")[0].rstrip("-") in TAKES_JOBS

    everywhere(one)
