"""What the gate does with a job: pass, end it, drain the node, or send it to another node."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fednode import config, gate, orders, records
from fednode.run import Ran
from hypothesis import given
from hypothesis import strategies as st

from federator.testbed.layout import REPOSITORY
from tests.unit.fednode.scenes import NVIDIA_SMI, SHIPPED, json_file, ports

pytestmark = pytest.mark.slow

ENVIRONMENT = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOB_UID": "2001",
    "SLURM_JOB_USER": "ada",
    "SLURM_JOB_PARTITION": "fed",
    "SLURM_JOB_GPUS": "0,1,2,3",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURMD_NODENAME": "n1",
    "SLURM_CLUSTER_NAME": "alpine",
    "SLURM_JOB_COMMENT": "",
}


class Slurm:
    """scontrol and scancel: what they were asked, and what they answer."""

    def __init__(self, **answers: str | None) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, str | None] = {
            "show node": "NodeName=n1 AvailableFeatures=nvlink,a100 ActiveFeatures=nvlink,a100\n",
            "squeue": "77|77|N/A||\n",
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
        return [line for line in self.asked if " show " not in line and "squeue" not in line]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node's configuration; its nvidia-smi stands for the machine that the test names."""
    sysfs = ports(tmp_path / "sys", mlx5_0=("1: DOWN", "3: Disabled", "10 Gb/sec (4X SDR)"))
    (tmp_path / "own").mkdir()
    json_file(tmp_path / "expected.json", {"ports": {"mlx5_0/1": 200}})
    json_file(
        tmp_path / "node.json",
        {
            "sysfs": sysfs,
            "kmsg": "/dev/null",
            "state_dir": str(tmp_path / "state"),
            "nvidia_smi": str(tmp_path / "nvidia-smi"),
            "gate": {
                "checks_dir": str(tmp_path / "own"),
                "shipped_checks_dir": SHIPPED,
                "expected": str(tmp_path / "expected.json"),
                "busy_again_s": 0,
            },
        },
    )
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


@pytest.mark.parametrize(("limit_s", "drained"), [(8, True), (2, False)])
def test_gpus_in_use_drain_only_after_a_second_look(
    limit_s: float, drained: bool, node: Path
) -> None:
    change(node, busy_again_s=1, limit_s=limit_s)
    stands_for(node, "busy delay=0.3")
    status, _, log = starting(node)
    assert status == (gate.DRAIN if drained else gate.PASS)
    assert ("no time for a second look" in str(log)) is not drained


def test_a_check_that_only_warns_lets_the_job_start(node: Path) -> None:
    stands_for(node, "link-errors")
    status, told, log = starting(node)
    assert (status, told) == (gate.PASS, [])
    assert "nvlink-errors: fault (warn): GPU 2 link 7" in log[0]


@pytest.mark.parametrize(
    ("file", "text", "mode"),
    [
        ("node.json", None, 0o664),
        ("expected.json", "{", 0o644),
        ("own/ecc.json", '{"id": "ecc", "action": "warn"}', 0o664),
        ("own/ecc.json", '{"id": "ecc", "action": "warm"}', 0o644),
        ("own/pcie.json", '{"id": "pcie", ', 0o644),
    ],
)
def test_a_slip_in_the_configuration_drains_no_node(
    file: str, text: str | None, mode: int, node: Path
) -> None:
    stands_for(node, "ecc")
    assert starting(node)[0] == gate.DRAIN
    shared, own, _ = config.load("gate", gate.SCHEMA, str(node / "node.json"))
    path = node / file
    path.write_text(path.read_text() if text is None else text)
    path.chmod(mode)
    problems = config.load("gate", gate.SCHEMA, str(node / "node.json"))[2]
    slurm = Slurm()
    one = gate.Gate(ENVIRONMENT, shared, own, orders.Orders(shared, slurm), problems)
    assert (one.run(), slurm.done) == (gate.PASS, [])
    assert any("no check does more than warn" in line for line in one.log)
    assert any(file in line or "check ecc" in line for line in one.log)


def test_gpus_that_another_job_has_too_may_be_in_use(node: Path) -> None:
    stands_for(node, "busy")
    assert starting(node)[0] == gate.DRAIN
    for job, expected in (("77", gate.DRAIN), ("76", gate.PASS)):
        before = records.from_environment(ENVIRONMENT | {"SLURM_JOB_ID": job}, 0.0)
        records.write(before, str(node / "state"))
        assert starting(node)[0] == expected


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
    slurm = Slurm(**{"squeue": "77|77|N/A||n7\n"})
    status, told, _ = starting(node, slurm, SLURM_JOB_NUM_NODES="2")
    assert status == gate.PASS
    assert told == [MARK, "scontrol requeue 77", "scontrol update jobid=77 excnodelist=n7,n1"]


def test_a_federation_job_of_several_nodes_is_left_to_the_federation(node: Path) -> None:
    slurm = Slurm(**{"squeue": "77|77|N/A|n[1-2]|\n"})
    status, told, _ = starting(
        node, slurm, SLURM_JOB_NUM_NODES="2", SLURM_JOB_COMMENT="fed:7:1", SLURM_HET_JOB_ID="76"
    )
    assert status == gate.PASS
    assert told == [MARK, "scontrol requeue 76"]


@pytest.mark.parametrize(
    "answers",
    [
        {"squeue": "77|77|N/A|n[1-2]|\n"},
        {"requeue": None},
        {"squeue": None},
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
    noted = "scontrol update jobid=77 comment=fed:7:1 fed-gate:no-lease ticket=x"
    assert (status, told) == (gate.PASS, [noted, "scancel 77"])
    assert log == ["job 77, attempt 7.1: there is no lease for this attempt"]


def test_of_a_het_job_the_leader_has_the_lease_and_is_ended(node: Path) -> None:
    with_lease(node)
    ended = ["scontrol update jobid=90 comment=fed:7:1 fed-gate:other-job", "scancel 90"]
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


ARRAY = "75|77|0||\n76|77|1||\n77|77|2||n7\n"


def test_of_an_array_only_the_task_that_has_the_arrays_id_is_ended_or_sent_elsewhere(
    node: Path,
) -> None:
    slurm = Slurm(squeue=ARRAY)
    told = starting(node, slurm, SLURM_JOB_NUM_NODES="2")[1]
    assert told == [MARK, "scontrol requeue 77_2", "scontrol update jobid=77_2 excnodelist=n7,n1"]
    (with_lease(node) / "7.1").unlink()
    assert starting(node, Slurm(squeue=ARRAY), SLURM_JOB_COMMENT="fed:7:1")[1][-1] == "scancel 77_2"


@pytest.mark.parametrize(
    "said",
    [
        "",
        "76|77|1||\n",
        "77|77|2||\n77|77|3||\n",
        "77|77|0-2%1||\n",
        "77|70|N/A||\n",
        "77|77|2\n",
        "slurm_load_jobs error: Unable to contact slurm controller\n",
    ],
)
def test_a_job_that_slurm_does_not_plainly_name_is_given_no_order(said: str, node: Path) -> None:
    status, told, _ = starting(node, Slurm(squeue=said), SLURM_JOB_NUM_NODES="2")
    assert status == gate.DRAIN
    assert not any("77" in line for line in told)
    (with_lease(node) / "7.1").unlink()
    change(node, limit_s=3)
    status, told, log = starting(node, Slurm(squeue=said), SLURM_JOB_COMMENT="fed:7:1")
    assert (status, told) == (gate.PASS, [])
    assert "it starts" in str(log)


def test_a_job_without_its_lease_is_ended_though_slurm_refuses_at_first(node: Path) -> None:
    class Busy(Slurm):
        def __call__(self, argv: Sequence[str], *_: object) -> Ran:
            first = "scancel" in argv[0] and "scancel 77" not in self.asked
            ran = super().__call__(argv)
            return Ran(1, "", "busy") if first else ran

    (with_lease(node) / "7.1").unlink()
    slurm = Busy()
    assert starting(node, slurm, SLURM_JOB_COMMENT="fed:7:1")[0] == gate.PASS
    assert slurm.asked.count("scancel 77") == 2


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
        [str(installed / "gate")],
        env=ENVIRONMENT | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


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


@pytest.mark.parametrize("wrapper", ["prolog.d/90-federator-gate", "epilog.d/10-federator-release"])
def test_a_wrapper_gives_up_a_hook_that_is_stuck_and_does_without_a_timeout_program(
    wrapper: str, tmp_path: Path
) -> None:
    hook = tmp_path / ("fed-prolog" if "gate" in wrapper else "fed-epilog")
    hook.write_text("#!/bin/sh\ntrap '' TERM\nsleep 30 &\nwait; wait\n")
    hook.chmod(0o755)
    text = (REPOSITORY / "prolog_epilog" / wrapper).read_text()
    assert "-k 1 10 " in text or "-k 1 125 " in text
    script = tmp_path / "wrapper"
    for limit in ("/usr/bin/timeout", "/nonexistent/timeout"):
        changed = text.replace("/opt/federator/libexec", str(tmp_path))
        changed = changed.replace("/usr/bin/timeout", limit)
        script.write_text(re.sub("-k 1 [0-9]+ ", "-k 0.1 0.1 ", changed))
        script.chmod(0o755)
        began = time.monotonic()
        done = subprocess.run([str(script)], stdout=subprocess.DEVNULL, check=False, timeout=60)
        assert done.returncode == 0
        assert time.monotonic() - began < 20
        hook.write_text("#!/bin/sh\nexit 3\n")


def test_an_error_in_the_gate_itself_lets_the_job_start(installed: Path) -> None:
    stands_for(installed, "gpu-lost")
    assert prolog(installed, SLURM_JOB_ID="").returncode == 0
    (installed / "node.json").write_text("{ not json")
    (installed / "node.json").chmod(0o644)
    assert prolog(installed).returncode == 0


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


def test_a_prolog_does_not_load_what_only_an_epilog_does() -> None:
    """It runs before each job, and what it loads it loads each time."""
    code = "import sys; sys.path.append(sys.argv[1]); import fednode.gate; print(*sys.modules)"
    argv = [sys.executable, "-ISB", "-c", code, str(REPOSITORY / "prolog_epilog")]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "fednode.gate" in loaded
    assert not loaded & {"fednode.epilog", "fednode.shm", "fednode.gpu_use", "fednode.use_report"}
