"""The data step of ``federator planner``: plans where data sets should be, and tells the daemon.

If it ends, hangs or errs, its last plan expires, and no further copy is begun by plans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from federator.cli.planner_log import POLL_S, FollowingPlanner
from federator.errors import FederatorError, NotAllowed, SiteUnavailable
from federator.model.site_mode import SiteMode
from federator.wire.client_protocol import ErrorKind, ErrorReply, SiteRow, SitesCall, SitesReply
from federator.wire.data_rows import PlaceDataCall

if TYPE_CHECKING:
    from federator.planner.data_planner import DataPlanner
    from federator.planner.planner_clock import PlannerClock
    from federator.wire.client_protocol import Call
    from federator.wire.replies import Reply

EVERY_S: Final = 3600.0  # between two plans; one expires after three times as long
RETRY_S: Final = 300.0  # after one that was not taken: to make another may take a minute

_WATCHED: Final = frozenset({SiteMode.SHADOW.value, SiteMode.ADVISORY.value})


class DataPlanService:
    """Plans where data sets should be, again and again.

    Args:
        following: the planner.
        ask: brings a call to the daemon.
        clock: Unix time; it may run back.
        is_stale: whether the planner is to be made anew, since the configuration may be another.
    """

    def __init__(
        self,
        following: FollowingPlanner[DataPlanner],
        ask: Callable[[Call], Reply],
        clock: PlannerClock,
        is_stale: Callable[[], bool] = lambda: False,
    ) -> None:
        self._following, self._ask, self._clock = following, ask, clock
        self._is_stale = is_stale
        self._due_s = 0.0
        self._trouble = ""

    def turn(self) -> float:
        """Do what is due; the seconds until more may be.

        Raises:
            NotAllowed: the daemon takes no plan of this user.
        """
        try:
            if not self._following.follow():
                return 0.0
            self._clock.hear(self._following.latest_s)
            if self._due_s - EVERY_S <= self._clock() < self._due_s:
                return POLL_S
            if self._is_stale():
                self._following.begin_anew()
                return 0.0
            self._plan()
            self._due_s = self._clock() + EVERY_S
        except NotAllowed:
            raise
        except FederatorError as error:
            self._failed(error)
            self._due_s = self._clock() + RETRY_S
        return POLL_S

    def _plan(self) -> None:
        gpus = gpus_of(self._answer(SitesCall()))
        plan = self._following.planner.plan(self._clock(), gpus, 3 * EVERY_S)
        self._answer(PlaceDataCall(plan=plan))
        _log().debug("data_plan_taken", moves=len(plan.moves))
        if self._trouble:
            self._trouble = ""
            _log().info("data_plan_taken_again")

    def _answer(self, call: Call) -> Reply:
        reply = self._ask(call)
        if isinstance(reply, ErrorReply):
            if reply.kind is ErrorKind.DENIED:
                raise NotAllowed(reply.message)
            raise SiteUnavailable(reply.message)
        return reply

    def _failed(self, error: FederatorError) -> None:
        """Say so once for each kind of trouble."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            _log().warning("data_plan_not_taken", detail=self._trouble)


def gpus_of(reply: Reply) -> dict[str, dict[str, int]]:
    """The GPUs of each site by type, those that are out of order left out.

    A site that is drained, or only watched, has none for jobs of the federation.

    Raises:
        SiteUnavailable: it is no answer to that question; or a site has not said yet what it has,
            as after a start of the daemon: a plan made now would move data away from it.
    """
    if not isinstance(reply, SitesReply):
        raise SiteUnavailable(f"unexpected answer {type(reply).__name__}")
    found: dict[str, dict[str, int]] = {}
    for site in reply.sites:
        is_drained = any(not drain.nodes for drain in site.drains)
        if is_drained or site.mode in _WATCHED:
            found[site.name] = {}
        elif not site.partitions:
            raise SiteUnavailable(f"{site.name} is not heard yet")
        else:
            found[site.name] = _usable(site)
    return found


def _usable(site: SiteRow) -> dict[str, int]:
    """By type. Of partitions that share nodes, the one with most: less is there, or as much."""
    found: dict[str, int] = {}
    for kind in {each.gpu_type for each in site.partitions if each.gpu_type}:
        rows = [each for each in site.partitions if each.gpu_type == kind]
        usable = [max(each.gpus - each.gpus_down, 0) for each in rows]
        shares = sum(each.gpus for each in rows) > site.gpus_by_type.get(kind, 0)
        found[kind] = max(usable) if shares else sum(usable)
    return found


def _log() -> Any:
    import structlog  # noqa: PLC0415  # an agent's host has none

    return structlog.get_logger()
