"""The fault simulator's model notices: each promise is broken on purpose, and it must say so.

The menus provoke what is broken, and nothing else befalls; without the bug the same histories are
clean.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from federator.agent.base import Missing, SubmittedJob
from federator.agent.order_archive import OrderArchive
from federator.daemon.effects import Effects
from federator.daemon.interactive_jobs import InteractiveJobs, Unheard
from federator.faults import history, world
from federator.faults.cluster import Cluster
from federator.faults.driver import FaultyDriver
from federator.faults.history import run_history
from federator.faults.kinds import FaultKind
from federator.faults.slurmctld import SimulatedAccounts
from federator.model import draft
from federator.model.message import LaunchAt
from federator.model.site import AttemptReport, SiteJobState
from federator.model.workload import ArrayTask, AttemptId
from federator.sched.passes import admission
from federator.sched.passes.held import Holding
from federator.sched.state import eligibility
from federator.sched.state.holdings import Holdings
from federator.slurm.options import interpret
from federator.slurm.options.node_options import NodeWish
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
        self: SimulatedAccounts, missing: Collection[Missing]
    ) -> Mapping[AttemptId, AttemptReport]:
        return {}

    monkeypatch.setattr(SimulatedAccounts, "ends_of", nothing)


def _no_throttle_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlimited(**fields: Any) -> ArrayTask:
        return ArrayTask(**(fields | {"max_running": 0}))

    monkeypatch.setattr(draft, "ArrayTask", unlimited)


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


def _holds_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eligibility, "may_not_start", lambda _: False)


def _any_end_meets_a_dependency(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = eligibility._judged

    def lenient(*args: Any) -> tuple[bool, bool, float]:
        met, failed, again_s = judged(*args)
        return met or failed, False, again_s

    monkeypatch.setattr(eligibility, "_judged", lenient)


def _nodes_are_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpret, "node_wish", lambda *_: NodeWish())
    monkeypatch.setattr(interpret, "_known", interpret._read)  # keeps nothing of this


def _nobody_listens_for_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(InteractiveJobs, "unheard", lambda *_: Unheard())


def _a_leap_of_the_clock_is_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is counted by a clock that may be set, and the daemon never stands still."""
    init = InteractiveJobs.__init__
    monkeypatch.setattr(InteractiveJobs, "__init__", lambda jobs, *given: init(jobs, *given[:3]))
    monkeypatch.setattr(InteractiveJobs, "_take_in_a_pause", lambda *_: None)


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
    "what is on hold may start": Bug(
        plant=_holds_are_forgotten,
        said="may not start yet, and is awarded",
        menu=(FaultKind.NEWS_TWICE,),
        faults_s=10.0,
    ),
    "any end meets a dependency": Bug(
        plant=_any_end_meets_a_dependency,
        said=", and runs",
        menu=(FaultKind.NEWS_TWICE,),
        faults_s=10.0,
    ),
    "nobody listens for the commands of interactive jobs": Bug(
        plant=_nobody_listens_for_commands,
        said="s without its command",
        menu=(FaultKind.NEWS_TWICE,),
        faults_s=10.0,
    ),
    "a leap of the daemon's clock is taken for silence": Bug(
        plant=_a_leap_of_the_clock_is_silence,
        said="is cancelled for silence, and was heard",
        menu=(FaultKind.DAEMON_CLOCK_FORWARD, FaultKind.DAEMON_PAUSED),
    ),
    "nodes that users name are not heard": Bug(
        plant=_nodes_are_not_heard,
        said="is to have",
        menu=(FaultKind.NEWS_TWICE,),
        faults_s=10.0,
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
