"""PyTorch: ranks that leave together, and trainings that go on at another site with the same bits.

``bio`` has no quota here: a gang of ``vision`` displaces its training at alpine (Python 3.11), and
boreal (Python 3.13) goes on, where the user has another UID.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from federator.testbed import software
from federator.testbed.layout import REPOSITORY, StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import (
    SOON_S,
    Row,
    Running,
    at,
    output_name,
    output_of,
    take_all,
    within,
)

pytestmark = pytest.mark.slurm

USER, REGION = "bio1", "west"
EXAMPLES = REPOSITORY / "examples" / "train"
GRACE_S = 80.0  # half of it is more than a busy machine needs for a start with its prologs
STEPS = 400
RANKS = 2
ELASTIC_STEPS = 400  # at a second each, more than three resizes take on a busy machine
RANK = """
import atexit, os, signal, sys
import torch
from torch import distributed
from federator.checkpoint import Checkpointer

rank, folder = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank,
                               world_size=int(sys.argv[3]))
atexit.register(distributed.destroy_process_group)  # else gloo's threads may abort at the exit
with Checkpointer(torch.save, torch.load, all_ranks_write=True) as ckpt:
    found = ckpt.latest()
    if found is not None:
        print(found.step, found.state["mine"].tolist())
        sys.exit(0)
    for step in range(10):
        if step == 4 and rank == 1:
            os.kill(os.getpid(), signal.SIGUSR1)  # rank 0 gets no signal
        ckpt.step(step, lambda: {"mine": torch.full((2,), float(rank))})
"""


@pytest.fixture(scope="module")
def trainable(testbed: StateDir) -> Iterator[None]:
    """PyTorch at all sites, and the training where the sites of its region see it."""
    software.ensure(testbed, lambda _what, _doing: None)
    names = ("train.py", "train_elastic.py")
    folder = testbed.shared(REGION) / USER
    for name in names:
        shutil.copy(EXAMPLES / name, folder)
    yield
    for name in names:
        (folder / name).unlink()


@pytest.fixture
def evicting(trainable: None, tmp_path: Path) -> Iterator[Running]:
    preemption = {"grace_s": GRACE_S, "cooldown_s": 1.0, "budget_frac": 1.0}
    tenants = {"bio": {"quota": {"gpus": 0}}}
    yield from lasting(
        Running(tmp_path, tenants=tenants, pass_interval_s=5.0, preemption=preemption)
    )


def script(name: str, options: str) -> str:
    """An example's script, with options of the training put in."""
    text = (EXAMPLES / name).read_text()
    assert '"$@"\n' in text
    head, _, tail = text.rpartition('"$@"\n')
    return f"{head}--steps {STEPS} {options}\n{tail}"


def folder_of(id_: int) -> Path:
    return StateDir.default().shared(REGION) / USER / "checkpoints" / str(id_)


def digest_of(row: Row) -> str:
    output = output_of(row, USER)
    (digest,) = re.findall(r"^digest ([0-9a-f]{64})$", output, re.MULTILINE)
    return str(digest)


def end_of(running: Running, id_: int) -> Row:
    row = running.await_state(id_, "COMPLETED", "FAILED", "CANCELLED", timeout_s=180)
    assert row["state"] == "COMPLETED", output_of(row, USER)
    return row


def displace(running: Running, id_: int) -> Row:
    """A gang takes alpine, where the workload runs; the workload's row before it had to leave."""
    before = running.await_state(id_, "RUNNING")
    assert before["site"] == "alpine"
    began_s = time.monotonic()
    gang = running.submit("#!/bin/sh\nsleep 300\n", "-N8", "--gres=gpu:a100:8")
    assert running.await_state(gang, "RUNNING", timeout_s=GRACE_S + 10)["site"] == "alpine"
    assert time.monotonic() - began_s < GRACE_S / 2  # the nodes came free with the answer
    assert (folder_of(id_) / ".fed" / "saved.1").exists()
    assert running.row(id_)["state"] == "PENDING"
    return before


def forget(before: Row) -> None:
    """Remove what the first attempt printed, and what the workload has saved."""
    at(before["site"], "rm", f"/home/{USER}/{output_name(before)}")
    shutil.rmtree(folder_of(before["id"]))


@pytest.mark.parametrize("name", ["train.sh", "train_ddp.sh"])
def test_a_training_that_moves_to_another_site_ends_with_the_same_bits(
    evicting: Running, name: str
) -> None:
    evicting.fill("boreal")
    slow = "--step-s $((FED_ATTEMPT == 1)) --interval-s 2"  # until it must leave
    moving = evicting.submit(script(name, slow), user=USER)
    evicting.await_state(moving, "RUNNING")
    within(60, (folder_of(moving) / ".fed" / "checkpointed").exists)
    before = displace(evicting, moving)

    at("boreal", "scancel", "--partition=local")
    moved = end_of(evicting, moving)
    assert (moved["site"], moved["attempt"]) == ("boreal", 2)
    (first,) = re.findall(r"^begins with step (\d+) at boreal 2$", output_of(moved, USER), re.M)
    assert 0 < int(first) < STEPS

    undisturbed = end_of(evicting, evicting.submit(script(name, ""), user=USER))
    assert digest_of(moved) == digest_of(undisturbed)
    forget(before)


# ---- torchrun, on more nodes and on fewer ----


class Curve(dict[int, float]):
    """The losses that a training has noted, by step."""

    def __init__(self, folder: Path) -> None:
        file = folder / "losses.txt"
        lines = file.read_text().splitlines() if file.exists() else ()
        self.steps = [(int(step), int(ranks)) for step, ranks, _ in map(str.split, lines)]
        super().__init__((int(step), float(loss)) for step, _, loss in map(str.split, lines))

    @property
    def sizes(self) -> list[int]:
        """Its numbers of ranks, one after the other."""
        return [size for size, _ in groupby(ranks for _, ranks in self.steps)]

    def has_settled_on(self, *sizes: int) -> bool:
        """Whether it has gone through these, and made some steps on the last."""
        return self.sizes == [*sizes] and len({ranks for _, ranks in self.steps[-3:]}) == 1


def undisturbed_curve(folder: Path, steps: int) -> Curve:
    """One process that nobody tells anything, on the tests' own host."""
    python = software.pytorch(StateDir.default(), REGION) / "bin" / "python"
    argv = (python, EXAMPLES / "train_elastic.py", f"--steps={steps}", f"--directory={folder}")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    subprocess.run(argv, env=environment, check=True, timeout=480)
    return Curve(folder)


def test_a_torchrun_on_two_nodes_then_four_one_and_two_at_two_sites_keeps_its_loss_curve(
    evicting: Running, tmp_path: Path
) -> None:
    """Users of the sites leave two nodes, then four, at alpine, and one, then two, at boreal."""
    taken = {
        (site, nodes): take_all(site, f"--nodes={nodes}")
        for site, nodes in (("alpine", 4), ("alpine", 2), ("boreal", 6), ("boreal", 1))
    }
    idle = {"alpine": 2, "boreal": 1}
    within(90, lambda: idle_nodes(evicting, *idle) == idle, SOON_S)
    slow = f"--steps {ELASTIC_STEPS} --step-s $((FED_ATTEMPT < 4))"  # until its last size
    text = (EXAMPLES / "train_elastic.sh").read_text().replace('"$@"', slow)
    id_ = evicting.submit(text, user=USER)

    def runs_on(site: str, *sizes: int) -> Row:
        within(120, lambda: Curve(folder_of(id_)).has_settled_on(*sizes))
        row = evicting.await_state(id_, "RUNNING")  # its step may be noted before that is heard
        assert (row["site"], row["attempt"], row["gpus"]) == (site, len(sizes), 8 * sizes[-1])
        return row

    runs_on("alpine", 2)
    at("alpine", "scancel", taken["alpine", 2])
    before = runs_on("alpine", 2, 4)
    gang = evicting.submit("#!/bin/sh\nsleep 3600\n", "-N4", "--gres=gpu:a100:8")
    runs_on("boreal", 2, 4, 1)
    assert evicting.await_state(gang, "RUNNING")["site"] == "alpine"
    at("boreal", "scancel", taken["boreal", 1])
    row = end_of(evicting, id_)
    assert (row["site"], row["attempt"]) == ("boreal", 4)

    curve = Curve(folder_of(id_))
    assert curve.sizes == [2, 4, 1, 2]
    assert [step for step, _ in curve.steps] == list(range(ELASTIC_STEPS))  # none lost, none twice
    assert curve == pytest.approx(undisturbed_curve(tmp_path, ELASTIC_STEPS), rel=1e-4)
    assert curve[ELASTIC_STEPS - 1] < curve[0] / 10
    forget(before)


def idle_nodes(running: Running, *names: str) -> dict[str, int]:
    """Nodes with all their GPUs free, as the daemon has seen it last."""
    return {
        site.name: sum((room.gpus - room.gpus_alloc) // 8 for room in site.partitions)
        for site in running.sites()
        if site.name in names
    }


SHELL = """#!/bin/bash
#SBATCH --signal=B:USR1
. /opt/federator/user/federator/checkpoint/fed-checkpoint.sh
state=$FED_CHECKPOINT_DIR/state
if [ -e "$state" ]; then cat "$state"; exit; fi
save() { echo "saved at $FED_SITE" >"$state" && fed_saved && exit 85; }
fed_on_preempt save
fed_run sh -c 'touch "$FED_CHECKPOINT_DIR/runs"; exec sleep 1000'
"""


def test_a_shell_script_saves_at_once_and_goes_on_at_another_site(evicting: Running) -> None:
    evicting.fill("boreal")
    moving = evicting.submit(SHELL, "-N1", "--gres=gpu:a100:8", user=USER)
    evicting.await_state(moving, "RUNNING")
    within(60, (folder_of(moving) / "runs").exists)
    before = displace(evicting, moving)
    at("boreal", "scancel", "--partition=local")
    assert output_of(end_of(evicting, moving), USER) == "saved at alpine\n"
    forget(before)


# ---- without Slurm: the sites' PyTorch runs on the tests' own host, too ----


def run_ranks(folder: Path) -> list[tuple[int, str]]:
    """Exit status and output of each rank of one process group."""
    (folder / "meet").unlink(missing_ok=True)
    python = software.pytorch(StateDir.default(), REGION) / "bin" / "python"
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "FED_CHECKPOINT_DIR": str(folder),
        "FED_ATTEMPT": "1",
    }
    ranks = [
        subprocess.Popen(
            [python, "-c", RANK, str(rank), str(folder), str(RANKS)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    outputs = [rank.communicate(timeout=480)[0] for rank in ranks]
    return [(rank.returncode, output) for rank, output in zip(ranks, outputs, strict=True)]


@pytest.mark.usefixtures("trainable")
def test_ranks_of_a_process_group_leave_after_the_same_step_and_go_on_there(tmp_path: Path) -> None:
    assert run_ranks(tmp_path) == [(85, ""), (85, "")]
    assert [path.name for path in tmp_path.glob("ckpt-*")] == ["ckpt-00000001-step-4"]
    assert (tmp_path / ".fed" / "saved.1").exists()
    assert run_ranks(tmp_path) == [(0, "4 [0.0, 0.0]\n"), (0, "4 [1.0, 1.0]\n")]
