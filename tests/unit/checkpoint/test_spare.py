"""fed-spare.sh in real dash and bash, with programs in place of Slurm's commands.

The stand-in of srun runs what it is given; a node is gone if a file says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from federator import checkpoint

FUNCTIONS = Path(checkpoint.__file__).parent
SHELLS = [shell for shell in ("dash", "bash", "bash --posix") if shutil.which(shell.split()[0])]
SRUN = """#!/bin/sh
case "$*" in
*--overlap*) for word in "$@"; do node=${word#--nodelist=}; [ "$word" = "$node" ] || break; done
    echo "asked $node" >>calls; [ ! -e tell ] || touch deadline; [ ! -e "gone.$node" ] ;;
*) echo "srun $*" >>calls
    while [ "${1#--}" != "$1" ]; do shift; done
    exec "$@" ;;
esac
"""
SQUEUE = "#!/bin/sh\necho squeue >>asked; [ ! -e away ] || exit 1; cat nodes\n"
SLEEP = "#!/bin/sh\necho slept >>asked; [ ! -e soon ] || rm -f away\n"
SCONTROL = """#!/bin/sh
[ "$1" = hostnames ] || [ "$2" = hostnames ] || { echo "scontrol $*" >>calls; exit; }
echo "$3" | tr , '\\n'
"""

pytestmark = pytest.mark.parametrize("shell", SHELLS)


def run(
    shell: str, folder: Path, body: str, *, nodes: str = "n1,n2,n3", strict: bool = False
) -> tuple[int, list[str], str]:
    """Status, calls of Slurm, and what was said, of a gang of two nodes with a spare."""
    stand_ins = (("srun", SRUN), ("squeue", SQUEUE), ("scontrol", SCONTROL), ("sleep", SLEEP))
    for name, text in stand_ins:
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "nodes").write_text(f"{nodes}\n")
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_JOB_NODELIST": nodes,
        "FED_SPARE": "1",
        "FED_CHECKPOINT_DIR": str(folder),
        "FED_PREEMPT_DEADLINE": str(folder / "deadline"),
    }
    (folder / "body").write_text(body)
    ifs = "IFS=$'\\n\\t'" if strict and "bash" in shell else ":"
    head = f"{'set -eu' if strict else ':'}\n{ifs}\n. '{FUNCTIONS}/fed-checkpoint.sh'\n"
    done = subprocess.run(
        [*shell.split(), "-c", f"{head}. '{FUNCTIONS}/fed-spare.sh'\nfed_gang sh ./body"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    calls = folder / "calls"
    return done.returncode, calls.read_text().splitlines() if calls.exists() else [], done.stderr


def launches(calls: list[str]) -> list[str]:
    """The nodes of each launch."""
    words = [call.split() for call in calls if call.startswith("srun")]
    assert all({"--nodes=2", "--ntasks=2", "--kill-on-bad-exit=1"} <= set(each) for each in words)
    return [w.removeprefix("--nodelist=") for each in words for w in each if "--nodelist" in w]


@pytest.mark.parametrize("strict", [False, True])
def test_a_program_that_ends_well_is_started_once_and_asks_nobody(
    shell: str, tmp_path: Path, strict: bool
) -> None:
    body = 'test "$FED_NNODES $FED_NODES $FED_LAUNCH" = "2 n1,n2 1"'
    status, calls, said = run(shell, tmp_path, body, strict=strict)
    assert (status, launches(calls), said) == (0, ["n1,n2"], "")
    assert len(calls) == 1


@pytest.mark.parametrize("strict", [False, True])
def test_when_a_node_does_not_answer_it_goes_on_on_the_spare(
    shell: str, tmp_path: Path, strict: bool
) -> None:
    body = '[ "$FED_LAUNCH" = 2 ] || { touch gone.n2; exit 3; }'
    status, calls, said = run(shell, tmp_path, body, strict=strict)
    assert (status, launches(calls)) == (0, ["n1,n2", "n1,n3"])
    assert sorted(calls[1:3]) == ["asked n1", "asked n2"]
    assert said == "fed-spare: n2 gone\n"


def test_a_node_that_slurm_has_taken_from_the_job_is_gone(shell: str, tmp_path: Path) -> None:
    body = '[ "$FED_LAUNCH" = 2 ] || { echo n1,n3 >nodes; exit 3; }'
    status, calls, _ = run(shell, tmp_path, body)
    assert (status, launches(calls)) == (0, ["n1,n2", "n1,n3"])
    assert "asked n2" not in calls


def test_a_failure_on_nodes_that_answer_is_the_programs_own(shell: str, tmp_path: Path) -> None:
    status, calls, said = run(shell, tmp_path, "exit 3")
    assert (status, launches(calls), said) == (3, ["n1,n2"], "")


def test_a_program_that_was_told_to_leave_is_not_started_again(shell: str, tmp_path: Path) -> None:
    status, calls, _ = run(shell, tmp_path, "touch gone.n2 deadline; exit 85")
    assert (status, launches(calls)) == (85, ["n1,n2"])


def test_one_that_is_told_to_leave_while_its_nodes_are_asked_is_not_started_again(
    shell: str, tmp_path: Path
) -> None:
    status, calls, _ = run(shell, tmp_path, "touch gone.n2 tell; exit 3")
    assert (status, launches(calls)) == (3, ["n1,n2"])


def test_a_check_that_succeeds_nowhere_says_nothing_of_the_nodes(
    shell: str, tmp_path: Path
) -> None:
    """It may be mistyped, or Slurm start no steps."""
    status, calls, _ = run(shell, tmp_path, "touch gone.n1 gone.n2; exit 3")
    assert (status, launches(calls)) == (3, ["n1,n2"])


def test_the_first_start_needs_no_slurmctld_and_a_later_one_waits_for_it(
    shell: str, tmp_path: Path
) -> None:
    (tmp_path / "away").touch()
    body = '[ "$FED_LAUNCH" = 2 ] || { touch gone.n2 soon; exit 3; }'
    status, calls, _ = run(shell, tmp_path, body)
    assert (status, launches(calls)) == (0, ["n1,n2", "n1,n3"])
    assert (tmp_path / "asked").read_text().split() == ["squeue", "slept", "squeue"]


def test_with_too_few_nodes_left_the_job_is_requeued(shell: str, tmp_path: Path) -> None:
    body = "[ -e gone.n2 ] && touch gone.n3; touch gone.n2; exit 3"
    status, calls, said = run(shell, tmp_path, body)
    assert (status, launches(calls)) == (3, ["n1,n2", "n1,n3"])
    assert calls[-1] == "scontrol requeue 7"
    assert said.splitlines()[-1] == (
        "fed-spare: fewer than 2 nodes are left; the job starts again elsewhere"
    )


def test_without_an_answer_of_slurmctld_nothing_is_started_again(
    shell: str, tmp_path: Path
) -> None:
    """It may be restarting: the failure is the program's as far as anybody knows."""
    status, calls, _ = run(shell, tmp_path, ": >nodes; touch gone.n2; exit 3")
    assert (status, launches(calls)) == (3, ["n1,n2"])
