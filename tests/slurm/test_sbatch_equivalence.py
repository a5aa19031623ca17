"""fsbatch's reader and each generation's sbatch accept and refuse the same submissions.

Only where the federation honours the option. Where it is stricter on purpose (``--gres=gpu:-1``
and ``-N 0``, which sbatch takes and never runs) the cases are in the unit tests.
"""

from __future__ import annotations

import subprocess

import pytest

from federator.errors import InvalidRequest
from federator.model.submission import Submission
from federator.slurm.options.interpret import interpret
from federator.slurm.options.options import check_script, parse_command_line, parse_script, resolve
from federator.testbed import layout

pytestmark = pytest.mark.slurm

SITES = ("alpine", "boreal", "cedar")
PLAIN = b"#!/bin/sh\ntrue\n"


def directives(*lines: str) -> bytes:
    return "\n".join(["#!/bin/sh", *lines, "true", ""]).encode()


CASES: dict[str, tuple[list[str], bytes]] = {
    "nothing": ([], PLAIN),
    "sizes": (["-N1", "-n2", "-c1", "--mem=10M", "-t", "1:30"], PLAIN),
    "range of nodes": (["-N1-2"], PLAIN),
    "prefix": (["--ntasks-per-n=1"], PLAIN),
    "ambiguous prefix": (["--ntasks-per=1"], PLAIN),
    "unknown option": (["--gpu-per-node=1"], PLAIN),
    "missing value": (["-N"], PLAIN),
    "value for a flag": (["--contiguous=1"], PLAIN),
    "bad nodes": (["-N", "abc"], PLAIN),
    "reversed nodes": (["-N", "2-1"], PLAIN),
    "no tasks": (["-n", "0"], PLAIN),
    "bad cpus": (["-c", "1x"], PLAIN),
    "bad time": (["-t", "1:2:3:4"], PLAIN),
    "odd time": (["-t", "1-2:3:4"], PLAIN),
    "bad memory": (["--mem=1.5G"], PLAIN),
    "two kinds of memory": (["--mem-per-cpu=1"], directives("#SBATCH --mem=5")),
    "mixed gres": (["--gres=gpu:a100:1,gpu:1"], PLAIN),
    "gpus do not divide": (["--gpus=3", "--gpus-per-node=2"], PLAIN),
    "tasks per missing gpu": (["--ntasks-per-gpu=1"], PLAIN),
    "bad exclusive": (["--exclusive=foo"], PLAIN),
    "signal": (["--signal=RB:SIGUSR1@60"], PLAIN),
    "unknown signal": (["--signal=XYZ"], PLAIN),
    "signal too early": (["--signal=USR1@70000"], PLAIN),
    "mail": (["--mail-type=BEGIN,END"], PLAIN),
    "unknown mail": (["--mail-type=BOGUS"], PLAIN),
    "least time": (["-t10", "--time-min=5"], PLAIN),
    "least time beyond the limit": (["-t10", "--time-min=20"], PLAIN),
    "no least time": (["-t10", "--time-min=soon"], PLAIN),
    "open mode": (["--open-mode=append"], PLAIN),
    "unknown open mode": (["--open-mode=x"], PLAIN),
    "distribution": (["-m", "block:cyclic,Pack"], PLAIN),
    "unknown distribution": (["-m", "bogus"], PLAIN),
    "unknown frequency": (["--cpu-freq=bogus"], PLAIN),
    "no threads": (["--threads-per-core=0"], PLAIN),
    "unknown hint": (["--hint=bogus"], PLAIN),
    "unknown binding": (["--gpus=1", "--gpu-bind=bogus"], PLAIN),
    "unknown memory binding": (["--mem-bind=bogus"], PLAIN),
    "unknown flags of gres": (["--gres-flags=bogus"], PLAIN),
    "bad space": (["--tmp=1.5G"], PLAIN),
    "unknown profile": (["--profile=bogus"], PLAIN),
    "unknown limit": (["--propagate=BOGUS"], PLAIN),
    "bad sockets": (["-B", "1:x"], PLAIN),
    "bad accounting": (["--acctg-freq=task=x"], PLAIN),
    "array": (["-a", "1-4:2%2"], PLAIN),
    "het job": (["-n1", ":", "-n1"], PLAIN),
    "quotes": ([], directives("#SBATCH -J \"a b\" --comment='c\\'d' # why")),
    "open quote": ([], directives('#SBATCH -J "a')),
    "colon in script": ([], directives("#SBATCH -N1 : -N1")),
    "word in script": ([], directives("#SBATCH -n1 foo")),
    "unknown in script": ([], directives("#SBATCH --foo=1")),
    "after the body": ([], directives("true", "#SBATCH --foo=1")),
    "het script": ([], directives("#SBATCH -n1", "#SBATCH hetjob", "#SBATCH -n1")),
    "no shebang": ([], b"echo\n"),
    "dos": ([], b"#!/bin/sh\r\ntrue\r\n"),
    "nul": ([], b"#!/bin/sh\n\0\n"),
    "empty": ([], b""),
    "blank": ([], b" \n\n"),
}


def container(site: str) -> str:
    """The site's container; it must run, or the comparison would say nothing."""
    name = layout.site(site).container
    done = subprocess.run(
        ["docker", "inspect", "-f", "{{.State.Running}}", name],
        capture_output=True,
        text=True,
        check=False,
        timeout=80,
    )
    assert done.stdout.strip() == "true", f"{name} is not running; federator testbed up"
    return name


def sbatch_accepts(name: str, words: list[str], script: bytes) -> tuple[bool, str]:
    """Ask sbatch; every component goes to partition local."""
    placed = ["-p", "local"]
    for word in words:
        placed += [word, "-p", "local"] if word == ":" else [word]
    done = subprocess.run(
        [
            "docker",
            "exec",
            "-i",
            "-u",
            "vision1",
            "-w",
            "/tmp",
            name,
            "sbatch",
            "--test-only",
            *placed,
        ],
        input=script,
        capture_output=True,
        check=False,
        timeout=240,
    )
    return done.returncode == 0, done.stderr.decode()


def reader_accepts(words: list[str], script: bytes) -> tuple[bool, str]:
    try:
        text = check_script(script)
        components = resolve(parse_command_line(words).groups, (), parse_script(text))
        interpret(Submission(components=components, script=text))
    except InvalidRequest as error:
        return False, str(error)
    return True, ""


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("case", CASES)
def test_reader_and_sbatch_agree(site: str, case: str) -> None:
    words, script = CASES[case]
    theirs, their_words = sbatch_accepts(container(site), words, script)
    ours, our_words = reader_accepts(words, script)
    assert ours == theirs, f"sbatch: {their_words!r}; fsbatch: {our_words!r}"
