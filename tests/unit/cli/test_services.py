"""How does the daemon's process end? At once, with a status that says what to do."""

from __future__ import annotations

import asyncio
import os

import pytest

from federator.cli import services
from federator.cli.usage import exit_status
from federator.errors import ConfigError, DamagedLog, FederatorError, LeadershipLost, StoreError


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LeadershipLost("x"), os.EX_TEMPFAIL),
        (DamagedLog("x"), os.EX_DATAERR),
        (StoreError("x"), os.EX_IOERR),
        (ConfigError("x"), os.EX_CONFIG),
    ],
)
def test_what_is_to_be_done_next_is_told_by_the_exit_status(
    error: FederatorError, status: int
) -> None:
    assert exit_status(error) == status


class Ended(BaseException):
    """Stands for the end of the process."""


class Failing:
    def stop(self) -> None:
        pass

    async def run(self) -> None:
        raise LeadershipLost("another daemon leads")


def test_a_daemon_that_lost_the_lead_ends_without_closing_anything_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is in a buffer on its way to a site must not be sent any more."""
    statuses = []

    def end(status: int) -> None:
        statuses.append(status)
        raise Ended

    monkeypatch.setattr("os._exit", end)
    with pytest.raises(Ended):
        asyncio.run(services._until_told(Failing()))  # type: ignore[arg-type]
    assert statuses == [os.EX_TEMPFAIL]
    assert capsys.readouterr().err == "federator: error: another daemon leads\n"
