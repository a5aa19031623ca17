"""Questions of users that a site's agent answers: each gets one answer, or why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from federator.model.tagged import Message
from federator.model.workload import SiteName
from federator.wire.agent_protocol import (
    LimitAsk,
    LimitDone,
    NodesAsk,
    NodesTaken,
    SignalAsk,
    SignalDone,
    SignalTo,
    SnapshotAsk,
    SnapshotTaken,
    VerifyAsk,
    VerifyDone,
)
from federator.wire.client_protocol import (
    VERIFY_TAKES_S,
    ErrorKind,
    ErrorReply,
    NodesReply,
    SignalReply,
    SiteNodesRow,
    SnapshotReply,
    VerifyCall,
    VerifyReply,
)
from federator.wire.replies import Reply

VERIFY_ANSWER_S: Final = VERIFY_TAKES_S + 30.0  # a site tidies up, too
SNAPSHOT_S: Final = 20.0  # a site that shows none for so long shows none
NODES_S: Final = 10.0  # the same of nodes, for which a user waits
SIGNAL_S: Final = 20.0  # the same of a job's time limit
_IN_SHADOW: Final = "no job is tried, signalled or changed there (site verify: leave out --user)"
Answered = SnapshotTaken | VerifyDone | NodesTaken | SignalDone | LimitDone


class SiteQuestions:
    """The questions that wait for one site's agent.

    Args:
        site: its name.
        send: sends a message over the channel that is up.
        refuses: whether a message is an order that the site, in shadow mode, must not get.
    """

    def __init__(
        self,
        site: SiteName,
        send: Callable[[Message], None],
        refuses: Callable[[Message], bool] = lambda _message: False,
    ) -> None:
        self._site = site
        self._send = send
        self._refuses = refuses
        self._waiting: dict[int, Callable[[Reply], None]] = {}
        self._next_ask = 1
        self.connected = False  # a channel is up
        self.answers: tuple[str, ...] = ()  # of the agent that is connected: see ``Hello``

    def ask_snapshot(self, answer: Callable[[Reply], None]) -> None:
        """Have the site show what it bids on now."""
        self._ask(answer, lambda id_: SnapshotAsk(ask_id=id_), "showed no snapshot", SNAPSHOT_S)

    def ask_proof(self, call: VerifyCall, account: str, answer: Callable[[Reply], None]) -> None:
        """Have the site prove that it is set up as it should be; see ``VerifyCall``."""
        ask = partial(VerifyAsk, user=call.user, account=account, nodes=call.nodes)
        self._ask(answer, lambda id_: ask(ask_id=id_), "was not verified", VERIFY_ANSWER_S)

    def ask_nodes(self, partitions: tuple[str, ...], answer: Callable[[Reply], None]) -> None:
        """Have the site list its nodes; the answer is a ``NodesReply`` with this site alone."""
        if self.connected and "nodes" not in self.answers:
            answer(
                _unavailable(f"site {self._site} lists no nodes: its agent is of an earlier build")
            )
            return
        ask = partial(NodesAsk, partitions=partitions)
        self._ask(answer, lambda id_: ask(ask_id=id_), "listed no nodes", NODES_S)

    def ask_signal(
        self, job: tuple[str, int], signal: str, to: SignalTo, answer: Callable[[Reply], None]
    ) -> None:
        """Have the site send a signal to a job: its user and number there."""
        if self.connected and "signal" not in self.answers:
            answer(
                _unavailable(
                    f"site {self._site} sends no signals: its agent is of an earlier build"
                )
            )
            return
        user, job_id = job
        ask = partial(SignalAsk, user=user, site_job_id=job_id, signal=signal, to=to)
        self._ask(answer, lambda id_: ask(ask_id=id_), "sent no signal", SIGNAL_S)

    def ask_limit(
        self, job: tuple[str, int], minutes: int, answer: Callable[[Reply], None]
    ) -> None:
        """Have the site lower the time limit of a job; the answer is as of ``ask_signal``."""
        if self.connected and "limit" not in self.answers:
            answer(
                _unavailable(
                    f"site {self._site} changes no limits: its agent is of an earlier build"
                )
            )
            return
        user, job_id = job
        ask = partial(LimitAsk, user=user, site_job_id=job_id, minutes=minutes)
        self._ask(answer, lambda id_: ask(ask_id=id_), "changed no limit", SIGNAL_S)

    def _ask(
        self,
        answer: Callable[[Reply], None],
        question: Callable[[int], Message],
        failing: str,
        patience_s: float,
    ) -> None:
        if not self.connected:
            answer(_unavailable(f"site {self._site} is not connected"))
            return
        ask_id = self._next_ask
        asked = question(ask_id)
        if self._refuses(asked):
            answer(
                ErrorReply(message=f"site {self._site} is in mode shadow or advisory: {_IN_SHADOW}")
            )
            return
        self._next_ask += 1
        self._waiting[ask_id] = answer
        late = _unavailable(f"site {self._site} {failing} within {patience_s:.0f} s")
        asyncio.get_running_loop().call_later(patience_s, self._answer, ask_id, late)
        self._send(asked)

    def take(self, message: Answered) -> None:
        """Pass on what the agent answers."""
        match message:
            case VerifyDone():
                self._answer(message.ask_id, VerifyReply(findings=message.findings))
            case SnapshotTaken(snapshot=snapshot) if snapshot:
                self._answer(message.ask_id, SnapshotReply(snapshot=snapshot))
            case SnapshotTaken():
                why = f"site {self._site} shows no snapshot: {message.detail[:300]}"
                self._answer(message.ask_id, _unavailable(why))
            case NodesTaken():
                row = SiteNodesRow(
                    site=self._site, nodes=message.nodes, detail=message.detail[:300]
                )
                self._answer(message.ask_id, NodesReply(sites=(row,)))
            case SignalDone() | LimitDone():
                errors = (message.detail[:300],) if message.detail else ()
                self._answer(message.ask_id, SignalReply(ids=(), errors=errors))

    def hung_up(self) -> None:
        """The channel broke: nothing that waits is answered any more."""
        self.connected = False
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer(_unavailable(f"the connection to site {self._site} broke"))

    def _answer(self, ask_id: int, reply: Reply) -> None:
        answer = self._waiting.pop(ask_id, None)
        if answer is not None:
            answer(reply)


def _unavailable(message: str) -> ErrorReply:
    return ErrorReply(message=message, kind=ErrorKind.UNAVAILABLE)
