"""Faults of the network between the daemon's host and the sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from federator.faults.inject.scene import FaultScene, Inject
from federator.faults.kinds import FaultKind
from federator.faults.site_host import SiteHost


def _channel_cut(scene: FaultScene) -> bool:
    lines = list(scene.site().network.lines)
    for line in lines:
        line.cut()
    return bool(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outage:
    """How bytes are held back, for how long, and whether they are lost then."""

    kind: FaultKind
    least_s: float
    most_s: float
    down: bool = True  # what goes to a site is held back
    up: bool = True  # what comes from it is
    lose: bool = False


def _hold(outage: _Outage, scene: FaultScene) -> None:
    _hold_at(outage, scene, [scene.site()])


def _hold_at(outage: _Outage, scene: FaultScene, sites: Sequence[SiteHost]) -> None:
    lasts_s = scene.world.rng.uniform(outage.least_s, outage.most_s)
    struck = False

    def strike() -> None:
        nonlocal struck
        if not struck:
            struck = True
            scene.world.strike(outage.kind)

    for network in (site.network for site in sites):
        network.on_held = strike
        network.holds_down = network.holds_down or outage.down
        network.holds_up = network.holds_up or outage.up
        scene.at(lasts_s, partial(network.heal, lose=outage.lose))


def _partition_all(scene: FaultScene) -> None:
    outage = _Outage(kind=FaultKind.PARTITION_ALL, least_s=5.0, most_s=30.0)
    _hold_at(outage, scene, list(scene.world.sites.values()))


def _slow(scene: FaultScene) -> None:
    network = scene.site().network
    network.slow_s, network.said_slow = scene.world.rng.uniform(1.0, 9.0), False
    scene.undo_within(5.0, 25.0, lambda: setattr(network, "slow_s", 0.0))


def _doubled(way: str, scene: FaultScene) -> None:
    scene.site().network.doubles = way


_OUTAGES: Final = (
    _Outage(kind=FaultKind.HALF_OPEN_DOWN, least_s=3.0, most_s=25.0, up=False),
    _Outage(kind=FaultKind.HALF_OPEN_UP, least_s=3.0, most_s=25.0, down=False),
    _Outage(kind=FaultKind.PARTITION, least_s=3.0, most_s=30.0),
    _Outage(kind=FaultKind.PARTITION_LOST, least_s=3.0, most_s=30.0, lose=True),
    _Outage(kind=FaultKind.SITE_AWAY, least_s=60.0, most_s=200.0, lose=True),
)
NETWORK_FAULTS: Final[Mapping[FaultKind, Inject]] = {
    FaultKind.CHANNEL_CUT: _channel_cut,
    **{outage.kind: partial(_hold, outage) for outage in _OUTAGES},
    FaultKind.PARTITION_ALL: _partition_all,
    FaultKind.NETWORK_SLOW: _slow,
    FaultKind.ORDER_TWICE: partial(_doubled, "down"),
    FaultKind.NEWS_TWICE: partial(_doubled, "up"),
}
