"""What the gate does with a job: pass, end it, drain the node, or send it to another node."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fednode import config, gate, lease, orders
from fednode.run import Ran
from hypothesis import given
from hypothesis import strategies as st

from federator.testbed.layout import REPOSITORY
from tests.unit.node.scenes import NVIDIA_SMI, SHIPPED, json_file, ports

ENVIRONMENT = {
    "SLURM_JOB_ID": "77", "SLURM_JOB_UID": "2001", "SLURM_JOB_USER": "ada",
    "SLURM_JOB_PARTITION": "fed", "SLURM_JOB_GPUS": "0,1,2,3", "SLURM_JOB_NUM_NODES": "1",
    "SLURMD_NODENAME": "n1", "SLURM_CLUSTER_NAME": "alpine", "SLURM_JOB_COMMENT": "",
}  # fmt: skip


class Slurm:
    """scontrol and scancel: what they were asked, and what they answer."""

    def __init__(self, **answers: str | None) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, str | None] = {
            "show node": "NodeName=n1 AvailableFeatures=nvlink,a100 ActiveFeatures=nvlink,a100\n",
            "show job": "JobId=77 ReqNodeList=(null) ExcNodeList=(null)\n",
        }
        self.answers |= answers

    def __call__(self, argv: Sequence[str], *_: object) -> Ran:
        line = " ".join([Path(argv[0]).name, *argv[1:]])
        self.asked.append(line)
        for words, answer in self.answers.items():
            if words in line:
                return Ran(1, "", "refused") if answer is None else Ran(0, answer, "")
        return Ran(0, "", "")

    @property
    def done(self) -> list[str]:
        return [line for line in self.asked if " show " not in line]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's configuration; its nvidia-smi stands for the machine that the test names."""
    sysfs = ports(tmp_path / "sys", mlx5_0=("1: DOWN", "3: Disabled", "10 Gb/sec (4X SDR)"))
    (tmp_path / "own").mkdir()
    json_file(tmp_path / "expected.json", {"ports": {"mlx5_0/1": 200}})
    json_file(
        tmp_path / "node.json",
        {
            "sysfs": sysfs, "kmsg": "/dev/null", "state_dir": str(tmp_path / "state"),
            "nvidia_smi": str(tmp_path / "nvidia-smi"),
            "gate": {
                "checks_dir": str(tmp_path / "own"), "shipped_checks_dir": SHIPPED,
                "expected": str(tmp_path / "expected.json"), "busy_again_s": 0,
            },
        },
    )  # fmt: skip
    stands_for(tmp_path, "a100-nvswitch")
    return tmp_path


def stands_for(node: Path, case: str) -> None:
    file = node / "nvidia-smi"
    file.write_text(f"#!/bin/sh\nFAKE_NVIDIA_SMI_CASE='{case}' exec {NVIDIA_SMI} \"$@\"\n")
    file.chmod(0o755)


def starting(
    node: Path, slurm: Slurm | None = None, **environ: str
) -> tuple[int, list[str], list[str]]:
    """The gate's status for a job, what it told Slurm, and what it logged."""
    slurm = Slurm() if slurm is None else slurm
    shared, own, problems = config.load("gate", gate.SCHEMA, str(node / "node.json"))
    assert problems == []
    spoken = orders.Orders(shared, slurm)
    one = gate.Gate(ENVIRONMENT | environ, shared, own, spoken)
    return one.run(), slurm.done, one.log


def change(node: Path, **gate_settings: object) -> None:
    document = json.loads((node / "node.json").read_text())
    document["gate"] |= gate_settings
    json_file(node / "node.json", document)


def test_a_job_on_a_node_that_is_well_starts_and_slurm_hears_nothing(node: Path) -> None:
    assert starting(node) == (gate.PASS, [], [])


def test_a_fault_drains_the_node_and_says_which_gpu_measured_and_expected(node: Path) -> None:
    stands_for(node, "link-down")
    status, told, _ = starting(node)
    assert status == gate.DRAIN
    assert told == [
        "scontrol update nodename=n1 state=drain reason=fed-gate: nvlink-links: GPU 3 has 11 active"
        " NVLinks, expected 12, link 5 is inactive"
    ]


def test_a_fault_drains_the_node_even_where_slurm_cannot_be_told_why(node: Path) -> None:
    stands_for(node, "gpu-lost")
    status, _, log = starting(node, Slurm(**{"update nodename": None}))
    assert status == gate.DRAIN
    assert any("refused" in line for line in log)


def test_a_check_that_only_warns_lets_the_job_start(node: Path) -> None:
    stands_for(node, "link-errors")
    status, told, log = starting(node)
    assert (status, told) == (gate.PASS, [])
    assert "nvlink-errors: fault (warn): GPU 2 link 7" in log[0]


def test_jobs_of_other_partitions_and_of_no_gpus_are_let_through(node: Path) -> None:
    stands_for(node, "gpu-lost")
    assert starting(node, SLURM_JOB_PARTITION="local")[0] == gate.PASS
    assert starting(node, SLURM_JOB_GPUS="")[0] == gate.PASS
    change(node, partitions=["*"])
    assert starting(node, SLURM_JOB_PARTITION="local")[0] == gate.DRAIN
    change(node, enabled=False)
    assert starting(node)[0] == gate.PASS


MARK = (
    "scontrol update nodename=n1 availablefeatures=nvlink,a100,fed_single_node"
    " activefeatures=nvlink,a100,fed_single_node"
)


def test_a_job_of_several_nodes_is_sent_elsewhere_and_the_node_marked(node: Path) -> None:
    slurm = Slurm(**{"show job": "JobId=77 ReqNodeList=(null) ExcNodeList=n7\n"})
    status, told, _ = starting(node, slurm, SLURM_JOB_NUM_NODES="2")
    assert status == gate.PASS
    assert told == [MARK, "scontrol requeue 77", "scontrol update jobid=77 excnodelist=n7,n1"]


def test_a_federation_job_of_several_nodes_is_left_to_the_federation(node: Path) -> None:
    slurm = Slurm(**{"show job": "JobId=77 ReqNodeList=n[1-2] ExcNodeList=(null)\n"})
    status, told, _ = starting(
        node, slurm, SLURM_JOB_NUM_NODES="2", SLURM_JOB_COMMENT="fed:7:1", SLURM_HET_JOB_ID="76"
    )
    assert status == gate.PASS
    assert told == [MARK, "scontrol requeue 76"]


@pytest.mark.parametrize(
    "answers",
    [
        {"show job": "JobId=77 ReqNodeList=n[1-2] ExcNodeList=(null)\n"},
        {"requeue": None},
        {"show job": None},
        {"show node": None},
        {"availablefeatures": None},
    ],
)
def test_a_job_of_several_nodes_that_cannot_be_sent_elsewhere_has_its_node_drained(
    answers: dict[str, str | None], node: Path
) -> None:
    status, told, _ = starting(node, Slurm(**answers), SLURM_JOB_NUM_NODES="2")
    assert status == gate.DRAIN
    assert told[-1] == (
        "scontrol update nodename=n1 state=drain reason=fed-gate: infiniband: port mlx5_0/1 is DOWN"
        " (Disabled), expected ACTIVE"
    )


def test_a_marked_node_is_not_marked_twice_and_serves_jobs_of_one_node(node: Path) -> None:
    marked = "NodeName=n1 AvailableFeatures=fed_single_node ActiveFeatures=fed_single_node\n"
    told = starting(node, Slurm(**{"show node": marked}), SLURM_JOB_NUM_NODES="2")[1]
    assert told[0] == "scontrol requeue 77"
    assert starting(node)[:2] == (gate.PASS, [])


def with_lease(node: Path, on_error: str = "allow") -> Path:
    leases = node / "leases"
    leases.mkdir(exist_ok=True)
    (leases / "7.1").write_text('{"user": "ada"}')
    change(node, lease={"dir": str(leases), "on_error": on_error})
    return leases


def test_a_job_without_its_lease_is_ended_and_the_node_stays(node: Path) -> None:
    leases = with_lease(node)
    stands_for(node, "gpu-lost")  # such a job is not even looked at
    (leases / "7.1").unlink()
    status, told, log = starting(node, SLURM_JOB_COMMENT="fed:7:1 ticket=x")
    assert status == gate.PASS
    why = "fed-gate:there-is-no-lease-for-this-attempt ticket=x"
    assert told == [f"scontrol update jobid=77 comment=fed:7:1 {why}", "scancel 77"]
    assert log == ["job 77, attempt 7.1: there is no lease for this attempt"]


def test_of_a_het_job_the_leader_has_the_lease_and_is_ended(node: Path) -> None:
    with_lease(node)
    bound = "fed-gate:the-attempt-has-started-as-job-alpine-76-already"
    ended = [f"scontrol update jobid=90 comment=fed:7:1 {bound}", "scancel 90"]
    for leader, job, told in (("76", "77", []), ("76", "76", []), ("90", "91", ended)):
        found = starting(
            node, SLURM_JOB_COMMENT="fed:7:1", SLURM_HET_JOB_ID=leader, SLURM_JOB_ID=job
        )
        assert found[:2] == (gate.PASS, told)


def test_local_jobs_have_no_lease(node: Path) -> None:
    with_lease(node)
    assert starting(node, SLURM_JOB_COMMENT="my experiment")[:2] == (gate.PASS, [])


def test_without_a_spool_the_site_decides_whether_jobs_start(node: Path) -> None:
    (with_lease(node) / "7.1").write_text("{")
    assert starting(node, SLURM_JOB_COMMENT="fed:7:1")[1] == []
    with_lease(node, "refuse")
    (node / "leases" / "7.1").write_text("{")
    assert starting(node, SLURM_JOB_COMMENT="fed:7:1")[1][-1] == "scancel 77"


def test_why_a_job_is_ended_is_noted_beside_what_its_owner_noted(node: Path) -> None:
    """One word of fixed letters, after the attempt; what cannot be noted is ended all the same."""
    text = lease.noted("fed:7:1 mine and yours", "the lease is another user's than eve\n")
    assert text == "fed:7:1 fed-gate:the-lease-is-another-user-s-than-eve mine and yours"
    assert len(lease.noted("fed:7:1", "long " * 99)) <= 80
    (with_lease(node) / "7.1").unlink()
    refusing = Slurm(**{"comment=": None})
    assert starting(node, refusing, SLURM_JOB_COMMENT="fed:7:1")[1][-1] == "scancel 77"


@given(st.text(max_size=200), st.text(max_size=30))
def test_a_drain_reason_is_one_short_line_that_slurm_takes(detail: str, check: str) -> None:
    found = orders.reason(check, detail)
    assert len(found) <= 120
    assert found.startswith("fed-gate: ")
    assert all(" " <= c <= "~" for c in found)


# ---- the program and its wrapper, as Slurm runs them ----


@pytest.fixture
def installed(node: Path) -> Path:
    """fed-prolog beside its package, as at a site."""
    libexec = node / "libexec"
    libexec.mkdir()
    source = REPOSITORY / "prolog_epilog"
    (libexec / "fednode").symlink_to(source / "fednode")
    for name in ("fed-prolog", "fed-gate"):
        text = (source / "libexec" / name).read_text()
        if name == "fed-prolog":
            text = text.replace(
                "main(dict(os.environ))", f"main(dict(os.environ), {str(node / 'node.json')!r})"
            )
        text = text.replace("#!/usr/bin/python3", f"#!{sys.executable}")
        (libexec / name).write_text(text)
        (libexec / name).chmod(0o755)
    wrapper = (source / "prolog.d" / "90-federator-gate").read_text()
    (node / "gate").write_text(wrapper.replace("/opt/federator/libexec", str(libexec)))
    (node / "gate").chmod(0o755)
    document = json.loads((node / "node.json").read_text())
    document |= {"scontrol": "/bin/true", "scancel": "/bin/true"}
    json_file(node / "node.json", document)
    return node


def prolog(installed: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(installed / "gate")], env=ENVIRONMENT | environ, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


def test_the_prolog_passes_a_good_node_and_fails_a_bad_one(installed: Path) -> None:
    assert prolog(installed).returncode == 0
    stands_for(installed, "ecc")
    done = prolog(installed)
    assert done.returncode == 1
    assert "GPU 0 has 2 volatile uncorrected ECC errors" in done.stderr


@pytest.mark.parametrize("trouble", ["absent", "no interpreter", "crash", "no package", "killed"])
def test_a_gate_that_is_absent_or_broken_lets_jobs_start(trouble: str, installed: Path) -> None:
    stands_for(installed, "gpu-lost")
    hook = installed / "libexec" / "fed-prolog"
    if trouble == "absent":
        hook.unlink()
    elif trouble == "no package":
        (installed / "libexec" / "fednode").unlink()
    else:
        text = {
            "no interpreter": "#!/nonexistent/python3\n",
            "crash": "#!/bin/sh\nexit 1\n",
            "killed": "#!/bin/sh\nkill -9 $$\n",
        }[trouble]
        hook.write_text(text)
    assert prolog(installed).returncode == 0


def test_an_error_in_the_gate_itself_lets_the_job_start(installed: Path) -> None:
    stands_for(installed, "gpu-lost")
    assert prolog(installed, SLURM_JOB_ID="").returncode == 0
    (installed / "node.json").write_text("{ not json")
    (installed / "node.json").chmod(0o644)
    assert prolog(installed, SLURM_JOB_PARTITION="local").returncode == 0


def test_a_gate_that_takes_too_long_lets_the_job_start_in_time(installed: Path) -> None:
    fifo = installed / "sys" / "class" / "infiniband" / "mlx5_0" / "ports" / "1" / "state"
    fifo.unlink()
    os.mkfifo(fifo)  # whoever reads it waits for ever
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    change(installed, limit_s=1)
    began = time.monotonic()
    done = prolog(installed, SLURM_JOB_NUM_NODES="2")
    assert done.returncode == 0
    assert "did not end within 1 s" in done.stderr
    assert time.monotonic() - began < 10


def test_the_prolog_keeps_the_jobs_record_for_epilog_and_watch(installed: Path) -> None:
    prolog(installed)
    record: dict[str, Any] = json.loads(
        (installed / "state" / "n1" / "jobs" / "77.json").read_text()
    )
    assert record["gpus"] == [0, 1, 2, 3]
    assert record["user"] == "ada"
