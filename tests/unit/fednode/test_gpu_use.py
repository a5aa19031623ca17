"""What the hooks take from nvidia-smi's CSV, and what they do not believe."""

from __future__ import annotations

from pathlib import Path

import pytest
from fednode.gpu_use import App, Gpu, GpuQuery, parse_apps, parse_gpus
from fednode.watching import Reading
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fednode.scenes import NVIDIA_SMI

H100 = "0, GPU-aa, 81089, 100, Disabled\n1, GPU-bb, 4, 0, Disabled\n"


def test_gpus_are_read_with_their_memory_and_use() -> None:
    assert parse_gpus(H100) == {
        0: Gpu("GPU-aa", Reading(81089.0, 1.0)),
        1: Gpu("GPU-bb", Reading(4.0, 0.0)),
    }


@pytest.mark.parametrize(
    ("line", "reading"),
    [
        ("0, GPU-a, 4, [N/A], Enabled", Reading(4.0, None)),
        ("0, GPU-a, 4, 50, Enabled", Reading(4.0, None)),
        ("0, GPU-a, [N/A], 3, Disabled", Reading(None, 0.03)),
        ("0, GPU-a, 4, [Not Supported]", Reading(4.0, None)),
        ("0, GPU-a, 4, nan, Disabled", Reading(4.0, None)),
        ("0, GPU-a, -4, inf, Disabled", Reading(None, None)),
        ("0, GPU-a, [Unknown Error], [GPU is lost], [N/A]", Reading(None, None)),
        ("0, GPU-a, 4, 7, Disabled, 81559, 350.0, 700.00", Reading(4.0, 0.07, 81559.0, 0.5)),
        ("0, GPU-a, 4, 7, [N/A], 81559, [N/A], 700.00", Reading(4.0, 0.07, 81559.0, None)),
        ("0, GPU-a, 4, 7, Disabled, [N/A], 50.0, 0", Reading(4.0, 0.07, None, None)),
        ("0, GPU-a, 4, 50, Enabled, 81559, 50.0, 700.0", Reading(4.0, None)),
    ],
)
def test_what_is_no_number_and_any_use_of_a_mig_gpu_is_not_known(
    line: str, reading: Reading
) -> None:
    gpu = parse_gpus(line)[0]
    assert (gpu.uuid, gpu.reading) == ("GPU-a", reading)
    assert gpu.limit_w == (700.0 if "700.00" in line else None)


@pytest.mark.parametrize(
    ("case", "reading", "apps_mib"),
    [
        ("h100-recorded", Reading(0.0, 0.0), []),
        ("h100-recorded-busy", Reading(883.0, 1.0), [874.0]),
    ],
)
def test_a_real_gpu_is_read_as_idle_and_as_busy(
    tmp_path: Path, case: str, reading: Reading, apps_mib: list[float]
) -> None:
    """What the driver of an H100 printed, given out by the testbed's nvidia-smi."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\nFAKE_NVIDIA_SMI_CASE={case} exec {NVIDIA_SMI} "$@"\n')
    program.chmod(0o755)
    query = GpuQuery(str(program), 10)
    gpus, apps = query.gpus(), query.apps()
    assert gpus is not None
    assert apps is not None
    assert gpus[0].reading == reading
    assert [app.memory_mib for app in apps] == apps_mib


@pytest.mark.parametrize(
    "text",
    ["", "No devices were found\n", "x, GPU-a, 1, 2, Disabled", "1, 2", "\0", '"'],
)
def test_lines_that_are_no_gpu_are_passed_over(text: str) -> None:
    assert parse_gpus(text) == {}
    assert parse_apps(text) == []


def test_processes_are_read_with_the_gpu_they_are_on() -> None:
    text = "GPU-aa, 4242, 512\nGPU-aa, 4243, [N/A]\nGPU-bb, 1, 5\nGPU-bb, 99999999, 5\n"
    assert parse_apps(text) == [App("GPU-aa", 4242, 512.0), App("GPU-aa", 4243, None)]


@given(st.text())
def test_nothing_that_nvidia_smi_may_say_raises(text: str) -> None:
    for gpu in parse_gpus(text).values():
        assert gpu.reading.busy_frac is None or gpu.reading.busy_frac >= 0
    parse_apps(text)


def script(folder: Path, body: str) -> str:
    file = folder / "nvidia-smi"
    file.write_text("#!/bin/sh\n" + body)
    file.chmod(0o755)
    return str(file)


def test_an_old_driver_is_asked_without_the_word_it_does_not_know(tmp_path: Path) -> None:
    body = """case "$1" in *mig*) echo 'Field "mig.mode.current" is not a valid field to query.'
exit 2;; *) echo '0, GPU-a, 4, 7';; esac"""
    query = GpuQuery(script(tmp_path, body), 5)
    assert query.gpus() == {0: Gpu("GPU-a", Reading(4.0, 0.07))}


def test_a_driver_that_refuses_a_word_of_power_is_asked_without(tmp_path: Path) -> None:
    body = """case "$1" in *power*) echo 'Field "power.draw" is not a valid field to query.'
exit 2;; *) echo '0, GPU-a, 4, 7, Disabled';; esac"""
    query = GpuQuery(script(tmp_path, body), 5)
    assert query.gpus() == {0: Gpu("GPU-a", Reading(4.0, 0.07))}


@pytest.mark.parametrize("body", ["exit 9", "echo 'Unable to determine'; exit 15", "sleep 60"])
def test_a_driver_that_fails_or_hangs_is_no_answer_and_says_why(body: str, tmp_path: Path) -> None:
    query = GpuQuery(script(tmp_path, body), 0.3)
    assert query.gpus() is None
    assert query.trouble
    assert query.apps() is None


def test_a_node_without_nvidia_smi_has_no_answer(tmp_path: Path) -> None:
    assert GpuQuery(str(tmp_path / "absent"), 1).gpus() is None
