"""``federator usage``: what it asks for, and every form in which it shows the answer."""

from __future__ import annotations

import csv
import html.parser
import io
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from federator.cli import usage_report
from federator.cli.usage_report import days_asked
from federator.errors import HistoryError, InvalidRequest, SiteUnavailable
from federator.history import schema
from federator.history.database import open_writer, put_rows, transaction
from federator.history.usage_sums import count_some
from federator.usage.rows import UsageReport, UsageRow
from federator.wire.client_protocol import Call, ErrorKind, ErrorReply
from federator.wire.replies import Reply
from federator.wire.usage_messages import UsageCall, UsageReply
from tests.fakes.usage_rows import attempt_use, attempt_values

HOUR_MS = 3_600_000
DAY_S = 86_400.0
NOW_S = 1_764_072_000.0  # 2025-11-25 12:00 UTC
NOVEMBER_S = 1_761_955_200.0
VISION = UsageRow(
    key=("vision",),
    sums={
        "unknown_gpu_ms": 60 * HOUR_MS,
        "productive_gpu_ms": 30 * HOUR_MS,
        "lost_preemption_gpu_ms": 10 * HOUR_MS,
        "cpu_ms": 400 * HOUR_MS,
        "mem_mib_s": 2 * 1024 * 3600,
        "over_gpu_ms": 5 * HOUR_MS,
        "tax_paid_gpu_ms": 12 * HOUR_MS,
        "watched_gpu_ms": 100 * HOUR_MS,
        "busy_gpu_ms": 25 * HOUR_MS,
        "attempts": 7,
    },
    cost=200.0,
)
TOTAL = UsageRow(
    sums=VISION.sums,
    free={
        "launching": 0,
        "local": 0,
        "drained": 0,
        "down": 0,
        "unreachable": 0,
        "idle": 100 * HOUR_MS,
    },
    supply_gpu_ms=200 * HOUR_MS,
    cost=200.0,
    idle_cost=150.0,
)


def answer(*rows: UsageRow, total: UsageRow = TOTAL, **more: object) -> UsageReply:
    report = UsageReport(
        by=("tenant",),
        start_s=NOVEMBER_S,
        end_s=NOW_S,
        at_s=NOW_S,
        rows=rows,
        total=total,
        currency="EUR",
        **more,  # type: ignore[arg-type]
    )
    return UsageReply(report=report, federation="demo")


class Run:
    """Runs the command against one answer, and keeps what it asked."""

    def __init__(self) -> None:
        self.reply: Reply = answer(VISION)
        self.asked: list[Call] = []

    def __call__(self, *words: str) -> Result:
        ended = CliRunner().invoke(usage_report.usage, [*words])
        if ended.exception is not None:
            raise ended.exception
        return ended

    def call(self, message: Call) -> Reply:
        self.asked.append(message)
        return self.reply


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    made = Run()
    monkeypatch.setattr(usage_report, "call", made.call)
    return made


@pytest.fixture(params=["UTC", "Asia/Tokyo", "America/Los_Angeles"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("start", "end", "month", "first", "days"),
    [
        ("2025-11-03", "2025-11-05", None, 2, 2),
        ("2025-11-03", "2025-11-05T00:00:01", None, 2, 3),
        ("2025-11-03", "2025-11-03T23:59:59", None, 2, 1),
        (None, None, "2025-11", 0, 30),
        (None, None, "last", -31, 31),
        ("2025-11-03T13:00", "2025-11-03T14:00", None, 2, 1),
    ],
)
def test_days_are_the_dates_that_were_written_whatever_the_time_zone(
    start: str | None, end: str | None, month: str | None, first: int, days: int
) -> None:
    begin_s, end_s = days_asked(start, end, month, NOW_S)
    assert (begin_s - NOVEMBER_S, end_s - begin_s) == (first * DAY_S, days * DAY_S)


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(("hour", "first"), [(-1, -31), (0, 0), (7, 0)])
def test_the_last_month_is_the_last_that_is_over_in_utc(hour: int, first: int) -> None:
    december_s = NOVEMBER_S + 30 * DAY_S
    begin_s, end_s = days_asked(None, None, "last", december_s + hour * 3600)
    assert begin_s - NOVEMBER_S == first * DAY_S
    assert end_s <= december_s + hour * 3600


def test_the_timer_and_the_line_for_cron_run_when_a_month_is_over_in_utc() -> None:
    root = Path(__file__).parents[3]
    timer = (root / "packaging" / "systemd" / "federator-usage.timer").read_text()
    assert "\nOnCalendar=*-*-01 07:00:00 UTC\n" in timer
    docs = (root / "docs" / "usage.md").read_text()
    assert "\n0 7 2 * *  federator  federator usage --month last " in docs


def test_by_default_it_is_this_month_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "localtime", time.gmtime)
    assert days_asked(None, None, None, NOW_S) == (NOVEMBER_S, NOVEMBER_S + 25 * DAY_S)


def test_the_month_before_january_is_last_years(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "localtime", time.gmtime)
    january_s = NOVEMBER_S + 61 * DAY_S
    assert days_asked(None, None, "last", january_s) == (january_s - 31 * DAY_S, january_s)


@pytest.mark.parametrize(
    ("start", "end", "month"),
    [
        ("2025-11-05", "2025-11-03", None),
        (None, None, "2025-13"),
        (None, None, "november"),
        ("2025-11-05", None, "2025-11"),
        ("gestern", None, None),
    ],
)
def test_a_time_that_makes_no_sense_is_refused(
    start: str | None, end: str | None, month: str | None
) -> None:
    with pytest.raises(InvalidRequest):
        days_asked(start, end, month, NOW_S)


def test_it_asks_for_what_it_is_told_to(run: Run) -> None:
    words = ("--by", "account,gpu-type", "--month", "2025-11", "-A", "vision,nlp", "-u", "ada")
    run(*words, "-M", "alpine")
    assert run.asked == [
        UsageCall(
            start_s=NOVEMBER_S,
            end_s=NOVEMBER_S + 30 * DAY_S,
            by=("tenant", "gpu_type"),
            tenants=("vision", "nlp"),
            users=("ada",),
            sites=("alpine",),
        )
    ]
    with pytest.raises(InvalidRequest, match="--by: 'colour'"):
        run("--by", "colour")


def test_the_table_has_a_line_for_each_and_the_sum(run: Run) -> None:
    lines = run("--month", "2025-11").stdout.splitlines()
    assert lines[0] == "Usage of 2025-11-01 to 2025-11-25 12:00:00 (UTC), in hours"
    head, vision, total = (line.split() for line in lines[1:])
    assert dict(zip(head, vision, strict=True)) == {
        "TENANT": "vision",
        "GPU": "100.0",
        "CPU": "400.0",
        "MEM(GIB)": "2.0",
        "COST": "200.00",
        "ALLOC%": "-",
        "COMPUTE%": "25.0",
        "PRODUCT%": "75.0",
        "LOST": "10.0",
        "TAXPAID": "12.0",
        "TAXCAUSED": "0.0",
        "BORROWED": "5.0",
        "SUPPLY": "-",
        "IDLE": "-",
        "IDLECOST": "-",
        "ATTEMPTS": "7",
    }
    whole = dict(zip(head, total, strict=True))
    assert (whole["TENANT"], whole["ALLOC%"], whole["IDLE"]) == ("TOTAL", "50.0", "100.0")


def test_bars_stand_between_and_behind_fields_as_with_sreport(run: Run) -> None:
    plain = run("-P", "-n", "-t", "minutes").output
    assert plain.startswith("vision|6000.0|24000.0|")
    assert run("-p", "-n", "-t", "minutes").output == plain.replace("\n", "|\n")


def test_csv_has_every_figure_and_nothing_that_a_spreadsheet_would_run(run: Run) -> None:
    row = UsageRow(key=('=cmd|"/C calc"!A0',), sums=VISION.sums, cost=1.0)
    run.reply = answer(row)
    (line,) = csv.DictReader(io.StringIO(run("--csv").stdout))
    assert line["tenant"] == '\'=cmd|"/C calc"!A0'
    assert (line["gpu_h"], line["unknown_gpu_h"], line["idle_gpu_h"]) == (
        "100.000000",
        "60.000000",
        "",
    )
    assert (line["cost"], line["currency"], line["productive_frac"]) == (
        "1.000000",
        "EUR",
        "0.750000",
    )


def test_json_has_seconds_by_class(run: Run) -> None:
    told = json.loads(run("--json").stdout)
    assert told["schema"] == 1
    (row,) = told["rows"]
    assert row["key"] == {"tenant": "vision"}
    assert row["gpu_s"]["lost_preemption"] == 36_000.0
    held = sum(row["gpu_s"].values())
    assert (held, row["held_gpu_s"]) == (360_000.0, 360_000.0)
    assert sum(told["total"]["gpu_s"].values()) == told["total"]["supply_gpu_s"]


def test_what_sums_lack_is_said_on_standard_error(run: Run) -> None:
    sums = {"clock_flags": 2, "missing_flags": 1, "job_id_flags": 3}
    total = UsageRow(sums=sums, beyond_gpu_ms=HOUR_MS)
    flagged = {"alpine": {"clock": 2, "job_id": 2}, "cedar": {"job_id": 1}}
    run.reply = answer(total=total, uncounted=5, left_off=3, flagged=flagged)
    told = run("--csv").stderr
    for words in (
        "2 attempts flagged 'clock' (alpine 2)",
        "3 attempts flagged 'job_id' (alpine 2, cedar 1)",
        "a site whose job ids went back has lost its state, or has that of a backup",
        "--by site,day tells the days of what is flagged",
        "1 attempts flagged 'missing'",
        "5 attempts of an",
        "3 lines are left off",
        "1.0 GPU hours were held beyond",
    ):
        assert words in told


def test_a_time_that_is_over_and_not_known_to_its_end_is_said(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    month_end_s = NOVEMBER_S + 30 * DAY_S
    lacks = "the history goes up to 2025-11-25 12:00:00 only, not to 2025-12-01 00:00:00 (UTC)"
    monkeypatch.setattr(time, "time", lambda: month_end_s + 1)
    assert lacks in run("--month", "2025-11").stderr
    assert run("--month", "2025-12").stderr == ""  # it is not over
    run.reply = answer()
    run.reply.report.at_s = month_end_s
    assert run("--month", "2025-11").stderr == ""


class _Page(html.parser.HTMLParser):
    """What of a page would leave it, and whether it closes what it opens."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.texts: list[str] = []
        self.unnamed = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.outside += [f"{tag} {name}" for name in given if name in ("src", "href", "onload")]
        if tag in ("script", "link", "iframe", "img"):
            self.outside.append(tag)
        if tag == "svg" and given.get("aria-hidden") != "true":
            self.unnamed += not (given.get("aria-label") and given.get("role") == "img")
        if tag not in ("meta", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "rect":
            self.handle_starttag(tag, attrs)
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_needs_nothing_else_and_says_in_words_what_it_draws(
    run: Run, tmp_path: Path
) -> None:
    run.reply = answer(VISION, UsageRow(key=("<script>alert(1)</script>",), sums=VISION.sums))
    path = tmp_path / "usage.html"
    assert run("--html", str(path)).output == ""
    text = path.read_text()
    page = _Page()
    page.feed(text)
    page.close()
    assert (page.open, page.outside, page.unnamed) == ([], [], 0)
    assert "prefers-color-scheme:dark" in text
    assert "default-src 'none'" in text
    words = " ".join(page.texts)
    for shown in ("Usage of demo", "vision", "<script>alert(1)</script>", "100.0", "Cost EUR"):
        assert shown in words
    assert [call.by for call in run.asked if isinstance(call, UsageCall)] == [("tenant",), ("day",)]


def test_an_older_page_stays_if_there_is_no_answer(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "usage.html"
    path.write_text("older")
    run.reply = ErrorReply(message="away", kind=ErrorKind.UNAVAILABLE)
    with pytest.raises(SiteUnavailable, match="away"):
        run("--html", str(path))
    assert path.read_text() == "older"


@pytest.fixture
def history(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/queue-history.db"
    engine = open_writer(url)
    with transaction(engine) as connection:
        schema.prepare(connection)
        place = {"first": 0, "next": 1, "crc": 0, "within_snapshot": False, "at_s": NOW_S}
        connection.execute(schema.log_place.insert().values(one=1, **place))
        rows = (attempt_values(k, attempt_use(k, NOW_S - 100 * k)) | {"counted": 0} for k in (1, 2))
        put_rows(connection, schema.attempts, rows, replace=True)
    engine.dispose()
    return url


CONFIG = """
federation: demo
store: sqlite:///{folder}/queue.db
prices: {{currency: EUR, rules: [{{gpu_h: 2.0}}]}}
regions: {{north: {{shared: /shared}}}}
sites: {{alpine: {{region: north, command: [x], partitions: [gpu]}}}}
"""


@pytest.mark.parametrize("by_config", [True, False])
def test_the_history_alone_gives_the_same_report_with_or_without_a_daemon(
    run: Run, history: str, tmp_path: Path, by_config: bool
) -> None:
    engine = open_writer(history)
    assert not count_some(engine)
    engine.dispose()
    file = tmp_path / "federation.yaml"
    file.write_text(CONFIG.format(folder=tmp_path))
    source = ("--config", str(file)) if by_config else ("--history", history)
    words = ("--month", "2025-11", "--by", "site", "--json", *source)
    told = run(*words).stdout
    assert told == run(*words).stdout
    made = json.loads(told)
    assert run.asked == []
    assert {row["key"]["site"] for row in made["rows"]} == {"site1", "site2"}
    held_h = made["total"]["held_gpu_s"] / 3600
    assert made["total"]["cost"] == (pytest.approx(2 * held_h) if by_config else None)


def test_a_report_is_mailed_as_its_table(run: Run, history: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="--mail needs --config"):
        run("--mail", "heads")
    assert open_writer(history) is not None
    kept, mailer, file = (tmp_path / name for name in ("mails", "mailer", "federation.yaml"))
    mailer.write_text(f'#!/bin/sh\n{{ echo "$@"; cat; }} >>{kept}\n')
    mailer.chmod(0o755)
    file.write_text(f"{CONFIG.format(folder=tmp_path)}mail: {{command: [{mailer}]}}\n")
    ended = run("--month", "2025-11", "--by", "site", "--config", str(file), "--mail", "heads")
    assert ended.stdout == ""
    head, _, _, columns, *below = kept.read_text().splitlines()
    assert head.startswith("-s Federator demo: usage of 2025-11-01 to 2025-11-")
    assert columns.split()[:2] == ["SITE", "GPU"]
    assert [line for line in below if "goes up to 2025-11-25 12:00:00 only" in line]


def test_a_history_that_is_not_there_is_one_line(run: Run, tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="unable to open"):
        run("--history", f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(InvalidRequest, match="--history"):
        run("--history", "mysql://x")
    with pytest.raises(InvalidRequest, match="no history is kept"):
        run("--history", "none")
    assert os.listdir(tmp_path) == []
