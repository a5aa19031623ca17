"""The script of a plan, run by sh with programs that stand for Slurm's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from federator.planner.capacity.assign import assign
from federator.planner.capacity.fleet import Want
from federator.planner.capacity.script import Listing, site_script, steps_of
from tests.unit.planner.capacity.fleets import rack

SCONTROL = """#!/bin/sh
case "$*" in
    "-o show partition "*) echo "PartitionName=x Nodes=$(cat "$FAKE/nodes") State=UP" ;;
    "show hostnames "*) echo "$3" | tr ',' '\\n' ;;
    "-o show node gone") exit 1 ;;
    "-o show node "*) cat "$FAKE/node-$4" 2>/dev/null || echo "NodeName=$4 State=IDLE" ;;
    *)
        echo "$*" >> "$FAKE/asked"
        for word in "$@"; do
            case $word in NodeName=*) node=${word#*=} ;; Reason=*) why=${word#*=} ;; esac
        done
        case "$*" in *State=DRAIN*)
            echo "NodeName=$node State=${DRAINED:-IDLE+DRAIN} Reason=$why [root@2026]" \\
                > "$FAKE/node-$node" ;;
        esac ;;
esac
"""

SQUEUE = """#!/bin/sh
if [ -e "$FAKE/unreachable" ]; then
    mv "$FAKE/unreachable" "$FAKE/busy"
    echo "slurm_load_jobs error: Unable to contact slurm controller" >&2
    exit 1
fi
echo squeue >> "$FAKE/polls"
if [ -e "$FAKE/busy" ]; then rm "$FAKE/busy"; echo 17; fi
"""


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A folder of programs, and of what they were asked."""
    for name, text in (("scontrol", SCONTROL), ("squeue", SQUEUE), ("sleep", "#!/bin/sh\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "nodes").write_text("r1-0")
    return tmp_path


def script(*, renamed: str = "a") -> str:
    """One node joins, and one that b has too much of leaves it for a."""
    found = assign(rack("r1", "abb-"), [Want(name="a", size=24), Want(name="b", size=8)])
    listing = Listing(
        members={"a": ["r1-0"], "b": ["r1-1", "r1-2"], "burst": ["r1-3"]},
        fold=",".join,
        renamed=lambda name: renamed if name == "a" else name,
    )
    return site_script("alpine", found, listing)


def run(text: str, slurm: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    path = slurm / "alpine.sh"
    path.write_text(text)
    env = {"PATH": f"{slurm}:{os.environ['PATH']}", "FAKE": str(slurm), **more}
    return subprocess.run(
        ["sh", str(path), *words], env=env, capture_output=True, text=True, check=False
    )


def asked(slurm: Path) -> list[str]:
    path = slurm / "asked"
    return path.read_text().splitlines() if path.exists() else []


def test_it_prints_what_it_would_do_and_asks_slurm_nothing(slurm: Path) -> None:
    done = run(script(), slurm)
    assert done.returncode == 0, done.stderr
    assert "scontrol update NodeName=r1-3 State=DRAIN" in done.stdout
    assert asked(slurm) == []


def test_with_apply_it_empties_a_node_moves_it_and_opens_it_node_by_node(slurm: Path) -> None:
    text = script().replace("as_planned b", "true b").replace("as_planned burst", "true burst")
    done = run(text, slurm, "--apply")
    assert done.returncode == 0, done.stderr
    assert asked(slurm) == [
        "update NodeName=r1-3 State=DRAIN Reason=capacity plan: to a",
        "update PartitionName=burst Nodes=",
        "update PartitionName=a Nodes=r1-0,r1-3",
        "update NodeName=r1-3 State=RESUME",
        "update NodeName=r1-2 State=DRAIN Reason=capacity plan: to a",
        "update PartitionName=b Nodes=r1-1",
        "update PartitionName=a Nodes=r1-0,r1-3,r1-2",
        "update NodeName=r1-2 State=RESUME",
    ]


def test_it_goes_on_from_a_step(slurm: Path) -> None:
    done = run(script(), slurm, "--apply", "2")
    assert done.returncode == 0, done.stderr
    assert asked(slurm)[0].startswith("update NodeName=r1-2 State=DRAIN")


def test_a_partition_that_has_changed_since_stops_it_before_the_first_step(slurm: Path) -> None:
    (slurm / "nodes").write_text("r1-0,r9-9")
    done = run(script(), slurm, "--apply")
    assert done.returncode == 1
    assert "partition a has other nodes than when the plan was made" in done.stderr
    assert asked(slurm) == []


def test_a_node_that_is_drained_for_another_reason_is_left_alone(slurm: Path) -> None:
    (slurm / "node-r1-2").write_text("NodeName=r1-2 State=DRAIN Reason=bad fan [root@2026]\n")
    done = run(script(), slurm, "--apply", "2")
    assert done.returncode == 1
    assert done.stderr == "r1-2 is drained for another reason: bad fan\n"
    assert asked(slurm) == []


def test_an_old_reason_of_a_node_that_is_back_stops_nothing(slurm: Path) -> None:
    (slurm / "node-r1-2").write_text("NodeName=r1-2 State=IDLE Reason=bad fan [root@2026]\n")
    assert run(script(), slurm, "--apply", "2").returncode == 0


def test_a_node_whose_jobs_squeue_cannot_list_is_not_taken_as_empty(slurm: Path) -> None:
    (slurm / "unreachable").touch()
    assert run(script(), slurm, "--apply", "2").returncode == 0
    polls = (slurm / "polls").read_text().splitlines()
    assert len(polls) == 2  # after the failure: one that shows a job, and one that shows none


@pytest.mark.parametrize("state", ["DOWN*+DRAIN", "IDLE+DRAIN+FAIL"])
def test_a_node_that_fails_while_it_is_emptied_is_not_resumed(slurm: Path, state: str) -> None:
    done = run(script(), slurm, "--apply", "2", DRAINED=state)
    assert done.returncode == 0
    assert f"r1-2 is not resumed, its state is {state}: capacity plan: to a" in done.stderr
    assert not [line for line in asked(slurm) if "RESUME" in line]


def test_a_node_that_slurm_does_not_show_stops_it(slurm: Path) -> None:
    text = script().replace("empty r1-2", "empty gone")
    assert run(text, slurm, "--apply", "2").returncode == 1
    assert asked(slurm) == []


def test_a_site_s_own_name_of_a_partition_is_written(slurm: Path) -> None:
    text = script(renamed="gpu a")
    assert "PartitionName='gpu a' Nodes=r1-0,r1-3" in text


def test_partitions_with_most_to_give_give_first() -> None:
    nodes = rack("r1", "bbccccc")
    wants = [Want(name="a", size=16), Want(name="b", size=8), Want(name="c", size=16)]
    steps = steps_of(assign(nodes, wants))
    assert steps[0].old == "c"
