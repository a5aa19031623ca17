"""Estimated starts in words: never one without its interval."""

from __future__ import annotations

import time

import msgspec
import pytest

from federator.cli import start_text
from federator.model.start_estimate import HelpKind, NoEstimate, StartEstimate, StartHelp
from federator.wire.status_rows import StartsClassRow, StartsRow

NOON_S = time.mktime((2026, 11, 25, 12, 0, 0, 0, 0, -1))
SOON = StartEstimate(
    made_at_s=NOON_S,
    earliest_s=NOON_S + 5 * 60.0,
    likely_s=NOON_S + 20 * 60.0,
    latest_s=NOON_S + 80 * 60.0,
    frac=0.9,
    hit_frac=0.91,
    latest=500,
    judged=730,
)


def test_an_estimate_is_told_with_its_interval() -> None:
    told = start_text.start_text(SOON, NOON_S)
    assert told == "estimated start: between 12:05 and 13:20 (90 %), likely 12:20"
    assert start_text.range_text(SOON, NOON_S) == "12:05-13:20"


def test_a_time_of_another_day_has_its_date() -> None:
    assert start_text.clock_text(NOON_S + 86_400.0, NOON_S) == "11-26T12:00"


def test_explain_says_how_good_estimates_were() -> None:
    assert list(start_text.start_lines(SOON, NOON_S)) == [
        ("Start", "between 12:05 and 13:20 (90 %), likely 12:20"),
        ("", "of the latest estimates 91 % held"),
    ]


def test_explain_says_what_would_help_and_by_how_much() -> None:
    helps = (
        StartHelp(kind=HelpKind.FEWER_NODES.value, amount=2, start=SOON, sooner_s=7200.0),
        StartHelp(kind=HelpKind.ANY_GPU_TYPE.value, start=SOON),
    )
    assert list(start_text.help_lines(helps, NOON_S)) == [
        (
            "Would help",
            "with 2 nodes: between 12:05 and 13:20 (90 %), likely 12:20, about 2.0 h sooner",
        ),
        ("", "with any type of GPU: between 12:05 and 13:20 (90 %), likely 12:20"),
    ]
    assert list(start_text.help_lines((), NOON_S)) == []
    ((_, text),) = start_text.help_lines((), NOON_S, untried=True)
    assert text.startswith("not tried")


@pytest.mark.parametrize(
    ("kind", "words"),
    [(HelpKind.FEWER_NODES, "with 1 node:"), (HelpKind.FEWER_GPUS, "with 1 GPU in all:")],
)
def test_one_of_a_kind_is_told_in_the_singular(kind: HelpKind, words: str) -> None:
    one = StartHelp(kind=kind.value, amount=1, start=SOON)
    ((_, text),) = start_text.help_lines([one], NOON_S)
    assert text.startswith(words)


@pytest.mark.parametrize("kind", HelpKind)
def test_every_change_is_told_in_words(kind: HelpKind) -> None:
    ((_, text),) = start_text.help_lines([StartHelp(kind=kind.value, start=SOON)], NOON_S)
    assert text.startswith(("with ", "in "))


@pytest.mark.parametrize("why", NoEstimate)
def test_none_has_a_reason_in_words(why: NoEstimate) -> None:
    none = StartEstimate(none=why.value)
    text = start_text.start_text(none, NOON_S)
    assert text.startswith("no estimate of its start: ")
    assert not text.endswith(f": {why.value}")
    assert start_text.start_json(none) == {"none": why.value}


def test_a_reason_of_a_newer_daemon_is_told_as_it_is() -> None:
    none = StartEstimate(none="it rains")
    assert start_text.start_text(none, NOON_S) == "no estimate of its start: it rains"


def test_what_does_not_wait_has_no_line() -> None:
    gone = StartEstimate(none=NoEstimate.NOT_WAITING.value)
    assert list(start_text.start_lines(gone, NOON_S)) == []
    assert list(start_text.start_lines(None, NOON_S)) == []


def test_json_has_the_interval() -> None:
    found = start_text.start_json(SOON)
    assert found is not None
    assert (found["earliest_s"], found["latest_s"]) == (SOON.earliest_s, SOON.latest_s)
    assert start_text.start_json(None) is None


def test_status_says_how_many_held() -> None:
    row = StartsRow(frac=0.9, judged=730, latest=500, hit_frac=0.91)
    assert start_text.hits_text(row) == (
        "91 % of the latest 500 intervals held, 90 % aimed at; 730 judged"
    )
    none = StartsRow(frac=0.9, judged=0, latest=0, hit_frac=0.0)
    assert start_text.hits_text(none) == "no estimate has been judged yet"


def test_no_rate_is_told_where_none_of_the_judged_had_been_shown() -> None:
    row = StartsRow(frac=0.9, judged=40, latest=0, hit_frac=0.0)
    assert start_text.hits_text(row) == "40 intervals judged, none of them shown"
    first = msgspec.structs.replace(SOON, hit_frac=0.0, latest=0)
    assert [head for head, _ in start_text.start_lines(first, NOON_S)] == ["Start"]


def of_class(gpus: str, hit_frac: float) -> StartsClassRow:
    return StartsClassRow(gpus=gpus, quota="over", latest=98, hit_frac=hit_frac)


def test_status_has_the_worst_classes_first() -> None:
    lines = list(start_text.class_lines((of_class("1", 0.92), of_class("5-8", 0.56))))
    assert lines == ["5-8 GPUs over quota: 56 % of 98", "1 GPU over quota: 92 % of 98"]
    many = [of_class(str(1 << n), n / 20) for n in range(start_text.MOST_CLASSES + 2)]
    *told, last = start_text.class_lines(many)
    assert len(told) == start_text.MOST_CLASSES
    assert last == "and 2 classes of which more held"


def test_explain_has_the_rate_of_the_class_of_the_job() -> None:
    alike = msgspec.structs.replace(SOON, hit_frac_alike=0.56, latest_alike=98)
    (_, told) = list(start_text.start_lines(alike, NOON_S))[1]
    assert told == (
        "of the latest estimates 91 % held; of those of its size and quota class 56 % of 98"
    )
