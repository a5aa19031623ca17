"""An agent joins what its accounts and its nodes know, and forgets reports once they are told."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from federator.agent.base import Missing
from federator.agent.services.measurements import Measurements
from federator.agent.spool import Spool
from federator.errors import SiteUnavailable
from federator.model.site import AttemptReport
from federator.model.tagged import Message
from federator.model.workload import AttemptId, WorkloadId
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.agent_protocol import EndedJob, UsageAsk, UsageTaken

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

    async def usage_of(self, jobs: Collection[EndedJob]) -> dict[int, MeasuredUse]:
        ids = {each.site_job_id for each in jobs}
        return {id_: use for id_, use in self.left.items() if id_ in ids}

    async def remove_usage(self, job_ids: Collection[int]) -> None:
        self.removed.append(set(job_ids))


async def told(
    accounts: Accounts, reports: Reports, *asks: tuple[int, ...]
) -> list[tuple[MeasuredUse | None, ...]]:
    sent: list[Message] = []
    measurements = Measurements(accounts, reports, sent.append)
    for number, ids in enumerate(asks):
        await measurements.tell(UsageAsk(ask_id=number, jobs=tuple(map(job, ids))))
    answers = [message for message in sent if isinstance(message, UsageTaken)]
    assert [answer.ask_id for answer in answers] == list(range(len(asks)))
    return [answer.used for answer in answers]


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
    reports = Reports()
    await told(Accounts(), reports, (1, 2), (2, 3), (4,))
    assert reports.removed == [set(), {1}, {2, 3}]
