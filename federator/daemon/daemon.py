"""The daemon from its start to its end: it stands by until it leads, then leads for one term."""

from __future__ import annotations

import asyncio
import gc
from math import inf
from typing import Final

import structlog

from federator.config import FederationConfig
from federator.config_listen import listen_address
from federator.daemon.edges import REAL_EDGES, DaemonEdges, Listening
from federator.daemon.leader import Leadership
from federator.daemon.log_tailer import LogTailer
from federator.daemon.loop import Term
from federator.daemon.metrics.catalogue import Collected
from federator.daemon.metrics.endpoint import MetricsEndpoint
from federator.daemon.metrics.gauges import standby_metrics
from federator.daemon.own_config import ConfigSource, OwnConfig, new_federation
from federator.daemon.standby import StandbyDesk, is_served
from federator.daemon.supervisor import ALIVE, READY, STOPPING, Supervisor, status
from federator.errors import ConfigError, StoreError
from federator.store.base import Store
from federator.wire.client_protocol import ReloadCall

MANY: Final = 10_000  # workloads, in which to look for garbage would be felt

log = structlog.get_logger()


class Daemon:
    """One federation daemon: a standby until it leads, and then for one term.

    Args:
        config: see ``federator.config``.
        store: its event log, which it does not lead yet.
        supervisor: the service manager that started it, if any.
        edges: see ``DaemonEdges``.
        displaces: whether sites are served that remember another log, too.
        source: read again by a reload; None: the configuration never changes.
    """

    def __init__(
        self,
        config: FederationConfig,
        store: Store,
        supervisor: Supervisor | None = None,
        edges: DaemonEdges = REAL_EDGES,
        *,
        displaces: bool = False,
        source: ConfigSource | None = None,
    ) -> None:
        self._displaces = displaces
        self._own = OwnConfig(config, source)
        self._is_stale = False  # a standby that is to read its configuration again
        self._store = store
        self._supervisor = supervisor or Supervisor()
        self._edges = edges
        self._leadership = Leadership(store, edges.monotonic, edges.act)
        self._follower = LogTailer(lambda: new_federation(self._own.now), store)
        self._stopping = asyncio.Event()
        self._standby = StandbyDesk()
        self._standby_socket: Listening | None = None
        self._stands_by = False
        self._is_up_to_date = False
        self._is_warm = False  # it has taken the log in, once
        self.term: Term | None = None
        """Its term as leader, once it is that."""

    def stop(self) -> None:
        """End ``run``: a leader's turn is finished first; what it records is committed."""
        self._stopping.set()
        if self.term is not None:
            self.term.stop()

    def reload(self) -> None:
        """Read the configuration again: a leader between two turns, a standby at its next look."""
        if self.term is not None:
            self.term.reloads.ask(ReloadCall(), "", lambda _: None)
        else:
            self._is_stale = True

    async def run(self) -> None:
        """Wait for the lead, and lead until ``stop``; then a standby can take over at once.

        Raises:
            ConfigError: a site or a tenant is missing that still has workloads.
            LeadershipLost: another daemon leads; nothing is sent to any site any more.
            StoreError: the log failed; nothing that it does not hold was carried out.
        """
        alive = asyncio.create_task(self._say_alive())
        serving = self._serve_metrics()
        in_order = True
        try:
            epoch = await self._leadership.gain(
                lambda: int(self._edges.wall()), self._stand_by, self._stopping
            )
            self._hang_up()
            if epoch is not None:
                await self._lead(epoch)
        except StoreError:
            in_order = False
            raise
        finally:
            self._supervisor.tell(STOPPING)
            self._hang_up()
            alive.cancel()
            if serving is not None:
                serving.stop()
            if in_order:  # else it may hang, and the lead ends with the process or its lease
                self._store.close()

    def _serve_metrics(self) -> MetricsEndpoint | None:
        listen = self._own.now.metrics.listen
        if not listen:
            return None
        endpoint = MetricsEndpoint(listen_address(listen), self.metrics)
        endpoint.start()
        return endpoint

    def metrics(self) -> list[Collected]:
        """The metrics of the leader, or those of a standby."""
        if self.term is not None and self._leadership.holds:
            return self.term.metrics()
        return standby_metrics(up_to_date=self._is_up_to_date)

    async def _stand_by(self) -> bool:
        """Say so, to everybody and to whoever asks, and read along; True when up to date."""
        leader = await self._edges.act(self._store.leader)
        if leader != self._standby.leader or not self._stands_by:
            self._standby.leader = leader
            log.info("standby", federation=self._own.now.federation, leader=leader)
            self._supervisor.tell(READY, status(f"standby: {self._standby.leads}"))
        if not self._stands_by and not is_served(self._own.now.socket):
            # On the leader's own host that socket is the leader's.
            self._standby_socket = await self._edges.listen(self._standby, self._own.now.socket)
        self._stands_by = True
        if self._is_stale:
            await self._reload_standby()
        up_to_date: bool = await self._edges.act(self._follower.tail)
        self._is_up_to_date = up_to_date
        if up_to_date and not self._is_warm:
            self._is_warm = True
            log.info("standby_up_to_date", workloads=len(self._follower.federation.ledger.entries))
        return up_to_date

    async def _reload_standby(self) -> None:
        """Go by another configuration when this daemon leads; the log is read anew for that."""
        self._is_stale = False
        try:
            config: FederationConfig = await self._edges.act(self._own.source.load)
            found = self._own.changes_to(config, self._follower.federation.ledger)
        except ConfigError as error:
            log.warning("reload_refused", by="", detail=str(error))
            return
        self._own.now = config
        self._follower = LogTailer(lambda: new_federation(self._own.now), self._store)
        log.info("reloaded_standby", changes=len(found))

    def _hang_up(self) -> None:
        if self._standby_socket is not None:
            self._standby_socket.close()
            self._standby_socket = None

    async def _lead(self, epoch: int) -> None:
        keeping = asyncio.create_task(self._edges.beside(self._leadership.keep))
        living = asyncio.create_task(self._leadership.show_life())
        serving = asyncio.create_task(self._serve(epoch))
        try:
            await asyncio.wait((keeping, serving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leadership.give_up()
            ended = [task for task in (keeping, serving) if task.done()]
            for task in (keeping, living, serving):
                task.cancel()
            await asyncio.wait((keeping, living, serving))
        for task in ended:
            task.result()  # raises what ended it

    async def _serve(self, epoch: int) -> None:
        """Take the rest of the log in, beside the renewals of the lease, and serve."""
        while not await self._edges.act(self._follower.tail):
            if self._stopping.is_set():
                return
        known = self._follower.federation
        if len(known.ledger.entries) >= MANY:
            gc.freeze()  # all of it is needed: no need to look through it again and again
        self.term = Term(
            self._own,
            self._store,
            known,
            self._leadership,
            self._edges,
            displaces=self._displaces,
        )
        if self._is_stale:
            self.reload()
        if not self._stopping.is_set():
            await self.term.run(epoch, self._supervisor)

    async def _say_alive(self) -> None:
        """Tell the supervisor so, unless a turn hangs: on a disk that takes no record, say."""
        patience_s = self._supervisor.watchdog_s
        loop = asyncio.get_running_loop()
        while patience_s < inf:
            await asyncio.sleep(patience_s / 3)
            began_s = self.term.turn_began_s if self.term is not None else inf
            if loop.time() - began_s < patience_s / 2:
                self._supervisor.tell(ALIVE)
