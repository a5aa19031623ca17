"""Is each ended workload's folder told once to one site of each region, and never a live one's?"""

from __future__ import annotations

from typing import Any

from federator.config import FederationConfig
from federator.daemon.tidying import LOOK_EVERY_S, OLD_EVERY_S, OLD_FIRST_S, TidyNews
from federator.model.workload import SiteName
from federator.sites.protocol import TidyOrder
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback


def config(**regions: Any) -> FederationConfig:
    return FederationConfig.model_validate({
        "federation": "demo", "store": "memory:",
        "regions": regions or {"west": {"shared": "/s/west"}},
        "sites": {
            "alpine": {"region": "west", "command": ["a"], "partitions": ["p"]},
            "boreal": {"region": "west", "command": ["b"], "partitions": ["p"]},
        },
        "tenants": {"vision": {"users": ["ada"]}},
    })  # fmt: skip


class Rig:
    """One federation whose jobs end when they are told to."""

    def __init__(self, given: FederationConfig) -> None:
        self.f = Loopback({"alpine": rack("a", 2)})
        self.heard = {SiteName("alpine"), SiteName("boreal")}
        self.ended = self.f.submit(draft(gang(1), time_limit_s=60.0))
        self.f.run_for(1.0)
        self.live = self.f.submit(draft(gang(1)))
        self.f.run_for(1.0)
        self.began_s = self.f.clock()
        self.news = TidyNews(given, self.f.federation.ledger, self.heard.__contains__, self.began_s)

    def due(self, after_s: float) -> list[tuple[SiteName, TidyOrder]]:
        return list(self.news.due(self.began_s + after_s))


def end(rig: Rig) -> None:
    rig.f.cancel(rig.ended)
    rig.f.run_for(1.0)


def test_a_workload_that_has_ended_is_told_once_to_one_site_that_is_heard() -> None:
    rig = Rig(config())
    assert rig.due(LOOK_EVERY_S) == []
    end(rig)
    assert rig.due(LOOK_EVERY_S + 1.0) == []  # not at every turn
    rig.heard.clear()
    assert rig.due(2 * LOOK_EVERY_S) == []  # nobody to tell
    rig.heard.add(SiteName("boreal"))
    ((site, order),) = rig.due(3 * LOOK_EVERY_S)
    assert (site, order.shared, order.ended) == ("boreal", "/s/west", {"ada": (rig.ended,)})
    assert (order.live, order.before_s) == ({"ada": (rig.live,)}, 0.0)
    assert order.below == rig.live + 1
    assert rig.due(4 * LOOK_EVERY_S) == []


def test_what_is_old_is_looked_for_once_a_day_where_the_region_wants_it() -> None:
    rig = Rig(config(west={"shared": "/s/west", "keep_saved_h": 48}))
    assert rig.due(OLD_FIRST_S - 1.0) == []
    ((_, order),) = rig.due(OLD_FIRST_S + LOOK_EVERY_S)
    assert order.before_s == rig.began_s + OLD_FIRST_S + LOOK_EVERY_S - 48 * 3600.0
    assert set(order.live["ada"]) == {rig.ended, rig.live}
    assert rig.due(OLD_EVERY_S) == []
    assert len(rig.due(OLD_FIRST_S + 2 * LOOK_EVERY_S + OLD_EVERY_S)) == 1


def test_what_was_saved_is_kept_for_ever_with_0() -> None:
    rig = Rig(config(west={"shared": "/s/west", "keep_saved_h": 0}))
    assert rig.due(10 * OLD_EVERY_S) == []
