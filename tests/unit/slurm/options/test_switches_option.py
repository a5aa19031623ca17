"""``--switches`` is read as sbatch reads it; see ``test_license_option`` for the recording."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import pytest

from federator.errors import InvalidRequest
from federator.slurm.options.switches_option import USUAL_WAIT_S, Switches, switches

RECORDED = json.loads((Path(__file__).parent / "wished_values.json").read_text())
ANSWERS = [
    (word.removeprefix("--switches="), takers, said)
    for kind, words, takers, said in RECORDED
    if kind == "switches"
    for word in words
    if word.startswith("--switches=")
]


@pytest.mark.parametrize(("text", "takers", "said"), ANSWERS)
def test_what_some_sbatch_takes_is_taken(text: str, takers: list[str], said: list[str]) -> None:
    if text == "4294967296":  # of 22.05, which wraps it around
        takers = []
    if takers:
        assert switches(text).most > 0
        return
    with pytest.raises(InvalidRequest) as refused:
        switches(text)
    assert [str(refused.value)] == said


@pytest.mark.parametrize(
    ("text", "wait_s"),
    [
        ("2", USUAL_WAIT_S),
        ("2@5", 300.0),
        ("2@0:30", 30.0),
        ("2@0", 0.0),
        ("2@1-0", 86_400.0),
        ("2@UNLIMITED", inf),
        ("2@x", USUAL_WAIT_S),
    ],
)
def test_a_time_says_how_long_to_hold_out(text: str, wait_s: float) -> None:
    assert switches(text) == Switches(2, wait_s)


def test_without_it_any_number_does() -> None:
    assert switches(None).most == 0
