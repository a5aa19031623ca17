"""fscancel with scancel's options: ids, filters, signals, questions and variables."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from federator.cli import cancel_selected, client, fscancel, send_signal, unknown_names
from federator.cli.text import my_name
from federator.model.lifecycle import WorkloadState
from federator.wire.client_protocol import (
    Call,
    CancelCall,
    CancelReply,
    QueueCall,
    QueueReply,
    QueueRow,
    SignalCall,
    SignalReply,
)
from federator.wire.queue_rows import JobDetails
from federator.wire.replies import Reply


class Done(NamedTuple):
    """How a command ended, what it printed, and what it asked for."""

    status: int
    out: str
    err: str
    asked: list[Call]

    @property
    def cancelled(self) -> tuple[str, ...]:
        """The ids that it had cancelled."""
        return tuple(id_ for call in self.asked if isinstance(call, CancelCall) for id_ in call.ids)

    @property
    def question(self) -> QueueCall:
        """What it asked the queue for."""
        return next(call for call in self.asked if isinstance(call, QueueCall))


Run = Callable[..., Done]


def row(id_: int = 1, **changes: Any) -> QueueRow:
    base: dict[str, Any] = {
        "id": id_,
        "name": "train",
        "user": my_name(),
        "tenant": "vision",
        "priority": 1,
        "state": "PENDING",
        "attempt": 0,
        "submitted_at_s": 0.0,
        "details": JobDetails(
            partitions=("gpu",),
            options={"qos": "high", "wckey": "w", "reservation": "alpine:r1,r2"},
        ),
    }
    return QueueRow(**{**base, **changes})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run fscancel against a daemon that has these rows; ``typed`` is on stdin."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(unknown_names, "is_user", lambda _: True)

    def command(
        words: list[str],
        *rows: QueueRow,
        typed: str = "",
        selects: bool = True,
        left_off: int = 0,
    ) -> Done:
        asked: list[Call] = []

        def call(message: Call) -> Reply:
            asked.append(message)
            if isinstance(message, QueueCall):
                return QueueReply(rows=rows, now_s=0.0, selects=selects, left_off=left_off)
            if isinstance(message, SignalCall):
                return SignalReply(ids=tuple(int(i.partition("_")[0]) for i in message.ids))
            assert isinstance(message, CancelCall)
            ids = tuple(int(i) for i in message.ids if i.isdecimal())
            if message.users:  # only theirs
                theirs = {each.id for each in rows if each.user in message.users}
                ids = tuple(id_ for id_ in ids or theirs if id_ in theirs)
            return CancelReply(ids=ids)

        monkeypatch.setattr(client, "call", call)
        monkeypatch.setattr(send_signal, "call", call)
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        monkeypatch.setattr(sys, "argv", ["fscancel", *words])
        with pytest.raises(SystemExit) as ended:
            fscancel.main()
        told = capsys.readouterr()
        return Done(int(ended.value.code or 0), told.out, told.err, asked)

    return command


# ---- ids ----


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["7"], ("7",)),
        (["7,8", "9"], ("7", "8", "9")),
        (["7_3"], ("7_3",)),
        (["7_[1-3]"], ("7_1", "7_2", "7_3")),
        (["7_[1,5-6]", "8"], ("7_1", "7_5", "7_6", "8")),
        (["7_[0-4:2],9"], ("7_0", "7_2", "7_4", "9")),
        (["7_[1-2];demo"], ("7_1;demo", "7_2;demo")),
        (["7_*"], ("7",)),
        (["7+0"], ("7",)),
        (["7;demo"], ("7;demo",)),
        (["7", "7"], ("7",)),
    ],
)
def test_ids_are_read_as_scancel_reads_them(run: Run, words: list[str], ids: tuple[str]) -> None:
    assert run(words).asked == [CancelCall(ids=ids)]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("abc", "Invalid job id specified: abc"),
        ("7_", "Invalid job id specified: 7_"),
        ("7_[3-1]", "Invalid job id specified: 7_[3-1]"),
        ("7_[x]", "Invalid job id specified: 7_[x]"),
        ("7_[1-99999]", "Invalid job id specified: 7_[1-99999]"),
        ("7,,8", "Invalid job id specified: it is empty"),
        ("-1", "invalid option -- '1'"),
        ("7.0", "7.0: a step cannot be ended alone; at the job's site 'scancel SITE_JOBID.STEP'"),
        ("7+1", "7+1: a component cannot be ended alone; the het job is 7, and is ended"),
    ],
)
def test_what_is_no_id_is_refused_and_nothing_cancelled(run: Run, word: str, said: str) -> None:
    done = run([word])
    assert (done.status, done.asked) == (1, [])
    assert done.err.startswith(f"fscancel: error: {said}")


def test_many_ids_go_in_several_calls(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fscancel, "IDS_IN_A_CALL", 2)
    done = run(["-v", "1,2,3,4,5"])
    assert [call.ids for call in done.asked if isinstance(call, CancelCall)] == [
        ("1", "2"),
        ("3", "4"),
        ("5",),
    ]
    assert done.err.count("Terminating job") == 5


def test_many_ids_are_looked_up_in_several_questions(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel_selected, "IDS_IN_A_CALL", 2)
    done = run(["-t", "PENDING", "1,2,3"], row(1), row(2), row(3))
    looked = [call.ids for call in done.asked if isinstance(call, QueueCall)]
    assert looked == [("1", "2"), ("3",)]
    assert done.cancelled == ("1", "2", "3")


def test_a_task_is_named_as_it_was_asked_for(run: Run) -> None:
    """The id of the first task of an array is the array's, and would be taken for all of it."""
    assert run(["-v", "7_[1-2]"]).err == (
        "fscancel: Terminating job 7_1\nfscancel: Terminating job 7_2\n"
    )
    task = row(7, array_id=7, array_index=1, state="RUNNING")
    assert run(["-v", "-n", "train", "-s", "USR1"], task).err == (
        "fscancel: Signal USR1 to job 7_1\n"
    )


def test_of_the_ids_only_those_of_the_user_named_are_said_to_be_cancelled(run: Run) -> None:
    done = run(["-v", "--me", "5", "6"], row(5, user="bob"), row(6))
    assert done.asked == [CancelCall(ids=("5", "6"), users=(my_name(),))]
    assert done.err == "fscancel: Terminating job 6\n"


def test_nothing_named_is_scancels_error(run: Run) -> None:
    for words in ([], ["-v"], ["-i"], ["-s", "USR1"], ["-M", "all"]):
        done = run(words)
        assert (done.status, done.asked) == (1, [])
        assert done.err == "fscancel: error: No job identification provided\n"


# ---- filters ----


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["-n", "train"], True),
        (["--name=train"], True),
        (["--jobname", "train"], True),
        (["-n", "TRAIN"], False),
        (["-n", "trai"], False),
        (["-A", "VISION"], True),
        (["-A", "nlp"], False),
        (["-p", "gpu"], True),
        (["-p", "cpu"], False),
        (["-q", "High"], True),
        (["-q", "low"], False),
        (["--wckey=w"], True),
        (["--wckey=x"], False),
        (["-R", "r1"], True),
        (["-R", "maint"], False),
        (["-t", "PENDING"], True),
        (["-t", "pd"], True),
        (["-t", "R"], False),
        (["-t", "SUSPENDED"], False),
        (["-t", "NF"], False),
        (["-n", "train", "-t", "PD", "-A", "vision", "-u", "ada"], True),
        (["-n", "train", "-t", "RUNNING"], False),
    ],
)
def test_only_jobs_that_all_options_choose_are_cancelled(
    run: Run, words: list[str], kept: bool
) -> None:
    """Whatever the daemon answers: an earlier build leaves none out."""
    done = run(words, row(5))
    assert (done.status, done.cancelled) == (0, ("5",) if kept else ())


@pytest.mark.parametrize("state", [s.value for s in WorkloadState])
def test_what_has_not_started_is_pending_and_what_ends_is_left(run: Run, state: str) -> None:
    pending = bool(run(["-t", "PENDING"], row(state=state)).cancelled)
    running = bool(run(["-t", "RUNNING"], row(state=state)).cancelled)
    assert pending is (state in ("PENDING", "INELIGIBLE", "HELD", "AWARDED", "LAUNCHING"))
    assert running is (state in ("RUNNING", "PREEMPTING"))


def test_nodes_choose_the_jobs_on_them(run: Run, tmp_path: Path) -> None:
    rows = [row(1, node_names=("n1", "n2")), row(2, node_names=("n7",)), row(3)]
    assert run(["-w", "n[2-4]"], *rows).cancelled == ("1",)
    (tmp_path / "nodes").write_text("n7\nn8\n")
    assert run(["-w", str(tmp_path / "nodes")], *rows).cancelled == ("2",)
    (tmp_path / "nodes").write_text("n7\n" * 400_000)
    cut = run(["-w", str(tmp_path / "nodes")], *rows)
    assert (cut.status, cut.cancelled) == (1, ())
    missing = run(["-w", str(tmp_path / "none")], *rows)
    assert (missing.status, missing.asked) == (1, [])


def test_without_an_id_or_a_user_only_ones_own_are_looked_at(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["-n", "train"], row()).question.users == (my_name(),)
    assert run(["-n", "train", "-u", "ada"], row()).question.users == ("ada",)
    assert run(["-n", "train", "7"], row()).question.users == ()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert run(["-n", "train"], row()).question.users == ()


def test_the_daemon_is_asked_for_no_more_than_may_be_meant(run: Run) -> None:
    question = run(["-n", "train", "-A", "vision", "-t", "PENDING", "7_[1-2]"]).question
    assert question == QueueCall(
        ids=("7_1", "7_2"),
        names=("train",),
        tenants=("vision",),
        states=("PENDING", "INELIGIBLE", "HELD", "AWARDED", "LAUNCHING"),
        brief=True,
    )


def test_clusters_are_not_left_to_a_daemon_that_does_not_know_them(run: Run) -> None:
    assert run(["-M", "cedar", "7"], row(7)).cancelled == ("7",)
    done = run(["-M", "cedar", "7"], row(7), selects=False)
    assert (done.status, done.cancelled) == (1, ())
    assert "earlier build" in done.err


def test_none_that_match_is_no_error_and_said_when_asked(run: Run) -> None:
    assert run(["-n", "x"], row())[:3] == (0, "", "")
    assert run(["-v", "-n", "x", "-u", "ada"], row()).err == (
        "fscancel: error: No active jobs match ALL job filters, including: name=x user_name=ada\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-t", "XX"], "Invalid job state specified: XX; valid job states are PENDING, RUNNING"),
        (["-s", "FOO", "1"], "Unknown job signal: FOO"),
        (["-s", "77", "1"], "Unknown job signal: 77"),
        (["--sibling=x", "1"], "--sibling cannot be honoured: a job is at one site"),
        (["--admin-comment=x", "1"], "--admin-comment cannot be honoured: the federation"),
        (["-n", "\udce9"], "'?' holds bytes that are not UTF-8"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_line(
    run: Run, words: list[str], said: str
) -> None:
    done = run(words, row())
    assert (done.status, done.asked) == (1, [])
    assert done.err.startswith(f"fscancel: error: {said}")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("word", ["--ctld", "-c", "--cron", "-H", "--hurry", "-b", "-f"])
def test_options_without_a_meaning_here_change_nothing(run: Run, word: str) -> None:
    assert run([word, "7"]).asked == [CancelCall(ids=("7",))]


# ---- questions ----


@pytest.mark.parametrize("words", [["-t", "PENDING"], ["-n", "train", "7_3"], ["-i", "7_3"]])
def test_the_first_task_of_an_array_is_not_the_whole_array(run: Run, words: list[str]) -> None:
    """Its id is the array's: named by it, all tasks would go."""
    first = row(7, array_id=7, array_index=3)
    assert run(words, first, typed="y\n").cancelled == ("7_3",)


def test_what_was_refused_is_not_said_to_be_cancelled(run: Run) -> None:
    done = run(["-n", "train", "--json"], row(7, array_id=7, array_index=3), row(8))
    assert '"cancelled":[8]' in done.out  # this daemon cancels none that is named by a task


def test_jobs_that_could_not_be_looked_at_are_an_error(run: Run) -> None:
    done = run(["-q", "low"], row(8), left_off=9000)
    assert (done.status, done.cancelled) == (1, ())
    assert "9000 jobs could not be looked at" in done.err


def test_each_job_is_asked_about(run: Run) -> None:
    done = run(["-i", "1,2,3"], row(1), row(2), row(3), typed="y\nwhat\nn\nY\n")
    assert done.cancelled == ("1", "3")
    assert done.out.startswith("Cancel job_id=1 name=train partition=gpu [y/n]? ")


def test_no_answer_is_no(run: Run) -> None:
    assert run(["-i", "1"], row(1)).cancelled == ()


# ---- signals ----


@pytest.mark.parametrize("word", ["KILL", "SIGKILL", "kill", "9"])
def test_kill_is_a_cancel_as_with_scancel(run: Run, word: str) -> None:
    assert run(["-s", word, "7"]).asked == [CancelCall(ids=("7",))]


@pytest.mark.parametrize(
    ("words", "signal", "to"),
    [
        (["-s", "USR1"], "USR1", "steps"),
        (["--signal=SIGTERM"], "TERM", "steps"),
        (["-s10", "-b"], "USR1", "batch"),
        (["-s", "int", "--full"], "INT", "all"),
    ],
)
def test_other_signals_are_sent_and_end_nothing(
    run: Run, words: list[str], signal: str, to: str
) -> None:
    done = run(["-v", *words, "7"], row(7, state="RUNNING"))
    assert done.cancelled == ()
    assert done.asked[-1] == SignalCall(ids=("7",), signal=signal, to=to)
    assert done.err == f"fscancel: Signal {signal} to job 7\n"


# ---- the environment ----


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("SCANCEL_NAME", "train", True),
        ("SCANCEL_NAME", "x", False),
        ("SCANCEL_ACCOUNT", "nlp", False),
        ("SCANCEL_PARTITION", "cpu", False),
        ("SCANCEL_QOS", "low", False),
        ("SCANCEL_STATE", "RUNNING", False),
        ("SCANCEL_WCKEY", "x", False),
        ("SCANCEL_INTERACTIVE", "true", False),
        ("SCANCEL_INTERACTIVE", "false", True),
        ("SCANCEL_INTERACTIVE", "T", False),
    ],
)
def test_variables_count_as_options(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, value: str, kept: bool
) -> None:
    monkeypatch.setenv(name, value)
    assert run(["5"], row(5)).cancelled == (("5",) if kept else ())


def test_an_option_comes_before_its_variable(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCANCEL_NAME", "x")
    monkeypatch.setenv("SCANCEL_USER", "ada")
    monkeypatch.setenv("SCANCEL_VERBOSE", "true")
    done = run(["-n", "train", "--me"], row(5))
    assert done.question.users == (my_name(),)
    assert done.err == "fscancel: Terminating job 5\n"
