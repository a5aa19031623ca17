"""Fixtures of the tests of histories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.history_log import _OPEN, Log
from tests.fakes.postgres_server import PROGRAMS, PostgresServer


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _OPEN:
        _OPEN.pop().dispose()


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    if PROGRAMS is None:
        pytest.skip("PostgreSQL is not installed: containers/setup.sh, need_postgresql")
    server = PostgresServer()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a history that nothing has been written to."""
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/state/history.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


@pytest.fixture
def log() -> Log:
    return Log()
