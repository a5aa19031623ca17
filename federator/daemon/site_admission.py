"""Sends a site what its admission rules need to know, now and whenever it comes up."""

from __future__ import annotations

from collections.abc import Callable

from federator.daemon.shadow_filter import ShadowFilter
from federator.model.site_mode import SiteMode
from federator.model.tagged import Message
from federator.wire.agent_protocol import Admission


class SiteAdmission:
    """The newest limits of tenants that one site is to know.

    In mode opt-in its rules get no limits, so that those that they had hold no more.

    Args:
        send: sends a message to the site's agent, if its channel is up.
        filter_: knows the site's mode.

    Attributes:
        latest: sent when the site comes up; None: none was given yet.
    """

    def __init__(self, send: Callable[[Message], None], filter_: ShadowFilter) -> None:
        self._send = send
        self._filter = filter_
        self.latest: Admission | None = None

    def renew(self, admission: Admission) -> None:
        """Send a newer one, and keep it for when the site comes up."""
        self.latest = admission
        self.came_up()

    def came_up(self) -> None:
        """Send the newest one; nothing if there is none."""
        if self.latest is not None:
            opts_in = self._filter.mode is SiteMode.OPT_IN
            self._send(Admission(tenants=()) if opts_in else self.latest)
