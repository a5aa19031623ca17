"""The agent against a simulated Slurm, through streams in memory and in virtual time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path

import msgspec
import pytest

from federator import __version__
from federator.agent.acts import AT_ONCE
from federator.agent.base import Missing, SubmittedJob
from federator.agent.config import AgentConfig
from federator.agent.core import AgentCore
from federator.agent.effects import AgentEffect
from federator.agent.journal import Journal, JournalMark, JournalStep
from federator.agent.lost_sbatch import INTENT_HORIZON_S
from federator.agent.memory import SEEN_WITHIN_S
from federator.agent.observations import AgentObservation, Now
from federator.agent.shell import Agent
from federator.errors import SiteUnavailable, StaleState
from federator.model.reason import ReasonCode, RefusalKind
from federator.model.site import AttemptReport, NodeShare, SiteJobState
from federator.model.site_message import (
    Ask,
    AttemptAbsent,
    BidsMade,
    LaunchAccepted,
    LaunchDeclined,
    Report,
)
from federator.model.window import SiteWindow
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import (
    PROTOCOL_VERSION,
    Admission,
    CancelFailed,
    Hello,
    LaunchOrder,
    Pong,
    SnapshotAsk,
    SnapshotTaken,
    TenantCap,
    Trouble,
    unpacked,
)
from tests.fakes.agent import Daemon, ask, attempts_of, cancel, daemon, order, spooled
from tests.fakes.build import attempt, plan_on, rack

__all__ = ["daemon"]

# ---- handshake ----


def test_it_introduces_itself_and_reports_completely_first(daemon: Daemon) -> None:
    daemon.slurm.submit(attempt(), "ada", plan_on("a1"))

    async def script() -> None:
        pass

    daemon.serve(script)
    hello, report = daemon.said[:2]
    assert hello == Hello(
        protocol=PROTOCOL_VERSION,
        site="alpine",
        slurm_version="25.05.3",
        answers=(
            *("checkpoint", "copy", "limit", "names", "nodes", "objects", "output", "remove"),
            *("shadow", "signal", "tenure", "usage", "usage-end", "users"),
        ),
        release=__version__,
    )
    assert isinstance(report, Report)
    assert report.complete
    assert attempts_of(report) == [attempt()]
    assert report.capacity is not None
    assert report.partitions[0].gpus == 32


def test_later_reports_tell_only_what_is_new(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.slurm.submit(attempt(), "ada", plan_on("a1"))
        second = await daemon.wait_for(Report, 2)
        assert (second.complete, attempts_of(second), second.capacity) == (
            False,
            [attempt()],
            None,
        )
        await asyncio.sleep(60.0)
        assert len(daemon.heard(Report)) == 2
        daemon.slurm.forget(attempt())
        await daemon.wait_for(Report, 4)  # what came free, and what is gone
        assert [report.gone for report in daemon.heard(Report)[2:]] == [(), (attempt(),)]

    daemon.serve(script)


def test_an_older_epoch_is_refused(daemon: Daemon) -> None:
    async def script() -> None:
        pass

    daemon.epoch = 2
    daemon.serve(script)
    daemon.serve(script)
    assert [(h.last_epoch, h.federation) for h in daemon.heard(Hello)] == [(0, ""), (2, "ours")]
    daemon.epoch = 1
    daemon.said.clear()
    with pytest.raises(StaleState, match="epoch 1 is over"):
        daemon.serve(script)
    assert not daemon.heard(Report)


def test_it_answers_pings_and_says_how_old_its_last_sweep_is(daemon: Daemon) -> None:
    async def script() -> None:
        await daemon.wait_for(Pong, 3)

    daemon.serve(script)
    ages_s = [pong.sweep_age_s for pong in daemon.heard(Pong)]
    assert all(age_s == -1 or 0 <= age_s <= 10 for age_s in ages_s)
    assert max(ages_s) >= 0


# ---- launches ----


def test_a_launch_order_submits_once_and_says_the_job_id(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.tell(order())
        accepted = await daemon.wait_for(LaunchAccepted)
        assert (accepted.attempt, accepted.site_job_id) == (attempt(), 101)

    daemon.serve(script)
    assert daemon.site.submitted == [attempt()]


def test_the_same_order_twice_submits_once(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.tell(order())
        daemon.tell(order())
        second = await daemon.wait_for(LaunchAccepted, 2)
        assert second.site_job_id == 101

    daemon.serve(script)
    daemon.serve(script)  # and again after the agent was restarted
    assert daemon.site.submitted == [attempt()]


def test_where_a_job_works_is_told_with_its_id_again_and_with_each_report(daemon: Daemon) -> None:
    daemon.site.work_dir = "/home/ada"

    async def script() -> None:
        daemon.tell(order())
        first = await daemon.wait_for(LaunchAccepted)
        daemon.tell(order())
        second = await daemon.wait_for(LaunchAccepted, 2)
        assert first.work_dir == second.work_dir == "/home/ada"
        await daemon.wait_for(Report, 2)

    daemon.serve(script)
    told = {r.work_dir for report in daemon.heard(Report) for r in report.attempts}
    assert told == {"/home/ada"}


def test_a_lost_sbatch_reply_is_found_in_slurm_and_not_submitted_again(daemon: Daemon) -> None:
    daemon.site.reply_is_lost = True

    async def script() -> None:
        daemon.tell(order())
        accepted = await daemon.wait_for(LaunchAccepted)
        assert accepted.site_job_id == 101

    daemon.serve(script)
    assert daemon.site.submitted == [attempt()]


def test_an_agent_that_died_in_sbatch_looks_the_attempt_up(daemon: Daemon, tmp_path: Path) -> None:
    Journal(tmp_path, 0.0).put(
        attempt(), JournalMark(step=JournalStep.INTENT, user="ada", at_s=daemon.clock())
    )
    daemon.slurm.submit(attempt(), "ada", plan_on("a1"))

    async def script() -> None:
        daemon.tell(order())
        accepted = await daemon.wait_for(LaunchAccepted)
        assert accepted.site_job_id == 101

    daemon.serve(script)
    assert daemon.site.submitted == []


def test_a_job_that_a_dead_agent_had_not_heard_of_is_noted_as_soon_as_it_is_seen(
    daemon: Daemon, tmp_path: Path
) -> None:
    """Without an order: its user may rename it before one comes."""
    Journal(tmp_path, 0.0).put(
        attempt(), JournalMark(step=JournalStep.INTENT, user="ada", at_s=daemon.clock())
    )
    daemon.slurm.submit(attempt(), "ada", plan_on("a1"))
    daemon.serve(lambda: asyncio.sleep(1.0))
    mark = Journal(tmp_path, daemon.clock()).index.get(attempt())
    assert mark is not None
    assert (mark.step, mark.job_id) == (JournalStep.JOB, 101)


def test_a_job_of_another_user_with_the_same_comment_is_not_taken_for_the_attempt(
    daemon: Daemon, tmp_path: Path
) -> None:
    Journal(tmp_path, 0.0).put(
        attempt(), JournalMark(step=JournalStep.INTENT, user="ada", at_s=daemon.clock() - 3600.0)
    )
    daemon.slurm.submit(attempt(), "mallory", plan_on("a4"))

    async def script() -> None:
        daemon.tell(order())
        await daemon.wait_for(LaunchDeclined)

    daemon.serve(script)
    assert not daemon.heard(LaunchAccepted)


def test_what_was_begun_and_cannot_be_found_is_never_submitted_again(
    daemon: Daemon, tmp_path: Path
) -> None:
    """slurmctld may have lost a job that ran, or an sbatch may come late: another attempt goes."""
    intent = JournalMark(step=JournalStep.INTENT, user="ada", at_s=daemon.clock())
    Journal(tmp_path, 0.0).put(attempt(), intent)

    async def script() -> None:
        for count in (1, 2):
            daemon.tell(order())
            declined = await daemon.wait_for(LaunchDeclined, count)
            assert (declined.attempt, daemon.site.submitted) == (attempt(), [])

    daemon.serve(script)
    mark = Journal(tmp_path, daemon.clock()).index.get(attempt())
    assert mark is not None
    assert mark.step is JournalStep.VOID


def test_an_order_that_never_reached_slurm_is_given_up_only_when_that_is_certain(
    daemon: Daemon,
) -> None:
    daemon.site.order_is_lost = True

    async def script() -> None:
        began_s = daemon.clock()
        daemon.tell(order())
        await daemon.wait_for(LaunchDeclined)
        assert daemon.clock() - began_s >= INTENT_HORIZON_S
        daemon.site.order_is_lost = False
        daemon.tell(order())
        await daemon.wait_for(LaunchDeclined, 2)

    daemon.serve(script)
    assert daemon.site.submitted == []


def test_an_agent_whose_daemon_is_gone_does_not_stay_to_search_for_a_lost_sbatch(
    daemon: Daemon, tmp_path: Path
) -> None:
    """The next agent waits for it to end, and a cancel of another job with it."""
    daemon.site.order_is_lost = True

    async def script() -> None:
        daemon.tell(order())
        await asyncio.sleep(5.0)

    began_s = daemon.clock()
    daemon.serve(script)
    assert daemon.clock() - began_s < INTENT_HORIZON_S / 2
    mark = Journal(tmp_path, daemon.clock()).index.get(attempt())
    assert mark is not None
    assert mark.step is JournalStep.INTENT  # so the next one searches


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Invalid qos specification", ReasonCode.SBATCH_REFUSED),
        ("Requested node configuration is not available", ReasonCode.PLAN_REFUSED),
        ("Partition in DOWN state", ReasonCode.LAUNCH_REFUSED),
    ],
)
def test_a_refusal_of_sbatch_is_passed_on_in_its_own_words(
    daemon: Daemon, words: str, code: ReasonCode
) -> None:
    daemon.site.refusal = f"sbatch: error: Batch job submission failed: {words}"

    async def script() -> None:
        daemon.tell(order())
        declined = await daemon.wait_for(LaunchDeclined)
        assert words in declined.reason.detail
        assert declined.reason.code is code

    daemon.serve(script)
    assert daemon.slurm.jobs == {}


def test_a_plan_that_a_local_user_overtook_is_declined_unsubmitted(daemon: Daemon) -> None:
    daemon.slurm.take_locally("a1", NodeShare(gpus=1))

    async def script() -> None:
        daemon.tell(order())
        declined = await daemon.wait_for(LaunchDeclined)
        assert "a1" in declined.reason.detail

    daemon.serve(script)
    assert daemon.site.submitted == []


def test_two_orders_for_the_same_node_do_not_both_go_through(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.tell(order(0, "a1"))
        daemon.tell(order(1, "a1"))
        await daemon.wait_for(LaunchAccepted)
        declined = await daemon.wait_for(LaunchDeclined)
        assert declined.attempt == attempt(1)

    daemon.serve(script)


# ---- cancels ----


def test_a_cancelled_attempt_is_refused_for_ever_after(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.tell(cancel())
        absent = await daemon.wait_for(AttemptAbsent)
        assert absent.attempt == attempt()
        daemon.tell(order())
        await daemon.wait_for(LaunchDeclined)

    async def after_a_restart() -> None:
        daemon.tell(order())
        await daemon.wait_for(LaunchDeclined, 2)

    daemon.serve(script)
    daemon.serve(after_a_restart)
    assert daemon.site.submitted == []


def test_a_cancel_right_behind_its_order_ends_the_job(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.tell(order())
        daemon.tell(cancel())
        await asyncio.sleep(1.0)
        assert not daemon.slurm.live()

    daemon.serve(script)


def test_a_withdrawal_spares_what_has_started(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.tell(order())
        accepted = await daemon.wait_for(LaunchAccepted)
        daemon.tell(cancel(0, accepted.site_job_id, pending_only=True))
        await asyncio.sleep(30.0)
        assert daemon.slurm.live()
        daemon.tell(cancel(0, accepted.site_job_id))
        await asyncio.sleep(30.0)
        assert not daemon.slurm.live()

    daemon.serve(script)


def test_a_cancel_of_what_slurm_has_forgotten_is_answered_with_how_it_ended(
    daemon: Daemon,
) -> None:
    async def its_end_is_seen() -> None:
        daemon.tell(order())
        await daemon.wait_for(LaunchAccepted)
        daemon.slurm.end(attempt())
        await asyncio.sleep(30.0)

    async def and_forgotten() -> None:
        daemon.tell(cancel(0, job_id))
        await asyncio.sleep(10.0)
        told = [r.state for report in daemon.heard(Report) for r in report.attempts]
        assert told == [SiteJobState.COMPLETED]
        assert not daemon.heard(AttemptAbsent)

    daemon.serve(its_end_is_seen)
    job_id = daemon.heard(LaunchAccepted)[0].site_job_id
    daemon.slurm.forget(attempt())
    daemon.slurm.accounts.clear()
    daemon.said.clear()
    daemon.serve(and_forgotten)


def test_a_cancel_of_what_a_dead_agent_submitted_and_slurm_forgot_tells_how_it_ended(
    daemon: Daemon,
) -> None:
    """The journal holds no job id, and no cancel can be made; sacct knows all the same."""
    intent = JournalMark(step=JournalStep.INTENT, user="ada", at_s=daemon.clock())
    Journal(daemon.folder, 0.0).put(attempt(), intent)
    daemon.slurm.submit(attempt(), "ada", plan_on("a1"))
    daemon.slurm.end(attempt())
    daemon.slurm.forget(attempt())
    daemon.site.keeps_accounts = True

    async def script() -> None:
        daemon.tell(cancel(0))
        await asyncio.sleep(INTENT_HORIZON_S + 15.0)
        told = [r.state for report in daemon.heard(Report) for r in report.attempts]
        assert told == [SiteJobState.COMPLETED]
        assert not daemon.heard(AttemptAbsent)

    daemon.serve(script)


def test_a_cancel_of_a_job_whose_id_has_come_again_ends_nobody_else(daemon: Daemon) -> None:
    """slurmctld has lost its state; an order repeated for the old job names its id."""
    old = JournalMark(step=JournalStep.JOB, user="ada", at_s=daemon.clock() - 3600.0, job_id=101)
    Journal(daemon.folder, 0.0).put(attempt(1), old)

    async def script() -> None:
        daemon.tell(order())
        assert (await daemon.wait_for(LaunchAccepted)).site_job_id == 101
        daemon.tell(cancel(1, 101))
        await asyncio.sleep(10.0)
        assert [r.gone for r in daemon.heard(Report) if r.gone] == [(attempt(1),)]
        assert [job.attempt for job in daemon.slurm.live()] == [attempt()]

    daemon.serve(script)


@pytest.mark.parametrize("pending_only", [False, True])
def test_a_cancel_of_a_job_that_its_user_has_renamed_is_answered(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, pending_only: bool
) -> None:
    """Its job goes by another comment, so no sweep shows the attempt, before or after."""

    async def script() -> None:
        daemon.tell(order())
        accepted = await daemon.wait_for(LaunchAccepted)
        monkeypatch.setattr(daemon.slurm, "reports", tuple)
        await asyncio.sleep(SEEN_WITHIN_S + 10.0)
        daemon.said.clear()
        daemon.tell(cancel(0, accepted.site_job_id, pending_only))
        await asyncio.sleep(10.0)
        assert [r.gone for r in daemon.heard(Report) if r.gone] == [(attempt(),)]

    daemon.serve(script)


def test_a_cancel_does_not_call_gone_what_a_sweep_may_not_have_shown_yet(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon.slurm, "reports", tuple)

    async def script() -> None:
        daemon.tell(order())
        await daemon.wait_for(LaunchAccepted)
        daemon.tell(cancel(0))
        await asyncio.sleep(SEEN_WITHIN_S / 2)
        assert not any(report.gone for report in daemon.heard(Report))
        assert not daemon.heard(AttemptAbsent)

    daemon.serve(script)


def test_a_refused_scancel_is_told(daemon: Daemon) -> None:
    daemon.slurm.refuses_cancels = True

    async def script() -> None:
        daemon.tell(cancel(0, 77))
        failed = await daemon.wait_for(CancelFailed)
        assert "scancel" in failed.detail

    daemon.serve(script)


# ---- bids ----


def test_it_bids_in_order_on_fresh_nodes(daemon: Daemon) -> None:
    async def script() -> None:
        await asyncio.sleep(5.0)
        daemon.slurm.take_locally("a1", NodeShare(gpus=8))
        daemon.tell(ask(7, 2, 2, 1))
        bids = await daemon.wait_for(BidsMade)
        assert bids.pass_id == 7
        assert [a.bid is not None for a in bids.answers] == [True, False, True]

    daemon.serve(script)


def test_it_keeps_room_for_whom_the_daemon_names(daemon: Daemon) -> None:
    """Of four nodes one is free, one comes free in a minute; the others are held for longer."""

    async def script() -> None:
        daemon.slurm.submit(attempt(1), "ada", plan_on("a1"), 60.0)
        daemon.slurm.submit(attempt(2), "ada", plan_on("a2", "a3"), 600.0)
        await asyncio.sleep(2.0)  # a bid is made on a sweep no older than 1 s
        (blocked,) = ask(0, 2).requests
        longer = tuple(
            msgspec.structs.replace(r, id=100 + k, time_limit_s=limit_s)
            for k, (r, limit_s) in enumerate(zip(ask(0, 1, 1).requests, (59.0, 57.0), strict=True))
        )
        daemon.tell(Ask(pass_id=1, requests=longer, reserve=blocked, reserving=True))
        late, in_time = (await daemon.wait_for(BidsMade)).answers
        assert late.refusal is not None
        assert late.refusal.reasons[0].code is ReasonCode.RESERVED
        assert in_time.bid is not None

    daemon.serve(script)


MAINTENANCE = SiteWindow(name="m", starts_at_s=2e9, ends_at_s=3e9, nodes=("a1", "a2", "a3", "a4"))


def test_what_admins_change_is_told_within_two_seconds(daemon: Daemon) -> None:
    async def script() -> None:
        first = daemon.heard(Report)[0]
        assert first.windows == ()
        await asyncio.sleep(15.3)
        reports = len(daemon.heard(Report))
        daemon.site.windows = (MAINTENANCE,)
        await asyncio.sleep(2.0)
        (report,) = daemon.heard(Report)[reports:]
        assert report.windows == (MAINTENANCE,)
        daemon.site.windows = ()
        await asyncio.sleep(2.0)
        assert daemon.heard(Report)[-1].windows == ()
        assert daemon.heard(Report)[-1].freed > report.freed

    daemon.serve(script)


def test_a_slow_slurm_is_looked_at_less_often(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def slow() -> bool:
        nonlocal looks
        looks += 1
        await asyncio.sleep(3.0)
        raise SiteUnavailable("slurmctld does not answer")

    monkeypatch.setattr(daemon.site, "settings_changed", slow)

    async def script() -> None:
        await asyncio.sleep(60.0)
        assert looks == 4  # each takes 3 s, and then it is left alone for 12 s

    daemon.serve(script)


def test_a_job_without_a_limit_does_not_start_before_a_maintenance(daemon: Daemon) -> None:
    daemon.site.windows = (MAINTENANCE,)

    async def script() -> None:
        (brief, endless) = ask(0, 1, 1).requests
        brief = msgspec.structs.replace(brief, time_limit_s=60.0)
        endless = msgspec.structs.replace(endless, id=101, time_limit_s=inf)
        daemon.tell(Ask(pass_id=1, requests=(endless, brief)))
        no, yes = (await daemon.wait_for(BidsMade)).answers
        assert no.refusal is not None
        assert no.refusal.reasons[0].code is ReasonCode.SITE_RESERVATION
        assert yes.bid is not None

    daemon.serve(script)


def test_it_shows_what_it_bids_on(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.tell(order(0, "a1"))
        await daemon.wait_for(LaunchAccepted)
        daemon.tell(SnapshotAsk(ask_id=7))
        taken = await daemon.wait_for(SnapshotTaken)
        shown = unpacked(taken.snapshot)
        assert (taken.ask_id, shown.site) == (7, "alpine")
        assert [node.gpus_alloc for node in shown.nodes] == [8, 0, 0, 0]  # held or seen

    daemon.serve(script)


def test_what_it_has_accepted_is_not_offered_again(daemon: Daemon) -> None:
    daemon.slurm.starts_jobs = False

    async def script() -> None:
        daemon.tell(order(0, "a1", "a2", "a3"))
        await daemon.wait_for(LaunchAccepted)
        await asyncio.sleep(30.0)
        daemon.tell(ask(1, 2, 1))
        bids = await daemon.wait_for(BidsMade)
        assert [a.bid is not None for a in bids.answers] == [False, True]

    daemon.serve(script)


def test_a_user_without_an_account_at_the_site_is_rejected_there(daemon: Daemon) -> None:
    async def script() -> None:
        (known,) = ask(1, 1).requests
        stranger = msgspec.structs.replace(known, id=9, user="stranger")
        daemon.tell(Ask(pass_id=1, requests=(stranger, known)))
        bids = await daemon.wait_for(BidsMade)
        answers = {int(a.id): a for a in bids.answers}
        assert answers[0].bid is not None
        refusal = answers[9].refusal
        assert refusal is not None
        assert refusal.kind is RefusalKind.REJECT
        assert refusal.reasons[0].code is ReasonCode.UNKNOWN_USER

    daemon.serve(script)


# ---- trouble ----


def test_trouble_is_told_and_after_it_everything_again(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.tell(order())
        await daemon.wait_for(Report, 2)
        daemon.site.down = True
        trouble = await daemon.wait_for(Trouble)
        assert "slurmctld" in trouble.detail
        daemon.site.down = False
        told = len(daemon.heard(Report))
        report = await daemon.wait_for(Report, told + 1)
        assert report.complete
        assert attempts_of(report) == [attempt()]
        assert report.capacity is not None

    daemon.serve(script)


def test_a_node_that_changes_for_good_changes_the_capacity_told(daemon: Daemon) -> None:
    async def script() -> None:
        (extra,) = rack("b", 1)
        daemon.slurm.hardware.add(replace(extra, gpus=4))
        report = await daemon.wait_for(Report, 2)
        assert report.capacity is not None
        assert len(report.capacity.nodes) == 5

    daemon.serve(script)


def test_many_cancels_are_made_a_few_at_a_time_and_a_repeated_one_once(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most, calls = 0, 0, 0

    async def slow(user: str, job_id: int, *, pending_only: bool) -> bool:
        nonlocal running, most, calls
        running, calls = running + 1, calls + 1
        most = max(most, running)
        await asyncio.sleep(5.0)
        running -= 1
        return False

    monkeypatch.setattr(daemon.site, "cancel", slow)

    async def script() -> None:
        for _ in range(2):  # the daemon repeats what it has not heard of for ten seconds
            for k in range(40):
                daemon.tell(cancel(k, job_id=1000 + k))
        await daemon.wait_for(AttemptAbsent, 40)

    daemon.serve(script)
    assert most == AT_ONCE["cancel"]
    assert calls == 40


# ---- its spool ----


def leases(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "leases"))


def test_a_submission_has_its_ticket_and_its_lease_and_leaves_the_lease_alone(
    daemon: Daemon,
) -> None:
    folder = spooled(daemon)
    found: list[tuple[str, list[str]]] = []

    def look(_attempt: AttemptId, token: str) -> None:
        found.append(((folder / "tickets" / token).read_text(), leases(folder)))

    daemon.site.on_launch = look

    async def script() -> None:
        daemon.tell(order())
        await daemon.wait_for(LaunchAccepted)
        ((ticket, leased),) = found
        assert ticket.startswith(f"{attempt()} ada ")
        assert leased == leases(folder) == [f"{attempt().workload}.1"]
        assert not os.listdir(folder / "tickets")

    daemon.serve(script)


def test_a_job_whose_sbatch_was_not_heard_of_and_that_was_renamed_is_found_by_its_lease(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sweep names the attempt, so that its lease alone keeps it from starting a second time."""
    folder = spooled(daemon)
    daemon.site.reply_is_lost = True
    monkeypatch.setattr(daemon.slurm, "reports", tuple)

    def starts(_: AttemptId, _token: str) -> None:
        (folder / "leases" / f"{attempt().workload}.1.job").write_text("alpine 101\n")

    daemon.site.on_launch = starts

    async def script() -> None:
        daemon.tell(order())
        assert (await daemon.wait_for(LaunchAccepted)).site_job_id == 101
        daemon.tell(order())
        await daemon.wait_for(LaunchAccepted, 2)

    daemon.serve(script)
    assert daemon.site.submitted == [attempt()]
    assert not daemon.heard(LaunchDeclined)


def test_a_job_whose_sbatch_was_not_heard_of_and_that_was_renamed_is_found_in_accounts(
    daemon: Daemon,
) -> None:
    """They have the line that it was submitted with. Known by its id, it is shown from then on."""
    daemon.site.reply_is_lost = daemon.site.keeps_accounts = True
    daemon.site.renamed = {101}

    async def script() -> None:
        daemon.tell(order())
        assert (await daemon.wait_for(LaunchAccepted)).site_job_id == 101
        await asyncio.sleep(20.0)
        (told,) = daemon.heard(Report)[-1].attempts
        assert (told.attempt, told.state) == (attempt(), SiteJobState.RUNNING)
        assert not any(report.gone for report in daemon.heard(Report))

    daemon.serve(script)
    assert daemon.site.submitted == [attempt()]


def test_a_job_that_accounts_alone_say_lives_was_lost(daemon: Daemon) -> None:
    """slurmdbd does not hear that slurmctld has lost its state."""
    daemon.site.order_is_lost = daemon.site.keeps_accounts = True
    daemon.slurm.accounts[attempt()] = AttemptReport(
        attempt=attempt(), user="ada", site_job_id=101, state=SiteJobState.RUNNING
    )

    async def script() -> None:
        daemon.tell(order())
        await daemon.wait_for(LaunchDeclined)
        await asyncio.sleep(20.0)
        assert not daemon.heard(LaunchAccepted)

    daemon.serve(script)


def test_what_a_later_sweep_shows_is_not_called_gone(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accounts are asked meanwhile, which may take long."""
    ends_of = daemon.site.ends_of

    async def slowly(missing: Collection[Missing]) -> Mapping[AttemptId, AttemptReport]:
        await asyncio.sleep(15.0)
        return await ends_of(missing)

    monkeypatch.setattr(daemon.site, "ends_of", slowly)

    async def script() -> None:
        daemon.tell(order())
        await daemon.wait_for(LaunchAccepted)
        await asyncio.sleep(SEEN_WITHIN_S)
        with monkeypatch.context() as hidden:
            hidden.setattr(daemon.slurm, "reports", tuple)  # a backup controller is behind
            await asyncio.sleep(11.0)
        await asyncio.sleep(40.0)
        assert not any(report.gone for report in daemon.heard(Report))

    daemon.serve(script)


def test_what_is_declined_or_absent_has_no_lease_when_the_daemon_hears_of_it(
    daemon: Daemon,
) -> None:
    """So that an sbatch which slips through all the same starts nothing."""
    folder = spooled(daemon)
    daemon.site.order_is_lost = True

    async def script() -> None:
        daemon.tell(order())
        await asyncio.sleep(1.0)
        assert leases(folder)  # it may still come
        await daemon.wait_for(LaunchDeclined)
        assert not leases(folder)
        daemon.slurm.submit(attempt(), "ada", plan_on("a1"))  # it slips through
        await asyncio.sleep(30.0)
        assert not leases(folder)

    daemon.serve(script)


def test_an_attempt_is_not_given_up_while_a_lease_of_it_cannot_be_removed(
    daemon: Daemon,
) -> None:
    """It restarted while its spool did not answer, and so does not know which leases there are."""
    folder = spooled(daemon)

    async def look_again() -> None:
        daemon.tell(order())
        await asyncio.sleep(INTENT_HORIZON_S + 15.0)
        assert not daemon.heard(LaunchDeclined)  # its lease is there: it may start
        daemon.spool_hangs = False
        await daemon.wait_for(LaunchDeclined)

    (folder / "leases").mkdir()
    (folder / "leases" / f"{attempt().workload}.1").write_text("{}")
    Journal(daemon.folder, 0.0).put(
        attempt(), JournalMark(step=JournalStep.INTENT, user="ada", at_s=0.0)
    )
    daemon.spool_hangs = True
    daemon.serve(look_again)


def test_what_starts_before_its_lease_could_be_taken_away_is_accepted(daemon: Daemon) -> None:
    spooled(daemon)
    daemon.site.order_is_lost = True

    async def script() -> None:
        daemon.tell(order())
        await asyncio.sleep(1.0)
        daemon.spool_hangs = True
        await asyncio.sleep(INTENT_HORIZON_S + 15.0)
        daemon.slurm.submit(attempt(), "ada", plan_on("a1"))  # it slips through
        assert (await daemon.wait_for(LaunchAccepted)).site_job_id == 101

    daemon.serve(script)
    assert not daemon.heard(LaunchDeclined)


def test_a_job_that_is_withdrawn_keeps_its_lease_until_it_has_ended(daemon: Daemon) -> None:
    """The withdrawal may be too late, and then it runs on as the same attempt."""
    folder = spooled(daemon)
    daemon.slurm.starts_jobs = False

    async def script() -> None:
        daemon.tell(order())
        accepted = await daemon.wait_for(LaunchAccepted)
        daemon.slurm.refuses_cancels = True
        daemon.tell(cancel(job_id=accepted.site_job_id, pending_only=True))
        await asyncio.sleep(15.0)
        assert leases(folder)
        daemon.slurm.refuses_cancels = False
        daemon.tell(cancel(job_id=accepted.site_job_id, pending_only=True))
        await asyncio.sleep(15.0)
        assert not leases(folder)

    daemon.serve(script)


def test_with_a_spool_that_cannot_be_used_nothing_is_launched_or_bid_for(daemon: Daemon) -> None:
    """The site's gate would end what starts without a lease. Other sites are tried."""
    daemon.spool = str(daemon.folder / "none")

    async def script() -> None:
        daemon.tell(order())
        declined = await daemon.wait_for(LaunchDeclined)
        assert declined.reason.code is ReasonCode.LAUNCH_REFUSED
        assert daemon.spool in declined.reason.detail
        assert not daemon.site.submitted
        daemon.tell(ask(1, 1))
        (answer,) = (await daemon.wait_for(BidsMade)).answers
        assert answer.refusal is not None
        assert answer.refusal.kind is RefusalKind.WAIT
        assert daemon.spool in answer.refusal.reasons[0].detail
        assert any("no such folder" in p for r in daemon.heard(Report) for p in r.problems)
        Path(daemon.spool).mkdir()  # it is mended
        await asyncio.sleep(30.0)
        daemon.tell(ask(2, 1))
        (answer,) = (await daemon.wait_for(BidsMade, 2)).answers
        assert answer.bid is not None

    daemon.serve(script)


def test_admission_figures_are_written_with_the_federations_gpu_models(daemon: Daemon) -> None:
    folder = spooled(daemon)

    async def script() -> None:
        cap = TenantCap(name="vision", limit_gpus=64, used_gpus=8)
        daemon.tell(Admission(tenants=(cap,)))
        await asyncio.sleep(1.0)
        assert (folder / "admission.tsv").read_text().endswith("tenant\tvision\t64\t8\n")

    daemon.serve(script)


def test_a_spool_is_named_by_an_absolute_path() -> None:
    text = b"{site: a, socket: /s, state_dir: /d, spool_dir: spool}"
    with pytest.raises(msgspec.ValidationError, match="spool_dir: expected an absolute path"):
        msgspec.yaml.decode(text, type=AgentConfig)


def test_a_clock_that_is_set_while_the_agent_looks_at_slurm_does_not_keep_it_from_looking_again(
    daemon: Daemon,
) -> None:
    """It rests for four times as long as a look takes, which here is not ten minutes."""

    async def script() -> None:
        daemon.site.sweep_takes_s = 1.0
        await asyncio.sleep(10.5)  # into the next look
        daemon.clock_is_ahead_s = 600.0
        await asyncio.sleep(1.0)
        daemon.site.sweep_takes_s = 0.0
        daemon.tell(order(0, "a1"))
        await daemon.wait_for(LaunchAccepted)
        await asyncio.sleep(30.0)
        assert daemon.heard(Report)[-1].attempts[0].site_job_id

    daemon.serve(script)


def test_a_clock_that_is_set_forward_does_not_make_an_sbatch_seem_over(daemon: Daemon) -> None:
    """Its answer was lost; it may be on its way for as long as the helper lets it."""

    async def script() -> None:
        daemon.site.order_is_lost = True
        began_s = daemon.clock()
        daemon.tell(order(0, "a1"))
        await asyncio.sleep(2.0)
        daemon.clock_is_ahead_s = 600.0
        await daemon.wait_for(LaunchDeclined)
        assert daemon.clock() - began_s >= INTENT_HORIZON_S

    daemon.serve(script)


def test_timers_that_fire_early_do_not_stop_an_agent(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 39259: a timer fired before its time, was set again for it, and fired, for ever."""

    def early(self: Agent) -> Now:
        return Now(self._clock(), asyncio.get_running_loop().time() - 0.001)

    monkeypatch.setattr(Agent, "_now", early)

    async def script() -> None:
        daemon.slurm.submit(attempt(), "ada", plan_on("a1"))
        await asyncio.sleep(60.0)

    daemon.serve(script)
    assert attempts_of(daemon.heard(Report)[-1]) == [attempt()]


def test_an_sbatch_under_way_is_let_finish_when_the_agent_fails(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off, nobody would know whether there is a job; so the next agent finds it, whole."""
    launch, handle = daemon.site.launch, AgentCore.handle

    async def slow(order_: LaunchOrder, ticket: str = "", start_line: str = "") -> SubmittedJob:
        await asyncio.sleep(6.0)
        return await launch(order_, ticket, start_line)

    def failing(self: AgentCore, observation: AgentObservation, now: Now) -> list[AgentEffect]:
        if daemon.clock() > began_s + 5.0:
            raise KeyError("planted")
        return handle(self, observation, now)

    async def script() -> None:
        daemon.tell(order(0, "a1"))
        await asyncio.sleep(60.0)

    began_s = daemon.clock()
    monkeypatch.setattr(daemon.site, "launch", slow)
    monkeypatch.setattr(AgentCore, "handle", failing)
    with pytest.raises(KeyError, match="planted"):
        daemon.serve(script)
    assert daemon.site.submitted == [attempt()]
    assert daemon.heard(LaunchAccepted) == []  # nobody was left to say so
