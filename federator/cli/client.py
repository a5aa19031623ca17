"""How does a command reach the daemon? One frame out, one frame in, over a unix socket."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

from federator.errors import InvalidRequest, SiteUnavailable
from federator.sites.protocol import (
    BANNER,
    MAX_CALL_BYTES,
    MAX_FRAME_BYTES,
    Call,
    Reply,
    frame,
    reply_decoder,
)

SOCKETS: Final = (
    Path("/run/federator/agent.sock"),  # at a site
    Path("/run/federator/daemon.sock"),  # on the daemon's host
)
TIMEOUT_S: Final = 30.0


def socket_path() -> Path:
    """``$FEDERATOR_SOCKET``, else the first default that exists.

    Raises:
        SiteUnavailable: there is none.
    """
    named = os.environ.get("FEDERATOR_SOCKET")
    if named:
        return Path(named)
    for path in SOCKETS:
        if path.exists():
            return path
    raise SiteUnavailable(
        "Unable to contact the federation: no agent or daemon runs here "
        f"({' or '.join(map(str, SOCKETS))}); set FEDERATOR_SOCKET for another place"
    )


def call(message: Call, timeout_s: float = TIMEOUT_S) -> Reply:
    """Ask the daemon and wait for its answer, ``timeout_s`` at most for each part of it.

    Raises:
        SiteUnavailable: it cannot be reached, or the connection broke before the answer came.
    """
    path = socket_path()
    data = frame(message)
    if len(data) > MAX_CALL_BYTES:
        raise InvalidRequest(
            f"the request has {len(data)} bytes, more than {MAX_CALL_BYTES}: "
            "shorten the script or the environment (--export)"
        )
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(timeout_s)
            peer.connect(str(path))
            peer.sendall(data)
            if _read(peer, len(BANNER)) != BANNER:
                raise SiteUnavailable(f"{path} is no socket of the federation")
            length = int.from_bytes(_read(peer, 4), "big")
            if length > MAX_FRAME_BYTES:
                raise SiteUnavailable(f"{path} announced an answer of {length} bytes")
            return reply_decoder.decode(_read(peer, length))
    except TimeoutError as error:
        raise SiteUnavailable(f"no answer within {timeout_s:.0f} s from {path}") from error
    except OSError as error:
        raise SiteUnavailable(
            f"Unable to contact the federation at {path}: {error.strerror or error}"
        ) from error


def _read(peer: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size:
        part = peer.recv(min(size, 2**20))
        if not part:
            raise SiteUnavailable("the connection broke before the answer came")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
