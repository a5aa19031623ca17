"""When a job with ``--deadline`` starts at the latest, as sbatch and slurmctld see it."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import pytest

from federator.cli.slurm_time import parsed_time
from federator.errors import InvalidRequest
from federator.slurm.options.deadline_option import NO_DEADLINE, Deadline, deadline, earliest
from federator.slurm.options.options import parse_words

AT_S = 1_798_704_000.0
NOW_S = AT_S - 7_200.0
AT = f"uts{AT_S:.0f}"


@pytest.mark.parametrize(
    ("limit", "time_min", "takes_s"),
    [
        ("5", None, 300.0),
        ("5", "1", 60.0),
        (None, None, 60.0),  # squeue shows TimeMin=00:01:00
        (None, "3", 180.0),
        ("0:30", None, 60.0),
        ("UNLIMITED", "2", 120.0),
    ],
)
def test_it_starts_so_early_that_it_can_end_by_then(
    limit: str | None, time_min: str | None, takes_s: float
) -> None:
    assert deadline(AT, limit, time_min, 0.0) == Deadline(AT_S, AT_S - takes_s + 1.0)


@pytest.mark.parametrize(
    ("text", "limit", "begin_at_s", "words"),
    [
        (AT, "UNLIMITED", 0.0, "Requested time limit is invalid"),
        (AT, "1", AT_S + 60.0, "Incompatible begin and deadline time specification"),
        (AT, "5", AT_S - 60.0, "Requested time limit is invalid"),
        ("", "5", 0.0, "Invalid --deadline specification"),
        ("tomorrow", "5", 0.0, "Invalid --deadline specification"),
    ],
)
def test_it_is_refused_in_sbatchs_words(
    text: str, limit: str, begin_at_s: float, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        deadline(text, limit, None, begin_at_s)


def test_without_one_a_job_starts_whenever_it_can() -> None:
    assert deadline(None, "5", None, 0.0) == NO_DEADLINE == Deadline(inf, inf)


def test_of_a_het_job_the_earliest_counts() -> None:
    assert earliest((Deadline(9.0, 7.0), Deadline(12.0, 2.0), NO_DEADLINE)) == Deadline(9.0, 2.0)


RECORDED = json.loads((Path(__file__).parent / "wished_values.json").read_text())
ANSWERS = [(words, takers) for kind, words, takers, _ in RECORDED if kind == "deadline"]


@pytest.mark.parametrize(("words", "takers"), ANSWERS)
def test_what_26_05_takes_is_taken(words: list[str], takers: list[str]) -> None:
    """22.05 takes more, and ends it later; see ``test_license_option`` for the recording."""
    options, _ = parse_words(words)
    given = {option.name: option.value or "" for option in options}

    def unix(name: str) -> str:
        return f"uts{parsed_time(given[name], NOW_S, to_come=True):.0f}"

    try:
        begin_at_s = float(unix("begin")[3:]) if "begin" in given else 0.0
        found = deadline(unix("deadline"), given.get("time"), given.get("time-min"), begin_at_s)
        taken = found.starts_by_s > NOW_S
    except InvalidRequest:
        taken = False
    assert taken == ("26.05" in takers)
