"""After a drain's deadline nothing of the federation runs at the site, and nothing is lost."""

from __future__ import annotations

import pytest

from federator.faults.history import run_history
from federator.faults.kinds import FaultKind
from federator.faults.report import FaultReport

HISTORIES = 60
PARTS = 4
DRAINS = (FaultKind.SITE_DRAINED_BY, FaultKind.SITE_DRAINED, FaultKind.SITE_CORDONED)
QUICK = (
    FaultKind.SITE_DRAINED_BY,
    FaultKind.NODES_DRAINED,
    FaultKind.SITE_CORDONED,
    FaultKind.DAEMON_KILLED,
    FaultKind.DAEMON_AFTER_APPEND,
    FaultKind.DAEMON_BEFORE_SEND,
    FaultKind.DAEMON_AFTER_COMPACT,
    FaultKind.CHANNEL_CUT,
    FaultKind.AGENT_KILLED,
)
"""Faults that are over within the time that a drain leaves beyond the graces."""


@pytest.mark.parametrize("part", range(PARTS))
def test_nobody_is_left_after_the_deadline_of_a_drain(part: int) -> None:
    size = HISTORIES // PARTS
    report = FaultReport()
    for seed in range(part * size, (part + 1) * size):
        report.add(run_history(seed, QUICK))
    assert not report.broken, "\n".join(report.lines())
    assert report.counts["drains with a deadline"] >= size / 3
    assert report.counts["left after a deadline"] == 0, "\n".join(report.lines())


def test_sites_that_are_drained_again_and_again_lose_nothing() -> None:
    report = FaultReport()
    for seed in range(20):
        report.add(run_history(seed, DRAINS))
    assert not report.broken, "\n".join(report.lines())
    assert all(report.struck[kind] for kind in (*DRAINS, FaultKind.SITE_RESUMED))
    assert report.counts["left after a deadline"] == 0, "\n".join(report.lines())


def test_a_site_that_returns_ends_what_it_had_before_anything_new_starts_there() -> None:
    menu = (FaultKind.SITE_WRITTEN_OFF, FaultKind.DAEMON_KILLED, FaultKind.AGENT_KILLED)
    report = FaultReport()
    for seed in range(30):
        report.add(run_history(seed, menu))
    assert not report.broken, "\n".join(report.lines())
    assert report.struck[FaultKind.SITE_WRITTEN_OFF] > 10
    assert report.struck[FaultKind.SITE_RETURNED] > 10
