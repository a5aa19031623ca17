"""Answers calls at a daemon that does not lead: it says so, and names the leader."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from federator.model.workload import SiteName
from federator.wire.agent_protocol import ClientCall
from federator.wire.client_protocol import Call, ErrorKind, ErrorReply
from federator.wire.client_socket import ClientSocket, OpenSocket
from federator.wire.replies import Reply


class StandbyDesk:
    """Takes calls as ``Api`` does, and carries none out."""

    def __init__(self) -> None:
        self.leader = ""
        """Who leads, for people; "" when it is not known."""

    def take(
        self,
        call: ClientCall,  # noqa: ARG002 - whatever it is
        origin: SiteName,  # noqa: ARG002
        answer: Callable[[Reply], None],
    ) -> None:
        answer(self._reply())

    async def serve(self, path: Path) -> OpenSocket:
        """Listen at the daemon's own socket.

        Raises:
            ConfigError: the path cannot be listened at.
        """
        return await ClientSocket(self._answered).listen(path)

    async def _answered(self, user: str, call: Call) -> Reply:  # noqa: ARG002
        return self._reply()

    @property
    def leads(self) -> str:
        """Name the leader, in a clause."""
        return f"{self.leader or 'another daemon'} leads"

    def _reply(self) -> ErrorReply:
        message = f"this daemon is a standby: {self.leads}; ask on its host, or at any site"
        return ErrorReply(message=message, kind=ErrorKind.UNAVAILABLE)


def is_served(path: Path) -> bool:
    """Tell whether a process listens at a unix socket: the leader's own, on the same host."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.setblocking(False)
        try:
            peer.connect(str(path))
        except BlockingIOError:  # it does, and has much to do
            return True
        except OSError:
            return False
    return True
