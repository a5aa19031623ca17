"""A tenant's admins are mailed before its unused quota is lent, and when it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from federator.config import FederationConfig
from federator.daemon.mail.letters import Letter
from federator.daemon.mail.sending import MailSender
from federator.daemon.mail.tenant_notices import (
    MOST_ADDRESSED,
    TenantNotices,
    members_on_this_host,
)
from federator.daemon.own_config import OwnConfig
from federator.model.event import QuotaLoan
from federator.model.quota_loan import LoanStep
from federator.model.workload import TenantName

NOTICED = QuotaLoan(
    at_s=5.0,
    tenant=TenantName("vision"),
    step=LoanStep.NOTICED,
    used_frac=0.04,
    days=3,
    lends_at_s=1_764_072_000.0,
)
CONFIG = FederationConfig.model_validate(
    {
        "federation": "demo",
        "store": "memory:",
        "regions": {"r": {"shared": "/s"}},
        "sites": {"alpine": {"region": "r", "partitions": ["gpu"], "command": ["true"]}},
        "mail": {"smtp": "localhost:25", "domain": "example.org"},
        "tenants": {
            "org": {"admin_groups": ["org-pi"]},
            "vision": {"parent": "org", "admin_groups": ["vision-pi", "vision-ops"]},
            "speech": {"parent": "org", "users": ["eve"]},
            "nlp": {"users": [f"u{k}" for k in range(100)]},
            "empty": {},
        },
    }
)
GROUPS = {"org-pi": ["dean"], "vision-pi": ["ada", "bob"], "vision-ops": ["bob", "cy"]}


class Sender:
    def __init__(self) -> None:
        self.posted: list[Letter] = []

    def post(self, letters: Sequence[Letter], now_s: float) -> None:
        assert now_s == 7.0
        self.posted += letters


async def here(act: Callable[..., Any], *args: Any) -> Any:
    return act(*args)


def letters(
    record: QuotaLoan, members: Callable[[str], Sequence[str]] = lambda name: GROUPS.get(name, [])
) -> list[Letter]:
    class Own:
        now = CONFIG

    async def made() -> list[Letter]:
        sender = Sender()
        notices = TenantNotices(cast(OwnConfig, Own()), cast(MailSender, sender), here, members)
        notices.note([record], 7.0)
        async with asyncio.timeout(1):
            await notices.make_next()
        return sender.posted

    return asyncio.run(made())


def test_the_admins_of_a_tenant_hear_of_it_once_each() -> None:
    made = letters(NOTICED)
    assert [letter.to for letter in made] == [f"{u}@example.org" for u in ("ada", "bob", "cy")]
    assert made[0].subject == (
        "Federator demo: the quota of vision is lent from 2025-11-25 12:00 UTC on, "
        "unless it is used"
    )
    assert "at most 4% of its quota, on each of the last 3 days" in made[0].body
    assert "federator quotas keep vision" in made[0].body
    assert len({letter.id for letter in made}) == 3


def test_a_loan_that_has_begun_says_so() -> None:
    lent = QuotaLoan(at_s=6.0, tenant=NOTICED.tenant, step=LoanStep.LENT, used_frac=0.04, days=3)
    assert letters(lent)[0].subject == "Federator demo: the quota of vision is lent"


@pytest.mark.parametrize(
    ("tenant", "people"),
    [("speech", ["dean"]), ("nlp", [f"u{k}" for k in range(MOST_ADDRESSED)])],
)
def test_without_admins_those_above_hear_of_it_or_the_users(tenant: str, people: list[str]) -> None:
    record = QuotaLoan(at_s=5.0, tenant=TenantName(tenant), step=LoanStep.NOTICED)
    assert [letter.user for letter in letters(record)] == people


@pytest.mark.parametrize("tenant", ["empty", "gone"])
def test_a_notice_that_nobody_gets_is_in_the_log(tenant: str) -> None:
    record = QuotaLoan(at_s=5.0, tenant=TenantName(tenant), step=LoanStep.NOTICED)
    with capture_logs() as logs:
        assert letters(record) == []
    assert [line["event"] for line in logs] == ["quota_notice_unsent"]


def test_a_directory_that_fails_ends_nothing() -> None:
    def fails(group: str) -> list[str]:
        raise OSError(group)

    with capture_logs() as logs:
        assert letters(NOTICED, fails) == []
    assert [line["event"] for line in logs] == ["quota_notice_unsent"]


def test_a_group_that_this_host_does_not_know_has_no_members() -> None:
    assert members_on_this_host("no-such-group-here") == []
