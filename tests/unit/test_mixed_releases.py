"""Daemon and agents one release apart work, whichever is older; so do a log's next and last."""

from __future__ import annotations

import os
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from federator.store.opening import open_store
from tests.fakes.releases import (
    ENDS_WITHIN_S,
    GIT_LASTS_S,
    LASTS_S,
    REPOSITORY,
    MixedFederation,
    NoSuchCommit,
    unpack_previous,
)
from tests.fakes.slurm_programs import jobs_at

pytestmark = pytest.mark.slow

NEW = REPOSITORY


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the release before this one."""
    try:
        return unpack_previous(tmp_path_factory.mktemp("previous"))
    except NoSuchCommit as error:
        pytest.skip(f"the release before this one is not in this checkout: {error}")


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[MixedFederation]:
    mixed = MixedFederation(tmp_path)
    try:
        yield mixed
    finally:
        mixed.stop()


@pytest.mark.parametrize("newer", ["daemon", "agent"])
def test_a_job_is_submitted_runs_and_ends_where_one_of_both_is_newer(
    newer: str, old: Path, federation: MixedFederation
) -> None:
    daemon, site = (NEW, old) if newer == "daemon" else (old, NEW)
    federation.start(daemon, site)
    runs, cancelled = federation.submit(site), federation.submit(site)
    federation.await_states(site, {runs: "RUNNING", cancelled: "RUNNING"})
    federation.run(site, "fscancel", cancelled)
    federation.await_states(site, {runs: "RUNNING", cancelled: "CANCELLED"})
    federation.let_end()
    federation.await_states(site, {runs: "COMPLETED", cancelled: "CANCELLED"})
    assert len(jobs_at(federation.slurm)) == 2  # each was submitted once


@pytest.mark.parametrize("to", ["newer", "older"])
def test_daemon_and_agent_go_on_with_what_those_of_another_release_left(
    to: str, old: Path, federation: MixedFederation
) -> None:
    """An upgrade, and the way back from one: the log, and the agent's journal."""
    before, after = (old, NEW) if to == "newer" else (NEW, old)
    federation.start(before, before)
    runs = federation.submit(before)
    federation.await_states(before, {runs: "RUNNING"})
    held = federation.submit(before, "--hold")
    federation.stop()
    federation.start(after, after)
    federation.await_states(after, {runs: "RUNNING", held: "INELIGIBLE"})
    federation.run(after, "fscontrol", "release", held)
    later = federation.submit(after)
    federation.await_states(after, {runs: "RUNNING", held: "RUNNING", later: "RUNNING"})
    federation.let_end()
    federation.await_states(after, dict.fromkeys((runs, held, later), "COMPLETED"))
    assert len(jobs_at(federation.slurm)) == 3


def test_a_daemon_leaves_a_log_that_it_cannot_read_as_it_was(
    old: Path, federation: MixedFederation
) -> None:
    """The way back from an upgrade is closed once the later release has noted what is new in it."""
    federation.start(NEW, NEW)
    federation.stop()
    with closing(open_store(federation.store)) as store:
        assert store.lead(0) is not None
        store.append([msgspec.msgpack.encode({"type": "of_a_later_release", "at_s": 1.0})])
        before = list(store.records())
    status, said = federation.start_in_vain(old, NEW)
    assert status == os.EX_IOERR
    assert "of kind 'of_a_later_release', cannot be read by release" in said
    assert "start the release that wrote it, or a later one" in said
    with closing(open_store(federation.store)) as store:
        assert store.lead(0) is not None
        assert list(store.records()) == before


def test_a_federation_that_hangs_fails_its_test_before_pytest_ends_the_run() -> None:
    pytest_s = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["pytest"]
    git_s = 3 * GIT_LASTS_S  # the calls of ``unpack_previous``, and one to spare
    assert git_s + LASTS_S + ENDS_WITHIN_S < pytest_s["ini_options"]["faulthandler_timeout"]


def test_a_daemon_that_does_not_end_in_vain_ends_with_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = MixedFederation(tmp_path, lasts_s=0)
    with subprocess.Popen(["sleep", "600"]) as daemon:
        monkeypatch.setattr(federation, "_daemon", lambda _: daemon)
        try:
            with pytest.raises(AssertionError, match="the daemon runs, 0 s after the test began"):
                federation.start_in_vain(NEW, NEW)
            federation.stop()
            assert daemon.returncode == -signal.SIGTERM
        finally:
            daemon.kill()
