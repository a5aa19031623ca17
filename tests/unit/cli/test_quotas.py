"""``federator quotas``: what is lent for want of use, keep, release, and the review."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from federator.cli import quotas as command
from federator.cli.lending_text import loan_text
from federator.cli.quota_review import review_lines
from federator.errors import InvalidRequest, NotAllowed
from federator.history import schema
from federator.history.database import open_writer, transaction
from federator.history.quota_answer import QuotaReview
from federator.usage.quota_fit import OverCommitment, QuotaFit
from federator.wire.client_protocol import (
    Call,
    ErrorKind,
    ErrorReply,
    StatusCall,
    StatusReply,
)
from federator.wire.quota_messages import LoanReply, QuotaCall
from federator.wire.replies import Reply
from federator.wire.status_rows import BudgetRow, LendingRow, LoanRow

NOW_S = 1_764_072_000.0
DAY_S = 86_400.0
NOTICED = LoanRow(
    tenant="vision", step="noticed", since_s=NOW_S, used_frac=0.04, days=3, lends_at_s=NOW_S + DAY_S
)


class Run:
    """Runs a command against one answer, and keeps what it asked."""

    def __init__(self) -> None:
        self.reply: Reply = LoanReply(tenant="vision", step="kept")
        self.asked: list[Call] = []

    def __call__(self, *words: str) -> Result:
        ended = CliRunner().invoke(command.quotas, [*words], standalone_mode=False)
        if ended.exception is not None:
            raise ended.exception
        return ended

    def call(self, message: Call) -> Reply:
        self.asked.append(message)
        return self.reply


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    made = Run()
    monkeypatch.setattr(command, "call", made.call)
    monkeypatch.setattr(time, "time", lambda: NOW_S)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    return made


def status(*loans: LoanRow) -> StatusReply:
    return StatusReply(
        federation="demo",
        now_s=NOW_S,
        policy="mast",
        epoch=1,
        sites=(),
        queue={},
        gpus_held=0,
        budget=BudgetRow(window_s=600.0),
        lending=LendingRow(mode="on", loans=loans),
    )


def test_a_quota_is_kept_for_ever_or_until_a_time_and_released(run: Run) -> None:
    assert run("keep", "vision").stdout == "the quota of vision is held back, used or not\n"
    run("keep", "vision", "--until", "now+28days")
    run("release", "vision")
    assert run.asked == [
        QuotaCall(tenant="vision"),
        QuotaCall(tenant="vision", until_s=NOW_S + 28 * DAY_S),
        QuotaCall(tenant="vision", keep=False),
    ]
    run.reply = ErrorReply(message="an operator's", kind=ErrorKind.DENIED)
    with pytest.raises(NotAllowed):
        run("keep", "vision")


def test_the_list_says_what_is_lent_and_what_is_about_to_be(run: Run) -> None:
    run.reply = status()
    assert run("list").stdout == "no quota is lent for want of use, or about to be\n"
    run.reply = status(NOTICED)
    assert run("list").stdout == f"{loan_text(NOTICED)}\n"
    (shown,) = json.loads(run("list", "--json").stdout)["loans"]
    assert (shown["tenant"], shown["step"], shown["used_frac"]) == ("vision", "noticed", 0.04)
    assert run.asked == [StatusCall()] * 3


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (
            NOTICED,
            "vision used at most 4% of its quota in 3 days: nothing is held back for its forecast "
            "from 2025-11-26 12:00 on",
        ),
        (
            LoanRow(tenant="vision", step="lent", since_s=NOW_S, used_frac=0.04, days=1),
            "vision used at most 4% of its quota in 1 day: since 2025-11-25 12:00 nothing is held "
            "back for its forecast",
        ),
        (
            LoanRow(tenant="vision", step="advised", since_s=NOW_S, used_frac=0.0, days=3),
            "vision used at most 0% of its quota in 3 days: it would get notice "
            "(unused_quota: advisory)",
        ),
        (
            LoanRow(tenant="vision", step="kept", since_s=NOW_S, until_s=NOW_S + DAY_S, by="root"),
            "the quota of vision is held back until 2025-11-26 12:00 by root, used or not",
        ),
        (LoanRow(tenant="vision", step="later", since_s=NOW_S), "the quota of vision: later"),
    ],
)
def test_each_step_has_words(run: Run, row: LoanRow, text: str) -> None:
    assert not run.asked
    assert loan_text(row) == text


FIT = QuotaFit(
    tenant="vision",
    quota_gpus=100.0,
    verdict="more",
    held_gpus=96.0,
    demand_gpus=125.0,
    demand_low_gpus=118.2,
    demand_high_gpus=131.8,
    busiest_day_gpus=140.0,
    busiest_high_gpus=150.0,
    would_do_gpus=119.0,
)


def test_a_review_says_who_needs_more_and_how_much_quotas_may_promise() -> None:
    found = QuotaReview(
        start_s=NOW_S - 56 * DAY_S - 43_200,
        end_s=NOW_S - 43_200,
        days=56,
        fits=[FIT, QuotaFit(tenant="nlp", quota_gpus=8.0, verdict="unknown")],
        over_commitment=OverCommitment(
            promised_gpus=200.0,
            supply_gpus=160.0,
            risk_frac=0.01,
            exceeded_frac=0.002,
            factor=1.42,
            worst_week_factor=1.3,
            advised_factor=1.3,
        ),
    )
    assert list(review_lines(found)) == [
        "56 whole days known from 2025-09-30 to 2025-11-24 (UTC)",
        "TENANT             QUOTA     HELD             DEMAND  BUSIEST DAY  VERDICT",
        "vision               100     96.0 125.0 (118.2-131.8)        140.0  more: 119 would do",
        "nlp                    8  fewer than 3 whole weeks are known",
        "over-commitment: quotas sum to 200 of 160 GPUs (1.25 times); demand within them exceeded "
        "the fleet for 0.20% of the time",
        "  they may sum to 1.42 times the fleet for a risk of 0.01; "
        "by the worst week to 1.30 times",
        "  advised: 1.30 times, 208 GPUs in all",
    ]


def test_the_history_alone_is_enough_for_a_review(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    head = f"federation: demo\nstore: sqlite:///{tmp_path}/queue.db\n"
    sites = (
        "regions: {north: {shared: /shared}}\n"
        "sites: {alpine: {region: north, command: [x], partitions: [gpu]}}\n"
    )
    path.write_text(head + sites)
    with transaction(open_writer(f"sqlite:///{tmp_path}/queue-history.db")) as connection:
        schema.prepare(connection)
    assert run("review", "--config", str(path)).stdout.splitlines()[1:] == [
        "no tenant has a quota of GPUs"
    ]
    path.write_text(head + sites + "tenants: {vision: {quota: {gpus: 8}}}\n")
    shown = json.loads(run("review", "--config", str(path), "--json").stdout)
    assert (shown["schema"], shown["days"], shown["over_commitment"]) == (1, 0, None)
    assert shown["fits"][0]["verdict"] == "unknown"
    path.write_text(f"{head}history: {{url: none}}\n{sites}")
    with pytest.raises(InvalidRequest, match="no history"):
        run("review", "--config", str(path))
    assert run.asked == []
