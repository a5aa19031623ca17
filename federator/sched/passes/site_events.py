"""Takes in what sites send, and that they come and go; a site's own records win."""

from __future__ import annotations

from collections.abc import Mapping

from federator.errors import LogIsOld
from federator.model.lifecycle import AT_SITE, WorkloadState
from federator.model.message import (
    AskAbout,
    AttemptsShown,
    Note,
    SiteDown,
    SiteSent,
    SiteUp,
    Wake,
)
from federator.model.site_message import (
    AttemptAbsent,
    BidsMade,
    LaunchAccepted,
    LaunchDeclined,
    Report,
    SiteNews,
)
from federator.model.workload import AttemptId, SiteName
from federator.sched.passes.bid_validation import valid_windows
from federator.sched.passes.held import Holding
from federator.sched.passes.launch_answers import launch_accepted, launch_refused
from federator.sched.passes.orders import launch_order
from federator.sched.passes.reports import (
    attempt_lost,
    attempt_reported,
    attempt_shown,
    lost_log,
)
from federator.sched.passes.rounds import Rounds
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.slow_nodes import SlowNodes
from federator.sched.passes.transaction import Transaction
from federator.sched.passes.write_off import WriteOffs
from federator.sched.state.ledger import Ledger, WorkloadRecord


class SiteEvents:
    """The observations of sites.

    Args:
        sites: as they last were; renewed here.
        ledger: the queue.
        rounds: hears of bids, and of what came free.
        holding: hears why jobs wait.
        write_offs: hears of sites that return.
        slow_nodes: hears how long steps take.

    Attributes:
        log_epoch: the last one in the log before this term.
        fleet_gpus: of all sites together.
    """

    def __init__(
        self,
        sites: Mapping[SiteName, SiteView],
        ledger: Ledger,
        rounds: Rounds,
        holding: Holding,
        write_offs: WriteOffs,
        slow_nodes: SlowNodes,
    ) -> None:
        self._sites = sites
        self._ledger = ledger
        self._rounds = rounds
        self._holding = holding
        self._write_offs = write_offs
        self._slow_nodes = slow_nodes
        self.log_epoch = 0
        self.fleet_gpus = 0

    def count_gpus(self) -> int:
        """Add up the GPUs of all sites that may get work, as far as they have said."""
        self.fleet_gpus = sum(view.gpus for view in self._sites.values() if not view.shadow)
        return self.fleet_gpus

    def take(self, turn: Transaction, seen: SiteUp | SiteDown | SiteSent | AttemptsShown) -> None:
        """Take in what a site has sent, or that it came or went."""
        match seen:
            case SiteUp() | SiteDown():
                self._site_changed(turn, seen)
            case SiteSent():
                self._site_sent(turn, seen.site, seen.message)
            case AttemptsShown():
                for remembered in seen.attempts:
                    self._rounds.pending.answered(remembered.attempt)
                    attempt_shown(turn, seen.site, remembered)

    def _site_sent(self, turn: Transaction, site: SiteName, message: SiteNews) -> None:
        match message:
            case Report():
                self._reported(turn, site, message)
            case BidsMade():
                self._rounds.bids_came(turn, site, message)
            case LaunchAccepted():
                launch_accepted(turn, site, message)
            case LaunchDeclined() | AttemptAbsent():
                self._write_offs.absent(site, message.attempt)
                self._rounds.memory.known.forget(site)  # its nodes are free again
                launch_refused(turn, self._holding, site, message)

    def _site_changed(self, turn: Transaction, seen: SiteUp | SiteDown) -> None:
        site = self._sites[seen.site]
        if isinstance(seen, SiteUp):
            self._check_log(turn, seen)
            site.up, site.ready, site.since_s = True, False, turn.now_s
            site.slurm_version, site.login_node = seen.slurm_version, seen.login_node
            site.release = seen.release
            return
        if site.up or not site.since_s:
            site.since_s = turn.now_s
        site.up = site.ready = False
        self._rounds.drop(seen.site)

    def _check_log(self, turn: Transaction, seen: SiteUp) -> None:
        lost = lost_log(self.log_epoch, self._ledger.epoch, seen)
        if lost and self.log_epoch:
            raise LogIsOld(lost)
        if lost:  # nothing waits in it that could run there
            turn.commands.append(Note(event="log_is_new", fields={"detail": lost}))

    def _reported(self, turn: Transaction, site: SiteName, report: Report) -> None:
        view = self._sites[site]
        self._rounds.heard(turn, site, report.freed)
        if report.capacity is not None:
            view.has(report.capacity)
            turn.fleet_gpus = self.count_gpus()
        if report.partitions and view.shows(report.partitions):
            self._rounds.is_due(turn)  # something came free, perhaps of local users
        if report.windows is not None:
            windows = valid_windows(report.windows)
            if windows != view.windows:
                view.windows = windows
                self._rounds.is_due(turn)
        self._write_offs.reported(site, report)
        unknown = tuple(
            attempt_report.attempt
            for attempt_report in report.attempts
            if not attempt_reported(turn, site, attempt_report)
        )
        for attempt_report in report.attempts:
            self._holding.reported(turn, attempt_report)
            self._slow_nodes.reported(turn, site, attempt_report)
        self._rounds.pending.ask(site, unknown, turn.now_s)
        for attempt in report.gone:
            attempt_lost(turn, site, attempt, unnotified=attempt in report.unnotified)
        if report.complete:
            unknown += self._reconcile(turn, site, report)
        if report.complete or report.capacity is not None:
            self._holding.release_for(turn, site)
        if unknown:
            turn.commands.append(AskAbout(site=site, attempts=unknown))

    def _reconcile(
        self, turn: Transaction, site: SiteName, report: Report
    ) -> tuple[AttemptId, ...]:
        """First full report since the channel came up: the site's own records win.

        Returns:
            Those of the log that it does not show: what became of them the site is to tell.
        """
        self._sites[site].ready = True
        reported = {r.attempt for r in report.attempts}
        live = AT_SITE - {WorkloadState.AWARDED}
        missing = tuple(
            entry.attempt_id
            for entry in self._entries_at(site, *live)
            if entry.site_job_id and entry.attempt_id not in reported
        )
        # Orders may have been lost with the channel. Repeating them is harmless, and tells the
        # agent which nodes a job that waits in Slurm's queue is pinned to.
        for entry in self._entries_at(site, WorkloadState.AWARDED, WorkloadState.LAUNCHING):
            if not entry.withdrawing and not turn.is_drained(entry):
                turn.commands.append(launch_order(entry, self._ledger))
        turn.commands.append(Wake(at_s=turn.now_s))  # leases may have run out meanwhile
        for entry in turn.to_leave():
            if entry.site == site:
                turn.order_to_leave(entry)
        self._rounds.is_due(turn)
        return missing

    def _entries_at(self, site: SiteName, *states: WorkloadState) -> list[WorkloadRecord]:
        return [e for e in self._ledger.in_state(*states) if e.site == site]
