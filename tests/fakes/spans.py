"""Spans in memory, by OpenTelemetry's own exporter."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from federator.traces.exporter import SpanSink, sink_into


class KeptSpans:
    """A sink that keeps all; ``sink`` takes them."""

    def __init__(self, federation: str = "ours", ratio: float = 1.0) -> None:
        self._exporter = InMemorySpanExporter()
        self.sink: SpanSink = sink_into(
            SimpleSpanProcessor(self._exporter), ratio, federation, "tests"
        )

    def all(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def names(self) -> list[str]:
        return [span.name for span in self.all()]

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def parent_of(self, span: ReadableSpan) -> str:
        """The name of the span around it; "": it is the root."""
        if span.parent is None:
            return ""
        by_id = {ids(each): each for each in self.all()}
        return by_id[span.parent.trace_id, span.parent.span_id].name


def ids(span: ReadableSpan) -> tuple[int, int]:
    """Its trace and itself."""
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def times_s(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / 1e9, span.end_time / 1e9
