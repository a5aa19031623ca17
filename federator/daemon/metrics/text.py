"""Writes metrics as text, in the format that a scraper asks for.

The client library writes each series once. From then on, as long as a family has the same series,
only their values are written anew, after the words that the library wrote before them: for many
sites that is a sixth of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from federator.daemon.metrics.catalogue import Collected, Labels, as_metrics
from federator.daemon.metrics.process import process_metrics

FORMATS: Final = 4  # that are kept; a scraper words its own, so there could be any number
_Encode = Callable[[Collector], bytes]


class _Family(NamedTuple):
    """The words of one family, but for its values."""

    labels: list[Labels]
    head: str  # what it is, and its type
    before: list[str]  # each value


class MetricsText:
    """The text of one address; it remembers the words of the last."""

    def __init__(self) -> None:
        self._formats: dict[str, dict[str, _Family]] = {}

    def of(self, found: Iterable[Collected], accept: str) -> tuple[bytes, str]:
        """Metrics, and those of this process, as ``accept`` asks for them; and the MIME type."""
        encode, kind = choose_encoder(accept)
        families = self._formats.get(kind)
        if families is None:
            if len(self._formats) >= FORMATS:
                self._formats.clear()
            families = self._formats[kind] = {}
        end = _encoded(encode, ())
        parts = [self._family(families, each, encode, end) for each in found]
        parts.append(_encoded(encode, process_metrics()))  # with the end
        return "".join(parts).encode(), kind

    def _family(
        self, families: dict[str, _Family], found: Collected, encode: _Encode, end: str
    ) -> str:
        labels = [
            *(series[0] for series in found.series),
            *(series[0] for series in found.distributions),
        ]
        known = families.get(found.name)
        if known is None or known.labels != labels:
            text = _encoded(encode, as_metrics((found,))).removesuffix(end)
            known = families[found.name] = _words_of(text, labels)
        values = map(floatToGoString, _values_of(found))
        lines = (f"{words}{value}\n" for words, value in zip(known.before, values, strict=True))
        return known.head + "".join(lines)


class _Ready(Collector):
    """Metrics that are made already."""

    def __init__(self, found: Sequence[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


def _encoded(encode: _Encode, found: Sequence[Metric]) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ready(found))
    return encode(registry).decode()


def _words_of(text: str, labels: list[Labels]) -> _Family:
    lines = text.removesuffix("\n").split("\n")  # names may hold what else Python ends lines at
    before = [line[: line.rindex(" ") + 1] for line in lines if not line.startswith("#")]
    return _Family(labels, "".join(f"{line}\n" for line in lines if line.startswith("#")), before)


def _values_of(found: Collected) -> Iterator[float]:
    """In the order in which the library writes them."""
    for _, value in found.series:
        yield value
    for _, counts, total in found.distributions:
        below = list(accumulate(counts))
        yield from below
        yield below[-1]
        yield total
