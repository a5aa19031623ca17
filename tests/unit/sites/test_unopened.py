"""Is it told which files Slurm could not open?"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from federator.errors import SiteRefused, SiteUnavailable
from federator.model.reason import ReasonCode
from federator.model.site import AttemptReport, SiteJobState
from federator.model.submission import Option, Submission
from federator.model.workload import AttemptId, TenantName, WorkloadId
from federator.sites.kept_orders import KeptOrders
from federator.sites.protocol import LaunchOrder
from federator.sites.unopened import NOT_OPENED, Unopened

ATTEMPT = AttemptId(workload=WorkloadId(7), attempt=1)
WRONG = "at alpine: --output=/x/7.out: its folder does not exist"


class Site:
    """A driver that tells what it is asked to look at."""

    def __init__(self, answer: str | Exception = WRONG) -> None:
        self.answer = answer
        self.asked: list[LaunchOrder] = []

    async def inspect(self, order: LaunchOrder) -> str:
        self.asked.append(order)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def report(**changes: Any) -> AttemptReport:
    base = {"state": SiteJobState.FAILED, "signal": NOT_OPENED, "user": "ada", "site_job_id": 3}
    return AttemptReport(attempt=ATTEMPT, **{**base, **changes})


@pytest.fixture
def kept(tmp_path: Path) -> KeptOrders:
    found = KeptOrders(tmp_path, 0.0)
    submission = Submission(
        components=((Option(name="output", value="/x/%j.out"),),), script="#!/bin/sh\n"
    )
    found.put(
        LaunchOrder(attempt=ATTEMPT, user="ada", tenant=TenantName("t"), name="n",
                    submission=submission, jobs=())
    )  # fmt: skip
    return found


def test_what_could_not_be_opened_is_looked_for_once(kept: KeptOrders) -> None:
    site = Site()
    unopened = Unopened(site, kept)  # type: ignore[arg-type]
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
    kept: KeptOrders, other: dict[str, Any]
) -> None:
    site = Site()
    given = report(**other)
    assert asyncio.run(Unopened(site, kept).complete({ATTEMPT: given})) == {ATTEMPT: given}  # type: ignore[arg-type]
    assert not site.asked


@pytest.mark.parametrize("error", [SiteRefused("no"), SiteUnavailable("no answer")])
def test_a_site_that_does_not_say_delays_no_report(kept: KeptOrders, error: Exception) -> None:
    unopened = Unopened(Site(error), kept)  # type: ignore[arg-type]
    assert asyncio.run(unopened.complete({ATTEMPT: report()})) == {ATTEMPT: report()}


def test_of_an_unknown_order_nothing_is_said(tmp_path: Path) -> None:
    site = Site()
    unopened = Unopened(site, KeptOrders(tmp_path, 0.0))  # type: ignore[arg-type]
    assert asyncio.run(unopened.complete({ATTEMPT: report()}))[ATTEMPT].unopened == ""
    assert ReasonCode.FILES.value == "FedFiles"
