"""``federator upgrade-check`` reads all that the next daemon will, and changes nothing."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from federator.cli import client
from federator.cli.upgrade_check import upgrade_check
from federator.errors import SiteUnavailable
from federator.history import schema
from federator.history.database import open_writer
from federator.model.event import Awarded, EpochBegan, Submitted, encode_event
from federator.model.workload import FIRST_WORKLOAD_ID
from federator.store.sqlite import SqliteStore
from federator.wire.client_protocol import Call, SiteRow, SitesReply
from federator.wire.replies import Reply
from tests.fakes.build import attempt, draft, gang, plan_on
from tests.fakes.redis_server import RedisServer

Findings = dict[str, tuple[str, str]]  # verdict and detail, by check


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A federation with a log, of which no daemon runs."""

    def call(_asked: Call, **_: object) -> Reply:
        raise SiteUnavailable("nobody listens")

    monkeypatch.setattr(client, "call", call)
    path = tmp_path / "federation.yaml"
    path.write_text(
        f"federation: demo\nstore: 'sqlite://{tmp_path}/queue.db'\n"
        f"socket: {tmp_path}/daemon.sock\nregions: {{west: {{shared: /shared}}}}\n"
        "sites: {alpine: {region: west, partitions: [gpu], command: [agent]}}\n"
        "tenants: {vision: {quota: {gpus: 8}}}\n"
    )
    append(path, encode_event(EpochBegan(at_s=100.0, epoch=7)))
    return path


def append(config: Path, record: bytes) -> None:
    with closing(SqliteStore(config.with_name("queue.db"))) as store:
        assert store.lead(0) is not None
        store.append([record])


def seen(config: Path) -> tuple[bytes, bytes, bool]:
    """The log, what is noted of its end, and whether there is a history; readers make a -shm."""
    files = [config.with_name(name).read_bytes() for name in ("queue.db", "queue.db.lock")]
    return files[0], files[1], config.with_name("queue-history.db").exists()


def checked(config: Path) -> tuple[int, Findings]:
    done = CliRunner().invoke(upgrade_check, ["--config", str(config), "--json"])
    findings = json.loads(done.stdout)["findings"]
    return done.exit_code, {f["check"]: (f["verdict"], f["detail"]) for f in findings}


def test_what_this_release_can_go_on_with_is_ok_and_stays_as_it_was(config: Path) -> None:
    before = seen(config)
    status, found = checked(config)
    assert status == 0
    assert found["configuration"][0] == "ok"
    assert found["log"] == ("ok", "1 record, all of which this release reads")
    assert found["sites"][0] == "warn"
    assert "no daemon answers: nobody listens" in found["sites"][1]
    assert seen(config) == before


def test_a_record_of_a_later_release_fails(config: Path) -> None:
    append(config, msgspec.msgpack.encode({"type": "of_a_later_release", "at_s": 1.0}))
    status, found = checked(config)
    assert (status, found["log"][0]) == (1, "fail")
    assert "record 2, of kind 'of_a_later_release', cannot be read" in found["log"][1]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("vision: {quota", "nlp: {quota", "live workloads of tenant 'vision'"),
        ("alpine: {", "baker: {", "live workloads at site 'alpine'"),
        ("command: [agent]", "command: [agent], mode: shadow", "mode shadow would leave alone"),
    ],
)
def test_a_configuration_that_lacks_what_live_workloads_need_fails(
    config: Path, old: str, new: str, says: str
) -> None:
    for event in (
        Submitted(at_s=101.0, draft=draft(gang(1)), first_id=FIRST_WORKLOAD_ID, key="a"),
        Awarded(at_s=102.0, attempt=attempt(), site="alpine", jobs=plan_on("a1")),
    ):
        append(config, encode_event(event))
    assert checked(config)[1]["log"][0] == "ok"
    config.write_text(config.read_text().replace(old, new))
    status, found = checked(config)
    assert (status, found["configuration"][0], found["log"][0]) == (1, "ok", "fail")
    assert says in found["log"][1]


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (SiteUnavailable("nobody listens"), "warn"),  # none has run yet
        (client.NoAnswer("no answer within 30 s"), "fail"),
        (SitesReply(sites=()), "fail"),
    ],
)
def test_a_log_that_is_not_there_fails_where_a_daemon_runs(
    config: Path, monkeypatch: pytest.MonkeyPatch, answer: Reply | Exception, verdict: str
) -> None:
    def call(_asked: Call, **_: object) -> Reply:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(client, "call", call)
    config.write_text(config.read_text().replace("queue.db", "quee.db"))
    status, found = checked(config)
    assert (status, found["log"][0]) == (verdict == "fail", verdict)
    assert "quee.db: there is no such log" in found["log"][1]


@pytest.mark.parametrize("runs", [True, False])
def test_an_empty_log_in_redis_fails_where_a_daemon_runs(
    runs: bool, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(_asked: Call, **_: object) -> Reply:
        if not runs:
            raise SiteUnavailable("nobody listens")
        return SitesReply(sites=())

    monkeypatch.setattr(client, "call", call)
    redis = RedisServer(tmp_path / "redis")
    try:
        config.write_text(config.read_text().replace(f"sqlite://{tmp_path}/queue.db", redis.url))
        status, found = checked(config)
    finally:
        redis.kill()
    assert (status, found["log"][0]) == (runs, "fail" if runs else "warn")
    assert "the log that 'store' names has no record" in found["log"][1]


def test_a_log_in_a_folder_that_another_account_keeps_to_itself_fails(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def denied(path: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        if path.name == "queue.db":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, follow_symlinks=follow_symlinks)

    monkeypatch.setattr(Path, "stat", denied)
    status, found = checked(config)
    assert (status, found["log"][0]) == (1, "fail")
    assert "queue.db: cannot be looked at: Permission denied" in found["log"][1]


def test_a_configuration_that_this_release_refuses_fails_and_ends_the_checks(config: Path) -> None:
    config.write_text(config.read_text() + "polciy: {}\n")
    status, found = checked(config)
    assert (status, list(found), found["configuration"][0]) == (1, ["configuration"], "fail")
    assert "polciy: unknown key" in found["configuration"][1]


def test_a_format_that_ends_with_the_upgrade_is_warned_of(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federator.store.sqlite._FORMAT", 3)
    monkeypatch.setattr("federator.store.sqlite._CRC_OF", {2: "SELECT 1"})
    status, found = checked(config)
    assert (status, found["log"][0]) == (0, "warn")
    assert "its format is converted; the release before cannot read it" in found["log"][1]


@pytest.mark.parametrize(
    ("version", "verdict", "says"),
    [
        (schema.VERSION, "ok", f"schema {schema.VERSION}"),
        (schema.VERSION - 1, "warn", f"becomes {schema.VERSION} at the first start"),
        (schema.VERSION + 1, "fail", "of a later release"),
    ],
)
def test_the_history_s_schema_is_compared(
    config: Path, version: int, verdict: str, says: str
) -> None:
    path = config.with_name("queue-history.db")
    engine = open_writer(f"sqlite://{path}")
    with engine.begin() as connection:
        schema.prepare(connection)
    engine.dispose()
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE history_version SET version = ?", (version,))
        db.commit()
    status, found = checked(config)
    assert (status, found["history"][0]) == (verdict == "fail", verdict)
    assert says in found["history"][1]


@pytest.mark.parametrize(
    ("up", "verdict", "detail"),
    [
        (True, "ok", "2 sites up; agents: 1 of release 0.0.9, 1 of release unknown"),
        (False, "warn", "down before the upgrade: alpine"),
    ],
)
def test_sites_that_are_down_before_are_named_and_of_the_others_the_agents_releases(
    config: Path, monkeypatch: pytest.MonkeyPatch, up: bool, verdict: str, detail: str
) -> None:
    alpine = SiteRow(name="alpine", region="west", up=up)
    baker = SiteRow(name="baker", region="west", up=True, agent_release="0.0.9")
    reply = SitesReply(sites=(alpine, baker))
    monkeypatch.setattr(client, "call", lambda _asked, **_: reply)
    assert checked(config)[1]["sites"] == (verdict, detail)


def test_findings_are_lines_for_people(config: Path) -> None:
    done = CliRunner().invoke(upgrade_check, ["--config", str(config)])
    lines = done.output.splitlines()
    assert done.exit_code == 0
    assert lines[0].split()[:2] == ["configuration", "ok"]
    assert lines[-1] == "2 ok, 2 warn, 0 fail"
