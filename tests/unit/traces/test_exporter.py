"""Spans come out as OTLP in JSON, to a file or a collector; and whoever tells them never waits."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace.export import SpanExportResult

from federator.errors import ConfigError
from federator.model.workload import FIRST_WORKLOAD_ID, WorkloadId
from federator.traces import exporter
from federator.traces.destination import Destination, checked_endpoint
from federator.traces.exporter import open_sink, otlp_exporter
from federator.traces.span import TracedSpan, is_sampled, span_id, trace_id
from tests.fakes.spans import KeptSpans

W = WorkloadId(FIRST_WORKLOAD_ID)
RUN = TracedSpan(
    W,
    "run",
    "run/1",
    1000.0,
    1060.5,
    "attempt/1",
    {"slurm.exit_code": 1, "federator.site": "alpine", "federator.won": True, "score": 0.5},
    "failed",
)


def no_trouble(detail: str) -> None:
    raise AssertionError(detail)


def spans_in(line: str) -> list[dict[str, Any]]:
    (resource,) = json.loads(line)["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    found: list[dict[str, Any]] = scope["spans"]
    return found


def test_a_file_has_one_request_of_otlp_a_line(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    sink = open_sink(Destination(file=str(path)), "demo", "federator-daemon", no_trouble)
    assert sink is not None
    sink.tell(RUN)
    sink.close()
    (line,) = path.read_text().splitlines()
    (span,) = spans_in(line)
    trace = trace_id("demo", W)
    assert span == {
        "traceId": f"{trace:032x}",
        "spanId": f"{span_id(trace, 'run/1'):016x}",
        "parentSpanId": f"{span_id(trace, 'attempt/1'):016x}",
        "name": "run",
        "kind": 1,
        "startTimeUnixNano": "1000000000000",
        "endTimeUnixNano": "1060500000000",
        "attributes": [
            {"key": "federator.workload", "value": {"intValue": str(W)}},
            {"key": "slurm.exit_code", "value": {"intValue": "1"}},
            {"key": "federator.site", "value": {"stringValue": "alpine"}},
            {"key": "federator.won", "value": {"boolValue": True}},
            {"key": "score", "value": {"doubleValue": 0.5}},
        ],
        "status": {"code": 2, "message": "failed"},
    }
    (resource,) = json.loads(line)["resourceSpans"]
    assert {"key": "service.name", "value": {"stringValue": "federator-daemon"}} in (
        resource["resource"]["attributes"]
    )


def test_a_file_that_is_full_makes_room_and_one_before_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "FILE_BYTES", 100)
    path = tmp_path / "traces.jsonl"
    for _ in range(3):
        sink = open_sink(Destination(file=str(path)), "demo", "s", no_trouble)
        assert sink is not None
        sink.tell(RUN)
        sink.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["traces.jsonl.1"]


def test_a_disk_that_becomes_full_leaves_no_torn_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, said, now, room = KeptSpans(), list[str](), [1.0], [10_000]
    write = os.write

    def onto_disk(file: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = write(file, data[: room[0]])
        room[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", onto_disk)
    kept.sink.tell(RUN)
    path = tmp_path / "traces.jsonl"
    otlp = otlp_exporter(Destination(file=str(path)), said.append, lambda: now[0])
    assert otlp.export(kept.all()) is SpanExportResult.SUCCESS
    (whole,) = path.read_text().splitlines()
    room[0] = 100
    assert otlp.export(kept.all()) is SpanExportResult.FAILURE
    assert said == [f"{path}: [Errno 28] No space left on device"]
    assert path.read_text() == f"{whole}\n"
    room[0], now[0] = 10_000, now[0] + exporter.REST_S
    assert otlp.export(kept.all()) is SpanExportResult.SUCCESS
    assert path.read_text().splitlines() == [whole, whole]


class Collector(HTTPServer):
    """Takes what is posted."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.taken: list[tuple[str, str, bytes]] = []


class _Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.taken.append((self.path, self.headers["Content-Type"], body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_collector_gets_the_same_by_http_whatever_proxy_is_set(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    where = Destination(endpoint=f"http://127.0.0.1:{collector.server_port}")
    sink = open_sink(where, "demo", "federator-daemon", no_trouble)
    assert sink is not None
    sink.tell(RUN)
    sink.close()
    ((path, kind, body),) = collector.taken
    assert (path, kind) == ("/v1/traces", "application/json")
    assert [span["name"] for span in spans_in(body.decode())] == ["run"]


def test_what_nobody_takes_is_said_once_and_tried_again_after_a_rest(tmp_path: Path) -> None:
    kept, said, now = KeptSpans(), list[str](), [1.0]
    kept.sink.tell(RUN)
    path = tmp_path / "missing" / "traces.jsonl"
    otlp = otlp_exporter(Destination(file=str(path)), said.append, lambda: now[0])
    assert otlp.export(kept.all()) is SpanExportResult.FAILURE
    path.parent.mkdir()
    assert otlp.export(kept.all()) is SpanExportResult.FAILURE
    assert said == [f"{path}: [Errno 2] No such file or directory: '{path}'"]
    now[0] += exporter.REST_S
    assert otlp.export(kept.all()) is SpanExportResult.SUCCESS


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "traces.jsonl"
    link.symlink_to(other)
    said: list[str] = []
    sink = open_sink(Destination(file=str(link)), "demo", "s", said.append)
    assert sink is not None
    sink.tell(RUN)
    sink.close()
    assert said
    assert not other.exists()


def test_daemon_and_agents_choose_the_same_workloads() -> None:
    ids = [WorkloadId(FIRST_WORKLOAD_ID + k) for k in range(2000)]
    chosen = []
    for _ in ("daemon", "agent"):
        kept = KeptSpans("demo", ratio=0.1)
        for each in ids:
            kept.sink.tell(RUN._replace(workload=each))
        chosen.append([(span.attributes or {})["federator.workload"] for span in kept.all()])
    assert chosen[0] == chosen[1]
    assert 140 < len(chosen[0]) < 260


@given(st.integers(0, 2**128 - 1))
def test_all_or_none_are_sampled_at_the_ends(trace: int) -> None:
    assert is_sampled(trace, 1.0)
    assert not is_sampled(trace, 0.0)


def test_a_clock_that_was_set_back_makes_no_span_that_ends_before_it_began() -> None:
    kept = KeptSpans()
    kept.sink.tell(RUN._replace(end_s=900.0))
    (span,) = kept.all()
    assert span.end_time == span.start_time


def test_without_a_destination_there_is_no_sink_and_no_sdk() -> None:
    program = (
        "import sys\n"
        "from federator.traces.destination import Destination\n"
        "from federator.traces.exporter import open_sink\n"
        "assert open_sink(Destination(), 'demo', 's', print) is None\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with pytest.raises(ConfigError, match=r"install federator\[otel\]"):
        open_sink(Destination(file="/x"), "demo", "s", no_trouble)


# ---- where they may go ----


@pytest.mark.parametrize(
    "text", ["http://127.0.0.1:4318", "http://[::1]:4318/", "http://localhost:4318/v1/traces"]
)
def test_a_collector_on_loopback_is_taken(text: str) -> None:
    assert checked_endpoint(text).endswith(":4318/v1/traces")


@pytest.mark.parametrize(
    "text",
    [
        "http://collector.example:4318",
        "http://10.0.0.1:4318",
        "https://127.0.0.1:4318",
        "http://127.0.0.1",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:4318/other",
        "http://user@127.0.0.1:4318",
        "http://127.0.0.1:4318?a=b",
        "http://[::1",
        "file:///etc/passwd",
        "",
    ],
)
def test_no_other_address_is(text: str) -> None:
    with pytest.raises(ValueError, match="expected http://HOST:PORT on loopback"):
        checked_endpoint(text)


@given(st.text())
def test_any_text_is_one_or_is_refused(text: str) -> None:
    try:
        found = checked_endpoint(text)
    except ValueError:
        return
    assert found.startswith("http://")
