"""The script of a plan, run by sh with programs that stand for Slurm's."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from federator.planner.capacity.assign import Assignment, Move, assign
from federator.planner.capacity.fleet import Want
from federator.planner.capacity.proof import holdings, homes_of
from federator.planner.capacity.script import Listing, site_script, steps_of
from tests.unit.planner.capacity.fleets import rack

SCONTROL = """#!/bin/sh
case "$*" in
    "-o show partition "*)
        if [ ! -e "$FAKE/list-$4" ]; then echo "Partition $4 not found" >&2; exit 1; fi
        echo "PartitionName=$4 Nodes=$(cat "$FAKE/list-$4") State=UP" ;;
    "show hostnames broken") exit 1 ;;
    "show hostnames "*) echo "$3" | tr ',' '\\n' ;;
    "-o show node gone") exit 1 ;;
    "-o show node "*) cat "$FAKE/node-$4" 2>/dev/null || echo "NodeName=$4 State=IDLE" ;;
    *)
        echo "$*" >> "$FAKE/asked"
        for word in "$@"; do
            case $word in
                NodeName=*) node=${word#*=} ;;
                Reason=*) why=${word#*=} ;;
                PartitionName=*) list=$FAKE/list-${word#*=} ;;
                Nodes=*) echo "${word#*=}" > "$list" ;;
            esac
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
    lists(tmp_path, a="r1-0", b="r1-1,r1-2", burst="r1-3")
    return tmp_path


def lists(slurm: Path, **partitions: str) -> None:
    for name, nodes in partitions.items():
        (slurm / f"list-{name}").write_text(nodes)


def after_the_first_step(slurm: Path) -> None:
    lists(slurm, a="r1-0,r1-3", burst="(null)")


def script(*, renamed: str = "a") -> str:
    """One node joins, and one that b has too much of leaves it for a."""
    found = assign(rack("r1", "abb-"), [Want(name="a", size=24), Want(name="b", size=8)])
    listing = Listing(
        members={"a": ["r1-0"], "b": ["r1-1", "r1-2"], "burst": ["r1-3"]},
        fold=",".join,
        renamed=lambda name: renamed if name == "a" else name,
    )
    return site_script("alpine", steps_of(found), listing)


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
    done = run(script(), slurm, "--apply")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "step 1. r1-3: spare -> a: a has 8 of 24 GPUs\nstep 2. r1-2: b -> a: a has 8 of 24 GPUs\n"
    )
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
    after_the_first_step(slurm)
    done = run(script(), slurm, "--apply", "2")
    assert done.returncode == 0, done.stderr
    assert asked(slurm)[0].startswith("update NodeName=r1-2 State=DRAIN")


def test_a_partition_that_has_changed_since_stops_it_before_the_first_step(slurm: Path) -> None:
    lists(slurm, b="r1-1,r1-2,r9-9")
    done = run(script(), slurm, "--apply")
    assert done.returncode == 1
    assert "partition b has other nodes than planned; make a new plan" in done.stderr
    assert asked(slurm) == []


def test_a_partition_that_is_not_there_stops_it_before_the_first_step(slurm: Path) -> None:
    for step in ("1", "2"):
        (slurm / "list-b").unlink(missing_ok=True)
        done = run(script(), slurm, "--apply", step)
        assert done.returncode == 1
        assert "scontrol does not show partition b" in done.stderr
    assert asked(slurm) == []


def test_a_list_that_scontrol_cannot_read_stops_it(slurm: Path) -> None:
    lists(slurm, a="broken")
    assert run(script().replace("r1-0 ", "broken "), slurm, "--apply").returncode == 1
    assert asked(slurm) == []


def test_a_later_step_checks_its_partitions_too(slurm: Path) -> None:
    after_the_first_step(slurm)
    lists(slurm, a="r1-0,r1-3,r9-9")
    done = run(script(), slurm, "--apply", "2")
    assert done.returncode == 1
    assert "partition a has other nodes than planned" in done.stderr
    assert asked(slurm) == []


def test_a_partition_that_changes_while_a_node_is_emptied_is_not_written(slurm: Path) -> None:
    (slurm / "squeue").write_text('#!/bin/sh\necho r1-0,r9-9 > "$FAKE/list-a"\n')
    done = run(script(), slurm, "--apply")
    assert done.returncode == 1
    assert not [line for line in asked(slurm) if "PartitionName=a" in line]


@pytest.mark.parametrize("burst", ["r1-3", "(null)"])
@pytest.mark.parametrize("a", ["r1-0", "r1-0,r1-3"])
def test_a_step_that_was_stopped_is_finished(slurm: Path, burst: str, a: str) -> None:
    lists(slurm, a=a, burst=burst)
    done = run(script(), slurm, "--apply")
    assert done.returncode == 0, done.stderr
    assert (slurm / "list-a").read_text().strip() == "r1-0,r1-3,r1-2"
    assert (slurm / "list-burst").read_text().strip() in ("", "(null)")


@pytest.mark.parametrize(
    "words",
    [
        ("--aply",),
        ("--apply", "3"),
        ("--apply", "0"),
        ("--apply", "x"),
        ("--apply", "1", "2"),
        ("",),
    ],
)
def test_unknown_arguments_do_nothing(slurm: Path, words: tuple[str, ...]) -> None:
    done = run(script(), slurm, *words)
    assert (done.returncode, done.stdout) == (64, "")
    assert done.stderr == "usage: sh SITE.sh [--apply [STEP]], with a step from 1 to 2\n"
    assert asked(slurm) == []


def test_a_node_that_is_drained_for_another_reason_is_left_alone(slurm: Path) -> None:
    after_the_first_step(slurm)
    (slurm / "node-r1-2").write_text("NodeName=r1-2 State=DRAIN Reason=bad fan [root@2026]\n")
    done = run(script(), slurm, "--apply", "2")
    assert done.returncode == 1
    assert done.stderr == "r1-2 is drained for another reason: bad fan\n"
    assert asked(slurm) == []


def test_an_old_reason_of_a_node_that_is_back_stops_nothing(slurm: Path) -> None:
    after_the_first_step(slurm)
    (slurm / "node-r1-2").write_text("NodeName=r1-2 State=IDLE Reason=bad fan [root@2026]\n")
    assert run(script(), slurm, "--apply", "2").returncode == 0


def test_a_node_whose_jobs_squeue_cannot_list_is_not_taken_as_empty(slurm: Path) -> None:
    after_the_first_step(slurm)
    (slurm / "unreachable").touch()
    assert run(script(), slurm, "--apply", "2").returncode == 0
    polls = (slurm / "polls").read_text().splitlines()
    assert len(polls) == 2  # after the failure: one that shows a job, and one that shows none


@pytest.mark.parametrize("state", ["DOWN*+DRAIN", "IDLE+DRAIN+FAIL"])
def test_a_node_that_fails_while_it_is_emptied_is_not_resumed(slurm: Path, state: str) -> None:
    after_the_first_step(slurm)
    done = run(script(), slurm, "--apply", "2", DRAINED=state)
    assert done.returncode == 0
    assert f"r1-2 is not resumed, its state is {state}: capacity plan: to a" in done.stderr
    assert not [line for line in asked(slurm) if "RESUME" in line]


def test_a_node_that_slurm_does_not_show_stops_it(slurm: Path) -> None:
    after_the_first_step(slurm)
    text = script().replace("empty r1-2", "empty gone")
    assert run(text, slurm, "--apply", "2").returncode == 1
    assert asked(slurm) == []


def test_a_site_s_own_name_of_a_partition_is_written(slurm: Path) -> None:
    text = script(renamed="gpu a")
    assert "put 'gpu a' r1-0 r1-0,r1-3" in text


def test_thousands_of_nodes_leave_in_order_at_once() -> None:
    nodes = rack("r1", "b" * 4000)
    wants = [Want(name="b", size=1), Want(name="a", size=32000)]
    moves = tuple(Move(node=node, old="b", new="a", why="") for node in nodes)
    before = holdings(nodes, wants, homes_of(nodes))
    began = time.process_time()
    assert steps_of(Assignment(moves=moves, before=before)) == list(moves)
    assert time.process_time() - began < 5  # 0.1 s; an order found anew each time takes minutes


def test_partitions_with_most_to_give_give_first() -> None:
    nodes = rack("r1", "bbccccc")
    wants = [Want(name="a", size=16), Want(name="b", size=8), Want(name="c", size=16)]
    steps = steps_of(assign(nodes, wants))
    assert steps[0].old == "c"
