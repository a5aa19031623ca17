"""The tasks of a term that bring to the history what the log does not hold, or look into it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from federator.daemon.beside import run_beside
from federator.daemon.doctor_look import DoctorLook
from federator.daemon.local_recorder import LocalRecorder
from federator.daemon.measuring import Measuring
from federator.daemon.own_config import OwnConfig, shared_folders
from federator.daemon.quota_use import quota_look
from federator.daemon.site_links import SiteLinks
from federator.daemon.supply_notes import SupplyNotes
from federator.daemon.tier_use import tier_look
from federator.daemon.training_time import Ratios, training_look
from federator.history.service import JobHistory
from federator.model.message import QuotasMeasured, TiersMeasured
from federator.model.workload import SiteName
from federator.sched.passes.federation import Federation
from federator.wire.agent_protocol import LocalJobs, UsageTaken


class HistoryFeeds:
    """Measurements, local jobs and supply for the history; what the doctor finds in it.

    Args:
        history: of ended workloads.
        own: the daemon's configuration.
        federation: whose sites supply the GPUs.
        links: to these sites.
        clock: Unix time.
        elapsed: seconds that never go back.

    Attributes:
        ratios: the effective training time ratio of sites, as last read; none before.
    """

    def __init__(
        self,
        history: JobHistory,
        own: OwnConfig,
        federation: Federation,
        links: SiteLinks,
        clock: Callable[[], float],
        elapsed: Callable[[], float],
    ) -> None:
        by_site = links.by_site
        self._measuring = Measuring(
            history, by_site, elapsed, clock, lambda: shared_folders(own.now)
        )
        self._recorder = LocalRecorder(history, by_site, federation.sites, clock)
        self._notes = SupplyNotes(history, federation, clock)
        self.look: Final = DoctorLook(history, own, clock)
        self.ratios: Ratios = {}
        self._history, self._own, self._clock = history, own, clock

    def begin(
        self, observe: Callable[[QuotasMeasured | TiersMeasured], None]
    ) -> list[asyncio.Task[None]]:
        """Start all of them; whoever began them cancels them.

        Args:
            observe: takes what was measured of quotas and tiers.
        """
        quota_use = quota_look(self._history, self._own, self._clock, observe)
        tier_use = tier_look(self._history, self._own, self._clock, observe)
        training = training_look(self._history, self._clock, self._take_ratios)
        looks = (self.look, quota_use, tier_use, training)
        feeds = (self._measuring, self._recorder, self._notes, *looks)
        return [run_beside(feed) for feed in feeds]

    def _take_ratios(self, ratios: Ratios) -> None:
        self.ratios = ratios

    def take(self, site: SiteName, answer: LocalJobs | UsageTaken) -> None:
        """A site has answered one of their questions."""
        if isinstance(answer, LocalJobs):
            self._recorder.take(site, answer)
        else:
            self._measuring.take(site, answer)
