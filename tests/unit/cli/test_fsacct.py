"""fsacct: what it asks for, and that its tables are those that sacct's readers expect."""

from __future__ import annotations

import csv
import io
import json
import pwd
import sys
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest

from federator.cli import accounting_columns, fsacct, unknown_names
from federator.cli.accounting_columns import COLUMNS
from federator.cli.text import clock_text
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow
from federator.wire.client_protocol import (
    AccountingCall,
    AccountingReply,
    ErrorKind,
    ErrorReply,
    QueueCall,
    QueueReply,
    QueueRow,
)
from federator.wire.replies import Reply

RECORDED = Path(__file__).parents[2] / "data" / "sacct"
ID = 7_410_340_069_376
NOW_S = 1_795_000_000.0
MADE = AccountingAttempt(
    attempt=2,
    site="alpine",
    site_job_id=77,
    partition="gpu",
    node_list="a[1-2]",
    nodes=2,
    cpus=16,
    gpus=16,
    gpu_types="a100=16",
    mem_mib=131_072,
    awarded_at_s=NOW_S - 100,
    started_at_s=NOW_S - 90,
    ended_at_s=NOW_S - 25,
    state="COMPLETED",
)
FIRST = AccountingAttempt(
    attempt=1,
    site="boreal",
    site_job_id=3,
    partition="gpu",
    node_list="b1",
    nodes=1,
    cpus=8,
    started_at_s=NOW_S - 200,
    ended_at_s=NOW_S - 150,
    state="NODE_FAIL",
    reason="FedNodeFail b1",
)


def row(**changes: Any) -> AccountingRow:
    base: dict[str, Any] = {
        "id": ID,
        "name": "train",
        "user": "ada",
        "tenant": "vision",
        "state": "COMPLETED",
        "submitted_at_s": NOW_S - 300,
        "eligible_at_s": NOW_S - 300,
        "over_at_s": NOW_S - 20,
        "asked_nodes": 2,
        "asked_cpus": 16,
        "asked_gpus": 16,
        "time_limit_s": 3600.0,
        "last": MADE,
    }
    return AccountingRow(**{**base, **changes})


Run = Callable[..., str]


@pytest.fixture
def asked() -> list[AccountingCall]:
    return []


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: list[AccountingCall],
) -> Iterator[Run]:
    """Runs the command against a daemon that gives these answers; returns what it prints."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(fsacct, "my_name", lambda: "ada")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr(time, "time", lambda: NOW_S)

    def run(words: str, *rows: AccountingRow, replies: list[Reply] | None = None) -> str:
        answers = iter(replies or [])

        def call(message: AccountingCall) -> Reply:
            asked.append(message)
            answer = AccountingReply(rows=rows, now_s=NOW_S, federation="demo")
            return next(answers, answer)

        monkeypatch.setattr(fsacct, "call", call)
        monkeypatch.setattr(sys, "argv", ["fsacct", *words.split()])
        with pytest.raises(SystemExit) as ended:
            fsacct.main()
        found = capsys.readouterr()
        assert (ended.value.code == 0) == (not found.err.startswith("fsacct: error")), found.err
        return found.out or found.err

    yield run
    monkeypatch.undo()
    time.tzset()


# ---- tables ----


def test_the_default_table_is_sacct_s_but_for_ids_which_are_shown_whole(run: Run) -> None:
    assert run("-X", row(), row(id=ID + 1, state="CANCELLED", last=None)).splitlines() == [
        "JobID            JobName  Partition    Account  AllocCPUS      State ExitCode ",
        "------------- ---------- ---------- ---------- ---------- ---------- -------- ",
        "7410340069376      train        gpu     vision         16  COMPLETED      0:0 ",
        "7410340069377      train                vision          0  CANCELLED      0:0 ",
    ]


def test_attempts_are_steps_and_what_is_no_step_is_found_by_its_id(run: Run) -> None:
    text = run("-P -o jobid,jobidraw,state,partition,cluster,nodelist", row(earlier=(FIRST,)))
    assert text.splitlines()[1:] == [
        "7410340069376|7410340069376|COMPLETED|gpu|alpine|a[1-2]",
        "7410340069376.1|7410340069376.1|NODE_FAIL||boreal|b1",
        "7410340069376.2|7410340069376.2|COMPLETED||alpine|a[1-2]",
    ]


def test_duplicates_are_rows_of_the_same_id(run: Run) -> None:
    text = run("-D -X -n -P -o jobid,state,elapsedraw", row(earlier=(FIRST,)))
    assert text.splitlines() == ["7410340069376|NODE_FAIL|50", "7410340069376|COMPLETED|65"]


def test_values_are_written_as_sacct_writes_them(run: Run) -> None:
    fields = (
        "Submit,Eligible,Start,End,Elapsed,ElapsedRaw,Timelimit,TimelimitRaw,CPUTime,CPUTimeRAW,"
        "Planned,ReqTRES,AllocTRES,NNodes,NCPUS,Restarts,Reason,Site,SiteJobID,GPUs,MaxRSS,TotalCPU"
    )
    header, line = run(f"-X -P -o {fields}", row(asked_mem_mib=100)).splitlines()
    shown = dict(zip(header.split("|"), line.split("|"), strict=True))
    moments = {"Submit": 300, "Eligible": 300, "Start": 90, "End": 25}
    for name, ago_s in moments.items():
        assert shown.pop(name) == time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(NOW_S - ago_s))
    assert shown == {
        "Elapsed": "00:01:05",
        "ElapsedRaw": "65",
        "Timelimit": "01:00:00",
        "TimelimitRaw": "60",
        "CPUTime": "00:17:20",
        "CPUTimeRAW": "1040",
        "Planned": "00:03:30",
        "ReqTRES": "billing=16,cpu=16,gres/gpu=16,mem=100M,node=2",
        "AllocTRES": "billing=16,cpu=16,gres/gpu:a100=16,gres/gpu=16,mem=128G,node=2",
        "NNodes": "2",
        "NCPUS": "16",
        "Restarts": "1",
        "Reason": "None",
        "Site": "alpine",
        "SiteJobID": "77",
        "GPUs": "16",
        "MaxRSS": "",
        "TotalCPU": "",
    }


def test_why_it_waits_is_asked_for_where_it_is_shown(run: Run, asked: list[AccountingCall]) -> None:
    waits = row(state="PENDING", over_at_s=0.0, last=None, reason="FedUserHold")
    assert run("-n -X -P -o Reason", waits) == "JobHeldUser\n"
    run("-n -X -o JobID,State", waits)
    told = json.loads(run("--json=slurm", waits))
    assert told["jobs"][0]["state"]["reason"] == "JobHeldUser"
    assert [call.reasons for call in asked] == [True, False, True]


@pytest.mark.parametrize(
    ("changes", "start", "end", "state", "nodes"),
    [
        (
            {"state": "PENDING", "over_at_s": 0.0, "last": None},
            "Unknown",
            "Unknown",
            "PENDING",
            "None assigned",
        ),
        (
            {"state": "CANCELLED", "last": None},
            "None",
            "2026-11-18T11:06:20",
            "CANCELLED",
            "None assigned",
        ),
        (
            {
                "state": "RUNNING",
                "over_at_s": 0.0,
                "last": AccountingAttempt(attempt=1, started_at_s=NOW_S - 60, node_list="a1"),
            },
            "2026-11-18T11:05:40",
            "Unknown",
            "RUNNING",
            "a1",
        ),
    ],
)
def test_what_is_not_yet_is_unknown_and_what_never_was_is_none(
    run: Run, changes: dict[str, Any], start: str, end: str, state: str, nodes: str
) -> None:
    text = run("-X -n -P -o start,end,state,nodelist", row(**changes))
    assert text.strip() == f"{start}|{end}|{state}|{nodes}"


def test_who_cancelled_is_named_by_the_uid_that_this_host_has_for_the_user(run: Run) -> None:
    me = pwd.getpwuid(0)
    for by, shown in (
        (me.pw_name, f" by {me.pw_uid}"),
        ("nobody-here", " by nobody-here"),
        ("", ""),
    ):
        changes = {"state": "CANCELLED", "cancelled_by": by}
        assert run("-X -n -P -o state", row(**changes)).strip() == f"CANCELLED{shown}"


def test_array_tasks_are_called_by_array_and_index(run: Run) -> None:
    waiting = row(id=ID, array_id=ID, state="PENDING", last=None, array_tasks="[0,2-4%2]")
    task = row(id=ID + 1, array_id=ID, array_index=1)
    text = run("-X -n -P -o jobid,jobidraw", waiting, task)
    assert text.splitlines() == [f"{ID}_[0,2-4%2]|{ID}", f"{ID}_1|{ID + 1}"]


def test_a_limit_above_a_year_has_days_as_sacct_s(run: Run) -> None:
    limit_s = 400 * 86_400.0
    assert run("-X -n -P -o timelimit", row(time_limit_s=limit_s)).strip() == "400-00:00:00"


def test_memory_is_shown_in_the_unit_that_is_asked_for(run: Run) -> None:
    for words, shown in (("", "128G"), ("--noconvert", "131072M"), ("--units=T", "0.12T")):
        text = run(f"{words} -X -n -P -o alloctres,reqmem", row(asked_mem_mib=131_072))
        assert f"mem={shown}," in text
        assert text.strip().endswith(f"|{shown}")


def test_names_of_few_nodes_are_folded_as_sacct_has_them(run: Run) -> None:
    """The history folds more than three."""
    made = AccountingAttempt(attempt=1, started_at_s=NOW_S - 60, node_list="g02,g01")
    assert run("-X -n -P -o nodelist", row(last=made)) == "g[01-02]\n"


def test_a_name_with_bars_and_escapes_stays_in_its_field(run: Run) -> None:
    text = run("-X -P -o state,jobname", row(name="a\x1b[2Jb"))
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("-p -o jobid,state", "JobID|State|"),
        ("-P --delimiter=^ -o jobid,state", "JobID^State"),
        ("-P -o jobname%30,JOBID", "JobName|JobID"),
        ("-P --brief", "JobID|State|ExitCode"),
        ("-P -o %user", "JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode|User"),
    ],
)
def test_the_header_names_the_fields(run: Run, words: str, first: str) -> None:
    assert run(f"-X {words}", row()).splitlines()[0] == first


def test_the_environment_may_name_the_fields(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCT_FORMAT", "user,state")
    assert run("-X -n -P", row()).strip() == "ada|COMPLETED"
    assert run("-X -n -P -o jobid", row()).strip() == str(ID)


def test_times_have_the_form_that_the_environment_names(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_TIME_FORMAT", "%s")
    assert run("-X -n -P -o submit", row()).strip() == str(int(NOW_S - 300))


def test_long_has_columns_that_all_exist(run: Run) -> None:
    header, line = run("-X -P -l", row()).splitlines()
    assert len(header.split("|")) == len(line.split("|")) > 40


def test_every_name_of_the_help_is_a_column(run: Run) -> None:
    assert run("--helpformat").split() == [column.name for column in COLUMNS]


def test_json_has_every_attempt(run: Run) -> None:
    found = json.loads(run("--json", row(earlier=(FIRST,))))
    assert (found["schema"], found["now_s"]) == (1, NOW_S)
    (job,) = found["jobs"]
    assert [made["site"] for made in job["attempts"]] == ["boreal", "alpine"]
    assert "last" not in job


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
@pytest.mark.parametrize("kind", ["default", "jobs"])
def test_headers_are_those_of_the_real_sacct(run: Run, release: str, kind: str) -> None:
    with (RECORDED / release / f"{kind}.txt").open() as file:
        header = file.readline().strip()
    words = "" if kind == "default" else f"-o {header.replace('|', ',').lower()}"
    assert run(f"-X --parsable2 {words}", row()).splitlines()[0] == header


# ---- as programs read it ----


def test_submitit_reads_ids_states_and_nodes(run: Run, asked: list[AccountingCall]) -> None:
    text = run(f"-o JobID,State,NodeList --parsable2 -j {ID} -j {ID + 1}", row(earlier=(FIRST,)))
    assert asked[0].ids == (str(ID), str(ID + 1))
    rows = list(csv.DictReader(io.StringIO(text), delimiter="|"))
    assert [r for r in rows if "." not in r["JobID"]] == [
        {"JobID": str(ID), "State": "COMPLETED", "NodeList": "a[1-2]"}
    ]


def test_parsl_reads_two_words_of_each_row(run: Run) -> None:
    text = run(f"-X --noheader --format=jobid,state%20 --job {ID}", row())
    assert text.split() == [str(ID), "COMPLETED"]


def test_snakemake_finds_its_jobs_by_their_name(run: Run, asked: list[AccountingCall]) -> None:
    text = run(
        "-X --parsable2 --clusters all --noheader --format=JobIdRaw,State "
        "--starttime 2026-11-16T00:00 --endtime now --name 0f3a",
        row(name="0f3a"),
    )
    assert text.strip() == f"{ID}|COMPLETED"
    (call,) = asked
    assert (call.names, call.clusters, call.users, call.end_s) == (("0f3a",), (), ("ada",), NOW_S)


def test_xdmod_reads_its_columns_with_the_site_as_the_cluster(run: Run) -> None:
    fields = (
        "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,"
        "elapsed,exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,"
        "jobname"
    )
    text = run(f"--allocations --clusters alpine -P -n --allusers --format {fields}", row())
    values = text.rstrip("\n").split("|")
    assert (len(values), values[2], values[-1]) == (26, "alpine", "train")


# ---- questions ----


DAY_BEGAN_S = NOW_S - NOW_S % 86_400


@pytest.mark.parametrize(
    ("words", "start_s", "end_s"),
    [
        ("", DAY_BEGAN_S, inf),
        (f"-j {ID}", 0.0, inf),
        ("-s FAILED", NOW_S, inf),
        (f"-s FAILED -j {ID}", 0.0, inf),
        ("-S now-1days", NOW_S - 86_400, inf),
        ("-S now-1days -E now-1hours", NOW_S - 86_400, NOW_S - 3600),
    ],
)
def test_the_time_asked_about_is_sacct_s(
    run: Run, asked: list[AccountingCall], words: str, start_s: float, end_s: float
) -> None:
    run(words)
    assert (asked[0].start_s, asked[0].end_s) == (start_s, end_s)


@pytest.mark.parametrize(
    ("words", "users"),
    [
        ("", ("ada",)),
        ("-a", ()),
        (f"-j {ID}", ()),
        ("-u eve,bob", ("eve", "bob")),
        ("-u 0", (pwd.getpwuid(0).pw_name,)),
    ],
)
def test_one_s_own_jobs_are_shown_unless_others_are_asked_for(
    run: Run, asked: list[AccountingCall], words: str, users: tuple[str, ...]
) -> None:
    run(words)
    assert asked[0].users == users


def test_filters_are_asked_of_the_daemon(run: Run, asked: list[AccountingCall]) -> None:
    run("-A vision,nlp -r gpu -N a[1-3] -M alpine --name n -s CA,f,COMPLETED -X")
    (call,) = asked
    assert (call.tenants, call.partitions) == (("vision", "nlp"), ("gpu",))
    assert (call.nodes, call.clusters, call.names) == (("a1", "a2", "a3"), ("alpine",), ("n",))
    assert (call.states, call.attempts) == (("CANCELLED", "FAILED", "COMPLETED"), False)


@pytest.mark.parametrize(
    ("ids", "meant"),
    [
        ("7", ("7",)),
        ("7_3,8", ("7_3", "8")),
        ("7_[1-2,5],8.batch,9+0", ("7_1", "7_2", "7_5", "8", "9")),
        ("7;demo", ("7;demo",)),
    ],
)
def test_jobs_are_named_as_slurm_names_them(
    run: Run, asked: list[AccountingCall], ids: str, meant: tuple[str, ...]
) -> None:
    run(f"-j {ids}")
    assert asked[0].ids == meant


def test_many_ids_are_asked_for_a_few_at_a_time(
    run: Run, asked: list[AccountingCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsacct, "_IDS_AT_ONCE", 2)
    run("-j 1,2,3")
    assert [call.ids for call in asked] == [("1", "2"), ("3",)]


def test_pages_are_asked_for_until_the_last_and_put_in_order(
    run: Run, asked: list[AccountingCall]
) -> None:
    first = AccountingReply(
        rows=(row(id=3), row(id=1, state="RUNNING")), now_s=NOW_S, federation="demo", after=(5.0, 3)
    )
    text = run("-X -n -P -o jobid,state", row(id=2), row(id=1), replies=[first])
    assert text.split() == ["1|COMPLETED", "2|COMPLETED", "3|COMPLETED"]
    assert [call.after for call in asked] == [None, (5.0, 3)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-o jobid,foo", 'fsacct: error: Invalid field requested: "foo"\n'),
        ("-S never", "fsacct: error: Invalid time specification (pos=0): never\n"),
        ("-S 2999-01-01", "fsacct: error: Start time (2999-01-01T00:00:00) requested is after "
         "end time (2026-11-18T11:06:40).\n"),
        ("-S now -E now-1days", "fsacct: error: Start time (2026-11-18T11:06:40) requested is "
         "after end time (2026-11-17T11:06:40).\n"),
        ("-j x", "fsacct: error: Bad job/step specified: x\n"),
        ("-j 1.x", "fsacct: error: Bad job/step specified: 1.x\n"),
        ("-j 1+x", "fsacct: error: Bad job/step specified: 1+x\n"),
        ("-s R,lazy", "fsacct: error: unrecognized job state value 'lazy'\n"),
        ("--units=Q", "fsacct: error: Invalid unit type 'Q'. Possible options are 'KMGTP'\n"),
        ("-u 4294967294", "fsacct: error: Invalid user id: 4294967294\n"),
        ("-N n[1", "fsacct: error: 'n[1' invalid entry for --nodelist\n"),
        ("--yaml", "fsacct: error: --yaml cannot be honoured: use --json or --json=slurm\n"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(run: Run, words: str, said: str) -> None:
    assert run(words) == said


@pytest.mark.parametrize("step", ["", ".0", ".batch", ".extern", ".0+1", "+1", "+1.0"])
def test_the_step_of_an_id_is_dropped(run: Run, asked: list[AccountingCall], step: str) -> None:
    run(f"-j {ID}{step}")
    assert asked[0].ids == (str(ID),)


def test_a_user_whom_nobody_is_is_refused_as_by_sacct(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def queue(message: QueueCall) -> QueueReply:
        waits = QueueRow(
            id=1,
            name="",
            user="waits",
            tenant="",
            state="PENDING",
            priority=4,
            attempt=0,
            submitted_at_s=0.0,
        )
        return QueueReply(rows=(waits,) if "waits" in message.users else (), now_s=NOW_S)

    monkeypatch.setattr(unknown_names, "call", queue)
    for words in ("-u nosuch-user", "-u root,nosuch-user", "-u nosuch-user -j 7 --json"):
        assert run(words, row()) == "fsacct: error: Invalid user id: nosuch-user\n"
    for known in ("root", "ada", "waits", "0"):  # of this host, of a row, of the queue
        assert "error" not in run(f"-u {known}", row())
    assert "error" not in run("-u nosuch-user -a", row())


def test_users_unknown_to_this_host_are_asked_about_once(
    run: Run, asked: list[AccountingCall], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their jobs may be older than the time that is asked about."""
    looks: list[QueueCall] = []

    def queue(message: QueueCall) -> QueueReply:
        looks.append(message)
        return QueueReply(rows=(), now_s=NOW_S)

    monkeypatch.setattr(unknown_names, "call", queue)
    old = row(id=7, user="was-here", over_at_s=1_000.0)

    def replies(after: tuple[float, int] | None) -> list[Reply]:
        found = AccountingReply(rows=(row(),), now_s=NOW_S, federation="demo")
        return [found, msgspec.structs.replace(found, rows=(old,), after=after)]

    said = run("-nX -o jobid -u ada,was-here", replies=replies(None))
    assert said.split() == [str(ID)]
    assert (asked[-1].start_s, asked[-1].users, len(looks)) == (0.0, ("was-here",), 1)
    names = ",".join(f"nosuch{k}" for k in range(50))
    assert run(f"-u {names}", replies=replies(None)) == "fsacct: error: Invalid user id: nosuch0\n"
    assert (len(asked), len(looks)) == (4, 2)
    more = run(f"-nX -o jobid -u {names}", replies=replies((1.0, 1)))
    assert "error" not in more, "there are more rows than were looked at"


def test_no_states_are_any(run: Run, asked: list[AccountingCall]) -> None:
    """As sacct, of a variable that is empty."""
    run("-s ,")
    run("")
    assert asked[0] == asked[1]


def test_what_an_answer_lacks_is_said_once(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    lacking = AccountingReply(rows=(), now_s=NOW_S, federation="demo", note="no history is kept")
    text = run("-X -n", replies=[lacking])
    assert text == "fsacct: no history is kept\n"


def test_a_refusal_is_an_error(run: Run) -> None:
    refused = ErrorReply(message="the history's database: down", kind=ErrorKind.UNAVAILABLE)
    assert run("", replies=[refused]) == "fsacct: error: the history's database: down\n"


def test_long_times_have_days() -> None:
    assert [clock_text(s) for s in (0, 59, 3600, 90_061)] == [
        "00:00:00",
        "00:00:59",
        "01:00:00",
        "1-01:01:01",
    ]
    assert accounting_columns.moment_text(0.0) == "Unknown"


@pytest.mark.parametrize("state", ["CANCELLED", "TIMEOUT"])
def test_what_was_ended_from_outside_has_exit_code_0_and_its_attempt_its_own(
    run: Run, state: str
) -> None:
    """As sacct of three generations (tests/data/sacct, tests/slurm/test_accounting.py)."""
    ended = row(state=state, last=msgspec.structs.replace(MADE, state=state, signal=15))
    assert run("-nP -o exitcode", ended).split() == ["0:0", "0:15"]
    failed = row(state="FAILED", last=msgspec.structs.replace(MADE, state="FAILED", exit_code=3))
    assert run("-nP -o exitcode", failed).split() == ["3:0", "3:0"]
