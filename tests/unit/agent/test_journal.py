"""What an agent remembers of its orders, whatever befalls it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from federator.agent.base import Launched
from federator.agent.journal import KEEP_S, Journal, JournalMark, JournalStep, OtherLog, Served
from federator.agent.services import handshake
from federator.agent.services.handshake import take_over, this_host
from federator.errors import SiteUnavailable, StaleState
from tests.fakes.build import attempt

HOLDER = """
import asyncio, signal, sys
from pathlib import Path
from federator.agent.services.handshake import take_over
async def hold():
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await take_over(Path(sys.argv[1]), 1)
    print("held", flush=True)
    await ended.wait()
asyncio.run(hold())
"""


def journal(folder: Path, now_s: float = 1000.0) -> Journal:
    return Journal(folder, now_s)


def test_the_last_word_on_an_attempt_survives_a_restart(tmp_path: Path) -> None:
    first = journal(tmp_path)
    assert first.index.get(attempt()) is None
    first.put(attempt(), JournalMark(step=JournalStep.INTENT, user="ada", at_s=900.0))
    first.put(attempt(), JournalMark(step=JournalStep.JOB, user="ada", at_s=901.0, job_id=7))
    first.put(attempt(1), JournalMark(step=JournalStep.VOID, user="ada", at_s=902.0))
    again = journal(tmp_path)
    assert again.index.get(attempt()) == JournalMark(
        step=JournalStep.JOB, user="ada", at_s=901.0, job_id=7
    )
    assert again.index.get(attempt(1)) == JournalMark(step=JournalStep.VOID, user="ada", at_s=902.0)


@pytest.mark.parametrize("bobs_at_s", [902.0, 302.0], ids=["later", "the clock was set back"])
def test_jobs_are_known_by_their_ids_too_and_the_last_one_counts(
    tmp_path: Path, bobs_at_s: float
) -> None:
    first = journal(tmp_path)
    first.put(attempt(1), JournalMark(step=JournalStep.INTENT, user="bob", at_s=bobs_at_s))
    first.put(attempt(), JournalMark(step=JournalStep.INTENT, user="ada", at_s=900.0))
    assert first.index.launched == {}
    first.put(attempt(), JournalMark(step=JournalStep.JOB, user="ada", at_s=901.0, job_id=7))
    first.put(attempt(1), JournalMark(step=JournalStep.JOB, user="bob", at_s=bobs_at_s, job_id=7))
    first.put(
        attempt(),
        JournalMark(step=JournalStep.JOB, user="ada", at_s=901.0, job_id=7, cancelled=True),
    )
    for each in (first, journal(tmp_path), journal(tmp_path)):
        assert each.index.launched == {7: Launched(attempt=attempt(1), user="bob", at_s=bobs_at_s)}


@pytest.mark.parametrize(("late", "owner"), [(True, 1), (False, 0)])
def test_what_is_found_late_takes_no_id_from_a_job_that_was_noted_since(
    tmp_path: Path, late: bool, owner: int
) -> None:
    """The first job had the id before slurmctld lost its state: by its lease, or by accounts."""
    first = journal(tmp_path)
    first.put(attempt(), JournalMark(step=JournalStep.INTENT, user="ada", at_s=900.0))
    first.put(attempt(1), JournalMark(step=JournalStep.INTENT, user="ada", at_s=910.0))
    first.put(attempt(1), JournalMark(step=JournalStep.JOB, user="ada", at_s=911.0, job_id=7))
    first.put(
        attempt(), JournalMark(step=JournalStep.JOB, user="ada", at_s=945.0, job_id=7, late=late)
    )
    for each in (first, journal(tmp_path), journal(tmp_path)):
        assert each.index.launched[7].attempt == attempt(owner)


def test_what_is_found_late_takes_its_id_from_a_job_that_was_noted_before(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.put(attempt(1), JournalMark(step=JournalStep.JOB, user="ada", at_s=911.0, job_id=7))
    first.put(attempt(), JournalMark(step=JournalStep.INTENT, user="ada", at_s=920.0))
    first.put(
        attempt(), JournalMark(step=JournalStep.JOB, user="ada", at_s=965.0, job_id=7, late=True)
    )
    for each in (first, journal(tmp_path), journal(tmp_path)):
        assert each.index.launched[7].attempt == attempt()


def test_whose_job_is_not_known_yet_is_told(tmp_path: Path) -> None:
    first = journal(tmp_path)
    for number in range(3):
        first.put(attempt(number), JournalMark(step=JournalStep.INTENT, user="ada", at_s=900.0))
    first.put(attempt(1), JournalMark(step=JournalStep.JOB, user="ada", at_s=901.0, job_id=7))
    first.put(attempt(2), JournalMark(step=JournalStep.VOID, user="ada", at_s=902.0))
    for each in (first, journal(tmp_path)):
        assert set(each.index.begun) == {attempt()}


TORN = (
    b'{"attempt": "fed:429',
    b"\x00\x00\xff",
    b"7\n",
    b"[]\n",
    b'{"attempt": 7}\n',
    b'{"attempt": "fed:1:1", "step": "job"}\n',
)


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_line_costs_only_itself(tmp_path: Path, torn: bytes) -> None:
    journal(tmp_path).put(
        attempt(), JournalMark(step=JournalStep.JOB, user="ada", at_s=900.0, job_id=7)
    )
    with (tmp_path / "journal").open("ab") as file:
        file.write(torn)
    again = journal(tmp_path)
    again.put(attempt(1), JournalMark(step=JournalStep.VOID, user="ada", at_s=901.0))
    last = journal(tmp_path)
    assert last.index.get(attempt()) == JournalMark(
        step=JournalStep.JOB, user="ada", at_s=900.0, job_id=7
    )
    assert last.index.get(attempt(1)) == JournalMark(step=JournalStep.VOID, user="ada", at_s=901.0)


def test_marks_are_dropped_only_when_they_are_old(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.put(attempt(), JournalMark(step=JournalStep.VOID, user="ada", at_s=0.0))
    first.put(attempt(1), JournalMark(step=JournalStep.VOID, user="ada", at_s=10.0))
    later = journal(tmp_path, now_s=KEEP_S + 5.0)
    assert later.index.get(attempt()) is None
    assert later.index.get(attempt(1)) is not None


def test_reopening_keeps_one_line_for_each_attempt(tmp_path: Path) -> None:
    first = journal(tmp_path)
    for at_s in (1.0, 2.0, 3.0):
        first.put(attempt(), JournalMark(step=JournalStep.INTENT, user="ada", at_s=at_s))
    journal(tmp_path)
    assert len((tmp_path / "journal").read_text().splitlines()) == 1


def test_an_older_epoch_is_refused_for_ever(tmp_path: Path) -> None:
    journal(tmp_path).accept(Served(5))
    again = journal(tmp_path)
    again.accept(Served(5))
    with pytest.raises(StaleState, match="epoch 4 is over: this site has served epoch 5"):
        again.accept(Served(4))
    again.accept(Served(6))
    with pytest.raises(StaleState):
        journal(tmp_path).accept(Served(5))


def test_whose_epoch_it_has_served_is_remembered_beside_it(tmp_path: Path) -> None:
    assert journal(tmp_path).served == Served(0)
    for older in ("4", "4 staging"):  # what older releases wrote
        (tmp_path / "epoch").write_text(older)
        assert journal(tmp_path).served == Served(4, older[2:])
    journal(tmp_path).accept(Served(5, "staging", 3))
    assert journal(tmp_path).served == Served(5, "staging", 3)
    journal(tmp_path).accept(Served(6))
    assert journal(tmp_path).served == Served(6, "", 3)


def test_a_daemon_of_another_log_is_refused_unless_it_displaces(tmp_path: Path) -> None:
    journal(tmp_path).accept(Served(5, "prod", 3))
    journal(tmp_path).accept(Served(6, "renamed", 3))
    trial = Served(7, "prod", 7)
    with pytest.raises(OtherLog, match="this site serves another log"):
        journal(tmp_path).accept(trial)
    assert journal(tmp_path).served == Served(6, "renamed", 3)
    journal(tmp_path).accept(trial, displaces=True)
    journal(tmp_path).accept(Served(8, "prod", 7))
    with pytest.raises(OtherLog):
        journal(tmp_path).accept(Served(9, "renamed", 3))


def test_where_an_older_release_was_served_a_log_that_began_since_is_another(
    tmp_path: Path,
) -> None:
    (tmp_path / "epoch").write_text("5 prod")
    with pytest.raises(OtherLog):
        journal(tmp_path).accept(Served(6, "prod", 6))
    journal(tmp_path).accept(Served(6, "prod", 2))
    assert journal(tmp_path).served == Served(6, "prod", 2)


def test_a_newer_agent_takes_over_from_one_that_runs(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    lock = asyncio.run(take_over(tmp_path, 1))
    assert (tmp_path / "lock").read_text() == f"{os.getpid()} {this_host()}"
    assert holder.wait(timeout=10) == 0
    holder.stdout.close()
    os.close(lock)


def test_an_agent_of_a_newer_daemon_is_left_alone_also_if_it_came_meanwhile(tmp_path: Path) -> None:
    """Two agents wait for a third to end; the older daemon's must not then end the newer's."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    journal(tmp_path).accept(Served(6))
    with pytest.raises(StaleState, match="epoch 5 is over"):
        asyncio.run(take_over(tmp_path, 5))
    assert holder.poll() is None
    os.close(asyncio.run(take_over(tmp_path, 6)))
    assert holder.wait(timeout=10) == 0
    holder.stdout.close()


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_an_agent_that_does_not_end_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """It is stopped, or its host is gone; once the next one's tenure has begun it acts no more."""
    monkeypatch.setattr(handshake, "ENDS_WITHIN_S", 0.3)
    pid = 999_999_999 if where == "here" else os.getpid()  # of another host: it is not signalled
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.pwrite(lock, f"{pid} {this_host() if where == 'here' else 'login9/1'}".encode(), 0)
    os.close(asyncio.run(take_over(tmp_path, 1)))
    os.close(lock)


def test_an_agent_of_a_release_that_knows_no_tenures_is_never_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "TAKEOVER_S", 0.3)
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.pwrite(lock, b"999999999", 0)
    with pytest.raises(SiteUnavailable, match="still holds"):
        asyncio.run(take_over(tmp_path, 1))
    os.close(lock)


def test_what_a_dead_agent_held_is_free(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("999999999")
    os.close(asyncio.run(take_over(tmp_path, 1)))


def test_a_mark_that_was_written_only_in_part_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = journal(tmp_path)
    whole = os.write
    with monkeypatch.context() as patched:
        patched.setattr("os.write", lambda file, data: whole(file, data[:10]))
        with pytest.raises(OSError, match="No space left"):
            kept.put(attempt(1), JournalMark(step=JournalStep.VOID, user="ada", at_s=0.0))
    kept.put(attempt(2), JournalMark(step=JournalStep.VOID, user="ada", at_s=0.0))
    again = journal(tmp_path)
    assert again.index.get(attempt(1)) is None
    assert again.index.get(attempt(2)) is not None  # the torn line has swallowed nothing
