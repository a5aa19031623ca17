"""Sites are sent the figures of tenants, when those have changed."""

from __future__ import annotations

from dataclasses import replace

from federator.daemon.admission import AGAIN_S, EVERY_S, AdmissionUpdates, admission_of
from federator.model.site_mode import SiteMode
from federator.model.tenant import Tenant
from federator.wire.agent_protocol import TenantCap
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.loopback import Loopback


def fleet(*tenants: Tenant) -> Loopback:
    """One site of four nodes with 8 GPUs each."""
    return Loopback({"alpine": rack("a", 4)}, tenants=tenants)


def run(f: Loopback, name: str) -> None:
    f.submit(draft(gang(1), tenant=name))
    f.run_for(1.0)


def caps(f: Loopback) -> dict[str, TenantCap]:
    return {cap.name: cap for cap in admission_of(f.federation.ledger).tenants}


def test_a_tenant_below_mode_enforced_has_no_figures_so_sites_hold_nobody_to_its_limit() -> None:
    lab = replace(tenant("lab", limit=8), mode=SiteMode.OPT_IN)
    found = caps(fleet(lab, tenant("vision", limit=8, parent="lab"), tenant("guest", limit=8)))
    assert list(found) == ["guest"]


def test_a_tenant_is_bound_by_the_least_limit_above_it_and_uses_what_those_below_it_do() -> None:
    f = fleet(
        tenant("lab", 32, limit=24), tenant("vision", 8, parent="lab", limit=64), tenant("guest")
    )
    run(f, "vision")
    found = caps(f)
    assert found["lab"] == TenantCap(name="lab", limit_gpus=24, used_gpus=8)
    assert found["vision"] == TenantCap(name="vision", limit_gpus=24, used_gpus=8)
    assert found["guest"] == TenantCap(name="guest", limit_gpus=None, used_gpus=0)


def test_sites_are_told_at_once_and_then_of_changes_but_not_often() -> None:
    f = fleet(tenant("vision", 8))
    news = AdmissionUpdates(f.federation.ledger)
    at_s = f.clock.now_s
    assert news.due(at_s) is not None
    run(f, "vision")
    assert news.due(at_s + EVERY_S - 1.0) is None
    told = news.due(at_s + EVERY_S)
    assert told is not None
    assert [cap.used_gpus for cap in told.tenants] == [8]
    assert news.due(at_s + 3 * EVERY_S) is None  # nothing has changed


def test_what_has_not_changed_is_told_again_so_that_sites_know_it_to_be_true() -> None:
    f = fleet(tenant("vision", 8))
    news = AdmissionUpdates(f.federation.ledger)
    at_s = f.clock.now_s
    first = news.due(at_s)
    assert news.due(at_s + AGAIN_S - 1.0) is None
    assert news.due(at_s + AGAIN_S) == first
