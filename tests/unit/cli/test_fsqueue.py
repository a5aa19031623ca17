"""``fsqueue --why`` asks for ranks, and shows them before what the sites say."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pytest

from federator.cli import fsqueue
from federator.cli.job_states import ENDED, asked_states, workload_states
from federator.cli.queue_table import render
from federator.errors import SiteUnavailable
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.wire.client_protocol import Call, QueueCall, QueueReply, QueueRow
from federator.wire.queue_rows import QueueRank
from federator.wire.replies import Reply


def row(**changes: Any) -> QueueRow:
    base: dict[str, Any] = {
        "id": 2**32,
        "name": "n",
        "user": "u",
        "tenant": "vision",
        "priority": 1,
        "state": "PENDING",
        "attempt": 0,
        "submitted_at_s": 0.0,
    }
    return QueueRow(**{**base, **changes})


RANK = QueueRank(
    policy="fifo", by_quota=False, ranked_at_s=0.0, position=2, of=3, priority=1, tenant_priority=1
)
REFUSAL = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.SITE_DOWN),))


@pytest.mark.parametrize(("words", "why"), [(["--why"], True), ([], False)])
def test_ranks_are_asked_for_only_with_why(
    monkeypatch: pytest.MonkeyPatch, words: list[str], why: bool
) -> None:
    asked: list[Call] = []

    def call(message: Call) -> Reply:
        asked.append(message)
        return QueueReply(rows=(), now_s=0.0)

    monkeypatch.setattr(fsqueue, "call", call)
    monkeypatch.setattr(sys, "argv", ["fsqueue", *words])
    with pytest.raises(SystemExit):
        fsqueue.main()
    assert asked == [QueueCall(why=why, collapsed=True, brief=not why, codes=not why)]


def test_the_rank_stands_before_the_sites_reasons() -> None:
    rows = [row(rank=RANK, refusals={"alpine": REFUSAL})]
    _, first, second = render(rows, 0.0, header=False, why=True).splitlines()
    assert first.strip() == "2nd of 3; priority 1; fifo orders by priority, then submission"
    assert second.strip() == "alpine: not now: the site is down or not connected"


@pytest.mark.parametrize(
    "other",
    [
        *({"user": "v"}, {"tenant": "nlp"}, {"state": "HELD"}, {"nodes": 3}, {"gpus": 3}),
        *({"site": "alpine"}, {"site_job_id": 7}, {"started_at_s": 1.0}, {"unknown_since_s": 1.0}),
        *({"reason": Reason(code=ReasonCode.DATA)}, {"reason": None}, {"name": "other"}),
    ],
)
def test_rows_that_differ_in_one_thing_are_shown_each_as_it_is(other: dict[str, Any]) -> None:
    first = row(reason=Reason(code=ReasonCode.RESOURCES))
    second = row(**{"reason": first.reason, **other})
    alone = [render([each], 9.0, header=False, why=False) for each in (first, second)]
    assert render([first, second, first], 9.0, header=False, why=False).split("\n") == [
        *alone,
        alone[0],
    ]


def test_what_is_held_is_pending_with_its_reason() -> None:
    reason = Reason(code=ReasonCode.HELD, detail="alpine: Invalid qos specification")
    line, why = render([row(state="HELD", reason=reason)], 0.0, header=False, why=True).splitlines()
    assert " PD " in line
    assert line.endswith("(JobHeldUser)")
    assert "Invalid qos specification" in why
    for asked in ("pd", "PENDING"):
        assert set(workload_states(asked_states(asked))) == {"PENDING", "INELIGIBLE", "HELD"}


def test_a_daemon_of_an_older_release_ranks_nothing() -> None:
    rows = [row(refusals={"alpine": REFUSAL})]
    lines = render(rows, 0.0, header=False, why=True).splitlines()
    assert len(lines) == 2


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("PREEMPTING", ReasonCode.PREEMPTED),
        ("PREEMPTING", ReasonCode.TIME_LIMIT),
        ("TIMEOUT", ReasonCode.NO_PROGRESS),
    ],
)
def test_why_it_leaves_stands_beside_its_nodes(state: str, code: ReasonCode) -> None:
    rows = [row(state=state, node_names=("a1", "a2"), reason=Reason(code=code, needed=3))]
    (line,) = render(rows, 0.0, header=False, why=False).splitlines()
    assert line.endswith(f"a[1-2] ({code.value})")


def test_what_runs_has_no_place_in_the_queue() -> None:
    rows = [row(state="RUNNING", rank=RANK)]
    assert len(render(rows, 0.0, header=False, why=True).splitlines()) == 1


# ---- ids and arrays, as squeue has them ----


def ends(
    monkeypatch: pytest.MonkeyPatch, words: list[str], reply: QueueReply
) -> tuple[int, list[Call]]:
    asked: list[Call] = []

    def call(message: Call) -> Reply:
        asked.append(message)
        return reply

    monkeypatch.setattr(fsqueue, "call", call)
    monkeypatch.setattr(sys, "argv", ["fsqueue", *words])
    with pytest.raises(SystemExit) as ended:
        fsqueue.main()
    return int(ended.value.code or 0), asked


@pytest.mark.parametrize("words", [["-j", "999"], ["999"], ["-j999_3"], ["--json", "-j", "999"]])
def test_one_job_that_is_not_known_is_squeues_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    reply = QueueReply(rows=(), now_s=0.0, unknown=("999",))
    assert ends(monkeypatch, words, reply)[0] == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "slurm_load_jobs error: Invalid job id specified\n")


def test_of_several_those_that_are_known_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reply = QueueReply(rows=(), now_s=0.0, unknown=("998", "999"))
    assert ends(monkeypatch, ["-j", "998,999"], reply)[0] == 0
    assert capsys.readouterr().out.count("\n") == 1  # the header alone, as with squeue


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["-h", "-o", "%i"], ["5", "6", "4", "1", "3", "2"]),
        (["-h", "-o", "%i", "-S", "i"], ["1", "2", "3", "4", "5", "6"]),
        (["-h", "-O", "JobID:2"], ["5", "6", "4", "1", "3", "2"]),
        (["-h", "-o", "%i", "-s"], ["1", "3", "2"]),
    ],
)
def test_called_as_squeue_it_has_squeues_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str],
    shown: list[str],
) -> None:  # fmt: skip
    """Partition, then state, then priority: ``squeue --sort`` of all releases."""
    rows = (
        row(id=1, state="RUNNING", partition="a"),
        row(id=3, state="RUNNING", partition="b", priority=2),
        row(id=2, state="RUNNING", partition="b", priority=3),
        row(id=4, state="PENDING", partition="a", priority=3),
        row(id=5, state="PENDING", partition="a", priority=1),
        row(id=6, state="PENDING", partition="a", priority=2),
    )
    monkeypatch.setattr(fsqueue, "call", lambda _: QueueReply(rows=rows, now_s=0.0))
    monkeypatch.setattr(sys, "argv", ["/home/ada/fed-bin/squeue", *words])
    with pytest.raises(SystemExit) as ended:
        fsqueue.main()
    assert not ended.value.code
    told = capsys.readouterr().out.split()
    assert [word.partition(".")[0] for word in told] == shown


@pytest.mark.parametrize(
    ("words", "heading"),
    [
        ([], "JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"),
        (["-l"], "JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES "
         "NODELIST(REASON)"),
        (["--start"], "JOBID PARTITION     NAME     USER ST          START_TIME  NODES SCHEDNODES"),
    ],
)  # fmt: skip
def test_called_as_squeue_it_has_squeues_columns_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str],
    heading: str,
) -> None:  # fmt: skip
    """Scripts count columns; and an id is never cut."""
    monkeypatch.setattr(fsqueue, "call", lambda _: QueueReply(rows=(row(),), now_s=0.0))
    monkeypatch.setattr(sys, "argv", ["/home/ada/fed-bin/squeue", *words])
    with pytest.raises(SystemExit) as ended:
        fsqueue.main()
    assert not ended.value.code
    shown = capsys.readouterr().out.splitlines()
    assert heading in shown[-2]
    assert shown[-1].split()[0] == str(2**32)


def test_what_is_no_id_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(monkeypatch, ["-j", "12,abc"], QueueReply(rows=(), now_s=0.0)) == (1, [])
    assert capsys.readouterr().err == "fsqueue: error: Invalid job id: abc\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-w", "n[1"], "'n[1' invalid entry for --nodelist"),
        (["-w", ""], "'' invalid entry for --nodelist"),
        (["--running-over", "soon"], "Invalid time limit specification: 'soon'"),
        (["--running-under=1:x"], "Invalid time limit specification: '1:x'"),
    ],
)
def test_a_filter_that_is_none_is_refused_before_anything_is_asked(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    assert ends(monkeypatch, words, QueueReply(rows=(), now_s=0.0)) == (1, [])
    assert capsys.readouterr().err == f"fsqueue: error: {said}\n"


def test_tasks_in_brackets_are_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["-j", "7_[1-2,5],8,9+1"]
    (asked,) = ends(monkeypatch, words, QueueReply(rows=(), now_s=0.0))[1]
    assert isinstance(asked, QueueCall)
    assert asked.ids == ("7_1", "7_2", "7_5", "8", "9")


@pytest.mark.parametrize(("name", "key"), [("bin/squeue", "last_backfill"), ("fsqueue", "schema")])
def test_called_by_slurms_name_its_json_is_slurms(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, key: str
) -> None:
    monkeypatch.setattr(fsqueue, "call", lambda _: QueueReply(rows=(), now_s=0.0))
    monkeypatch.setattr(sys, "argv", [name, "--json"])
    with pytest.raises(SystemExit):
        fsqueue.main()
    assert key in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "collapsed"), [([], True), (["-r"], False), (["--array"], False), (["--json"], False)]
)
def test_arrays_are_asked_for_in_one_row_or_in_many(
    monkeypatch: pytest.MonkeyPatch, words: list[str], collapsed: bool
) -> None:
    _, asked = ends(monkeypatch, words, QueueReply(rows=(), now_s=0.0))
    as_json = "--json" in words
    assert asked == [
        QueueCall(
            collapsed=collapsed,
            files=as_json,
            brief=not as_json,
            codes=not as_json,
            starts=as_json,
        )
    ]


def test_an_array_has_its_tasks_behind_its_id_and_columns_stay_in_line() -> None:
    many = ",".join(map(str, range(0, 90, 2)))
    rows = [
        row(array_id=2**32, array_tasks="[5-99%4]", tasks=95),
        row(array_id=2**32, array_tasks=f"[{many}%4]", tasks=45),
        row(array_id=2**32, array_index=3, state="RUNNING"),
    ]
    header, *lines = render(rows, 0.0, header=True, why=False).splitlines()
    assert [line.split()[0] for line in lines] == [
        "4294967296_[5-99%4]",
        "4294967296_[0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,...%4]",
        "4294967296_3",
    ]
    assert {line.index(" n ") + 1 for line in lines} == {header.index("NAME")}


def test_the_ended_states_are_those_of_the_lifecycle() -> None:
    assert {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"} == ENDED


def test_with_iterate_a_daemon_that_is_away_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds: list[float] = []

    def call(_: Call) -> Reply:
        if not rounds:
            raise SiteUnavailable("no daemon answers")
        return QueueReply(rows=(), now_s=0.0)

    def pause(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(fsqueue, "call", call)
    monkeypatch.setattr(time, "sleep", pause)
    monkeypatch.setattr(sys, "argv", ["fsqueue", "-i", "5"])
    with pytest.raises(SystemExit) as ended:
        fsqueue.main()
    said = capsys.readouterr()
    assert (ended.value.code, rounds) == (130, [5.0, 5.0])
    assert said.err.endswith("Unable to contact slurm controller: no daemon answers\n")
    assert "JOBID" in said.out


def test_many_ids_are_asked_about_in_several_questions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many as a daemon takes; one that is unknown among many is passed over, as by squeue."""
    asked: list[tuple[str, ...]] = []

    def call(message: Call) -> Reply:
        assert isinstance(message, QueueCall)
        asked.append(message.ids)
        known = [row(id=int(id_)) for id_ in message.ids if id_ != "5"]
        unknown = tuple(id_ for id_ in message.ids if id_ == "5")
        return QueueReply(rows=tuple(known), now_s=0.0, unknown=unknown)

    monkeypatch.setattr(fsqueue, "_IDS_IN_A_CALL", 2)
    monkeypatch.setattr(fsqueue, "call", call)
    monkeypatch.setattr(sys, "argv", ["fsqueue", "-h", "-o", "%i", "-j", "1,2,3,4,5"])
    with pytest.raises(SystemExit) as ended:
        fsqueue.main()
    assert (ended.value.code, asked) == (0, [("1", "2"), ("3", "4"), ("5",)])
    assert capsys.readouterr().out.split() == ["1", "2", "3", "4"]
