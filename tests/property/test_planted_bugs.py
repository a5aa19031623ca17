"""Each planted bug breaks the promise that it touches, in a history that is clean without it.

Else the silence of the model over ``test_fault_histories.py`` would mean nothing. More are planted
in ``test_fault_model.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

import pytest

from federator.agent import lost_sbatch
from federator.agent.attempt_table import AttemptEvent, AttemptState
from federator.agent.journal import JournalMark
from federator.agent.lost_sbatch import LostSbatchSearch
from federator.agent.memory import AttemptRecord
from federator.agent.requeue_causes import RequeueCauses
from federator.agent.shell import Agent
from federator.agent.tenure import AgentTenure
from federator.daemon.api import Api
from federator.daemon.callers import GiveReply
from federator.daemon.loop import Term
from federator.daemon.site_door import DialledTransport
from federator.errors import SiteUnavailable
from federator.faults import client_scripts, history, world
from federator.faults.history import run_history
from federator.faults.kinds import FaultKind
from federator.faults.log import MortalStore
from federator.faults.site_host import MortalJournal
from federator.model import sizes
from federator.model.lifecycle import WorkloadEvent
from federator.model.message import Command, Record
from federator.model.site import AttemptReport, SiteJobState
from federator.model.workload import AttemptId, SiteName, Workload
from federator.sched.passes import elastic_sizes, report_events
from federator.sched.passes.transaction import Transaction
from federator.sched.queue.guests import Guests
from federator.sched.state import ledger
from federator.sched.state.holdings import Holdings
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.wire.agent_protocol import ClientCall
from federator.wire.transport import Channel


def _acts_before_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async def carry_out(self: Term, commands: Sequence[Command]) -> None:
        for command in commands:
            self._effects.carry_out(command)
        records = [c for c in commands if isinstance(c, Record)]
        await _as_ever(self, records)

    _as_ever = Term._carry_out
    monkeypatch.setattr(Term, "_carry_out", carry_out)


def _gives_up_without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(self: LostSbatchSearch, record: AttemptRecord) -> None:
        record.state = AttemptState.CONFIRMING  # where a miss is the last word
        self._steps.step(record, AttemptEvent.MISSED)

    monkeypatch.setattr(LostSbatchSearch, "_look", look)


def _keeps_its_journal_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: MortalJournal, attempt: AttemptId, mark: JournalMark) -> None:
        self._process.check()

    monkeypatch.setattr(MortalJournal, "write", write)


def _forgets_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    change = Transaction.change

    def forgetful(
        self: Transaction, entry: WorkloadRecord, happening: WorkloadEvent, **fields: object
    ) -> bool:
        if happening is WorkloadEvent.CANCEL_ASKED and entry.workload.id % 3 == 0:
            return True
        return change(self, entry, happening, **fields)

    monkeypatch.setattr(Transaction, "change", forgetful)


def _drops_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = Ledger.apply

    def dropping(self: Ledger, event: object) -> object:
        effects = apply(self, event)  # type: ignore[arg-type]
        if getattr(event, "first_id", 0) and len(self.keys.id_of) > 3:
            self.keys.id_of.popitem()
        return effects

    monkeypatch.setattr(Ledger, "apply", dropping)


def _says_that_it_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    append = MortalStore.append
    count = iter(range(10**9))

    def lazy(self: MortalStore, records: Sequence[bytes]) -> None:
        if next(count) % 7:
            append(self, records)

    monkeypatch.setattr(MortalStore, "append", lazy)
    # What the log lacks is noticed soon or never; daemons that start again and again because of it
    # are no use, and long to play.
    monkeypatch.setattr(history, "FAULTS_S", 60.0)
    monkeypatch.setattr(world, "CALM_S", 20.0)


def _forgets_to_free_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    release = Holdings.release
    count = iter(range(10**9))

    def leaking(self: Holdings, *args: object) -> None:
        if next(count) % 5:
            release(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Holdings, "release", leaking)


def _takes_a_lost_order_for_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Slurm does not show at once has not happened."""
    monkeypatch.setattr(lost_sbatch, "INTENT_HORIZON_S", -inf)


def _believes_every_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federator.daemon.plan_calls._check", lambda *_: None)


def _lends_to_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guests, "decide", lambda *_, **__: None)


def _takes_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is forgotten: sizes between those of the job are tried, too."""

    def larger(workload: Workload) -> range:
        elastic = workload.elastic
        return range(elastic.most, elastic.least, -1) if elastic is not None else range(0)

    for module in (sizes, elastic_sizes):
        monkeypatch.setattr(module, "larger_sizes", larger)


def _fails_whatever_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_events, "is_on_trial", lambda _: False)


def _gives_up_gangs_that_lose_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    as_ever = RequeueCauses._completed

    def completed(
        self: RequeueCauses,
        report: AttemptReport,
        broken: Mapping[str, str],
        single: Mapping[str, str],
    ) -> AttemptReport:
        if report.state is SiteJobState.RUNNING and broken.keys() & self._had[report.attempt]:
            report = replace(report, state=SiteJobState.NODE_FAIL)
        return as_ever(self, report, broken, single)

    monkeypatch.setattr(RequeueCauses, "_completed", completed)


def _leaves_nodes_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs grow while nobody waits: else resizes are few."""
    monkeypatch.setattr(client_scripts, "SUBMISSIONS", (client_scripts.QUIET,))


def _tries_a_size_again_that_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    _leaves_nodes_idle(monkeypatch)
    monkeypatch.setattr(ledger, "was_too_large", lambda *_: False)


class Bug(NamedTuple):
    """A planted one, the faults that bring it to light, and what the model says then."""

    plant: Callable[[pytest.MonkeyPatch], None]
    menu: tuple[FaultKind, ...]
    words: str


def _acts_without_asking_whose_turn_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentTenure, "check", lambda _: None)


_LATE = (FaultKind.SBATCH_SLOW, FaultKind.AGENT_BEFORE_SBATCH)  # the next agent finds no job yet
_KILLED = (FaultKind.DAEMON_KILLED,)
MOST_SEEDS = 100


def _believes_every_site(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(self: Api, call: ClientCall, _origin: SiteName, answer: GiveReply) -> None:
        self.take_here(call.user, call.call, answer)

    monkeypatch.setattr(Api, "take", take)


def _takes_a_dialled_channel_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    served: set[DialledTransport] = set()
    as_ever = DialledTransport.open

    async def open_(self: DialledTransport) -> Channel:
        if self in served:
            raise SiteUnavailable("planted")
        served.add(self)
        return await as_ever(self)

    monkeypatch.setattr(DialledTransport, "open", open_)


PLANTED: dict[str, Bug] = {
    "a site that dials again is not taken": Bug(
        _takes_a_dialled_channel_only_once, (FaultKind.OUTBOUND_LINK_LOST,), "never ended"
    ),
    "a site may speak for everybody": Bug(
        _believes_every_site, (FaultKind.FORGED_CALL,), "a site spoke for"
    ),
    "the daemon believes every lending plan": Bug(
        _believes_every_plan, (FaultKind.PLAN_NONSENSE,), "a plan was taken that makes no sense"
    ),
    "work over quota starts without a plan": Bug(
        _lends_to_everybody, (FaultKind.PLANNER_KILLED,), "nothing was lent to it"
    ),
    "the daemon acts before the log holds it": Bug(
        _acts_before_the_log,
        (FaultKind.DAEMON_BEFORE_APPEND, FaultKind.STORE_ERROR_NOTHING),
        "and is lost",
    ),
    "the log says that it wrote, and did not": Bug(
        _says_that_it_wrote,
        _KILLED,
        "the log says otherwise",
    ),
    "an agent gives an attempt up without looking": Bug(
        _gives_up_without_looking,
        _LATE,
        "has completed, and runs again",
    ),
    "an agent looks in Slurm only once": Bug(
        _takes_a_lost_order_for_a_refusal,
        _LATE,
        "has completed, and runs again",
    ),
    "an agent's journal does not reach the disk": Bug(
        _keeps_its_journal_in_memory,
        _LATE,
        "was submitted twice",
    ),
    "an agent that stood still acts beside the one that took over": Bug(
        _acts_without_asking_whose_turn_it_is,
        (FaultKind.LOGIN_NODE_STOPS,),
        "was submitted twice",
    ),
    "a cancel is acknowledged and forgotten": Bug(
        _forgets_cancels,
        (FaultKind.NODE_FAILS, FaultKind.PROLOG_FAILS),
        "was cancelled, and",
    ),
    "a submit key is forgotten": Bug(_drops_keys, _KILLED, "and is lost"),
    "quota is not given back": Bug(
        _forgets_to_free_quota,
        (FaultKind.CHANNEL_CUT,),
        "its workloads hold",
    ),
    "an elastic job takes a size between its own": Bug(
        _takes_any_size, (FaultKind.LOCAL_JOB,), "and can run on"
    ),
    "a failure at a larger size is the job's end": Bug(
        _fails_whatever_fails, (FaultKind.LOCAL_JOB,), "and ran on fewer before"
    ),
    "a gang on its spare is given up": Bug(
        _gives_up_gangs_that_lose_a_node, (FaultKind.GANG_NODE_FAILS,), "was ended for nothing"
    ),
    "a size that has failed a job is tried again": Bug(
        _tries_a_size_again_that_has_failed, (FaultKind.RESIZE_SBATCH_FAILS,), "have failed it"
    ),
}


def test_a_task_that_fails_unforeseen_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def carry_out(self: Term, commands: Sequence[Command]) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(Term, "_carry_out", carry_out)
    monkeypatch.setattr(history, "FAULTS_S", 5.0)
    monkeypatch.setattr(world, "CALM_S", 5.0)
    assert "unforeseen: KeyError('planted')" in run_history(0).broken


def test_a_failed_future_that_only_the_garbage_collector_finds_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_ever = Term._carry_out

    async def carry_out(self: Term, commands: Sequence[Command]) -> None:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(KeyError("planted"))
        cycle: list[object] = [future]
        cycle.append(cycle)
        await as_ever(self, commands)

    monkeypatch.setattr(Term, "_carry_out", carry_out)
    monkeypatch.setattr(history, "FAULTS_S", 5.0)
    monkeypatch.setattr(world, "CALM_S", 5.0)
    assert "unforeseen: KeyError('planted')" in run_history(0).broken


def test_an_agents_own_missing_file_is_no_fault_of_the_weathers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def do(self: Agent, message: object) -> None:
        raise FileNotFoundError("planted")

    monkeypatch.setattr(Agent, "_do", do)
    monkeypatch.setattr(history, "FAULTS_S", 5.0)
    monkeypatch.setattr(world, "CALM_S", 5.0)
    assert "unforeseen: FileNotFoundError('planted')" in run_history(0).broken


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_breaks_a_promise(bug: str) -> None:
    """Soon, in whichever history: another change elsewhere makes every seed another history."""
    plant, menu, words = PLANTED[bug]
    for seed in range(MOST_SEEDS):
        with pytest.MonkeyPatch.context() as monkeypatch:
            plant(monkeypatch)
            broken = run_history(seed, menu).broken
        if any(words in each for each in broken):
            break
    else:
        pytest.fail(f"{MOST_SEEDS} histories, and none says {words!r}; the last one: {broken}")
    assert run_history(seed, menu).broken == ()
