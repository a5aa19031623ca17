"""fsbatch speaks and exits like sbatch."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from federator.cli import client, fsbatch
from federator.cli.client import NoAnswer
from federator.cli.text import reason_text, refusal_text
from federator.errors import InvalidRequest, SiteUnavailable
from federator.faults.clock import VirtualClock
from federator.model.plan import Bid, JobPlan
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.score import Score
from federator.model.site import NodeShare
from federator.model.submission import Option
from federator.slurm.options.interpret import interpret
from federator.wire.client_protocol import (
    Call,
    ErrorKind,
    ErrorReply,
    QueueCall,
    QueueReply,
    QueueRow,
    SubmitCall,
    SubmitReply,
    frame,
)
from federator.wire.queue_rows import QueueOutcome
from federator.wire.replies import Reply, SiteBid
from federator.wire.replies import TestOnlyReply as BidsReply

ID = 2**32
WAITS = Refusal(
    kind=RefusalKind.WAIT,
    reasons=(
        Reason(code=ReasonCode.RESOURCES, needed=16, free=12, unit="GPUs", detail="a100|h100"),
    ),
)
NEVER = Refusal(
    kind=RefusalKind.REJECT, reasons=(Reason(code=ReasonCode.NO_GPU_TYPE, detail="b200"),)
)


class Daemon:
    """Answers calls from a list and remembers them; refuses submissions as the daemon does."""

    def __init__(self) -> None:
        self.answers: list[Reply | BaseException] = []
        self.repeats = False  # the first answer, for ever
        self.calls: list[Call] = []

    def __call__(self, message: Call) -> Reply:
        frame(message)
        if isinstance(message, SubmitCall):
            try:
                interpret(message.submission)
            except InvalidRequest as error:
                return ErrorReply(message=str(error))
        self.calls.append(message)
        answer = self.answers[0] if self.repeats else self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def submitted(self) -> SubmitCall:
        message = self.calls[0]
        assert isinstance(message, SubmitCall)
        return message


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Daemon:
    fake = Daemon()
    monkeypatch.setattr(fsbatch, "call", fake)
    monkeypatch.setattr(client, "call", fake)
    clock = VirtualClock()
    monkeypatch.setattr("time.sleep", clock.advance)
    monkeypatch.setattr("time.monotonic", clock)
    monkeypatch.chdir(tmp_path)
    fake.answers = [SubmitReply(id=ID, federation="demo")]
    return fake


@pytest.fixture
def script(tmp_path: Path) -> Callable[[bytes], str]:
    def write(content: bytes) -> str:
        (tmp_path / "train.sh").write_bytes(content)
        return "train.sh"

    return write


def row(state: str = "COMPLETED", exit_code: int | None = 0, signal: int = 0) -> QueueRow:
    return QueueRow(
        id=ID,
        name="n",
        user="u",
        tenant="t",
        priority=1,
        state=state,
        attempt=1,
        submitted_at_s=0.0,
        exit_code=exit_code,
        signal=signal,
    )


def test_a_file_is_submitted_under_its_own_name(
    daemon: Daemon, script: Callable[[bytes], str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = script(b"#!/bin/sh\n#SBATCH -N2\n")
    environment = {"A": "1", "FED_SUBMIT_KEY": "k", "SBATCH_TIMELIMIT": "5"}
    assert fsbatch.run(["-c4", name, "x", "-y"], environment) == 0
    assert capsys.readouterr().out == f"Submitted batch job {ID}\n"
    sent = daemon.submitted
    options = {o.name: o.value for o in sent.submission.components[0]}
    assert options == {"nodes": "2", "time": "5", "cpus-per-task": "4", "job-name": "train.sh"}
    assert (sent.key, sent.submission.args) == ("k", ("x", "-y"))
    assert sent.submission.work_dir == os.getcwd()
    assert sent.submission.environment["A"] == "1"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("a.sh", "here"),
        ("-D other a.sh", "other"),
        ("-D {0}/other a.sh", "other"),
        ("-D other ./a.sh", "here"),
        ("-D other ../top/a.sh", "here"),
        ("-D other b.sh", "other"),
        ("-D other ./b.sh", ""),
        ("-D other both.sh", "bin"),
        ("-D nosuch on_path.sh", "bin"),
        ("-D other here.sh", "here"),
        ("-D other {0}/a.sh", "here"),
        ("folder", "bin"),
        ("-D other : -D sub a.sh", "sub"),
        ("sub/a.sh", "sub"),
        ("-D sub folder", ""),
    ],
)
def test_a_script_is_found_where_sbatch_finds_it(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, found: str
) -> None:
    """As sbatch of 22.05, 24.11 and 26.05 does with the same files."""
    top = tmp_path / "top"
    for path, content in {
        "a.sh": "here",
        "both.sh": "here",
        "here.sh": "here",
        "other/a.sh": "other",
        "other/b.sh": "other",
        "sub/a.sh": "sub",
        "bin/both.sh": "bin",
        "bin/on_path.sh": "bin",
        "folder/x": "",
        "sub/folder/x": "",
        "bin/folder": "bin",
    }.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(f"#!/bin/sh\n# {content}\n")
    monkeypatch.chdir(top)
    on_path = "" if words == "-D sub folder" else f"{top}/bin"
    status = fsbatch.run(words.format(top).split(), {"PATH": f"/usr/bin:{on_path}"})
    assert status == (0 if found else 1)
    if found:
        assert daemon.submitted.submission.script == f"#!/bin/sh\n# {found}\n"


def test_a_demotion_is_sent_from_wherever_it_is_said(
    daemon: Daemon, script: Callable[[bytes], str]
) -> None:
    name = script(b"#!/bin/sh\n#SBATCH --fed-priority=3 --nice\n")
    assert fsbatch.run([name], {"SBATCH_FED_PRIORITY": "5"}) == 0
    options = {o.name: o.value for o in daemon.submitted.submission.components[0]}
    assert options == {"fed-priority": "5", "nice": None, "job-name": "train.sh"}


def test_what_is_said_of_being_evicted_is_sent_from_wherever_it_is_said(
    daemon: Daemon, script: Callable[[bytes], str]
) -> None:
    name = script(b"#!/bin/sh\n#SBATCH --fed-no-preempt\n")
    assert fsbatch.run([name], {"SBATCH_FED_CONTINUE": ""}) == 0
    options = {o.name: o.value for o in daemon.submitted.submission.components[0]}
    assert options == {"fed-no-preempt": None, "fed-continue": None, "job-name": "train.sh"}


@pytest.mark.parametrize(
    ("argv", "environment", "complaint"),
    [
        (["--nice=-1"], {}, 'Invalid --nice value "-1": must be non-negative'),
        (["--fed-priority=8"], {}, 'Invalid --fed-priority value "8"'),
        ([], {"SBATCH_FED_PRIORITY": ""}, 'Invalid --fed-priority value ""'),
    ],
)
def test_what_is_no_demotion_is_never_queued(
    daemon: Daemon,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    environment: dict[str, str],
    complaint: str,
) -> None:
    assert fsbatch.run([*argv, "--wrap=x"], environment) == 1
    assert capsys.readouterr().err.startswith(f"fsbatch: error: {complaint}")
    assert daemon.calls == []


def test_what_is_said_of_a_job_is_sent_from_wherever_it_is_said(
    daemon: Daemon, script: Callable[[bytes], str]
) -> None:
    name = script(b"#!/bin/sh\n#SBATCH -N2 --fed-dataset=a,b --fed-project=old\n")
    environment = {"SBATCH_FED_ELASTIC": "1-4", "SBATCH_FED_PROJECT": "new"}
    assert fsbatch.run([name], environment) == 0
    (component,) = daemon.submitted.submission.components
    said = {o.name: o.value for o in component if o.name.startswith("fed-")}
    assert said == {"fed-dataset": "a,b", "fed-elastic": "1-4", "fed-project": "new"}


def test_help_names_what_lowers_a_job(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert fsbatch.run(["--help"], {}) == 0
    shown = capsys.readouterr().out
    assert "--nice[=N]" in shown
    assert "--fed-priority=N" in shown
    assert "SBATCH_FED_PRIORITY" in shown
    assert "--fed-continue" in shown
    assert "--fed-no-preempt" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_wrap_builds_the_script_sbatch_builds(daemon: Daemon) -> None:
    assert fsbatch.run(["--wrap=hostname"], {}) == 0
    assert daemon.submitted.submission.script == (
        "#!/bin/sh\n# This script was created by sbatch --wrap.\n\nhostname\n"
    )
    assert daemon.submitted.submission.components[0][-1].value == "wrap"


def test_standard_input_is_a_script_named_sbatch(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"#!/bin/sh\n")))
    assert fsbatch.run([], {}) == 0
    assert daemon.submitted.submission.components[0][-1].value == "sbatch"


class Terminal(io.TextIOWrapper):
    """Nobody has typed anything yet: who reads waits for ever."""

    def __init__(self, typed: bytes) -> None:
        self.typed = io.BytesIO(typed)
        super().__init__(self.typed)

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("words", "status"), [("--time job.sh", 255), ("-N abc", 255), ("-n x", 1), ("--test-only", 0)]
)
def test_a_mistake_is_told_before_a_script_is_typed(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, words: str, status: int
) -> None:
    terminal = Terminal(b"#!/bin/sh\n")
    monkeypatch.setattr("sys.stdin", terminal)
    daemon.answers = [BidsReply(bids=(SiteBid(site="a", refusal=WAITS),), winner="")]
    assert fsbatch.run(words.split(), {}) == status
    assert terminal.typed.tell() == (0 if status else 10)


@pytest.mark.parametrize(
    ("words", "line", "variables"),
    [
        ("--gpus-per-task=1", "-n8", {}),
        ("--mem-per-gpu=4G", "--gres=gpu:2", {}),
        ("--ntasks-per-gpu=1", "--gpus=2", {}),
        ("--ntasks-per-gpu=1", "-J x", {"SBATCH_GPUS": "2"}),
        ("--fed-spare=1", "-N2 --gres=gpu:8", {}),
        ("--fed-elastic=2-4", "-N2 --gres=gpu:8", {}),
        ("--fed-optional=4-7", "--array=0-7", {}),
    ],
)
def test_sizes_of_which_the_typed_script_has_a_part_are_not_refused_before_it_is_read(
    daemon: Daemon,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    line: str,
    variables: dict[str, str],
) -> None:
    script = f"#!/bin/sh\n#SBATCH {line}\n".encode()
    monkeypatch.setattr("sys.stdin", Terminal(script))
    assert fsbatch.run(words.split(), variables) == 0
    assert daemon.submitted.submission.script == script.decode()


def test_parsable_and_quiet_change_the_output(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fsbatch.run(["--parsable", "--wrap=x"], {}) == 0
    assert capsys.readouterr().out == f"{ID}\n"
    daemon.answers = [SubmitReply(id=ID, federation="demo")]
    assert fsbatch.run(["--parsable", "-M", "demo", "--wrap=x"], {}) == 0
    assert capsys.readouterr().out == f"{ID};demo\n"  # as sbatch, which names the cluster then
    daemon.answers = [SubmitReply(id=ID, federation="demo")]
    assert fsbatch.run(["-Q", "--wrap=x"], {}) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"echo\n", "This does not look like a batch script."),
        (b"#!/bin/sh\r\n", "Batch script contains DOS line breaks"),
        (b"#!/bin/sh\n\0", "The Slurm controller does not allow scripts that contain the NULL"),
        (b"\x7fELF\0", "This does not look like a batch script."),
        (b"", "Batch script is empty!"),
        (b"#!/bin/sh\n#SBATCH --gres=gpu:-1\n", "Invalid generic resource (gres) specification"),
        (b"#!/bin/sh\n#SBATCH -N0\n", "Batch job submission failed: Node count specification inv"),
    ],
)
def test_bad_scripts_are_never_queued(
    daemon: Daemon,
    script: Callable[[bytes], str],
    capsys: pytest.CaptureFixture[str],
    content: bytes,
    complaint: str,
) -> None:
    assert fsbatch.run([script(content)], {}) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith(f"fsbatch: error: {complaint}")
    assert (shown.out, daemon.calls) == ("", [])


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        ("--time=abc --wrap=x", 255, "error: Invalid --time specification"),
        ("--mem=abc --wrap=x", 255, "error: Invalid --mem specification"),
        ("--nodes=abc --wrap=x", 255, 'error: "abc" is not a valid node count'),
        ("-N3-1 --wrap=x", 255, "error: Maximum node count 1 is less than minimum node count 3"),
        ("--signal=NOPE --wrap=x", 255, "error: Invalid --signal specification"),
        ("--begin=no --wrap=x", 255, "error: Invalid --begin specification: Invalid time specif"),
        ("--exclusive=x --wrap=x", 255, "error: Invalid --exclusive specification"),
        ("--profile=x --wrap=x", 255, "error: invalid --profile=x option"),
        ("--nosuch --wrap=x", 255, "unrecognized option '--nosuch'"),
        ("-y --wrap=x", 255, "invalid option -- 'y'"),
        ("--wrap", 255, "option '--wrap' requires an argument"),
        ("-n abc --wrap=x", 3, 'error: Invalid numeric value "abc" for --ntasks.'),
        ("-N0 --wrap=x", 3, "error: Batch job submission failed: Node count specification invalid"),
        ("--array=x --wrap=x", 3, "error: Batch job submission failed: Invalid job array specific"),
        ("none.sh", 3, "error: Unable to open file none.sh"),
    ],
)
def test_mistakes_have_sbatchs_status(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], words: str, status: int, line: str
) -> None:
    """As sbatch of 22.05, 24.11 and 26.05 ends; SLURM_EXIT_ERROR changes no 255."""
    assert fsbatch.run(words.split(), {"SLURM_EXIT_ERROR": "3"}) == status
    assert capsys.readouterr().err.startswith(f"fsbatch: {line}")


@pytest.mark.parametrize(
    ("words", "warning"),
    [
        ("-N100 -n2", "can't run 2 processes on 100 nodes, setting nnodes to 2"),
        ("-N4-8 -n2", "can't run 2 processes on 4 nodes, setting nnodes to 2"),
        ("-N2 -n1 -c4", "can't run 1 processes on 2 nodes, setting nnodes to 1"),
        ("-N1 -n1 : -N3 -n2", "can't run 2 processes on 3 nodes, setting nnodes to 2"),
        ("-N100", ""),
        ("-N2 -n2", ""),
        ("-N2 --ntasks-per-node=1", ""),
        ("-Q -N3 -n2", ""),
    ],
)
def test_more_nodes_than_tasks_are_warned_of(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], words: str, warning: str
) -> None:
    assert fsbatch.run([*words.split(), "--wrap=x"], {}) == 0
    assert capsys.readouterr().err == (f"fsbatch: warning: {warning}\n" if warning else "")


def test_a_misspelt_option_in_a_script_has_sbatchs_status(
    daemon: Daemon, script: Callable[[bytes], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert fsbatch.run([script(b"#!/bin/sh\n#SBATCH --gpu-per-node=8\n")], {}) == 255
    assert "fsbatch: unrecognized option '--gpu-per-node=8'\nTry " in capsys.readouterr().err


def test_the_path_of_the_script_travels(
    daemon: Daemon, script: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(script(b"#!/bin/sh\n")).absolute()
    monkeypatch.chdir(path.parent)
    daemon.repeats = True
    for words, sent in (
        (str(path), str(path)),
        (f"./{path.name}", str(path)),
        (path.name, str(path)),
        ("--wrap=x", ""),
    ):
        daemon.calls.clear()
        assert fsbatch.run([words], {}) == 0
        assert daemon.submitted.submission.script_path == sent


def test_a_missing_file_is_named(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    assert fsbatch.run(["none.sh"], {"SLURM_EXIT_ERROR": "3"}) == 3
    assert capsys.readouterr().err == "fsbatch: error: Unable to open file none.sh\n"


def test_script_and_wrap_exclude_each_other(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fsbatch.run(["--wrap=x", "a.sh"], {}) == 1
    assert "Script arguments not permitted with --wrap option" in capsys.readouterr().err


@pytest.mark.parametrize("failure", [SiteUnavailable("x"), NoAnswer("x")])
def test_a_broken_connection_is_tried_again_with_the_same_key(
    daemon: Daemon, failure: SiteUnavailable, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.answers = [failure, failure, *daemon.answers]
    assert fsbatch.run(["--wrap=x"], {}) == 0
    keys = {message.key for message in daemon.calls if isinstance(message, SubmitCall)}
    assert (len(daemon.calls), len(keys)) == (3, 1)
    said = capsys.readouterr()
    assert said.out == f"Submitted batch job {ID}\n"
    assert said.err == "fsbatch: x; trying again for 30 s\n"


def test_an_unreachable_daemon_is_an_error_and_nothing_was_queued(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.answers, daemon.repeats = [SiteUnavailable("Unable to contact the federation")], True
    assert fsbatch.run(["--wrap=x"], {}) == 1
    said = capsys.readouterr().err
    assert said.splitlines()[-1] == "fsbatch: error: Unable to contact the federation"
    assert "not known" not in said
    assert len(daemon.calls) > 20


def test_of_a_submission_that_was_never_answered_it_is_told_how_to_ask_again(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of the tries may have been carried out, also when later ones could not even connect."""
    daemon.answers = [NoAnswer("the connection broke"), *[SiteUnavailable("none there")] * 99]
    assert fsbatch.run(["--wrap=x"], {}) == 1
    key = daemon.submitted.key
    assert capsys.readouterr().err.splitlines()[-1] == (
        "fsbatch: error: none there; it is not known whether the job was queued. To ask again "
        f"without queueing it twice: FED_SUBMIT_KEY={key} and the same fsbatch command"
    )
    daemon.answers = [SubmitReply(id=ID, federation="demo")]
    daemon.calls.clear()
    assert fsbatch.run(["--wrap=x"], {"FED_SUBMIT_KEY": key}) == 0
    assert daemon.submitted.key == key


def test_who_interrupts_a_submission_in_doubt_is_told_how_to_ask_again(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.answers = [NoAnswer("the connection broke"), KeyboardInterrupt()]
    assert fsbatch.run(["--wrap=x"], {}) == 130
    assert f"FED_SUBMIT_KEY={daemon.submitted.key}" in capsys.readouterr().err


def test_a_standby_is_no_answer_while_it_is_in_doubt_what_the_leader_did(daemon: Daemon) -> None:
    standby = ErrorReply(message="this daemon is a standby", kind=ErrorKind.UNAVAILABLE)
    daemon.answers = [NoAnswer("the connection broke"), standby, standby, *daemon.answers]
    assert fsbatch.run(["--wrap=x"], {}) == 0


def test_a_standby_that_is_asked_first_says_at_once_that_it_is_one(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    message = "this daemon is a standby: another one leads"
    daemon.answers = [ErrorReply(message=message, kind=ErrorKind.UNAVAILABLE)]
    assert fsbatch.run(["--wrap=x"], {}) == 1
    assert capsys.readouterr().err == f"fsbatch: error: {message}\n"


def test_the_daemons_refusal_is_shown(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    daemon.answers = [ErrorReply(message="no site fits", reasons={"alpine": NEVER})]
    assert fsbatch.run(["--wrap=x"], {}) == 1
    assert capsys.readouterr().err == (
        "fsbatch: error: no site fits; alpine: never: no GPUs of that type: b200\n"
    )


def test_uid_asks_for_another_user(daemon: Daemon) -> None:
    fsbatch.run(["--uid=vision1", "--wrap=x"], {})
    assert daemon.submitted.as_user == "vision1"
    assert "uid" not in {o.name for o in daemon.submitted.submission.components[0]}


def ended(outcome: QueueOutcome, *rows: QueueRow) -> QueueReply:
    return QueueReply(rows=rows, now_s=0.0, outcome=outcome)


def test_wait_exits_with_the_highest_exit_code(daemon: Daemon) -> None:
    daemon.answers += [
        ended(QueueOutcome(unsettled=2)),
        SiteUnavailable("x"),
        ended(QueueOutcome(failed=1, exit_code=7), row("FAILED", 7)),
    ]
    assert fsbatch.run(["-W", "--array=1-2", "--wrap=x"], {}) == 7
    assert daemon.calls[-1] == QueueCall(ids=(str(ID),), ended=True, outcome=True)


def test_wait_goes_on_while_the_daemon_is_away(daemon: Daemon) -> None:
    daemon.answers += [
        ErrorReply(message="a standby", kind=ErrorKind.UNAVAILABLE),
        ended(QueueOutcome(failed=1, exit_code=3), row("FAILED", 3)),
    ]
    assert fsbatch.run(["-W", "--wrap=x"], {}) == 3


def test_wait_goes_on_while_a_daemon_of_an_older_release_answers(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.answers += [QueueReply(rows=(row(),), now_s=0.0), ended(QueueOutcome())]
    assert fsbatch.run(["-W", "--wrap=x"], {}) == 0
    assert "of an older release" in capsys.readouterr().err


def test_wait_ends_when_the_job_is_forgotten(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.answers.append(QueueReply(rows=(), now_s=0.0, unknown=(str(ID),)))
    assert fsbatch.run(["-W", "--wrap=x"], {}) == 1
    assert f"job {ID} is no longer known; its end was not seen" in capsys.readouterr().err


def test_wait_ends_with_the_words_of_the_sites_that_refused_it(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "alpine: Batch job submission failed: Invalid qos specification"
    held = msgspec.structs.replace(
        row("HELD", None), reason=Reason(code=ReasonCode.HELD, detail=words)
    )
    daemon.answers.append(ended(QueueOutcome(failed=6000, exit_code=1), held))
    assert fsbatch.run(["-W", "--wrap=x"], {}) == 1
    assert f"fsbatch: job {ID}: held, since no site takes it" in (err := capsys.readouterr().err)
    assert words in err
    assert "5999 more did not complete" in err


def test_the_id_is_there_before_any_file_is_looked_at(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hangs(_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("federator.cli.file_warnings.warnings_of", hangs)
    assert fsbatch.run(["--wrap=x"], {}) == 130
    assert capsys.readouterr().out == f"Submitted batch job {ID}\n"


def test_test_only_shows_each_site_and_queues_nothing(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = JobPlan(name="j", partition="gpu", nodes={"a1": NodeShare(gpus=8, cpus=16)})
    bid = Bid(score=Score(), jobs=(plan,))
    daemon.answers = [
        BidsReply(
            bids=(SiteBid(site="alpine", bid=bid), SiteBid(site="boreal", refusal=WAITS)),
            winner="alpine",
        )
    ]
    assert fsbatch.run(["--test-only", "--wrap=x"], {}) == 0
    assert capsys.readouterr().err == (
        "fsbatch: * alpine  can start now with 8 GPUs and 16 CPUs on a1 in partition gpu\n"
        "fsbatch:   boreal  not now: needs 16 GPUs of a100|h100; free 12\n"
        "fsbatch: would start now at alpine\n"
    )
    assert daemon.submitted.test_only


@pytest.mark.parametrize(
    ("down", "outlook"),
    [
        (("cedar",), "would wait: cedar, which may be able to run it, is down"),
        (("boreal", "cedar"), "would wait: boreal, cedar, which may be able to run it, are down"),
    ],
)
def test_test_only_tells_of_sites_that_are_down_and_might_run_it(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], down: tuple[str, ...], outlook: str
) -> None:
    gone = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.SITE_DOWN),))
    bids = (SiteBid(site="alpine", refusal=NEVER), *(SiteBid(site=s, refusal=gone) for s in down))
    daemon.answers = [BidsReply(bids=bids, winner="")]
    assert fsbatch.run(["--test-only", "--wrap=x"], {}) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"fsbatch: {outlook}"


def test_test_only_fails_when_every_site_rejects(daemon: Daemon) -> None:
    daemon.answers = [BidsReply(bids=(SiteBid(site="a", refusal=NEVER),), winner="")]
    assert fsbatch.run(["--test-only", "--wrap=x"], {}) == 1


@pytest.mark.parametrize("word", ["--help", "-h", "--usage", "--version", "-V"])
def test_help_needs_neither_script_nor_daemon(
    daemon: Daemon, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fsbatch.run([word], {}) == 0
    assert capsys.readouterr().out
    assert not daemon.calls


@pytest.mark.parametrize("code", ReasonCode)
def test_every_reason_has_words_of_its_own(code: ReasonCode) -> None:
    text = reason_text(Reason(code=code, job="t+1", needed=2, free=1, unit="nodes", detail="d"))
    assert text.startswith("t+1: ")
    assert code.value not in text


def test_refusals_join_their_reasons() -> None:
    assert refusal_text(WAITS) == "not now: needs 16 GPUs of a100|h100; free 12"
    both = Refusal(kind=RefusalKind.REJECT, reasons=(*NEVER.reasons, *WAITS.reasons))
    assert refusal_text(both) == (
        "never: no GPUs of that type: b200; needs 16 GPUs of a100|h100; free 12"
    )


# ---- what is not UTF-8, or not there ----


def test_a_script_that_is_not_utf8_is_sent_to_the_byte(
    daemon: Daemon, script: Callable[[bytes], str]
) -> None:
    content = b"#!/bin/sh\n#SBATCH -J h\xc3\xa9\n# caf\xe9\necho\n"
    assert fsbatch.run([script(content)], {}) == 0
    assert frame(daemon.submitted)
    sent = daemon.submitted.submission
    assert sent.script_bytes == content
    assert sent.components[0] == (Option(name="job-name", value="hé"),)


def test_variables_that_are_not_utf8_are_left_out_and_named(daemon: Daemon) -> None:
    given = {"A": "é", "B": "\udce9", "C\udce9": "x", "": "x", "FED_DROPPED_ENV": "OLD"}
    assert fsbatch.run(["--wrap=x"], given) == 0
    assert frame(daemon.submitted)
    assert daemon.submitted.submission.environment == {"A": "é", "FED_DROPPED_ENV": "B,C?"}


@pytest.mark.parametrize(
    ("argv", "environment"),
    [
        (["--wrap=x", "-J", "\udce9"], {}),
        (["--wrap=x", "--uid=\udce9"], {}),
        (["--wrap=x"], {"FED_SUBMIT_KEY": "\udce9"}),
        (["--wrap=x"], {"SBATCH_COMMENT": "x", "SBATCH_QOS": "\udce9"}),
        (["train.sh", "\udce9"], {}),
        (["\udce9.sh"], {}),
        (["--\udce9"], {}),
    ],
)
def test_words_that_are_not_utf8_are_refused_in_one_line(
    daemon: Daemon,
    script: Callable[[bytes], str],
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    environment: dict[str, str],
) -> None:
    script(b"#!/bin/sh\n")
    is_option = argv == ["--\udce9"]
    assert fsbatch.run(argv, environment) == (255 if is_option else 1)
    said = "fsbatch: unrecognized option" if is_option else "fsbatch: error: "
    assert capsys.readouterr().err.startswith(said)
    assert daemon.calls == []


def test_a_directory_that_is_gone_is_one_line(
    daemon: Daemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert fsbatch.run(["--wrap=x"], {}) == 1
    assert capsys.readouterr().err == (
        "fsbatch: error: getcwd failed: No such file or directory; "
        "submit from a directory that exists\n"
    )


def test_the_umask_travels_and_stays(daemon: Daemon) -> None:
    before = os.umask(0o027)
    try:
        assert fsbatch.run(["--wrap=x"], {}) == 0
        assert daemon.submitted.submission.umask == 0o027
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


# ---- words ----


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["--foo"], True),
        (["-Z"], True),
        (["-N"], True),
        (["--wrap=x", "a.sh"], False),
        (["--wrap=x", "--array=x"], False),
    ],
)
def test_the_list_of_options_is_pointed_to_when_an_option_is_misspelt(
    daemon: Daemon, capsys: pytest.CaptureFixture[str], argv: list[str], hint: bool
) -> None:
    assert fsbatch.run(argv, {}) == (255 if hint else 1)
    assert ('Try "fsbatch --help"' in capsys.readouterr().err) == hint


def test_what_a_site_says_reaches_the_terminal_without_control_characters(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = JobPlan(name="j", partition="g\x1b[2J", nodes={"a\x9b1": NodeShare()})
    daemon.answers = [
        BidsReply(
            bids=(SiteBid(site="alp\x07", bid=Bid(score=Score(), jobs=(plan,))),), winner="alp\x07"
        )
    ]
    assert fsbatch.run(["--test-only", "--wrap=x"], {}) == 0
    shown = capsys.readouterr().err
    assert all(line.isprintable() for line in shown.splitlines())
    assert "partition g?[2J" in shown


def test_json_gives_the_id_and_the_bids_to_programs(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fsbatch.run(["--json", "--wrap=x"], {}) == 0
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "id": ID, "federation": "demo"}
    daemon.answers = [BidsReply(bids=(SiteBid(site="a", refusal=NEVER),), winner="")]
    assert fsbatch.run(["--json", "--test-only", "--wrap=x"], {}) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["winner"] is None
    assert told["bids"][0]["refusal"]["kind"] == "reject"


def test_a_begin_time_travels_as_unix_time_of_this_host(
    daemon: Daemon, script: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    name = script(b"#!/bin/sh\n#SBATCH --begin=now+2minutes\n")
    daemon.answers = [SubmitReply(id=ID, federation="demo")]
    assert fsbatch.run(["-H", name], {}) == 0
    options = {o.name: o.value for o in daemon.submitted.submission.components[0]}
    assert (options["begin"], "hold" in options) == ("uts1000120", True)
