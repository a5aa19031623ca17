"""The unix socket between a command and the daemon: one frame out, one frame in."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from federator.errors import InvalidRequest, SiteUnavailable
from federator.model.unreadable import UNREADABLE
from federator.wire.client_protocol import (
    ANSWERS,
    BANNER,
    MAX_CALL_BYTES,
    MAX_FRAME_BYTES,
    Call,
    ErrorKind,
    ErrorReply,
    SubmitCall,
    frame,
)

if TYPE_CHECKING:
    from pathlib import Path

    from federator.wire.replies import Reply

SOCKETS: Final = (
    "/run/federator/agent.sock",  # at a site
    "/run/federator/daemon.sock",  # on the daemon's host
)
TIMEOUT_S: Final = 30.0
PATIENCE_S: Final = 30.0  # a standby takes over, and its sites come up, in less
FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 1.0


class NoAnswer(SiteUnavailable):
    """The call was sent and no answer came: it may have been carried out, or not."""


def socket_path() -> str:
    """``$FEDERATOR_SOCKET``, else the first default that exists.

    Raises:
        SiteUnavailable: there is none.
    """
    named = os.environ.get("FEDERATOR_SOCKET")
    if named:
        return named
    for path in SOCKETS:
        if os.path.exists(path):
            return path
    folder = os.path.dirname(SOCKETS[0])
    if os.path.isdir(folder):
        raise SiteUnavailable(_away(SOCKETS[0]))
    raise SiteUnavailable(
        f"The federation cannot be reached from this host: it is not installed here (no {folder}). "
        "Log in to a host of a site that has it, or set FEDERATOR_SOCKET"
    )


def _away(path: str) -> str:
    if os.path.basename(path) == os.path.basename(SOCKETS[1]):
        who = "The federation's daemon is away (it is restarting, or another one takes over)"
    else:
        who = (
            "The federation's agent on this host is away (it is restarting, or its link to the "
            "daemon is down)"
        )
    return f"{who}; running jobs run on, and commands work again once it is back ({path})"


def socket_beside(configured: Path) -> str:
    """``$FEDERATOR_SOCKET``, else the socket that a configuration names."""
    return os.environ.get("FEDERATOR_SOCKET") or str(configured)


def call(message: Call, timeout_s: float = TIMEOUT_S, path: str | None = None) -> Reply:
    """Ask the daemon and wait for its answer, ``timeout_s`` at most for each part of it.

    Where too many other commands wait it is asked again, for as long. ``path`` is the socket, by
    default that of ``socket_path``.

    Raises:
        NoAnswer: it was asked, and did not answer.
        SiteUnavailable: it cannot be reached; nothing was asked.
    """
    path = path or socket_path()
    data = frame(message)
    if len(data) > MAX_CALL_BYTES:
        raise InvalidRequest(
            f"the request has {len(data)} bytes, more than {MAX_CALL_BYTES}: "
            "shorten the script or the environment (--export)"
        )
    until_s, pause_s = time.monotonic() + timeout_s, FIRST_PAUSE_S
    while True:
        reply = _call_once(message, path, data, timeout_s)
        if reply is not None:
            return reply
        if time.monotonic() + pause_s > until_s:
            raise SiteUnavailable(
                "the federation did not get to this command: too many others wait, most of them "
                f"your own ({path})"
            )
        time.sleep(pause_s * (0.5 + os.urandom(1)[0] / 255))  # or all would come back at once
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _call_once(message: Call, path: str, data: bytes, timeout_s: float) -> Reply | None:
    """The answer; None where the call was not even heard, as too many others wait."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        try:
            _connect(peer, path, timeout_s)
        except BlockingIOError:
            return None
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise SiteUnavailable(_away(path)) from error
        except OSError as error:
            raise SiteUnavailable(
                f"Unable to contact the federation at {path}: {error.strerror or error}"
            ) from error
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                peer.sendall(data)  # who turns us away does not read it, but says so
            reply = _decoded(message, _answer(peer, path))
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {timeout_s:.0f} s from {path}") from error
        except OSError as error:
            raise NoAnswer(f"the connection to {path} broke: {error.strerror or error}") from error
    is_busy = isinstance(reply, ErrorReply) and reply.kind is ErrorKind.BUSY
    return None if is_busy else reply


def _connect(peer: socket.socket, path: str, timeout_s: float) -> None:
    """Connect in order: in a blocking call the kernel lets callers queue for the backlog.

    Raises:
        BlockingIOError: the backlog was full all the time.
    """
    seconds = int(timeout_s)
    limit = struct.pack("ll", seconds, int((timeout_s - seconds) * 1e6))
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    peer.connect(path)
    peer.settimeout(timeout_s)


def ask(message: Call, tell: Callable[[str], None], patience_s: float = PATIENCE_S) -> Reply:
    """As ``call``, and again while nobody answers: another daemon may be taking over.

    Args:
        message: of a kind that does no more when it comes twice.
        tell: told once that it is tried again, and why.
        patience_s: for that long, not counting how long the last try takes.

    Raises:
        NoAnswer: one of the tries may have been carried out.
        SiteUnavailable: none was.
    """
    until_s, pause_s = time.monotonic() + patience_s, FIRST_PAUSE_S
    in_doubt = announced = False
    while True:
        try:
            reply = call(message)
        except SiteUnavailable as error:
            failure = error
            in_doubt = in_doubt or isinstance(error, NoAnswer)
        else:
            if not (in_doubt and isinstance(reply, ErrorReply) and _is_away(reply)):
                return reply
            failure = SiteUnavailable(reply.message)  # it says nothing of the tries before
        if time.monotonic() + pause_s > until_s:
            raise NoAnswer(str(failure)) if in_doubt else failure
        if not announced:
            tell(f"{failure}; trying again for {patience_s:.0f} s")
        announced = True
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _is_away(reply: ErrorReply) -> bool:
    return reply.kind is ErrorKind.UNAVAILABLE


def _answer(peer: socket.socket, path: str) -> bytes:
    if _read(peer, len(BANNER)) != BANNER:
        raise SiteUnavailable(f"{path} is no socket of the federation")
    length = int.from_bytes(_read(peer, 4), "big")
    if length > MAX_FRAME_BYTES:
        raise SiteUnavailable(f"{path} announced an answer of {length} bytes")
    return _read(peer, length)


def _decoded(message: Call, body: bytes) -> Reply:
    """Read the answer to ``message``, knowing of which kind it must be if it is no error."""
    kind: Any = ANSWERS[type(message)]
    if isinstance(message, SubmitCall) and message.test_only:
        from federator.wire.replies import TestOnlyReply  # noqa: PLC0415  # slow to import

        kind = TestOnlyReply
    try:
        reply: Reply = msgspec.msgpack.decode(body, type=kind | ErrorReply)
    except UNREADABLE as error:
        raise NoAnswer(
            f"the answer cannot be read ({error}); is the daemon of another release?"
        ) from error
    return reply


def _read(peer: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = peer.recv(min(size, 2**20))
        if not part:
            raise NoAnswer("the connection broke before the answer came")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
