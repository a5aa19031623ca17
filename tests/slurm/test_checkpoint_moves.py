"""A run loses its region, and goes on in the other with the same bits, whoever is killed."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from federator.testbed import inside, layout, software
from federator.testbed.layout import REPOSITORY, StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at, output_of, within
from tests.slurm.guests import folder_of, preemption
from tests.slurm.weather import kill_agents

pytestmark = pytest.mark.slurm

USER = "vision1"  # may log in from site to site
MIB = 16
SLOW_MIB_PER_S = 1  # so that the copy can be killed on its way
TRAINS = """#!/usr/bin/env python3
import hashlib, os, sys
sys.path.insert(0, "/opt/federator/user")
from federator.checkpoint import Checkpointer
site = os.environ["FED_SITE"]
with Checkpointer(interval_s=2) as ckpt:
    found = ckpt.latest()
    first = found.step + 1 if found else 0
    state = found.state if found else {"pad": bytes(range(256)) * 4096 * MIB, "digest": b""}
    print("from", site, first, flush=True)
    for step in range(first, 1_000_000):
        state["digest"] = hashlib.sha256(state["pad"] + state["digest"]).digest()
        if site == "cedar" and step == first + 5:
            print("done", step, state["digest"].hex(), flush=True)
            break
        ckpt.step(step, lambda: state)
"""


STEPS = 300
TORCH = f"""#!/bin/bash
case $FED_SITE in cedar) region=east ;; *) region=west ;; esac
export PYTHONPATH=/opt/federator/user
slow=$((FED_ATTEMPT == 1))  # until it must leave
exec /shared/$region/software/pytorch/bin/python /shared/$region/{USER}/train.py \\
    --steps {STEPS} --interval-s 2 --step-s $slow
"""


@pytest.fixture
def running(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path, pass_interval_s=10.0, preemption=preemption(grace_s=30.0))
    copies_at(made, SLOW_MIB_PER_S)
    yield from lasting(made)


def copies_at(running: Running, mib_per_s: int, checkpoints: str = "auto") -> None:
    settings = yaml.safe_load(running.config.read_text())
    settings["data"] = {"checkpoints": checkpoints, "checkpoint_mib_per_s": mib_per_s}
    settings["data"]["checkpoint_keep_free_gib"] = 1
    running.config.write_text(yaml.safe_dump(settings))


def operate(running: Running, *words: str) -> None:
    done = running.run("federator", *words)
    assert done.returncode == 0, done.stderr


def sealed(id_: int, region: str) -> list[str]:
    return [path.name for path in folder_of(id_, region, USER).glob("ckpt-*")]


def digest_after(step: int) -> str:
    pad, digest = bytes(range(256)) * 4096 * MIB, b""
    for _ in range(step + 1):
        digest = hashlib.sha256(pad + digest).digest()
    return digest.hex()


def test_a_run_that_loses_its_region_goes_on_in_the_other_though_all_are_killed(
    running: Running,
) -> None:
    for site in ("boreal", "cedar"):
        operate(running, "cordon", site)
    id_ = running.submit(TRAINS.replace("MIB", str(MIB)), "--gres=gpu:1", "-t", "5")
    assert running.await_state(id_, "RUNNING")["site"] == "alpine"
    within(60, lambda: sealed(id_, "west"))
    operate(running, "resume", "cedar")
    operate(running, "drain", "alpine", "--migrate", "--reason", "new switch")
    within(90, lambda: list(folder_of(id_, "east", USER).glob(".fed-copy-*/in/ckpt-*")))
    running.kill()  # first, so that no worker follows the next one
    inside.execute(layout.site("cedar"), ("pkill", "-KILL", "-u", USER))
    kill_agents("alpine", "cedar")
    assert sealed(id_, "east") == []
    copies_at(running, 100)
    running.spawn()
    within(90, running.all_up)
    (row,) = running.await_end(id_)
    assert (row["state"], row["site"]) == ("COMPLETED", "cedar")
    began, done = map(str.split, output_of(row).splitlines())
    step = int(done[1])
    assert began == ["from", "cedar", str(step - 5)]
    assert step > 5
    assert done[2] == digest_after(step)
    assert list(folder_of(id_, "east", USER).glob(".fed-copy-*")) == []


SAVES_ONCE = """#!/usr/bin/env python3
import os, sys, time
sys.path.insert(0, "/opt/federator/user")
from federator.checkpoint import Checkpointer
with Checkpointer(interval_s=0.1) as ckpt:
    found = ckpt.latest()
    print("from", os.environ["FED_SITE"], found.step if found else 0, flush=True)
    if not found:
        time.sleep(0.2)
        ckpt.step(7, lambda: {"pad": bytes(1 << 20)})
    time.sleep(0 if found else 600)
"""


@pytest.fixture
def ahead(testbed: StateDir, tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path, pass_interval_s=10.0, preemption=preemption(grace_s=2.0))
    copies_at(made, 100, "ahead")
    yield from lasting(made)


def test_under_a_drain_the_newest_checkpoint_is_in_the_other_region_before_the_run_leaves(
    ahead: Running,
) -> None:
    for site in ("boreal", "cedar"):
        operate(ahead, "cordon", site)
    id_ = ahead.submit(SAVES_ONCE, "--gres=gpu:1", "-t", "10")
    assert ahead.await_state(id_, "RUNNING")["site"] == "alpine"
    (name,) = within(30, lambda: sealed(id_, "west"))
    operate(ahead, "resume", "cedar")
    assert sealed(id_, "east") == []
    operate(ahead, "drain", "alpine", "--deadline", "now+10minutes", "--reason", "new switch")
    assert within(60, lambda: sealed(id_, "east")) == [name]
    explained = within(30, lambda: told(ahead, id_, "a copy is at cedar"))
    assert re.search(r"^ *Checkpoint +a copy is at cedar$", explained, re.MULTILINE)
    assert re.search(r"^ *Attempt +1, at alpine", explained, re.MULTILINE)
    ahead.run("fscancel", str(id_))
    ahead.await_state(id_, "CANCELLED", timeout_s=60)


def told(running: Running, id_: int, words: str) -> str:
    said = running.run("federator", "explain", str(id_)).stdout
    return said if words in said else ""


@pytest.fixture
def trainable(testbed: StateDir) -> Iterator[None]:
    """PyTorch, and the example that trains, in both regions."""
    software.ensure(testbed, lambda _what, _doing: None)
    places = [testbed.shared(region) / USER / "train.py" for region in ("west", "east")]
    for place in places:
        shutil.copy(REPOSITORY / "examples" / "train" / "train.py", place)
    yield
    for place in places:
        place.unlink()


def undisturbed() -> str:
    """What a training prints that nobody tells anything, outside of any federation."""
    begin = "cd $(mktemp -d) && PYTHONPATH=/opt/federator/user "
    python = "/shared/east/software/pytorch/bin/python"
    train = f"/shared/east/{USER}/train.py --steps {STEPS} --directory ."
    return at("cedar", "sh", "-c", f"{begin}{python} {train}", user=USER)


def digest_in(output: str) -> str:
    (digest,) = re.findall(r"^digest ([0-9a-f]{64})$", output, re.MULTILINE)
    return str(digest)


def test_a_pytorch_training_that_loses_its_region_ends_in_the_other_with_the_same_bits(
    trainable: None, running: Running
) -> None:
    for site in ("boreal", "cedar"):
        operate(running, "cordon", site)
    id_ = running.submit(TORCH, "--gres=gpu:1", "-t", "10")
    assert running.await_state(id_, "RUNNING")["site"] == "alpine"
    within(60, lambda: sealed(id_, "west"))
    operate(running, "resume", "cedar")
    operate(running, "drain", "alpine", "--migrate", "--reason", "new switch")
    row = running.await_state(id_, "COMPLETED", "FAILED", "CANCELLED", timeout_s=180)
    output = output_of(row)
    assert (row["state"], row["site"], row["attempt"]) == ("COMPLETED", "cedar", 2), output
    (first,) = re.findall(r"^begins with step (\d+) at cedar 2$", output, re.MULTILINE)
    assert 0 < int(first) < STEPS
    assert digest_in(output) == digest_in(undisturbed())
