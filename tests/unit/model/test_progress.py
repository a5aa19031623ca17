"""The longest time between two steps, as a submission gives it."""

from __future__ import annotations

import pytest

from federator.model.progress import longest_step_s, seconds_of
from federator.model.submission import Option, Submission


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10", 600), ("0:30", 30), ("1:05", 65), ("10080", 604_800)]
    + [(text, None) for text in ("", "0", "0:09", "10081", "10080:01", "1:60", "1:5", "x", "-1")],
)
def test_it_is_minutes_with_seconds_or_without(text: str, seconds: int | None) -> None:
    assert seconds_of(text) == seconds


def test_of_several_components_the_longest_counts() -> None:
    def asks(*texts: str | None) -> Submission:
        given = (() if t is None else (Option(name="fed-progress", value=t),) for t in texts)
        return Submission(components=tuple(given), script="#!/bin/sh\n")

    assert longest_step_s(asks(None)) == 0.0
    assert longest_step_s(asks("5", None, "7:30", "nonsense")) == 450.0
