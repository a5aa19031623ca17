"""The planner's process: it follows a log, plans, and is harmless whatever becomes of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from federator.cli import planner as module
from federator.cli.planner import BEGINS_ANEW_S, PlannerService
from federator.cli.planner_log import AGAIN_S, POLL_S, FollowingPlanner
from federator.errors import ConfigError, InvalidRequest, NotAllowed, SiteUnavailable
from federator.model.event import EpochBegan, LogRecord, Submitted, encode_event
from federator.model.lending import LendingPlan
from federator.model.tenant import Tenancy
from federator.model.workload import FIRST_WORKLOAD_ID, WorkloadId
from federator.planner.forecast import LatelyForecast
from federator.planner.lending_planner import LendingPlanner
from federator.planner.planner_clock import PlannerClock
from federator.store.memory import MemoryStore
from federator.store.sqlite import SqliteStore
from federator.wire.client_protocol import ErrorKind, ErrorReply, PlanCall, PlanReply
from federator.wire.replies import Reply
from tests.fakes.build import draft, gang, tenant

T0 = 1_000_000.0
CONFIG = """\
federation: demo
store: sqlite://{folder}/queue.db
socket: {folder}/daemon.sock
policy: {{lending: {lending}}}
regions: {{west: {{shared: /shared}}}}
sites: {{alpine: {{region: west, partitions: [gpu], command: [agent]}}}}
tenants: {{vision: {{quota: {{gpus: 16}}}}}}
"""


def submitted(number: int, at_s: float) -> Submitted:
    id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
    return Submitted(at_s=at_s, draft=draft(gang(1, 8)), first_id=id_, key=f"k{number}")


class Desk:
    """The daemon, as far as a planner sees it: each answer in its turn, the last for ever."""

    def __init__(self, *answers: Reply | Exception) -> None:
        self.answers = list(answers) or [PlanReply()]
        self.plans: list[LendingPlan] = []

    def ask(self, call: PlanCall) -> Reply:
        self.plans.append(call.plan)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Bench:
    def __init__(self, *answers: Reply | Exception) -> None:
        self.now_s = T0
        self.set_by_s = 0.0  # the wall clock
        self.store = MemoryStore()
        assert self.store.lead(1) is not None
        self.append(EpochBegan(at_s=T0 - 900, epoch=1))
        self.desk = Desk(*answers)
        self.following = FollowingPlanner(made, self.store)
        self.service = PlannerService(self.following, self.desk.ask, self.clock(), 300.0, 900.0)

    def clock(self) -> PlannerClock:
        return PlannerClock(lambda: self.now_s + self.set_by_s, lambda: self.now_s)

    def append(self, *records: LogRecord) -> None:
        self.store.append([encode_event(record) for record in records])

    def turn(self, after_s: float = 0.0) -> float:
        self.now_s += after_s
        return self.service.turn()


def made() -> LendingPlanner:
    return LendingPlanner(Tenancy([tenant("vision", 16)]), LatelyForecast(), "lately")


def test_it_plans_at_once_and_then_every_five_minutes() -> None:
    bench = Bench()
    assert bench.turn() == POLL_S
    assert [plan.made_at_s for plan in bench.desk.plans] == [T0]
    bench.turn(299.0)
    assert len(bench.desk.plans) == 1
    bench.append(submitted(0, T0 + 299))
    bench.turn(1.0)
    (_, later) = bench.desk.plans
    assert later.expires_at_s == T0 + 300 + 900
    assert later.forecasts[0].new_gpus == (8, 8, 8)


def test_a_clock_that_is_set_back_makes_no_plan_late_or_old() -> None:
    bench = Bench()
    bench.append(submitted(0, T0))
    bench.turn()
    bench.set_by_s -= 1200.0
    bench.turn(300.0)
    assert [plan.made_at_s for plan in bench.desk.plans] == [T0, T0 + 300]


def test_a_planner_that_begins_behind_the_log_plans_by_the_logs_time() -> None:
    """The wall clock was set back; the daemon's time goes on from its log."""
    bench = Bench()
    bench.append(submitted(0, T0 + 1200))
    bench.turn()
    bench.append(submitted(1, T0 + 1400))
    bench.turn(300.0)
    assert [plan.made_at_s for plan in bench.desk.plans] == [T0 + 1200, T0 + 1500]


def test_a_log_that_is_hours_ahead_is_followed() -> None:
    bench = Bench()
    bench.append(submitted(0, T0 + 86_400))
    bench.turn()
    assert [plan.made_at_s for plan in bench.desk.plans] == [T0 + 86_400]


def test_a_clock_that_was_wrong_for_a_moment_is_forgotten() -> None:
    """The plan for a time to come was refused; the next has its forecasts from the log anew."""
    bench = Bench(ErrorReply(message="lending plan: made_at_s"), PlanReply())
    bench.set_by_s = 86_400.0
    bench.turn()
    before, bench.set_by_s = bench.following.planner, 0.0
    assert bench.turn(1.0) == 0.0
    bench.turn()
    assert bench.following.planner is not before
    assert bench.desk.plans[-1].made_at_s == T0 + 1


def test_a_daemon_that_is_away_or_refuses_is_asked_again_soon_and_noted_once() -> None:
    bench = Bench(
        SiteUnavailable("the daemon is away"),
        SiteUnavailable("the daemon is away"),
        ErrorReply(message="lending plan: no"),
        PlanReply(),
    )
    with capture_logs() as lines:
        bench.turn()
        bench.turn(AGAIN_S - 1)
        assert len(bench.desk.plans) == 1
        for _ in range(4):
            bench.turn(AGAIN_S)
    said = [(line["event"], line.get("detail")) for line in lines if line["log_level"] != "debug"]
    assert said == [
        ("plan_not_taken", "the daemon is away"),
        ("plan_not_taken", "lending plan: no"),
        ("plan_taken_again", None),
    ]


def test_a_user_who_is_no_operator_is_told_so_and_the_process_ends() -> None:
    denied = ErrorReply(message="ada is no operator", kind=ErrorKind.DENIED)
    with pytest.raises(NotAllowed, match="ada is no operator"):
        Bench(denied).service.run()


def test_a_log_that_was_compacted_is_read_anew() -> None:
    bench = Bench()
    bench.append(submitted(0, T0 - 10))
    bench.turn()
    before = bench.following.planner
    bench.store.compact([encode_event(EpochBegan(at_s=T0, epoch=1))])
    assert bench.turn(300.0) == 0.0
    assert bench.following.planner is not before
    bench.turn()
    assert bench.desk.plans[-1].forecasts[0].new_gpus == (0, 0, 0)


def test_now_and_then_it_begins_anew_so_that_its_history_does_not_grow() -> None:
    bench = Bench()
    bench.turn()
    before = bench.following.planner
    assert bench.turn(BEGINS_ANEW_S + 1) == 0.0
    assert bench.following.planner is not before
    bench.turn()
    assert len(bench.desk.plans) == 2


def test_it_begins_anew_when_the_tenants_may_be_others() -> None:
    bench, stale = Bench(), [False, True, False]
    service = PlannerService(
        bench.following, bench.desk.ask, bench.clock(), 300.0, 900.0, lambda: stale.pop(0)
    )
    service.turn()
    before = bench.following.planner
    bench.now_s += 300.0
    assert service.turn() == 0.0
    assert bench.following.planner is not before
    service.turn()
    assert len(bench.desk.plans) == 2


def test_a_record_that_cannot_be_read_is_noted_and_nothing_is_planned() -> None:
    bench = Bench()
    bench.store.append([b"\x81\xa4type\xa5later"])
    with capture_logs() as lines:
        assert bench.turn() == POLL_S
    (line,) = lines
    assert line["event"] == "plan_not_taken"
    assert "cannot be read by release" in line["detail"]
    assert bench.desk.plans == []


def run(folder: Path, lending: str, *words: str) -> Any:
    config = folder / "federation.yaml"
    config.write_text(CONFIG.format(folder=folder, lending=lending))
    return CliRunner().invoke(
        module.planner, ["--config", str(config), *words], catch_exceptions=False
    )


def a_log(folder: Path) -> None:
    store = SqliteStore(folder / "queue.db")
    assert store.lead(1) is not None
    store.append([encode_event(EpochBegan(at_s=T0, epoch=1))])
    store.close()


def test_once_prints_the_plan(tmp_path: Path) -> None:
    a_log(tmp_path)
    found = json.loads(run(tmp_path, "on", "--once").stdout)
    (forecast,) = found["forecasts"]
    assert (forecast["tenant"], forecast["new_gpus"]) == ("vision", [0, 0, 0])
    assert found["windows_s"] == [300.0, 3600.0, 43200.0]


def test_with_lending_off_it_has_nothing_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"policy\.lending and data\.planning are off"):
        run(tmp_path, "off")


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_log(tmp_path)
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(InvalidRequest, match=r"install federator\[forecast\]"):
        run(tmp_path, "on", "--once")


def test_a_signal_ends_it_in_order(tmp_path: Path) -> None:
    a_log(tmp_path)
    config = tmp_path / "federation.yaml"
    config.write_text(CONFIG.format(folder=tmp_path, lending="on"))
    words = [sys.executable, "-m", "federator.cli.main", "planner", "--config", str(config)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "plan_not_taken" in line:  # no daemon is there
                break
        process.terminate()
        assert process.wait(20) == 0


def test_its_help_imports_no_forecasts() -> None:
    code = (
        "import sys; from federator.cli import planner; "
        "sys.exit(any(n in sys.modules for n in ('xgboost', 'numpy', 'pydantic')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
