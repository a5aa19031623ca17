"""Makes drains of what a site says that its provider takes back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Final

import structlog

from federator.daemon.drain_calls import MOST_AHEAD_S, MOST_NODES, MOST_WORDS
from federator.model.message import NOBODY, DrainAsked
from federator.model.site_message import Revocation
from federator.model.workload import SiteName

BY: Final = "the site"

log = structlog.get_logger()


class SiteRevocations:
    """The notices of one site, each of which is carried out once.

    A site speaks for its own nodes alone. A notice that is repeated in a later report, or over
    another channel, asks for nothing more: after ``federator resume`` the nodes stay in use.

    Args:
        site: its name.
    """

    def __init__(self, site: SiteName) -> None:
        self._site = site
        self._known: frozenset[Revocation] = frozenset()

    def asked(self, notices: Sequence[Revocation], now_s: float) -> Iterator[DrainAsked]:
        """The drains that follow from all notices that a site has now."""
        before, self._known = self._known, frozenset(notices)
        for notice in dict.fromkeys(notices):
            if notice in before:
                continue
            soon = isfinite(notice.deadline_s) and 0 < notice.deadline_s <= now_s + MOST_AHEAD_S
            if not soon or len(notice.nodes) > MOST_NODES:
                log.warning("revocation_refused", site=self._site, detail="it makes no sense")
                continue
            log.warning(
                "site_revoked",
                site=self._site,
                nodes=list(notice.nodes),
                deadline_s=notice.deadline_s,
                reason=notice.reason[:MOST_WORDS],
            )
            yield DrainAsked(
                client=NOBODY,
                site=self._site,
                nodes=tuple(dict.fromkeys(notice.nodes)),
                reason=notice.reason[:MOST_WORDS] or "revoked",
                by=BY,
                deadline_s=notice.deadline_s,
                revoked=True,
            )
