"""Exports spans with OpenTelemetry's SDK: batches, in a thread of its own, of bounded length.

What is written is OTLP in JSON, one request a line in a file, or one in the body of a POST. Whoever
decides never waits for it: spans beyond what a batch holds are dropped, and so are those that
nobody takes.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.request import ProxyHandler, Request, build_opener

from federator import __version__
from federator.errors import ConfigError
from federator.traces.destination import Destination, checked_endpoint
from federator.traces.span import Tell, TracedSpan, Value, is_sampled, span_id, trace_id

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

FILE_BYTES: Final = 64 * 2**20  # then it becomes FILE.1, in place of the one before
ANSWER_S: Final = 5.0
REST_S: Final = 30.0  # after a failure, in which what comes is dropped
WAITING: Final = 16_384  # spans
_NS: Final = 1_000_000_000
_KNOWN: Final = 4_096  # traces whose ids are kept


class SpanSink(NamedTuple):
    """Where spans are told; ``close`` has the last of them exported."""

    tell: Tell
    close: Callable[[], None]


def open_sink(
    where: Destination, federation: str, service: str, trouble: Callable[[str], None]
) -> SpanSink | None:
    """The sink that the configuration names; None: there is none.

    Args:
        where: ``traces`` of federation.yaml or agent.yaml.
        federation: by whose name and the workloads' ids traces are told apart.
        service: what this process is.
        trouble: told, in a thread, when spans are not taken; not again until they were.

    Raises:
        ConfigError: OpenTelemetry's SDK is not installed.
    """
    if not where.is_on:
        return None
    try:
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("traces need OpenTelemetry: install federator[otel]") from error
    _silence(logging.getLogger("opentelemetry"))
    exporter = otlp_exporter(where, trouble)
    batches = BatchSpanProcessor(exporter, max_queue_size=WAITING)
    return sink_into(batches, where.ratio, federation, service)


def _silence(sdk: logging.Logger) -> None:
    """What it says of a full queue has no place: an agent's standard error is the daemon's."""
    sdk.addHandler(logging.NullHandler())
    sdk.propagate = False


def sink_into(processor: Any, ratio: float, federation: str, service: str) -> SpanSink:
    """A sink that hands spans to a processor of the SDK."""
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415
    from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415
    from opentelemetry.trace.status import Status, StatusCode  # noqa: PLC0415

    resource = Resource(
        {
            "service.name": service,
            "service.version": __version__,
            "federator.federation": federation,
        }
    )
    scope = InstrumentationScope("federator", __version__)
    sampled = TraceFlags(TraceFlags.SAMPLED)
    of = lru_cache(_KNOWN)(lambda workload: trace_id(federation, workload))

    def context(trace: int, key: str) -> SpanContext:
        return SpanContext(trace, span_id(trace, key), is_remote=False, trace_flags=sampled)

    def tell(span: TracedSpan) -> None:
        trace = of(span.workload)
        if not is_sampled(trace, ratio):
            return
        start_ns = int(span.start_s * _NS)
        made = ReadableSpan(
            span.name,
            context(trace, span.key),
            context(trace, span.parent) if span.parent is not None else None,
            resource,
            {"federator.workload": span.workload, **span.attributes},
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(),
            start_time=start_ns,
            end_time=max(start_ns, int(span.end_s * _NS)),
            instrumentation_scope=scope,
        )
        processor.on_end(made)

    return SpanSink(tell, processor.shutdown)


def otlp_exporter(
    where: Destination,
    trouble: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> SpanExporter:
    """The SDK's exporter that writes OTLP in JSON; see ``open_sink``."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult  # noqa: PLC0415

    path = Path(where.file) if where.file else None
    url = checked_endpoint(where.endpoint) if path is None else ""

    class OtlpJson(SpanExporter):
        """Writes batches of spans; one that fails costs a rest, so that nobody waits long."""

        def __init__(self) -> None:
            self._rests_until_s = 0.0

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            if clock() < self._rests_until_s:
                return SpanExportResult.FAILURE
            body = json.dumps(otlp_of(spans), separators=(",", ":")).encode()
            try:
                _append(path, body + b"\n") if path is not None else _post(url, body)
            except (OSError, HTTPException) as error:
                if not self._rests_until_s:
                    trouble(f"{path or url}: {error}")
                self._rests_until_s = clock() + REST_S
                return SpanExportResult.FAILURE
            self._rests_until_s = 0.0
            return SpanExportResult.SUCCESS

    return OtlpJson()


def _append(path: Path, line: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(path, flags, 0o640)
    try:
        before = os.fstat(file).st_size
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(file, left) :]
        except OSError:  # a full disk takes a part: no later line may follow it
            os.ftruncate(file, before)
            raise
        size = before + len(line)
    finally:
        os.close(file)
    if size > FILE_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))


_opener: Final = build_opener(ProxyHandler({}))  # what is on loopback is behind no proxy


def _post(url: str, body: bytes) -> None:
    request = Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - http alone
    with _opener.open(request, timeout=ANSWER_S) as answer:
        answer.read(65_536)


# ---- OTLP in JSON: opentelemetry-proto, "JSON Protobuf encoding" ----


def otlp_of(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """One request; all of these spans are of one process."""
    resource = spans[0].resource.attributes if spans else {}
    scope = {"name": "federator", "version": __version__}
    of_scope = {"scope": scope, "spans": [_otlp_span(each) for each in spans]}
    return {
        "resourceSpans": [
            {"resource": {"attributes": _otlp_values(resource)}, "scopeSpans": [of_scope]}
        ]
    }


def _otlp_span(span: ReadableSpan) -> dict[str, Any]:
    context, parent = span.context, span.parent
    assert context is not None
    found = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "name": span.name,
        "kind": 1,  # internal
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _otlp_values(span.attributes or {}),
    }
    if parent is not None:
        found["parentSpanId"] = f"{parent.span_id:016x}"
    if not span.status.is_ok and span.status.description:
        found["status"] = {"code": 2, "message": span.status.description}
    return found


def _otlp_values(attributes: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": _otlp_value(value)} for key, value in attributes.items()]


def _otlp_value(value: Value) -> dict[str, Value]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": str(value)}
