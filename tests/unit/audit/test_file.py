"""A writer that is killed at any byte leaves a whole audit, and the next one goes on with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.audit.chain import AuditAct, AuditEnd, verified
from federator.audit.file import END, AuditFile, files_of, raw_lines
from federator.errors import AuditError, DamagedAudit
from federator.store.chain import LogEnd, LogPlace


def act(k: int, record: int = 0) -> AuditAct:
    return AuditAct(at_s=float(k), act="award", on=str(k), record=record)


def opened(folder: Path, max_bytes: int = 2**20) -> AuditFile:
    file = AuditFile(folder, max_bytes)
    file.open(99.0)
    return file


def written(folder: Path) -> list[AuditAct]:
    lines = verified(raw_lines(files_of(folder)), AuditEnd())
    return [line.done for line, _ in lines]


def test_what_is_appended_is_there_again(tmp_path: Path) -> None:
    place = LogPlace(1, LogEnd(7, 42))
    first = opened(tmp_path / "a")
    first.append([act(1, 3), act(2, 6)], place)
    again = opened(tmp_path / "a")
    assert (again.end, again.place, again.last_record) == (first.end, place, 6)
    again.append([act(3)], place)
    assert written(tmp_path / "a") == [act(1, 3), act(2, 6), act(3)]
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert files_of(tmp_path / "a")[0].stat().st_mode & 0o777 == 0o600


@settings(deadline=None, max_examples=40)  # it waits for the disk
@given(st.data())
def test_a_writer_killed_at_any_byte_loses_nothing_that_was_acknowledged(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("audit")
    file = opened(folder)
    file.append([act(1), act(2)], None)
    (path,) = files_of(folder)
    before, mark = path.read_bytes(), (folder / END).read_bytes()
    file.append([act(3), act(4)], None)
    after = path.read_bytes()
    at = data.draw(st.integers(len(before), len(after)))
    path.write_bytes(after[:at])
    if data.draw(st.booleans()) or at < len(after):
        (folder / END).write_bytes(mark)  # the note is late, never early
    again = opened(folder)
    again.append([act(5)], None)
    found = [each for each in written(folder) if each.act == "award"]
    whole = after[:at].count(b"\n") - before.count(b"\n")
    assert found == [act(k) for k in (1, 2, 3, 4)[: 2 + whole]] + [act(5)]
    mended = [each for each in written(folder) if each.act == "audit-mended"]
    assert bool(mended) == (after[:at][-1:] != b"\n")


def test_a_process_killed_while_it_writes_leaves_a_whole_chain(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from federator.audit.file import AuditFile\n"
        "from federator.audit.chain import AuditAct\n"
        "f = AuditFile(Path(sys.argv[1]), 5000); f.open(0.0); print('go', flush=True)\n"
        "k = 0\n"
        "while True:\n"
        "    k += 1; f.append([AuditAct(at_s=1.0, act='award', on=str(k))], None)\n"
        "    print(k, flush=True)\n"
    )
    told = 0
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(20):
            said = writer.stdout.readline().strip()
        os.kill(writer.pid, signal.SIGKILL)
        said = (writer.stdout.read().split() or [said])[-1]
        told += int(said)
        writer.wait()
        writer.stdout.close()
    opened(tmp_path)
    assert told <= len([each for each in written(tmp_path) if each.act == "award"]) <= told + 3
    assert len(files_of(tmp_path)) > 1


def test_another_file_begins_when_one_is_full_and_the_chain_goes_on(tmp_path: Path) -> None:
    file = opened(tmp_path, max_bytes=500)
    for k in range(10):
        file.append([act(k)], None)
    names = [path.name for path in files_of(tmp_path)]
    assert len(names) > 3
    assert names[0] == "audit-000000000001.jsonl"
    assert written(tmp_path) == [act(k) for k in range(10)]
    assert opened(tmp_path, 500).end == file.end


@pytest.mark.parametrize("lines", [0, 1])
def test_lines_that_are_cut_off_at_the_end_are_missed(tmp_path: Path, lines: int) -> None:
    opened(tmp_path).append([act(1), act(2)], None)
    (path,) = files_of(tmp_path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))
    opened(tmp_path)
    with pytest.raises(DamagedAudit, match=f"line {lines + 1} is missing"):
        written(tmp_path)
    last = files_of(tmp_path)[-1].read_text()
    assert "audit-damaged" in last
    assert f"lines {lines + 1} to 2 are missing" in last


def test_a_damaged_audit_is_written_on_behind_the_damage(tmp_path: Path) -> None:
    opened(tmp_path).append([act(1), act(2)], None)
    (path,) = files_of(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"on":"2"', b'"on":"9"'))
    file = opened(tmp_path)
    file.append([act(3)], None)
    assert len(files_of(tmp_path)) == 2
    with pytest.raises(DamagedAudit, match="line 2 was changed"):
        written(tmp_path)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(tmp_path)
    file.append([act(1)], None)
    write = os.write

    def fails(descriptor: int, data: bytes) -> int:
        if len(data) > 100:
            write(descriptor, bytes(data)[:50])
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fails)
        with pytest.raises(AuditError, match="No space left"):
            file.append([act(2)], None)
    file.append([act(3)], None)
    assert written(tmp_path) == [act(1), act(3)]


def test_a_rotation_that_fails_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(tmp_path / "a", max_bytes=200)
    file.append([act(1)], None)
    with monkeypatch.context() as disk:
        disk.setattr(os, "open", _no_room)
        with pytest.raises(AuditError):
            file.append([act(2)], None)
    file.append([act(2)], None)
    assert written(tmp_path / "a") == [act(1), act(2)]


def test_a_file_that_was_begun_and_never_written_is_no_damage(tmp_path: Path) -> None:
    opened(tmp_path / "a").append([act(1)], None)
    (tmp_path / "a" / "audit-000000000002.jsonl").touch()
    again = opened(tmp_path / "a")
    again.append([act(2)], None)
    assert written(tmp_path / "a") == [act(1), act(2)]


def _no_room(*_: object) -> int:
    raise OSError(28, "No space left on device")
