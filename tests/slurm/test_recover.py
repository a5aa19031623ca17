"""The daemon's database is gone: what ran runs on, what waited runs once, nothing runs twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from federator.testbed import layout
from tests.slurm.federation import Running, starts, traced, until

pytestmark = pytest.mark.slurm
GANG = (f"--nodes={layout.GPU_NODES.count}", "--gres=gpu:8", "--time=10")
WAITS = traced() + until("recovered")
CPUS = ("--cpus-per-task=1", "--time=10")


def export(running: Running, path: Path) -> None:
    done = running.run(
        "federator", "log", "export", "--config", str(running.config), "--out", str(path)
    )
    assert done.returncode == 0, done.stderr


def test_a_lost_database_is_rebuilt_from_the_sites_and_an_export(
    alone: Running, go: Callable[..., None], tmp_path: Path
) -> None:
    gangs = [alone.submit(WAITS, *GANG) for _ in layout.SITES]
    for id_ in gangs:
        alone.await_state(id_, "RUNNING")
    pending = [alone.submit(traced(1), "--gres=gpu:8") for _ in range(6)]
    array = alone.submit(traced(1), "--gres=gpu:8", "--array=0-3%2")
    ends = alone.submit(traced() + until("exported"), *CPUS)
    alone.await_state(ends, "RUNNING")
    export(alone, tmp_path / "queue.jsonl")
    go(word="exported")
    alone.await_end(ends)
    later = alone.submit(WAITS, *CPUS)
    alone.await_state(later, "RUNNING")
    over = alone.submit(traced(0), *CPUS)
    alone.await_end(over)
    before = {row["id"]: row for row in alone.rows()}

    alone.kill()
    for file in alone.folder.glob("queue.db*"):
        file.unlink()
    told = alone.run(
        "federator",
        "recover",
        "--config",
        str(alone.config),
        "--export",
        str(tmp_path / "queue.jsonl"),
        "--json",
    )
    assert told.returncode == 0, told.stderr
    result = json.loads(told.stdout)
    states = {id_: (row["state"], row["attempt"], row["site"]) for id_, row in before.items()}
    assert result["at_sites"] == len(gangs) + 1, states
    assert result["pending"] == len(pending) + 4, (result, states)
    assert (result["from_sites"], result["ended"], result["unknown"]) == (2, 1, [])
    again = alone.run("federator", "recover", "--config", str(alone.config))
    assert "the log is not empty" in again.stderr

    alone.start()
    after = {row["id"]: row for row in alone.rows()}
    assert after.keys() == before.keys()
    for id_ in (*gangs, later, ends, over):
        for key in ("state", "site", "site_job_id", "attempt", "user", "tenant", "started_at_s"):
            assert after[id_][key] == before[id_][key], (id_, key)
    go(word="recovered")
    rows = alone.await_end(*before, timeout_s=150)
    assert {row["state"] for row in rows} == {"COMPLETED"}
    assert {row["attempt"] for row in rows} == {1}
    ids = [row["id"] for row in rows]
    assert {array + k for k in range(4)} <= set(ids)
    ran = starts(*ids)
    assert [start[0] for start in ran] == sorted(ids)
    told_of = sorted((r["id"], r["attempt"], r["site"], r["site_job_id"]) for r in rows)
    assert [start[:3] for start in ran] == [row[:3] for row in told_of]
