"""The fault simulator's model notices: each promise is broken on purpose, and it must say so.

The menus provoke what is broken, and nothing else befalls; without the bug the same histories are
clean.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from federator.agent.base import Missing, SubmittedJob
from federator.agent.order_archive import OrderArchive
from federator.daemon.effects import Effects
from federator.faults import history, world
from federator.faults.clock import VirtualClock, run_virtual
from federator.faults.cluster import Cluster
from federator.faults.driver import FaultyDriver
from federator.faults.fault_injector import FaultInjector
from federator.faults.file_dates import FileDates
from federator.faults.history import run_history
from federator.faults.kinds import FaultKind
from federator.faults.model import Model
from federator.faults.process import ManyProcesses
from federator.model import event
from federator.model.event import Changed, encode_event
from federator.model.lifecycle import WorkloadEvent
from federator.model.message import LaunchAt
from federator.model.site import AttemptReport, SiteJobState
from federator.model.workload import ArrayTask, AttemptId, WorkloadId
from federator.sched.passes import admission
from federator.sched.passes.held import Holding
from federator.sched.state.holdings import Holdings
from federator.wire.agent_protocol import LaunchOrder

SEEDS = range(12)


def _no_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Holdings, "beyond_limit", lambda *_: None)


def _scancel_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """And says that it did, of a job that runs."""
    cancel = Cluster.cancel

    def idle(self: Cluster, job_id: int, *, pending_only: bool) -> bool:
        job = self.jobs.get(job_id)
        if job is not None and job.state is SiteJobState.RUNNING:
            return True
        return cancel(self, job_id, pending_only=pending_only)

    monkeypatch.setattr(Cluster, "cancel", idle)


def _nobody_asks_sacct(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(
        self: FaultyDriver, missing: Collection[Missing]
    ) -> Mapping[AttemptId, AttemptReport]:
        return {}

    monkeypatch.setattr(FaultyDriver, "accounted", nothing)


def _no_throttle_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlimited(**fields: Any) -> ArrayTask:
        return ArrayTask(**(fields | {"max_running": 0}))

    monkeypatch.setattr(event, "ArrayTask", unlimited)


def _sites_are_told_another_index(monkeypatch: pytest.MonkeyPatch) -> None:
    order_of = Effects._launch_order

    def wrong(self: Effects, command: LaunchAt) -> LaunchOrder:
        order = order_of(self, command)
        index = None if order.array_index is None else order.array_index + 1
        return msgspec.structs.replace(order, array_index=index)

    monkeypatch.setattr(Effects, "_launch_order", wrong)


def _components_are_pinned_to_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = FaultyDriver.launch

    async def together(
        self: FaultyDriver, order: LaunchOrder, ticket: str = "", start_line: str = ""
    ) -> SubmittedJob:
        first, *others = order.jobs
        moved = (replace(plan, nodes=first.nodes) for plan in others)
        changed = msgspec.structs.replace(order, jobs=(first, *moved))
        return await launch(self, changed, ticket, start_line)

    monkeypatch.setattr(FaultyDriver, "launch", together)


def _keys_are_compared_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "submission_differences", lambda *_: ())


def _one_refusal_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Holding, "_may_take", lambda *_: False)


def _what_is_held_stays_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Holding, "try_again", lambda *_: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One that is planted, and what the model says of it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    said: str
    menu: tuple[FaultKind, ...]
    faults_s: float = history.FAULTS_S


PLANTED = {
    "no limit of a tenant holds": Bug(
        plant=_no_limit_holds, said="GPUs, and may use 24", menu=(FaultKind.NEWS_TWICE,)
    ),
    "scancel of a running job does nothing": Bug(
        plant=_scancel_does_nothing,
        said="was cancelled, and ran on",
        menu=(FaultKind.NEWS_TWICE,),
        faults_s=10.0,
    ),
    "nobody asks sacct": Bug(
        plant=_nobody_asks_sacct,
        said="but its user code completed",
        menu=(FaultKind.RECORDS_FORGOTTEN,),
    ),
    "no throttle of an array holds": Bug(
        plant=_no_throttle_holds,
        said="and 2 may",
        menu=(FaultKind.NEWS_TWICE,),
    ),
    "sites are told another index of an array": Bug(
        plant=_sites_are_told_another_index,
        said="and was submitted as",
        menu=(FaultKind.NEWS_TWICE,),
        faults_s=10.0,
    ),
    "components of a het job share a node": Bug(
        plant=_components_are_pinned_to_one_node,
        said="has two components on one node",
        menu=(FaultKind.NEWS_TWICE,),
        faults_s=10.0,
    ),
    "a submit key is compared with nothing": Bug(
        plant=_keys_are_compared_with_nothing,
        said="was used again, and answered",
        menu=(FaultKind.NEWS_TWICE,),
        faults_s=10.0,
    ),
    "one site's refusal holds a workload": Bug(
        plant=_one_refusal_holds,
        said="has not refused it",
        menu=(FaultKind.SBATCH_REFUSES_USERS,),
    ),
    "what is held stays held": Bug(
        plant=_what_is_held_stays_held,
        said="never ended: HELD",
        menu=(FaultKind.SBATCH_REFUSES_USERS,),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_model_notices_a_planted_bug(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = PLANTED[name]
    monkeypatch.setattr(history, "FAULTS_S", bug.faults_s)
    with monkeypatch.context() as planted:
        bug.plant(planted)
        seed = next(s for s in SEEDS if any(bug.said in b for b in run_history(s, bug.menu).broken))
    assert run_history(seed, bug.menu).broken == ()


def test_what_has_ended_does_not_end_again() -> None:
    model = Model(lambda _: None, lambda: 0.0, {})
    id_ = WorkloadId(4739357696)
    ends = encode_event(Changed(at_s=0.0, workload=id_, happening=WorkloadEvent.CANCEL_ASKED))
    model.logged([ends])
    assert model.broken == []
    model.logged([ends])
    assert model.broken == [f"{id_} has ended, CANCELLED, and is cancel asked for"]


def test_nothing_that_was_armed_strikes_in_the_calm() -> None:
    menu = (FaultKind.SBATCH_REFUSED, FaultKind.STORE_ERROR_NOTHING)
    for seed in range(4):
        story = run_history(seed, menu).story
        calm = next(k for k, line in enumerate(story) if line.endswith(" calm"))
        late = [line for line in story[calm:] if any(f"* {k.value}" in line for k in menu)]
        assert late == []


def test_agents_find_their_orders_whatever_the_date_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drop = OrderArchive._drop_old_orders
    dropped: list[str] = []

    def watched(self: OrderArchive, now_s: float) -> None:
        before = set(os.listdir(self._folder))
        drop(self, now_s)
        dropped.extend(before - set(os.listdir(self._folder)))

    monkeypatch.setattr(OrderArchive, "_drop_old_orders", watched)
    for module in (history, world):
        monkeypatch.setattr(module, "BEGINS_S", time.time() + 400 * 86_400)
    assert run_history(0, (FaultKind.AGENT_KILLED,)).struck[FaultKind.AGENT_KILLED]
    assert dropped == []


def test_files_have_the_dates_at_which_the_sites_clock_saw_them(tmp_path: Path) -> None:
    clock = VirtualClock(1_000.0)
    dates = FileDates(clock)
    for at_s, name in ((1_000.0, "one"), (2_000.0, "two")):
        clock.now_s = at_s
        (tmp_path / name).write_text("")
        dates.date(tmp_path)
    assert {p.name: p.stat().st_mtime for p in tmp_path.iterdir()} == {"one": 1e3, "two": 2e3}
    clock.now_s = 3_000.0
    (tmp_path / "one").write_text("anew")
    dates.date(tmp_path, tmp_path / "missing")
    assert (tmp_path / "one").stat().st_mtime == 3_000.0
    assert (tmp_path / "two").stat().st_mtime == 2_000.0


# ---- what is counted has struck ----


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.SCANCEL_FAILS,
        FaultKind.PROLOG_FAILS,
        FaultKind.STORE_SLOW,
        FaultKind.NETWORK_SLOW,
        FaultKind.PARTITION,
        FaultKind.DAEMON_CRASH_LOOP,
        FaultKind.NODE_FAILS,
        FaultKind.HET_NODE_FAILS,
        FaultKind.COMPONENT_CANCELLED,
        FaultKind.SBATCH_REFUSES_USERS,
    ],
)
def test_a_fault_that_meets_nobody_is_not_counted(kind: FaultKind, tmp_path: Path) -> None:
    nobody = world.World(Random(1), VirtualClock(world.BEGINS_S), tmp_path)

    async def live() -> None:
        weather = FaultInjector(nobody, 1.0, (kind,))
        for _ in range(3):
            weather._inject(kind)
        await asyncio.sleep(30.0)

    run_virtual(nobody.clock, live(), ManyProcesses)
    assert nobody.struck[kind] == 0
