"""A site's door is tried as a thief would: what opens that should not is a failure."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncssh
import pytest

from federator.config import SshConfig
from federator.daemon.ssh_check import door_findings
from federator.wire.client_protocol import BANNER, Finding, Verdict


class _Server(asyncssh.SSHServer):
    def __init__(self, forwards: bool) -> None:
        self._forwards = forwards

    def connection_requested(self, *_where: object) -> asyncssh.SSHTCPSession[bytes] | bool:
        if self._forwards:
            return True
        raise asyncssh.ChannelOpenError(asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, "no")


def findings(
    tmp_path: Path, *, is_agent: bool, mode: int = 0o600, pinned: bool = True
) -> dict[str, Finding]:
    """What the daemon's host finds at a server that runs the agent, or else any command."""

    async def serve(process: asyncssh.SSHServerProcess[bytes]) -> None:
        if is_agent:
            process.stdout.write(BANNER)
            await process.stdin.read()
        else:
            process.stdout.write((process.command or "").removeprefix("echo ").encode() + b"\n")
        process.exit(0)

    async def tried() -> tuple[Finding, ...]:
        host, client = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
        other = asyncssh.generate_private_key("ssh-ed25519")
        (tmp_path / "key").write_bytes(client.export_private_key())
        (tmp_path / "key").chmod(mode)
        (tmp_path / "authorized").write_bytes(client.export_public_key())
        server = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[host],
            encoding=None,
            process_factory=serve,
            authorized_client_keys=str(tmp_path / "authorized"),
            allow_pty=not is_agent,
            server_factory=lambda: _Server(forwards=not is_agent),
        )
        port = server.get_port()
        known = (host if pinned else other).export_public_key().decode()
        (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {known}")
        ssh = SshConfig(
            host="127.0.0.1", port=port, key=tmp_path / "key", known_hosts=tmp_path / "known"
        )
        try:
            return await door_findings(ssh)
        finally:
            server.close()
            await server.wait_closed()

    return {finding.check: finding for finding in asyncio.run(tried())}


def test_a_door_for_the_agent_alone_is_ok(tmp_path: Path) -> None:
    found = findings(tmp_path, is_agent=True)
    assert {f.verdict for f in found.values()} == {Verdict.OK}
    assert list(found) == ["key", "ssh", "forced command", "terminal", "forwarding"]


@pytest.mark.parametrize("check", ["forced command", "terminal"])
def test_a_key_that_opens_a_shell_fails(tmp_path: Path, check: str) -> None:
    assert findings(tmp_path, is_agent=False)[check].verdict is Verdict.FAIL


def test_a_key_that_others_can_read_fails(tmp_path: Path) -> None:
    found = findings(tmp_path, is_agent=True, mode=0o640)
    assert found["key"].verdict is Verdict.FAIL
    assert "0640" in found["key"].detail


def test_another_host_key_fails(tmp_path: Path) -> None:
    found = findings(tmp_path, is_agent=True, pinned=False)
    assert found["ssh"].verdict is Verdict.FAIL
    assert "no way in" in found["ssh"].detail
