"""Checks from the daemon's host that a site's ssh account runs the agent and nothing else.

Each try is a session of its own beside the running agent's. What it starts ends before it works:
the daemon's first word never comes.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

import asyncssh

from federator.config import SshConfig
from federator.daemon.edges import ssh_ways
from federator.errors import SiteUnavailable
from federator.wire.client_protocol import BANNER, Finding, Verdict
from federator.wire.transport import SshTransport

_PATIENCE_S: Final = 10.0
_WORD: Final = "federator-shell-is-open"
_MAX_HEARD: Final = 4096


async def door_findings(ssh: SshConfig) -> tuple[Finding, ...]:
    """Return what was found of key file, host key, forced command, terminal and forwarding.

    All but the first of each login node.
    """
    found = [_key_file(ssh)]
    for way in ssh_ways(ssh):
        found += await _host_findings(way)
    return tuple(found)


async def _host_findings(way: SshTransport) -> tuple[Finding, ...]:
    try:
        connection = await way.connect()
    except SiteUnavailable as error:
        return (_finding("ssh", Verdict.FAIL, f"no way in: {error}"),)
    try:
        pinned = f"in, and the host key is the one of {way.known_hosts}"
        return (
            _finding("ssh", Verdict.OK, f"{way.user}@{way.host}:{way.port} lets us {pinned}"),
            await _within("forced command", _forced_command(connection)),
            await _within("terminal", _terminal(connection)),
            await _within("forwarding", _forwarding(connection)),
        )
    finally:
        connection.abort()
        with suppress(Exception):  # whatever a dead peer does to a closing connection
            await asyncio.wait_for(connection.wait_closed(), 2.0)


def _finding(check: str, verdict: Verdict, detail: str) -> Finding:
    return Finding(check=check, verdict=verdict, detail=detail)


def _key_file(ssh: SshConfig) -> Finding:
    try:
        mode = stat.S_IMODE(ssh.key.stat().st_mode)
    except OSError as error:
        return _finding("key", Verdict.FAIL, f"{ssh.key}: {error.strerror}")
    if mode & 0o077:
        return _finding(
            "key", Verdict.FAIL, f"{ssh.key} has mode {mode:04o}; others can read it: chmod 0600"
        )
    return _finding("key", Verdict.OK, f"{ssh.key} is the daemon's alone (mode {mode:04o})")


async def _within(check: str, found: Awaitable[Finding]) -> Finding:
    try:
        return await asyncio.wait_for(found, _PATIENCE_S)
    except TimeoutError:
        return _finding(check, Verdict.WARN, f"no answer within {_PATIENCE_S:.0f} s")
    except (OSError, asyncssh.Error) as error:
        return _finding(check, Verdict.WARN, f"could not be tried: {error}")


async def _forced_command(connection: asyncssh.SSHClientConnection) -> Finding:
    """Ask for a shell command; only the agent's first word may come back."""
    check = "forced command"
    process = await connection.create_process(f"echo {_WORD}", encoding=None)
    heard = b""
    try:
        while len(heard) < _MAX_HEARD and (part := await process.stdout.read(256)):
            heard += part
            if _WORD.encode() in heard:
                return _finding(
                    check,
                    Verdict.FAIL,
                    "the key runs any command; authorized_keys must begin with"
                    ' restrict,command="…"',
                )
            if heard.endswith(BANNER):
                return _finding(check, Verdict.OK, "whatever is asked for, the agent answers")
    finally:
        process.close()
    said = ascii(heard[-200:].decode(errors="replace"))
    return _finding(check, Verdict.FAIL, f"the agent does not answer; what came is {said}")


async def _terminal(connection: asyncssh.SSHClientConnection) -> Finding:
    try:
        process = await connection.create_process(term_type="vt100", encoding=None)
    except asyncssh.ChannelOpenError:
        return _finding("terminal", Verdict.OK, "refused")
    process.close()
    return _finding(
        "terminal", Verdict.FAIL, "sshd gives a terminal; set PermitTTY no for this account"
    )


async def _forwarding(connection: asyncssh.SSHClientConnection) -> Finding:
    """Try to reach the site's own sshd through the connection; its port answers there."""
    try:
        _, writer = await connection.open_connection("127.0.0.1", 22, encoding=None)
    except asyncssh.ChannelOpenError as error:
        if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
            return _finding("forwarding", Verdict.OK, "refused")
        return _finding(
            "forwarding",
            Verdict.WARN,
            f"failed, but was not forbidden ({error.reason}); set DisableForwarding yes",
        )
    writer.close()
    return _finding(
        "forwarding", Verdict.FAIL, "sshd forwards connections; set DisableForwarding yes"
    )
