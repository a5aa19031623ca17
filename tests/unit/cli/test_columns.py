"""Slurm's format language: what squeue, sinfo and sacct would print for the same words."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from federator.cli.columns import (
    Column,
    by_letters,
    by_names,
    by_sacct_names,
    delimited_lines,
    fitted,
    lines,
    sacct_lines,
)
from federator.errors import InvalidRequest


class Job(NamedTuple):
    id: str
    state: str
    nodes: str = ""


COLUMNS = (
    Column[Job]("JobID", "JOBID", lambda job: job.id, "i", width=12),
    Column[Job]("State", "STATE", lambda job: job.state, "T", width=10),
    Column[Job]("StateCompact", "ST", lambda job: job.state[:2], "t"),
    Column[Job]("NodeList", "NODELIST", lambda job: job.nodes, "N", width=15, whole=True),
    Column[Job]("Nodes", "NODES", lambda job: job.nodes, "N"),
)
ROWS = (Job("4294967296", "RUNNING", "alpine-gpu[01-04]"), Job("7", "PENDING"))


def by_o(text: str, *rows: Job, header: bool = False) -> list[str]:
    return list(lines(by_letters(text, COLUMNS), rows or ROWS, header=header))


def by_O(text: str, *rows: Job, header: bool = False) -> list[str]:  # noqa: N802
    return list(lines(by_names(text, COLUMNS), rows or ROWS, header=header))


# ---- squeue -o ----


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("%i %T", "4294967296 RUNNING", "7 PENDING"),
        ("%i|%T|", "4294967296|RUNNING|", "7|PENDING|"),
        ("%.12i %.2t", "  4294967296 RU", "           7 PE"),
        ("%12i|", "4294967296  |", "7           |"),
        ("%.4i", "4294", "   7"),  # a value that is too long keeps its beginning
        ("%4i|", "4294|", "7   |"),
        ("%.4N|", "alpine-gpu[01-04]|", "    |"),  # lists of nodes alone are not cut
        ("%4N|", "alpi|", "    |"),
        ("jobs: %i%%%T", "jobs: 4294967296RUNNING", "jobs: 7PENDING"),
        ("text", "text", "text"),
        ("%i,%T %%", "4294967296,RUNNING ", "7,PENDING "),
    ],
)
def test_letters_with_widths_and_texts_print_as_squeue_prints_them(
    text: str, first: str, second: str
) -> None:
    assert by_o(text) == [first, second]


def test_the_header_has_the_widths_of_its_columns_and_their_texts() -> None:
    assert by_o("%.12i|%5T;%t", header=True)[0] == "       JOBID|STATE;ST"
    assert by_o("%.3i", header=True)[0] == "JOB"


def test_all_is_every_column_that_has_a_letter() -> None:
    assert by_o("%ALL", ROWS[1], header=True) == ["JOBID|ST|NODELIST|STATE", "7|PE||PENDING"]


@pytest.mark.parametrize(("text", "named"), [("%Q", "Q"), ("%i %.9!", "!"), ("%5", "")])
def test_a_letter_that_no_column_has_is_refused_in_squeues_words(text: str, named: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        by_letters(text, COLUMNS)
    assert str(refused.value) == f"Invalid job format specification: {named}"
    with pytest.raises(InvalidRequest, match="Invalid node format specification"):
        by_letters(text, COLUMNS, kind="node")


# ---- squeue -O ----


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("JobID,State", "4294967296          RUNNING             "),
        ("jobid:12,STATE:.9", "4294967296    RUNNING"),
        ("JobID:|,State:|", "4294967296|RUNNING|"),
        ("JobID:\x1f,State:\x1f,", "4294967296\x1fRUNNING\x1f"),  # as Open OnDemand asks
        ("State:4;", "RUNN;"),
        ("State:", "RUNNING"),
    ],
)
def test_names_with_widths_and_texts_print_as_squeue_prints_them(text: str, first: str) -> None:
    assert by_O(text)[0] == first


def test_a_name_that_no_column_has_is_refused_in_squeues_words() -> None:
    with pytest.raises(InvalidRequest) as refused:
        by_names("JobID,Colour:5", COLUMNS)
    assert str(refused.value) == "Invalid job format specification: Colour"


def test_a_width_that_would_fill_the_memory_is_refused() -> None:
    for text in ("%99999999999i", "%.10000i"):
        with pytest.raises(InvalidRequest, match="Invalid field size"):
            by_letters(text, COLUMNS)
    with pytest.raises(InvalidRequest, match="Invalid field size"):
        by_names("JobID:99999999999", COLUMNS)


# ---- both ----


def test_a_column_can_grow_with_its_values() -> None:
    form = by_letters("%.3i %T", COLUMNS)
    assert next(lines(fitted(form, "JobID", ROWS), ROWS, header=False)) == "4294967296 RUNNING"
    assert list(lines(fitted(form, "JobID", ()), (), header=True)) == ["JOB STATE"]
    assert fitted(form, "NodeList", ROWS) == form


def test_values_reach_a_terminal_without_control_characters_and_the_users_texts_as_they_are() -> (
    None
):
    hostile = Job("1", "\x1b[2J")
    assert by_o("%T\x1f", hostile) == ["?[2J\x1f"]
    fields = by_sacct_names("State", COLUMNS)
    assert list(sacct_lines(fields, [hostile], header=False)) == ["      ?[2J "]
    assert list(delimited_lines(fields, [hostile], header=False)) == ["?[2J"]


# ---- sacct ----


def test_a_table_of_sacct_has_dashes_and_marks_what_it_cuts() -> None:
    fields = by_sacct_names("JobID,state%5, nodel%-10", COLUMNS)
    assert list(sacct_lines(fields, ROWS, header=True)) == [
        "       JOBID STATE NODELIST   ",
        "------------ ----- ---------- ",
        "  4294967296 RUNN+ alpine-gp+ ",
        "           7 PEND+            ",
    ]
    assert len(list(sacct_lines(fields, ROWS, header=False))) == 2


def test_delimited_tables_cut_nothing() -> None:
    fields = by_sacct_names("JobID%2,State", COLUMNS)
    assert list(delimited_lines(fields, ROWS, header=True))[:2] == [
        "JOBID|STATE",
        "4294967296|RUNNING",
    ]
    assert list(delimited_lines(fields, ROWS[1:], header=False, delimiter=";", trailing=True)) == [
        "7;PENDING;"
    ]


def test_all_of_sacct_is_every_column() -> None:
    assert [f.column.name for f in by_sacct_names("ALL", COLUMNS)] == [c.name for c in COLUMNS]


@pytest.mark.parametrize("text", ["Colour", "JobID,Colour%5", "%5"])
def test_a_field_that_does_not_exist_is_refused_in_saccts_words(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Invalid field requested: "):
        by_sacct_names(text, COLUMNS)


@pytest.mark.parametrize("text", ["JobID%", "JobID%x", "JobID%999999"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Invalid field size"):
        by_sacct_names(text, COLUMNS)


@pytest.mark.parametrize("read", [by_letters, by_names, by_sacct_names])
def test_a_format_that_cannot_be_printed_is_refused(read: Any) -> None:
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        read("\udcff%i", COLUMNS)
