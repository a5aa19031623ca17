"""``fsbatch --test-only`` says where the site's own sbatch would start a job now."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from federator.cli.bid_text import print_bids
from federator.model.plan import Bid, JobPlan
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.score import Score
from federator.model.site import NodeShare
from federator.wire import replies

PLAN = JobPlan(name="job", partition="gpu", nodes={"a1": NodeShare(gpus=8, cpus=8, mem_mib=1)})
WAITS = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.RESOURCES),))
REPLY = replies.TestOnlyReply(
    bids=(
        replies.SiteBid(site="alpine", bid=Bid(score=Score(), jobs=(PLAN,))),
        replies.SiteBid(site="baker", refusal=WAITS),
    ),
    winner="",
    advised=("alpine",),
)


def test_a_site_in_mode_advisory_is_named_beside_the_federations_own_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert print_bids(REPLY, as_json=False) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("fsbatch: - alpine")
    assert lines[2:] == [
        "fsbatch: would start now by sbatch at alpine: the federation starts nothing there, or for "
        "this tenant (mode advisory)",
        "fsbatch: would wait in the federation's queue",
    ]


def test_who_asks_for_a_tenant_of_whom_nothing_is_taken_is_promised_no_queue(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reason = Reason(code=ReasonCode.TENANT_MODE, detail="bio")
    own = replies.SiteBid(site="", refusal=Refusal(kind=RefusalKind.WAIT, reasons=(reason,)))
    assert print_bids(structs.replace(REPLY, bids=(*REPLY.bids, own)), as_json=False) == 0
    said = capsys.readouterr().err
    assert "federation  not now: nothing is started for its tenant (mode: shadow" in said
    assert "would wait" not in said


def test_programs_are_told_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_bids(REPLY, as_json=True) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["winner"], answer["advised"]) == (None, ["alpine"])
