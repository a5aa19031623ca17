"""Laws of plans of where data sets should be, over any plans, news, times and restarts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from federator.model.data_placement import DataPlacement, DataPlanning, MovedSet, PlannedMove
from federator.model.dataset import CopyPhase, DataGiven, DataPlace, DataVerb, StorageDomain
from federator.model.event import DataSetKept
from federator.model.message import CopySeen, DataAsked, DataPlacementAsked
from federator.model.workload import SiteName
from federator.sched.passes.data_copies import used_bytes
from federator.sched.state.rules import DataMoving, Rules
from tests.fakes.loopback import Loopback
from tests.property.test_copy_laws import ready
from tests.unit.sched.passes.test_data_copies import DIGEST, GIB

DAY_S = 86_400.0
QUOTA = 5 * GIB
SIZES = {"a": 1, "b": 2, "c": 3, "d": 9}  # GiB
DOMAINS = {
    "west": StorageDomain(mounts={SiteName("alpine"): "/w"}),
    "east": StorageDomain(mounts={SiteName("baker"): "/e"}, capacity_bytes=4 * GIB),
    "north": StorageDomain(mounts={SiteName("baker"): "/n"}),
}
RULES = Rules(
    storage=DOMAINS,
    moving=DataMoving(planning=DataPlanning.AUTOMATIC, quota_bytes=QUOTA),
)
names, domains = st.sampled_from(sorted(SIZES)), st.sampled_from(sorted(DOMAINS))


def with_one_home(moves: list[PlannedMove]) -> list[PlannedMove]:
    """The same, as the daemon takes them: no data set has two homes."""
    homes: set[str] = set()
    kept = []
    for move in moves:
        names = {each.name for each in move.sets}
        kept.append(with_fields(move, home=move.home and homes.isdisjoint(names)))
        homes |= names if move.home else set()
    return kept


moves = st.builds(
    lambda sets, to, home: PlannedMove(
        sets=tuple(MovedSet(name, "1", 0) for name in sets), to=to, home=home
    ),
    st.lists(names, min_size=1, max_size=3, unique=True),
    domains,
    st.booleans(),
)
plans = st.tuples(
    st.lists(moves, max_size=5).map(with_one_home), st.sampled_from([10.0, 3600.0, 2 * DAY_S])
)
news = st.builds(
    CopySeen,
    name=names,
    version=st.just("1"),
    domain=domains,
    digest=st.just(DIGEST),
    phase=st.sampled_from([CopyPhase.COPYING, CopyPhase.DONE, CopyPhase.FAILED]),
)
waits = st.sampled_from([60.0, 3600.0, 0.6 * DAY_S])
steps = st.lists(st.one_of(plans, news, news, waits, st.just("restart")), max_size=25)


def observed(f: Loopback, step: object) -> None:
    """Take a step, without the sites: nothing of this needs them."""
    if step == "restart":
        f.compact()
        f.restart()
    elif isinstance(step, float):
        f.clock.now_s += step
    elif isinstance(step, CopySeen):
        f.observe(step)
    else:
        assert isinstance(step, tuple)
        wanted, lasts_s = step
        now_s = f.clock()
        plan = DataPlacement(made_at_s=now_s, expires_at_s=now_s + lasts_s, moves=tuple(wanted))
        f.observe(DataPlacementAsked(client=-8, plan=plan))


def carried_out(f: Loopback) -> None:
    """The plan in force is looked at again: news of a copy that there is not does no more."""
    f.observe(
        CopySeen(name="none", version="1", domain="east", digest=DIGEST, phase=CopyPhase.FAILED)
    )


@settings(max_examples=40, deadline=None)
@given(steps=steps)
def test_plans_keep_quota_and_capacity_and_cost_no_replica(steps: list[object]) -> None:
    f = Loopback({}, RULES)
    begun: list[tuple[float, int]] = []
    for name, gib in SIZES.items():
        at = (DataPlace(domain="west", path=name),)
        of = DataGiven(name=name, version="1", at=at, digest=DIGEST, size_bytes=gib * GIB)
        f.observe(DataAsked(client=-7, verb=DataVerb.ADD, sets=(of,), by="ada"))
    for step in steps:
        before, logged = ready(f.federation.ledger), len(f.log)
        observed(f, step)
        if step != "restart":
            carried_out(f)
            twice = len(f.log)
            carried_out(f)
            assert f.log[twice:] == []
        ledger = f.federation.ledger
        assert before <= ready(ledger)
        if step != "restart":
            begun += [
                (e.at_s, e.kept.size_bytes)
                for e in f.log[logged:]
                if isinstance(e, DataSetKept)
                and e.moved_to
                and any(r.domain == e.moved_to and r.copy for r in e.kept.replicas)
            ]
        now_s = f.clock()
        assert sum(size for at_s, size in begun if at_s > now_s - DAY_S) <= QUOTA
        assert ledger.data_moves.used_bytes(now_s) == sum(
            size for at_s, size in begun if at_s > now_s - DAY_S
        )
        assert used_bytes(ledger.catalogue, "east") <= DOMAINS["east"].capacity_bytes


def test_with_planning_off_no_plan_moves_anything() -> None:
    f = Loopback({}, replace(RULES, moving=DataMoving()))
    at = (DataPlace(domain="west", path="a"),)
    of = DataGiven(name="a", version="1", at=at, digest=DIGEST, size_bytes=GIB)
    f.observe(DataAsked(client=-7, verb=DataVerb.ADD, sets=(of,), by="ada"))
    move = PlannedMove(sets=(MovedSet("a", "1", GIB),), to="north", home=True)
    observed(f, ([move], DAY_S))
    assert ready(f.federation.ledger) == {("a", "west")}
    assert not list(f.federation.ledger.catalogue.copies())
