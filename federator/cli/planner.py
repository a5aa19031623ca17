"""``federator planner``: follows the log, and tells the daemon which load owners will bring.

With ``data.planning`` it also tells where data sets should be. It decides nothing. If it ends,
hangs or errs, its last plans expire: nothing is lent any more to work that cannot be evicted, and
no copy is begun by plans.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from federator.cli.planner_log import AGAIN_S, POLL_S, FollowingPlanner
from federator.errors import (
    ConfigError,
    FederatorError,
    NotAllowed,
    SiteUnavailable,
    StoreError,
)
from federator.model.data_placement import DataPlanning
from federator.model.lending import Lending, LendingPlan
from federator.wire.client_protocol import ErrorKind, ErrorReply, PlanCall

if TYPE_CHECKING:
    from federator.config import FederationConfig
    from federator.planner.data_planner import DataPlanner
    from federator.planner.lending_planner import LendingPlanner
    from federator.planner.planner_clock import PlannerClock
    from federator.store.base import Store
    from federator.wire.client_protocol import Call
    from federator.wire.replies import Reply

BEGINS_ANEW_S: Final = 14 * 86_400.0  # else its history would grow for ever
_LEVEL = click.Choice(["debug", "info", "warning", "error"])


class PlannerService:
    """Plans again and again, until it is stopped.

    Args:
        following: the planner.
        ask: brings a plan to the daemon.
        clock: Unix time; it may run back.
        every_s: between two plans.
        lasts_s: until a plan expires.
        is_stale: whether the planner is to be made anew, since the tenants may be others.
    """

    def __init__(
        self,
        following: FollowingPlanner[LendingPlanner],
        ask: Callable[[PlanCall], Reply],
        clock: PlannerClock,
        every_s: float,
        lasts_s: float,
        is_stale: Callable[[], bool] = lambda: False,
    ) -> None:
        self._following, self._ask, self._clock = following, ask, clock
        self._is_stale = is_stale
        self._every_s, self._lasts_s = every_s, lasts_s
        self._due_s = 0.0
        self._planned_s = 0.0
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
        run_turns([self.turn], self._ending)

    def turn(self) -> float:
        """Do what is due; the seconds until more may be."""
        try:
            if not self._following.follow():
                return 0.0
            self._clock.hear(self._following.latest_s)
            now_s = self._clock()
            runs_back = now_s < self._planned_s
            if now_s < self._due_s and not runs_back:
                return POLL_S
            if now_s > self._began_s + BEGINS_ANEW_S or runs_back or self._is_stale():
                self._began_s, self._planned_s, self._due_s = now_s, 0.0, 0.0
                self._following.begin_anew()
                return 0.0
            self._planned_s = now_s
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


def run_turns(turns: Sequence[Callable[[], float]], ending: threading.Event) -> None:
    """Take each turn again and again, whenever the first of them has more to do."""
    while not ending.is_set():
        ending.wait(min(turn() for turn in turns))


@click.command()
@click.option("--config", type=click.Path(path_type=Path), required=True, help="federation.yaml.")
@click.option(
    "--every",
    type=click.FloatRange(1.0, 1200.0),
    default=300.0,
    show_default=True,
    help="Seconds between two lending plans; one expires after three times as long.",
)
@click.option("--once", is_flag=True, help="Print one plan as JSON (docs/formats.md), and end.")
@click.option("--log-level", type=_LEVEL, default="info", show_default=True, help="Of its log.")
def planner(config: Path, every: float, once: bool, log_level: str) -> None:
    """Forecast what load owners will bring, plan where data sets should be, and tell the daemon.

    It runs on the daemon's host until SIGTERM, reads the daemon's log, and runs as the daemon's
    user. Forecasts need policy.lending and the extra federator[forecast]; plans for data need
    data.planning. With both off there is nothing to plan. --once prints a lending plan.

    Example: federator planner --config /etc/federator/federation.yaml
    """
    from federator.cli.services import log_to_stderr  # noqa: PLC0415  # no asyncio for --help
    from federator.config import load_config  # noqa: PLC0415

    loaded = load_config(config)
    lends = loaded.policy.lending is not Lending.OFF
    places = loaded.data.moving.planning is not DataPlanning.OFF
    if not (lends or places or once):
        raise ConfigError(
            f"{config}: policy.lending and data.planning are off, so no plan is needed"
        )
    log_to_stderr(log_level)
    if once:
        following = FollowingPlanner(_ConfiguredPlanner(config).made, _log_of(loaded, config))
        while not following.follow():
            pass
        clock = _clock()
        clock.hear(following.latest_s)
        print(msgspec.json.encode(following.planner.plan(clock())).decode())
        return
    ending = threading.Event()
    turns = [_lending_turn(loaded, config, every)] if lends else []
    turns += [_data_turn(loaded, config)] if places else []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    _log().info("planner_started", federation=loaded.federation, every_s=every)
    run_turns(turns, ending)


def _lending_turn(loaded: FederationConfig, config: Path, every: float) -> Callable[[], float]:
    tenants = _ConfiguredPlanner(config)
    following = FollowingPlanner(tenants.made, _log_of(loaded, config))
    ask, lasts_s = _asker(loaded), 3 * every
    return PlannerService(following, ask, _clock(), every, lasts_s, tenants.changed).turn


def _data_turn(loaded: FederationConfig, config: Path) -> Callable[[], float]:
    from federator.cli.data_planning import DataPlanService  # noqa: PLC0415  # not for --help

    domains = _ConfiguredDataPlanner(config)
    following = FollowingPlanner(domains.made, _log_of(loaded, config))
    return DataPlanService(following, _asker(loaded), _clock(), domains.changed).turn


def _clock() -> PlannerClock:
    from federator.planner.planner_clock import PlannerClock  # noqa: PLC0415  # not for --help

    return PlannerClock(time.time, time.monotonic)


def _log_of(loaded: FederationConfig, config: Path) -> Store:
    from federator.store.opening import open_store  # noqa: PLC0415

    if loaded.store == "memory:":
        raise ConfigError(f"{config}: store: nobody else can read a log that is in memory")
    try:
        return open_store(loaded.store)
    except OSError as error:
        raise StoreError(f"{loaded.store}: {error}") from error


class _ConfigFile:
    """federation.yaml, as it is at the time."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._seen = 0

    def changed(self) -> bool:
        """Whether the file is another one than the last planner was made from."""
        return self._written() != self._seen

    def loaded(self) -> FederationConfig:
        from federator.config import load_config  # noqa: PLC0415

        self._seen = self._written()
        return load_config(self._config)

    def _written(self) -> int:
        try:
            return self._config.stat().st_mtime_ns
        except OSError:
            return 0  # it is just being written, or is missing for now


class _ConfiguredPlanner(_ConfigFile):
    """Makes planners for the tenants of the file."""

    def made(self) -> LendingPlanner:
        from federator.planner.boosted import BoostedForecast  # noqa: PLC0415  # an extra
        from federator.planner.lending_planner import LendingPlanner  # noqa: PLC0415

        return LendingPlanner(self.loaded().tenancy(), BoostedForecast(), "boosted")


class _ConfiguredDataPlanner(_ConfigFile):
    """Makes planners for the storage domains of the file."""

    def made(self) -> DataPlanner:
        from federator.planner.data_planner import DataPlanner  # noqa: PLC0415  # numpy

        loaded = self.loaded()
        return DataPlanner(loaded.rules.storage, loaded.data.moving.quota_bytes)


def _asker(loaded: FederationConfig) -> Callable[[Call], Reply]:
    from federator.cli.client import call, socket_beside  # noqa: PLC0415

    return partial(call, path=socket_beside(loaded.socket))


def _log() -> Any:
    import structlog  # noqa: PLC0415  # an agent's host has none

    return structlog.get_logger()
