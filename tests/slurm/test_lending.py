"""On real Slurm, where nobody is evicted: a planner lends idle quota, and may die."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from federator.model.lending import LendingPlan, LoadForecast
from federator.testbed.layout import StateDir
from federator.wire.client_protocol import ErrorReply, PlanCall
from tests.slurm.conftest import lasting
from tests.slurm.federation import BIN, Running, within

pytestmark = pytest.mark.slurm

EVERY_S = 2
EXPIRES_S = 3 * EVERY_S
ONE_NODE = ("-N1", "--gres=gpu:8", "--time=4")
SLEEPS = "#!/bin/sh\nsleep 235\n"  # nearly as long as it may


class Planner:
    """The process of ``federator planner``."""

    def __init__(self, federation: Running) -> None:
        self._config = federation.config
        self._log = federation.folder / "planner.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = ["planner", "--config", str(self._config), f"--every={EVERY_S}"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen([str(BIN / "federator"), *words], stderr=log)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def lending(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("lending")
    yield from lasting(
        Running(
            folder,
            tenants={"bio": {"quota": {"gpus": 8}}},
            pass_interval_s=2.0,
            lending="on",
            preemption={"budget_frac": 0},
        )
    )


@pytest.fixture
def planner(lending: Running) -> Iterator[Planner]:
    found = Planner(lending)
    try:
        yield found
    finally:
        found.end()
        lending.cancel_all()


def status(federation: Running) -> str:
    return federation.run("federator", "status").stdout


def why(federation: Running, id_: int) -> str:
    return federation.run("fsqueue", "--why", str(id_)).stdout


def test_guests_start_by_a_forecast_and_a_planner_that_dies_or_hangs_stops_nothing_else(
    lending: Running, planner: Planner
) -> None:
    own = lending.submit(SLEEPS, *ONE_NODE, user="bio1")
    lending.await_state(own, "RUNNING")  # within quota: no plan is needed
    guest = lending.submit(SLEEPS, *ONE_NODE, user="bio1")
    within(30, lambda: "no lending plan is in force" in why(lending, guest))

    planner.start()
    lending.await_state(guest, "RUNNING")
    told = lending.run("federator", "explain", str(guest)).stdout
    assert "8 GPUs lent from " in told
    assert "predicted free for 5 min" in told
    within(30, lambda: "Lending:   on; plan of " in status(lending))  # a busy planner is late

    planner.signal(signal.SIGKILL)
    within(3 * EXPIRES_S, lambda: "the last plan has expired" in status(lending))
    late = lending.submit(SLEEPS, *ONE_NODE, user="bio1")
    owner = lending.submit(SLEEPS, *ONE_NODE, user="vision1")
    lending.await_state(owner, "RUNNING")
    assert lending.row(late)["state"] == "PENDING"
    assert lending.row(guest)["state"] == "RUNNING"

    lending.kill()
    lending.start()
    assert lending.row(late)["state"] == "PENDING"
    planner.end()
    planner.start()
    lending.await_state(late, "RUNNING")

    planner.signal(signal.SIGSTOP)
    within(3 * EXPIRES_S, lambda: "the last plan has expired" in status(lending))
    again = lending.submit(SLEEPS, *ONE_NODE, user="vision1")
    lending.await_state(again, "RUNNING")
    planner.signal(signal.SIGCONT)
    within(30, lambda: "GPUs to lend now" in status(lending))


def test_a_request_longer_than_all_forecasts_is_never_lent(
    lending: Running, planner: Planner
) -> None:
    planner.start()
    own = lending.submit(SLEEPS, *ONE_NODE, user="bio1")
    lending.await_state(own, "RUNNING")
    endless = lending.submit(SLEEPS, *ONE_NODE[:2], "--time=13:00:00", user="bio1")
    within(30, lambda: "may run longer than load is forecast (12" in why(lending, endless))


def test_nonsense_is_refused_and_the_plan_in_force_stays(
    lending: Running, planner: Planner
) -> None:
    planner.start()
    within(30, lambda: "plan of " in status(lending))
    now_s = time.time()
    nonsense = LendingPlan(
        made_at_s=now_s,
        expires_at_s=now_s + 60,
        windows_s=(300.0,),
        forecasts=(LoadForecast(tenant="nobody", new_gpus=(-7,)),),
    )
    refused = lending.ask(PlanCall(plan=nonsense))
    assert isinstance(refused, ErrorReply)
    assert refused.message == (
        "lending plan: forecasts[0].tenant: expected a tenant of federation.yaml, found 'nobody'"
    )
    within(30, lambda: "plan of " in status(lending))
