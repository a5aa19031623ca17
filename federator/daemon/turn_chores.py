"""Does what each turn of the daemon owes the sites besides its decisions."""

from __future__ import annotations

from typing import NamedTuple

import structlog

from federator.daemon.admission import AdmissionUpdates
from federator.daemon.checkpoint_cleanup import CheckpointCleanup
from federator.daemon.checkpoint_mover import CheckpointMover
from federator.daemon.data_mover import DataMover
from federator.daemon.data_remover import DataRemover
from federator.daemon.inbox import Inbox
from federator.daemon.interactive_jobs import InteractiveJobs
from federator.daemon.output_mover import OutputMover
from federator.daemon.site_links import SiteLinks
from federator.model.message import DataTidied

log = structlog.get_logger()


class ChoreSources(NamedTuple):
    """What knows the chores that are due."""

    admission: AdmissionUpdates
    sessions: InteractiveJobs
    cleanup: CheckpointCleanup
    mover: DataMover
    checkpoints: CheckpointMover
    outputs: OutputMover
    remover: DataRemover


class TurnChores:
    """The chores, and when the next of them is due.

    Args:
        sources: of what is to be done.
        links: to the sites that do it.
        inbox: wakes the daemon in time.
    """

    def __init__(self, sources: ChoreSources, links: SiteLinks, inbox: Inbox) -> None:
        self._sources, self._links, self._inbox = sources, links, inbox
        self._admission_wake_s = self._mover_wake_s = self._outputs_wake_s = 0.0

    def do(self, now_s: float) -> None:
        """Do what is due at this Unix time, and wake the daemon when more is."""
        self._tell_admission(now_s)
        self._end_unheard(now_s)
        for site, tidy in self._sources.cleanup.due(now_s):
            self._links.by_site[site].send(tidy)
        self._move_data(now_s)
        self._settle_outputs(now_s)

    def _tell_admission(self, now_s: float) -> None:
        admission = self._sources.admission
        news = admission.due(now_s)
        if news is not None:
            self._links.send_admission(news)
        elif self._admission_wake_s <= now_s < admission.next_s:  # it may change until then
            self._admission_wake_s = admission.next_s
            self._inbox.wake(self._admission_wake_s)

    def _end_unheard(self, now_s: float) -> None:
        """Cancel the sessions whose commands are no longer heard."""
        found = self._sources.sessions.unheard(now_s)
        for cancel in found.cancels:
            log.info("session_unheard", workloads=list(cancel.ids), user=cancel.by)
            self._inbox.put(cancel)
        if found.look_at_s:
            self._inbox.wake(found.look_at_s)

    def _move_data(self, now_s: float) -> None:
        movers = self._sources.mover, self._sources.checkpoints, self._sources.remover
        for mover in movers:
            for site, order in mover.due(now_s):
                self._links.by_site[site].send(order)
        if self._sources.remover.is_look_due(now_s):
            self._inbox.put(DataTidied())
        later = [at_s for mover in movers if (at_s := mover.next_s()) > now_s]
        if later and not now_s < self._mover_wake_s <= min(later):
            self._mover_wake_s = min(later)
            self._inbox.wake(self._mover_wake_s)

    def _settle_outputs(self, now_s: float) -> None:
        outputs = self._sources.outputs
        for site, order in outputs.due(now_s):
            self._links.by_site[site].send(order)
        next_s = outputs.next_s()
        if next_s > now_s and not now_s < self._outputs_wake_s <= next_s:
            self._outputs_wake_s = next_s
            self._inbox.wake(next_s)
