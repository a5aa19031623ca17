"""On real Slurm: a quota that nobody used is lent fully after notice, and returned on demand."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import yaml

from federator.history import schema
from federator.history.database import open_writer, transaction
from federator.history.supply import SupplyWriter
from federator.model.lending import LendingPlan, LoadForecast
from federator.testbed.layout import StateDir
from federator.usage.supply import SupplyRow
from federator.wire.client_protocol import PlanCall, PlanReply
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, within

pytestmark = pytest.mark.slurm

DAY_S = 86_400.0
FLEET_GPUS = 192  # of the testbed: all of them are guaranteed to one tenant
ONE_NODE = ("-N1", "--gres=gpu:8", "--time=4")
FIVE_NODES = ("-N5", "--gres=gpu:8", "--time=4")  # more than a fifth of the quota
SLEEPS = "#!/bin/sh\nsleep 235\n"
LOOKS_OFTEN = """
from federator.cli.main import main
from federator.daemon import hourly_look, quota_use

hourly_look.LOOK_EVERY_S = quota_use.FIRST_S = 2.0
main()
"""
HELD_BACK = "that nobody gives back before it ends"


class Unused(Running):
    """A federation whose history knows yesterday's supply, and of no use; it looks every 2 s."""

    def start(self) -> None:
        engine = open_writer(f"sqlite:///{self.folder}/queue-history.db")
        with transaction(engine) as connection:
            schema.prepare(connection)
        had = SupplyRow("alpine", "a100", 0.0, 1, 8, 64, 512, 0)
        SupplyWriter(engine).note([had], time.time() - 3 * DAY_S)
        engine.dispose()
        super().start()

    def spawn(self) -> None:
        with (self.folder / "daemon.log").open("ab") as log:
            words = ["daemon", "--config", str(self.config), *self.options]
            argv = [sys.executable, "-c", LOOKS_OFTEN, *words]
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def uses_or_loses(self) -> None:
        """Switch it on for the tenant, by a reload."""
        settings = yaml.safe_load(self.config.read_text())
        settings["tenants"]["vision"]["unused_quota"] = "on"
        self.config.write_text(yaml.safe_dump(settings))
        done = self.run("federator", "reload")
        assert done.returncode == 0, done.stderr


@pytest.fixture
def unused(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Unused]:
    made = Unused(
        tmp_path_factory.mktemp("unused"),
        tenants={
            "vision": {"quota": {"gpus": FLEET_GPUS}},
            "nlp": {"quota": {"gpus": 0}},
            "bio": {"quota": {"gpus": 0}},
        },
        pass_interval_s=2.0,
        lending="on",
        preemption={"budget_frac": 0},
        unused_quota={"mode": "off", "days": 1, "notice_h": 0},
    )
    for _ in lasting(made):
        yield made


def test_a_quota_that_nobody_used_is_lent_fully_and_returned_on_demand(unused: Unused) -> None:
    now_s = time.time()
    busy = LoadForecast(tenant="vision", new_gpus=(FLEET_GPUS,))  # all of it will be wanted
    plan = LendingPlan(
        made_at_s=now_s, expires_at_s=now_s + 900, windows_s=(600.0,), forecasts=(busy,)
    )
    assert isinstance(unused.ask(PlanCall(plan=plan)), PlanReply)
    guest = unused.submit(SLEEPS, *ONE_NODE, user="bio1")
    within(30, lambda: HELD_BACK in unused.run("fsqueue", "--why", str(guest)).stdout)

    unused.uses_or_loses()
    unused.await_state(guest, "RUNNING")
    status = unused.run("federator", "status").stdout
    assert "vision used at most 0% of its quota in 1 day: since " in status

    owner = unused.submit(SLEEPS, *FIVE_NODES, user="vision1")
    unused.await_state(owner, "RUNNING")
    within(30, lambda: "vision used at most" not in unused.run("federator", "status").stdout)
    late = unused.submit(SLEEPS, *ONE_NODE, user="bio1")
    within(30, lambda: HELD_BACK in unused.run("fsqueue", "--why", str(late)).stdout)
    assert unused.row(guest)["state"] == "RUNNING"
    steps = re.findall(r'"quota_(noticed|lent|used)"', unused.log())
    assert list(dict.fromkeys(steps)) == ["noticed", "lent", "used"]  # each for the first time
