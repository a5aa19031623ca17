"""What runs at the site: the script that holds the nodes, and the way of the command's words."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from federator.cli.session_shell import HOLD, CommandPlace, argv_of, step_script
from federator.errors import InvalidRequest, SiteUnavailable
from federator.wire.client_protocol import SessionReply

HOSTILE = [
    "a b",
    "$(touch pwned)",
    "`id`",
    "'\"\\",
    "two\nlines",
    "*",
    "",
    "!x",
    "\udcff",
    "--",
]
REPLY = SessionReply(
    id=42, state="RUNNING", silence_s=60.0, attempt=1, site="cedar", site_job_id=7, login="cedar"
)
SHELLS = [name for name in ("sh", "bash", "zsh", "fish", "tcsh", "dash") if shutil.which(name)]
_ARGS = """#!/usr/bin/env python3
import os, sys
os.write(1, b"\\0".join(map(os.fsencode, sys.argv[1:])))
"""


@pytest.fixture
def site(tmp_path: Path) -> dict[str, str]:
    """The environment of a login node whose srun prints its words."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {
        "srun": _ARGS,
        "scancel": '#!/bin/sh\necho "$@" >"$HOME/scancelled"\n',
        "sleep": '#!/bin/sh\necho >"$HOME/sleeps"\nPATH=/usr/bin:/bin exec sleep 60\n',
    }.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (tmp_path / ".federator/sessions").mkdir(parents=True)
    os.mkfifo(tmp_path / "sleeps")
    return {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(tmp_path)}


def held(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """The batch script, once it has written the job's variables."""
    job = {"FED_JOB_ID": "42", "FED_ATTEMPT": "1", "SLURM_JOB_ID": "7"}
    process = subprocess.Popen(
        ["/bin/sh", "-c", HOLD], env={**environment, **job}, start_new_session=True
    )
    Path(environment["HOME"], "sleeps").read_text()  # returns once it holds
    return process


def end(process: subprocess.Popen[bytes], number: int) -> int:
    os.kill(process.pid, number)
    status = process.wait(10)
    os.killpg(process.pid, signal.SIGKILL)  # its sleep, which Slurm would end
    return status


def run_remote(argv: list[str], shell: str, environment: dict[str, str]) -> list[bytes]:
    """Run the last word of an ssh command as sshd does, in a user's shell."""
    done = subprocess.run(
        [shell, "-c", argv[-1]], env=environment, capture_output=True, check=True, timeout=60
    )
    return done.stdout.split(b"\0")


@pytest.mark.parametrize("shell", SHELLS)
def test_words_arrive_as_they_are_through_any_shell(shell: str, site: dict[str, str]) -> None:
    script = step_script(REPLY, CommandPlace.NODES, ["cmd", *HOSTILE], ["--label"], ends=False)
    argv = argv_of(REPLY, script, terminal=False)
    got = run_remote(argv, shell, site)
    expected = ["--overlap", "--jobid=7", "--label", "cmd", *HOSTILE]
    assert got == [os.fsencode(word) for word in expected]
    assert not Path(site["HOME"], "pwned").exists()


def test_the_jobs_variables_are_those_of_the_command(site: dict[str, str]) -> None:
    hostile = 'it\'s "$(touch pwned)" `x` \\ end\nexport EVIL=1'
    environment = {**site, "MINE": hostile, "TERM": "job", "fed_srun": "no", "BASH_FUNC_f%%": "()"}
    process = held(environment)
    script = step_script(
        REPLY,
        CommandPlace.LOGIN,
        ["sh", "-c", 'printf "%s|%s|%s" "$MINE" "$TERM" "$EVIL"'],
        ends=False,
    )
    done = subprocess.run(
        argv_of(here(), script, terminal=False),
        env={**site, "TERM": "mine"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.decode() == f"{hostile}|mine|"
    file = Path(site["HOME"], ".federator/sessions/42.1")
    assert file.stat().st_mode & 0o777 == 0o600
    assert end(process, signal.SIGTERM) == 143
    assert not file.exists()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_variables_that_bash_lets_nobody_set_stop_nothing(site: dict[str, str]) -> None:
    """Where sh is bash, exporting one of them ended the script before its command."""
    process = held(
        {**site, "UID": "0", "SHELLOPTS": "x", "BASHOPTS": "x", "PPID": "1", "MINE": "m"}
    )
    script = step_script(REPLY, CommandPlace.LOGIN, ["sh", "-c", 'echo "$MINE"'], ends=False)
    done = subprocess.run(
        ["sh", "-c", script],
        executable=shutil.which("bash"),
        env=site,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == (b"m\n", b"")
    end(process, signal.SIGTERM)


def here() -> SessionReply:
    return SessionReply(
        id=42, state="RUNNING", silence_s=60.0, attempt=1, site="cedar", site_job_id=7, here=True
    )


def test_the_job_is_done_when_the_command_is_and_the_status_is_the_commands(
    site: dict[str, str],
) -> None:
    process = held(site)
    script = step_script(REPLY, CommandPlace.LOGIN, ["sh", "-c", "exit 9"], ends=True)
    done = subprocess.run(["/bin/sh", "-c", script], env=site, check=False, timeout=60)
    assert done.returncode == 9
    assert Path(site["HOME"], "scancelled").read_text() == "--batch --signal=USR1 7\n"
    assert end(process, signal.SIGUSR1) == 0
    assert not Path(site["HOME"], ".federator/sessions/42.1").exists()


@pytest.mark.parametrize(
    ("says", "command", "status"),
    [
        ("JobId=7 JobName=x JobState=COMPLETING Reason=NodeDown Dependency=(null)", 0, 1),
        ("JobId=7 JobName=x JobState=NODE_FAIL Reason=None Dependency=(null)", 0, 1),
        ("JobId=7 JobName=x JobState=NODE_FAIL Reason=NodeDown Dependency=(null)", 9, 9),
        ("JobId=7 JobName=x JobState=RUNNING Reason=None Dependency=(null)", 0, 0),
        ("JobId=7 JobName=x JobState=COMPLETING Reason=None Dependency=(null)", 0, 0),
        ("", 0, 0),
    ],
)
def test_a_command_whose_node_died_has_failed_by_the_word_of_its_site(
    site: dict[str, str], says: str, command: int, status: int
) -> None:
    Path(site["HOME"], "bin/scontrol").write_text(
        f'#!/bin/sh\n[ "$*" = "-o show job 7" ] && echo "{says}"\n'
    )
    Path(site["HOME"], "bin/scontrol").chmod(0o755)
    Path(site["HOME"], ".federator/sessions/42.1").touch()
    script = step_script(REPLY, CommandPlace.LOGIN, ["sh", "-c", f"exit {command}"], ends=True)
    done = subprocess.run(["/bin/sh", "-c", script], env=site, check=False, timeout=60)
    assert done.returncode == status
    assert Path(site["HOME"], "scancelled").exists()


def test_a_shell_opens_on_the_first_node_on_a_terminal() -> None:
    script = step_script(REPLY, CommandPlace.SHELL, (), ends=True)
    assert '"$fed_srun" --overlap --jobid=7 --nodes=1 --ntasks=1 --preserve-env --pty' in script
    argv = argv_of(REPLY, script, terminal=True)
    assert argv[0] == "ssh"
    assert argv[1] in ("-t", "-tt")
    assert argv[-3:-1] == ["--", "cedar"]


@pytest.mark.parametrize(
    ("login", "host", "port"),
    [
        ("cedar", "cedar", None),
        ("cedar:2222", "cedar", "2222"),
        ("[fd00::1]:22", "fd00::1", "22"),
        ("[fd00::1]", "fd00::1", None),
    ],
)
def test_ssh_is_given_host_and_port(login: str, host: str, port: str | None) -> None:
    reply = SessionReply(id=1, state="RUNNING", silence_s=0.0, site="s", login=login)
    argv = argv_of(reply, "true", terminal=False)
    assert argv[-2] == host
    assert (argv[argv.index("-p") + 1] if "-p" in argv else None) == port


def test_ssh_is_given_the_account_where_it_has_another_name_there() -> None:
    reply = SessionReply(
        id=1, state="RUNNING", silence_s=0.0, site="s", login="cedar", account="a.one"
    )
    argv = argv_of(reply, "true", terminal=False)
    assert argv[argv.index("-l") + 1] == "a.one"
    assert argv[-2] == "cedar"


def test_without_a_login_host_only_the_site_itself_can() -> None:
    nowhere = SessionReply(id=1, state="RUNNING", silence_s=0.0, site="cedar")
    with pytest.raises(SiteUnavailable, match=r"sites\.cedar\.login"):
        argv_of(nowhere, "true", terminal=False)
    assert argv_of(here(), "true", terminal=False) == ["/bin/sh", "-c", "true"]


def test_a_command_line_that_no_kernel_takes_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="too long"):
        argv_of(REPLY, "x" * 100_000, terminal=False)
