"""Drains, cordons and quarantines as the ledger keeps them."""

from __future__ import annotations

from federator.model.event import SiteDrained, SiteResumed, decode_event, encode_event
from federator.model.workload import SiteName
from federator.sched.state.drains import DrainedSites

ALPINE = SiteName("alpine")
CORDON = SiteDrained(at_s=1.0, site=ALPINE, nodes=("a1", "a2"), by="root", cordon=True)
SLOW = SiteDrained(
    at_s=2.0, site=ALPINE, nodes=("a2", "a3"), cordon=True, gangs=True, until_s=9.0, reason="slow"
)


def both() -> DrainedSites:
    drains = DrainedSites()
    for event in (CORDON, SLOW):
        drains.apply(event)
    return drains


def test_a_quarantine_takes_no_node_from_jobs_of_one_node() -> None:
    drains = DrainedSites()
    drains.apply(SLOW)
    assert not drains
    assert drains.of(ALPINE, ("a3",)) is None
    assert drains.nodes_at(ALPINE) == ()
    assert drains.limping_at(ALPINE) == ("a2", "a3")


def test_the_end_of_a_quarantine_leaves_an_operators_cordon() -> None:
    drains = both()
    drains.apply(SiteResumed(at_s=3.0, site=ALPINE, nodes=("a2",), gangs=True))
    assert drains.nodes_at(ALPINE) == ("a1", "a2")
    assert drains.limping_at(ALPINE) == ("a3",)


def test_an_operator_ends_both() -> None:
    drains = both()
    drains.apply(SiteResumed(at_s=3.0, site=ALPINE, nodes=("a1", "a2", "a3"), by="root"))
    assert drains == DrainedSites()


def test_a_snapshot_has_both() -> None:
    kept = DrainedSites()
    kept.restore(decode_event(encode_event(drain)) for drain in both().saved())  # type: ignore[misc]
    assert kept == both()
