"""An agent joins what its accounts and its nodes know, and forgets reports once they are told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from federator.agent.base import CheckpointStatus, Missing, RankTimes
from federator.agent.services import measurements as module
from federator.agent.services.measurements import Measurements
from federator.agent.spool import Spool
from federator.errors import SiteRefused, SiteUnavailable
from federator.model.site import AttemptReport
from federator.model.tagged import Message
from federator.model.workload import AttemptId, WorkloadId
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob, PreemptOrder, UsageAsk, UsageTaken

pytestmark = pytest.mark.asyncio
CPU = MeasuredUse(cpu_s=9.0, gpu_util_frac=1.0, gpu_mem_mib=5.0)


def job(id_: int) -> EndedJob:
    attempt = AttemptId(workload=WorkloadId(2**32 + id_), attempt=1)
    return EndedJob(attempt=attempt, user="ada", site_job_id=id_, started_at_s=1.0)


class Accounts:
    """Of some jobs."""

    async def ends_of(self, missing: Collection[Missing]) -> Mapping[AttemptId, AttemptReport]:
        raise NotImplementedError

    def __init__(self) -> None:
        self.known: dict[int, MeasuredUse] = {}
        self.away = False

    async def use_of(self, jobs: Sequence[EndedJob]) -> list[MeasuredUse | None]:
        if self.away:
            raise SiteUnavailable("away")
        return [self.known.get(each.site_job_id) for each in jobs]


class Reports(Spool):
    """What nodes have left."""

    def __init__(self) -> None:
        self.left: dict[int, MeasuredUse] = {}
        self.removed: list[set[int]] = []

    async def usage_of(self, jobs: Collection[EndedJob]) -> dict[AttemptId, MeasuredUse]:
        known = {each.attempt: self.left.get(each.site_job_id) for each in jobs}
        return {attempt: use for attempt, use in known.items() if use is not None}

    async def remove_usage(self, jobs: Collection[EndedJob]) -> None:
        self.removed.append({each.site_job_id for each in jobs})


class Folders:
    """The notes that jobs have left in their folders."""

    def __init__(self) -> None:
        self.notes: dict[str, CheckpointStatus] = {}
        self.locked = ""  # whose are not to be read
        self.broken = ""  # whose cannot be read now
        self.hung = ""  # whose do not answer
        self.asked: list[str] = []

    async def read_checkpoint_status(
        self, user: str, orders: Sequence[PreemptOrder | EndedJob]
    ) -> list[CheckpointStatus]:
        self.asked.append(user)
        if user == self.locked:
            raise SiteRefused("not for this user")
        if user == self.broken:
            raise SiteUnavailable("the folders do not answer")
        if user == self.hung:
            await asyncio.Event().wait()
        return [self.notes.get(order.checkpoint_dir, CheckpointStatus()) for order in orders]


async def told(
    accounts: Accounts, reports: Reports, *asks: tuple[int, ...]
) -> list[tuple[MeasuredUse | None, ...]]:
    sent: list[Message] = []
    measurements = Measurements(accounts, Folders(), reports, sent.append)
    for number, ids in enumerate(asks):
        await measurements.tell(UsageAsk(ask_id=number, jobs=tuple(map(job, ids))))
    answers = [message for message in sent if isinstance(message, UsageTaken)]
    assert [answer.ask_id for answer in answers] == list(range(len(asks)))
    return [answer.used for answer in answers]


def with_notes(id_: int, user: str = "ada") -> EndedJob:
    return msgspec.structs.replace(job(id_), user=user, checkpoint_dir=f"/s/{id_}")


async def answered(
    measurements: Measurements, sent: list[Message], *jobs: EndedJob
) -> tuple[tuple[MeasuredUse | None, ...], tuple[int, ...]]:
    await measurements.tell(UsageAsk(ask_id=1, jobs=jobs))
    answer = sent.pop()
    assert isinstance(answer, UsageTaken)
    return answer.used, answer.again


async def test_a_nodes_word_on_gpus_goes_before_that_of_the_accounts() -> None:
    accounts, reports = Accounts(), Reports()
    accounts.known = {1: CPU, 2: CPU}
    reports.left = {2: MeasuredUse(gpu_util_frac=0.25), 3: MeasuredUse(gpu_mem_mib=7.0)}
    assert await told(accounts, reports, (1, 2, 3, 4)) == [
        (
            CPU,
            MeasuredUse(cpu_s=9.0, gpu_util_frac=0.25, gpu_mem_mib=5.0),
            MeasuredUse(gpu_mem_mib=7.0),
            None,
        )
    ]


async def test_accounts_that_are_away_know_nothing() -> None:
    accounts = Accounts()
    accounts.away = True
    assert await told(accounts, Reports(), (1,)) == [(None,)]


async def test_reports_go_when_the_daemon_asks_about_others() -> None:
    accounts, reports = Accounts(), Reports()
    accounts.known = dict.fromkeys(range(1, 5), CPU)
    await told(accounts, reports, (1, 2), (2, 3), (4,))
    assert reports.removed == [set(), {1}, {2, 3}]


async def test_what_a_job_notes_of_its_steps_is_told_unless_it_is_of_an_earlier_run() -> None:
    accounts, folders, sent = Accounts(), Folders(), list[Message]()
    accounts.known = {1: CPU}
    folders.notes = {
        "/s/1": CheckpointStatus(ready_at_s=130.0, save_s=7.0),
        "/s/2": CheckpointStatus(ready_at_s=110.0),
        "/s/3": CheckpointStatus(ready_at_s=99.0, save_s=7.0),
    }
    jobs = [
        msgspec.structs.replace(job(k), started_at_s=100.0, checkpoint_dir=f"/s/{k}")
        for k in (1, 2, 3, 4)
    ]
    jobs.append(msgspec.structs.replace(job(5), user="eve", checkpoint_dir="/s/1"))
    folders.locked = "eve"
    measurements = Measurements(accounts, folders, Reports(), sent.append)
    await measurements.tell(UsageAsk(ask_id=1, jobs=tuple(jobs)))
    (answer,) = sent
    assert isinstance(answer, UsageTaken)
    assert answer.used == (
        msgspec.structs.replace(CPU, ready_s=30.0, save_s=7.0),
        MeasuredUse(ready_s=10.0, save_s=0.0),
        None,
        None,
        None,
    )


async def test_what_ranks_do_in_a_step_is_told_with_the_rest() -> None:
    folders, sent = Folders(), list[Message]()
    ranks = RankTimes(ranks=8, step_s=2.0, load_s=0.5, own_least_s=1.0, own_most_s=1.5, slowest=3)
    folders.notes = {"/s/1": CheckpointStatus(ready_at_s=31.0, save_s=7.0, ranks=ranks)}
    measurements = Measurements(Accounts(), folders, Reports(), sent.append)
    (used, _) = await answered(measurements, sent, with_notes(1))
    assert used == (
        MeasuredUse(
            ready_s=30.0,
            save_s=7.0,
            ranks=8.0,
            step_s=2.0,
            load_s=0.5,
            own_least_s=1.0,
            own_most_s=1.5,
            slow_rank=3.0,
        ),
    )


async def test_what_accounts_do_not_know_yet_is_to_be_asked_again_whatever_a_job_noted() -> None:
    accounts, folders, reports, sent = Accounts(), Folders(), Reports(), list[Message]()
    reports.left = {1: MeasuredUse(gpu_util_frac=0.5)}
    folders.notes = {f"/s/{k}": CheckpointStatus(ready_at_s=31.0, save_s=7.0) for k in (1, 2)}
    measurements = Measurements(accounts, folders, reports, sent.append)
    jobs = [with_notes(k) for k in (1, 2, 3)]
    noted = MeasuredUse(ready_s=30.0, save_s=7.0)
    on_gpus = msgspec.structs.replace(noted, gpu_util_frac=0.5)
    accounts.known = {3: CPU}
    assert await answered(measurements, sent, *jobs) == ((on_gpus, noted, CPU), (0, 1))
    accounts.away = True
    assert await answered(measurements, sent, *jobs) == ((on_gpus, noted, None), (0, 1, 2))
    accounts.away, accounts.known = False, {1: CPU, 2: CPU, 3: CPU}
    used, again = await answered(measurements, sent, *jobs)
    assert again == ()
    assert [use and (use.cpu_s, use.gpu_util_frac, use.ready_s) for use in used] == [
        (9.0, 0.5, 30.0),
        (9.0, 1.0, 30.0),
        (9.0, 1.0, None),
    ]


async def test_reports_stay_until_accounts_have_told_the_rest() -> None:
    accounts, reports = Accounts(), Reports()
    accounts.known = {1: CPU}
    await told(accounts, reports, (1, 2), (3,), (4,))
    assert reports.removed == [set(), {1}, set()]


async def test_two_jobs_of_one_id_are_told_apart(tmp_path: Path) -> None:
    """A site that was restored gave the id again, to the same user, before the daemon asked."""
    (tmp_path / "usage").mkdir()
    spool = Spool(tmp_path, "alpine", lambda: 7000.0)
    accounts, sent = Accounts(), list[Message]()
    await spool.look()
    accounts.known = {7: MeasuredUse(cpu_s=9.0)}
    first, later = (
        msgspec.structs.replace(job(k), site_job_id=7, started_at_s=start_s, ended_at_s=end_s)
        for k, start_s, end_s in ((1, 1000.0, 2000.0), (2, 5000.0, 6000.0))
    )
    for node, at_s, frac in (("g1", 2001.0, 0.25), ("g2", 6001.0, 0.75)):
        usage = {"gpu_busy_mean_frac": frac}
        report = {"user": "ada", "gpus": 8, "at_s": at_s, "usage": usage}
        (tmp_path / "usage" / f"7.{node}").write_text(json.dumps(report))
    measurements = Measurements(accounts, Folders(), spool, sent.append)
    used, _ = await answered(measurements, sent, first, later)
    assert [use and use.gpu_util_frac for use in used] == [0.25, 0.75]
    await answered(measurements, sent, first)
    assert {path.name for path in (tmp_path / "usage").iterdir()} == {"7.g1"}
    (tmp_path / "usage" / "7.g2").write_text(json.dumps(report))
    await answered(measurements, sent, later)
    assert {path.name for path in (tmp_path / "usage").iterdir()} == {"7.g2"}, "not told yet"


async def test_folders_that_hang_keep_nothing_else_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """They all have one time together, and are looked at again with another question."""
    monkeypatch.setattr(module, "FOLDERS_TAKE_S", 0.01)
    accounts, folders, sent = Accounts(), Folders(), list[Message]()
    accounts.known = dict.fromkeys(range(1, 6), CPU)
    folders.notes = {"/s/2": CheckpointStatus(ready_at_s=31.0)}
    folders.locked, folders.broken, folders.hung = "ann", "bob", "cem"
    jobs = [with_notes(k, user) for k, user in enumerate(("ann", "ada", "bob", "cem", "dot"), 1)]
    measurements = Measurements(accounts, folders, Reports(), sent.append)
    used, again = await answered(measurements, sent, *jobs)
    noted = msgspec.structs.replace(CPU, ready_s=30.0, save_s=0.0)
    assert (used, again) == ((CPU, noted, CPU, CPU, CPU), (2, 3, 4))
    assert folders.asked == ["ann", "ada", "bob", "cem"]


async def test_of_questions_that_wait_for_their_turn_only_the_newest_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FOLDERS_TAKE_S", 0.01)
    folders, sent = Folders(), list[Message]()
    folders.hung = "ada"
    measurements = Measurements(Accounts(), folders, Reports(), sent.append)
    asks = [UsageAsk(ask_id=k, jobs=(with_notes(1),)) for k in range(5)]
    await asyncio.gather(*map(measurements.tell, asks))
    assert [answer.ask_id for answer in sent if isinstance(answer, UsageTaken)] == [0, 4]
    assert folders.asked == ["ada", "ada"]


@pytest.mark.parametrize(
    ("gpus", "told", "later_s", "again"),
    [
        (2, None, 1.0, (0,)),  # its epilogs may still be at work
        (2, MeasuredUse(gpu_mem_mib=7.0), 1.0, (0,)),
        (2, MeasuredUse(gpu_util_frac=0.5), 1.0, ()),
        (2, None, module.NODES_TELL_S, ()),  # the site has no node hooks
        (0, None, 1.0, ()),
    ],
)
async def test_nodes_are_awaited_that_may_still_tell_how_gpus_were_used(
    gpus: int, told: MeasuredUse | None, later_s: float, again: tuple[int, ...]
) -> None:
    accounts, reports, sent = Accounts(), Reports(), list[Message]()
    accounts.known = {1: MeasuredUse(cpu_s=9.0)}
    reports.left = {} if told is None else {1: told}
    ended = msgspec.structs.replace(job(1), gpus=gpus, ended_at_s=100.0)
    clock = (100.0 + later_s).__float__
    measurements = Measurements(accounts, Folders(), reports, sent.append, clock)
    used, asked_again = await answered(measurements, sent, ended)
    assert asked_again == again
    assert used[0] is not None
    assert used[0].cpu_s == 9.0, "what is known is told at once"
