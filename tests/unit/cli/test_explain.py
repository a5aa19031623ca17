"""``federator explain`` tells the whole story of a workload, and only true things."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from federator.cli import explain
from federator.errors import InvalidRequest, SiteUnavailable
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.score import Score
from federator.model.submission import NodeRange
from federator.wire.client_protocol import (
    Call,
    CancelReply,
    ErrorReply,
    QueueCall,
    QueueReply,
    QueueRow,
)
from federator.wire.queue_rows import QueueRank, RegionRow, SetbackRow
from federator.wire.replies import Reply

Run = Callable[..., str]
ID = 2**32 + 1


@pytest.fixture
def asked() -> list[Call]:
    return []


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, asked: list[Call]) -> Run:
    """Run the command against one answer; return what it prints."""

    def command(reply: Reply, *words: str) -> str:
        def call(message: Call) -> Reply:
            asked.append(message)
            return reply

        monkeypatch.setattr(explain, "call", call)
        ended = CliRunner().invoke(explain.explain, [*(words or (str(ID),))])
        if ended.exception is not None:
            raise ended.exception
        return ended.output

    return command


def reply(**changes: Any) -> QueueReply:
    base: dict[str, Any] = {
        "id": ID,
        "name": "train",
        "user": "ada",
        "tenant": "vision",
        "priority": 2,
        "state": "PENDING",
        "attempt": 0,
        "submitted_at_s": 1000.0,
        "time_limit_s": 3600.0,
        "nodes": 1,
        "gpus": 8,
    }
    return QueueReply(rows=(QueueRow(**{**base, **changes}),), now_s=4600.0)


def rank(**changes: Any) -> QueueRank:
    base: dict[str, Any] = {
        "policy": "mast",
        "ranked_at_s": 4600.0,
        "priority": 2,
        "tenant_priority": 2,
        "within_quota": True,
        "credit": 25.0,
        "position": 3,
        "of": 1200,
        "waited_s": 3600.0,
        "age_term": 1.0,
        "fair_share_term": 24.0,
        "per_hour_waited": 1.0,
        "age_cap_h": 168.0,
    }
    return QueueRank(**{**base, **changes})


def refused(code: ReasonCode, kind: RefusalKind = RefusalKind.WAIT, **numbers: Any) -> Refusal:
    return Refusal(kind=kind, reasons=(Reason(code=code, **numbers),))


def test_a_waiting_workload_is_told_with_its_rank_every_site_and_every_setback(
    run: Run, asked: list[Call]
) -> None:
    shown = run(
        reply(
            rank=rank(),
            attempt=2,
            refusals={
                "alpine": refused(ReasonCode.RESOURCES, needed=2, free=1, unit="nodes"),
                "": refused(ReasonCode.LIMIT, needed=8, free=0, unit="GPUs", detail="vision"),
            },
            setbacks={
                "baker": SetbackRow(
                    reason=Reason(code=ReasonCode.LAUNCH_REFUSED, detail="QOS"),
                    failures=2,
                    avoid_until_s=4635.0,
                )
            },
        )
    )
    assert asked == [
        QueueCall(ids=(str(ID),), ended=True, why=True, files=True, starts=True, helps=True)
    ]
    assert shown.splitlines() == [
        "Workload 4294967297 'train' of ada, tenant vision",
        "  State             PENDING, submitted 1 h ago",
        "  Times             submitted 1970-01-01T00:16:40Z",
        "  Size              1 node, 8 GPUs, time limit 1 h",
        "  Position          3rd of 1,200",
        "  Priority          2, tenant vision's",
        "  Credit            25.00 = 1.00 for 1 h of waiting (1 an hour, at most 168 h) "
        "+ 24.00 fair share (vision used 0.0 % of all) - 0.00 nice",
        "  Attempts          2 so far",
        "  Site alpine       not now: needs 2 nodes; free 1",
        "  Federation        not now: needs 8 GPUs, the limit of tenant vision leaves 0",
        "  Setback at baker  the site refused the launch: QOS; 2 times in a row; "
        "asked again in 35 s",
    ]


def test_a_running_workload_is_told_with_its_place_its_standing_and_every_bid(run: Run) -> None:
    shown = run(
        reply(
            state="RUNNING",
            attempt=2,
            site="alpine",
            site_job_id=101,
            started_at_s=4540.0,
            node_names=("a1", "a2", "a3", "a4"),
            jobs=2,
            time_limit_s=float("inf"),
            rank=rank(position=0, of=0, awarded_priority=7, credit=31.2),
            offers={"alpine": Score(locality_cost=28.0, fragmentation=4.0), "baker": Score()},
            work_dir="/home/ada",
            stdin="/dev/null",
            stdout="/home/ada/7.out",
            stderr="/home/ada/7.err",
        )
    )
    assert shown.splitlines() == [
        "Workload 4294967297 'train' of ada, tenant vision",
        "  State          RUNNING, submitted 1 h ago, started 1 min ago",
        "  Times          submitted 1970-01-01T00:16:40Z, started 1970-01-01T01:15:40Z",
        "  Size           1 node, 8 GPUs, 2 het components",
        "  Standing       awarded at priority 7, over quota, with credit 31.20; now priority 2, "
        "within quota",
        "  Attempt        2, at alpine, job 101, on a[1-4]",
        "  Bid of alpine  locality_cost 28, fragmentation 4, taken",
        "  Bid of baker   as good as can be (all terms 0)",
        "  WorkDir        /home/ada",
        "  StdIn          /dev/null",
        "  StdOut         /home/ada/7.out",
        "  StdErr         /home/ada/7.err",
    ]


def test_a_workload_that_ended_is_told_with_how(run: Run) -> None:
    lost = Reason(code=ReasonCode.LOST)
    shown = run(
        reply(
            state="FAILED",
            ended_at_s=4500.0,
            site="alpine",
            attempt=1,
            signal=9,
            site_state="OUT_OF_MEMORY",
            reason=lost,
        )
    )
    assert "Ended    OUT_OF_MEMORY, signal 9, the site has no record of the job any more" in shown
    assert "Rank" not in shown


@pytest.mark.parametrize(
    ("changes", "ended"),
    [
        ({"state": "CANCELLED"}, "before it started"),
        ({"state": "CANCELLED", "site_state": "PREEMPTED"}, "before it started"),
        ({"state": "FAILED", "started_at_s": 4000.0}, "exit code not known"),
        ({"state": "CANCELLED", "signal": 15, "exit_code": 0}, "signal 15"),
    ],
)
def test_what_never_ran_has_no_exit_code(run: Run, changes: dict[str, Any], ended: str) -> None:
    (line,) = (x for x in run(reply(**changes)).splitlines() if x.startswith("  Ended"))
    assert line.split(None, 1)[1] == ended


def test_a_held_workload_says_what_its_sites_said(run: Run) -> None:
    reason = Reason(code=ReasonCode.HELD, detail="alpine: Invalid qos specification")
    shown = run(reply(state="HELD", reason=reason))
    assert "HELD, submitted" in shown
    assert "or cancel, submit anew): alpine: Invalid qos specification" in shown


def test_what_was_said_of_a_workload_is_told(run: Run) -> None:
    said = {
        "project": "p",
        "datasets": ("a/b", "c"),
        "elastic": NodeRange(least=2, most=8, step=2, asked=4),
    }
    shown = run(reply(**said))
    assert "project p; data sets a/b, c" in shown
    assert "can run on 2-8:2 nodes; asked for 4" in shown
    (job,) = json.loads(run(reply(**said), str(ID), "--json"))["jobs"]
    assert (job["project"], job["datasets"]) == ("p", ["a/b", "c"])
    assert job["elastic"] == {"least": 2, "most": 8, "step": 2, "asked": 4}
    assert "Elastic" not in run(reply())


def test_each_region_that_could_run_it_or_has_run_it_is_told(run: Run) -> None:
    gib = 412 * 2**30
    rows = (
        RegionRow(name="west", data="there", sites=("alpine", "boreal"), ran=True),
        RegionRow(name="east", data="copy", sites=("cedar",), bytes_to_move=gib, staging_s=400.0),
        RegionRow(name="south", data="ask", sites=("dune",), bytes_to_move=gib, staging_s=400.0),
        RegionRow(name="north", data="none", sites=("elm",)),
        RegionRow(name="old", ran=True),
    )
    shown = [line.split(None, 2)[1:] for line in run(reply(regions=rows)).splitlines()]
    told = dict(words for words in shown if len(words) == 2)
    assert told["west"] == "candidate: its data is there (alpine, boreal); it has run there"
    assert told["east"] == "candidate: 412.0 GiB to copy, about 6 min 40 s (cedar)"
    assert told["south"] == (
        "it would fit (dune), if somebody has its data copied there: 412.0 GiB to copy, about "
        "6 min 40 s"
    )
    assert told["north"] == "it would fit (elm), and its data cannot be had there"
    assert told["old"] == "it has run there"
    (job,) = json.loads(run(reply(regions=rows), str(ID), "--json"))["jobs"]
    assert job["regions"][-1] == {"name": "old", "ran": True}


def test_spare_nodes_are_told_of(run: Run) -> None:
    gang = reply(nodes=3, gpus=24, spare=1)
    assert "3 nodes, 24 GPUs, 1 of the nodes spare" in run(gang)
    (job,) = json.loads(run(gang, str(ID), "--json"))["jobs"]
    assert (job["nodes"], job["spare"]) == (3, 1)
    assert "spare" not in run(reply())


def test_a_task_of_an_array_has_both_its_names(run: Run) -> None:
    shown = run(reply(array_id=ID - 1, array_index=7))
    assert shown.startswith("Workload 4294967296_7 'train' of ada, tenant vision (id 4294967297)")


def test_a_workload_too_young_for_the_last_ranking_says_so(run: Run) -> None:
    shown = run(reply(reason=Reason(code=ReasonCode.NOT_TRIED)))
    assert "Rank    not known yet: it came to the queue a moment ago; ask again" in shown
    assert "Reason  waits for the next scheduling pass" in shown


def test_what_runs_at_a_site_that_is_not_heard_is_not_known(run: Run) -> None:
    shown = run(reply(state="RUNNING", site="alpine", attempt=1, unknown_since_s=1.0))
    assert "the site is not heard" in shown


def test_every_task_of_an_array_is_told(run: Run) -> None:
    both = QueueReply(rows=reply().rows * 2, now_s=0.0)
    assert run(both).count("Workload 4294967297") == 2


def test_the_same_is_to_be_had_as_json(run: Run) -> None:
    told = json.loads(run(reply(rank=rank(), time_limit_s=float("inf")), str(ID), "--json"))
    assert (told["schema"], told["now_s"]) == (1, 4600.0)
    (job,) = told["jobs"]
    assert (job["id"], job["time_limit_s"], job["rank"]["position"]) == (ID, None, 3)
    assert job["rank"]["shortfall"] is None


def test_an_id_that_does_not_exist_is_refused(run: Run) -> None:
    with pytest.raises(InvalidRequest, match=r"^Invalid job id specified: 7\?$"):
        run(QueueReply(rows=(), now_s=0.0), "7\x1b")


def test_a_word_that_is_not_utf8_is_refused(run: Run, asked: list[Call]) -> None:
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        run(reply(), "\udce9")
    assert asked == []


def test_a_refusal_is_one_printable_line(run: Run) -> None:
    with pytest.raises(InvalidRequest, match=r"^no\?$"):
        run(ErrorReply(message="no\x1b"))


def test_an_answer_to_another_question_is_an_error(run: Run) -> None:
    with pytest.raises(SiteUnavailable, match="unexpected answer"):
        run(CancelReply(ids=()))


def test_names_reach_the_terminal_without_control_characters(run: Run) -> None:
    shown = run(
        reply(
            name="n\x1b[2J",
            user="u\r",
            tenant="t\x9b",
            site="s\x07",
            attempt=1,
            state="RUNNING",
            node_names=("\x1b",),
            offers={"\x1b": Score()},
            rank=rank(),
        )
    )
    assert all(line.isprintable() for line in shown.split("\n"))
