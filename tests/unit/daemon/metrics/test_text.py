"""What is written with remembered words is what the client library writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from federator.daemon.metrics import text
from federator.daemon.metrics.catalogue import (
    ANSWER_S,
    Collected,
    Distribution,
    as_metrics,
    family,
    gauge,
    histogram,
)
from federator.daemon.metrics.text import FORMATS, MetricsText

OPEN_METRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
any_format = pytest.mark.parametrize("accept", ["", OPEN_METRICS, "text/plain;version=1.0.0"])


class Given(Collector):
    def __init__(self, found: list[Metric]) -> None:
        self.found = found

    def collect(self) -> Iterable[Metric]:
        return self.found


def of_the_library(found: list[Collected], accept: str) -> tuple[bytes, str]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Given(as_metrics(found)))
    encode, kind = choose_encoder(accept)
    return encode(registry), kind


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Its own values are others each time."""
    monkeypatch.setattr(text, "process_metrics", list)
    return iter((None,))


def scrapes() -> Iterator[list[Collected]]:
    """Values change, then series come and go; names are such as no admin would write."""
    answers: dict[tuple[str, ...], Distribution] = {
        (site,): Distribution(ANSWER_S) for site in ("alpine", "boreal")
    }
    for sites in (["alpine", "boreal"], ["alpine", "boreal"], ["boreal"], ["boreal", 'a\n"b\\ c']):
        answers["boreal",].counts[2] += 3
        answers["boreal",].total += 0.25
        yield [
            gauge("federator_leader", True),
            family("federator_site_up", (((site,), len(sites)) for site in sites)),
            family("federator_bids_total", (((site,), 1e21 / len(sites)) for site in sites)),
            family("federator_site_sweep_age_seconds", (((s,), float("inf")) for s in sites)),
            family("federator_start_estimates_hit_ratio", ()),
            histogram("federator_bid_seconds", answers),
        ]


@any_format
def test_scrape_after_scrape_is_as_the_library_writes_it(accept: str) -> None:
    writer = MetricsText()
    for found in scrapes():
        assert writer.of(found, accept) == of_the_library(found, accept)


def test_formats_are_kept_apart() -> None:
    writer = MetricsText()
    for found in scrapes():
        for accept in ("", OPEN_METRICS):
            assert writer.of(found, accept) == of_the_library(found, accept)


def test_a_scraper_that_words_a_format_of_its_own_each_time_has_little_kept() -> None:
    writer = MetricsText()
    for version in range(3 * FORMATS):
        accept = f"application/openmetrics-text;version=1.0.{version}"
        writer.of([gauge("federator_leader", 1)], accept)
        assert len(writer._formats) <= FORMATS


def test_the_library_writes_a_family_once_while_its_series_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[str] = []

    def counted(found: Iterable[Collected]) -> list[Metric]:
        found = list(found)
        written.extend(each.name for each in found)
        return as_metrics(found)

    monkeypatch.setattr(text, "as_metrics", counted)
    writer = MetricsText()
    for value in range(3):
        writer.of([gauge("federator_leader", value)], "")
    assert written == ["federator_leader"]
