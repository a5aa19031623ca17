"""How busy GPUs were by a node's dcgm-exporter: its text, whom it is believed, what comes of it.

No dcgm-exporter was at hand: the text is made up after its documented format.
"""

from __future__ import annotations

import http.server
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fednode import dcgm_use, summary, watching
from fednode.dcgm_use import AUTO, DCGM, NVIDIA_SMI, Exporter, Seen, parse_metrics, with_seen
from fednode.gpu_use import Gpu
from fednode.watching import BUSY, ZOMBIE, Policy, Reading
from hypothesis import given
from hypothesis import strategies as st

ENGINE, UTIL, POWER = (
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_POWER_USAGE",
)
REST = 'pci_bus_id="00000000:07:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3"'
LATER = 'Hostname="n1",DCGM_FI_DRIVER_VERSION="580.105.08"'


def line(name: str, value: object, uuid: str = "GPU-a", more: str = "") -> str:
    return f'{name}{{gpu="0",UUID="{uuid}",{REST}{more},{LATER}}} {value}\n'


TEXT = (
    f"# HELP {ENGINE} Ratio of time the graphics engine is active.\n# TYPE {ENGINE} gauge\n"
    + line(ENGINE, "0.731250")
    + line(ENGINE, "0.000000", "GPU-b")
    + f"# HELP {UTIL} GPU utilization (in %).\n# TYPE {UTIL} gauge\n"
    + line(UTIL, 100)
    + line(UTIL, 0, "GPU-b")
    + line(POWER, "412.531000")
    + line("DCGM_FI_DEV_FB_USED", 61000)
)


def test_a_gpu_is_told_by_its_uuid_with_engine_use_and_power() -> None:
    assert parse_metrics(TEXT) == {
        "GPU-a": Seen(0.73125, 1.0, 412.531),
        "GPU-b": Seen(0.0, 0.0, None),
    }


def test_a_line_for_each_of_several_jobs_counts_once_and_one_may_have_a_time() -> None:
    twice = line(ENGINE, "0.5", more=',hpc_job="7"') + line(ENGINE, "0.5", more=',hpc_job="8"')
    assert parse_metrics(twice) == {"GPU-a": Seen(0.5)}
    assert parse_metrics(line(ENGINE, "0.5 1795328748000")) == {"GPU-a": Seen(0.5)}
    strange = line(ENGINE, "0.5", more=r',pod="a\"b} 7"')
    assert parse_metrics(strange) == {"GPU-a": Seen(0.5)}


def test_a_gpu_that_is_divided_is_left_out() -> None:
    slices = "".join(
        line(ENGINE, "0.9", more=f',GPU_I_PROFILE="1g.10gb",GPU_I_ID="{k}"') for k in (7, 8)
    )
    assert parse_metrics(slices + line(POWER, 300)) == {}
    assert list(parse_metrics(slices + line(ENGINE, 0.1, "GPU-b"))) == ["GPU-b"]


@pytest.mark.parametrize(
    "value",
    ["140737488355328.000000", "9223372036854775794", "NaN", "+Inf", "-1", "1.5", "x", "0.5 x", ""],
)
def test_what_dcgm_does_not_know_and_what_is_no_part_is_not_known(value: str) -> None:
    assert parse_metrics(line(ENGINE, value)) == {}
    known = parse_metrics(line(ENGINE, value) + line(POWER, 70))
    assert known == {"GPU-a": Seen(power_w=70.0)}


@given(
    st.text()
    | st.lists(
        st.sampled_from([ENGINE, UTIL, POWER, "{", "}", '"', "\\", "UUID=", "a=", ",", " ", "\n"])
        | st.text(max_size=4)
    ).map("".join)
)
def test_nothing_that_an_exporter_may_say_raises(text: str) -> None:
    for seen in parse_metrics(text + "\n" + text + TEXT).values():
        assert seen.engine_frac is None or 0 <= seen.engine_frac <= 1


def test_a_long_line_costs_no_more_than_its_length() -> None:
    parse_metrics(line(ENGINE, 1, more="," + "a" * 8000) * 100)
    assert parse_metrics(line(ENGINE, 1, more=',a="' + "b" * 9000 + '"')) == {}


# ---- readings ----

SMI = Reading(40000.0, 1.0, 81559.0, 0.9)
LOOKS = [{0: Gpu("GPU-a", SMI, 700.0)}]


def test_dcgm_s_use_comes_home_and_both_can_acquit() -> None:
    readings = with_seen({0: SMI}, LOOKS, {"GPU-a": Seen(0.02, 0.0, 350.0)}, AUTO)
    assert readings == {0: Reading(40000.0, 1.0, 81559.0, 0.5, 0.02)}
    assert watching.doing(list(readings.values()), Policy()) == BUSY
    told = summary.as_record(summary.added(None, list(readings.values())))
    assert (told["gpu_busy_mean_frac"], told["gpu_busy_dcgm_frac"]) == (0.02, 1.0)
    assert told["gpu_power_mean_frac"] == 0.5
    missed = SMI._replace(busy_frac=0.0)
    readings = with_seen({0: missed}, LOOKS, {"GPU-a": Seen(0.4)}, AUTO)
    assert watching.doing(list(readings.values()), Policy()) == BUSY, "looks can miss bursts"
    readings = with_seen({0: missed}, LOOKS, {"GPU-a": Seen(0.01)}, AUTO)
    assert watching.doing(list(readings.values()), Policy()) == ZOMBIE


@pytest.mark.parametrize(
    ("source", "seen", "expected"),
    [
        (AUTO, None, SMI),
        (AUTO, {"GPU-b": Seen(0.5)}, SMI),
        (AUTO, {"GPU-a": Seen(None, 0.5, 70.0)}, SMI),  # its GPU_UTIL is nvidia-smi's, but older
        (NVIDIA_SMI, {"GPU-a": Seen(0.5)}, SMI),
        (DCGM, None, SMI._replace(busy_frac=None)),
        (DCGM, {"GPU-a": Seen(0.5, 1.0)}, SMI._replace(busy_frac=0.5, engine_frac=0.5)),
        (DCGM, {"GPU-a": Seen(None, 0.7)}, SMI._replace(busy_frac=0.7, engine_frac=0.7)),
    ],
)
def test_the_source_decides_whose_figure_counts(
    source: str, seen: dict[str, Seen] | None, expected: Reading
) -> None:
    assert with_seen({0: SMI}, LOOKS, seen, source) == {0: expected}


@pytest.mark.parametrize("source", [AUTO, DCGM])
def test_a_gpu_of_which_nvidia_smi_tells_no_use_stays_unknown(source: str) -> None:
    mig = Reading(4.0, None)
    looks = [{0: Gpu("GPU-a", mig)}]
    assert with_seen({0: mig}, looks, {"GPU-a": Seen(0.5, 0.5, 300.0)}, source) == {0: mig}


def test_a_tally_without_dcgm_is_told_as_before() -> None:
    told = summary.as_record(summary.added(None, [SMI]))
    assert "gpu_busy_dcgm_frac" not in told
    assert told["gpu_busy_mean_frac"] == 1.0


# ---- the exporter ----


@contextmanager
def serving(body: bytes, status: int = 200) -> Iterator[int]:
    """A dcgm-exporter; gives its port."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_the_exporter_of_the_node_is_asked() -> None:
    with serving(TEXT.encode()) as port:
        exporter = Exporter(port, 5, os.geteuid())
        assert exporter.gpus() == parse_metrics(TEXT)
        assert exporter.trouble == ""


def test_an_exporter_that_a_user_has_started_is_not_believed() -> None:
    with serving(TEXT.encode()) as port:
        exporter = Exporter(port, 5, os.geteuid() - 1)
        assert exporter.gpus() is None
        assert "no system account" in exporter.trouble


@pytest.mark.parametrize(
    ("body", "status", "trouble"),
    [
        (b"", 200, "tells of no GPU"),
        (b"no", 401, "answers 401"),
        (b"\xff" * 9, 200, "tells of no GPU"),
        (b"x" * (dcgm_use.MAX_BYTES + 1), 200, "more than"),
    ],
)
def test_an_answer_that_is_none_says_why(body: bytes, status: int, trouble: str) -> None:
    with serving(body, status) as port:
        exporter = Exporter(port, 5, os.geteuid())
        assert exporter.gpus() is None
        assert trouble in exporter.trouble


def test_a_node_without_an_exporter_is_not_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "tcp"
    monkeypatch.setattr(dcgm_use, "_TABLES", (str(table), str(tmp_path / "absent")))
    assert Exporter(9400, 5).gpus() is None
    head = "sl local_address rem_address st tx_queue:rx_queue tr:tm retrnsmt uid timeout inode\n"
    rest = "00000000:00000000 00:00000000 00000000"
    table.write_text(
        f"{head} 0: 0100007F:24B8 00000000:0000 0A {rest} 1000 0 5\n"
        f" 1: 00000000:24B8 00000000:0000 0A {rest} 0 0 5\n"
        f" 2: 0100007F:24B8 0100007F:9999 01 {rest} 4000 0 5\n x\n"
    )
    exporter = Exporter(9400, 5)
    assert exporter.gpus() is None
    assert exporter.trouble == "port 9400: its listener is of uid 1000, no system account"
    other = Exporter(9401, 5)
    assert other.gpus() is None
    assert other.trouble == "port 9401: nothing listens"
