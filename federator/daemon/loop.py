"""The daemon's loop: observations in, the core decides, the log first, then the effects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import Final

import structlog

from federator.audit.chain import AuditAct
from federator.config import FederationConfig
from federator.daemon.admission import AdmissionUpdates
from federator.daemon.api import Api
from federator.daemon.beside import run_beside
from federator.daemon.checkpoint_cleanup import CheckpointCleanup
from federator.daemon.checkpoint_mover import CheckpointMover
from federator.daemon.clock import DaemonClock
from federator.daemon.compaction import Compaction
from federator.daemon.data_mover import DataMover
from federator.daemon.data_remover import DataRemover
from federator.daemon.edges import DaemonEdges
from federator.daemon.effects import Effects
from federator.daemon.group_lookup import GroupLookup, UserGroups
from federator.daemon.history_feeds import HistoryFeeds
from federator.daemon.inbox import Inbox
from federator.daemon.interactive_jobs import InteractiveJobs
from federator.daemon.leader import Leadership
from federator.daemon.links import AskedAnswer, SiteLink
from federator.daemon.mail.desk import MailDesk
from federator.daemon.metrics.catalogue import Collected
from federator.daemon.metrics.term_metrics import TermMetrics
from federator.daemon.output_mover import OutputMover
from federator.daemon.own_config import OwnConfig, check_complete, shared_folders
from federator.daemon.reload import (
    AskedReload,
    ReloadQueue,
    changed_links,
    refuse,
    reload_act,
    report,
)
from federator.daemon.roles import Roles
from federator.daemon.site_links import SiteLinks
from federator.daemon.start_forecasts import StartForecasts
from federator.daemon.supervisor import READY, Supervisor, status
from federator.daemon.transition_log import TransitionLog
from federator.daemon.turn_chores import ChoreSources, TurnChores
from federator.daemon.workload_traces import WorkloadTraces
from federator.errors import ConfigError
from federator.model.event import encode_event
from federator.model.message import Command, Observation, Record, SiteDown, Tick
from federator.model.site import GpuModel
from federator.model.workload import SiteName
from federator.sched.passes.checkpoint_moves import CHECKPOINT
from federator.sched.passes.federation import Federation
from federator.store.base import Store
from federator.wire.agent_protocol import (
    PROTOCOL_VERSION,
    CopyStatus,
    OutputStatus,
    Tidied,
    Welcome,
)
from federator.wire.attaching import door_beside

COMPACTION_S: Final = 240.0  # that the supervisor gives it beyond what a turn may take

log = structlog.get_logger()


class Term:
    """One daemon's time as leader.

    Args:
        own: the configuration that it goes by.
        store: the event log, which this process leads.
        federation: as that log left it.
        leadership: nothing is done any more once it does not hold.
        edges: see ``DaemonEdges``.
        displaces: as ``Daemon``.
    """

    def __init__(
        self,
        own: OwnConfig,
        store: Store,
        federation: Federation,
        leadership: Leadership,
        edges: DaemonEdges,
        *,
        displaces: bool,
    ) -> None:
        self._displaces, self._edges = displaces, edges
        self._own, self._store = own, store
        self._leadership = leadership
        self._turn_began_s = inf  # between turns there is none
        self._federation = federation
        self.clock = DaemonClock(federation.ledger.latest_s, edges.wall, edges.monotonic)
        self.inbox = Inbox(self.clock)
        links = self._links = SiteLinks(self._link)
        self._door = edges.door(door_beside(own.now.socket), own.is_to_dial)
        self.reloads = ReloadQueue(lambda: self.inbox.put(Tick()))
        self._api = self._new_api()
        self._stopping = False
        history, ledger = edges.history, federation.ledger
        self._tidying = CheckpointCleanup(own.now, ledger, federation.is_ready, self.clock())
        reads_objects = partial(links.copies, what="objects")
        self._mover = DataMover(own.now, ledger.catalogue, links.copies, reads_objects)
        self._moves = CheckpointMover(own.now, federation.checkpoints, self._links.copies)
        self._outputs = OutputMover(own.now, ledger, self._links.seals, self.inbox.put)
        admission, sessions = AdmissionUpdates(ledger), self._api.sessions
        self._remover = DataRemover(ledger.catalogue, partial(self._links.copies, what="remove"))
        moved = self._mover, self._moves, self._outputs, self._remover
        due = ChoreSources(admission, sessions, self._tidying, *moved)
        self._chores = TurnChores(due, self._links, self.inbox)
        self._transitions = TransitionLog(ledger)
        followers = [each for each in (history, edges.audit) if each is not None]
        self._compaction = Compaction(ledger, store, edges.act, self.clock(), followers)
        self._feeds = self._new_feeds()
        self._metrics = self._new_metrics()
        self._mail = MailDesk(own, ledger, edges.act)
        self._effects = self._new_effects()

    def _new_effects(self) -> Effects:
        """Carries commands out; what is decided goes to the audit, if there is one."""
        config, links, answer = self._own.now, self._links.by_site, self._api.reply
        effects = Effects(config.federation, links, answer, self.inbox.wake, shared_folders(config))
        effects.mails = self._mail.is_on
        if self._edges.audit is not None:
            effects.keep = self._edges.audit.keep
            self._federation.rounds.tells_decisions = True
        return effects

    def _new_feeds(self) -> HistoryFeeds | None:
        history, elapsed = self._edges.history, self._edges.monotonic
        if history is None:
            return None
        return HistoryFeeds(history, self._own, self._federation, self._links, self.clock, elapsed)

    def _new_metrics(self) -> TermMetrics:
        metrics = TermMetrics(
            self._federation,
            self._own.now,
            self._links.by_site,
            self._edges.history,
            elapsed=asyncio.get_running_loop().time,
            wall=self._edges.wall,
        )
        metrics.show_starts(self._starts.row)
        if (feeds := self._feeds) is not None:
            metrics.show_findings(lambda: feeds.look.findings)
            metrics.show_training(lambda: feeds.ratios)
        return metrics

    def _new_api(self) -> Api:
        """The desk for calls; it answers as long as this daemon leads."""
        ledger, traces = self._federation.ledger, self._edges.traces
        self._traces = WorkloadTraces(ledger, traces.tell, self.clock) if traces else None
        taken = self.inbox.put if self._traces is None else self._taken
        leads, history = lambda: self._leadership.holds, self._edges.history
        elapsed = asyncio.get_running_loop().time
        api = Api(self._own.now, self._federation, taken, self.clock, leads, history)
        api.sessions = InteractiveJobs(self._own.now, self._federation, self.clock, elapsed)
        api.roles = Roles(self._own.now, UserGroups(look_up=GroupLookup()))
        api.site_calls.links, api.reload = self._links.by_site, self.reloads.ask
        self._starts = StartForecasts(
            self._federation,
            self.clock,
            elapsed,
            lambda: self._turn_began_s == inf,
            self._edges.starts,
            self.inbox.put,
        )
        api.show_starts(self._starts)
        api.audit = self._note
        api.audited = self._edges.audit.latest if self._edges.audit is not None else None
        return api

    def _note(self, act: AuditAct) -> None:
        """Count what was denied; all of it goes to the audit, if there is one."""
        if act.refused:
            self._metrics.counts.denied(act.via)
        if self._edges.audit is not None:
            self._edges.audit.note(act)

    def _taken(self, observation: Observation) -> None:
        assert self._traces is not None
        self._traces.arrived(observation)
        self.inbox.put(observation)

    @property
    def federation(self) -> Federation:
        """The daemon's federation; not to be changed."""
        return self._federation

    def metrics(self) -> list[Collected]:
        """The metrics of this term, as they are now."""
        return self._metrics.collect(self._own.now)

    @property
    def turn_began_s(self) -> float:
        """The start of the turn under way, on the event loop's clock; inf between turns."""
        return self._turn_began_s

    def stop(self) -> None:
        """End ``run`` after the turn it is in; what that turn records is committed."""
        self._stopping = True
        self.inbox.put(Tick())

    async def run(self, epoch: int, supervisor: Supervisor) -> None:
        """Serve until ``stop``.

        Args:
            epoch: the store's, of this term; the federation's own is no smaller.
            supervisor: told when everything is ready.

        Raises:
            ConfigError: a site or a tenant is missing that still has workloads.
            StoreError: the log failed; nothing that it does not hold was carried out.
        """
        check_complete(self._own.now, self._federation.ledger)
        await self._carry_out(self._federation.begin_epoch(self.clock(), epoch))
        server = await self._edges.listen(self._api, self._own.now.socket)
        self._links.begin(self._own.now.sites)
        for warning in self._own.now.warnings:
            log.warning("configuration", detail=warning)
        log.info(
            "daemon_started",
            federation=self._own.now.federation,
            workloads=len(self._federation.ledger.entries),
            epoch=self._federation.ledger.epoch,
            socket=str(self._own.now.socket),
        )
        supervisor.tell(READY, status(f"leads, epoch {self._federation.ledger.epoch}"))
        followers = [each for each in (self._edges.history, self._edges.audit) if each is not None]
        for follower in followers:
            follower.start()
        beside = [run_beside(each) for each in (self._starts, self._mail)]
        if self._feeds is not None:
            beside += self._feeds.begin(self.inbox.put)
        try:
            while not self._stopping:
                await self._turn()
                await self._keep_log_short()
        finally:
            for follower in followers:
                follower.stop()
            server.close()
            self._door.close()
            self._links.stop()
            for task in beside:
                task.cancel()
            if self._leadership.holds:  # else the next leader's knowledge may be there already
                self._starts.learned.save()

    def _link(self, name: SiteName) -> SiteLink:
        site = self._own.now.sites[name]
        welcome = Welcome(
            protocol=PROTOCOL_VERSION,
            federation=self._own.now.federation,
            epoch=self._federation.ledger.epoch,
            site=name,
            partitions=site.partitions,
            poll_interval_s=site.poll_interval_s,
            gpus={
                kind: GpuModel(mem_gib=gpu.mem_gib, nvlink=gpu.nvlink, weight=gpu.weight)
                for kind, gpu in self._own.now.gpus.items()
            },
            log_began=self._federation.ledger.log_began,
            displaces=self._displaces,
            names=site.names.there,
            mode=site.mode.there,
            watches=self._feeds is not None and self._own.now.watches(name),
            reader=site.reader,
        )
        link = SiteLink(
            name,
            self._door.way_to(name) if site.dials else self._edges.transport_of(site),
            welcome,
            self.inbox.put,
            self._api,
            lambda answer: self._answered(name, answer),
        )
        link.filter.mode = site.mode
        link.dials = site.dials
        link.has_standby = partial(self._door.has_standby, name) if site.dials else site.has_standby
        return link

    def _answered(self, name: SiteName, answer: AskedAnswer) -> None:
        if isinstance(answer, Tidied):
            self._tidying.taken(name, answer, self.clock())
        elif isinstance(answer, CopyStatus):
            mover: DataMover | DataRemover | CheckpointMover = self._mover
            if answer.name == CHECKPOINT:
                mover = self._moves
            elif self._remover.has_ordered(answer):
                mover = self._remover
            if (seen := mover.taken(name, answer, self.clock())) is not None:
                self.inbox.put(seen)
        elif isinstance(answer, OutputStatus):
            if (known := self._outputs.taken(name, answer, self.clock())) is not None:
                self.inbox.put(known)
        elif self._feeds is not None:
            self._feeds.take(name, answer)

    async def _turn(self) -> None:
        """Take what has come in, decide on all of it, commit once, carry out, send at once."""
        observations = await self.inbox.gather()
        began_s = self._turn_began_s = asyncio.get_running_loop().time()
        self._metrics.counts.turn_begins(began_s)
        now_s = self.clock()
        commands = self._decided(observations, now_s)
        self.inbox.decided(observations, now_s)
        await self._carry_out(commands)
        self._chores.do(now_s)
        for asked in self.reloads.taken():
            await self._reload(asked)
        self._links.flush()
        self._turn_began_s = inf
        self._metrics.counts.turn_took(self._metrics.elapsed() - began_s)

    def _decided(self, observations: Sequence[Observation], now_s: float) -> list[Command]:
        commands: list[Command] = []
        for observation in observations:
            decided = self._federation.handle(observation, now_s)
            last = self._federation.rounds.last_pass
            self._metrics.counts.decided(observation, decided, last)
            if self._traces is not None:
                self._traces.decided(observation, decided, last, now_s)
            commands += decided
        return commands

    async def _reload(self, asked: AskedReload) -> None:
        """Go by the configuration that the source has now, or say why not."""
        try:
            config: FederationConfig = await self._edges.act(self._own.source.load)
        except ConfigError as error:
            refuse(asked, error)
            return
        now_s = self.clock()
        # What has come of the present channels counts, and nothing of them that comes later. So
        # from here to the last change nothing is awaited.
        commands = self._decided(self.inbox.take_all(), now_s)
        try:
            found = self._own.changes_to(config, self._federation.ledger)
        except ConfigError as error:
            refuse(asked, error)
        else:
            if found and not asked.dry_run:
                commands += self._go_by(config, now_s)
                self._api.audit(reload_act(asked, found, now_s))
            if self._feeds is not None and not asked.dry_run:  # with changes or without
                self._feeds.look.look_now()
            report(asked, self._own.source.name, found, config)
        await self._carry_out(commands)

    def _go_by(self, config: FederationConfig, now_s: float) -> list[Command]:
        has_history = self._feeds is not None
        ends, begins = changed_links(self._own.now, config, has_history=has_history)
        self._own.now = config
        down = [SiteDown(site=name, detail="its configuration has changed") for name in ends]
        commands = self._decided(down, now_s)
        commands += self._federation.reconfigure(
            {name: site.partitions for name, site in config.sites.items()},
            config.policy.order,
            config.rules,
            config.tenancy(),
            config.policy.credit.usage.average(),
            now_s,
        )
        self._api.reconfigure(config)
        self._metrics.counts.know(config.sites)
        self._tidying.reconfigure(config, now_s)
        self._mover.config = self._outputs.config = config
        self._moves.reconfigure(config)
        self._mail.reconfigure()
        self._effects.know_folders(shared_folders(config))
        self._links.renew(ends, begins)
        return commands

    async def _keep_log_short(self) -> None:
        now_s = self.clock()
        if not self._compaction.is_due(now_s):
            return
        self._turn_began_s = asyncio.get_running_loop().time() + COMPACTION_S
        keep_s = self._own.now.log.keep_ended_h * 3600.0

        async def forget() -> None:
            await self._carry_out(self._federation.forget_ended(now_s, keep_s))

        await self._compaction.run(now_s, forget)
        self._turn_began_s = inf

    async def _carry_out(self, commands: Sequence[Command]) -> None:
        """Make records durable, then do the rest; each only as the leader.

        Raises:
            LeadershipLost: what is recorded by then, the next leader carries out.
            StoreError: as ``Store.append``.
        """
        self._leadership.check()
        events = [c.event for c in commands if isinstance(c, Record)]
        if events:
            # The log first: an order that leaves before its record is durable could be given twice
            # by the next daemon.
            began_s = self._metrics.elapsed()
            await self._edges.act(self._store.append, [encode_event(e) for e in events])
            self._metrics.counts.recorded(events, self._metrics.elapsed() - began_s)
            if self._traces is not None:
                self._traces.recorded(events)
        try:
            for command in commands:
                self._leadership.check()
                self._effects.carry_out(command)
        finally:
            # Behind the orders, so that sites are at work meanwhile.
            self._transitions.write(events)
            self._mail.note(events, self.clock())
            self._tidying.note(events)
            self._api.sessions.note(events)
