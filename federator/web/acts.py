"""Acts of users through the page: the daemon is asked in their name, and decides."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from federator.cli.text import counted, printable
from federator.errors import InvalidRequest
from federator.model.message import ControlVerb
from federator.wire.client_protocol import (
    CancelCall,
    CancelReply,
    ControlCall,
    ControlReply,
    DrainCall,
    DrainReply,
    ErrorReply,
    ResumeCall,
    SpokenCall,
)
from federator.wire.replies import Reply

JOB_ID: Final = re.compile(r"[0-9]{1,19}(_[0-9]{1,9})?")
SITE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
OF_JOBS: Final = ("cancel", "hold", "release")
OF_SITES: Final = ("drain", "resume")
ACTS_AT_MOST: Final = 20  # of one user in ``ACTS_WITHIN_S``
ACTS_WITHIN_S: Final = 10.0
USERS_KEPT: Final = 10_000
MOST_REASON: Final = 500


class PageAct(msgspec.Struct, frozen=True, kw_only=True):
    """One act, as a form asks for it."""

    verb: str
    target: str  # a job's id, or a site
    reason: str = ""  # of a drain

    @property
    def on_site(self) -> bool:
        return self.verb in OF_SITES

    def call(self, user: str) -> SpokenCall:
        """The daemon's call."""
        call: CancelCall | ControlCall | DrainCall | ResumeCall
        if self.verb == "cancel":
            call = CancelCall(ids=(self.target,))
        elif self.verb == "drain":
            call = DrainCall(site=self.target, reason=self.reason)
        elif self.verb == "resume":
            call = ResumeCall(site=self.target)
        else:
            verb = ControlVerb.HOLD if self.verb == "hold" else ControlVerb.RELEASE
            call = ControlCall(verb=verb.value, ids=(self.target,))
        return SpokenCall(user=user, call=call)


def act_of(form: Mapping[str, str]) -> PageAct:
    """Read an act.

    Raises:
        InvalidRequest: it is none.
    """
    verb, target = form.get("verb", ""), form.get("target", "")
    pattern = SITE if verb in OF_SITES else JOB_ID
    if verb not in OF_JOBS + OF_SITES or not pattern.fullmatch(target):
        raise InvalidRequest("this page has no such act")
    reason = form.get("reason", "")
    if len(reason) > MOST_REASON:
        raise InvalidRequest(f"the reason has {len(reason)} characters, more than {MOST_REASON}")
    return PageAct(verb=verb, target=target, reason=printable(reason))


def outcome(act: PageAct, reply: Reply) -> tuple[bool, tuple[str, ...]]:
    """Whether an act was done, and lines that say what became of it."""
    match reply:
        case CancelReply() | ControlReply():
            done = f"{act.verb}: {counted(len(reply.ids), 'workload')}"
            lines = (done, *reply.errors) if reply.ids or not reply.errors else reply.errors
            return bool(reply.ids), tuple(map(printable, lines))
        case DrainReply() if act.verb == "resume":
            return True, (f"{act.target} takes new work again",)
        case DrainReply():
            return True, (f"{act.target} is drained: {counted(reply.running, 'workload')} running",)
        case ErrorReply():
            return False, (printable(reply.message),)
    return False, ("the daemon gave an unexpected answer",)


class ActLimit:
    """Bounds how often one user acts.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lately: dict[str, deque[float]] = {}

    def allows(self, user: str) -> bool:
        """Whether one more is allowed; it counts then."""
        now_s = self._clock()
        if len(self._lately) >= USERS_KEPT:
            self._lately.clear()
        lately = self._lately.setdefault(user, deque())
        while lately and lately[0] < now_s - ACTS_WITHIN_S:
            lately.popleft()
        if len(lately) >= ACTS_AT_MOST:
            return False
        lately.append(now_s)
        return True
