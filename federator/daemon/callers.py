"""Keeps who calls and who waits: an answer of the core goes to the client that asked for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from federator.config import FederationConfig
from federator.errors import InvalidRequest
from federator.model.viewer import Viewer
from federator.model.workload import SiteName, TenantName, Workload
from federator.wire.client_protocol import Call, CancelReply, ControlReply, ErrorKind, ErrorReply
from federator.wire.replies import Reply

GiveReply = Callable[[Reply], None]


def named_here(call: Call, site: SiteName, config: FederationConfig) -> Call:
    """A call made at a site, which may name users as that site does, by the federation's names."""
    known, users = config.sites.get(site), getattr(call, "users", ())
    if not users or known is None or not known.names.users:
        return call
    return msgspec.structs.replace(call, users=tuple(known.names.user_here(u) or u for u in users))


class Caller(NamedTuple):
    """The user who asks, and what they may beside what every user may."""

    user: str
    operator: bool
    via: str = ""  # the site that vouches for the name; "": the daemon's host does
    viewer: bool = False  # sees everything
    administers: frozenset[TenantName] = frozenset()
    speaks: bool = False  # for users whom it has identified: it is the web page

    def may_change(self, workload: Workload) -> bool:
        """Whether it may change what a workload asks for, and send it signals."""
        return self.operator or workload.user == self.user

    def may_end(self, workload: Workload) -> bool:
        """Whether it may hold, requeue and cancel a workload."""
        return self.may_change(workload) or workload.tenant in self.administers

    def acting_as(self, as_user: str) -> str:
        """The user for whom it acts, who is another only for an operator.

        Raises:
            InvalidRequest: it may not act for that user.
        """
        if not as_user or as_user == self.user:
            return self.user
        if not self.operator:
            raise InvalidRequest(f"--uid: {self.user} may not act for {as_user}")
        return as_user

    def viewer_by(self, config: FederationConfig) -> Viewer | None:
        """What of the queue and the history it is shown; None: all of it."""
        return config.viewer(self.user, operator=self.sees_all, administers=self.administers)

    @property
    def sees_all(self) -> bool:
        """Whether it is shown everybody's workloads; the web page leaves out what its user may
        not see."""
        return self.operator or self.viewer or self.speaks

    def refusal(self) -> ErrorReply:
        """The answer to what only an operator may ask."""
        message = f"{self.user} is no operator, or not on the daemon's host"
        return ErrorReply(message=message, kind=ErrorKind.DENIED)


class WaitingClients:
    """Those whose answer the core is to give.

    Attributes:
        following: the number of the next.
    """

    def __init__(self) -> None:
        self.following = 1
        self._answers: dict[int, GiveReply] = {}
        self._errors: dict[int, tuple[str, ...]] = {}  # found before the core was asked

    def add(self, answer: GiveReply, errors: tuple[str, ...] = ()) -> int:
        """The number of one more; ``errors`` go with its answer."""
        client = self.following
        self.following += 1
        self._answers[client] = answer
        if errors:
            self._errors[client] = errors
        return client

    def reply(self, client: int, reply: Reply) -> None:
        """Hand the core's answer to whom it is for."""
        answer = self._answers.pop(client, None)
        errors = self._errors.pop(client, ())
        if errors and isinstance(reply, CancelReply | ControlReply):
            reply = msgspec.structs.replace(reply, errors=errors + reply.errors)
        if answer is not None:
            answer(reply)
