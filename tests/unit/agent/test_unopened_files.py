"""Files that Slurm could not open are reported."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from federator.agent import acts
from federator.agent.base import SiteDriver
from federator.agent.folders import ATTEMPTS_PER_LOOK, NOT_OPENED, UnopenedFiles
from federator.agent.order_archive import OrderArchive
from federator.errors import SiteRefused, SiteUnavailable
from federator.model.reason import ReasonCode
from federator.model.site import AttemptReport, SiteJobState
from federator.model.submission import Option, Submission
from federator.model.workload import AttemptId, TenantName, WorkloadId
from federator.wire.agent_protocol import LaunchOrder
from tests.fakes.agent import PartOfAgent

ATTEMPT = AttemptId(workload=WorkloadId(7), attempt=1)
WRONG = "at alpine: --output=/x/7.out: its folder does not exist"


class Site:
    """A driver that tells what it is asked to look at."""

    def __init__(self, answer: str | Exception = WRONG) -> None:
        self.answer = answer
        self.asked: list[LaunchOrder] = []
        self.calls: list[str] = []
        self.silent: set[str] = set()  # users whose files do not answer

    async def inspect(self, user: str, orders: Sequence[LaunchOrder]) -> list[str]:
        self.asked.extend(orders)
        self.calls.append(user)
        if isinstance(self.answer, Exception):
            raise self.answer
        if user in self.silent:
            await asyncio.Event().wait()
        return [self.answer for _ in orders]


class Rig:
    """One ``UnopenedFiles``, and the sweeps that it completes."""

    def __init__(self, folder: Path, site: Site) -> None:
        self._agent = PartOfAgent(folder, cast(SiteDriver, site), lambda: 0.0)
        self._files = UnopenedFiles(self._agent.memory)

    async def complete(
        self, reports: Mapping[AttemptId, AttemptReport]
    ) -> dict[AttemptId, AttemptReport]:
        self._files.looks(reports)
        self._agent.begin(self._files.inspected)
        await self._agent.finish()
        return self._files.complete(reports)


def report(**changes: Any) -> AttemptReport:
    base = {"state": SiteJobState.FAILED, "signal": NOT_OPENED, "user": "ada", "site_job_id": 3}
    return AttemptReport(attempt=ATTEMPT, **{**base, **changes})


@pytest.fixture
def kept(tmp_path: Path) -> OrderArchive:
    found = OrderArchive(tmp_path, 0.0)
    put(found, ATTEMPT, "ada")
    return found


def put(kept: OrderArchive, attempt: AttemptId, user: str) -> None:
    submission = Submission(
        components=((Option(name="output", value="/x/%j.out"),),), script="#!/bin/sh\n"
    )
    kept.put(
        LaunchOrder(
            attempt=attempt,
            user=user,
            tenant=TenantName("t"),
            name="n",
            submission=submission,
            jobs=(),
        )
    )


def test_what_could_not_be_opened_is_looked_for_once(tmp_path: Path, kept: OrderArchive) -> None:
    site = Site()
    unopened = Rig(tmp_path, site)
    for _ in range(3):
        done = asyncio.run(unopened.complete({ATTEMPT: report()}))
        assert done[ATTEMPT].unopened == WRONG
    assert [order.attempt for order in site.asked] == [ATTEMPT]


@pytest.mark.parametrize(
    "other",
    [
        {"signal": 9},
        {"signal": 0},
        {"state": SiteJobState.RUNNING},
        {"state": SiteJobState.CANCELLED},
    ],
)
def test_nobody_looks_at_files_of_what_ended_otherwise(
    tmp_path: Path, kept: OrderArchive, other: dict[str, Any]
) -> None:
    site = Site()
    given = report(**other)
    assert asyncio.run(Rig(tmp_path, site).complete({ATTEMPT: given})) == {ATTEMPT: given}
    assert not site.asked


@pytest.mark.parametrize("error", [SiteRefused("no"), SiteUnavailable("no answer")])
def test_a_site_that_does_not_say_delays_no_report(
    tmp_path: Path, kept: OrderArchive, error: Exception
) -> None:
    unopened = Rig(tmp_path, Site(error))
    assert asyncio.run(unopened.complete({ATTEMPT: report()})) == {ATTEMPT: report()}


def test_of_an_unknown_order_nothing_is_said(tmp_path: Path) -> None:
    site = Site()
    unopened = Rig(tmp_path, site)
    assert asyncio.run(unopened.complete({ATTEMPT: report()}))[ATTEMPT].unopened == ""
    assert ReasonCode.FILES.value == "FedFiles"


def tasks(kept: OrderArchive, count: int, user: str, first: int) -> dict[AttemptId, AttemptReport]:
    attempts = [AttemptId(workload=WorkloadId(first + k), attempt=1) for k in range(count)]
    for attempt in attempts:
        put(kept, attempt, user)
    return {
        attempt: AttemptReport(
            attempt=attempt, state=SiteJobState.FAILED, signal=NOT_OPENED, user=user, site_job_id=3
        )
        for attempt in attempts
    }


def test_a_whole_array_that_failed_at_once_is_looked_at_in_a_few_calls(
    tmp_path: Path, kept: OrderArchive
) -> None:
    site = Site()
    reports = tasks(kept, ATTEMPTS_PER_LOOK + 100, "ada", 100) | tasks(kept, 3, "bob", 9000)
    done = asyncio.run(Rig(tmp_path, site).complete(reports))
    assert {report.unopened for report in done.values()} == {WRONG}
    assert sorted(site.calls) == ["ada", "ada", "bob"]


def test_a_user_whose_files_do_not_answer_keeps_no_words_from_others_for_good(
    tmp_path: Path, kept: OrderArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acts, "LOOK_TAKES_S", 0.01)
    monkeypatch.setattr(acts, "AT_ONCE", {**acts.AT_ONCE, "inspect": 1})
    site = Site()
    site.silent = {"ada"}
    reports = tasks(kept, 2, "ada", 100) | tasks(kept, 2, "bob", 200)

    async def sweep_twice() -> list[dict[AttemptId, AttemptReport]]:
        unopened = Rig(tmp_path, site)
        return [await unopened.complete(reports) for _ in range(2)]

    _, second = asyncio.run(sweep_twice())
    assert {r.user: r.unopened for r in second.values()} == {"ada": "", "bob": WRONG}
    assert sorted(site.calls) == ["ada", "bob"]
