"""Reservations as three Slurms print them (tests/data/reservations), and what no Slurm prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.model.slurm_reservation import SlurmReservation
from federator.model.window import windows_of
from federator.slurm.parse_nodes import parse_nodes
from federator.slurm.parse_reservations import parse_reservations

RECORDED = Path(__file__).parents[2] / "data" / "reservations"
RELEASES = ("22.05", "24.11", "26.05")
SITE = dict(zip(RELEASES, ("alpine", "boreal", "cedar"), strict=True))


def part(release: str, name: str) -> str:
    text = (RECORDED / f"{release}.txt").read_text(encoding="utf-8")
    return text.split(f"# {name}\n")[1].split("# ")[0]


def recorded(release: str) -> dict[str, SlurmReservation]:
    reading = parse_reservations(part(release, "ten"))
    assert (reading.problems, reading.complete) == ((), True)
    return {each.name: each for each in reading.records}


@pytest.mark.parametrize("release", RELEASES)
def test_a_site_without_reservations_has_none(release: str) -> None:
    reading = parse_reservations(part(release, "none"))
    assert (reading.records, reading.problems, reading.complete) == ((), (), True)


@pytest.mark.parametrize("release", RELEASES)
def test_every_generation_says_who_keeps_which_nodes_when(release: str) -> None:
    found, site = recorded(release), SITE[release]
    assert len(found) == 10
    maint = found["maint"]
    assert maint.nodes == (f"{site}-g1", f"{site}-g2")
    assert maint.is_maintenance
    assert maint.ends_at_s - maint.starts_at_s == 7_200.0
    assert maint.users == ("root",)
    assert found["course"].accounts == ("vision",)
    assert not found["course"].is_maintenance
    assert found["denied"].users == ("-vision1",)
    assert len(found["everything"].nodes) == 10
    assert [n for n, each in found.items() if each.recurrence] == ["daily", "weekday"]


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_reserved_of_a_node_in_part_is_told_from_whole_nodes(release: str) -> None:
    found, site = recorded(release), SITE[release]
    names = [f"{site}-{kind}" for kind in ("g1", "g2", "g3", "g6", "c1", "c2")]
    windows = windows_of(found.values(), dict.fromkeys(names, 64), found["now"].starts_at_s)
    cpus = {window.name: window.cpus for window in windows if window.cpus}
    assert cpus == {"half": {f"{site}-g6": 4}, "part": {f"{site}-c2": 2}}


@pytest.mark.parametrize("release", RELEASES)
def test_a_node_that_is_reserved_now_is_as_it_would_be_without(release: str) -> None:
    nodes = {n.name: n for n in parse_nodes(part(release, "nodes")).records}
    assert all(node.state.takes_jobs for node in nodes.values())
    reserved = {name.split("-")[1] for name, node in nodes.items() if node.reserved}
    # 22.05 shows it later, or not at all: the reservation itself tells.
    assert reserved == (set() if release == "22.05" else {"c1", "c2", "g8"})


def test_a_floating_start_is_said_by_the_minute() -> None:
    line = "ReservationName=f StartTime={} EndTime={} Nodes=n1 Flags=SPEC_NODES,TIME_FLOAT"
    first, second = (
        parse_reservations(line.format(at_s, at_s + 600)).records for at_s in (6_001, 6_058)
    )
    assert first == second
    assert (first[0].starts_at_s, first[0].ends_at_s) == (6_000.0, 6_600.0)


def test_a_node_of_which_gpus_are_reserved_counts_as_a_whole() -> None:
    line = (
        "ReservationName=g StartTime=1 EndTime=2 Nodes=n1 NodeCnt=1 CoreCnt=4 Flags=SPEC_NODES "
        "  NodeName=n1 CoreIDs=0-3 TRES=cpu=4,gres/gpu=2"
    )
    (found,) = parse_reservations(line).records
    assert (found.cpus, found.total_cpus) == ({}, 0)


def test_threads_of_reserved_cores_are_cpus() -> None:
    line = (
        "ReservationName=g StartTime=1 EndTime=2 Nodes=n[1-2] NodeCnt=2 CoreCnt=4 "
        "  NodeName=n1 CoreIDs=0-2   NodeName=n2 CoreIDs=7 TRES=cpu=8"
    )
    (found,) = parse_reservations(line).records
    assert found.cpus == {"n1": 6, "n2": 2}


@pytest.mark.parametrize(
    "line",
    [
        "Nodes=n1 StartTime=1 EndTime=2",
        "ReservationName=a StartTime=1 EndTime=2",
        "ReservationName=a StartTime=2026-11-25T12:00:00 EndTime=2 Nodes=n1",
        "ReservationName=a StartTime=1 EndTime=2 Nodes=n[1-",
    ],
)
def test_a_reservation_that_cannot_be_read_is_a_problem(line: str) -> None:
    reading = parse_reservations(line)
    assert (reading.records, len(reading.problems), reading.complete) == ((), 1, False)


def test_a_comment_passes_for_no_field() -> None:
    line = "ReservationName=a StartTime=1 EndTime=2 Nodes=n1 Flags=MAINT Comment=x Users=root"
    (found,) = parse_reservations(line).records
    assert found.users == ()


@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    reading = parse_reservations(text)
    assert reading.complete == (not reading.problems)
