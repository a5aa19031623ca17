"""``federator log`` says whether a log is sound, carries it elsewhere, and shows what it said."""

from __future__ import annotations

import base64
import json
import os
import sqlite3
import sys
from contextlib import closing
from math import inf
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from federator.cli import main as admin
from federator.cli.log import log
from federator.errors import DamagedLog, StoreError
from federator.model.event import Changed, EpochBegan, LogRecord, Submitted, encode_event
from federator.model.lifecycle import WorkloadEvent
from federator.model.workload import FIRST_WORKLOAD_ID, WorkloadId
from federator.store.export import read_export
from federator.store.sqlite import SqliteStore
from tests.fakes.build import draft, gang

SECOND = WorkloadId(FIRST_WORKLOAD_ID + 1)
EVENTS: tuple[LogRecord, ...] = (
    EpochBegan(at_s=100.0, epoch=7),
    Submitted(
        at_s=101.0, draft=draft(gang(1), time_limit_s=inf), first_id=FIRST_WORKLOAD_ID, key="a"
    ),
    Submitted(at_s=102.0, draft=draft(gang(2)), first_id=SECOND, key="b"),
    Changed(at_s=103.0, workload=FIRST_WORKLOAD_ID, happening=WorkloadEvent.CANCEL_ASKED, by="ada"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


def write(path: Path, *records: bytes) -> None:
    with closing(SqliteStore(path)) as store:
        store.lead(0)
        store.append(records)


@pytest.fixture(autouse=True)
def sound(path: Path) -> None:
    write(path, *map(encode_event, EVENTS))


def run(path: Path, verb: str, *words: str) -> Result:
    result = CliRunner().invoke(log, [verb, "--store", f"sqlite://{path}", *words])
    if result.exception is not None:
        raise result.exception
    return result


def status(path: Path, monkeypatch: pytest.MonkeyPatch, verb: str = "verify") -> int:
    argv = ["federator", "log", verb, "--store", f"sqlite://{path}"]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as ended:
        admin.main()
    return int(ended.value.code or 0)


def test_a_sound_log_is_counted_by_kind_and_by_state(path: Path) -> None:
    told = run(path, "verify").stdout
    assert f"sqlite://{path}: sound" in told
    assert "records: 4 (1 changed, 1 epoch, 2 submitted)" in told
    assert "epoch 7" in told
    assert json.loads(run(path, "verify", "--json").stdout) == {
        "schema": 1,
        "store": f"sqlite://{path}",
        "records": 4,
        "epoch": 7,
        "last_at_s": 103.0,
        "kinds": {"changed": 1, "epoch": 1, "submitted": 2},
        "workloads": {"CANCELLED": 1, "PENDING": 1},
    }


def test_a_log_is_read_while_a_daemon_leads_it(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.lead(0)
        assert json.loads(run(path, "verify", "--json").stdout)["records"] == 4
        store.append([encode_event(EpochBegan(at_s=104.0, epoch=8))])
        assert json.loads(run(path, "verify", "--json").stdout)["epoch"] == 8


def test_damage_is_named_and_ends_with_its_own_status(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE events SET record = x'80' WHERE seq = 2")
        db.commit()
    for verb in ("verify", "export", "replay"):
        assert status(path, monkeypatch, verb) == os.EX_DATAERR
        assert "damaged: record 2 is not as written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("record", "words", "ends"),
    [
        (EVENTS[3], "record 5 does not follow", os.EX_DATAERR),
        (b"\xc1", "record 5 is no record", os.EX_DATAERR),
        (
            msgspec.msgpack.encode({"type": "moved", "at_s": 1.0}),
            "record 5, of kind 'moved', cannot be read by release",
            os.EX_IOERR,
        ),
    ],
)
def test_a_record_that_does_not_follow_or_is_of_a_later_release_is_named(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    record: LogRecord | bytes,
    words: str,
    ends: int,
) -> None:
    write(path, record if isinstance(record, bytes) else encode_event(record))
    assert status(path, monkeypatch) == ends
    assert words in capsys.readouterr().err


def test_a_log_that_is_not_there_is_no_empty_log(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = path.with_name("absent.db")
    assert status(absent, monkeypatch) == os.EX_IOERR
    assert "no such log" in capsys.readouterr().err
    assert not absent.exists()


def test_an_older_copy_is_not_sound(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whole checksums, and shorter than what this host has seen acknowledged."""
    older = path.read_bytes()
    write(path, *[encode_event(EpochBegan(at_s=104.0 + k, epoch=8 + k)) for k in range(2)])
    path.write_bytes(older)
    assert status(path, monkeypatch) == os.EX_DATAERR
    assert "2 records that were acknowledged are missing" in capsys.readouterr().err
    carried = path.with_name("carried.db")  # elsewhere nothing is known of it
    carried.write_bytes(older)
    assert "sound" in run(carried, "verify").stdout


def test_an_exported_log_comes_back_record_by_record(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "queue.jsonl"
    run(path, "export", "--out", str(out))
    assert list(read_export(out)) == [encode_event(event) for event in EVENTS]
    assert out.stat().st_mode & 0o077 == 0  # it holds the scripts
    begin, *lines, end = map(json.loads, out.read_text().splitlines())
    assert begin == {"federator_log": 1}
    assert end["records"] == 4
    assert [line["position"] for line in lines] == [1, 2, 3, 4]
    assert [line["event"]["type"] for line in lines] == ["epoch", *["submitted"] * 2, "changed"]
    assert base64.b64decode(lines[0]["record"]) == encode_event(EVENTS[0])
    assert run(path, "export").stdout == out.read_text()


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (slice(0, -1), "ends after 4 records without a last line"),
        (slice(1, None), ":1: no line of an exported log"),
        (slice(0, 0), ":1: no line of an exported log"),
    ],
)
def test_an_export_that_was_cut_off_is_not_taken_back(
    path: Path, tmp_path: Path, cut: slice, words: str
) -> None:
    out = tmp_path / "queue.jsonl"
    run(path, "export", "--out", str(out))
    out.write_text("".join(out.read_text().splitlines(keepends=True)[cut]))
    with pytest.raises(DamagedLog, match=words):
        list(read_export(out))


def test_an_export_with_a_line_left_out_or_changed_is_not_taken_back(
    path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "queue.jsonl"
    run(path, "export", "--out", str(out))
    lines = out.read_text().splitlines()
    out.write_text("\n".join([*lines[:2], *lines[3:]]))
    with pytest.raises(DamagedLog, match=":3: expected position 2"):
        list(read_export(out))
    changed = json.loads(lines[2])
    changed["record"] = base64.b64encode(b"other").decode()
    out.write_text("\n".join([*lines[:2], json.dumps(changed), *lines[3:]]))
    with pytest.raises(DamagedLog, match=":6: the records are not those"):
        list(read_export(out))
    with pytest.raises(StoreError, match="cannot be read"):
        list(read_export(tmp_path / "absent"))


def test_replay_shows_the_queue_as_it_was(path: Path) -> None:
    now = run(path, "replay").stdout
    assert str(SECOND) in now
    assert str(FIRST_WORKLOAD_ID) not in now  # it was cancelled
    then = json.loads(run(path, "replay", "--until", "2", "--json").stdout)
    assert [(row["id"], row["state"]) for row in then["jobs"]] == [(FIRST_WORKLOAD_ID, "PENDING")]
    assert then["now_s"] == 101.0
    assert "records: 3" in run(path, "replay", "--until", "3").stdout


def test_one_log_must_be_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["federator", "log", "verify"])
    with pytest.raises(SystemExit) as ended:
        admin.main()
    assert ended.value.code == os.EX_USAGE
