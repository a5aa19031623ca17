"""``federator planner``: follows the log, and tells the daemon which load owners will bring.

It decides nothing. If it ends, hangs or errs, its last plan expires, and nothing is lent any more
to work that cannot be evicted.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from federator.errors import (
    ConfigError,
    FederatorError,
    NotAllowed,
    SiteUnavailable,
    StaleState,
    StoreError,
)
from federator.model.lending import Lending, LendingPlan
from federator.wire.client_protocol import ErrorKind, ErrorReply, PlanCall

if TYPE_CHECKING:
    from federator.config import FederationConfig
    from federator.planner.lending_planner import LendingPlanner
    from federator.store.base import Store
    from federator.store.chain import LogPlace
    from federator.wire.replies import Reply

POLL_S: Final = 1.0  # between two looks at the log
AGAIN_S: Final = 10.0  # after a plan that was not taken
RECORDS_AT_ONCE: Final = 5_000
BEGINS_ANEW_S: Final = 14 * 86_400.0  # else its history would grow for ever
_LEVEL = click.Choice(["debug", "info", "warning", "error"])


class FollowingPlanner:
    """A planner, and how far in the log it is.

    Args:
        make: makes one without history.
        store: holds the log; read, never written.
    """

    def __init__(self, make: Callable[[], LendingPlanner], store: Store) -> None:
        self._make, self._store = make, store
        self.planner = make()
        self._place: LogPlace | None = None
        self._read = 0

    def follow(self) -> bool:
        """Take in what comes next in the log; True when that was all there is.

        Raises:
            StoreError: the log, or a record, cannot be read; the same call may succeed later.
        """
        from federator.store.replaying import read_record  # noqa: PLC0415  # not for --help

        try:
            with closing(self._store.read_on(self._place)) as rest:
                found = list(islice(rest, RECORDS_AT_ONCE))
        except StaleState:  # it was compacted, or another one was put in its place
            self.begin_anew()
            return False
        for place, record in found:
            self._read += 1
            self.planner.take(read_record(self._read, record))
            self._place = place
        return len(found) < RECORDS_AT_ONCE

    def begin_anew(self) -> None:
        """Read the log from its beginning."""
        self.planner, self._place, self._read = self._make(), None, 0


class PlannerService:
    """Plans again and again, until it is stopped.

    Args:
        following: the planner.
        ask: brings a plan to the daemon.
        clock: Unix time.
        every_s: between two plans.
        lasts_s: until a plan expires.
        is_stale: whether the planner is to be made anew, since the tenants may be others.
    """

    def __init__(
        self,
        following: FollowingPlanner,
        ask: Callable[[PlanCall], Reply],
        clock: Callable[[], float],
        every_s: float,
        lasts_s: float,
        is_stale: Callable[[], bool] = lambda: False,
    ) -> None:
        self._following, self._ask, self._clock = following, ask, clock
        self._is_stale = is_stale
        self._every_s, self._lasts_s = every_s, lasts_s
        self._due_s = 0.0
        self._began_s = clock()
        self._trouble = ""
        self._ending = threading.Event()

    def stop(self) -> None:
        self._ending.set()

    def run(self) -> None:
        """Follow and plan until ``stop``.

        Raises:
            NotAllowed: the daemon takes no plan of this user.
        """
        while not self._ending.is_set():
            self._ending.wait(self.turn())

    def turn(self) -> float:
        """Do what is due; the seconds until more may be."""
        try:
            if not self._following.follow():
                return 0.0
            now_s = self._clock()
            if now_s < self._due_s:
                return POLL_S
            if now_s > self._began_s + BEGINS_ANEW_S or self._is_stale():
                self._began_s = now_s
                self._following.begin_anew()
                return 0.0
            self._bring(self._following.planner.plan(now_s, self._lasts_s))
            self._due_s = now_s + self._every_s
        except NotAllowed:
            raise
        except FederatorError as error:
            self._failed(error)
            self._due_s = self._clock() + min(AGAIN_S, self._every_s)
        return POLL_S

    def _bring(self, plan: LendingPlan) -> None:
        reply = self._ask(PlanCall(plan=plan))
        if isinstance(reply, ErrorReply):
            if reply.kind is ErrorKind.DENIED:
                raise NotAllowed(reply.message)
            raise SiteUnavailable(reply.message)
        off = sum(any(forecast.off) for forecast in plan.forecasts)
        _log().debug("plan_taken", forecasts=len(plan.forecasts), off=off)
        if self._trouble:
            self._trouble = ""
            _log().info("plan_taken_again")

    def _failed(self, error: FederatorError) -> None:
        """Say so once for each kind of trouble."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log().warning("plan_not_taken", detail=self._trouble)


@click.command()
@click.option("--config", type=click.Path(path_type=Path), required=True, help="federation.yaml.")
@click.option(
    "--every",
    type=click.FloatRange(1.0, 1200.0),
    default=300.0,
    show_default=True,
    help="Seconds between two plans; one expires after three times as long.",
)
@click.option("--once", is_flag=True, help="Print one plan as JSON (docs/formats.md), and end.")
@click.option("--log-level", type=_LEVEL, default="info", show_default=True, help="Of its log.")
def planner(config: Path, every: float, once: bool, log_level: str) -> None:
    """Forecast what load owners will bring, and tell the daemon on this host, until SIGTERM.

    It needs the extra federator[forecast], reads the daemon's log, and runs as the daemon's user.
    With policy.lending off there is nothing to plan.

    Example: federator planner --config /etc/federator/federation.yaml
    """
    from federator.cli.services import log_to_stderr  # noqa: PLC0415  # no asyncio for --help
    from federator.config import load_config  # noqa: PLC0415

    loaded = load_config(config)
    if loaded.policy.lending is Lending.OFF and not once:
        raise ConfigError(f"{config}: policy.lending is off, so no plan is needed")
    log_to_stderr(log_level)
    tenants = _ConfiguredPlanner(config)
    following = FollowingPlanner(tenants.made, _log_of(loaded, config))
    if once:
        while not following.follow():
            pass
        print(msgspec.json.encode(following.planner.plan(time.time())).decode())
        return
    service = PlannerService(
        following, _asker(loaded), time.time, every, 3 * every, tenants.changed
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    _log().info("planner_started", federation=loaded.federation, every_s=every)
    service.run()


def _log_of(loaded: FederationConfig, config: Path) -> Store:
    from federator.store.opening import open_store  # noqa: PLC0415

    if loaded.store == "memory:":
        raise ConfigError(f"{config}: store: nobody else can read a log that is in memory")
    try:
        return open_store(loaded.store)
    except OSError as error:
        raise StoreError(f"{loaded.store}: {error}") from error


class _ConfiguredPlanner:
    """Makes planners for the tenants of federation.yaml, as it is at the time."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._seen = 0

    def changed(self) -> bool:
        """Whether the file is another one than the last planner was made from."""
        return self._written() != self._seen

    def made(self) -> LendingPlanner:
        from federator.config import load_config  # noqa: PLC0415
        from federator.planner.boosted import BoostedForecast  # noqa: PLC0415  # an extra
        from federator.planner.lending_planner import LendingPlanner  # noqa: PLC0415

        self._seen = self._written()
        return LendingPlanner(load_config(self._config).tenancy(), BoostedForecast(), "boosted")

    def _written(self) -> int:
        try:
            return self._config.stat().st_mtime_ns
        except OSError:
            return 0  # it is just being written, or is missing for now


def _asker(loaded: FederationConfig) -> Callable[[PlanCall], Reply]:
    from federator.cli.client import call, socket_beside  # noqa: PLC0415

    return partial(call, path=socket_beside(loaded.socket))


def _log() -> Any:
    import structlog  # noqa: PLC0415  # an agent's host has none

    return structlog.get_logger()
