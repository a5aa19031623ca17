"""Laws of retired replicas, over any order of requests, news, time and restarts."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.model.dataset import (
    CopyPhase,
    DataGiven,
    DataPlace,
    DataSet,
    DataVerb,
    ReplicaState,
)
from federator.model.message import CopySeen, DataAsked, DataTidied
from federator.sched.passes.data_removals import has_other
from federator.sched.state.catalogue import retired_replicas
from federator.sched.state.rules import DataMoving
from tests.fakes.build import rack
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_data_copies import AUTO, DIGEST, GIB

RULES = replace(AUTO, moving=DataMoving(removal_grace_s=4.0, unused_s=30.0))
DOMAINS = ("west", "east")
VERBS = (
    *(DataVerb.RETIRE,) * 3,
    *(DataVerb.LOSE,) * 2,
    *(DataVerb.SEAL, DataVerb.COPY, DataVerb.LOSE, DataVerb.PIN, DataVerb.UNPIN, DataVerb.REMOVE),
)


def request(verb: DataVerb, domain: str) -> DataAsked:
    of = DataGiven(
        name="a",
        version="1",
        digest=DIGEST if verb in (DataVerb.ADD, DataVerb.SEAL) else None,
        size_bytes=GIB if verb is DataVerb.ADD else None,
        at=(DataPlace(domain=domain, path="x" if verb is DataVerb.ADD else ""),),
    )
    return DataAsked(client=-1, verb=verb, sets=(of,), by="ada")


requests = st.builds(request, st.sampled_from(VERBS), st.sampled_from(DOMAINS))
news = st.builds(
    CopySeen,
    name=st.just("a"),
    version=st.just("1"),
    domain=st.sampled_from(DOMAINS),
    digest=st.just(DIGEST),
    phase=st.sampled_from([CopyPhase.DROPPED, CopyPhase.FAILED, CopyPhase.DONE]),
)
waits = st.sampled_from(["restart", "compact", "tidy", "tidy", "wait", "wait"])
steps = st.lists(st.one_of(requests, requests, news, waits, waits), max_size=40)


def good(of: DataSet | None) -> set[str]:
    found = () if of is None else of.replicas
    return {r.domain for r in found if r.state is ReplicaState.READY and r.digest == DIGEST}


def going(of: DataSet | None) -> set[str]:
    """The domains whose files a site may be removing."""
    found = () if of is None else of.replicas
    return {r.domain for r in found if r.removal is not None and r.removal.begun}


def take(f: Loopback, step: DataAsked | CopySeen | str) -> None:
    match step:
        case "restart":
            f.restart()
        case "compact":
            f.compact()
        case "wait":
            f.run_for(5.0)
        case "tidy":
            f.observe(DataTidied())
        case str():
            raise AssertionError(step)
        case _:
            f.observe(step)
    f.run_for(1.0)


@settings(max_examples=300, deadline=None)
@given(steps=steps)
def test_a_removal_begins_only_while_another_good_replica_is_left_and_is_never_taken_back(
    steps: list[DataAsked | CopySeen | str],
) -> None:
    f = Loopback({"alpine": rack("a", 1), "baker": rack("b", 1)}, RULES)
    for domain in DOMAINS:
        f.observe(request(DataVerb.ADD, domain))
        f.observe(request(DataVerb.SEAL, domain))
    for step in steps:
        before = f.federation.ledger.catalogue.find("a", "1")
        take(f, step)
        after = f.federation.ledger.catalogue.find("a", "1")
        for domain in going(after) - going(before):
            assert after is not None
            assert has_other(after, domain)
            assert domain not in good(after)
        for domain in going(before) - going(after):  # gone, taken out by hand, or found whole
            assert before is not None
            sealed = isinstance(step, DataAsked) and step.verb is DataVerb.SEAL
            is_last = sealed and not has_other(before, domain)
            assert is_last or after is None or after.replica_in(domain) is None
        takes_away = isinstance(step, DataAsked) and step.verb in (DataVerb.LOSE, DataVerb.REMOVE)
        if not takes_away:
            assert good(after) or not good(before)
        retired = {(of.name, r.domain) for of, r in retired_replicas(f.federation.ledger.catalogue)}
        found = () if after is None else after.replicas
        assert retired == {("a", r.domain) for r in found if r.state is ReplicaState.RETIRED}
