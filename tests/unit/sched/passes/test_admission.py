"""What is refused at once, since it could never run."""

from __future__ import annotations

from federator.model.message import AnswerRefused, AnswerSubmitted
from federator.model.reason import ReasonCode, RefusalKind
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import SiteName, TenantName
from federator.sched.bid.empty_site import EmptySite, capacity_of
from federator.sched.passes.admission import never_runs
from federator.sched.passes.site_view import SiteView
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

VISION, LAB = TenantName("vision"), TenantName("lab")
ALPINE = SiteName("alpine")


def limited(gpus: int) -> Tenancy:
    """``vision``, whose parent's limit holds for it too."""
    parent = Tenant(name=LAB, limit=Allowance(gpus=gpus))
    return Tenancy([parent, Tenant(name=VISION, parent=LAB)])


def four_nodes() -> dict[SiteName, SiteView]:
    return {ALPINE: SiteView(partitions=("gpu",), empty=EmptySite(capacity_of(rack("a", 4))))}


def test_a_request_beyond_a_limit_of_the_chain_is_refused_for_good_by_the_federation_itself() -> (
    None
):
    refusals = never_runs(draft(gang(2)), limited(gpus=15), four_nodes())
    assert refusals is not None
    ((site, refusal),) = refusals.items()
    (reason,) = refusal.reasons
    assert (site, refusal.kind, reason.code) == ("", RefusalKind.REJECT, ReasonCode.LIMIT)
    assert (reason.needed, reason.free, reason.unit, reason.detail) == (16, 15, "GPUs", "lab")


def test_a_request_that_the_unused_limit_allows_is_queued() -> None:
    assert never_runs(draft(gang(2)), limited(gpus=16), four_nodes()) is None


def test_nothing_is_said_about_sites_that_have_not_told_yet() -> None:
    assert never_runs(draft(gang(99)), Tenancy(), {ALPINE: SiteView(partitions=("gpu",))}) is None


def test_what_no_site_can_hold_is_refused_and_the_next_is_queued() -> None:
    f = Loopback({"alpine": rack("a", 4)})
    assert isinstance(f.ask(draft(gang(5))), AnswerRefused)
    assert isinstance(f.ask(draft(gang(4))), AnswerSubmitted)
