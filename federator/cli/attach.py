"""``federator site attach``: the forced command of a site that dials the daemon."""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path
from typing import Final

import click

from federator.errors import SiteUnavailable
from federator.wire.attaching import ATTACHED, LOGIN_NODE, STANDING_BY, door_beside

DEFAULT_SOCKET: Final = Path("/run/federator/daemon.sock")
_CHUNK: Final = 2**16
_LONGEST_LINE: Final = 4096
_ANSWERS_WITHIN_S: Final = 15.0  # else the site tries the next daemon


@click.command()
@click.argument("name", metavar="SITE")
@click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path),
    default=DEFAULT_SOCKET,
    show_default=True,
    help="The daemon's, as in federation.yaml.",
)
def attach(name: str, path: Path) -> None:
    """Join SITE, which has dialled this host, to the daemon, until either ends.

    sshd starts it: it is the forced command of the key of a site with connect: outbound. It speaks
    on standard input and output.

    Example: federator site attach alpine
    """
    with _attached(name, path) as door:
        try:
            while data := door.recv(_CHUNK):
                _write(data)
        except OSError:
            pass  # the site, or the daemon, is gone
    sys.stderr.flush()
    os._exit(0)  # whoever reads standard input may wait there for ever


def _attached(name: str, path: Path) -> socket.socket:
    """Connect, and say that the site is attached once it is.

    Which of the site's login nodes it is, is what its ssh asks sshd to run.

    Raises:
        SiteUnavailable: no daemon that leads is here, or it expects no such site.
    """
    asked = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    login_node = asked if LOGIN_NODE.fullmatch(asked) else ""
    beside = door_beside(path)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.settimeout(_ANSWERS_WITHIN_S)
    try:
        door.connect(str(beside))
        door.sendall(f"{name} {login_node}".rstrip().encode() + b"\n")
        answer = _line(door)
        threading.Thread(target=_carry_in, args=(door,), daemon=True).start()
        if answer == STANDING_BY:
            _write(STANDING_BY)
            door.settimeout(None)
            answer = _line(door)
    except OSError as error:
        door.close()
        raise SiteUnavailable(
            f"no daemon that leads answers at {beside}: {error.strerror or error}"
        ) from error
    if answer != ATTACHED:
        door.close()
        raise SiteUnavailable(answer.decode(errors="replace").strip() or "the daemon hung up")
    door.settimeout(None)
    _write(ATTACHED)
    return door


def _line(door: socket.socket) -> bytes:
    answer = b""
    while not answer.endswith(b"\n") and len(answer) < _LONGEST_LINE:
        byte = door.recv(1)
        if not byte:
            break
        answer += byte
    return answer


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def _carry_in(door: socket.socket) -> None:
    """What the site says, until it hangs up: the daemon reads that as the channel's end."""
    try:
        while data := os.read(0, _CHUNK):
            door.sendall(data)
        door.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the daemon is gone
