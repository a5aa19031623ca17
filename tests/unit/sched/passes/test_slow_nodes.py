"""Slow nodes are found by the steps of trainings, and kept from gangs: in virtual time."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest

from federator.model.draft import Draft
from federator.model.event import Changed, Claimed, SiteDrained, SiteResumed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import AnswerDrained, DrainAsked, Note, ResumeAsked, SiteSent
from federator.model.plan import JobPlan
from federator.model.reason import Reason, ReasonCode
from federator.model.site import NodeShare, StepWindow
from federator.model.site_message import Report
from federator.model.workload import Job, SiteName, WorkloadId
from federator.sched.passes.availability import is_on_drained_nodes
from federator.sched.passes.moves import cost_s, gain_s
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules, SlowNodeRules
from federator.sched.state.step_times import LEAST_OTHERS, LEAST_WINDOWS, Speed
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_elastic_sizes import RUNS, fleet, rigid, started

ALPINE = SiteName("alpine")
QUARANTINE_S = 4 * 3600.0
COOLDOWN_S = 600.0
GRACE_S = 60.0
SLOW = 1.34


def rules(budget_frac: float = 0.25, restart_s: float = 600.0) -> Rules:
    slow_nodes = SlowNodeRules(
        budget_frac=budget_frac, quarantine_s=QUARANTINE_S, restart_s=restart_s
    )
    return Rules(
        grace_s=GRACE_S, cooldown_s=COOLDOWN_S, pass_interval_s=30.0, slow_nodes=slow_nodes
    )


def site(**more: float) -> Loopback:
    """Twelve nodes, of which three may be in quarantine."""
    return fleet(rules=rules(**more), alpine=12)


def steps(f: Loopback, id_: WorkloadId, step_s: float, *, windows: int = LEAST_WINDOWS) -> None:
    """It tells that its steps take so long."""
    for _ in range(windows):
        entry = f.entry(id_)
        if entry.state is not RUNS:
            return
        (report,) = (r for r in f.slurm(entry.site).reports() if r.attempt == entry.attempt_id)
        number = NUMBERS[id_] = NUMBERS.get(id_, 0) + 1
        window = StepWindow(number=number, steps=20, median_s=step_s, p90_s=step_s)
        told = replace(report, steps=window)
        f.observe(SiteSent(site=SiteName(entry.site), message=Report(attempts=(told,))))


NUMBERS: dict[WorkloadId, int] = {}


def gangs(f: Loopback, *factors: float, wanted: Draft | None = None) -> list[WorkloadId]:
    """Gangs of two nodes; the steps of each take so many times a second."""
    ids = started(f, *[wanted or rigid(2)] * len(factors))
    for id_, factor in zip(ids, factors, strict=True):
        steps(f, id_, factor)
    steps(f, ids[-1], factors[-1], windows=1)  # now the others are known
    return ids


def limping(f: Loopback) -> tuple[str, ...]:
    return f.federation.ledger.drains.limping_at(ALPINE)


def moved(f: Loopback, id_: WorkloadId) -> list[Reason]:
    changes = [e for e in f.log if isinstance(e, Changed) and e.workload == id_]
    asked = [e.reason for e in changes if e.happening is WorkloadEvent.REQUEUE_ASKED]
    return [reason for reason in asked if reason is not None]


def test_the_nodes_of_a_slow_gang_are_kept_from_gangs_and_not_from_others() -> None:
    f = site()
    *_, slow = gangs(f, 1.0, 1.0, 1.0, SLOW)
    nodes = f.entry(slow).node_names
    assert limping(f) == tuple(sorted(nodes))
    (drain,) = (e for e in f.log if isinstance(e, SiteDrained))
    assert drain.reason == (
        f"workload {slow}: steps take 1.34 times as long as in 3 runs of its kind on other nodes"
    )
    assert (f.state(slow), moved(f, slow)) == (RUNS, [])  # it was not submitted to be moved
    f.slurm("alpine").end(f.entry(slow).attempt_id)
    f.run_for(30.0)
    waits, small = started(f, rigid(6), rigid(1))
    f.run_for(60.0)
    assert f.state(waits) is WorkloadState.PENDING, "four sound nodes are idle, and two slow ones"
    assert f.state(small) is RUNS
    (fits,) = started(f, rigid(3))
    assert set(nodes).isdisjoint(f.entry(fits).node_names)


def test_a_refused_gang_starts_when_the_quarantine_is_over() -> None:
    f = site()
    *_, slow = gangs(f, 1.0, 1.0, 1.0, SLOW)
    f.slurm("alpine").end(f.entry(slow).attempt_id)
    f.run_for(30.0)
    (waits,) = started(f, rigid(6))
    assert f.state(waits) is WorkloadState.PENDING
    f.run_for(QUARANTINE_S - 200.0)
    assert f.state(waits) is WorkloadState.PENDING
    f.run_for(400.0)
    assert (f.state(waits), limping(f)) == (RUNS, ())
    (resumed,) = (e for e in f.log if isinstance(e, SiteResumed))
    assert (resumed.gangs, resumed.reason) == (True, "its time is over")


def test_a_node_that_is_slow_again_is_blamed_alone_and_for_twice_as_long() -> None:
    f = site()
    *_, slow = gangs(f, 1.0, 1.0, 1.0, SLOW)
    (bad, other) = f.entry(slow).node_names
    f.slurm("alpine").end(f.entry(slow).attempt_id)
    f.observe(ResumeAsked(client=1, site=ALPINE, nodes=(bad, other), by="root"))
    f.run_for(30.0)
    (again,) = started(f, rigid(2, jobs=(with_nodes(bad),)))
    assert bad in f.entry(again).node_names
    steps(f, again, SLOW, windows=LEAST_WINDOWS + 1)
    assert bad in limping(f)
    assert set(limping(f)) <= {bad, other}
    (_, second) = (e for e in f.log if isinstance(e, SiteDrained))
    assert second.until_s == pytest.approx(second.at_s + 2 * QUARANTINE_S)


def with_nodes(*names: str) -> object:
    (job,) = rigid(2).jobs
    return replace(job, nodelist=names)


def test_a_gang_at_normal_speed_there_proves_the_nodes_sound() -> None:
    f = site()
    *_, slow = gangs(f, 1.0, 1.0, 1.0, SLOW)
    assert limping(f)
    steps(f, slow, 1.0, windows=2 * LEAST_WINDOWS)  # somebody has changed the cable
    assert limping(f) == ()
    (resumed,) = (e for e in f.log if isinstance(e, SiteResumed))
    assert resumed.reason == f"workload {slow} runs there at normal speed"


def test_an_operator_resumes_them() -> None:
    f = site()
    gangs(f, 1.0, 1.0, 1.0, SLOW)
    f.observe(ResumeAsked(client=7, site=ALPINE, nodes=limping(f), by="root"))
    assert limping(f) == ()
    assert any(isinstance(c, AnswerDrained) and c.client == 7 for c in f.commands)


def test_a_group_beyond_the_budget_is_told_of_and_stays() -> None:
    f = site(budget_frac=0.1)
    gangs(f, 1.0, 1.0, 1.0, SLOW)
    assert limping(f) == ()
    (note,) = (c for c in f.commands if isinstance(c, Note) and c.event == "slow_nodes_left")
    assert "1.34 times" in str(note.fields["detail"])


def test_a_quarantine_outlives_the_daemon() -> None:
    f = site()
    gangs(f, 1.0, 1.0, 1.0, SLOW)
    before = limping(f)
    f.restart()
    f.run_for(60.0)
    assert limping(f) == before
    f.run_for(QUARANTINE_S)
    assert limping(f) == ()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_quarantine_lapses_at_a_site_that_is_no_more(restarts: bool) -> None:
    f = fleet(rules=rules(), alpine=12, baker=4)
    ids = gangs(f, 1.0, 1.0, 1.0, SLOW)
    assert limping(f)
    f.cancel(*ids)
    f.run_for(GRACE_S)
    if restarts:
        f.take_out("alpine")
    else:
        f.site_down("alpine")
        f.reload(without="alpine")
    f.run_for(QUARANTINE_S)
    assert limping(f) == ()
    assert f.replayed().drains.limping == {}


def test_a_daemon_that_starts_anew_blames_no_more_nodes_than_before() -> None:
    f = site()
    *_, slow = gangs(f, 1.0, 1.0, 1.0, SLOW)
    bad, other = f.entry(slow).node_names
    f.observe(ResumeAsked(client=1, site=ALPINE, nodes=(other,), by="root"))
    f.restart()
    f.run_for(60.0)
    for _ in range(2 * LEAST_WINDOWS):
        for id_ in (*_others(f, slow), slow):
            steps(f, id_, SLOW if id_ == slow else 1.0, windows=1)
    pace = f.federation.slow_nodes.pace_of(f.entry(slow))
    assert pace is not None
    assert pace.blamed
    assert limping(f) == (bad,)


def _others(f: Loopback, id_: WorkloadId) -> list[WorkloadId]:
    return [e.workload.id for e in f.federation.ledger.in_state(RUNS) if e.workload.id != id_]


def test_all_quarantines_end_when_none_may_be_any_more() -> None:
    f = site()
    gangs(f, 1.0, 1.0, 1.0, SLOW)
    f.reload(rules=rules(budget_frac=0.0))
    f.run_for(60.0)
    assert limping(f) == ()
    (resumed,) = (e for e in f.log if isinstance(e, SiteResumed))
    assert resumed.reason == "policy.slow_nodes.budget_frac is 0"


def test_few_runs_to_compare_with_prove_nothing() -> None:
    f = site()
    *_, slow = gangs(f, *[1.0] * (LEAST_OTHERS - 1), SLOW)
    assert limping(f) == ()
    assert f.federation.slow_nodes.pace_of(f.entry(slow)) is None


@pytest.mark.parametrize("step_s", [-1.0, nan, inf, 1e300, 0.0])
def test_what_is_no_time_is_not_believed(step_s: float) -> None:
    f = site()
    gangs(f, 1.0, 1.0, 1.0, step_s)
    assert limping(f) == ()


def test_only_who_owns_the_job_tells_of_its_steps() -> None:
    f = site()
    *_, id_ = gangs(f, 1.0, 1.0, 1.0, 1.0)
    entry = f.entry(id_)
    (report,) = (r for r in f.slurm("alpine").reports() if r.attempt == entry.attempt_id)
    for number in range(100, 120):
        window = StepWindow(number=number, steps=20, median_s=9.0, p90_s=9.0)
        told = replace(report, user="eve", steps=window)
        f.observe(SiteSent(site=ALPINE, message=Report(attempts=(told,))))
    assert limping(f) == ()


@pytest.mark.parametrize(
    ("nodes", "ends"), [(("a1", "a2"), True), (("a2",), False), (("a3", "a4"), False)]
)
def test_a_claim_of_a_gang_on_slow_nodes_ends(nodes: tuple[str, ...], ends: bool) -> None:
    ledger = Ledger()
    slow = SiteDrained(at_s=1.0, site=ALPINE, nodes=("a2",), cordon=True, gangs=True, until_s=9.0)
    ledger.apply(slow)
    shares = dict.fromkeys(nodes, NodeShare(gpus=8))
    plan = JobPlan(name="train", partition="gpu", nodes=shares)
    claim = Claimed(
        at_s=1.0,
        workload=WorkloadId(1),
        site=ALPINE,
        jobs=(plan,),
        priority=3,
        since_s=1.0,
        starts_by_s=2.0,
        promised_by_s=2.0,
    )
    assert is_on_drained_nodes(claim, ledger) is ends


# ---- moves ----


def with_named(*excluded: str) -> tuple[Job, ...]:
    """One that excludes nodes of whatever site."""
    (job,) = rigid(2).jobs
    return (replace(job, exclude=excluded),)


MIGRATES = replace(rigid(2), migrates=True)


@pytest.mark.parametrize(
    ("left_s", "factor", "saved_s"),
    [(1000.0, 1.0, 0.0), (1000.0, 2.0, 500.0), (1340.0, 1.34, 340.0), (100.0, 0.5, 0.0)],
)
def test_what_is_gained_is_what_remains_times_the_loss(
    left_s: float, factor: float, saved_s: float
) -> None:
    assert gain_s(left_s, factor) == pytest.approx(saved_s)
    assert cost_s(30.0, 600.0, 120.0) == 750.0


def migrating(f: Loopback, time_limit_s: float = 36_000.0) -> WorkloadId:
    """One on slow nodes, whose family saves in time, after its cooldown."""
    f.save_s = 10.0
    *_, id_ = gangs(f, 1.0, 1.0, 1.0, SLOW, wanted=replace(MIGRATES, time_limit_s=time_limit_s))
    return id_


def test_it_moves_to_other_nodes_when_that_pays() -> None:
    f = site()
    id_ = migrating(f)
    before = f.entry(id_).node_names
    assert moved(f, id_) == []  # its cooldown
    f.run_for(COOLDOWN_S)
    steps(f, id_, SLOW, windows=1)
    (reason,) = moved(f, id_)
    assert reason.code is ReasonCode.SLOW_NODES
    assert "1.34 times" in reason.detail
    assert not len(f.federation.ledger.evictions.within)
    f.run_for(GRACE_S + 60.0)
    assert (f.state(id_), f.entry(id_).attempt) == (RUNS, 2)
    assert set(before).isdisjoint(f.entry(id_).node_names)
    assert not f.entry(id_).failures_at


def test_it_moves_exactly_when_it_pays() -> None:
    """Just below and just above remaining x loss = save + restart + lost work."""
    for more_s, moves in ((-5.0, 0), (5.0, 1)):
        f = site()
        f.save_s = 10.0
        ids = gangs(f, 1.0, 1.0, 1.0, SLOW, wanted=MIGRATES)
        id_ = ids[-1]
        f.run_for(COOLDOWN_S)
        entry, now_s = f.entry(id_), f.clock.now_s
        lost_s = now_s - entry.started_at_s  # nothing is known of how it saves
        left_s = (600.0 + lost_s) / (1.0 - 1.0 / SLOW) + more_s
        limit_s = now_s - entry.started_at_s + left_s
        entry.workload = replace(entry.workload, time_limit_s=limit_s)
        steps(f, id_, SLOW, windows=1)
        assert len(moved(f, id_)) == moves
        pace = f.federation.slow_nodes.pace_of(f.entry(id_))
        if not moves:
            assert pace is not None
            assert pace.move is not None
            assert not pace.move.pays
            assert pace.move.cost_s == pytest.approx(600.0 + lost_s)


@pytest.mark.parametrize(
    ("wanted", "taken", "but"),
    [
        (rigid(2), 0, "--fed-migrate"),
        (replace(MIGRATES, no_preempt=True), 0, "may not be requeued"),
        (MIGRATES, 3, "too few other nodes"),
        (replace(MIGRATES, jobs=with_named("a1", "a2", "a3", "a4")), 0, "too few other nodes"),
    ],
)
def test_it_is_told_why_it_stays_though_moving_pays(wanted: Draft, taken: int, but: str) -> None:
    f = site()
    *_, id_ = gangs(f, 1.0, 1.0, 1.0, SLOW, wanted=wanted)
    started(f, *[rigid(1)] * taken)
    f.run_for(COOLDOWN_S)
    steps(f, id_, SLOW, windows=1)
    assert moved(f, id_) == []
    pace = f.federation.slow_nodes.pace_of(f.entry(id_))
    assert pace is not None
    assert pace.judged.speed is Speed.SLOW
    assert pace.move is not None
    assert pace.move.pays
    assert but in pace.move.but


def test_it_stays_where_it_asks_for_its_nodes() -> None:
    f = site()
    *_, id_ = gangs(f, 1.0, 1.0, 1.0, SLOW, wanted=MIGRATES)
    entry = f.entry(id_)
    (job,) = entry.workload.jobs
    asked = (replace(job, nodelist=entry.node_names),)
    entry.workload = replace(entry.workload, jobs=asked)
    f.run_for(COOLDOWN_S)
    steps(f, id_, SLOW, windows=1)
    assert (moved(f, id_), "by name" in why(f, id_)) == ([], True)


@pytest.mark.parametrize("closed", [3, 2])
def test_it_moves_to_no_nodes_that_are_closed(closed: int) -> None:
    f = site()
    *_, id_ = gangs(f, 1.0, 1.0, 1.0, SLOW, wanted=MIGRATES)
    used = {name for e in f.federation.ledger.in_state(RUNS) for name in e.node_names}
    idle = sorted({f"a{k}" for k in range(1, 13)} - used)
    assert len(idle) == 4
    f.observe(DrainAsked(client=1, site=ALPINE, nodes=tuple(idle[:closed]), by="root", cordon=True))
    f.run_for(COOLDOWN_S)
    steps(f, id_, SLOW, windows=1)
    assert len(moved(f, id_)) == (closed == 2)


def why(f: Loopback, id_: WorkloadId) -> str:
    """The reason why it stays."""
    pace = f.federation.slow_nodes.pace_of(f.entry(id_))
    assert pace is not None
    assert pace.move is not None
    return pace.move.but


def test_one_that_is_as_slow_on_other_nodes_acquits_all_of_them_and_stays() -> None:
    f = site()
    id_ = migrating(f)
    f.run_for(COOLDOWN_S)
    steps(f, id_, SLOW, windows=1)
    f.run_for(GRACE_S + 60.0)
    assert limping(f)
    f.run_for(COOLDOWN_S)
    steps(f, id_, SLOW, windows=3 * LEAST_WINDOWS)
    assert limping(f) == ()
    assert (f.state(id_), f.entry(id_).attempt, len(moved(f, id_))) == (RUNS, 2, 1)
    assert f.federation.slow_nodes.pace_of(f.entry(id_)) is None
