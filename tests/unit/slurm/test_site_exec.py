"""The helper does what it may in the user's name, and refuses all else."""

from __future__ import annotations

import ast
import errno
import json
import os
import pwd
import py_compile
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from federator.model.plan import JobPlan
from federator.model.site import NodeShare
from federator.model.submission import Submission
from federator.model.workload import AttemptId, WorkloadId
from federator.site_installer.helper import HELPER_SOURCE, helper_files, helper_of
from federator.slurm import site_exec
from federator.slurm.render import render
from federator.wire.agent_protocol import LaunchOrder
from federator.wire.client_protocol import SubmitCall, frame
from federator.wire.client_socket import call_decoder

Json = dict[str, object]
USER = pwd.getpwuid(os.getuid())


def request(**changes: object) -> Json:
    base: Json = {
        "op": "sbatch",
        "argv": ["--comment=fed:7:1", "--nodes=1"],
        "args": [],
        "script": "#!/bin/sh\n",
        "environment": {"PATH": "/usr/bin:/bin", "MINE": "é"},
        "work_dir": "/",
        "umask": 0o022,
        "checkpoint_dir": "",
        "files": {"names": [], "shared": [], "aside": ""},
        "start_by_s": 4e9,
    }
    return {**base, **changes}


def answer(value: object) -> Json:
    return site_exec.answer_to(json.dumps(value).encode())


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The helper changes directory and umask of the process that it runs in; give them back."""
    monkeypatch.chdir(tmp_path)
    umask = os.umask(0o022)
    yield
    os.umask(umask)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Put a shell script in the place of one of Slurm's commands."""

    def install(name: str, script: str) -> Path:
        path = tmp_path / name.lower()
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(site_exec, name, str(path))
        return tmp_path

    monkeypatch.delenv("SUDO_UID", raising=False)
    return install


@pytest.mark.parametrize(
    "argv",
    [
        ["--nodes=1"],
        ["--comment=mine"],
        ["--comment"],
        ["--comment=fed:7:1", "--comment=fed:8:1"],
        ["--comment=fed:7:1", ":", "--nodes=1"],
        ["--comment=fed:7:1", "-N1"],
        ["--comment=fed:7:1", "job.sh"],
        ["--comment=fed:7:1", "--"],
        ["--comment=fed:7:1", "--uid=0"],
        ["--comment=fed:7:1", "--ui=0"],
        ["--comment=fed:7:1", "--gid=0"],
        ["--comment=fed:7:1", "-M", "other"],
        ["--comment=fed:7:1", "--clusters=other"],
        ["--comment=fed:7:1", "--cluster=other"],
        ["--comment=fed:7:1", "--clu=other"],
        ["--comment=fed:7:1", "--comm=mine"],
        ["--comment=fed:7:1", "--wrap=id"],
        ["--comment=fed:7:1", "--wait"],
        ["--comment=fed:7:1", "--test-only"],
        ["--comment=fed:7:1", "--name=a\0b"],
        ["--comment=fed:7:1", 5],
        ["--comment=fed:7:1", "--name=" + "x" * 131072],
        ["--comment=fed:7:1"] * 5000,
        "--comment=fed:7:1",
    ],
)
def test_an_argv_that_could_do_more_is_refused(argv: object) -> None:
    assert answer(request(argv=argv))["exit_status"] == site_exec.USAGE


@pytest.mark.parametrize(
    "argv",
    [
        ["--comment=fed:7:1 my own words"],
        ["--comment=fed:7:1", "--wait-all-nodes=1", "--exclusive", "--job-name=a\nb"],
        ["--comment=fed:7:1", ":", "--comment=fed:7:1", "--gres=gpu:1"],
    ],
)
def test_an_argv_of_long_options_is_accepted(argv: list[str]) -> None:
    site_exec.check_argv(argv)


@pytest.mark.parametrize(
    "changed",
    [
        {"op": "rm"},
        {"op": ["sbatch"]},
        {"op": None},
        {"extra": 1},
        {"script": 5},
        {"script": "x" * (4 * 2**20 + 1)},
        {"script": "\ud800"},
        {"args": ["a\0"]},
        {"args": [1]},
        {"environment": {"A": 1}},
        {"environment": {"": "x"}},
        {"environment": {"A=B": "x"}},
        {"environment": {"A": "x\0"}},
        {"environment": {"A": "x" * 131072}},
        {"environment": []},
        {"work_dir": None},
        {"umask": None},
        {"umask": "077"},
        {"umask": True},
        {"umask": -1},
        {"umask": 0o1000},
    ],
)
def test_a_request_of_the_wrong_form_is_refused(changed: Json) -> None:
    refused = answer(request(**changed))
    assert refused["exit_status"] == site_exec.USAGE
    assert refused["error"]


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"7", b"\xff", b"[" * 100_000])
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    assert site_exec.answer_to(raw)["exit_status"] == site_exec.USAGE


def test_nothing_is_done_in_roots_name(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    program("SBATCH", "echo 7\n")
    monkeypatch.setenv("SUDO_UID", "990")
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert answer(request())["error"] == "root is no researcher"


def test_too_long_a_request_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_exec, "MAX_REQUEST_BYTES", 10)
    assert "too long" in str(answer(request())["error"])


@pytest.mark.parametrize(
    "value",
    [
        {"op": "scancel", "job_id": 7},
        {"op": "scancel", "job_id": "7", "pending_only": False},
        {"op": "scancel", "job_id": True, "pending_only": False},
        {"op": "scancel", "job_id": 0, "pending_only": False},
        {"op": "scancel", "job_id": -7, "pending_only": False},
        {"op": "scancel", "job_id": 2**32, "pending_only": False},
        {"op": "scancel", "job_id": 7, "pending_only": 1},
        {"op": "signal", "job_id": 7, "signal": "9", "to": "all"},
        {"op": "signal", "job_id": 7, "signal": "USR1 --full", "to": "all"},
        {"op": "limit", "job_id": 7, "minutes": "90 Nice=-1000"},
        {"op": "limit", "job_id": 7, "minutes": 0},
        {"op": "limit", "job_id": 7, "minutes": 2**31},
        {"op": "limit", "job_id": 2**32, "minutes": 90},
    ],
)
def test_a_job_or_signal_of_the_wrong_form_is_refused(value: Json) -> None:
    assert answer(value)["exit_status"] == site_exec.USAGE


def test_a_submission_reaches_sbatch_as_it_is(program: Callable[[str, str], Path]) -> None:
    where = program(
        "SBATCH",
        'printf "%s\\n" "$@" > argv; cat > script; env | sort > env; echo chatter; echo "7;c1"\n',
    )
    given = {"MINE": "é", "SBATCH_UID": "0", "SLURM_CONF": "/x", "USER": "root", "HOME": "/x"}
    accepted = request(
        environment=given, args=["two words", "--uid=0"], script="#!/bin/sh\né", work_dir=str(where)
    )
    assert answer(accepted) == {"job_id": 7}
    assert (where / "argv").read_text().splitlines() == [
        "--parsable",
        "--comment=fed:7:1",
        "--nodes=1",
        "/dev/stdin",
        "two words",
        "--uid=0",
    ]
    assert (where / "script").read_text() == "#!/bin/sh\né"
    seen = dict(line.split("=", 1) for line in (where / "env").read_text().splitlines())
    assert (seen["MINE"], seen["USER"], seen["HOME"]) == ("é", USER.pw_name, USER.pw_dir)
    assert (seen["PWD"], seen["PATH"]) == (str(where), "/usr/local/bin:/usr/bin:/bin")
    assert not [name for name in seen if name.startswith(("SBATCH_", "SLURM_"))]
    assert "VIRTUAL_ENV" not in seen


def test_sbatch_runs_under_the_researchers_umask(program: Callable[[str, str], Path]) -> None:
    where = program("SBATCH", "umask > umask; echo 7\n")
    assert answer(request(umask=0o077, work_dir=str(where))) == {"job_id": 7}
    assert int((where / "umask").read_text(), 8) == 0o077
    assert stat.S_IMODE((where / "umask").stat().st_mode) == 0o600


def test_bytes_that_are_not_utf8_reach_sbatch(program: Callable[[str, str], Path]) -> None:
    content = b"#!/bin/sh\n# caf\xe9 \xff\xed\xb3\xbf \xc3\xa9\n"
    submission = Submission(
        components=((),), script=content.decode("latin-1"), script_encoding="latin-1"
    )
    order = LaunchOrder(
        attempt=AttemptId(workload=WorkloadId(7), attempt=1),
        user="u",
        tenant="t",
        name="n",
        submission=from_wire(submission),
        jobs=(JobPlan(name="n", partition="p", nodes={"n1": NodeShare()}),),
    )
    where = program("SBATCH", "cat > script; echo 7\n")
    call = render(order, "alpine")
    given = {"argv": list(call.argv), "script": call.script, "environment": call.environment}
    assert answer(request(**given, work_dir=str(where))) == {"job_id": 7}
    assert (where / "script").read_bytes() == content


def from_wire(submission: Submission) -> Submission:
    sent = frame(SubmitCall(submission=submission, key="k"))
    received = call_decoder.decode(sent[4:])
    assert isinstance(received, SubmitCall)
    return received.submission


def test_a_work_dir_that_is_not_there_gives_way_to_home(
    program: Callable[[str, str], Path],
) -> None:
    program("SBATCH", "echo 7\n")
    assert answer(request(work_dir="/nonexistent")) == {"job_id": 7, "work_dir": USER.pw_dir}
    assert answer(request(work_dir="relative"))["work_dir"] == USER.pw_dir
    assert answer(request(work_dir="/\0"))["work_dir"] == USER.pw_dir


def test_sbatchs_own_words_and_status_come_back(program: Callable[[str, str], Path]) -> None:
    program("SBATCH", "echo 'sbatch: error: no such partition' >&2; exit 1\n")
    assert answer(request()) == {"error": "sbatch: error: no such partition", "exit_status": 1}


def test_an_sbatch_that_names_no_job_is_unreadable(program: Callable[[str, str], Path]) -> None:
    program("SBATCH", "echo Submitted\n")
    assert answer(request())["exit_status"] == site_exec.UNREADABLE


def test_an_sbatch_that_is_missing_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_exec, "SBATCH", "/nonexistent/sbatch")
    monkeypatch.chdir("/")
    assert answer(request())["exit_status"] == site_exec.UNREADABLE


def test_an_sbatch_that_hangs_is_killed(
    program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = program("SBATCH", "echo $$ > pid; exec sleep 60\n")
    monkeypatch.setattr(site_exec, "TIMEOUT_S", 0.3)
    assert answer(request(work_dir=str(where)))["exit_status"] == site_exec.TIMED_OUT
    with pytest.raises(ProcessLookupError):
        os.kill(int((where / "pid").read_text()), 0)


def ask_scancel(**changes: object) -> Json:
    return answer({"op": "scancel", "job_id": 7, "pending_only": False, **changes})


def test_an_own_federated_job_is_cancelled(program: Callable[[str, str], Path]) -> None:
    program("SQUEUE", f"printf '{USER.pw_uid}|RUNNING|fed:7:1   \\n'\n")
    where = program("SCANCEL", 'printf "%s\\n" "$@" > scancelled\n')
    assert ask_scancel(pending_only=True) == {"job_id": 7}
    assert (where / "scancelled").read_text().split() == ["--state=PENDING", "7"]
    assert ask_scancel() == {"job_id": 7}
    assert (where / "scancelled").read_text().split() == ["7"]


def test_an_own_federated_job_is_signalled(program: Callable[[str, str], Path]) -> None:
    program("SQUEUE", f"printf '{USER.pw_uid}|RUNNING|fed:7:1   \\n'\n")
    where = program("SCANCEL", 'printf "%s\\n" "$@" > scancelled\n')
    value: Json = {"op": "signal", "job_id": 7, "signal": "USR1", "to": "batch"}
    assert answer(value) == {"job_id": 7}
    assert (where / "scancelled").read_text().split() == ["--signal=USR1", "--batch", "7"]
    answer({**value, "to": "all"})
    assert (where / "scancelled").read_text().split() == ["--signal=USR1", "--full", "7"]


def test_an_own_federated_job_gets_a_new_limit_or_slurms_refusal(
    program: Callable[[str, str], Path],
) -> None:
    program("SQUEUE", f"printf '{USER.pw_uid}|RUNNING|fed:7:1   \\n'\n")
    where = program("SCONTROL", 'printf "%s\\n" "$@" > changed\n')
    assert answer({"op": "limit", "job_id": 7, "minutes": 90}) == {"job_id": 7}
    assert (where / "changed").read_text().split() == ["update", "JobId=7", "TimeLimit=90"]
    program("SCONTROL", "echo 'Access/permission denied for job 7' >&2; exit 1\n")
    refused = answer({"op": "limit", "job_id": 7, "minutes": 90})
    assert refused == {"error": "Access/permission denied for job 7", "exit_status": 1}
    program("SQUEUE", "true\n")
    gone = answer({"op": "limit", "job_id": 7, "minutes": 90})
    assert gone == {"job_id": 7, "absent": True}


@pytest.mark.parametrize(("uid", "comment"), [(USER.pw_uid + 1, "fed:7:1"), (USER.pw_uid, "mine")])
def test_any_other_job_keeps_its_limit(
    program: Callable[[str, str], Path], uid: int, comment: str
) -> None:
    program("SQUEUE", f"printf '{uid}|RUNNING|{comment}   \\n'\n")
    where = program("SCONTROL", "touch changed\n")
    assert "error" in answer({"op": "limit", "job_id": 7, "minutes": 90})
    assert not (where / "changed").exists()


def test_a_pending_job_is_not_signalled(program: Callable[[str, str], Path]) -> None:
    program("SQUEUE", f"printf '{USER.pw_uid}|PENDING|fed:7:1   \\n'\n")
    refused = answer({"op": "signal", "job_id": 7, "signal": "USR1", "to": "batch"})
    assert refused["error"] == "job 7 is PENDING"


@pytest.mark.parametrize(
    ("uid", "comment", "words"),
    [
        (USER.pw_uid + 1, "fed:7:1", "belongs to another user"),
        (USER.pw_uid, "mine", "not of the federation"),
        (USER.pw_uid, "", "not of the federation"),
        (USER.pw_uid + 1, f"\\n{USER.pw_uid}|RUNNING|fed:7:1", "belongs to another user"),
    ],
)
def test_any_other_job_is_left_alone(
    program: Callable[[str, str], Path], uid: int, comment: str, words: str
) -> None:
    program("SQUEUE", f"printf '{uid}|RUNNING|{comment}   \\n'\n")
    where = program("SCANCEL", "touch scancelled\n")
    assert words in str(ask_scancel()["error"])
    assert not (where / "scancelled").exists()


def test_a_job_that_is_gone_is_absent(program: Callable[[str, str], Path]) -> None:
    program("SQUEUE", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1\n")
    assert ask_scancel() == {"job_id": 7, "absent": True}


def test_a_silent_slurmctld_is_passed_on(program: Callable[[str, str], Path]) -> None:
    program("SQUEUE", "echo 'error: Unable to contact slurm controller' >&2; exit 1\n")
    assert ask_scancel()["exit_status"] == 1


def test_the_helper_is_python_3_6_of_the_standard_library_alone() -> None:
    source = helper_of(HELPER_SOURCE.read_text(encoding="utf-8"))
    tree = ast.parse(source, feature_version=(3, 6))
    taken = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert taken == {"collections.abc", "typing"}
    imported = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }
    assert imported <= {
        "contextlib",
        "fcntl",
        "hashlib",
        "json",
        "os",
        "pwd",
        "re",
        "select",
        "shlex",
        "shutil",
        "signal",
        "stat",
        "subprocess",
        "sys",
        "time",
        "zlib",
    }
    made = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    made += [
        name.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    ]
    assert len(made) == len(set(made))  # the parts do not overwrite each other's


def installed(libexec: Path) -> Path:
    """The program, with what it imports beside it."""
    for name, (data, is_program) in helper_files(HELPER_SOURCE.read_text(encoding="utf-8")).items():
        path = libexec / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if is_program else 0o644)
    return libexec / "fed-site-exec"


def test_a_helper_whose_text_is_not_there_yet_says_so_in_one_line(tmp_path: Path) -> None:
    """As rpm leaves it for a moment: the client then asks the site again later."""
    helper = installed(tmp_path)
    (tmp_path / "fedsite" / "site_exec.py").unlink()
    command = [sys.executable, "-ISB", str(helper)]
    done = subprocess.run(command, input=b"{}", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    (line,) = done.stderr.decode().splitlines()
    missing = f"No module named 'site_exec' in {tmp_path}/fedsite"
    assert line == f"fed-site-exec: {missing}; is an upgrade under way?"


def test_the_helper_runs_isolated_and_leaves_no_byte_code(tmp_path: Path) -> None:
    """Neither its caller's variables nor modules beside it take the place of Python's own."""
    helper = installed(tmp_path)
    assert helper.read_text().startswith("#!/usr/bin/python3 -ISB\n")
    for folder in (tmp_path, tmp_path / "fedsite"):
        (folder / "json.py").write_text("raise SystemExit(99)\n")
    done = subprocess.run(
        [sys.executable, "-ISB", helper],
        input=b"{}",
        capture_output=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert "names no op" in json.loads(done.stdout)["error"]
    assert not list(tmp_path.rglob("__pycache__"))


def test_byte_code_of_the_helper_is_what_its_program_runs(tmp_path: Path) -> None:
    """What a start costs is mostly the compiler; the byte code is of the text as it is."""
    helper = installed(tmp_path)
    text = tmp_path / "fedsite" / "site_exec.py"
    py_compile.compile(str(text), doraise=True)
    argv = [sys.executable, "-ISB", "-v", str(helper)]
    done = subprocess.run(argv, input=b"{}", capture_output=True, check=True)
    assert f"matches {text}".encode() in done.stderr
    text.write_text(text.read_text() + "# changed\n")
    done = subprocess.run(argv, input=b"{}", capture_output=True, check=True)
    assert f"matches {text}".encode() not in done.stderr


def test_the_helper_in_one_piece_runs_by_itself(own: Path, tmp_path: Path) -> None:
    helper = installed(tmp_path)
    folder_of(own, 7)
    (own / "checkpoints" / "7" / "\xe9").mkdir()
    order = {
        "op": "tidy",
        "root": str(own / "checkpoints"),
        "ended": [],
        "live": [],
        "below": 9,
        "before_s": aged(own),
    }
    done = subprocess.run(
        [sys.executable, "-ISB", helper],
        input=json.dumps(order).encode(),
        capture_output=True,
        check=True,
        env={"LC_ALL": "C"},
    )
    assert json.loads(done.stdout) == {"removed": [7], "wrong": ""}


def test_sbatch_is_not_called_after_its_time(program: Callable[[str, str], Path]) -> None:
    folder = program("SBATCH", "touch called; echo 7\n")
    refused = answer(request(start_by_s=1.0))
    assert "too late" in str(refused["error"])
    assert not (folder / "called").exists()


def test_an_sbatch_that_was_killed_is_no_refusal(program: Callable[[str, str], Path]) -> None:
    """It may have submitted before: the caller must look, not give up."""
    program("SBATCH", "kill -9 $$\n")
    assert answer(request())["exit_status"] == site_exec.UNREADABLE
    program("SBATCH", "exit 1\n")
    assert answer(request())["exit_status"] == site_exec.UNREADABLE


# ---- checkpoint folders ----


def told(folder: Path | str = "", **changes: object) -> Json:
    base: Json = {
        "op": "tell",
        "job_id": 7,
        "signal": "USR1",
        "to": "batch",
        "folder": str(folder),
        "attempt": 1,
        "deadline_s": 12.5,
    }
    return answer({**base, **changes})


@pytest.fixture
def own_job(program: Callable[[str, str], Path]) -> Path:
    """Job 7 is the user's own and runs; what scancel is called with is kept."""
    program("SQUEUE", f"echo '{os.getuid()}|RUNNING|fed:1:1'\n")
    return program("SCANCEL", 'echo "$@" >>"$0.calls"\n')


def test_a_folder_is_made_with_the_bits_of_the_users_own(
    tmp_path: Path, program: Callable[[str, str], Path]
) -> None:
    program("SBATCH", "echo 7\n")
    home = tmp_path / "ada"
    home.mkdir()
    home.chmod(0o750)
    folder = home / "checkpoints" / "9"
    assert answer(request(checkpoint_dir=str(folder), umask=0o077)) == {"job_id": 7}
    for path in (folder.parent, folder, folder / ".fed"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o750


def test_a_folder_that_cannot_be_made_is_told_to_the_job(
    tmp_path: Path, program: Callable[[str, str], Path]
) -> None:
    here = program("SBATCH", 'env >"$0.env"; echo 7\n')
    (tmp_path / "ada").write_text("a file")
    environment = {"PATH": "/usr/bin:/bin", "FED_CHECKPOINT_DIR": "x", "FED_PREEMPT_DEADLINE": "y"}
    folder = str(tmp_path / "ada" / "checkpoints" / "9")
    answer(request(checkpoint_dir=folder, environment=environment))
    given = (here / "sbatch.env").read_text()
    assert "FED_CHECKPOINT_DIR" not in given
    assert "FED_PREEMPT_DEADLINE" not in given
    assert f"FED_CHECKPOINT_ERROR={folder}: " in given


def test_a_deadline_is_published_and_an_older_answer_removed(tmp_path: Path, own_job: Path) -> None:
    notes = tmp_path / ".fed"
    notes.mkdir()
    (notes / "saved.1").touch()
    assert told(tmp_path) == {"job_id": 7}
    assert (notes / "deadline.1").read_text() == "12.500\n"
    assert [path.name for path in notes.iterdir()] == ["deadline.1"]
    (notes / "saved.1").touch()
    told(tmp_path)  # told again: the answer is to this deadline
    assert (notes / "saved.1").exists()
    assert (own_job / "scancel.calls").read_text() == "--signal=USR1 --batch 7\n" * 2


def test_the_signal_is_sent_even_where_the_folder_does_not_answer(
    own_job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_exec, "FOLDER_TIMEOUT_S", 0.1)
    monkeypatch.setattr(site_exec, "publish", lambda *_: signal.pause())
    assert told("/somewhere") == {"job_id": 7}
    assert (own_job / "scancel.calls").exists()


def test_kill_goes_to_the_script_and_to_each_step(
    own_job: Path, program: Callable[[str, str], Path]
) -> None:
    program(
        "SQUEUE",
        f"""case "$*" in *" -s "*) printf '7.batch\\n7.0\\n7.1\\n';;
        *) echo '{os.getuid()}|RUNNING|fed:1:1';; esac\n""",
    )
    answer({"op": "signal", "job_id": 7, "signal": "KILL", "to": "all"})
    assert (own_job / "scancel.calls").read_text().splitlines() == [
        "--signal=KILL --batch 7",
        "--signal=KILL 7.0",
        "--signal=KILL 7.1",
    ]


@pytest.mark.parametrize(("steps", "options"), [("7.batch", "--full"), ("7.batch\\n7.0", "")])
def test_a_program_is_its_steps_or_else_its_script_with_all_children(
    own_job: Path, program: Callable[[str, str], Path], steps: str, options: str
) -> None:
    program(
        "SQUEUE",
        f"""case "$*" in *" -s "*) printf '{steps}\\n';;
        *) echo '{os.getuid()}|RUNNING|fed:1:1';; esac\n""",
    )
    told(signal="TERM", to="program")
    assert (own_job / "scancel.calls").read_text().split() == [
        "--signal=TERM",
        *options.split(),
        "7",
    ]


def test_where_the_steps_cannot_be_asked_for_nothing_is_signalled(
    own_job: Path, program: Callable[[str, str], Path]
) -> None:
    program(
        "SQUEUE",
        f"""case "$*" in *" -s "*) echo 'slurm_load: error' >&2; exit 1;;
        *) echo '{os.getuid()}|RUNNING|fed:1:1';; esac\n""",
    )
    assert told(signal="TERM", to="program")["exit_status"] == 1
    assert not (own_job / "scancel.calls").exists()


def test_what_jobs_have_left_is_seen(tmp_path: Path) -> None:
    notes = tmp_path / ".fed"
    notes.mkdir()
    (notes / "saved.2").touch()
    os.utime(notes / "saved.2", (5.0, 5.0))
    asked = {"op": "look", "folders": [[str(tmp_path), 2], [str(tmp_path), 1], ["/nowhere", 1]]}
    nothing = {"acked_at_s": 0.0, "checkpointed_at_s": 0.0}
    assert answer(asked) == {"seen": [{**nothing, "acked_at_s": 5.0}, nothing, nothing]}


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (
            "1795000000.125 3.5\n",
            {"ready_at_s": 1795000000.125, "save_s": 3.5, "stepped_at_s": 7.0, "stall": ""},
        ),
        ("1795000000.125", {}),
        ("1 nan", {}),
        ("-1 0", {}),
        ("1 2 3", {}),
        ("x" * 1000, {}),
    ],
)
def test_a_job_s_progress_is_read_if_it_makes_sense(
    tmp_path: Path, text: str, seen: dict[str, object]
) -> None:
    notes = tmp_path / ".fed"
    notes.mkdir()
    (notes / "progress.2").write_text(text)
    os.utime(notes / "progress.2", (7.0, 7.0))
    nothing = {"acked_at_s": 0.0, "checkpointed_at_s": 0.0}
    asked = {"op": "look", "folders": [[str(tmp_path), 2]]}
    assert answer(asked) == {"seen": [nothing | seen]}
    (notes / "progress.2").rename(tmp_path / "real")
    (notes / "progress.2").symlink_to(tmp_path / "real")
    assert answer(asked) == {"seen": [nothing]}
    (notes / "progress.2").unlink()
    os.mkfifo(notes / "progress.2")
    assert answer(asked) == {"seen": [nothing]}, "a pipe holds nobody up"


def test_what_ranks_say_that_finish_no_step_is_read_in_their_order(tmp_path: Path) -> None:
    notes = tmp_path / ".fed"
    notes.mkdir()
    (notes / "progress.2").write_text("1795000000.125 0\n")
    for rank in (10, 1):
        (notes / f"progress.2.stalled.{rank}").write_text(f"rank {rank}: x\x1b[31m\nmore")
    for name in ("progress.2.stalled.x", "progress.1.stalled.0", "progress.2.stalled.1.part"):
        (notes / name).write_text("not this")

    def said() -> str:
        seen = answer({"op": "look", "folders": [[str(tmp_path), 2]]})["seen"]
        assert isinstance(seen, list)
        return str(seen[0].get("stall", ""))

    assert said() == "rank 1: x?[31m; rank 10: x?[31m"
    for rank in range(20, 30):
        (notes / f"progress.2.stalled.{rank}").write_text("y")
    assert said().endswith("; y; 4 ranks more")
    (notes / "progress.2.stalled.1").unlink()
    (notes / "progress.2.stalled.1").symlink_to(notes / "progress.2")
    assert said() == ""


def test_folders_that_hang_are_told_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang(_folder: str, _attempt: int) -> dict[str, float]:
        signal.alarm(5)
        signal.pause()
        return {}

    monkeypatch.setattr(site_exec, "seen_in", hang)
    monkeypatch.setattr(site_exec, "LOOK_TIMEOUT_S", 0.3)
    began_s = time.monotonic()
    said = answer({"op": "look", "folders": [[str(tmp_path), 2]]})
    assert said == {"error": "the folders do not answer", "exit_status": site_exec.TIMED_OUT}
    assert time.monotonic() - began_s < 3.0


def test_thousands_of_folders_are_looked_at_in_one_call(tmp_path: Path) -> None:
    nothing = {"acked_at_s": 0.0, "checkpointed_at_s": 0.0}
    asked = {"op": "look", "folders": [[str(tmp_path), 2]] * 4096}
    assert answer(asked) == {"seen": [nothing] * 4096}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """SHARED/USER, made by the user."""
    folder = tmp_path / "shared" / "ada"
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    return folder


def why_no_folder(own: Path, program: Callable[[str, str], Path]) -> str:
    here = program("SBATCH", 'env >"$0.env"; echo 7\n')
    folder = str(own / "checkpoints" / "9")
    environment = {"PATH": "/usr/bin:/bin", "FED_CHECKPOINT_DIR": folder}
    assert answer(request(checkpoint_dir=folder, environment=environment)) == {"job_id": 7}
    given = dict(line.split("=", 1) for line in (here / "sbatch.env").read_text().splitlines())
    assert ("FED_CHECKPOINT_DIR" in given) == ("FED_CHECKPOINT_ERROR" not in given)
    return given.get("FED_CHECKPOINT_ERROR", "")


def test_a_shared_folder_that_others_made_or_can_write_to_is_not_used(
    own: Path, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert why_no_folder(own, program) == ""
    own.chmod(0o777)
    assert "is writable to all" in why_no_folder(own, program)
    own.chmod(0o1777)
    assert "is writable to all" in why_no_folder(own, program)
    own.chmod(0o700)
    real = own.rename(own.with_name("elsewhere"))
    own.symlink_to(real)
    assert "is a link or a file" in why_no_folder(own, program)
    own.unlink()
    own.touch()
    assert "is a link or a file" in why_no_folder(own, program)
    own.unlink()
    assert why_no_folder(own, program) == ""  # it is made
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    monkeypatch.setattr(os, "getuid", lambda: os.geteuid() + 1)  # whose the folder is not
    monkeypatch.setattr(site_exec, "ROOT", -1)
    with pytest.raises(site_exec.Refused, match=f"ada is another user's \\(UID {os.geteuid()}\\)"):
        site_exec.check_own(str(own / "checkpoints" / "9"), ExitStack())
    monkeypatch.setattr(site_exec, "ROOT", os.geteuid())  # an administrator made it, for a group
    own.chmod(0o2770)
    with ExitStack() as opened:
        site_exec.check_own(str(own / "checkpoints" / "9"), opened)


def test_a_group_may_write_only_where_an_administrator_said_so(
    own: Path, program: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    own.chmod(0o770)
    monkeypatch.setattr(site_exec, "ROOT", -1)  # that is the tests' own user
    assert "is writable to its group" in why_no_folder(own, program)


def test_links_below_the_users_folder_are_not_followed(
    own: Path, tmp_path: Path, program: Callable[[str, str], Path]
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (own / "checkpoints").symlink_to(target)
    assert why_no_folder(own, program)
    assert not list(target.iterdir())


def test_nobody_is_told_through_a_folder_that_another_made(own: Path, own_job: Path) -> None:
    folder = own / "checkpoints" / "9"
    (folder / ".fed").mkdir(parents=True)
    (folder / ".fed" / "saved.1").touch()
    own.chmod(0o777)
    assert told(folder) == {"job_id": 7}
    assert [path.name for path in (folder / ".fed").iterdir()] == ["saved.1"]
    nothing = {"acked_at_s": 0.0, "checkpointed_at_s": 0.0}
    assert answer({"op": "look", "folders": [[str(folder), 1]]}) == {"seen": [nothing]}


def test_notes_in_the_helpers_own_directory_are_nobodys_word(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("saved.1", "checkpointed"):
        (elsewhere / name).touch()
    monkeypatch.chdir(elsewhere)
    own.chmod(0o777)
    nothing = {"acked_at_s": 0.0, "checkpointed_at_s": 0.0}
    asked = [[str(own / "checkpoints" / "9"), 1], ["", 1], ["/", 1], [".", 1]]
    assert answer({"op": "look", "folders": asked}) == {"seen": [nothing] * 4}


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_shared_folder_whose_entries_others_can_rename_is_not_used(
    own: Path, program: Callable[[str, str], Path], mode: int
) -> None:
    own.parent.chmod(mode)
    assert "lets others rename what is in it; an administrator: chmod +t" in why_no_folder(
        own, program
    )
    own.parent.chmod(0o1000 | mode)
    assert why_no_folder(own, program) == ""


def test_a_folder_that_is_swapped_after_it_was_checked_is_not_used(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = tmp_path / "planted"
    planted.mkdir()
    checked = os.lstat

    def swap(path: bytes, **kwargs: int) -> os.stat_result:
        state = checked(path, **kwargs)
        monkeypatch.setattr(os, "lstat", checked)
        own.rename(own.with_name("moved"))
        own.symlink_to(planted)
        return state

    monkeypatch.setattr(os, "lstat", swap)
    with pytest.raises(NotADirectoryError):
        site_exec.make_folders(str(own / "checkpoints" / "9"))
    assert not list(planted.iterdir())


# ---- folders of workloads that have ended ----


def tidied(own: Path, **changes: object) -> Json:
    base: Json = {
        "op": "tidy",
        "root": str(own / "checkpoints"),
        "ended": [],
        "live": [],
        "below": 0,
        "before_s": 0.0,
    }
    return answer({**base, **changes})


def folder_of(own: Path, id_: int, *files: str) -> Path:
    folder = own / "checkpoints" / str(id_)
    for name in (".fed/deadline.1", ".fed/saved.1", *files):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    return folder


def aged(own: Path) -> float:
    """All that is there now is older than what this returns, by change as by write."""
    newest = max(path.lstat().st_ctime for path in own.rglob("*"))
    while time.time() <= newest:  # of the file system's clock, which ticks more slowly
        pass
    return time.time()


def later(path: Path) -> None:
    os.utime(path, (time.time() + 1000.0,) * 2, follow_symlinks=False)


def test_empty_folders_of_ended_workloads_go_and_no_others(own: Path) -> None:
    gone = [folder_of(own, 7), folder_of(own, 8, ".fed/checkpointed", ".fed/.saved.1.Xy")]
    kept = [
        folder_of(own, 9),
        folder_of(own, 10, "model.pt"),
        folder_of(own, 11, ".fed/mine"),
        folder_of(own, 12),
        folder_of(own, 13, ".hidden"),
        folder_of(own, 14, "saved.1"),
    ]
    (own / "checkpoints" / "notes").mkdir()
    (own / "checkpoints" / "15").mkdir()
    ended = [7, 8, 10, 11, 12, 13, 14, 15, 16]
    assert tidied(own, ended=ended, live=[12]) == {"removed": [7, 8, 15], "wrong": ""}
    assert not any(path.exists() for path in gone)
    assert all(path.exists() for path in kept)


def test_what_comes_into_an_empty_folder_while_it_is_removed_stays(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, remove = folder_of(own, 7), shutil.rmtree

    def meanwhile(notes: bytes) -> None:
        remove(notes)
        (folder / "model.pt").write_text("x")

    monkeypatch.setattr(shutil, "rmtree", meanwhile)
    assert tidied(own, ended=[7]) == {"removed": [], "wrong": ""}
    assert (folder / "model.pt").exists()


def test_old_folders_go_unless_their_workload_lives_has_just_ended_or_is_unknown(
    own: Path,
) -> None:
    old = [folder_of(own, 7, "ckpt/state"), folder_of(own, 8)]
    live, unknown = folder_of(own, 10, "x"), folder_of(own, 20, "x")
    ended = folder_of(own, 11, "x")
    said = tidied(own, live=[10], ended=[11], below=20, before_s=aged(own))
    assert said == {"removed": [7, 8], "wrong": ""}
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in (live, unknown, ended))


@pytest.mark.parametrize("young", ["", "exp", "exp/run1", "exp/run1/step_100.pt", "exp/run1/last"])
def test_a_folder_in_which_anything_is_young_stays_however_deep_it_is(
    own: Path, young: str
) -> None:
    folder = folder_of(own, 7, "exp/run1/step_100.pt", "exp/run0/step_1.pt")
    (folder / "exp/run1/last").symlink_to("step_100.pt")
    later(folder / young)
    assert tidied(own, below=20, before_s=aged(own)) == {"removed": [], "wrong": ""}
    assert (folder / "exp/run0/step_1.pt").exists()


def test_what_was_copied_with_its_times_is_as_young_as_the_copy(own: Path) -> None:
    folder_of(own, 6)
    before_s = aged(own)
    folder = folder_of(own, 7, "exp/model.pt")
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (1, 1))
    assert tidied(own, below=20, before_s=before_s) == {"removed": [6], "wrong": ""}
    assert (folder / "exp/model.pt").exists()


def test_a_folder_that_cannot_be_looked_through_stays(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, listed = folder_of(own, 7, "exp/run1/model.pt"), os.listdir

    def refuse(path: bytes) -> object:
        if path.endswith(b"run1"):
            raise PermissionError(13, "Permission denied")
        return listed(path)

    with monkeypatch.context() as broken:
        before_s = aged(own)
        broken.setattr(os, "listdir", refuse)
        said = tidied(own, below=20, before_s=before_s)
    assert said == {"removed": [], "wrong": "7: Permission denied"}
    assert (folder / "exp/run1/model.pt").exists()


def test_what_was_removed_in_part_is_no_checkpoint_and_goes_the_next_time(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of(own, 7, "model.pt", "optimizer.pt")

    def fails(path: bytes, *, ignore_errors: bool) -> None:
        assert ignore_errors
        os.unlink(os.path.join(path, b"model.pt"))

    with monkeypatch.context() as broken:
        broken.setattr(shutil, "rmtree", fails)
        said = tidied(own, below=20, before_s=aged(own))
    assert said == {"removed": [], "wrong": "7: some of it cannot be removed"}
    assert os.listdir(own / "checkpoints") == [".removed-7"]
    later(own / "checkpoints" / ".removed-7")
    assert tidied(own) == {"removed": [7], "wrong": ""}
    assert os.listdir(own / "checkpoints") == []


def test_where_there_is_nothing_to_remove_nothing_is_wrong_and_a_bad_owner_is_told(
    own: Path,
) -> None:
    assert tidied(own, ended=[7]) == {"removed": [], "wrong": ""}
    assert tidied(own.with_name("absent"), ended=[7]) == {"removed": [], "wrong": ""}
    folder = folder_of(own, 7)
    own.chmod(0o777)
    said = tidied(own, ended=[7])
    assert said["removed"] == []
    assert str(said["wrong"]).startswith(f"{own} is writable to all")
    assert folder.exists()


def test_storage_that_hangs_is_told_with_what_was_removed_before(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of(own, 7)

    def hang(_live: object, _ended: object, _old: object, told: Callable[[int], None]) -> str:
        told(7)
        os.fork()  # whoever is not killed holds the pipe
        signal.alarm(5)
        signal.pause()
        return ""

    monkeypatch.setattr(site_exec, "remove_folders", hang)
    monkeypatch.setattr(site_exec, "TIDY_TIMEOUT_S", 0.3)
    began_s = time.monotonic()
    assert tidied(own) == {"removed": [7], "wrong": "not done within 0.3 s"}
    assert time.monotonic() - began_s < 3.0


def test_names_that_are_no_utf8_are_removed_like_others(own: Path) -> None:
    folder_of(own, 7)
    os.mkdir(os.path.join(os.fsencode(own), b"checkpoints", b"7", b"\xff\xe9"))
    assert tidied(own, below=20, before_s=aged(own)) == {"removed": [7], "wrong": ""}


def test_removal_follows_no_link(own: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "keep").touch()
    folder = folder_of(own, 7, "x")
    (folder / "link").symlink_to(mine)
    (own / "checkpoints" / "8").symlink_to(mine)
    (own / "checkpoints" / ".removed-9").symlink_to(mine)
    assert tidied(own, below=20, before_s=aged(own))["removed"] == [7]
    assert (mine / "keep").exists()
    linked = own.with_name("linked")
    linked.mkdir(mode=0o700)
    (linked / "checkpoints").symlink_to(own / "checkpoints")
    folder_of(own, 9)
    assert tidied(linked, ended=[9]) == {"removed": [], "wrong": "Not a directory"}
    assert (own / "checkpoints" / "9").exists()


@pytest.mark.parametrize(
    "changed",
    [
        {"root": "/etc"},
        {"root": "checkpoints"},
        {"ended": ["7"]},
        {"live": [True]},
        {"below": 1.5},
        {"before_s": 4e9},
        {"before_s": float("nan")},
        {"before_s": -1.0},
    ],
)
def test_a_tidying_of_the_wrong_form_is_refused(own: Path, changed: Json) -> None:
    assert tidied(own, **changed)["exit_status"] == site_exec.USAGE


# ---- the files of a job ----


def with_files(*names: tuple[str, Path | str, str], shared: Path, aside: str = "") -> Json:
    listed = [[option, str(folder), name] for option, folder, name in names]
    files = {"names": listed, "shared": [str(shared)], "aside": aside}
    return answer(request(files=files, umask=0o027))


def test_folders_of_output_are_made_as_later_slurms_do(
    own: Path, program: Callable[[str, str], Path]
) -> None:
    program("SBATCH", "echo 7\n")
    logs = own / "logs" / "a"
    assert with_files(("output", logs, "9.out"), ("error", logs, ""), shared=own) == {"job_id": 7}
    assert stat.S_IMODE(logs.stat().st_mode) == 0o750


def test_what_cannot_be_opened_on_shared_storage_is_refused_with_its_name(
    own: Path, program: Callable[[str, str], Path]
) -> None:
    program("SBATCH", "echo 7\n")
    (own / "file").touch()
    for option, folder, name, wrong in (
        ("output", own / "file", "9.out", "its folder does not exist"),
        ("error", own.parent, "ada", "it is a folder"),
        ("input", own, "absent", "it does not exist"),
        ("input", own / "absent", "", "its folder does not exist"),
    ):
        said = with_files((option, folder, name), shared=own.parent)
        assert said["error"] == f"--{option}={os.path.join(folder, name)}: {wrong}"
        elsewhere = with_files((option, folder, name), shared=own / "elsewhere")
        assert elsewhere == {"job_id": 7}  # compute nodes may see what is not here


def foreign(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Have a file be another UID's, which this user cannot write."""
    uid, access = os.geteuid(), os.access
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    monkeypatch.setattr(
        os, "access", lambda at, mode, **k: at != os.fsencode(path) and access(at, mode, **k)
    )


def readied(path: Path, aside: str) -> None:
    names = [["output", str(path.parent), path.name]]
    umask = os.umask(0o022)
    try:
        site_exec.make_ready({"names": names, "shared": [], "aside": aside}, 0o022)
    finally:
        os.umask(umask)


def test_an_output_of_an_earlier_attempt_that_cannot_be_written_is_put_aside(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = own / "9.out"
    log.write_text("the first attempt's")
    readied(log, ".1")
    assert log.exists()  # it can be appended to
    foreign(monkeypatch, log)
    readied(log, "")
    assert log.exists()  # no attempt has run
    readied(log, ".1")
    assert (own / "9.out.1").read_text() == "the first attempt's"
    assert not log.exists()


def test_what_is_put_aside_overwrites_nothing(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = own / "9.out"
    for path in (log, own / "9.out.1", own / "9.out.2"):
        path.write_text(path.name)
    foreign(monkeypatch, log)
    readied(log, ".1")
    assert {path.name: path.read_text() for path in own.iterdir()} == {
        "9.out.1": "9.out.1",
        "9.out.2": "9.out.2",
        "9.out.3": "9.out",
    }


def test_where_a_file_cannot_be_put_aside_nothing_is_left_of_the_try(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = own / "9.out"
    log.write_text("another's, in a folder with the sticky bit")
    foreign(monkeypatch, log)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "rename", refuse)
    readied(log, ".1")
    assert [path.name for path in own.iterdir()] == ["9.out"]


def test_a_users_own_read_only_file_stays(
    own: Path, monkeypatch: pytest.MonkeyPatch, program: Callable[[str, str], Path]
) -> None:
    program("SBATCH", "echo 7\n")
    log = own / "r.txt"
    log.write_text("protected")
    access = os.access
    monkeypatch.setattr(os, "access", lambda at, mode: at != os.fsencode(log) and access(at, mode))
    said = with_files(("output", own, "r.txt"), shared=own, aside=".1")
    assert said["error"] == f"--output={log}: permission denied"
    assert said["exit_status"] == site_exec.NO_FILES
    assert [path.name for path in own.iterdir()] == ["r.txt"]


def test_a_file_system_that_fails_is_no_reason_to_refuse(
    own: Path, monkeypatch: pytest.MonkeyPatch, program: Callable[[str, str], Path]
) -> None:
    program("SBATCH", "echo 7\n")

    def stale(*_: object, **__: object) -> os.stat_result:
        raise OSError(errno.ESTALE, "Stale file handle")

    names, stat_ = ("input", own, "in"), os.stat
    monkeypatch.setattr(os, "stat", stale)
    said = with_files(names, shared=own)
    monkeypatch.setattr(os, "stat", stat_)
    assert said == {"job_id": 7}


def test_what_could_not_be_opened_is_found_afterwards(own: Path) -> None:
    names = [["output", "logs", "x"], ["input", str(own), "in"], ["error", "/dev", "null"]]
    files = {"names": names, "shared": [], "aside": ""}
    fine = {"names": [["error", "/dev", "null"]], "shared": [], "aside": ""}
    said = answer({"op": "inspect", "jobs": [[files, str(own)], [fine, "/"], [files, "/"]]})
    lacks = f"--input={own}/in: it does not exist"
    assert said == {
        "wrong": [
            f"--output={own}/logs/x: its folder does not exist; {lacks}",
            "",
            f"--output=/logs/x: its folder does not exist; {lacks}",
        ]
    }


def test_hundreds_of_jobs_are_looked_at_in_one_call(own: Path) -> None:
    files = {"names": [["output", f"{own}/{'x' * 200}", "out"]], "shared": [], "aside": ""}
    wrong = answer({"op": "inspect", "jobs": [[files, "/"]] * 1000})["wrong"]
    assert wrong == [f"--output={own}/{'x' * 200}/out: its folder does not exist"] * 1000


@pytest.mark.parametrize("jobs", [[[]], [["x", "/"]], [[{}, "/"]], "x"])
def test_an_inspection_of_the_wrong_form_is_refused(jobs: object) -> None:
    assert answer({"op": "inspect", "jobs": jobs})["exit_status"] == site_exec.USAGE


IN_ASCII = """
import json, sys
sys.path.insert(0, sys.argv[1])
import site_exec
site_exec.SBATCH = sys.argv[2]
assert sys.getfilesystemencoding() == "ascii", sys.getfilesystemencoding()
for line in sys.stdin.buffer:
    print(json.dumps(site_exec.answer_to(line)))
"""


def test_names_that_are_not_ascii_are_opened_whatever_the_locale(
    own: Path, program: Callable[[str, str], Path]
) -> None:
    """As on a login node with Python 3.6, whose account has no locale."""
    sbatch = program("SBATCH", "pwd >&2; exit 1\n") / "sbatch"
    home = own.rename(own.with_name("aña"))
    (home / "é").write_text("x")
    names = [["output", str(home / "lögs"), "ü.out"], ["input", str(home), "é"]]
    files = {"names": names, "shared": [str(own.parent)], "aside": ".1"}
    folder = home / "checkpoints" / "9"
    lacking = {**files, "names": [["input", str(home), "fehlt-ß"]]}
    wanted = {"files": files, "work_dir": str(home), "checkpoint_dir": str(folder)}
    asked = [
        request(**wanted),
        request(files=lacking),
        {"op": "inspect", "jobs": [[lacking, str(home)]]},
        {"op": "look", "folders": [[str(folder), 1]]},
    ]
    given = "".join(json.dumps(each) + "\n" for each in asked)
    code = [sys.executable, "-I", "-X", "utf8=0", "-c", IN_ASCII]
    folder_of_helper = str(Path(site_exec.__file__).parent)
    done = subprocess.run(
        [*code, folder_of_helper, str(sbatch)],
        input=given.encode(),
        env={"LC_ALL": "C"},
        capture_output=True,
        check=True,
    )
    said = [json.loads(line) for line in done.stdout.splitlines()]
    wrong = f"--input={home}/fehlt-ß: it does not exist"
    assert said[0] == {"error": str(home), "exit_status": 1}
    assert (folder / ".fed").is_dir()
    assert (home / "lögs").is_dir()
    assert said[1] == {"error": wrong, "exit_status": site_exec.NO_FILES}
    assert said[2] == {"wrong": [wrong]}
    assert said[3] == {"seen": [{"acked_at_s": 0.0, "checkpointed_at_s": 0.0}]}


@pytest.mark.parametrize(
    "changed",
    [
        {"names": [["output", "x"]]},
        {"names": [["output", "x", 1]]},
        {"shared": "x"},
        {"aside": "/../x"},
        {"more": 1},
        {"names": [["output", "x", "\0"]]},
    ],
)
def test_files_of_the_wrong_form_are_refused(changed: Json) -> None:
    files = {"names": [], "shared": [], "aside": "", **changed}
    assert answer(request(files=files))["exit_status"] == site_exec.USAGE
