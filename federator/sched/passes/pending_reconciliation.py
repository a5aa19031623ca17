"""Workloads that a site knows more of than the log; they wait for the site's answer.

A log that has lost its end takes for pending what has run since, or still runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from federator.model.workload import AttemptId, SiteName, WorkloadId

TELLS_WITHIN_S: Final = 600.0  # a site that is connected; then it has nothing to tell


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    site: SiteName
    attempt: AttemptId
    at_s: float


class PendingReconciliation:
    """Workloads with an attempt that was asked about (``AskAbout``); volatile.

    It is shown, and asked about, again when its site comes up, so nothing is lost with the daemon.
    """

    def __init__(self) -> None:
        self._asked: dict[WorkloadId, _Asked] = {}

    def __contains__(self, id_: object) -> bool:
        return id_ in self._asked

    def ask(self, site: SiteName, attempts: Iterable[AttemptId], now_s: float) -> None:
        """This site has shown these, which the log lacks."""
        for attempt in attempts:
            self._asked[attempt.workload] = _Asked(site=site, attempt=attempt, at_s=now_s)

    def answered(self, attempt: AttemptId) -> None:
        """Its site has told what it knows of it."""
        asked = self._asked.get(attempt.workload)
        if asked is not None and asked.attempt == attempt:
            del self._asked[attempt.workload]

    def leave_out(self, sites: Collection[SiteName]) -> None:
        """The federation has these sites no more: they will not tell."""
        self._asked = {id_: a for id_, a in self._asked.items() if a.site not in sites}

    def lapse(self, now_s: float, is_ready: Callable[[SiteName], bool]) -> None:
        """Wait no more for what a site has not told though it could; one that is down may yet."""
        self._asked = {
            id_: asked
            for id_, asked in self._asked.items()
            if now_s < asked.at_s + TELLS_WITHIN_S or not is_ready(asked.site)
        }
