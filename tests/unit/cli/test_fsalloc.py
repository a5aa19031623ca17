"""fsalloc and fsrun from command line to exit status, with a daemon and an ssh of ours."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from federator.cli import client, fsalloc, fsrun, session
from federator.errors import SiteUnavailable
from federator.faults.clock import VirtualClock
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.workload import FIRST_WORKLOAD_ID
from federator.slurm.options.interpret import interpret
from federator.wire.client_protocol import (
    Call,
    CancelCall,
    CancelReply,
    ErrorReply,
    SessionCall,
    SessionReply,
    SubmitCall,
    SubmitReply,
)
from federator.wire.replies import Reply

ID = int(FIRST_WORKLOAD_ID)
IN_10_MIN = Refusal(
    kind=RefusalKind.WAIT,
    reasons=(Reason(code=ReasonCode.RESOURCES, needed=1, free=0, unit="nodes"),),
    starts_in_s=600.0,
)


def how(state: str, **fields: object) -> SessionReply:
    where = {"site": "cedar", "site_job_id": 7, "attempt": 1, "login": "cedar"}
    known = where if state not in ("PENDING", "CANCELLED") else {}
    return SessionReply(id=ID, state=state, silence_s=60.0, **known, **fields)  # type: ignore[arg-type]


class Federation:
    """A daemon: a job's states are asked for one by one, the last one for ever."""

    def __init__(self) -> None:
        self.states: Sequence[SessionReply | BaseException] = [how("RUNNING"), how("COMPLETED")]
        self.calls: list[Call] = []
        self.refusal: ErrorReply | None = None

    def call(self, message: Call, _timeout_s: float = 30.0) -> Reply:
        self.calls.append(message)
        match message:
            case SubmitCall():
                interpret(message.submission)  # as the daemon does
                return self.refusal or SubmitReply(id=ID, federation="demo")
            case SessionCall():
                found, *rest = self.states
                self.states = rest or [found]
                if isinstance(found, BaseException):
                    raise found
                return found
            case CancelCall():
                self.states = [how("CANCELLED")]
                return CancelReply(ids=(ID,))
        raise AssertionError(message)

    @property
    def submitted(self) -> SubmitCall:
        (call,) = [call for call in self.calls if isinstance(call, SubmitCall)]
        return call

    @property
    def was_cancelled(self) -> bool:
        return CancelCall(ids=(str(ID),)) in self.calls


Commands = Callable[..., int]


@pytest.fixture
def federation(monkeypatch: pytest.MonkeyPatch) -> Federation:
    found, clock = Federation(), VirtualClock(0.0)

    def pause(seconds: float) -> None:
        clock.now_s += seconds

    monkeypatch.setattr(session, "call", found.call)
    monkeypatch.setattr(client, "call", found.call)
    monkeypatch.setattr(time, "sleep", pause)
    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the tests' own stay
    return found


@pytest.fixture
def ssh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Sets what ssh does: a shell command, in place of the way to the site."""

    def becomes(text: str) -> None:
        (tmp_path / "ssh").write_text(f"#!/bin/sh\necho ssh >>{tmp_path}/used\n{text}\n")
        (tmp_path / "ssh").chmod(0o755)

    becomes("exit 0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return becomes


def run_fsrun(*words: str) -> int:
    return fsrun.run(words, {"PATH": "/bin"})


def run_fsalloc(*words: str) -> int:
    return fsalloc.run(words, {"PATH": "/bin"})


def test_the_status_is_the_commands(federation: Federation, ssh: Callable[[str], None]) -> None:
    ssh("exit 7")
    assert run_fsrun("--gres=gpu:1", "python3") == 7
    assert not federation.was_cancelled  # it has ended by itself


def test_the_job_is_a_session_of_the_command(
    federation: Federation, ssh: Callable[[str], None]
) -> None:
    run_fsrun("-N2", "--gres=gpu:8", "-o", "here.txt", "python3", "x")
    call = federation.submitted
    options = {o.name: o.value for o in call.submission.components[0]}
    assert (call.interactive, call.watched) == (True, True)
    assert options["job-name"] == "python3"
    assert options["output"] == "/dev/null"
    assert options["time"] == "60"
    assert "no-requeue" in options
    assert call.submission.environment == {"PATH": "/bin"}


def test_who_says_requeue_may_be_evicted(
    federation: Federation, ssh: Callable[[str], None]
) -> None:
    run_fsrun("--requeue", "-t", "5", "true")
    options = {o.name for o in federation.submitted.submission.components[0]}
    assert "requeue" in options
    assert "no-requeue" not in options


def test_fsalloc_tells_what_salloc_tells(
    federation: Federation, ssh: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_fsalloc("-N1", "srun", "hostname") == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        f"fsalloc: Pending job allocation {ID}",
        f"fsalloc: Granted job allocation {ID} on cedar",
        f"fsalloc: Relinquishing job allocation {ID}",
    ]
    federation.states = [how("RUNNING"), how("COMPLETED")]
    assert run_fsalloc("-Q", "true") == 0
    assert capsys.readouterr().err == ""


def test_no_shell_leaves_it(federation: Federation, ssh: Callable[[str], None]) -> None:
    assert run_fsalloc("--no-shell") == 0
    assert not federation.submitted.watched
    assert not federation.was_cancelled


def test_who_waits_is_told_when_it_could_start(
    federation: Federation, ssh: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = how("PENDING", refusals={"cedar": IN_10_MIN})
    federation.states = [waiting] * 40 + [how("RUNNING"), how("COMPLETED")]
    assert run_fsrun("true") == 0
    assert capsys.readouterr().err == (
        f"fsrun: job {ID} queued and waiting for resources: could start at cedar in 10 min "
        "(at the latest)\n"
    )


@pytest.mark.parametrize("silent_s", [3.0, 60.0])
def test_who_waits_is_told_why_once_a_site_has_answered_or_after_5_s_that_none_has(
    federation: Federation,
    ssh: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    silent_s: float,
) -> None:
    polls = round(silent_s / session.FIRST_POLLS_S)
    waiting = how("PENDING", refusals={"cedar": IN_10_MIN})
    federation.states = [how("PENDING")] * polls + [waiting] * 40 + [how("RUNNING")]
    federation.states = [*federation.states, how("COMPLETED")]
    assert run_fsrun("true") == 0
    (told,) = capsys.readouterr().err.splitlines()
    assert ("cedar in 10 min" in told) == (silent_s < session.QUICK_S)


def test_immediate_takes_it_out_of_the_queue(
    federation: Federation, ssh: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    federation.states = [how("PENDING", refusals={"cedar": IN_10_MIN})]
    assert run_fsrun("-I1", "true") == 1
    assert federation.was_cancelled
    assert "not started within 1 s; could start at cedar in 10 min" in capsys.readouterr().err


@pytest.mark.parametrize(("run", "status"), [(run_fsrun, 130), (run_fsalloc, 1)])
def test_control_c_before_the_start_takes_it_out_of_the_queue(
    federation: Federation, ssh: Callable[[str], None], run: Commands, status: int
) -> None:
    federation.states = [how("PENDING"), KeyboardInterrupt()]
    assert run("true") == status
    assert federation.was_cancelled


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_job(
    federation: Federation, ssh: Callable[[str], None], number: signal.Signals
) -> None:
    federation.states = [how("PENDING"), session.Ended(number)]
    assert run_fsrun("true") == 128 + number
    assert federation.was_cancelled


def test_a_daemon_that_is_away_is_waited_for(
    federation: Federation, ssh: Callable[[str], None]
) -> None:
    federation.states = [SiteUnavailable("away")] * 30 + [how("RUNNING"), how("COMPLETED")]
    assert run_fsrun("true") == 0


def test_a_job_that_ends_before_it_starts_is_said(
    federation: Federation, ssh: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    federation.states = [how("PENDING"), how("CANCELLED")]
    assert run_fsrun("true") == 1
    assert f"fsrun: error: job {ID} does not start: CANCELLED" in capsys.readouterr().err


def test_a_job_that_is_over_ends_the_command(
    federation: Federation,
    ssh: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ssh("exec sleep 60")
    monkeypatch.setattr(session, "RENEW_S", 0.01)
    monkeypatch.setattr(session, "ENDING_S", 0.01)
    federation.states = [how("RUNNING"), how("RUNNING"), how("TIMEOUT", site_state="TIMEOUT")]
    assert run_fsrun("sleep", "60") == 1
    assert capsys.readouterr().err == f"fsrun: job {ID} is over: TIMEOUT\n"


def test_a_job_at_its_time_limit_is_left_to_slurm(
    federation: Federation, ssh: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    ssh("exit 143")
    federation.states = [how("RUNNING"), how("RUNNING", left_s=-3.0)]
    assert run_fsrun("sleep", "100") == 143
    assert capsys.readouterr().err == f"fsrun: job {ID} is over: its time limit\n"
    assert not federation.was_cancelled


@pytest.mark.parametrize(("run", "program"), [(run_fsrun, "fsrun"), (run_fsalloc, "fsalloc")])
def test_a_cancelled_job_is_said_though_its_command_died_of_it_first(
    federation: Federation,
    ssh: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    run: Commands,
    program: str,
) -> None:
    ssh("exit 143")
    heard_s = 5 * session.SETTLES_S  # of a busy site
    running = [how("RUNNING", left_s=60.0)] * round(heard_s / session.FIRST_POLLS_S)
    federation.states = [*running, how("CANCELLED", site_state="CANCELLED")]
    assert run("sleep", "100") == 143
    assert f"{program}: job {ID} is over: CANCELLED\n" in capsys.readouterr().err
    assert not federation.was_cancelled


@pytest.mark.parametrize(("run", "program"), [(run_fsrun, "fsrun"), (run_fsalloc, "fsalloc")])
def test_a_command_whose_node_died_has_not_succeeded_though_srun_says_so(
    federation: Federation,
    ssh: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    run: Commands,
    program: str,
) -> None:
    """As srun of 22.05 does."""
    ssh("exit 0")
    federation.states = [how("RUNNING"), how("FAILED", site_state="NODE_FAIL")]
    assert run("sleep", "100") == 1
    assert f"{program}: job {ID} is over: NODE_FAIL\n" in capsys.readouterr().err


@pytest.mark.parametrize("heard_s", [5.0, None])
def test_a_command_whose_node_died_has_not_succeeded_though_no_daemon_has_heard_of_it(
    federation: Federation,
    ssh: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    heard_s: float | None,
) -> None:
    """An agent looks every ten seconds by default, and the daemon may be away."""
    ssh('for last; do :; done; exec /bin/sh -c "$last"')
    for name, text in {
        "srun": "exit 0",
        "scancel": "exit 0",
        "scontrol": "echo JobId=7 JobState=COMPLETING Reason=NodeDown Dependency=",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".federator/sessions").mkdir(parents=True)
    (tmp_path / f".federator/sessions/{ID}.1").touch()
    federation.states = [how("RUNNING"), SiteUnavailable("no daemon")]
    if heard_s is not None:
        running = [how("RUNNING", left_s=60.0)] * round(heard_s / session.FIRST_POLLS_S)
        federation.states = [*running, how("FAILED", site_state="NODE_FAIL")]
    assert run_fsrun("sleep", "100") == 1
    assert ("NODE_FAIL" in capsys.readouterr().err) == (heard_s is not None)


def test_a_command_that_failed_waits_for_no_daemon_that_is_away(
    federation: Federation, ssh: Callable[[str], None]
) -> None:
    ssh("exit 1")
    federation.states = [how("RUNNING"), SiteUnavailable("no daemon")]
    assert run_fsrun("false") == 1
    asked = [call for call in federation.calls if isinstance(call, SessionCall)]
    assert len(asked) <= session.SETTLES_S / session.FIRST_POLLS_S + 2


def test_whoever_waits_no_more_for_the_end_of_the_job_cancels_it(
    federation: Federation, ssh: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after the command has ended; while it runs the signal is the command's own."""
    ssh("exit 1")
    federation.states = [how("RUNNING", left_s=60.0)] * 99

    def interrupted(_seconds: float) -> None:
        if ended:
            signal.raise_signal(signal.SIGINT)

    ended: list[int] = []
    use = session.Session.use

    def noted(*args: object, **more: object) -> int:
        status = use(*args, **more)  # type: ignore[arg-type]
        ended.append(status)
        return status

    monkeypatch.setattr(session.Session, "use", noted)
    monkeypatch.setattr("federator.cli.session.time.sleep", interrupted)
    assert run_fsrun("false") == 130
    assert federation.was_cancelled


def test_one_that_starts_again_elsewhere_is_over_for_its_command(
    federation: Federation,
    ssh: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ssh("exec sleep 60")
    monkeypatch.setattr(session, "RENEW_S", 0.01)
    monkeypatch.setattr(session, "ENDING_S", 0.01)
    federation.states = [how("RUNNING"), how("PENDING")]
    assert run_fsrun("--requeue", "sleep", "60") == 1
    assert federation.was_cancelled


def test_one_whose_command_died_of_its_eviction_is_over_at_once(
    federation: Federation, ssh: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    ssh("exit 143")
    federation.states = [how("RUNNING"), how("PENDING")]
    assert run_fsrun("--requeue", "sleep", "60") == 143
    assert capsys.readouterr().err == f"fsrun: job {ID} is over: PENDING\n"
    assert federation.was_cancelled
    assert len(federation.calls) == 4  # submitted, running, pending, cancelled


def test_a_job_that_does_not_end_is_cancelled(
    federation: Federation, ssh: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    ssh("exit 255")  # the connection broke: nothing at the site has ended it
    federation.states = [how("RUNNING")]
    assert run_fsrun("true") == 255
    assert federation.was_cancelled
    assert "ssh to cedar ended with 255" in capsys.readouterr().err


def test_where_no_login_host_is_known_the_job_is_given_back(
    federation: Federation, ssh: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    federation.states = [SessionReply(id=ID, state="RUNNING", silence_s=60.0, site="cedar")]
    assert run_fsrun("true") == 1
    assert federation.was_cancelled
    assert "sites.cedar.login" in capsys.readouterr().err


def test_a_refusal_is_said_with_the_sites_reasons(
    federation: Federation, capsys: pytest.CaptureFixture[str]
) -> None:
    federation.refusal = ErrorReply(message="no site", reasons={"cedar": IN_10_MIN})
    assert run_fsalloc("-N99") == 1
    assert capsys.readouterr().err.startswith("fsalloc: error: no site; cedar: not now: ")
    assert not federation.was_cancelled


def test_in_a_job_that_was_started_before(
    federation: Federation, ssh: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    ssh("exit 4")
    federation.states = [how("RUNNING")]
    assert run_fsrun(f"--jobid={ID}", "false") == 4
    assert SessionCall(id=ID, attach=True) in federation.calls
    assert not federation.was_cancelled
    federation.states = [how("PENDING")]
    assert run_fsrun(f"--jobid={ID}", "false") == 1
    assert f"job {ID} does not run: it is PENDING" in capsys.readouterr().err
    assert run_fsrun("--jobid=x", "false") == 1


def test_inside_a_job_fsrun_is_srun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    became: list[list[str]] = []

    def become(_file: str, argv: list[str]) -> None:
        became.append(argv)
        sys.exit(0)

    monkeypatch.setattr(os, "execvp", become)
    with pytest.raises(SystemExit):
        fsrun.run(["-n2", "hostname"], {"SLURM_JOB_ID": "5"})
    assert became == [["srun", "-n2", "hostname"]]


def test_a_command_is_needed(federation: Federation, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_fsrun("-N1") == 1
    assert capsys.readouterr().err == "fsrun: error: No command given to execute.\n"
    assert run_fsrun("--nonsense") == 1
    assert 'Try "fsrun --help"' in capsys.readouterr().err
    assert run_fsrun("--immediate=soon", "true") == 1
    assert "--immediate=soon: expected a number of seconds" in capsys.readouterr().err
    assert federation.calls == []


@pytest.mark.parametrize("run", [run_fsrun, run_fsalloc])
def test_help_asks_nobody(
    federation: Federation, run: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--help") == run("--usage") == run("-V") == 0
    assert "--immediate" in capsys.readouterr().out
    assert federation.calls == []
