"""Of the agents of one site one acts, and one that was stopped finds out before it does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from federator.agent.acts import SiteActs
from federator.agent.base import SiteDriver
from federator.agent.core import AgentCore
from federator.agent.effects import Release, SettleLeases
from federator.agent.journal import Journal, JournalMark, JournalStep, Served
from federator.agent.order_archive import OrderArchive
from federator.agent.spool import Spool
from federator.agent.tenure import AgentTenure
from federator.errors import StaleState
from tests.fakes.build import attempt

INTENT = JournalMark(step=JournalStep.INTENT, user="ada", at_s=900.0)
JOB = JournalMark(step=JournalStep.JOB, user="ada", at_s=901.0, job_id=7)


def tenure(folder: Path, channel: int, epoch: int = 5) -> AgentTenure:
    return AgentTenure(folder, epoch, channel, host=f"login{channel}", process="1")


def begun(folder: Path, channel: int, epoch: int = 5) -> AgentTenure:
    found = tenure(folder, channel, epoch)
    found.begin()
    return found


def test_an_agent_acts_until_another_one_s_tenure_begins(tmp_path: Path) -> None:
    first = begun(tmp_path, 1)
    first.check()
    second = begun(tmp_path, 2)
    with pytest.raises(StaleState, match="another agent of this site acts now: login2:1"):
        first.check()
    second.check()


def test_what_a_replaced_agent_would_note_is_not_noted_and_its_journal_is_the_next_one_s(
    tmp_path: Path,
) -> None:
    old = Journal(tmp_path, 1000.0, begun(tmp_path, 1))
    old.put(attempt(0), INTENT)
    new = Journal(tmp_path, 1000.0, begun(tmp_path, 2))
    assert new.index.get(attempt(0)) == INTENT
    with pytest.raises(StaleState):
        old.put(attempt(0), JOB)
    with pytest.raises(StaleState):
        old.put(attempt(1), INTENT)
    new.put(attempt(0), JOB)
    assert Journal(tmp_path, 1000.0).index.marks() == {attempt(0): JOB}


@pytest.mark.parametrize(("epoch", "channel"), [(5, 1), (4, 9)])
def test_a_channel_that_the_daemon_opened_earlier_begins_no_tenure(
    tmp_path: Path, epoch: int, channel: int
) -> None:
    serves = begun(tmp_path, 2)
    with pytest.raises(StaleState, match="opened a later channel, to login2:1"):
        begun(tmp_path, channel, epoch)
    serves.check()
    begun(tmp_path, 1, epoch=6)  # the next daemon counts anew


class Stopped(AgentTenure):
    """One that is stopped when it has the fresh file, and wakes up when another one acts."""

    def __init__(self, folder: Path, *, checked: bool) -> None:
        super().__init__(folder, 5, 1, host="login1", process="1")
        self.folder, self.checked = folder, checked
        self.meanwhile: list[AgentTenure] = []

    def check(self) -> None:
        if self.checked:  # it was stopped after the check
            super().check()
        if not self.meanwhile:
            self.meanwhile.append(begun(self.folder, 2))
            Journal(self.folder, 1000.0, self.meanwhile[0]).put(attempt(0), JOB)
        if not self.checked:
            super().check()


@pytest.mark.parametrize("checked", [True, False])
def test_a_file_of_an_agent_that_was_stopped_never_takes_the_place_of_a_later_one_s(
    tmp_path: Path, checked: bool
) -> None:
    Journal(tmp_path, 1000.0, begun(tmp_path, 0)).put(attempt(0), INTENT)
    stopped = Stopped(tmp_path, checked=checked)
    stopped.begin()
    with pytest.raises((StaleState, FileNotFoundError)):
        Journal(tmp_path, 1000.0, stopped)
    assert Journal(tmp_path, 1000.0).index.get(attempt(0)) == JOB
    assert not list(tmp_path.glob("*.fresh"))


def test_epochs_and_ends_of_a_replaced_agent_are_not_written(tmp_path: Path) -> None:
    old = Journal(tmp_path, 1000.0, begun(tmp_path, 1))
    begun(tmp_path, 2)
    with pytest.raises(StaleState):
        old.accept(Served(5))
    with pytest.raises(StaleState):
        OrderArchive(tmp_path, 1000.0, old.tenure)


def test_a_line_that_is_torn_is_nobody_s_tenure(tmp_path: Path) -> None:
    first = begun(tmp_path, 1)
    (tmp_path / "tenure").write_bytes(b"5 2 log")
    with pytest.raises(StaleState):
        first.check()
    (tmp_path / "tenure").write_bytes(b"\xff\xfe 5")
    with pytest.raises(StaleState, match="unknown"):
        first.check()
    begun(tmp_path, 1).check()


def test_a_folder_keeps_its_name_and_another_has_another_one(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    names = [
        begun(tmp_path / where, channel).folder_id
        for where, channel in (("a", 1), ("a", 2), ("b", 3))
    ]
    assert names[0] == names[1] != names[2]


def test_an_agent_that_woke_up_leaves_the_next_one_s_leases_alone(tmp_path: Path) -> None:
    """It knows nothing of these launches, and would take their leases for left over."""
    journal = Journal(tmp_path, 0.0, begun(tmp_path, 1))
    untouched = cast(Spool, None)  # anything done to it would fail otherwise
    acts = SiteActs(
        cast(SiteDriver, None),
        journal,
        cast(OrderArchive, None),
        untouched,
        lambda _: None,
        probing=lambda _: False,
        scripts_consume=False,
    )
    begun(tmp_path, 2)
    for effect in (SettleLeases(), Release(attempt=attempt(0))):
        with pytest.raises(StaleState):
            asyncio.run(acts.do(effect, cast(AgentCore, None)))
