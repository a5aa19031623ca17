"""``federator rank`` prints the order of a queue, and what each place is owed to."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from federator.cli import main as admin
from federator.cli.rank import rank
from tests.unit.cli.test_queue_file import EXAMPLE

CONFIG = """\
federation: demo
store: 'memory:'
regions: {west: {shared: /shared}}
gpus: {a100: {mem_gib: 80}, h100: {mem_gib: 80, weight: 2}}
sites: {alpine: {region: west, partitions: [gpu], command: [agent]}}
tenants:
"""
TENANTS = """\
  vision: {priority: 2, quota: {gpus: 64, cpus: 1024}, limit: {gpus: 256}}
  nlp: {priority: 3, quota: {gpus: 32}}
"""


def waiting(
    id_: int, tenant: str, gpus: int = 8, at_s: float = 0, **more: object
) -> dict[str, Any]:
    job = {"nodes": 1, "gpus_per_node": gpus, **more.pop("job", {})}  # type: ignore[dict-item]
    return {"id": id_, "tenant": tenant, "submitted_at_s": at_s, "jobs": [job], **more}


class Bench:
    """The command with its two files."""

    def __init__(self, folder: Path) -> None:
        self.config, self.queue = folder / "federation.yaml", folder / "queue.json"
        self.words = ["--config", str(self.config), "--queue", str(self.queue)]
        self.write(EXAMPLE)

    def write(self, queue: str, tenants: str = TENANTS, policy: str = "") -> None:
        self.config.write_text(CONFIG.replace("tenants:", policy + "tenants:") + tenants)
        self.queue.write_text(queue)

    def run(self, *words: str) -> Result:
        result = CliRunner().invoke(rank, [*self.words, *words], catch_exceptions=False)
        assert result.exit_code == 0
        return result

    def rank(
        self, pending: list[dict[str, Any]], tenants: str = TENANTS, **more: Any
    ) -> list[dict[str, Any]]:
        running = [
            {k: v for k, v in w.items() if k != "submitted_at_s"} for w in more.pop("running", [])
        ]
        document = {"now_s": 36000, "pending": pending, "running": running, **more}
        self.write(json.dumps(document), tenants)
        rows: list[dict[str, Any]] = json.loads(self.run("--json").stdout)
        return rows


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_example_as_json(bench: Bench) -> None:
    assert bench.run("--json").stdout == (
        '[\n{"id":7,"priority":3,"within_quota":true,"credit":8.492063492063494,'
        '"age_term":2.7777777777777777,"fair_share_term":5.714285714285715,"nice_term":0.0,'
        '"non_preemptible_term":0.0,"position":1,"held_by":null}\n]\n'
    )


def test_the_example_as_a_table(bench: Bench) -> None:
    assert [line.split() for line in bench.run().stdout.splitlines()] == [
        [
            "POS",
            "ID",
            "TENANT",
            "PRIO",
            "QUOTA",
            "CREDIT",
            "AGE",
            "FAIRSHARE",
            "NICE",
            "NOPREEMPT",
            "GPUS",
            "CPUS",
            "REASON",
        ],
        [
            "1",
            "7",
            "nlp",
            "3",
            "within",
            "8.492",
            "2.778",
            "5.714",
            "0.000",
            "0.000",
            "8",
            "64",
            "-",
        ],
    ]


def test_who_may_not_be_evicted_pays_for_it(bench: Bench) -> None:
    rows = bench.rank(
        [waiting(1, "nlp", at_s=0) | {"preemptible": False}, waiting(2, "nlp", at_s=3600)]
    )
    assert [(row["id"], row["non_preemptible_term"]) for row in rows] == [(2, 0.0), (1, 2.0)]


def test_an_empty_queue_is_an_empty_list(bench: Bench) -> None:
    assert bench.rank([]) == []
    assert bench.run("--json").stdout == "[]\n"
    assert len(bench.run().stdout.splitlines()) == 1


def test_the_order_is_by_priority_then_credit(bench: Bench) -> None:
    rows = bench.rank(
        [
            waiting(1, "nlp", at_s=0),
            waiting(2, "vision", at_s=3600),
            waiting(3, "vision", at_s=1800),
        ],
        usage={"vision": 1},
    )
    assert [(r["position"], r["id"], r["priority"], r["credit"]) for r in rows] == [
        (1, 3, 2, 9.5),
        (2, 2, 2, 9.0),
        (3, 1, 3, 34.0),
    ]


def test_ties_go_to_the_earlier_submission_then_to_the_smaller_id(bench: Bench) -> None:
    now_s = 200 * 3600  # all have waited longer than counts
    rows = bench.rank(
        [waiting(5, "nlp", at_s=9), waiting(4, "nlp", at_s=9), waiting(9, "nlp", at_s=8)],
        now_s=now_s,
    )
    assert [row["id"] for row in rows] == [9, 4, 5]
    assert len({row["credit"] for row in rows}) == 1


def test_what_does_not_fit_the_quota_is_lowest_and_a_later_one_still_fits(bench: Bench) -> None:
    rows = bench.rank([waiting(1, "nlp", 24), waiting(2, "nlp", 16, 1), waiting(3, "nlp", 8, 2)])
    found = [(row["id"], row["priority"], row["within_quota"]) for row in rows]
    assert found == [(1, 3, True), (3, 3, True), (2, 7, False)]
    last = bench.run().stdout.splitlines()[-1]
    assert last.endswith("16       1 (quota of nlp: 32 GPUs, 0 held, 32 promised, 16 asked)")


def test_all_that_runs_counts_as_used(bench: Bench) -> None:
    (row,) = bench.rank([waiting(1, "nlp", 16)], running=[waiting(2, "nlp", 24)])
    assert (row["within_quota"], row["priority"], row["held_by"]) == (False, 7, None)


def test_a_tenant_without_a_quota_is_over_quota(bench: Bench) -> None:
    (row,) = bench.rank([waiting(1, "lab")], "  lab: {priority: 1}\n")
    assert (row["within_quota"], row["priority"]) == (False, 7)
    assert bench.run().stdout.endswith("(no quota)\n")


def test_a_parents_quota_bounds_the_sum(bench: Bench) -> None:
    tenants = (
        "  lab: {quota: {gpus: 16}}\n"
        "  a: {parent: lab, priority: 1, quota: {gpus: 16}}\n"
        "  b: {parent: lab, priority: 1, quota: {gpus: 16}}\n"
    )
    rows = bench.rank([waiting(1, "a", 8), waiting(2, "b", 8, 1), waiting(3, "a", 8, 2)], tenants)
    assert [(row["id"], row["within_quota"]) for row in rows] == [(1, True), (2, True), (3, False)]
    assert "(quota of lab: 16 GPUs, 0 held, 16 promised, 8 asked)" in bench.run().stdout


def test_a_quota_of_one_gpu_type_bounds_that_type(bench: Bench) -> None:
    tenants = "  a: {priority: 1, quota: {gpus: 64, gpu_types: {h100: 8}}}\n"
    h100, either = {"gpu_types": ["h100"]}, {"gpu_types": ["a100", "h100"]}
    rows = bench.rank(
        [waiting(1, "a", job=h100), waiting(2, "a", job=h100), waiting(3, "a", job=either)],
        tenants,
    )
    assert [(row["id"], row["within_quota"]) for row in rows] == [(1, True), (3, True), (2, False)]
    assert "(quota of a: 8 h100 GPUs, 0 held, 8 promised, 8 asked)" in bench.run().stdout


def test_nice_and_an_own_lower_priority_move_a_workload_back(bench: Bench) -> None:
    rows = bench.rank(
        [waiting(1, "nlp", priority=5), waiting(2, "nlp", nice=100), waiting(3, "nlp", priority=1)]
    )
    found = [(row["id"], row["priority"], row["nice_term"]) for row in rows]
    assert found == [(3, 3, 0.0), (2, 3, 1.0), (1, 5, 0.0)]


def test_a_limit_of_the_tenant_or_an_ancestor_holds_a_workload(bench: Bench) -> None:
    tenants = (
        "  lab: {limit: {gpus: 32}, quota: {gpus: 32}}\n"
        "  a: {parent: lab, quota: {gpus: 8}}\n"
        "  b: {parent: lab, quota: {gpus: 8}}\n"
    )
    rows = bench.rank(
        [waiting(1, "a"), waiting(2, "a", 4, 1)], tenants, running=[waiting(9, "b", 28)]
    )  # borrowed: counts against the parent's limit, not against its quota
    held = {row["id"]: row["held_by"] for row in rows}
    assert held == {
        1: {"code": "FedLimit", "tenant": "lab", "unit": "GPUs", "needed": 8, "free": 4},
        2: None,
    }
    (line,) = (line for line in bench.run().stdout.splitlines() if line.split()[1] == "1")
    assert "tenant lab" in line
    assert line.split()[4] == "within"


def test_another_policy_is_told_of_and_changes_nothing(bench: Bench) -> None:
    usual = bench.run("--json")
    bench.write(EXAMPLE, policy="policy: {name: fifo}\n")
    result = bench.run("--json")
    assert result.stdout == usual.stdout
    assert usual.stderr == ""
    assert (
        result.stderr
        == "federator rank: note: policy.name is global-fifo; this is the order of mast\n"
    )


def test_rows_beyond_one_chunk_stay_one_list(bench: Bench) -> None:
    count = 20_001
    rows = bench.rank([waiting(id_, "nlp", at_s=id_ / 10) for id_ in range(count)])
    assert [row["position"] for row in rows] == list(range(1, count + 1))
    assert [row["id"] for row in rows] == list(range(count))
    assert len(bench.run().stdout.splitlines()) == count + 1


@pytest.mark.parametrize(
    ("queue", "config", "status"),
    [("{", None, os.EX_USAGE), (None, None, os.EX_USAGE), (EXAMPLE, "sites: 3", os.EX_CONFIG)],
)
def test_a_mistake_is_one_message_and_the_status_of_its_kind(
    bench: Bench,
    queue: str | None,
    config: str | None,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if queue is None:
        bench.queue.unlink()
    else:
        bench.queue.write_text(queue)
    if config is not None:
        bench.config.write_text(config)
    monkeypatch.setattr(sys, "argv", ["federator", "rank", *bench.words])
    with pytest.raises(SystemExit) as ended:
        admin.main()
    assert ended.value.code == status
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(
        f"federator: error: {bench.queue if status == os.EX_USAGE else bench.config}:"
    )
