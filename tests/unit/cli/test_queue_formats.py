"""fsqueue with squeue's options: columns, order, filters and variables of the environment."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from federator.cli import fsqueue, queue_order, unknown_names
from federator.cli.job_states import CODES
from federator.cli.queue_columns import COLUMNS, STEP_COLUMNS, Shown
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.start_estimate import StartEstimate
from federator.wire.client_protocol import Call, QueueCall, QueueReply, QueueRow
from federator.wire.queue_rows import JobDetails
from federator.wire.replies import Reply
from tests.fakes.json_shape import differences, recorded

NOW_S = 1_000_000.0
Ask = Callable[..., tuple[int, list[str], QueueCall]]
DETAILS = JobDetails(
    partitions=("gpu",),
    cpus=16,
    mem_mib=4096,
    min_cpus=8,
    min_mem_mib=2048,
    gpus_per_node=8,
    gpu_types={"a100": 16},
    requeue=False,
    nice=5,
    restarts=2,
    options={
        "gres": "gpu:a100:8",
        "qos": "high",
        "comment": "it",
        "constraint": "nvlink",
        "licenses": "fluent,matlab:2",
        "reservation": "alpine:r1",
    },
)


def row(**changes: Any) -> QueueRow:
    base: dict[str, Any] = {
        "id": 2**32,
        "name": "train",
        "user": "ada",
        "tenant": "vision",
        "priority": 2,
        "state": "RUNNING",
        "attempt": 3,
        "submitted_at_s": NOW_S - 7200,
        "started_at_s": NOW_S - 3725,
        "time_limit_s": 86_400.0,
        "nodes": 2,
        "gpus": 16,
        "site": "alpine",
        "site_job_id": 77,
        "node_names": ("n1", "n2"),
        "details": DETAILS,
        "work_dir": "/home/ada",
        "stdout": "/home/ada/o",
    }
    return QueueRow(**{**base, **changes})


WAITS = row(
    id=2**32 + 1,
    state="PENDING",
    site="",
    site_job_id=0,
    node_names=(),
    started_at_s=0.0,
    reason=Reason(code=ReasonCode.RESOURCES),
    time_limit_s=inf,
    details=JobDetails(),
)
TASK = row(id=2**32 + 5, array_id=2**32 + 2, array_index=3)
TASKS = row(
    id=2**32 + 6,
    array_id=2**32 + 2,
    array_index=4,
    array_tasks="[4-9%2]",
    state="PENDING",
    started_at_s=0.0,
)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run fsqueue against an answer; return exit status, lines, and what it asked."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setattr(unknown_names, "call", lambda _: QueueReply(rows=(), now_s=NOW_S))

    def command(words: list[str], *rows: QueueRow) -> tuple[int, list[str], QueueCall]:
        asked: list[Call] = []

        def call(message: Call) -> Reply:
            asked.append(message)
            return QueueReply(rows=rows, now_s=NOW_S)

        monkeypatch.setattr(fsqueue, "call", call)
        monkeypatch.setattr(sys, "argv", ["fsqueue", *words])
        with pytest.raises(SystemExit) as ended:
            fsqueue.main()
        told = capsys.readouterr()
        question = asked[0] if asked else QueueCall()
        assert isinstance(question, QueueCall)
        return int(ended.value.code or 0), (told.out or told.err).splitlines(), question

    return command


# ---- columns ----


@pytest.mark.parametrize("words", [[], ["-l"], ["-S", "P"], ["-o", "%i %P"]])
def test_called_by_slurms_name_the_partition_costs_no_details(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """With details a daemon decodes each submission, and answers with fewer rows."""
    monkeypatch.setattr(fsqueue, "called_as_slurms", lambda _: True)
    _, lines, question = ask(words, row(details=None, partition="gpu,long"))
    assert (question.details, question.brief) == (False, True)
    assert "gpu,long" in lines[-1]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("%i %T %t %u %a %j", "4294967296 RUNNING R ada vision train"),
        ("%D %C %N %R %B", "2 16 n[1-2] n[1-2] n1"),
        ("%M|%l|%L", "1:02:05|1-00:00:00|22:57:55"),
        ("%P %q %k %f", "gpu high it nvlink"),
        ("%m %c %b", "2G 8 gres/gpu:a100:8"),
        ("%r %Q %y %h", "None 2 5 OK"),
        ("%A %F %K", "4294967296 4294967296 N/A"),
        ("%z %H %I %J %X", "*:*:* * * * N/A"),
        ("%v %w %W %o %E", "alpine:r1 (null) fluent,matlab:2 (null) (null)"),
        ("%n%x%O%d", "00"),
        ("%Z", "/home/ada"),
        ("%.8i|%8j|%.3u", "42949672|train   |ada"),
    ],
)
def test_letters_show_what_squeue_would(ask: Ask, text: str, shown: str) -> None:
    assert ask(["-h", "-o", text], row())[1] == [shown]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ("JobArrayID:|,StateCompact:|,Reason:|", "4294967296|R|None|"),
        ("exit_code:;,Requeue:;,RestartCnt:", "0:0;0;2"),
        (
            "tres-alloc:",
            "cpu=16,mem=4G,node=2,billing=16,gres/gpu=16,gres/gpu:a100=16",
        ),
        ("tres-per-node:|,tres-per-job:", "gres/gpu:a100:8|N/A"),
        ("StdOut:|,StdErr:|,WorkDir:", "/home/ada/o|(null)|/home/ada"),
        ("Site:|,SiteJobID:|,GPUs:|,Cluster:", "alpine|77|16|alpine"),
        ("NumTasks:|,PendingTime:", "2|3475"),
    ],
)
def test_names_show_what_squeue_would(ask: Ask, names: str, shown: str) -> None:
    assert ask(["-h", "-O", names], row())[1] == [shown]


def test_what_waits_shows_what_squeue_shows_of_it(ask: Ask) -> None:
    text = "%t|%R|%N|%B|%S|%M|%l|%L|%e|%P|%b"
    assert ask(["-h", "-o", text], WAITS)[1] == [
        "PD|(Resources)||n/a|N/A|0:00|UNLIMITED|UNLIMITED|N/A|(null)|N/A"
    ]


def test_tasks_of_an_array_are_named_as_squeue_names_them(ask: Ask) -> None:
    text = "%i %A %F %K"
    assert ask(["-h", "-o", text], TASK, TASKS)[1] == [
        "4294967298_3 4294967301 4294967298 3",
        "4294967298_[4-9%2] 4294967298 4294967298 4-9%2",
    ]


def test_times_are_local_and_take_the_form_that_slurm_is_told(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time  # noqa: PLC0415

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert ask(["-h", "-o", "%V %S"], row())[1] == ["1970-01-12T11:46:40 1970-01-12T12:44:35"]
    monkeypatch.setenv("SLURM_TIME_FORMAT", "%H:%M")
    assert ask(["-h", "-o", "%V"], row())[1] == ["11:46"]


def test_memory_keeps_its_unit_with_noconvert(ask: Ask) -> None:
    assert ask(["-h", "--noconvert", "-o", "%m"], row())[1] == ["2048M"]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_every_column_has_a_value_for_every_job(ask: Ask, column: Any) -> None:
    words = ["-h", "-t", "all", "-O", f"{column.name}:|"]
    ended = row(state="FAILED", site_state="OUT_OF_MEMORY", ended_at_s=NOW_S, exit_code=0, signal=9)
    status, lines, _ = ask(words, row(), WAITS, TASKS, ended, row(details=None, jobs=2))
    assert status == 0
    assert len(lines) == 5
    assert all(line.endswith("|") for line in lines)


def test_what_the_site_told_of_an_end_is_the_state(ask: Ask) -> None:
    ended = row(state="FAILED", site_state="OUT_OF_MEMORY", ended_at_s=NOW_S, exit_code=0, signal=9)
    assert ask(["-h", "-t", "OOM", "-o", "%T %t %R"], ended)[1] == [
        "OUT_OF_MEMORY OOM (OutOfMemory)"
    ]
    assert ask(["-h", "-t", "F", "-o", "%T"], ended)[1] == []
    assert ask(["-h", "-o", "%T %t"], row(site_state="SUSPENDED"))[1] == ["SUSPENDED S"]
    assert "OOM" in ask(["-h", "-t", "all"], ended)[1][0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "%!"], "fsqueue: error: Invalid job format specification: !"),
        (["-O", "Colour"], "fsqueue: error: Invalid job format specification: Colour"),
        (["-S", "x"], "fsqueue: error: Invalid sort specification: x"),
        (["-s", "-o", "%Q"], "fsqueue: error: Invalid job step format specification: Q"),
        (["-o", "%i", "-O", "JobID"], "fsqueue: error: -O (--Format) is incompatible with -o"),
        (["-o", "%i", "-l"], "fsqueue: error: Options -o(--format) and -l(--long) are mutually"),
        (["-w", "n[2-1]"], "fsqueue: error: 'n[2-1]' invalid entry for --nodelist"),
        (["--running-over=x"], "fsqueue: error: Invalid time limit specification: 'x'"),
        (["--sibling"], "fsqueue: error: --sibling cannot be honoured: a job is at one site"),
        (["--yaml"], "fsqueue: error: --yaml cannot be honoured: use --json"),
        (["--json=xml"], "fsqueue: error: --json=xml: give no value, or slurm"),
        (["--nosuch"], "fsqueue: error: unrecognized option '--nosuch'; see fsqueue --help"),
        (["-Z"], "fsqueue: error: invalid option -- 'Z'; see fsqueue --help"),
        (["-o"], "fsqueue: error: option requires an argument -- 'o'; see fsqueue --help"),
        (["--sort"], "fsqueue: error: option '--sort' requires an argument; see"),
        (["--me=x"], "fsqueue: error: option '--me' doesn't allow an argument; see"),
        (["--s"], "fsqueue: error: option '--s' is ambiguous; possibilities: '--sibling'"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_line(
    ask: Ask, words: list[str], said: str
) -> None:
    status, lines, _ = ask(words)
    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith(said)


# ---- views ----


def test_the_long_view_is_squeues_and_the_site(ask: Ask) -> None:
    _, (_, header, line), _ = ask(["-l"], row())
    assert header.split() == [
        "JOBID",
        "PARTITION",
        "NAME",
        "USER",
        "STATE",
        "TIME",
        "TIME_LIMI",
        "NODES",
        "CLUSTER",
        "NODELIST(REASON)",
    ]
    assert line.split() == [
        "4294967296",
        "gpu",
        "train",
        "ada",
        "RUNNING",
        "1:02:05",
        "1-00:00:00",
        "2",
        "alpine",
        "n[1-2]",
    ]


def test_start_shows_when_and_where_waiting_jobs_could_start(ask: Ask) -> None:
    no = Reason(code=ReasonCode.RESOURCES)
    soon = row(
        id=2**32 + 9,
        state="PENDING",
        started_at_s=0.0,
        reason=no,
        refusals={
            "alpine": Refusal(kind=RefusalKind.WAIT, reasons=(no,), starts_in_s=600.0),
            "cedar": Refusal(kind=RefusalKind.WAIT, reasons=(no,), starts_in_s=60.0),
        },
    )
    status, lines, question = ask(["--start", "-h"], soon, WAITS, row())
    assert status == 0
    assert [line.split()[5:] for line in lines] == [
        ["1970-01-12T13:47:40", "2", "cedar", "N/A", "(Resources)"],
        ["N/A", "2", "(null)", "N/A", "(Resources)"],
    ]
    assert (question.states, question.brief) == (("PENDING", "INELIGIBLE", "HELD"), False)


def test_start_shows_an_estimate_with_its_interval_and_alone_neither(ask: Ask) -> None:
    start = StartEstimate(
        made_at_s=NOW_S,
        earliest_s=NOW_S + 60.0,
        likely_s=NOW_S + 120.0,
        latest_s=NOW_S + 600.0,
        frac=0.9,
    )
    waits = row(state="PENDING", started_at_s=0.0, start=start)
    _, (line,), question = ask(["--start", "-h"], waits)
    assert question.starts
    assert line.split()[5:9] == ["1970-01-12T13:48:40", "2", "(null)", "13:47-13:56"]
    kept_back = row(state="PENDING", started_at_s=0.0, start=StartEstimate(none="too wide"))
    assert ask(["--start", "-h"], kept_back)[1][0].split()[5:9] == ["N/A", "2", "(null)", "N/A"]
    assert not ask(["-O", "StartTime"], waits)[2].starts


def test_steps_are_those_that_the_federation_knows(ask: Ask) -> None:
    _, lines, _ = ask(["-s"], row(), WAITS, TASK)
    assert [line.split()[:4] for line in lines] == [
        ["STEPID", "NAME", "PARTITION", "USER"],
        ["4294967296.batch", "batch", "gpu", "ada"],
        ["4294967298_3.batch", "batch", "gpu", "ada"],
    ]
    assert ask(["-s4294967296.0", "-h"])[2].ids == ("4294967296",)
    assert len({column.name for column in STEP_COLUMNS}) == len(STEP_COLUMNS)


def test_only_job_state_is_two_columns(ask: Ask) -> None:
    assert ask(["--only-job-state", "-h", "-j", "1,2"], row())[1] == ["        4294967296  R"]


def test_formats_without_a_width_given_keep_ids_whole(ask: Ask) -> None:
    wide = row(array_id=7387947728902, array_tasks="[0-99%10]", state="PENDING", started_at_s=0.0)
    assert "7387947728902_[0-99%10] " in ask(["-l", "-h"], wide)[1][0]
    assert ask(["-o", "%.18i", "-h"], wide)[1] == ["7387947728902_[0-9"]


# ---- order ----


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("i", ["1", "2", "3"]),
        ("-i", ["3", "2", "1"]),
        ("u,-i", ["3", "2", "1"]),
        ("t", ["2", "3", "1"]),
        ("-Q", ["2", "1", "3"]),
        ("M", ["2", "3", "1"]),
        ("cluster,i", ["2", "1", "3"]),
        ("P,t,-p", ["2", "1", "3"]),
    ],
)
def test_rows_come_in_the_order_that_is_asked_for(ask: Ask, sort: str, order: list[str]) -> None:
    rows = [
        row(id=3, user="ada", priority=3, started_at_s=NOW_S - 10),
        row(id=1, user="bob", priority=2),
        row(id=2, user="bob", priority=1, state="PENDING", started_at_s=0.0, site=""),
    ]
    assert ask(["-h", "-o", "%i", "-S", sort], *rows)[1] == order
    plain = ask(["-h", "-S", sort], *rows)[1]
    assert [line.split()[0] for line in plain] == order


@pytest.mark.parametrize(("sort", "order"), [("S", ["1", "3", "2"]), ("-S", ["3", "1", "2"])])
def test_what_has_no_start_comes_last_both_ways(ask: Ask, sort: str, order: list[str]) -> None:
    rows = [
        row(id=2, state="PENDING", started_at_s=0.0, site=""),
        row(id=1),
        row(
            id=3,
            state="INELIGIBLE",
            started_at_s=0.0,
            site="",
            details=JobDetails(begin_at_s=NOW_S + 60.0),
        ),
    ]
    _, shown, question = ask(["-h", "-o", "%i", "-S", sort], *rows)
    assert shown == order
    assert question.details, "the time of --begin is among the details"


def test_rows_come_in_the_order_of_what_only_details_hold_though_it_is_not_shown(ask: Ask) -> None:
    rows = [
        row(id=k, details=JobDetails(options={"nodelist": f"n{node}", "constraint": f"f{node}"}))
        for k, node in ((1, 2), (2, 1))
    ]
    for letter in "nf":
        _, shown, question = ask(["-h", "-o", "%i", "-S", letter], *rows)
        assert (shown, question.details) == (["2", "1"], True)


@pytest.mark.parametrize("letter", sorted(queue_order.SORTED - {"S"}))
def test_an_order_by_details_asks_for_them_and_no_other_does(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, letter: str
) -> None:
    read: list[str] = []

    def details(_shown: Shown) -> JobDetails:
        read.append(letter)
        return DETAILS

    monkeypatch.setattr(Shown, "details", property(details))
    question = ask(["-h", "-o", "%i", "-S", letter], row(partition="gpu", state="PENDING"))[2]
    assert question.details == bool(read)


def test_the_start_of_one_that_begins_later_is_asked_for(ask: Ask) -> None:
    later = row(
        state="INELIGIBLE",
        started_at_s=0.0,
        site="",
        details=JobDetails(begin_at_s=NOW_S + 60.0),
    )
    _, shown, question = ask(["-h", "-o", "%S"], later)
    assert question.details
    assert shown != ["N/A"]


# ---- filters ----


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["-n", "train,eval"], {"names": ("train", "eval")}),
        (["-A", "vision"], {"tenants": ("vision",)}),
        (["--account=vision"], {"tenants": ("vision",)}),
        (["-p", "gpu"], {"partitions": ("gpu",), "details": True}),
        (["--partition", "gpu"], {"partitions": ("gpu",), "details": True}),
        (["-M", "alpine"], {"clusters": ("alpine",)}),
        (["-u", "ada", "-r"], {"users": ("ada",), "collapsed": False}),
        (["-t", "R"], {"states": ("RUNNING",)}),
        (["-q", "high"], {"details": True}),
        (["-L", "matlab"], {"details": True}),
        (["-j", "1+0"], {"ids": ("1",)}),
        (["-o", "%i %T"], {}),
        (["-o", "%Z"], {"files": True}),
        (["-o", "%C"], {"details": True}),
        (["-O", "StartTime"], {"brief": False, "codes": False, "details": True}),
        (["-a", "-P", "--local", "--federation", "--hide", "-v"], {}),
    ],
)
def test_no_more_is_asked_for_than_is_shown(
    ask: Ask, words: list[str], asked: dict[str, Any]
) -> None:
    plain: dict[str, Any] = {"collapsed": True, "brief": True, "codes": True}
    assert ask(words)[2] == QueueCall(**{**plain, **asked})


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["-n", "TRAIN"], True),
        (["-n", "other"], False),
        (["-A", "Vision"], True),
        (["-A", "nlp"], False),
        (["-p", "cpu,gpu"], True),
        (["-p", "cpu"], False),
        (["-q", "HIGH"], True),
        (["-q", "low"], False),
        (["-w", "n[2-5]"], True),
        (["-w", "n3,m"], False),
        (["-t", "running"], True),
        (["-t", "PD"], False),
        (["-t", "NF,PR,BF,RV,SE"], False),
        (["--running-over=1:00:00"], True),
        (["--running-over=2:00:00"], False),
        (["--running-under=2-0"], True),
        (["--running-under=62"], False),
        (["-R", "maint"], False),
        (["-R", "maint,r1"], True),
        (["-L", "lic"], False),
        (["-L", "matlab"], True),
        (["--notme"], True),
    ],
)
def test_a_daemon_that_does_not_select_is_made_up_for(
    ask: Ask, words: list[str], kept: bool
) -> None:
    assert bool(ask(["-h", *words], row())[1]) is kept


@pytest.mark.parametrize(
    ("here", "caller", "kept"),
    [("ada", "", False), ("a.one", "ada", False), ("ada", "bob", True), ("bob", "", True)],
)
def test_others_are_those_whom_the_federation_does_not_call_as_who_asks(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    here: str,
    caller: str,
    kept: bool,
) -> None:
    reply = QueueReply(rows=(row(user="ada"),), now_s=NOW_S, caller=caller)
    monkeypatch.setattr("federator.cli.text.my_name", lambda: here)
    monkeypatch.setattr(fsqueue, "call", lambda _: reply)
    monkeypatch.setattr(sys, "argv", ["fsqueue", "-h", "--notme"])
    with pytest.raises(SystemExit):
        fsqueue.main()
    assert bool(capsys.readouterr().out) is kept


@pytest.mark.parametrize("code", [*CODES, *CODES.values()])
def test_every_state_of_slurm_is_taken(ask: Ask, code: str) -> None:
    assert ask(["-h", "-t", code.lower()])[0] == 0


# ---- the environment ----


@pytest.mark.parametrize(
    ("name", "value", "words", "shown"),
    [
        ("SQUEUE_FORMAT", "%i %T", [], ["4294967296 RUNNING"]),
        ("SQUEUE_FORMAT2", "JobID:|,State:", [], ["4294967296|RUNNING"]),
        ("SQUEUE_FORMAT", "%i %T", ["-o", "%t"], ["R"]),
        ("SQUEUE_FORMAT", "%i %T", ["-O", "State:"], ["RUNNING"]),
        ("SQUEUE_STATES", "PD", ["-o", "%i"], []),
        ("SQUEUE_STATES", "PD", ["-o", "%i", "-t", "R"], ["4294967296"]),
        ("SQUEUE_NAMES", "other", ["-o", "%i"], []),
        ("SQUEUE_ACCOUNT", "other", ["-o", "%i"], []),
        ("SQUEUE_PARTITION", "other", ["-o", "%i"], []),
        ("SQUEUE_QOS", "other", ["-o", "%i"], []),
        ("SQUEUE_LICENSES", "other", ["-o", "%i"], []),
    ],
)
def test_variables_count_unless_an_option_says_otherwise(
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    words: list[str],
    shown: list[str],
) -> None:
    monkeypatch.setenv(name, value)
    assert ask(["-h", *words], row())[1] == shown


def test_variables_say_whose_jobs_and_in_which_order(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_USERS", "bob")
    monkeypatch.setenv("SQUEUE_SORT", "-i")
    monkeypatch.setenv("SQUEUE_ARRAY", "")
    monkeypatch.setenv("SLURM_CLUSTERS", "cedar")
    _, lines, question = ask(["-h", "-o", "%i"], row(id=1), row(id=2))
    assert lines == ["2", "1"]
    assert (question.users, question.collapsed) == (("bob",), False)
    assert question.clusters == ("cedar",)
    assert len(ask(["--me"])[2].users) == 1
    assert "bob" not in ask(["--me"])[2].users


def test_a_uid_is_a_user_of_this_host(ask: Ask) -> None:
    assert ask(["-u", "0,ada"])[2].users == ("root", "ada")
    assert ask(["-u", "4294967294"])[2].users == ("4294967294",)


# ---- JSON ----


def test_json_of_slurm_has_data_parsers_shape(ask: Ask) -> None:
    _, lines, question = ask(["--json=slurm"], row(), WAITS)
    assert (question.details, question.files, question.collapsed) == (True, True, False)
    answer = json.loads("".join(lines))
    runs, waits = answer["jobs"]
    assert answer["errors"] == answer["warnings"] == []
    assert answer["meta"]["plugin"]["data_parser"] == "data_parser/v0.0.42"
    assert (runs["job_id"], runs["job_state"], runs["name"]) == (2**32, ["RUNNING"], "train")
    assert (runs["user_name"], runs["partition"], runs["account"]) == ("ada", "gpu", "vision")
    assert runs["time_limit"] == {"set": True, "infinite": False, "number": 1440}
    assert waits["time_limit"] == {"set": False, "infinite": True, "number": 0}
    assert runs["start_time"]["number"] == int(NOW_S - 3725)
    assert runs["nodes"] == "n[1-2]"
    assert runs["exit_code"]["return_code"]["number"] == 0
    assert runs["standard_output"] == "/home/ada/o"
    assert waits["state_reason"] == "Resources"
    assert ask(["--json=v0.0.42"], row())[0] == 0


@pytest.mark.parametrize("release", ["24.11", "26.05"])
def test_every_field_of_it_is_one_of_squeues_and_of_its_type(ask: Ask, release: str) -> None:
    real = recorded("squeue", release)
    runs = next(job for job in real["jobs"] if job["job_state"] == ["RUNNING"])
    waits = next(job for job in real["jobs"] if job["name"] == "sweep")
    ours = json.loads("".join(ask(["--json=slurm"], row(), WAITS)[1]))
    assert differences(ours, real | {"jobs": [runs, waits]}) == []


def test_squeue_of_the_oldest_generation_has_no_data_parser() -> None:
    """Its ``--json`` has another shape, which nobody is offered."""
    assert "data_parser" not in recorded("squeue", "22.05")["meta"]["plugin"]


def test_the_federations_own_json_keeps_its_fields(ask: Ask) -> None:
    (job,) = json.loads("".join(ask(["--json"], row())[1]))["jobs"]
    assert "details" not in job
    assert job["tenant"] == "vision"


# ---- help ----


@pytest.mark.parametrize(
    ("word", "line"),
    [("--helpformat", "%a"), ("--helpFormat", "JobArrayId"), ("--helpstate", "node_fail")],
)
def test_what_can_be_asked_for_is_listed(ask: Ask, word: str, line: str) -> None:
    status, lines, _ = ask([word])
    assert status == 0
    assert any(line in each for each in lines)
