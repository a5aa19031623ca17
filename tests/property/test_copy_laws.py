"""Laws of copies of data sets, over any order of requests, news and restarts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.model.dataset import (
    CopyPhase,
    DataGiven,
    DataPlace,
    DataVerb,
    ReplicaState,
)
from federator.model.message import CopySeen, DataAsked
from federator.sched.state.ledger import Ledger
from tests.fakes.build import rack
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_data_copies import AUTO, DIGEST, GIB

OTHER = DIGEST.replace("0f", "0e")
NAMES = ("a", "b")
DOMAINS = ("west", "east")

requests = st.builds(
    lambda verb, name, domain: DataAsked(
        client=-1,
        verb=verb,
        sets=(
            DataGiven(
                name=name,
                version="1",
                digest=DIGEST if verb in (DataVerb.ADD, DataVerb.SEAL) else None,
                size_bytes=GIB if verb is DataVerb.ADD else None,
                at=(DataPlace(domain=domain, path="x" if verb is DataVerb.ADD else ""),),
            ),
        ),
        by="ada",
    ),
    st.sampled_from(
        [DataVerb.ADD, DataVerb.COPY, DataVerb.LOSE, DataVerb.SEAL, DataVerb.REMOVE, DataVerb.PIN]
    ),
    st.sampled_from(NAMES),
    st.sampled_from(DOMAINS),
)
news = st.builds(
    CopySeen,
    name=st.sampled_from(NAMES),
    version=st.just("1"),
    domain=st.sampled_from(DOMAINS),
    digest=st.sampled_from([DIGEST, OTHER]),
    phase=st.sampled_from(CopyPhase),
    copied_bytes=st.integers(0, 2 * GIB),
    detail=st.just(""),
)
steps = st.lists(st.one_of(requests, news, st.just("restart")), max_size=40)


def ready(ledger: Ledger) -> set[tuple[str, str]]:
    return {
        (of.name, r.domain)
        for of in ledger.catalogue
        for r in of.replicas
        if r.state is ReplicaState.READY
    }


@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_only_news_that_it_is_whole_make_a_copy_ready_and_none_costs_a_replica(
    steps: list[DataAsked | CopySeen | str],
) -> None:
    f = Loopback({"alpine": rack("a", 1), "baker": rack("b", 1)}, AUTO)
    for step in steps:
        ledger = f.federation.ledger
        before = ready(ledger)
        known = list(ledger.catalogue)
        if isinstance(step, str):
            f.restart()
            assert list(f.federation.ledger.catalogue) == known
            continue
        f.observe(step)
        f.run_for(1.0)
        after = ready(f.federation.ledger)
        if isinstance(step, CopySeen):
            assert before <= after  # never takes a good one away
            grown = after - before
            assert grown <= {(step.name, step.domain)}
            assert not grown or (step.phase is CopyPhase.DONE and step.digest == DIGEST)
        elif step.verb is DataVerb.COPY:
            assert before == after
        copies = {(of.name, r.domain) for of, r in f.federation.ledger.catalogue.copies()}
        assert copies == {
            (of.name, r.domain)
            for of in f.federation.ledger.catalogue
            for r in of.replicas
            if r.copy is not None
        }
        assert not copies & after
