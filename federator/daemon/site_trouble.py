"""Keeps what a site's agent says is wrong there, and logs it once."""

from __future__ import annotations

import structlog

from federator.model.site_message import Report
from federator.model.workload import SiteName
from federator.wire.agent_protocol import Trouble

log = structlog.get_logger()


class SiteTrouble:
    """Whether one site's agent reads its Slurm, and which records it cannot read.

    Args:
        site: its name.
    """

    def __init__(self, site: SiteName) -> None:
        self._site = site
        self._lasts = False
        self._problems: tuple[str, ...] = ()

    def forget(self) -> None:
        """Another agent is there; it will tell."""
        self._lasts = False

    def begin(self, trouble: Trouble) -> bool:
        """Take the agent's word that it cannot read its Slurm; whether that is new."""
        if self._lasts:
            return False
        log.warning("site_trouble", site=self._site, detail=trouble.detail)
        self._lasts = True
        return True

    def end(self, report: Report) -> bool:
        """Take a report, which ends any trouble; whether there was some."""
        lasted, self._lasts = self._lasts, False
        if lasted:
            log.info("site_answers_again", site=self._site)
        if report.problems != self._problems:
            self._problems = report.problems
            log.warning("site_problems", site=self._site, problems=list(report.problems))
        return lasted
