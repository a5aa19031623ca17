"""Passes the daemon's messages that concern no attempt to the agent's services."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from federator.agent.admission_names import caps_there, gpus_there
from federator.agent.base import AgentDriver
from federator.agent.config import AgentConfig
from federator.agent.services.checkpoint_cleanup import Tidier
from federator.agent.services.client_relay import Relay
from federator.agent.services.data_copies import DataCopies
from federator.agent.services.job_outputs import JobOutputs
from federator.agent.services.measurements import Measurements
from federator.agent.services.settings_watch import SettingsWatch
from federator.agent.services.site_check import Verifier
from federator.agent.services.user_questions import UserQuestions
from federator.agent.spool import Spool
from federator.model.tagged import Message
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import (
    Admission,
    CallAnswer,
    CopyOrder,
    LimitAsk,
    NodesAsk,
    OutputOrder,
    SignalAsk,
    TidyOrder,
    ToAgent,
    UsageAsk,
    VerifyAsk,
    VerifyDone,
    Welcome,
)
from federator.wire.client_socket import Listen, OpenSocket


class AgentServices:
    """The services of an agent: all that it does beside its attempts.

    Args:
        config: see ``AgentConfig``.
        driver: this site's Slurm.
        spool: this site's.
        knows_user: tells whether a user has an account at this site.
        clock: returns Unix time.
        send: sends a message to the daemon.
        start: runs a service's work as a task of the agent.
        settings_changed: is called when Slurm's settings are others than before.
    """

    def __init__(  # noqa: PLR0913 - each is one edge of the agent
        self,
        config: AgentConfig,
        driver: AgentDriver,
        spool: Spool,
        *,
        knows_user: Callable[[str], bool],
        clock: Callable[[], float],
        send: Callable[[Message], None],
        start: Callable[[Coroutine[Any, Any, None]], object],
        settings_changed: Callable[[], None],
    ) -> None:
        self._socket = Path(config.socket)
        self._driver, self._spool, self._knows_user = driver, spool, knows_user
        self._clock, self._send, self._start = clock, send, start
        self._verifier = Verifier(driver, spool, clock, knows_user)
        self._questions = UserQuestions(driver, clock, send)
        self._copies, self._outputs = DataCopies(driver, send), JobOutputs(driver, send)
        self._measurements = Measurements(driver.accounts, driver, spool, send, clock)
        self._relay = Relay(send)
        self._settings = SettingsWatch(driver, config.settings_interval_s, settings_changed)
        self._tidier: Tidier | None = None
        self._welcome: Welcome | None = None

    def is_probe(self, attempt: AttemptId) -> bool:
        """Whether a job is one of a site check."""
        return attempt in self._verifier.probing

    async def open(
        self, welcome: Welcome, live: Callable[[], Mapping[AttemptId, str]], listen: Listen
    ) -> OpenSocket:
        """Listen for users. ``live``: see ``Tidier``."""
        self._welcome = welcome
        self._tidier = Tidier(self._driver, live, self._knows_user, self._clock, self._send)
        return await listen(self._relay.ask, self._socket)

    def begin(self) -> None:
        """Watch Slurm's settings from now on."""
        self._start(self._settings.run())

    def close(self) -> None:
        """Users who wait get no answer any more."""
        self._relay.hang_up()
        with contextlib.suppress(FileNotFoundError):
            self._socket.unlink()

    def take(self, message: ToAgent) -> bool:
        """Do what a message asks for; False: it concerns attempts."""
        match message:
            case CallAnswer():
                self._relay.pass_on(message)
            case VerifyAsk():
                self._start(self._verify(message))
            case NodesAsk() | SignalAsk() | LimitAsk():
                self._start(self._answer(message))
            case UsageAsk():
                self._start(self._measurements.tell(message))
            case CopyOrder():
                self._start(self._copies.step(message))
            case OutputOrder():
                self._start(self._outputs.step(message))
            case TidyOrder():
                assert self._tidier is not None
                self._start(self._tidier.tidy(message))
            case Admission():
                self._start(self._admit(message))
            case _:
                return False
        return True

    async def _answer(self, ask: NodesAsk | SignalAsk | LimitAsk) -> None:
        """A user's question, or what a user has done to a job of their own."""
        match ask:
            case NodesAsk():
                await self._questions.nodes(ask)
            case SignalAsk():
                await self._questions.signal(ask)
            case LimitAsk():
                await self._questions.limit(ask)

    async def _admit(self, message: Admission) -> None:
        assert self._welcome is not None
        caps = caps_there(message.tenants, self._welcome.names)
        await self._spool.write_admission(caps, gpus_there(self._welcome.gpus, self._welcome.names))

    async def _verify(self, ask: VerifyAsk) -> None:
        assert self._welcome is not None
        found = await self._verifier.verify(ask, tuple(self._welcome.partitions))
        self._send(VerifyDone(ask_id=ask.ask_id, findings=found))
