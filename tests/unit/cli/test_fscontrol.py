"""fscontrol with scontrol's commands, words and exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from federator.cli import client, fscontrol
from federator.wire.client_protocol import Call, ControlCall, ControlReply
from federator.wire.replies import Reply


class Done(NamedTuple):
    """How a command ended, what it printed, and what it asked for."""

    status: int
    out: str
    err: str
    asked: list[Call]


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run fscontrol against a daemon that does as it is asked, but for these errors."""

    def command(*words: str, errors: tuple[str, ...] = ()) -> Done:
        asked: list[Call] = []

        def call(message: Call) -> Reply:
            asked.append(message)
            assert isinstance(message, ControlCall)
            return ControlReply(
                ids=tuple(int(i.split(";")[0].split("_")[0]) for i in message.ids), errors=errors
            )

        monkeypatch.setattr(client, "call", call)
        monkeypatch.setattr(sys, "argv", ["fscontrol", *words])
        with pytest.raises(SystemExit) as ended:
            fscontrol.main()
        shown = capsys.readouterr()
        return Done(int(ended.value.code or 0), shown.out, shown.err, asked)

    return command


@pytest.mark.parametrize(
    ("words", "call"),
    [
        (("hold", "7"), ControlCall(verb="hold", ids=("7",))),
        (("HOLD", "7,8", "9"), ControlCall(verb="hold", ids=("7", "8", "9"))),
        (("hold", "job=7"), ControlCall(verb="hold", ids=("7",))),
        (("uhold", "7"), ControlCall(verb="uhold", ids=("7",))),
        (("requeue", "7"), ControlCall(verb="requeue", ids=("7",))),
        (("requeuehold", "Incomplete", "7"), ControlCall(verb="requeuehold", ids=("7",))),
        (("rel", "7"), ControlCall(verb="release", ids=("7",))),
        (("release", "jobname=a b"), ControlCall(verb="release", names=("a b",))),
        (
            ("update", "JobId=7_[1-2]", "TimeLimit+=30", "JobName=n"),
            ControlCall(
                verb="update", ids=("7_1", "7_2"), fields={"timelimit+": "30", "jobname": "n"}
            ),
        ),
        (
            ("update", "jobname=n", "StartTime=uts5000000000"),
            ControlCall(verb="update", names=("n",), fields={"starttime": "uts5000000000"}),
        ),
        (("release", "Name=x", "3"), ControlCall(verb="release", names=("x",), ids=("3",))),
        (("holdu", "7"), ControlCall(verb="uhold", ids=("7",))),
        (("top", "9,7"), ControlCall(verb="top", ids=("9", "7"))),
        (("oneliner", "quiet", "hold", "7"), ControlCall(verb="hold", ids=("7",))),
        (("-M", "demo", "hold", "7;demo", "8"), ControlCall(verb="hold", ids=("7;demo", "8;demo"))),
        (
            (
                "update",
                "job=7",
                "Nice",
                "Dep=",
                "ReqNodes=2",
                "Part=p",
                "EligibleTime=uts5000000000",
            ),
            ControlCall(
                verb="update",
                ids=("7",),
                fields={
                    "nice": "100",
                    "dependency": "",
                    "numnodes": "2",
                    "partition": "p",
                    "starttime": "uts5000000000",
                },
            ),
        ),
    ],
)
def test_commands_are_read_as_scontrol_reads_them(
    run: Run, words: tuple[str, ...], call: ControlCall
) -> None:
    done = run(*words)
    assert (done.status, done.out, done.err, done.asked) == (0, "", "", [call])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no command was given; see fscontrol --help"),
        (("hold",), "too few arguments for keyword:hold"),
        (("hold", "x"), "Invalid job id specified: x"),
        (("update", "Nice=5"), "update needs JobId=ID"),
        (("update", "JobId=7"), "nothing to change"),
        (("update", "JobId=7", "Comment"), "Invalid input: Comment; expected FIELD=VALUE"),
        (("update", "JobId=7", "Nice+=5"), "Invalid input: Nice+=5; only TimeLimit takes +="),
        (("update", "JobId=7", "Colour=5"), "Update of this parameter is not supported: Colour;"),
        (("update", "JobId=7", "End=now"), "Update of this parameter is not supported: EndTime:"),
        (("update", "NodeName=n1", "State=drain"), "update needs JobId=ID; nodes and partitions"),
        (("fly", "7"), "invalid keyword: fly; commands are hold, uhold, holdu, release"),
        (("top",), "too few arguments for keyword:top"),
        (("top", "jobname=x"), "top takes ids of jobs"),
        (("suspend", "7"), "suspend: hold the job, or requeue it"),
        (("notify", "7", "hello"), "notify: it is for one cluster; use scontrol at the job's site"),
        (("show", "step"), "show step: fsacct shows attempts"),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    done = run(*words)
    assert (done.status, done.asked) == (1, [])
    assert done.err.startswith(f"fscontrol: error: {said}")
    assert done.err.count("\n") == 1


def test_errors_are_slurms_and_quiet_hides_them(run: Run) -> None:
    errors = ("Access/permission denied for job 7",)
    assert (done := run("hold", "7", errors=errors)).err == f"{errors[0]}\n"
    assert done.status == 1
    assert (quiet := run("-Q", "hold", "7", errors=errors)).err == ""
    assert quiet.status == 1


def test_it_says_what_it_did(run: Run) -> None:
    assert run("-v", "hold", "7_[1-2]", "8").asked == [
        ControlCall(verb="hold", ids=("7_1", "7_2", "8"))
    ]
    done = run("--json", "release", "8")
    assert done.out == '{"schema":1,"command":"release","changed":[8],"errors":[]}\n'
    assert "Examples: fscontrol hold" in run("--help").out
