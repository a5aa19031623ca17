"""What becomes of a check's answer: fault, warning, or not known; and in time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from fednode import findings, manifests, smi
from fednode.findings import look
from fednode.run import Ran, run
from fednode.scene import Expected, read_expected

from tests.unit.fednode.scenes import (
    NVIDIA_SMI,
    SHIPPED,
    asking,
    json_file,
    scene_of,
    shipped,
    verdicts,
)


def later() -> float:
    return time.monotonic() + 20


def test_a_machine_that_is_well_passes_every_check_that_is_shipped() -> None:
    found = look(shipped(), scene_of("h100-nvswitch", multi_node=True), later())
    assert verdicts(found) == {}
    assert len(found) == 11  # p2p has to be asked for


@pytest.mark.parametrize(
    ("case", "check", "action"),
    [
        ("link-down", "nvlink-links", "drain"),
        ("link-errors", "nvlink-errors", "warn"),
        ("xid-fatal", "xid", "drain"),
        ("ecc", "ecc", "drain"),
    ],
)
def test_a_fault_has_the_action_of_its_check(case: str, check: str, action: str) -> None:
    found = look(shipped(), scene_of(case), later())
    assert verdicts(found) == {check: "fault"}
    first = findings.worst(found, (action,))
    assert first is not None
    assert first.manifest.id == check


def test_a_gpu_that_is_lost_is_one_fault_and_the_rest_is_not_known() -> None:
    found = look(shipped(), scene_of("gpu-lost"), later())
    assert [one.manifest.id for one in found if one.verdict == "fault"] == ["gpus-present"]


def test_jobs_without_gpus_and_jobs_of_one_node_are_asked_what_concerns_them() -> None:
    def made(allotted: tuple[int, ...], *, multi_node: bool) -> list[str]:
        where = scene_of("no-gpu", allotted, multi_node=multi_node)
        return [one.manifest.id for one in look(shipped(), where, later())]

    assert made((), multi_node=False) == []
    assert made((), multi_node=True) == ["infiniband"]
    assert "infiniband" not in made((0,), multi_node=False)


def test_an_nvidia_smi_that_hangs_is_the_nodes_fault_unless_the_site_says_otherwise() -> None:
    for hang_is_fault in (True, False):
        where = scene_of("a100-nvswitch")
        where.smi = asking("a100-nvswitch hang", 0.3)
        found = look(shipped(), where, later(), hang_is_fault)
        first = findings.worst(found, ("drain",))
        assert (first is not None) is hang_is_fault
        if first is not None:
            assert first.manifest.id == "gpus-present"
            assert first.detail == "nvidia-smi did not answer within 0.3 s"


@pytest.mark.parametrize(
    ("status", "verdict"),
    [(0, None), (1, "warning"), (2, "fault"), (3, "unknown"), (77, "unknown")],
)
def test_a_sites_own_check_speaks_by_the_exit_codes_of_nagios(
    status: int, verdict: str | None, tmp_path: Path
) -> None:
    program = tmp_path / "check"
    program.write_text(f"#!/bin/sh\necho GPUs $FED_GATE_GPUS, $1\nexit {status}\n")
    program.chmod(0o755)
    json_file(
        tmp_path / "own.json", {"id": "own", "command": [str(program), "x"], "action": "drain"}
    )
    chosen, problems = manifests.load("/nonexistent", str(tmp_path))
    assert problems == []
    (found,) = look(chosen, scene_of("a100-nvswitch", (2, 3)), later())
    assert (found.verdict, found.detail) == (verdict or "ok", "GPUs 2,3, x" if verdict else "")


def test_a_sites_own_check_that_others_can_write_is_not_run(tmp_path: Path) -> None:
    program = tmp_path / "check"
    program.write_text("#!/bin/sh\nexit 2\n")
    program.chmod(0o777)
    json_file(tmp_path / "own.json", {"id": "own", "command": [str(program)], "action": "drain"})
    chosen, _ = manifests.load("/nonexistent", str(tmp_path))
    (found,) = look(chosen, scene_of("a100-nvswitch"), later())
    assert found.verdict == "unknown"


def test_a_sites_own_check_that_does_not_end_is_left_behind(tmp_path: Path) -> None:
    json_file(
        tmp_path / "own.json",
        {"id": "own", "command": ["/bin/sleep", "60"], "timeout_s": 0.2, "action": "drain"},
    )
    chosen, _ = manifests.load("/nonexistent", str(tmp_path))
    began = time.monotonic()
    (found,) = look(chosen, scene_of("a100-nvswitch"), later())
    assert found.verdict == "unknown"
    assert time.monotonic() - began < 10


def test_a_question_cut_short_and_one_other_than_for_the_gpus_drain_nobody() -> None:
    short = scene_of("a100-nvswitch")
    short.smi = smi.Smi(
        NVIDIA_SMI, 0.3, {"FAKE_NVIDIA_SMI_CASE": "a100-nvswitch hang"}, whole_time=False
    )
    assert set(verdicts(look(shipped(), short, later())).values()) == {"unknown"}

    def ask(argv: Sequence[str], timeout_s: float, extra: dict[str, str]) -> Ran:
        if "nvlink" in argv:
            return Ran(None, "", "", "late", True)
        return run(argv, timeout_s, extra)

    partly = scene_of("a100-nvswitch")
    partly.smi = smi.Smi(NVIDIA_SMI, 10, {"FAKE_NVIDIA_SMI_CASE": "a100-nvswitch"}, ask)
    found = verdicts(look(shipped(), partly, later()))
    assert found == {"nvlink-links": "unknown", "nvlink-errors": "unknown"}


def test_the_matrix_is_asked_for_only_where_one_was_recorded() -> None:
    asked: list[str] = []

    def ask(argv: Sequence[str], timeout_s: float, extra: dict[str, str]) -> Ran:
        asked.append(" ".join(argv[1:]))
        return Ran(0, "", "")

    for matrix in ({}, {"GPU0 GPU1": "NV12"}):
        where = scene_of("a100-nvswitch", expected=Expected(matrix=matrix))
        where.smi = smi.Smi(NVIDIA_SMI, 10, ask=ask)
        look(shipped(), where, later())
        assert ("topo -m" in asked) is bool(matrix)


def test_only_gpus_in_use_are_looked_at_a_second_time() -> None:
    busy = look(shipped(), scene_of("busy"), later())
    assert findings.busy_again(busy)
    assert not findings.busy_again(look(shipped(), scene_of("ecc"), later()))


def test_manifests_of_the_site_change_what_they_name_and_bad_ones_are_left_out(
    tmp_path: Path,
) -> None:
    json_file(tmp_path / "a.json", {"id": "ecc", "thresholds": {"aggregate": 100}})
    json_file(tmp_path / "b.json", {"id": "xid", "enabled": False})
    json_file(tmp_path / "c.json", {"id": "pcie", "thresholds": {"widht": 8}})
    json_file(tmp_path / "d.json", {"id": "nobody-knows"})
    json_file(tmp_path / "e.json", {"id": "ecc2", "action": "reboot"})
    (tmp_path / "f.json").write_text("{")
    json_file(tmp_path / "g.json", {"id": "open", "command": ["/bin/true"]})
    (tmp_path / "g.json").chmod(0o666)
    found, problems = manifests.load(SHIPPED, str(tmp_path))
    by_id = {one.id: one for one in found}
    assert by_id["ecc"].thresholds == {"volatile": 0, "aggregate": 100}
    assert by_id["ecc"].action == "drain"
    assert {"xid", "pcie", "nobody-knows", "ecc2", "open"}.isdisjoint(by_id)
    assert len(problems) == 5


def test_a_record_of_another_kind_is_not_used(tmp_path: Path) -> None:
    file = json_file(
        tmp_path / "expected.json", {"gpus": "eight", "links": {"0": 12}, "matrix": []}
    )
    expected, problems = read_expected(file)
    assert expected == Expected(links={"0": 12})
    assert len(problems) == 2
    assert read_expected(str(tmp_path / "absent.json")) == (Expected(), [])
