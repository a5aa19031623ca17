"""Channels to agents: what is left when one is given up."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from federator.wire.transport import SshTransport


def test_a_login_whose_session_nobody_waits_for_any_more_is_cut(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Else the connection would stay until the site's sshd or the daemon ends."""

    class Login:
        is_cut = False

        async def create_process(self, **_: object) -> None:
            await asyncio.Event().wait()

        def abort(self) -> None:
            self.is_cut = True

    login = Login()

    async def connect(_: SshTransport) -> Login:
        return login

    async def story() -> None:
        transport = SshTransport(host="h", port=22, user="u", key=tmp_path, known_hosts=tmp_path)
        opening = asyncio.create_task(transport.open())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait((opening,))

    monkeypatch.setattr(SshTransport, "connect", connect)
    asyncio.run(story())
    assert login.is_cut
