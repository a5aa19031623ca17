"""``federator capacity advise``: from a history to loads, waits, and what more GPUs change."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from federator.cli.capacity import capacity
from federator.errors import FederatorError, InvalidRequest
from federator.history import schema
from federator.history.database import open_writer, put_rows, transaction
from federator.history.supply import SupplyWriter
from federator.history.usage_sums import count_some
from federator.usage.supply import SupplyRow
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow

DAY_S = 86_400.0
NOW_S = 1_764_072_000.0  # 2025-11-25 12:00 UTC
FIRST_S = (NOW_S // DAY_S - 9) * DAY_S
CONFIG = """\
federation: demo
store: sqlite:///{folder}/queue.db
regions: {{r: {{shared: /s}}}}
sites:
  alpine: {{region: r, partitions: [gpu], command: ["true"]}}
tenants:
  vision: {{users: [ada], priority: 2, quota: {{gpus: 64}}}}
"""


def job(
    number: int,
    came_s: float,
    waited_s: float,
    ran_s: float,
    nodes: int = 1,
    gpu_type: str = "a100",
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rows of a workload that held nodes of 8 GPUs, and of its attempt."""
    made = AccountingAttempt(
        attempt=1,
        site="alpine",
        partition="gpu",
        nodes=nodes,
        cpus=8,
        gpus=8 * nodes,
        gpu_types=f"{gpu_type}={8 * nodes}",
        awarded_at_s=came_s + waited_s,
        started_at_s=came_s + waited_s,
        ended_at_s=came_s + waited_s + ran_s,
        state="COMPLETED",
    )
    row = AccountingRow(
        id=number, name="train", user="ada", tenant="vision", submitted_at_s=came_s, asked_gpus=8
    )
    times = {"eligible_at_s": came_s, "over_at_s": made.ended_at_s}
    values = msgspec.structs.asdict(made) | msgspec.structs.asdict(row) | times
    own = {c.name: values[c.name] for c in schema.workloads.columns}
    at_site = msgspec.structs.asdict(made) | {"id": number, "counted": 0}
    del at_site["use"], at_site["facts"]
    return own, at_site


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten days: each morning six jobs of three hours come to two nodes, and wait for each other."""
    monkeypatch.setattr(time, "time", lambda: NOW_S)
    (tmp_path / "federation.yaml").write_text(CONFIG.format(folder=tmp_path))
    engine = open_writer(f"sqlite:///{tmp_path}/queue-history.db")
    jobs = [
        job(1000 + 10 * day + k, FIRST_S + day * DAY_S + 60, k // 2 * 10_800.0, 10_800.0)
        for day in range(10)
        for k in range(6)
    ]
    with transaction(engine) as connection:
        schema.prepare(connection)
        connection.execute(
            schema.log_place.insert().values(
                one=1, first=0, next=1, crc=0, within_snapshot=False, at_s=NOW_S
            )
        )
    keep(tmp_path, jobs)
    supply(tmp_path, SupplyRow("alpine", "a100", 0.0, 1, 2, 16, 64, 1 << 20))
    return tmp_path


def keep(folder: Path, jobs: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Put jobs into the history."""
    engine = open_writer(f"sqlite:///{folder}/queue-history.db")
    with transaction(engine) as connection:
        put_rows(connection, schema.workloads, (own for own, _ in jobs), replace=False)
        put_rows(connection, schema.attempts, (made for _, made in jobs), replace=False)
    while count_some(engine):
        pass


def supply(folder: Path, *rows: SupplyRow) -> None:
    """Have the site have these, all the time."""
    SupplyWriter(open_writer(f"sqlite:///{folder}/queue-history.db")).note(rows, FIRST_S)


def asked(folder: Path, *words: str) -> str:
    argv = ["advise", "--config", str(folder / "federation.yaml"), *words]
    result = CliRunner().invoke(capacity, argv, standalone_mode=False)
    if isinstance(result.exception, FederatorError):
        raise result.exception
    assert result.exception is None, result.exception
    return result.output


def test_twice_the_nodes_halve_the_wait_that_the_load_explains(folder: Path) -> None:
    head, line, *advice = asked(folder, "--more", "32").splitlines()
    assert " ".join(head.split()) == "GPUTYPE GPUS JOBS LOAD C_S WAITMEAN WAITP95 FORMULA"
    cells = line.split()
    assert cells[:3] == ["a100", "16", "60"]
    assert cells[4:7] == ["0.00", "03:00:00", "06:00:00"]
    assert advice[0].startswith("a100: less than 70% is used")
    assert advice[1].startswith("a100: 32 GPUs more: P95 wait 06:0")
    assert advice[1].endswith("(0.00 to 0.00): it halves")


def test_json_has_each_figure_with_its_interval(folder: Path) -> None:
    found = json.loads(asked(folder, "--more", "8", "--json"))
    (pool,) = found["pools"]
    assert (found["more_gpus"], pool["gpu_type"], pool["jobs"]) == (8, "a100", 60)
    assert pool["load_frac"] == pytest.approx(60 * 8 * 3 / (16 * (9.5 * 24)), rel=0.01)
    assert pool["servers"] == 2
    more = pool["with_more"]
    assert more["ratio_low"] <= more["ratio"] <= more["ratio_high"]
    assert more["p95_after_s"] < more["p95_before_s"]
    assert more["workloads"] == 60


def test_jobs_of_whole_nodes_are_simulated_where_other_nodes_are_smaller(folder: Path) -> None:
    """One node of 4 GPUs beside two of 8: no node of the mean size holds a job of 8."""
    (alone,) = json.loads(asked(folder, "--json"))["pools"]
    supply(folder, SupplyRow("alpine", "a100", 0.0, 1, 3, 20, 64, 1 << 20))
    (pool,) = json.loads(asked(folder, "--json"))["pools"]
    assert pool["gpus"] == 16, "in nodes of the size that work had"
    assert pool["with_more"] == alone["with_more"]
    assert pool["with_more"]["workloads"] == pool["jobs"] == 60


def test_it_says_how_much_work_is_not_in_the_simulation(folder: Path) -> None:
    """Two nodes of a type are left: what held four never starts, with one more or without."""
    gangs = [job(2000 + k, FIRST_S + 60, 0.0, 60.0, nodes=4) for k in range(6)]
    keep(folder, [*gangs, job(3000, FIRST_S + 60, 0.0, 60.0, nodes=4, gpu_type="h100")])
    few = [SupplyRow("alpine", name, 0.0, 1, 2, 16, 64, 1 << 20) for name in ("a100", "h100")]
    supply(folder, *few)
    *_, gain, warning, _, none = asked(folder, "--more", "8").splitlines()
    assert gain.startswith("a100: 8 GPUs more: P95 wait ")
    assert warning == "a100: 6 of 66 workloads never start in the simulation: they are not in that"
    assert none == "h100: 8 GPUs more: none of its work could be simulated"
    supplied = json.loads(asked(folder, "--more", "8", "--json"))["pools"]
    assert [pool["with_more"]["workloads"] for pool in supplied] == [60, 0]


def test_days_before_those_asked_for_do_not_count(folder: Path) -> None:
    (pool,) = json.loads(asked(folder, "--days", "2", "--json"))["pools"]
    assert pool["jobs"] == 18, "of two days before and today"


def test_of_a_busy_time_the_last_days_are_simulated_and_it_says_so(folder: Path) -> None:
    *_, gain, bound = asked(folder, "--more", "8", "--most", "20").splitlines()
    assert gain.startswith("a100: 8 GPUs more: P95 wait ")
    assert bound == "simulated: the last 3 days, 18 of 60 workloads; --most for more"
    found = json.loads(asked(folder, "--more", "8", "--most", "20", "--json"))
    (pool,) = found["pools"]
    assert (pool["jobs"], pool["with_more"]["workloads"]) == (60, 18)
    assert found["simulated_from_s"] == FIRST_S + 7 * DAY_S


def test_of_a_day_that_is_too_busy_its_last_workloads_are_simulated(folder: Path) -> None:
    (pool,) = json.loads(asked(folder, "--more", "8", "--most", "4", "--json"))["pools"]
    assert pool["with_more"]["workloads"] == 6, "all of that day came at once"


def test_a_time_with_few_enough_workloads_is_simulated_as_a_whole(folder: Path) -> None:
    assert "simulated:" not in asked(folder, "--more", "8", "--most", "60")


def test_what_cannot_be_advised_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidRequest, match="no site has 'h100'"):
        asked(folder, "--gpu-type", "h100")
    path = folder / "federation.yaml"
    path.write_text(path.read_text() + "history: {url: none}\n")
    with pytest.raises(InvalidRequest, match="no history is kept"):
        asked(folder)
