"""What is left to workloads that spot interrupted too often."""

from __future__ import annotations

from collections.abc import Iterable

from federator.model.event import Submitted
from federator.model.prices import PriceRule
from federator.model.workload import FIRST_WORKLOAD_ID, Job, SiteName
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.spot_rule import SpotRule
from federator.sched.passes.tariff import Tariff
from federator.sched.queue.guests import Guests
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules
from tests.fakes.build import draft

RULES = Rules(
    prices=(PriceRule(partition="burst", tier="spot"), PriceRule(tier="own")), spot_interruptions=1
)
NOW_S = 1_000.0


class Counting(Tariff):
    """Counts how often it is asked."""

    asked = 0

    def without_spot(
        self, jobs: Iterable[Job], site: SiteName, partitions: tuple[str, ...], now_s: float
    ) -> tuple[tuple[str, ...], ...] | None:
        self.asked += 1
        return super().without_spot(jobs, site, partitions, now_s)


def test_the_alternatives_of_a_workload_are_found_once_in_a_round() -> None:
    ledger, tariff = Ledger(), Counting(RULES)
    ledger.apply(Submitted(at_s=0.0, draft=draft(), first_id=FIRST_WORKLOAD_ID, key="k"))
    (entry,) = ledger.entries.values()
    entry.interruptions = ((NOW_S - 1.0, SiteName("s0"), "burst", ""),)
    sites = {SiteName(f"s{k}"): SiteView(partitions=("gpu", "burst"), ready=True) for k in range(5)}
    rule = SpotRule(tariff, ledger, RULES, Guests(ledger))
    jobs = entry.workload.jobs
    for _ in range(2):
        rule.begin_round()
        before = tariff.asked
        for site in sites:
            asked = rule.jobs_at(entry, jobs, site, sites, NOW_S)
            assert asked is not None
            assert [job.partitions for job in asked] == [("gpu",)] * len(jobs)
        assert tariff.asked == before + 5
