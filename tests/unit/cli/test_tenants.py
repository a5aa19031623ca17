"""``federator tenants`` shows every number where it belongs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from federator.cli import tenants
from federator.errors import InvalidRequest, SiteUnavailable
from federator.wire.client_protocol import (
    Call,
    CancelReply,
    ErrorReply,
    TenantRow,
    TenantsCall,
    TenantsReply,
)
from federator.wire.replies import Reply

Run = Callable[..., str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command against one answer; return what it prints."""

    def command(reply: Reply, *words: str) -> str:
        def call(message: Call) -> Reply:
            assert message == TenantsCall()
            return reply

        monkeypatch.setattr(tenants, "call", call)
        ended = CliRunner().invoke(tenants.tenants, [*words])
        if ended.exception is not None:
            raise ended.exception
        return ended.output

    return command


def row(name: str = "vision", **changes: Any) -> TenantRow:
    nothing = {"gpus": 0, "cpus": 0, "h100": 0}
    base: dict[str, Any] = {
        "name": name,
        "priority": 2,
        "quota": None,
        "limit": dict.fromkeys(nothing),
        "used": nothing,
        "used_own": nothing,
        "borrowed": nothing,
        "lent": nothing,
        "pending_within": 0,
        "pending_over": 0,
        "fair_share_term": 24.0,
    }
    return TenantRow(**{**base, **changes})


def reply(*rows: TenantRow) -> TenantsReply:
    return TenantsReply(rows=rows, now_s=100.0, policy="mast")


LAB = reply(
    row("lab", priority=7, quota={"gpus": 96, "cpus": None, "h100": None}),
    row(
        "vision",
        depth=1,
        parent="lab",
        users=("ada",),
        quota={"gpus": 64, "cpus": 1024, "h100": 16},
        limit={"gpus": 128, "cpus": None, "h100": None},
        used={"gpus": 40, "cpus": 80, "h100": 8},
        borrowed={"gpus": 8, "cpus": 8, "h100": 4},
        lent={"gpus": 4, "cpus": 0, "h100": 1},
        usage_share_frac=0.25,
        fair_share_term=18.0,
        pending=15,
        pending_within=3,
        pending_over=12,
        preempt_tax_gpu_s=5400.0,
        preempt_lost_gpu_s=900.0,
    ),
    row("gone", configured=False),
)


def test_the_table_is_aligned_and_children_stand_below_their_parent(run: Run) -> None:
    assert run(LAB).splitlines() == [
        "TENANT        PRIO QUOTA(G/C) LIMIT(G/C) USED(G/C) BORROWED LENT SHARE% FAIRSHARE "
        "PENDING(W/O) TAX(GPUH) LOST(GPUH)",
        "lab              7       96/-          -       0/0      0/0  0/0    0.0     24.00 "
        "         0/0      0.00       0.00",
        "  vision         2    64/1024      128/-     40/80      8/8  4/0   25.0     18.00 "
        "        3/12      1.50       0.25",
        "    h100 GPUs              16          -         8        4    1",
        "gone *           2          -          -       0/0      0/0  0/0    0.0     24.00 "
        "         0/0      0.00       0.00",
    ]


def test_the_header_may_be_left_off(run: Run) -> None:
    assert run(LAB, "--noheader").startswith("lab ")
    assert run(reply(), "--noheader") == "\n"


def test_a_policy_without_quota_shows_only_how_many_wait(run: Run) -> None:
    shown = run(
        reply(row(pending=15, pending_within=None, pending_over=None, fair_share_term=None)),
        "--noheader",
    )
    assert shown.split()[-4:-2] == ["-", "15"]


def test_the_same_is_to_be_had_as_json(run: Run) -> None:
    told = json.loads(run(LAB, "--json"))
    assert (told["schema"], told["now_s"], told["policy"]) == (1, 100.0, "mast")
    vision = told["tenants"][1]
    assert vision["quota"] == {"gpus": 64, "cpus": 1024, "h100": 16}
    assert (vision["preempt_tax_gpu_s"], vision["preempt_lost_gpu_s"]) == (5400.0, 900.0)
    assert vision["limit"] == {"gpus": 128, "cpus": None, "h100": None}
    assert (vision["parent"], vision["users"], told["tenants"][0]["quota"]["cpus"]) == (
        "lab",
        ["ada"],
        None,
    )


def test_a_name_of_any_length_and_kind_leaves_the_table_in_one_piece(run: Run) -> None:
    shown = run(reply(row("x\x1b[2J" + "n" * 1_000_000)))
    assert all(line.isprintable() and len(line) < 150 for line in shown.split("\n"))


def test_a_refusal_is_one_printable_line(run: Run) -> None:
    with pytest.raises(InvalidRequest, match=r"^no\?$"):
        run(ErrorReply(message="no\x1b"))


def test_an_answer_to_another_question_is_an_error(run: Run) -> None:
    with pytest.raises(SiteUnavailable, match="unexpected answer"):
        run(CancelReply(ids=()))


def test_tenants_in_lower_modes_are_named_below_the_table(run: Run) -> None:
    long = "a-tenant-whose-name-has-more-than-32-letters"
    told = reply(row("lab"), row("vision", mode="shadow"), row(long, mode="opt-in"))
    assert run(told).splitlines()[4:] == ["vision: mode shadow", f"{long}: mode opt-in"]
    assert len(run(told, "--noheader").splitlines()) == 3
