"""Each check of the gate: what it says of machines that are well, and of machines that are not."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from fednode import checks, findings, gate_command, kernel
from fednode.scene import Expected, Scene, View
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fednode.scenes import (
    NVIDIA_SMI,
    SHIPPED,
    faults,
    json_file,
    ports,
    saying,
    scene_of,
    shared,
    shipped,
)

WELL = (
    "a100-nvswitch",
    "a100-hgx4",
    "h100-nvswitch",
    "h200-nvswitch",
    "h100-hgx4",
    "h100-pcie",
    "l40s",
    "old-driver",
    "not-supported",
)


@pytest.mark.parametrize(
    ("case", "allotted"),
    [*((case, (0, 1, 2, 3)) for case in WELL), ("h100-recorded", (0,))],
)
def test_a_machine_that_is_well_has_no_faults_and_stays_so_when_it_is_recorded(
    case: str, allotted: tuple[int, ...]
) -> None:
    bare = scene_of(case, allotted)
    recorded = scene_of(case, allotted, expected=gate_command.seen_now(scene_of(case, None)))
    for check in checks.BUILTIN:
        assert faults(check, bare) == [], check
        assert faults(check, recorded) == [], check


@pytest.mark.parametrize(
    ("case", "check", "said"),
    [
        (
            "link-down",
            "nvlink-links",
            "GPU 3 has 11 active NVLinks, expected 12, link 5 is inactive",
        ),
        ("link-slow", "nvlink-links", "GPU 1 link 2 runs at 20 GB/s, expected 25"),
        (
            "link-errors",
            "nvlink-errors",
            "GPU 2 link 7 has 48211 crc errors, expected at most 1000",
        ),
        ("ecc", "ecc", "GPU 0 has 2 volatile uncorrected ECC errors, expected at most 0"),
        ("remap-pending", "remapped-rows", "GPU 1 row remap pending: yes, expected no"),
        ("remap-failed", "remapped-rows", "GPU 2 row remap failure: yes, expected no"),
        ("retired-pages", "retired-pages", "GPU 1 retired pages pending: yes, expected no"),
        ("pcie-width", "pcie", "GPU 3 PCIe width x8, expected x16"),
        ("busy", "gpus-idle", "GPU 0 is held by process 41273 with 70004 MiB"),
        ("held-memory", "gpus-idle", "GPU 0 has 38021 MiB in use, expected at most 1024"),
        ("p2p-broken", "p2p", "GPU0-GPU1 cannot reach each other's memory (CNS), expected OK"),
        ("xid-fatal", "xid", "GPU 1 reported Xid 79 since boot, expected none"),
        (
            "gpu-lost",
            "gpus-present",
            "Unable to determine the device handle for GPU 0000:47:00.0: "
            "GPU is lost.  Reboot the system to recover this GPU",
        ),
    ],
)
def test_a_fault_is_told_with_gpu_measured_and_expected(case: str, check: str, said: str) -> None:
    assert faults(check, scene_of(case))[0] == said


def test_a_fault_of_a_gpu_that_the_job_has_not_counts_only_where_all_are_looked_at() -> None:
    other = scene_of("ecc", (6, 7))
    assert faults("ecc", other) == []
    assert len(faults("ecc", other, "all")) == 1


def test_gpus_that_are_missing_or_of_another_kind_are_told() -> None:
    lost = scene_of("missing-gpu", (6, 7), expected=Expected(gpus=8, gpu_name="NVIDIA H100"))
    assert faults("gpus-present", lost)[:3] == [
        "7 GPUs, expected 8",
        "GPU 7 is not there, only 7 are",
        "GPU 0 is a NVIDIA A100-SXM4-80GB, expected NVIDIA H100",
    ]
    assert "GPU 7 is not there" not in str(faults("gpus-present", lost, "all"))
    assert faults("gpus-present", scene_of("reset-required", (0,))) == [
        "GPU 4 does not answer (lost or in need of a reset)"
    ]


def test_a_node_that_was_allotted_gpus_and_has_no_driver_is_at_fault() -> None:
    assert "couldn't communicate with the NVIDIA driver" in str(
        faults("gpus-present", scene_of("no-driver", (0,)))
    )
    assert "No devices were found" in str(faults("gpus-present", scene_of("no-gpu", (0,))))


@pytest.mark.parametrize(
    ("status", "text", "trouble"),
    [
        (2, "Invalid combination of input arguments: GPU is lost", ""),
        (-9, "", ""),
        (137, "Killed", ""),
        (127, "nvidia-smi: not found", ""),
        (255, "something new", ""),
        (14, "WARNING: infoROM is corrupted at gpu 0000:07:00.0", ""),
        (None, "", "/usr/bin/nvidia-smi: No such file or directory"),
        (None, "", "/usr/bin/nvidia-smi: Cannot allocate memory"),
        (0, "", ""),
        (0, "a notice of a new release\n", ""),
        (0, "0, half a li", ""),
    ],
)
def test_an_nvidia_smi_that_is_itself_in_trouble_counts_against_nobody(
    status: int | None, text: str, trouble: str
) -> None:
    where = scene_of("a100-nvswitch", (0, 1), expected=Expected(gpus=8, gpu_name="A100"))
    where.smi = saying(text, status, trouble)
    found = findings.look(shipped(), where, time.monotonic() + 20)
    assert {one.verdict for one in found} <= {"ok", "unknown"}
    assert [one.verdict for one in found if one.manifest.id == "gpus-present"] == ["unknown"]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (9, "any words"),
        (15, ""),
        (8, ""),
        (10, ""),
        (18, "Failed to initialize NVML: Driver/library version mismatch"),
    ],
)
def test_what_nvidia_smi_plainly_says_of_the_hardware_or_driver_is_a_fault(
    status: int, text: str
) -> None:
    where = scene_of("a100-nvswitch", (0, 1))
    where.smi = saying(text, status)
    assert len(faults("gpus-present", where)) == 1


@pytest.mark.parametrize("name", ["A100-SXM4-80GB", "NVIDIA a100-sxm4-80gb"])
def test_a_driver_that_writes_a_model_another_way_is_no_fault(name: str) -> None:
    assert faults("gpus-present", scene_of("a100-nvswitch", expected=Expected(gpu_name=name))) == []


def test_an_nvlink_that_became_a_detour_over_pcie_is_told_once_it_was_recorded() -> None:
    recorded = gate_command.seen_now(scene_of("a100-nvswitch", None))
    degraded = scene_of("matrix-degraded", (4, 5), expected=recorded)
    assert faults("nvlink-matrix", degraded)[0] == "GPU4-GPU5 is SYS, expected NV12"
    assert faults("nvlink-matrix", scene_of("matrix-degraded", (0, 1), expected=recorded)) == []
    assert faults("nvlink-matrix", scene_of("matrix-degraded", (4, 5))) == []


@pytest.mark.parametrize(
    ("cell", "fault"),
    [
        ("NV12", False),
        ("NV18", False),
        ("NV4", True),
        ("PIX", True),
        ("SYS", True),
        ("NODE", True),
        ("N/A", False),
        ("XYZ", False),
        ("NVX", False),
    ],
)
def test_only_plainly_fewer_nvlinks_between_two_gpus_are_a_fault(cell: str, fault: bool) -> None:
    where = Scene(
        saying(f"\tGPU0\tGPU1\nGPU0\t X \t{cell}\nGPU1\t{cell}\t X \n"),
        shared(),
        View("n1", (0, 1), multi_node=False),
        Expected(matrix={"GPU0 GPU1": "NV12"}),
    )
    assert bool(faults("nvlink-matrix", where)) is fault


def links(*states: str) -> str:
    return "".join(
        f"GPU {gpu}: A (UUID: GPU-{gpu})\n"
        + "".join(f"\t Link {n}: {word}\n" for n, word in enumerate(state.split("|")))
        for gpu, state in enumerate(states)
    )


UP, DOWN = "25 GB/s", "<inactive>"


@pytest.mark.parametrize(
    ("text", "expected", "said"),
    [
        # Cards of which only some have a bridge, recorded so or not.
        (links(f"{UP}|{UP}", f"{DOWN}|{DOWN}"), {}, []),
        (links(f"{UP}|{UP}", f"{DOWN}|{DOWN}"), {"0": 2, "1": 0}, []),
        (links(f"{UP}|{DOWN}", f"{DOWN}|{DOWN}"), {"0": 2, "1": 0}, ["GPU 0 has 1 active"]),
        (links(f"{DOWN}|{DOWN}", f"{UP}|{UP}"), {"0": 2, "1": 2}, ["GPU 0 has 0 active"]),
        (links(f"{UP}|{UP}", f"{UP}|{DOWN}"), {}, ["GPU 1 has 1 active"]),
        (links(f"{UP}|{DOWN}", f"{UP}|{DOWN}"), {}, []),
        # More than was recorded, none said, or a word that is not known.
        (links(f"{UP}|{UP}|{UP}"), {"0": 2}, []),
        (links(UP), {"0": 12}, []),
        (links(f"{UP}|{DOWN}|sleeping"), {"0": 3}, []),
        (links("not inactive|25 GB/s"), {"0": 2}, []),
    ],
)
def test_nvlinks_are_judged_gpu_by_gpu_and_by_those_plainly_inactive(
    text: str, expected: dict[str, float], said: list[str]
) -> None:
    where = Scene(
        saying(text), shared(), View("n1", (0, 1), multi_node=False), Expected(links=expected)
    )
    found = faults("nvlink-links", where)
    assert [fault[: len(words)] for fault, words in zip(found, said, strict=True)] == said


def test_an_xid_that_programs_cause_is_no_fault_and_one_that_was_seen_to_neither() -> None:
    assert faults("xid", scene_of("xid-harmless")) == []
    seen = scene_of("xid-fatal")
    seen.seen_us = 12120441
    assert faults("xid", seen) == []


@pytest.mark.parametrize(
    ("line", "believed"),
    [
        ("4,9,12,-;NVRM: Xid (PCI:0000:07:00): 79, pid=1", True),
        ("4,9,12,-,caller=T1;NVRM: Xid (PCI:0000:07:00): 79, pid=1", True),
        ("[   12.345678] NVRM: Xid (PCI:0000:07:00): 79, pid=1", True),
        ("6,1,1,-;tmpfs: Unknown parameter 'NVRM: Xid (PCI:0000:07:00): 79'", False),
        ("6,1,1,-;tmpfs: Unknown parameter ';NVRM: Xid (PCI:0000:07:00): 79'", False),
        ("[    1.0] tmpfs: Unknown parameter '[ 1.0] NVRM: Xid (PCI:0000:07:00): 79'", False),
        ("12,1,1,-;NVRM: Xid (PCI:0000:07:00): 79, by a program that may write to the log", False),
        ("NVRM: Xid (PCI:0000:07:00): 79", False),
    ],
)
def test_an_xid_counts_only_where_the_driver_itself_reports_it(line: str, believed: bool) -> None:
    assert [xid.code for xid in kernel.parse_xids(f"6,0,0,-;boot\n{line}\n")] == [79] * believed


def test_an_infiniband_port_is_held_against_what_was_recorded(tmp_path: Path) -> None:
    sysfs = ports(
        tmp_path,
        mlx5_0=("4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)"),
        mlx5_1=("1: DOWN", "3: Disabled", "10 Gb/sec (4X SDR)"),
        mlx5_2=("4: ACTIVE", "5: LinkUp", "100 Gb/sec (2X HDR)"),
    )
    expected = Expected(ports={"mlx5_0/1": 400.0, "mlx5_1/1": 400, "mlx5_2/1": 200, "mlx5_9/1": 1})
    assert faults("infiniband", scene_of("no-gpu", expected=expected, sysfs=sysfs)) == [
        "port mlx5_1/1 is DOWN (Disabled), expected ACTIVE",
        "port mlx5_2/1 runs at 100 Gb/s, expected 200",
        "port mlx5_9/1 is not there",
    ]
    assert faults("infiniband", scene_of("no-gpu", sysfs=sysfs)) == []


ALPHABET = st.sampled_from(
    [
        "GPU 0: A",
        "GPU0",
        "GPU1",
        " X ",
        "NV12",
        "SYS",
        "\tLink 0: ",
        "<inactive>",
        "25 GB/s",
        ",",
        "0",
        "Yes",
        "[N/A]",
        "lost",
        "\n",
        "\0",
        "\x1b[4m",
        "index,uuid\n",
        "Recovery Errors: 9",
        '"',
    ]
)


@given(st.one_of(st.text(max_size=300), st.lists(ALPHABET, max_size=40).map("".join)))
def test_whatever_nvidia_smi_says_no_check_breaks_down(text: str) -> None:
    expected = Expected(matrix={"GPU0 GPU1": "NV12", "odd": "NV1"}, ports={"a/1": 1})
    where = Scene(
        saying(text),
        shared(kmsg="/dev/null", sysfs="/nonexistent"),
        View("n1", (0, 1), multi_node=True),
        expected,
    )
    for check in checks.BUILTIN:
        assert all(isinstance(fault, str) for fault in faults(check, where))


@given(st.text(max_size=300).filter(lambda text: "GPU" not in text))
def test_what_cannot_be_read_counts_against_nobody(text: str) -> None:
    where = Scene(
        saying(text), shared(kmsg="/dev/null"), View("n1", (0, 1), multi_node=True), Expected()
    )
    for check in checks.BUILTIN:
        assert faults(check, where) == [], check


def test_recording_a_node_that_is_not_well_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "expected.json"
    node_json = json_file(
        tmp_path / "node.json",
        {
            "nvidia_smi": NVIDIA_SMI,
            "state_dir": str(tmp_path),
            "kmsg": "/dev/null",
            "gate": {"expected": str(record), "shipped_checks_dir": SHIPPED},
        },
    )
    for case, status, said in (
        ("a100-nvswitch", 0, ""),
        ("link-down", 1, "is this node well? nvlink-links: GPU 3 has 11 active NVLinks"),
    ):
        program = tmp_path / "nvidia-smi"
        program.write_text(f'#!/bin/sh\nFAKE_NVIDIA_SMI_CASE={case} exec {NVIDIA_SMI} "$@"\n')
        program.chmod(0o755)
        document = json.loads(Path(node_json).read_text()) | {"nvidia_smi": str(program)}
        json_file(tmp_path / "node.json", document)
        assert gate_command.main(["record"], {"SLURMD_NODENAME": "n1"}, node_json) == status
        assert said in capsys.readouterr().err
    assert json.loads(record.read_text())["links"]["3"] == 11
