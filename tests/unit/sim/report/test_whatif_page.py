"""A comparison as a page: what it says, and that names cannot change it."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from federator.sim.report.before_after import BeforeAfter, Change, Then
from federator.sim.report.page import report_page
from federator.sim.report.summary import LeftOutJob, Spread
from federator.sim.report.whatif_page import page_of

pytestmark = pytest.mark.slow

pytest.importorskip("matplotlib")
WAITS = Spread(3600.0, 1800.0, 7200, 9000)


@dataclass(frozen=True)
class Names:
    tenant: str = "vision"
    site: str = "alpine"


def comparison(names: Names) -> BeforeAfter:
    def change(name: str) -> Change:
        return Change(
            name=name,
            gpus=8,
            jobs=3,
            jobs_here=2,
            never_started=0,
            start_later=1,
            start_earlier=2,
            peak_before_gpus=8,
            before=Then(wait_s=WAITS, allocation_frac=0.5, preemptions=1),
            after=Then(wait_s=None, allocation_frac=0.25, preemptions=0),
        )

    return BeforeAfter(
        schema=1,
        policy="mast",
        seed=0,
        begin_s=0,
        end_s=86_400,
        in_all=change("ALL"),
        tenants=[change(names.tenant)],
        sites=[change(names.site)],
        accounts_without_tenant=[],
        left_out=2,
        left_out_jobs=[LeftOutJob("7", 3, "gpu", 0, "asks for no GPU")] * 2,
    )


def test_before_and_after_stand_beside_each_other_in_hours() -> None:
    tenants = page_of(comparison(Names())).table("tenants")
    assert tenants.column("tenant") == ["vision", "vision", "ALL", "ALL"]
    assert tenants.column("when")[:2] == ["before", "after"]
    assert tenants.column("wait_mean_h")[:2] == [1.0, None]
    assert tenants.column("allocated_frac")[:2] == [0.5, 0.25]
    assert tenants.column("start_earlier")[:2] == [None, 2]


def test_what_is_left_out_is_counted_by_reason() -> None:
    assert page_of(comparison(Names())).table("left-out").rows == (("asks for no GPU", 2),)


def test_the_page_has_both_tables_and_escapes_names() -> None:
    hostile = comparison(Names(tenant="<script>alert(1)</script>", site="a&b"))
    page = report_page(page_of(hostile), "whatif", hostile.seed)
    assert "<script>" not in page
    assert "a&amp;b" in page


def test_the_same_comparison_gives_the_same_bytes() -> None:
    one = comparison(Names())
    again = msgspec.json.decode(msgspec.json.encode(one), type=BeforeAfter)
    pages = [report_page(page_of(result), "whatif", 0) for result in (one, again)]
    assert pages[0] == pages[1]
