"""A site remembers what it was asked to run and how that ended, and tells a queue that asks."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from federator.agent.journal import KEEP_S, Journal
from federator.agent.lost_sbatch import INTENT_HORIZON_S
from federator.agent.order_archive import OrderArchive
from federator.model.site import AttemptReport, Leave, SiteJobState
from federator.model.site_message import CancelOrder, LaunchAccepted, LaunchDeclined, Report
from federator.model.submission import Submission
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import (
    PreemptOrder,
    RecoverAsk,
    RecoverDone,
    RememberedAttempt,
    SignalTo,
)
from tests.fakes.agent import Daemon, daemon, order
from tests.fakes.build import attempt, submission

__all__ = ["daemon"]


def ended(number: int, state: SiteJobState = SiteJobState.COMPLETED) -> AttemptReport:
    return AttemptReport(attempt=attempt(number), user="ada", site_job_id=101 + number, state=state)


async def told(daemon: Daemon, *attempts: AttemptId) -> dict[AttemptId, RememberedAttempt]:
    """Everything that the agent answers to one question."""
    before = len(daemon.heard(RecoverDone))
    daemon.tell(RecoverAsk(ask_id=7, attempts=attempts))
    for _ in range(1000):
        parts = daemon.heard(RecoverDone)[before:]
        if parts and parts[-1].last:
            assert all(part.ask_id == 7 and not part.detail for part in parts)
            return {kept.attempt: kept for part in parts for kept in part.kept}
        await asyncio.sleep(0.1)
    raise AssertionError("no answer")


def test_a_site_tells_orders_jobs_and_refusals(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.tell(order(0, "a1"))
        await daemon.wait_for(LaunchAccepted)
        daemon.site.refusal = "no"
        daemon.tell(order(1, "a2"))
        await daemon.wait_for(LaunchDeclined)
        kept = await told(daemon)
        assert kept.keys() == {attempt(0), attempt(1)}
        runs, refused = kept[attempt(0)], kept[attempt(1)]
        assert runs.order == order(0, "a1")
        assert runs.report is not None
        assert runs.report.state is SiteJobState.RUNNING
        assert (runs.user, runs.site_job_id, runs.void) == ("ada", 101, False)
        assert refused.void
        assert refused.report is None

    daemon.serve(script)


def test_a_new_agent_still_knows_how_attempts_ended(daemon: Daemon) -> None:
    async def script() -> None:
        for number in range(2):
            daemon.tell(order(number, f"a{number + 1}"))
        await daemon.wait_for(LaunchAccepted, 2)
        daemon.slurm.end(attempt(0))
        daemon.slurm.end(attempt(1), SiteJobState.FAILED, 3)
        await asyncio.sleep(30)
        daemon.slurm.forget(attempt(0))
        daemon.slurm.forget(attempt(1))

    async def later() -> None:
        kept = await told(daemon)
        assert all(k.report is not None for k in kept.values())
        states = {a: k.report.state for a, k in kept.items() if k.report is not None}
        assert states == {attempt(0): SiteJobState.COMPLETED, attempt(1): SiteJobState.FAILED}
        done, failed = kept[attempt(0)].order, kept[attempt(1)].order
        assert done is not None
        assert failed is not None
        assert done.submission == Submission(components=(), script="")
        assert failed.submission == submission()

    daemon.serve(script)
    daemon.said.clear()
    daemon.serve(later)


def test_what_was_ordered_to_end_is_remembered_with_it(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.slurm.starts_jobs = False
        for number in range(3):
            daemon.tell(order(number, f"a{number + 1}"))
        await daemon.wait_for(LaunchAccepted, 3)
        daemon.tell(CancelOrder(attempt=attempt(0), user="ada", pending_only=True))
        daemon.tell(CancelOrder(attempt=attempt(1), user="ada"))
        await asyncio.sleep(30)
        kept = await told(daemon, attempt(0), attempt(1), attempt(2))
        orders = {a: (k.withdrawn, k.cancelled) for a, k in kept.items()}
        assert orders == {
            attempt(0): (True, False),
            attempt(1): (False, True),
            attempt(2): (False, False),
        }

    daemon.serve(script)


def test_an_attempt_under_way_is_told_of_only_when_its_outcome_is_certain(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.site.order_is_lost = True
        daemon.tell(order(0, "a1"))
        began_s = daemon.clock()
        await asyncio.sleep(1)
        kept = await told(daemon)
        assert daemon.clock() >= began_s + INTENT_HORIZON_S
        assert kept[attempt(0)].void

    daemon.serve(script)


def test_what_lives_is_told_of_though_the_journal_is_lost(daemon: Daemon) -> None:
    async def script() -> None:
        for number in range(2):
            daemon.tell(order(number, f"a{number + 1}"))
        await daemon.wait_for(LaunchAccepted, 2)
        await asyncio.sleep(30)

    async def later() -> None:
        kept = await told(daemon)
        assert kept[attempt(0)].order == order(0, "a1")
        assert kept[attempt(1)].order is None
        jobs = {a: (k.user, k.site_job_id, k.void) for a, k in kept.items()}
        assert jobs == {attempt(0): ("ada", 101, False), attempt(1): ("ada", 102, False)}

    daemon.serve(script)
    (daemon.folder / "journal").unlink()
    (daemon.folder / "orders" / f"{attempt(1).workload}.1").unlink()
    daemon.serve(later)


def test_what_runs_for_longer_than_anything_is_kept_is_not_forgotten(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path)
    daemon.clock.now_s = time.time()  # as the orders' files have it

    async def script() -> None:
        daemon.tell(order(0, "a1"))
        await daemon.wait_for(LaunchAccepted)
        await asyncio.sleep(30)

    async def later() -> None:
        await asyncio.sleep(30)
        assert (await told(daemon))[attempt(0)].order == order(0, "a1")

    daemon.serve(script)
    for _ in range(3):
        daemon.clock.now_s += 0.6 * KEEP_S
        daemon.serve(later)
    assert Journal(tmp_path, daemon.clock()).index.get(attempt(0)) is not None


def test_attempts_that_nobody_here_knows_are_gone(daemon: Daemon) -> None:
    async def script() -> None:
        assert await told(daemon, attempt(5)) == {}
        assert any(attempt(5) in report.gone for report in daemon.heard(Report))

    daemon.serve(script)


def test_without_slurmctld_there_is_no_answer(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.site.down = True
        daemon.tell(RecoverAsk(ask_id=1))
        done = await daemon.wait_for(RecoverDone)
        assert (done.last, done.detail) == (True, "slurmctld does not answer")

    daemon.serve(script)


# ---- sacct ----


def test_a_job_that_vanished_is_told_with_its_end_where_the_site_keeps_accounts(
    daemon: Daemon,
) -> None:
    async def script() -> None:
        daemon.site.keeps_accounts = True
        daemon.tell(order(0, "a1"))
        await daemon.wait_for(LaunchAccepted)
        await asyncio.sleep(30)
        daemon.slurm.end(attempt(0), SiteJobState.FAILED, 3)
        daemon.slurm.forget(attempt(0))  # slurmctld lost it
        await asyncio.sleep(30)
        last = daemon.heard(Report)[-1]
        assert [(r.attempt, r.exit_code) for r in last.attempts] == [(attempt(0), 3)]
        assert not any(report.gone for report in daemon.heard(Report))

    daemon.serve(script)


def test_one_that_was_told_to_leave_and_vanished_is_told_as_one_who_left(daemon: Daemon) -> None:
    """It saved, exited 0 while nobody looked, and is to go on elsewhere."""
    daemon.site.keeps_accounts = True

    async def script() -> None:
        daemon.tell(order(0, "a1"))
        await daemon.wait_for(LaunchAccepted)
        await asyncio.sleep(30)
        daemon.tell(
            PreemptOrder(
                attempt=attempt(0),
                user="ada",
                site_job_id=101,
                grace_s=120.0,
                signal="USR1",
                signal_to=SignalTo.STEPS,
                checkpoint_dir="/c/1",
            )
        )
        await asyncio.sleep(5)

    async def later() -> None:
        kept = await told(daemon, attempt(0))
        report = kept[attempt(0)].report
        assert report is not None
        assert report.state is SiteJobState.COMPLETED
        assert report.leave is not None
        assert report.ended_at_s >= report.leave.told_at_s
        again = kept[attempt(0)].order
        assert again is not None
        assert again.submission == submission()

    daemon.serve(script)
    daemon.slurm.end(attempt(0))
    daemon.slurm.forget(attempt(0))
    daemon.serve(later)


def test_an_sbatch_whose_job_is_over_and_forgotten_is_not_repeated(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.site.keeps_accounts = True
        daemon.site.reply_is_lost = True
        daemon.tell(order(0, "a1"))
        while not daemon.slurm.jobs:
            await asyncio.sleep(0)
        daemon.slurm.end(attempt(0))
        daemon.slurm.forget(attempt(0))
        accepted = await daemon.wait_for(LaunchAccepted)
        assert accepted.site_job_id == 101
        daemon.site.reply_is_lost = False
        daemon.tell(order(0, "a1"))
        await asyncio.sleep(60)
        assert daemon.site.submitted == [attempt(0)]
        ends = [r for report in daemon.heard(Report) for r in report.attempts if r.state.ended]
        assert ends

    daemon.serve(script)


def test_an_attempt_that_slurm_has_is_not_submitted_again_though_the_journal_is_lost(
    daemon: Daemon,
) -> None:
    async def script() -> None:
        daemon.tell(order(0, "a1"))
        await daemon.wait_for(LaunchAccepted)
        await asyncio.sleep(30)

    async def later() -> None:
        daemon.tell(order(0, "a1"))
        accepted = await daemon.wait_for(LaunchAccepted)
        assert accepted.site_job_id == 101
        assert daemon.site.submitted == [attempt(0)]

    daemon.serve(script)
    (daemon.folder / "journal").unlink()
    daemon.said.clear()
    daemon.serve(later)


# ---- the files ----


def test_orders_and_endings_survive_a_crash_in_the_middle_of_a_line(tmp_path: Path) -> None:
    kept = OrderArchive(tmp_path, 1000.0)
    kept.put(order(0, "a1"))
    kept.record_ends([ended(0, SiteJobState.FAILED)], 1000.0)
    with (tmp_path / "ends").open("ab") as file:
        file.write(b'{"at_s":1000,"repo')
    again = OrderArchive(tmp_path, 1001.0)
    again.record_ends([ended(1)], 1001.0)
    assert OrderArchive(tmp_path, 1002.0).ends().keys() == {attempt(0), attempt(1)}
    assert again.order(attempt(0)) == order(0, "a1")


def test_the_submission_of_who_was_told_to_leave_is_kept(tmp_path: Path) -> None:
    """It may have saved and exited 0, and is started again then."""
    kept = OrderArchive(tmp_path, 1000.0)
    for number in range(2):
        kept.put(order(number, "a1"))
    left = replace(ended(0), leave=Leave(told_at_s=900.0))
    kept.record_ends([left, ended(1)], 1000.0)
    orders = [kept.order(attempt(number)) for number in range(2)]
    assert [o.submission for o in orders if o is not None] == [
        submission(),
        Submission(components=(), script=""),
    ]


def test_nobody_reads_weeks_of_endings_for_one(tmp_path: Path) -> None:
    kept = OrderArchive(tmp_path, 1000.0)
    kept.record_ends([ended(0), ended(1)], 1000.0)
    (tmp_path / "ends").unlink()
    assert kept.ends() == {attempt(0): ended(0), attempt(1): ended(1)}


def test_a_later_attempt_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    kept = OrderArchive(tmp_path, 1000.0)
    kept.put(order(0, "a1"))
    second = replace(attempt(0), attempt=2)
    kept.put(msgspec.structs.replace(order(0, "a1"), attempt=second))
    assert kept.order(attempt(0)) is None
    assert kept.order(second) is not None
    assert len(list((tmp_path / "orders").iterdir())) == 1


def test_what_is_old_is_dropped(tmp_path: Path) -> None:
    kept = OrderArchive(tmp_path, 1000.0)
    kept.put(order(0, "a1"))
    kept.record_ends([ended(0)], 1000.0)
    written_s = (tmp_path / "orders" / "4294967296.1").stat().st_mtime
    later = OrderArchive(tmp_path, written_s + KEEP_S + 1)
    assert later.order(attempt(0)) is None
    assert not later.ends()


def test_others_cannot_read_what_users_submitted(tmp_path: Path) -> None:
    OrderArchive(tmp_path, 1000.0).put(order(0, "a1"))
    for path in (tmp_path / "orders", *(tmp_path / "orders").iterdir()):
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", "x", "1", "1.2.3", "-1.2"])
def test_strange_files_among_the_orders_do_no_harm(tmp_path: Path, name: str) -> None:
    OrderArchive(tmp_path, 1000.0)
    if name:
        (tmp_path / "orders" / name).write_text("?")
    assert OrderArchive(tmp_path, 1000.0).order(attempt(0)) is None
