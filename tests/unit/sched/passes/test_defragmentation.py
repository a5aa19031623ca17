"""Small jobs move so that a gang fits: the whole federation in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec import structs

from federator.daemon.preemption_views import preemption_row
from federator.model.defragment import Defragment, QuietHours
from federator.model.draft import Draft
from federator.model.event import Awarded, Changed, Claimed, encode_event
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import DrainAsked, SendTo
from federator.model.plan import BidRequest, NodeMove
from federator.model.reason import ReasonCode
from federator.model.site_message import Ask, BidsMade, SiteAnswer, SiteNews
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes.decision import award_of
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback, SiteCommand

RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING
RULES = Rules(
    preempt_gpus=16,
    preempt_window_s=300.0,
    grace_s=60.0,
    cooldown_s=600.0,
    defragment=Defragment.ON,
)
OWNER = Tenant(name=TenantName("owner"), priority=3, quota=Allowance(gpus=32))


def fleet(rules: Rules = RULES, nodes: int = 4) -> Loopback:
    owner = replace(OWNER, quota=Allowance(gpus=8 * nodes))
    return Loopback({"alpine": rack("a", nodes)}, rules, None, Mast(), (owner,))


def of(nodes: int = 1, gpus: int = 8, **more: object) -> Draft:
    return replace(draft(gang(nodes, gpus)), tenant=TenantName("owner"), **more)  # type: ignore[arg-type]


def scattered(f: Loopback, nodes: int = 4, **more: object) -> list[WorkloadId]:
    """A job of half a node on each node: half of the GPUs are free, and no node is."""
    ids = [f.submit(replace(of(gpus=4), **more)) for _ in range(2 * nodes)]  # type: ignore[arg-type]
    f.run_until(lambda: all(f.state(id_) is RUNS for id_ in ids))
    left: dict[str, WorkloadId] = {}
    for id_ in ids:
        (name,) = f.entry(id_).node_names
        if left.setdefault(name, id_) != id_:
            f.slurm("alpine").end(f.entry(id_).attempt_id)
    f.run_for(20.0)
    assert len(left) == nodes
    return list(left.values())


def moved(f: Loopback) -> list[WorkloadId]:
    """Those who were told to leave, in order."""
    found = [e for e in f.log if isinstance(e, Changed) and e.happening is WorkloadEvent.EVICTED]
    assert all(e.reason is not None and e.reason.code is ReasonCode.MOVED for e in found)
    return [e.workload for e in found]


def told_moves(f: Loopback, id_: WorkloadId) -> tuple[int, int]:
    """Who is told to move for a workload, and of how many GPUs."""
    row = preemption_row(f.entry(id_), f.federation)
    return (0, 0) if row is None else (row.moves, row.moved_gpus)


def test_a_gang_starts_where_small_jobs_have_moved_and_these_run_on_at_their_places() -> None:
    f = fleet()
    small = scattered(f)
    gang_id = f.submit(of(nodes=2))
    f.run_until(lambda: bool(moved(f)), limit_s=100.0)
    assert told_moves(f, gang_id) == (2, 8)
    f.run_until(lambda: f.state(gang_id) is RUNS, limit_s=200.0)
    assert told_moves(f, gang_id) == (0, 0)  # it has started
    (award,) = [e for e in f.log if isinstance(e, Awarded) and e.moves]
    assert sorted(moved(f)) == sorted(m.workload for m in award.moves)
    f.run_until(lambda: all(f.state(id_) is RUNS for id_ in small), limit_s=30.0)
    for id_, node in award.moves:
        assert f.entry(WorkloadId(id_)).node_names == (node,)
    assert len(award.moves) == 2
    assert award.waits_s > 3000.0
    assert not f.federation.ledger.moves.places
    assert not f.federation.ledger.claims


def test_an_award_that_others_move_for_comes_out_again_bit_for_bit() -> None:
    f = fleet()
    scattered(f)
    f.federation.rounds.tells_decisions = True
    gang_id = f.submit(of(nodes=2))
    f.run_until(lambda: f.state(gang_id) is RUNS, limit_s=200.0)
    (award,) = [e for e in f.log if isinstance(e, Awarded) and e.moves]
    (seen,) = [each for each in f.decided if each.attempt == award.attempt]
    again = award_of(seen)
    assert again is not None
    assert encode_event(again) == encode_event(award)


@pytest.mark.parametrize(
    "rules",
    [
        replace(RULES, defragment=Defragment.OFF),
        replace(RULES, preempt_gpus=4),  # the budget
        replace(RULES, defragment_moves=1),
        replace(RULES, defragment_margin=100.0),
        replace(RULES, quiet_hours=QuietHours(from_s=3600.0, until_s=3601.0)),
    ],
)
def test_nobody_moves_beyond_what_is_allowed(rules: Rules) -> None:
    f = fleet(rules)
    small = scattered(f)
    gang_id = f.submit(of(nodes=2))
    f.run_for(400.0)
    assert f.state(gang_id) is WAITS
    assert not moved(f)
    assert [f.state(id_) for id_ in small] == [RUNS] * 4


def test_who_may_not_be_requeued_does_not_move() -> None:
    f = fleet()
    scattered(f, requeue=False)
    gang_id = f.submit(of(nodes=2))
    f.run_for(400.0)
    assert f.state(gang_id) is WAITS
    assert not moved(f)


def test_a_gang_for_which_too_little_is_free_moves_nobody() -> None:
    f = fleet()
    scattered(f)
    gang_id = f.submit(of(nodes=3))
    f.run_for(400.0)
    assert f.state(gang_id) is WAITS
    assert not moved(f)


def test_advice_says_what_would_move_and_nobody_does() -> None:
    f = fleet(replace(RULES, defragment=Defragment.ADVISORY))
    scattered(f)
    gang_id = f.submit(of(nodes=2))
    f.run_for(60.0)
    (reason,) = f.refusals(gang_id)[SiteName("")].reasons
    assert reason.code is ReasonCode.DEFRAGMENT
    assert (reason.needed, reason.free, reason.detail) == (2, 8, "alpine")
    assert reason.more > 0
    assert reason.more_in_s > 3000.0
    assert not moved(f)


def test_who_has_moved_is_spared_for_the_cooldown() -> None:
    f = fleet()
    scattered(f)
    first = f.submit(of(nodes=2))
    f.run_until(lambda: f.state(first) is RUNS, limit_s=200.0)
    f.run_for(60.0)
    f.slurm("alpine").end(f.entry(first).attempt_id)
    f.run_for(100.0)
    before = moved(f)
    assert len(before) == len(set(before)) == 2


def test_the_place_outlives_its_daemon_and_a_compaction() -> None:
    f = fleet()
    small = scattered(f)
    gang_id = f.submit(of(nodes=2))
    f.run_until(lambda: bool(moved(f)), limit_s=100.0)
    assert len(f.federation.ledger.moves.places) == 2
    f.compact()
    f.restart()
    assert len(f.federation.ledger.moves.places) == 2
    f.run_until(lambda: all(f.state(id_) is RUNS for id_ in (*small, gang_id)), limit_s=300.0)


def test_the_place_outlives_an_agent_that_dies_while_its_job_saves() -> None:
    f = fleet()
    small = scattered(f)
    gang_id = f.submit(of(nodes=2))
    f.run_until(lambda: bool(moved(f)), limit_s=100.0)
    f.site_down("alpine")
    f.run_for(30.0)
    f.site_up("alpine")
    f.run_until(lambda: all(f.state(id_) is RUNS for id_ in (*small, gang_id)), limit_s=400.0)
    assert len(moved(f)) == 2


def test_nobody_takes_the_place_while_its_job_saves() -> None:
    f = fleet()
    scattered(f)
    gang_id = f.submit(of(nodes=2))
    f.run_until(lambda: bool(moved(f)), limit_s=100.0)
    late = [f.submit(of(gpus=4)) for _ in range(3)]
    f.run_until(lambda: f.state(gang_id) is RUNS, limit_s=200.0)
    f.run_for(60.0)
    assert [f.state(id_) for id_ in moved(f)] == [RUNS] * 2
    assert [f.state(id_) for id_ in late] == [WAITS] * 3


def test_a_mover_whose_place_fails_waits_like_any_evicted_one() -> None:
    f = fleet()
    scattered(f)
    gang_id = f.submit(of(nodes=2))
    f.run_until(lambda: bool(moved(f)), limit_s=100.0)
    (award,) = [e for e in f.log if isinstance(e, Awarded) and e.moves]
    for _, node in award.moves:
        f.slurm("alpine").fail_node(node)
    f.run_until(lambda: f.state(gang_id) is RUNS, limit_s=200.0)
    f.run_for(120.0)
    assert [f.state(id_) for id_ in moved(f)] == [WAITS] * 2
    assert not f.federation.ledger.claims


def test_a_gang_that_is_cancelled_before_anybody_was_told_moves_nobody() -> None:
    f = fleet()
    small = scattered(f)
    f.refuse_launches("alpine")
    f.submit(of(nodes=2))
    f.run_for(100.0)
    assert not moved(f)
    assert not f.federation.ledger.moves.places
    assert [f.state(id_) for id_ in small] == [RUNS] * 4


# ---- sites that lie, and places that come to nothing ----


def lies(
    f: Loopback,
    monkeypatch: pytest.MonkeyPatch,
    asked: Callable[[BidRequest], BidRequest] = lambda request: request,
    said: Callable[[SiteAnswer], SiteAnswer] = lambda answer: answer,
) -> None:
    """The site answers other questions than those it is asked, or something else."""
    agent = f.sites[SiteName("alpine")].agent
    assert agent is not None
    honest = agent.do

    def do(command: SiteCommand) -> list[SiteNews]:
        match command:
            case SendTo(message=Ask() as ask):
                requests = tuple(map(asked, ask.requests))
                command = replace(command, message=structs.replace(ask, requests=requests))
        return [
            structs.replace(each, answers=tuple(map(said, each.answers)))
            if isinstance(each, BidsMade)
            else each
            for each in honest(command)
        ]

    monkeypatch.setattr(agent, "do", do)


def _with_a_stranger(answer: SiteAnswer) -> SiteAnswer:
    bid = answer.bid
    if bid is None or not bid.moves:
        return answer
    return structs.replace(answer, bid=replace(bid, victims=(*bid.victims, 999_999_999)))


def _with_a_strange_mover(answer: SiteAnswer) -> SiteAnswer:
    answer = _with_a_stranger(answer)
    bid = answer.bid
    if bid is None or not bid.moves:
        return answer
    moves = (*bid.moves, NodeMove(999_999_999, bid.moves[0].node))
    return structs.replace(answer, bid=replace(bid, moves=moves))


@pytest.mark.parametrize("mode", [Defragment.ON, Defragment.ADVISORY])
@pytest.mark.parametrize("lie", [_with_a_stranger, _with_a_strange_mover])
def test_a_site_that_has_strangers_leave_moves_nobody(
    mode: Defragment,
    lie: Callable[[SiteAnswer], SiteAnswer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = fleet(replace(RULES, defragment=mode))
    scattered(f)
    lies(f, monkeypatch, said=lie)
    gang_id = f.submit(of(nodes=2))
    f.run_for(60.0)
    assert f.state(gang_id) is WAITS
    assert not moved(f)


def test_no_more_move_because_a_site_plans_moves_that_it_was_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = fleet(replace(RULES, defragment_moves=3, preempt_gpus=64), nodes=8)
    scattered(f, nodes=8)
    gang_id = f.submit(of(nodes=2))
    f.run_until(lambda: bool(moved(f)), limit_s=100.0)
    lies(f, monkeypatch, asked=lambda request: structs.replace(request, moves=99))
    for _ in range(2):
        f.submit(of())
    f.run_until(lambda: f.state(gang_id) is RUNS, limit_s=100.0)
    f.run_for(60.0)
    assert 2 <= len(moved(f)) <= 3  # not one for each of the two that came later


@pytest.mark.parametrize("whole_site", [True, False])
def test_the_places_at_a_drained_site_or_node_are_given_up(*, whole_site: bool) -> None:
    f = fleet()
    scattered(f)
    f.submit(of(nodes=2))
    f.run_until(lambda: bool(moved(f)), limit_s=100.0)
    (award,) = [e for e in f.log if isinstance(e, Awarded) and e.moves]
    nodes = () if whole_site else tuple(move.node for move in award.moves)
    f.observe(DrainAsked(client=-1, site=SiteName("alpine"), nodes=nodes, by="root", cordon=True))
    assert not f.federation.ledger.moves.places
    assert not f.replayed().moves.places
    f.run_for(60.0)
    assert not f.federation.ledger.claims
    assert all(f.state(id_) is WAITS for id_ in moved(f))


def has_left(f: Loopback) -> None:
    """Let a mover wait for its place."""
    scattered(f)
    f.submit(of(nodes=2))
    f.run_until(lambda: bool(f.federation.ledger.claims), limit_s=100.0)


def test_the_place_of_one_that_waits_is_given_up_when_its_site_is_down() -> None:
    f = fleet()
    has_left(f)
    f.site_down("alpine")
    f.run_for(400.0)
    assert not f.federation.ledger.claims


def test_the_place_of_one_that_waits_outlives_its_daemon() -> None:
    f = fleet()
    has_left(f)
    f.restart()
    f.run_for(60.0)
    assert [f.state(id_) for id_ in moved(f)] == [RUNS] * 2
    by_id = {e.attempt.workload: e for e in f.log if isinstance(e, Awarded)}
    (award,) = [e for e in by_id.values() if e.moves]
    assert all(f.entry(WorkloadId(id_)).node_names == (node,) for id_, node in award.moves)


@pytest.mark.parametrize("restarts", [False, True])
def test_claims_at_a_site_that_is_taken_out_are_given_up(*, restarts: bool) -> None:
    f = Loopback({"alpine": rack("a", 1), "baker": rack("b", 1)}, RULES, None, Mast(), (OWNER,))
    first, second = f.submit(of()), f.submit(of())
    f.run_until(lambda: {f.state(first), f.state(second)} == {RUNS})
    (at_baker,) = [f.entry(id_) for id_ in (first, second) if f.entry(id_).site == "baker"]
    plan = at_baker.plan
    waiting = [f.submit(of()) for _ in range(2)]
    f.observe(DrainAsked(client=-1, site=SiteName("baker"), by="root", cordon=True))
    f.slurm("baker").end(at_baker.attempt_id)
    f.run_for(30.0)
    for id_ in waiting:  # as of one whose mover has left after the drain, in an earlier build
        claim = Claimed(
            at_s=f.clock.now_s,
            workload=id_,
            site=SiteName("baker"),
            jobs=plan,
            priority=OWNER.priority,
            since_s=f.clock.now_s,
            starts_by_s=f.clock.now_s,
            promised_by_s=f.clock.now_s,
            moved_for=first,
        )
        f.log.append(claim)
        f.federation.ledger.apply(claim)
    f.run_for(0.0)
    if restarts:
        f.take_out("baker")
    else:
        f.reload(without="baker")
    f.run_for(60.0)
    assert not f.federation.ledger.claims
    assert [f.state(id_) for id_ in waiting] == [WAITS] * 2
