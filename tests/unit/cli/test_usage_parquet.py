"""``federator usage --parquet``: a file a day, in which DuckDB finds what the command tells."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import ColumnElement, delete

from federator.cli import usage_parquet, usage_report
from federator.errors import InvalidRequest
from federator.history import schema
from federator.history.database import open_reader, open_writer, put_rows, transaction
from federator.history.supply import SupplyWriter
from federator.history.usage_query import find, question_of
from federator.history.usage_sums import counted_anew
from federator.model.prices import PriceList
from federator.model.viewer import Viewer
from federator.usage.report import report
from federator.usage.supply import SupplyRow
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow
from federator.wire.client_protocol import Call
from federator.wire.usage_messages import UsageCall, UsageReply
from tests.fakes.usage_rows import attempt_use, attempt_values

DOCS: Final = Path(__file__).parents[3] / "docs" / "usage.md"
NOW_S: Final = 1_764_072_000.0  # 2025-11-25 12:00 UTC
NOVEMBER_S: Final = 1_761_955_200.0
DAY: Final = schema.usage_days.c.day
FIRST_DAY: Final = int(NOVEMBER_S // 86_400)
KEPT: Final = "9 kept, of which the history has less now: 2025-11-02 to 2025-11-10"
CONFIG: Final = """
federation: demo
store: sqlite:///{folder}/queue.db
prices:
  currency: EUR
  rules:
    - {{gpu_type: a100, tier: spot, gpu_h: 0.9, until: 2025-11-10}}
    - {{gpu_h: 2.0, cpu_h: 0.03}}
regions: {{north: {{shared: /shared}}}}
sites: {{alpine: {{region: north, command: [x], partitions: [gpu]}}}}
"""


class Fleet:
    """A history of November, and the command that reads it."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/queue-history.db"
        self.config = folder / "federation.yaml"
        self.config.write_text(CONFIG.format(folder=folder))
        self.out = folder / "usage"
        engine = open_writer(self.url)
        with transaction(engine) as connection:
            schema.prepare(connection)
            place = {"first": 0, "next": 1, "crc": 0, "within_snapshot": False, "at_s": NOW_S}
            connection.execute(schema.log_place.insert().values(one=1, **place))
        supply = SupplyWriter(engine)
        for number in range(8):
            kind = "a100" if number % 2 else "h100"
            row = SupplyRow(f"site{number}", kind, 0.0, 1, 9, 999, 9, 9)
            supply.note([row], NOVEMBER_S + 3600 * number)
        engine.dispose()
        self.ends([NOW_S - 9_973 * k for k in range(1, 200)])

    def ends(self, at_s: Sequence[float], first: int = 1) -> None:
        """One attempt ended at each of these times."""
        engine = open_writer(self.url)
        rows = [attempt_values(k, attempt_use(k, end_s)) for k, end_s in enumerate(at_s, first)]
        with transaction(engine) as connection, counted_anew(connection, [r["id"] for r in rows]):
            put_rows(connection, schema.attempts, iter(rows), replace=True)
        engine.dispose()

    def runs(self, number: int, since_s: float) -> None:
        """An attempt of 8 GPUs runs."""
        made = AccountingAttempt(
            attempt=1,
            site="site1",
            partition="gpu",
            gpus=8,
            gpu_types="a100=8",
            awarded_at_s=since_s - 20,
            started_at_s=since_s,
        )
        row = AccountingRow(
            id=number, name="long", user=f"user{number}", tenant="tenant1", submitted_at_s=1.0
        )
        row.last = made
        engine = open_writer(self.url)
        with transaction(engine) as connection:
            packed = iter([{"id": number, "row": msgspec.msgpack.encode(row)}])
            put_rows(connection, schema.live, packed, replace=True)
        engine.dispose()

    def forgets(self, *which: ColumnElement[bool]) -> None:
        """These sums are deleted."""
        engine = open_writer(self.url)
        with transaction(engine) as connection:
            connection.execute(delete(schema.usage_days).where(*which))
        engine.dispose()

    def ends_of(self, number: int) -> None:
        """What ran does so no longer."""
        engine = open_writer(self.url)
        with transaction(engine) as connection:
            connection.execute(delete(schema.live).where(schema.live.c.id == number))
        engine.dispose()

    def run(self, *words: str) -> Result:
        ended = CliRunner().invoke(usage_report.usage, [*words, "--config", str(self.config)])
        if ended.exception is not None:
            raise ended.exception
        return ended

    def export(self, *words: str) -> str:
        return self.run("--parquet", str(self.out), "--month", "2025-11", *words).stdout

    def files(self) -> dict[str, int]:
        """Files, and when each was written."""
        return {path.name: path.stat().st_mtime_ns for path in self.out.iterdir()}


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def query_of_the_docs() -> str:
    (shown,) = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
    return str(shown).replace("2026-10", "2025-11")


def told(fleet: Fleet, *by: str) -> list[dict[str, str]]:
    words = ("--by", ",".join(by), "--month", "2025-11", "--csv")
    return list(csv.DictReader(io.StringIO(fleet.run(*words).stdout)))


def asked(fleet: Fleet, query: str) -> dict[tuple[object, ...], tuple[Any, ...]]:
    """By the first two columns, as DuckDB answers where the files are."""
    here = Path.cwd()
    os.chdir(fleet.out.parent)
    try:
        found = duckdb.sql(query)
        assert found is not None
        rows = found.fetchall()
    finally:
        os.chdir(here)
    return {row[:2]: row[2:] for row in rows}


def test_the_query_of_the_docs_tells_what_the_command_tells_of_a_month(fleet: Fleet) -> None:
    assert fleet.export() == "25 days written, 0 unchanged\n"
    found = asked(fleet, query_of_the_docs())
    lines = told(fleet, "tenant", "gpu-type")
    owned = {key: figures for key, figures in found.items() if key[0] is not None}
    assert len(owned) == len(lines) >= 50
    for line in lines:
        gpu_h, lost_h, cost, idle_h = owned[line["tenant"], line["gpu_type"]]
        assert idle_h is None
        assert (gpu_h, lost_h, cost) == pytest.approx(
            tuple(float(line[name]) for name in ("gpu_h", "lost_gpu_h", "cost")), abs=1e-6
        )


def test_every_sum_of_the_files_is_the_commands(fleet: Fleet) -> None:
    fleet.export()
    columns = pq.read_schema(fleet.out / "usage-2025-11-03.parquet").names
    times = [name for name in columns if name.endswith("_gpu_ms")]
    sums = ", ".join(f"sum({name}) AS {name}" for name in times)
    query = f"SELECT site, gpu_type, {sums} FROM 'usage/*.parquet' GROUP BY ALL"
    found = asked(fleet, query)
    lines = told(fleet, "site", "gpu-type")
    assert len(lines) == len(found)
    compared = 0
    for line in lines:
        figures = dict(zip(times, found[line["site"], line["gpu_type"]], strict=True))
        for name, figure in figures.items():
            named = name.removeprefix("held_").replace("over_", "borrowed_")
            written = line.get(f"{named.removesuffix('_ms')}_h")
            if written:
                compared += 1
                assert (figure or 0) / 3.6e6 == pytest.approx(float(written), abs=1e-6), name
    assert compared >= 8 * 20


def test_a_day_is_written_again_only_if_it_changed(fleet: Fleet) -> None:
    fleet.export()
    before = fleet.files()
    assert fleet.export() == "0 days written, 25 unchanged\n"
    assert fleet.files() == before
    fleet.ends([NOVEMBER_S + 9.5 * 86_400], first=1000)
    assert fleet.export() == "1 day written, 24 unchanged\n"
    after = fleet.files()
    assert {name for name in after if after[name] != before[name]} == {"usage-2025-11-10.parquet"}
    assert not [name for name in after if not name.startswith("usage-")]


def test_days_to_come_and_days_before_everything_have_no_file(fleet: Fleet) -> None:
    days = ("--start", "2025-10-20", "--end", "2025-11-30T12:00")
    assert fleet.run("--parquet", str(fleet.out), *days).stdout == (
        "25 days written, 12 unchanged\n"
    )
    assert min(fleet.files()) == "usage-2025-11-01.parquet"
    assert max(fleet.files()) == "usage-2025-11-25.parquet"


def test_a_day_that_the_history_has_deleted_keeps_its_file(fleet: Fleet) -> None:
    fleet.export()
    before = fleet.files()
    fleet.forgets(DAY < FIRST_DAY + 10)
    assert fleet.export() == f"0 days written, 16 unchanged; {KEPT}\n"
    assert fleet.files() == before


def test_what_still_runs_does_not_replace_the_files_of_deleted_days(fleet: Fleet) -> None:
    """A job that is longer than ``keep_days``, or a history that has begun anew."""
    fleet.runs(2000, NOVEMBER_S - 86_400)
    fleet.export()
    before = fleet.files()
    fleet.forgets(DAY < FIRST_DAY + 10)
    assert fleet.export() == f"0 days written, 16 unchanged; {KEPT}\n"
    assert fleet.files() == before
    fleet.runs(2001, NOVEMBER_S - 86_400)  # nor a line more
    assert fleet.export() == f"16 days written, 0 unchanged; {KEPT}\n"


def test_the_day_on_which_a_history_began_anew_keeps_its_file(fleet: Fleet) -> None:
    fleet.export()
    before = fleet.files()
    half = [f"site{number}" for number in range(4)]
    fleet.forgets(DAY == FIRST_DAY + 9, schema.usage_days.c.site.in_(half))
    assert fleet.export() == (
        "0 days written, 24 unchanged; 1 kept, of which the history has less now: 2025-11-10\n"
    )
    assert fleet.files() == before


def test_a_day_on_which_nothing_ended_keeps_its_file_too(fleet: Fleet) -> None:
    fleet.forgets()
    for number in (2000, 2001):
        fleet.runs(number, NOVEMBER_S - 86_400)
    fleet.export()
    before = fleet.files()
    fleet.ends_of(2001)
    said = fleet.export()
    assert "24 kept, of which the history has less now: 2025-11-01 to 2025-11-24\n" in said
    changed = {name for name, at in fleet.files().items() if at != before[name]}
    assert changed <= {"usage-2025-11-25.parquet"}  # which is not over


def test_a_job_that_ended_earlier_than_was_thought_is_taken_off(fleet: Fleet) -> None:
    fleet.runs(2000, NOVEMBER_S + 4.5 * 86_400)
    fleet.export()
    fleet.ends_of(2000)
    assert fleet.export() == "21 days written, 4 unchanged\n"
    assert fleet.export() == "0 days written, 25 unchanged\n"


@pytest.mark.parametrize("column", ["attempts", "held_gpu_ms"])
def test_a_file_with_columns_of_another_kind_is_written_anew(fleet: Fleet, column: str) -> None:
    fleet.export()
    path = fleet.out / "usage-2025-11-03.parquet"
    older = pq.read_table(path)
    at = older.column_names.index(column)
    text = pa.array([""] * len(older))
    pq.write_table(older.set_column(at, column, text), path)
    assert fleet.export() == "1 day written, 24 unchanged\n"


def test_a_file_of_others_is_never_written_over(fleet: Fleet) -> None:
    fleet.export()
    before = fleet.files()
    with pytest.raises(InvalidRequest, match="name another folder"):
        fleet.export("-A", "tenant1")
    (fleet.out / "usage-2025-11-01.parquet").write_text("no such thing")
    with pytest.raises(InvalidRequest, match=r"01\.parquet: cannot be read: .*; move it away"):
        fleet.export()
    assert fleet.files().keys() == before.keys()
    with pytest.raises(InvalidRequest, match="neither --html nor --mail"):
        fleet.export("--html", str(fleet.out / "page.html"))


def test_a_member_has_files_of_their_own_work_without_supply(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenants = {"tenant1"}

    def answer(call: Call) -> UsageReply:
        """As the daemon answers a member."""
        assert isinstance(call, UsageCall)
        viewer = Viewer(user="nobody", tenants=frozenset(tenants))
        found = find(open_reader(fleet.url), question_of(call, viewer, PriceList()))
        made = report(found, call.by, PriceList(), shows_supply=False)
        return UsageReply(report=made, federation="demo", is_whole=False)

    monkeypatch.setattr(usage_report, "call", answer)
    words = ["--parquet", str(fleet.out), "--month", "2025-11"]
    CliRunner().invoke(usage_report.usage, words, catch_exceptions=False)
    lines = [row for path in fleet.out.iterdir() for row in pq.read_table(path).to_pylist()]
    assert {row["tenant"] for row in lines} == {"tenant1"}
    assert {row["supply_gpu_ms"] for row in lines} == {None}
    before = fleet.files()
    assert "usage-2025-11-01.parquet" not in before
    with pytest.raises(InvalidRequest, match="name another folder"):
        fleet.export()  # an admin's are not put among them
    assert fleet.files() == before
    tenants.add("tenant2")
    monkeypatch.setattr(usage_parquet, "my_name", lambda: "bob")
    with pytest.raises(InvalidRequest, match="name another folder"):
        CliRunner().invoke(usage_report.usage, words, catch_exceptions=False)
    assert fleet.files() == before  # nor another member's


def test_an_answer_that_leaves_lines_off_is_not_kept(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(call: Call) -> UsageReply:
        assert isinstance(call, UsageCall)
        found = find(open_reader(fleet.url), question_of(call, None, PriceList()))
        return UsageReply(report=report(found, call.by, PriceList(), most=2), federation="demo")

    monkeypatch.setattr(usage_report, "call", answer)
    words = ["--parquet", str(fleet.out), "--month", "2025-11"]
    with pytest.raises(InvalidRequest, match="more lines than the daemon tells at once"):
        CliRunner().invoke(usage_report.usage, words, catch_exceptions=False)
    assert fleet.files() == {}


def test_without_pyarrow_it_is_refused_before_anything_is_asked(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(name: str) -> None:
        assert name == "pyarrow"

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(InvalidRequest, match="Parquet needs pyarrow, which is not installed here"):
        fleet.export()
    assert not fleet.out.exists()
