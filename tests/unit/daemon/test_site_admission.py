"""A site is sent the newest limits of tenants, also when it was away as they came."""

from __future__ import annotations

import pytest

from federator.daemon.shadow_filter import ShadowFilter
from federator.daemon.site_admission import SiteAdmission
from federator.model.site_mode import SiteMode
from federator.model.tagged import Message
from federator.model.workload import SiteName
from federator.wire.agent_protocol import Admission, TenantCap

LIMITS, NEWER = (
    Admission(tenants=(TenantCap(name="bio", limit_gpus=8, used_gpus=used),)) for used in (2, 3)
)


def site(sent: list[Message], mode: SiteMode = SiteMode.ENFORCED) -> SiteAdmission:
    return SiteAdmission(sent.append, ShadowFilter(SiteName("alpine"), mode))


def test_a_site_that_comes_up_is_sent_the_newest_limits() -> None:
    sent: list[Message] = []
    admission = site(sent)
    admission.came_up()
    assert sent == []
    admission.renew(LIMITS)
    admission.renew(NEWER)
    admission.came_up()
    assert sent == [LIMITS, NEWER, NEWER]


def test_a_link_made_anew_knows_what_the_one_before_it_sent() -> None:
    sent: list[Message] = []
    admission = site(sent)
    admission.latest = LIMITS
    admission.came_up()
    assert sent == [LIMITS]


@pytest.mark.parametrize("again", [False, True])
def test_in_mode_opt_in_no_limits_are_sent(again: bool) -> None:
    sent: list[Message] = []
    admission = site(sent, SiteMode.OPT_IN)
    admission.renew(LIMITS)
    if again:
        admission.came_up()
    assert set(sent) == {Admission(tenants=())}
