"""A gang with a spare node: a node dies, and the same job goes on from its checkpoint on the spare.

Beside it the same gang without a spare, which is requeued. The ranks exchange a byte each step over
TCP; rank 0 saves and notes each step. "Dies": SIGKILL of the node's slurmd and all that it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Row, Running, at, killed_slurmd, output_of, within

pytestmark = pytest.mark.slurm

USER = "vision1"
SITES = [site.name for site in layout.SITES]
STEPS = 150
PROGRAM = f"""#!/bin/sh
. /opt/federator/user/federator/checkpoint/fed-checkpoint.sh
. /opt/federator/user/federator/checkpoint/fed-spare.sh
cat >"$HOME/rank.$FED_JOB_ID.py" <<'END'
import os, socket, sys, time
from pathlib import Path

rank, launch = int(os.environ["SLURM_PROCID"]), int(os.environ["FED_LAUNCH"])
where = ("127.0.0.1", 20000 + (int(os.environ["FED_JOB_ID"]) * 10 + launch) % 10000)
if rank == 0:
    server = socket.create_server(where)
    peer, _ = server.accept()
else:
    while True:
        try:
            peer = socket.create_connection(where)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
folder = Path(os.environ["FED_CHECKPOINT_DIR"])
state = folder / "state"
step = int(state.read_text()) if state.exists() else 0
while step < {STEPS}:
    peer.sendall(b"x")
    if not peer.recv(1):
        sys.exit(1)
    step += 1
    if rank == 0:
        (folder / "new").write_text(str(step))
        (folder / "new").rename(state)
        with (folder / "steps.txt").open("a") as notes:
            attempt, nodes = os.environ["FED_ATTEMPT"], os.environ["FED_NODES"]
            print(step, attempt, launch, nodes, time.time(), file=notes)
    time.sleep(0.2)
END
fed_gang python3 "$HOME/rank.$FED_JOB_ID.py"
"""


class Step(NamedTuple):
    number: int
    attempt: int
    launch: int
    nodes: list[str]
    at_s: float


def steps_of(row: Row) -> list[Step]:
    region = layout.site(row["site"]).region
    file = StateDir.default().shared(region) / USER / "checkpoints" / str(row["id"]) / "steps.txt"
    lines = map(str.split, file.read_text().splitlines() if file.exists() else ())
    return [Step(int(n), int(a), int(k), nodes.split(","), float(s)) for n, a, k, nodes, s in lines]


def killed_node(node: str) -> str:
    """A shell's commands: its slurmd, then everything with its name in the environment."""
    return (
        f"{killed_slurmd(node)}; for there in /proc/[0-9]*; do "
        f"tr '\\0' '\\n' <$there/environ 2>/dev/null | grep -qx SLURMD_NODENAME={node} && "
        "kill -9 ${there#/proc/}; done; true"
    )


@pytest.fixture(scope="module")
def running(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from lasting(Running(tmp_path_factory.mktemp("spare")))


def goes_on(running: Running, site: str, *options: str) -> tuple[Row, Row, list[Step]]:
    """Let the gang's second node die; its rows before and after, and its steps."""
    with running.first_is(site):
        id_ = running.submit(PROGRAM, "-N2", "--gres=gpu:8", "--time=60", *options, user=USER)
        before = running.await_state(id_, "RUNNING")
        assert before["site"] == site
        within(60, lambda: len(steps_of(before)) > 10)
        dies = steps_of(before)[0].nodes[1]
        at(site, "sh", "-c", killed_node(dies))
        try:
            (row,) = running.await_end(id_)
        finally:
            at(site, "slurmd", "-N", dies)
    steps = steps_of(before)
    assert row["state"] == "COMPLETED", output_of(row, USER)
    assert [step.number for step in steps] == list(range(1, STEPS + 1))  # none lost, none twice
    assert dies not in steps[-1].nodes
    return before, row, steps


def lost_s(steps: list[Step]) -> float:
    return max(after.at_s - step.at_s for step, after in pairwise(steps))


@pytest.mark.parametrize("site", SITES)
def test_a_gang_goes_on_on_its_spare_node_in_the_same_job(
    running: Running, site: str, record_property: Callable[[str, object], None]
) -> None:
    before, row, steps = goes_on(running, site, "--fed-spare=1")
    assert (before["nodes"], before["gpus"], before["spare"]) == (3, 24, 1)
    assert (row["attempt"], row["site_job_id"]) == (1, before["site_job_id"])
    assert [sorted({s.launch for s in steps}), {s.attempt for s in steps}] == [[1, 2], {1}]
    assert steps[0].nodes == before["node_names"][:2]
    assert steps[-1].nodes == [before["node_names"][0], before["node_names"][2]]
    spare_s = lost_s(steps)

    *_, requeued, steps = goes_on(running, site)
    assert requeued["attempt"] == 2
    record_property("spare_s", spare_s)
    record_property("requeued_s", lost_s(steps))
    print(f"{site}: on the spare after {spare_s:.1f} s, requeued after {lost_s(steps):.1f} s")
