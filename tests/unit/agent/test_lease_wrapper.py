"""A script is started by the file that consumes its lease: once, in whatever language it is."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import stat
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from fednode.lease import Claim, check

from federator.agent import spool_folder
from federator.agent.config import AgentConfig
from federator.agent.lease_wrapper import (
    FOLDER,
    MAX_LINE_BYTES,
    REFUSED_STATUS,
    started_by,
    starter_of,
)
from federator.agent.spool import TIDY_S
from federator.errors import InvalidRequest
from federator.model.site_message import LaunchAccepted, LaunchDeclined
from federator.model.workload import AttemptId, WorkloadId
from tests.fakes.agent import Daemon, daemon, order
from tests.fakes.build import attempt

__all__ = ["daemon"]

WHO = AttemptId(workload=WorkloadId(7), attempt=1)
SH = "#!/bin/sh\necho ran $0 $1 $FED_X\n"


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    spool_folder.look(folder, "alpine", frozenset(), 0.0)
    spool_folder.lease_all(folder, {WHO: "ada"}, 0.0)
    return folder


def put(spool: Path, script: str = SH, job: str = "77") -> Path:
    """The job's script, where slurmd leaves it."""
    starter = starter_of(script, WHO, str(spool))
    spool_folder.put_starters(spool, {WHO: starter})
    path = spool.parent / f"slurm_script-{job}"
    path.write_bytes(started_by(script, starter.line).encode("utf-8", "surrogateescape"))
    path.chmod(0o755)
    return path


def execute(path: Path, job: str = "77", **more: str) -> subprocess.CompletedProcess[str]:
    """As slurmd runs a batch script: it is executed, and the kernel reads its first line."""
    environment = {"SLURM_CLUSTER_NAME": "alpine", "SLURM_JOB_ID": job, "FED_X": "x", **more}
    return subprocess.run(
        [str(path), "one two"], capture_output=True, text=True, check=False, env=environment
    )


def run(
    spool: Path, script: str = SH, job: str = "77", **more: str
) -> subprocess.CompletedProcess[str]:
    return execute(put(spool, script, job), job, **more)


def test_the_users_script_runs_as_it_would_have(spool: Path) -> None:
    done = run(spool)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"ran {spool.parent}/slurm_script-77 one two x\n"
    assert (spool / "leases" / "7.1.job").read_text() == "alpine 77\n"
    assert sorted(os.listdir(spool / "leases")) == ["7.1", "7.1.job"]


def test_a_second_job_of_the_attempt_ends_before_user_code(spool: Path) -> None:
    run(spool)
    done = run(spool, job="78")
    assert (done.returncode, done.stdout) == (REFUSED_STATUS, "")
    assert done.stderr == (
        "federator: fed:7:1 does not start: the attempt has started as job alpine 77 already\n"
    )


def test_a_job_that_slurm_put_back_starts_again(spool: Path) -> None:
    for _ in range(3):
        assert run(spool).returncode == 0


def test_of_many_at_once_one_job_starts(spool: Path) -> None:
    # All are written before the first runs: a process that forks while another thread writes holds
    # the file open for writing, and the kernel executes no such file.
    scripts = {str(n): put(spool, job=str(n)) for n in range(100, 116)}
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda job: execute(scripts[job], job), scripts))
    assert sorted(d.returncode for d in done) == [0] + [REFUSED_STATUS] * 15
    assert sorted(os.listdir(spool / "leases")) == ["7.1", "7.1.job"]


def test_without_its_lease_or_its_file_nothing_runs(spool: Path) -> None:
    (spool / "leases" / "7.1").unlink()
    assert "there is no lease for this attempt" in run(spool).stderr
    spool_folder.remove(spool, [WHO])
    done = subprocess.run(
        [spool.parent / "slurm_script-77"], capture_output=True, text=True, check=False
    )
    assert (done.returncode != 0, done.stdout) == (True, "")


def test_the_gates_prolog_and_the_script_agree(spool: Path) -> None:
    """Whichever comes first, the job starts and another does not."""
    leases = str(spool / "leases")
    assert check(leases, Claim("7.1", "ada", "alpine", "77", "n1")).ok is True
    assert run(spool).returncode == 0
    assert run(spool, job="78").returncode == REFUSED_STATUS
    assert check(leases, Claim("7.1", "ada", "alpine", "77", "n1")).ok is True


def test_a_het_jobs_lease_is_its_leaders(spool: Path) -> None:
    assert run(spool, job="79", SLURM_HET_JOB_ID="78").returncode == 0
    assert (spool / "leases" / "7.1.job").read_text() == "alpine 78\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="files of others need root")
def test_a_binding_that_is_nobodys_to_make_is_not_believed(spool: Path) -> None:
    bound = spool / "leases" / "7.1.job"
    bound.write_text("alpine 99\n")
    os.chown(bound, 12345, 12345)
    done = run(spool)
    assert done.returncode == 0
    assert "user 12345 is in the way" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="files of others need root")
def test_a_gate_believes_the_binding_of_the_users_own_script(spool: Path) -> None:
    """A duplicate on a node with the gate must not take the lease of what started without."""
    leases, user = str(spool / "leases"), pwd.getpwnam("daemon")
    spool_folder.lease_all(spool, {WHO: "daemon"}, 0.0)
    assert run(spool).returncode == 0
    os.chown(spool / "leases" / "7.1.job", user.pw_uid, user.pw_gid)
    assert check(leases, Claim("7.1", "daemon", "alpine", "78", "n2")).ok is False
    assert check(leases, Claim("7.1", "daemon", "alpine", "77", "n2")).ok is True
    assert (spool / "leases" / "7.1.job").read_text() == "alpine 77\n"


LANGUAGES = {
    "#!/bin/bash -l": '[ -n "$BASH_VERSION" ] && echo ran',
    "#!/usr/bin/env python3": "import sys; print('ran')",
    "#! /usr/bin/perl -w": 'print "ran\\n";',
    "#!/usr/bin/awk -f": 'BEGIN { print "ran" }',
}


@pytest.mark.parametrize("line", LANGUAGES)
def test_any_interpreter_is_started(spool: Path, line: str) -> None:
    program = line[2:].split()[-1 if "env" in line else 0]
    assert shutil.which(program), f"{program} is not here"
    path = os.environ["PATH"]
    done = run(spool, f"{line}\n{LANGUAGES[line]}\n", PATH=path)
    assert done.returncode == 0, done.stderr
    assert "ran" in done.stdout


def test_only_the_first_line_is_another() -> None:
    script = "#!/usr/bin/python3\n#SBATCH --time=1\nprint(1)\n\x00\udcff"
    starter = starter_of(script, WHO, "/spool")
    assert starter.line == "#!/bin/sh /spool/starts/perl-ruby/7.1"
    assert started_by(script, starter.line).split("\n")[1:] == script.split("\n")[1:]


def test_an_interpreters_name_may_be_of_any_bytes(spool: Path) -> None:
    name = spool.parent / "b\udce9sh"
    name.symlink_to("/bin/sh")
    assert run(spool, f"#!{name}\necho ran\n").stdout == "ran\n"


def test_whatever_interpreters_users_name_there_is_one_folder(spool: Path) -> None:
    before = sorted(os.walk(spool / "starts"))
    for line in ("#!/x/a-b", "#!/usr/bin/env -S rust-script --", "#!/opt/" + "x" * 60 + "/perl -w"):
        spool_folder.put_starters(spool, {WHO: starter_of(f"{line}\n", WHO, str(spool))})
    spool_folder.remove(spool, [WHO])
    assert sorted(os.walk(spool / "starts")) == before


def test_shell_metacharacters_in_the_users_line_are_words(spool: Path) -> None:
    done = run(spool, '#!/bin/echo $(touch /tmp/owned); "$HOME" \'\n')
    assert done.stdout.startswith('$(touch /tmp/owned); "$HOME" \' /')


def test_a_line_that_old_kernels_cannot_read_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="too long"):
        starter_of(SH, WHO, "/" + "x" * MAX_LINE_BYTES)
    with pytest.raises(InvalidRequest, match="no interpreter"):
        starter_of("echo", WHO, "/spool")


def test_the_file_goes_with_the_lease_and_what_is_left_over_is_tidied(spool: Path) -> None:
    run(spool)
    path = spool / FOLDER / "7.1"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE((spool / "starts").stat().st_mode) == 0o711
    spool_folder.remove(spool, [WHO])
    assert not path.exists()
    path.write_text("left by an agent that died")
    later_s = path.stat().st_mtime + spool_folder.JUNK_AGE_S + 1
    spool_folder.tidy_starters(spool, [WHO], later_s)
    assert path.exists()
    spool_folder.tidy_starters(spool, [], later_s)
    assert not path.exists()


# ---- the agent ----


@pytest.mark.parametrize("consume", ["gate", "wrapper"])
def test_an_agent_hands_sbatch_the_line_that_agent_yaml_asks_for(
    daemon: Daemon, tmp_path: Path, consume: Literal["gate", "wrapper"]
) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    daemon.spool, daemon.consume_lease = str(folder), consume

    async def script() -> None:
        daemon.tell(order(0, "a1"))
        await daemon.wait_for(LaunchAccepted)
        line = daemon.site.start_lines[attempt(0)]
        path = folder / FOLDER / "4294967296.1"
        assert line == (f"#!/bin/sh {path}" if consume == "wrapper" else "")
        assert path.exists() is (consume == "wrapper")
        daemon.slurm.end(attempt(0))
        await asyncio.sleep(30)
        assert not path.exists()

    daemon.serve(script)


@pytest.mark.parametrize("lost", ["all", "lease"])
@pytest.mark.parametrize("by", ["this agent", "the next agent"])
def test_a_waiting_job_whose_spool_was_lost_starts_all_the_same(
    daemon: Daemon, tmp_path: Path, lost: str, by: str
) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    daemon.spool, daemon.consume_lease = str(folder), "wrapper"
    daemon.slurm.starts_jobs = False
    lease, starter = folder / "leases" / "4294967296.1", folder / FOLDER / "4294967296.1"

    async def begin() -> None:
        daemon.tell(order(0, "a1"))
        await daemon.wait_for(LaunchAccepted)
        text = starter.read_text()
        lose()
        if by == "this agent":
            await settled(text)

    def lose() -> None:
        os.utime(starter, (0, 0))
        if lost == "lease":
            lease.unlink()
        else:
            for below in ("starts", "leases", "tickets"):
                shutil.rmtree(folder / below)

    async def settled(text: str = "") -> None:
        await asyncio.sleep(TIDY_S + 30)
        assert lease.exists()
        assert starter.read_text().endswith(text or 'exec /bin/sh "$@"\n')

    daemon.serve(begin)
    if by == "the next agent":
        daemon.said.clear()
        daemon.serve(settled)


@pytest.mark.parametrize("script", ["#!/bin/b\xe9sh\ntrue\n", "#!/bin/b\u2014sh\ntrue\n"])
def test_a_script_that_is_no_utf_8_ends_no_agent(
    daemon: Daemon, tmp_path: Path, script: str
) -> None:
    """The second is not even of the encoding that it names."""
    folder = tmp_path / "spool"
    folder.mkdir()
    daemon.spool, daemon.consume_lease = str(folder), "wrapper"
    asked = order(0, "a1")
    odd = msgspec.structs.replace(asked.submission, script=script, script_encoding="latin-1")

    async def launch() -> None:
        daemon.tell(msgspec.structs.replace(asked, submission=odd))
        await asyncio.sleep(5)
        if "\xe9" in script:
            assert daemon.heard(LaunchAccepted)
            assert b"exec '/bin/b\xe9sh' " in (folder / FOLDER / "4294967296.1").read_bytes()
        else:
            assert "latin-1" in (daemon.heard(LaunchDeclined)[0].reason.detail or "")

    daemon.serve(launch)


def test_a_wrapper_needs_a_spool() -> None:
    with pytest.raises(ValueError, match="consume_lease: wrapper needs a spool_dir"):
        AgentConfig(site="a", socket="/s", state_dir="/d", consume_lease="wrapper")
