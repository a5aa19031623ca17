"""What the federation holds of each node, for the page."""

from __future__ import annotations

from dataclasses import replace

from federator.model.message import DrainAsked
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from federator.wire.client_protocol import PassesCall, PassesReply
from federator.wire.holdings_rows import HoldingsCall, HoldingsReply, NodeHoldings, SiteHoldings
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback
from tests.unit.daemon.test_api import Desk

RULES = Rules(preempt_gpus=16, preempt_window_s=300.0, grace_s=60.0, cooldown_s=600.0)
TENANTS = (
    Tenant(name=TenantName("guest")),
    Tenant(name=TenantName("owner"), priority=3, quota=Allowance(gpus=64)),
)


def holdings(f: Loopback, *sites: str) -> dict[str, SiteHoldings]:
    reply = Desk(f).ask(HoldingsCall(clusters=sites))
    assert isinstance(reply, HoldingsReply)
    return {row.site: row for row in reply.sites}


def fleet() -> Loopback:
    return Loopback({"alpine": rack("a", 8), "baker": rack("b", 1)}, RULES, None, Mast(), TENANTS)


def test_owners_guests_and_claims_are_told_apart_by_node() -> None:
    f = fleet()
    for _ in range(8):
        f.submit(replace(draft(gang(1, 8)), tenant=TenantName("guest")))
    f.submit(replace(draft(gang(1, 3)), tenant=TenantName("owner")))
    f.run_for(10.0)
    found = holdings(f)
    held = [n for site in found.values() for n in site.nodes.values()]
    assert sum(n.guest for n in held) == 64
    assert sum(n.owner for n in held) == 3
    assert sum(n.claimed for n in held) == 0
    f.submit(replace(draft(gang(6, 8)), tenant=TenantName("owner")))
    f.run_for(20.0)
    claimed = holdings(f, "alpine")["alpine"].nodes
    assert sum(n.claimed for n in claimed.values()) == 48


def test_only_the_sites_that_are_asked_for_are_told() -> None:
    f = fleet()
    assert list(holdings(f, "baker")) == ["baker"]
    assert list(holdings(f)) == ["alpine", "baker"]


def test_drains_are_told_with_the_nodes_that_they_are_of() -> None:
    f = fleet()
    f.observe(DrainAsked(client=1, site=SiteName("alpine"), nodes=("a2",), reason="fan", by="root"))
    f.observe(DrainAsked(client=2, site=SiteName("baker"), nodes=(), reason="", by="root"))
    found = holdings(f)
    assert (found["alpine"].drained, found["alpine"].drained_nodes) == (False, ("a2",))
    assert found["baker"].drained


def test_the_last_passes_are_told_oldest_first() -> None:
    f = fleet()
    for _ in range(3):
        f.submit(draft(gang(1)))
        f.run_for(400.0)
    reply = Desk(f).ask(PassesCall())
    assert isinstance(reply, PassesReply)
    assert len(reply.passes) >= 3
    began = [row.began_s for row in reply.passes]
    assert began == sorted(began)
    assert sum(row.awarded for row in reply.passes) == 3


def test_a_node_without_holdings_is_not_named() -> None:
    f = fleet()
    f.submit(draft(gang(1, 4), tenant="owner"))
    f.run_for(10.0)
    (found,) = [n for site in holdings(f).values() for n in site.nodes.values()]
    assert found == NodeHoldings(owner=4)
