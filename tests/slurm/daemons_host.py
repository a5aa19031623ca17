"""sshd on the daemon's host, where one key starts one command; see ``DaemonsHost``.

It is a process of its own, so that nothing of it outlives a test. ``python -m
tests.slurm.daemons_host ADDRESS FOLDER COMMAND…`` prints its port. The line "cut" on its standard
input breaks every connection; the end of its standard input ends it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import asyncssh
import docker

from federator.testbed import layout
from tests.slurm.federation import BIN

_PIPE: Final = asyncio.subprocess.PIPE


class DaemonsHost:
    """The test's end: a site's key attaches that site, whatever it asks for.

    Args:
        folder: for its files; may be there already.
        socket: of the daemon.
        site: whose key it is.
    """

    def __init__(self, folder: Path, socket: Path, site: str) -> None:
        folder.mkdir(exist_ok=True)
        key, host_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
        host_key.write_private_key(folder / "host_key")
        key.write_public_key(folder / "authorized")
        self.key = key.export_private_key().decode()
        self.address = _gateway()
        attach = (str(BIN / "federator"), "site", "attach", site, "--socket", str(socket))
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, self.address, str(folder), *attach],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=layout.REPOSITORY,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        public = host_key.export_public_key().decode()
        self.known_hosts = f"[{self.address}]:{self.port} {public}"

    def cut(self) -> None:
        """Break every connection, without a word to anybody."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"cut\n")
        self._process.stdin.flush()

    def close(self) -> None:
        with self._process:  # closes its standard input, and waits for it
            pass


def _gateway() -> str:
    """Where the sites find this host."""
    with closing(docker.from_env()) as client:
        network = client.networks.get(layout.NETWORK)
    address: str = network.attrs["IPAM"]["Config"][0]["Gateway"]
    return address


async def serve(address: str, folder: Path, command: list[str]) -> None:
    """Let in who has the key, until standard input ends."""
    connections: set[asyncssh.SSHServerConnection] = set()
    over = asyncio.Event()

    async def begin(session: asyncssh.SSHServerProcess[bytes]) -> None:
        connection = session.get_extra_info("connection")
        connections.add(connection)
        asked = {"SSH_ORIGINAL_COMMAND": session.command or ""}  # as sshd tells of it
        attach = await asyncio.create_subprocess_exec(
            *command, stdin=_PIPE, stdout=_PIPE, stderr=_PIPE, env={**os.environ, **asked}
        )
        assert attach.stdin is not None
        try:
            await session.redirect(attach.stdin, attach.stdout, attach.stderr)
            session.exit(await attach.wait())
        finally:
            connections.discard(connection)
            attach.stdin.close()  # as sshd does when a connection is lost
            await session.wait_closed()  # asyncssh made a coroutine for it, which has to run

    def hear() -> None:
        if os.read(0, 4096):
            for connection in connections:
                connection.abort()
        else:
            over.set()

    asyncio.get_running_loop().add_reader(0, hear)
    server = await asyncssh.listen(
        address,
        0,
        server_host_keys=[str(folder / "host_key")],
        authorized_client_keys=str(folder / "authorized"),
        process_factory=begin,
        encoding=None,
    )
    print(server.get_port(), flush=True)
    await over.wait()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
