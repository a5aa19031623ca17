"""Laws of checkpoints that are copied ahead, over any drains, news, times and restarts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event as met
from hypothesis import given, settings, target
from hypothesis import strategies as st

from federator.model.dataset import CopyPhase
from federator.model.event import CheckpointCopied
from federator.model.message import CopySeen, DrainAsked
from federator.policies.mast import Mast
from federator.sched.passes.at_risk import at_risk
from federator.sched.passes.checkpoint_moves import CHECKPOINT
from federator.sched.state.rules import Staging
from tests.fakes.build import rack
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_checkpoint_moves import (
    ALPINE,
    AUTO,
    CEDAR,
    DELTA,
    RUNS,
    SIZE,
    TENANT,
    WAITS,
    cordon,
    resume,
    start,
)

AT_ONCE = 2
AHEAD = replace(
    AUTO,
    staging=Staging(checkpoints=True, ahead=True, at_once=AT_ONCE),
    regions={ALPINE: "west", CEDAR: "east", DELTA: "north"},
)
PHASES = st.sampled_from([CopyPhase.COPYING, CopyPhase.DONE, CopyPhase.DONE, CopyPhase.FAILED])
finds = st.tuples(st.just("found"), st.integers(0, 2), st.integers(3, 5))
news = st.tuples(st.just("seen"), st.integers(0, 2), PHASES)
waits = st.tuples(st.just("wait"), st.just(0), st.sampled_from([5.0, 61.0, 601.0]))
others = st.tuples(
    st.sampled_from(["drain", "cordon", "open", "resume", "restart"]),
    st.integers(0, 1),
    st.just(0.0),
)
Step = tuple[str, int, object]
copied = st.tuples(st.just("copied"), st.integers(0, 2), st.integers(3, 5))
steps = st.lists(st.one_of(finds, news, copied, copied, waits, others), max_size=12)
TWICE: list[Step] = [
    ("copied", 0, 3),
    ("wait", 0, 601.0),
    ("restart", 0, 0.0),
    ("wait", 0, 61.0),
    ("copied", 0, 4),
]


def digest(number: int) -> str:
    return "sealed:" + f"{number:x}" * 64


def told(f: Loopback, step: Step) -> str:
    """One of the three has a checkpoint, or its copy is so far; return where that is made."""
    word, which, what = step
    id_ = sorted(f.federation.ledger.entries)[which]
    if word == "found":
        assert isinstance(what, int)
        text = f"ckpt-{what:08d}-step-{what} {digest(what)}"
        said, phase, domain = "", CopyPhase.FOUND, ""
    else:
        assert isinstance(what, CopyPhase)
        of = f.federation.checkpoints.find(CHECKPOINT, str(id_))
        text, said, phase = "", "" if of is None else of.digest, what
        domain = "east" if of is None else of.replicas[-1].domain  # the source's, of one at rest
    seen = CopySeen(
        name=CHECKPOINT,
        version=str(id_),
        domain=domain,
        digest=said,
        phase=phase,
        copied_bytes=SIZE,
        detail=text,
    )
    f.observe(seen)
    return domain


def drained(f: Loopback) -> None:
    """All must leave alpine within a week, if it is not so already."""
    until_s = f.clock.now_s + 7 * 86_400.0
    f.observe(DrainAsked(client=97, site=ALPINE, reason="", by="root", deadline_s=until_s))


def done(f: Loopback, step: Step) -> str:
    """Take a step; return the region that a site told of, if it is one of news."""
    word, which, what = step
    match word:
        case "wait":
            assert isinstance(what, float)
            f.run_for(what)
        case "drain":
            drained(f)
        case "cordon":
            cordon(f, (CEDAR, DELTA)[which])
        case "open":
            resume(f, (CEDAR, DELTA)[which])
        case "resume":
            resume(f, ALPINE)
        case "restart":
            f.compact()
            f.restart()
        case "copied":  # found, and copied whole at once, where the others leave room for it
            told(f, ("found", which, what))
            f.run_for(5.0)
            return told(f, ("seen", which, CopyPhase.DONE))
        case _:
            return told(f, step)
    return ""


def walk(steps: list[Step]) -> list[CheckpointCopied]:
    """Take the steps with three that run at one site, and prove the laws after each.

    Returns:
        What was copied, in order.
    """
    sites = {"alpine": rack("a", 2), "cedar": rack("c", 2), "delta": rack("d", 3)}
    f = Loopback(sites, AHEAD, None, Mast(), (TENANT,))
    for site in (CEDAR, DELTA):
        cordon(f, site)
    ids = [start(f, gpus=4) for _ in range(3)]
    for site in (CEDAR, DELTA):
        resume(f, site)
    drained(f)
    f.run_for(15.0)
    whole: list[CheckpointCopied] = []
    for step in steps:
        ledger, rules, logged = f.federation.ledger, f.federation.rules, len(f.log)
        risked = {entry.workload.id for entry in at_risk(ledger, rules, f.clock.now_s)}
        region = done(f, step)
        new = f.log[logged:] if step[0] != "restart" else []
        for event in new:
            if isinstance(event, CheckpointCopied):
                assert event.workload in risked
                assert AHEAD.regions[event.site] == region != "west"
                whole.append(event)
        assert len(list(f.federation.checkpoints.copies())) <= max(1, AT_ONCE - 1)
        assert {f.state(id_) for id_ in ids} <= {RUNS, WAITS}
        assert all(f.entry(id_).attempt == 1 for id_ in ids)
        before = {id_: f.entry(id_).copied_to for id_ in ids}
        assert {id_: f.replayed().entries[id_].copied_to for id_ in ids} == before
    if all(word not in ("cordon", "open") for word, *_ in steps):  # no region ever lacked room
        assert len({(event.workload, event.site) for event in whole}) == len(
            {event.workload for event in whole}
        )
    return whole


@settings(max_examples=25, deadline=None)
@given(steps=steps)
def test_only_those_at_risk_are_copied_ahead_within_the_bound_and_none_is_disturbed(
    steps: list[Step],
) -> None:
    whole = len(walk(steps))
    target(float(whole))
    met(f"{whole} copied")


def test_the_walk_above_reaches_copies() -> None:
    assert [event.site for event in walk(TWICE)] == [DELTA, DELTA]
