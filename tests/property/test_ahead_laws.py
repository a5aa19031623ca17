"""Laws of checkpoints that are copied ahead, over any drains, news, times and restarts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event as met
from hypothesis import example, given, settings, target
from hypothesis import strategies as st

from federator.model.dataset import CopyPhase
from federator.model.event import CheckpointCopied
from federator.model.message import CopySeen, DrainAsked
from federator.sched.passes.at_risk import at_risk
from federator.sched.passes.checkpoint_moves import CHECKPOINT
from federator.sched.state.rules import Staging
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_checkpoint_moves import (
    ALPINE,
    AUTO,
    CEDAR,
    RUNS,
    SIZE,
    WAITS,
    cordon,
    fleet,
    resume,
    start,
)

AT_ONCE = 2
AHEAD = replace(AUTO, staging=Staging(checkpoints=True, ahead=True, at_once=AT_ONCE))
PHASES = st.sampled_from([CopyPhase.COPYING, CopyPhase.DONE, CopyPhase.DONE, CopyPhase.FAILED])
finds = st.tuples(st.just("found"), st.integers(0, 2), st.integers(3, 5))
news = st.tuples(st.just("seen"), st.integers(0, 2), PHASES)
waits = st.tuples(st.just("wait"), st.just(0), st.sampled_from([5.0, 61.0, 601.0]))
others = st.tuples(
    st.sampled_from(["drain", "cordon", "resume", "restart"]), st.just(0), st.just(0.0)
)
steps = st.lists(st.one_of(finds, finds, news, news, waits, others), max_size=16)


def digest(number: int) -> str:
    return "sealed:" + f"{number:x}" * 64


def told(f: Loopback, step: tuple[str, int, object]) -> None:
    """One of the three has a checkpoint, or its copy is so far."""
    word, which, what = step
    id_ = sorted(f.federation.ledger.entries)[which]
    if word == "found":
        assert isinstance(what, int)
        text = f"ckpt-{what:08d}-step-{what} {digest(what)}"
        said, phase, domain = "", CopyPhase.FOUND, ""
    else:
        assert isinstance(what, CopyPhase)
        of = f.federation.checkpoints.find(CHECKPOINT, str(id_))
        text, said, phase, domain = "", "" if of is None else of.digest, what, "east"
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


def drained(f: Loopback) -> None:
    """All must leave alpine within a week, if it is not so already."""
    until_s = f.clock.now_s + 7 * 86_400.0
    f.observe(DrainAsked(client=97, site=ALPINE, reason="", by="root", deadline_s=until_s))


def done(f: Loopback, step: tuple[str, int, object]) -> None:
    match step[0]:
        case "wait":
            assert isinstance(step[2], float)
            f.run_for(step[2])
        case "drain":
            drained(f)
        case "cordon":
            cordon(f, CEDAR)
        case "resume":
            resume(f, ALPINE)
        case "restart":
            f.compact()
            f.restart()
        case _:
            told(f, step)


@settings(max_examples=25, deadline=None)
@given(steps=steps)
def test_only_those_at_risk_are_copied_ahead_within_the_bound_and_none_is_disturbed(
    steps: list[tuple[str, int, object]],
) -> None:
    f = fleet(AHEAD)
    cordon(f, CEDAR)
    ids = [start(f, gpus=4) for _ in range(3)]
    resume(f, CEDAR)
    drained(f)
    f.run_for(15.0)
    for step in steps:
        ledger, rules, logged = f.federation.ledger, f.federation.rules, len(f.log)
        risked = {entry.workload.id for entry in at_risk(ledger, rules, f.clock.now_s)}
        done(f, step)
        new = f.log[logged:] if step[0] != "restart" else []
        for event in new:
            if isinstance(event, CheckpointCopied):
                assert event.workload in risked
                assert event.site == CEDAR
        assert len(list(f.federation.checkpoints.copies())) <= max(1, AT_ONCE - 1)
        assert {f.state(id_) for id_ in ids} <= {RUNS, WAITS}
        assert all(f.entry(id_).attempt == 1 for id_ in ids)
        before = {id_: f.entry(id_).copied_to for id_ in ids}
        assert {id_: f.replayed().entries[id_].copied_to for id_ in ids} == before
