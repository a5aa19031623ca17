"""Equal files give equal archives, whoever packs them and when."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from federator.testbed.archive import (
    ArchivedFile,
    digest,
    installed_libraries,
    pack,
    python_sources,
)


def test_archive_does_not_depend_on_the_order_of_entries() -> None:
    one, two = ArchivedFile(path="b/c", data=b"1"), ArchivedFile(path="a", data=b"2", mode=0o755)
    assert pack([one, two]) == pack([two, one])


def test_archive_holds_parents_root_owned_and_modes() -> None:
    with tarfile.open(
        fileobj=io.BytesIO(pack([ArchivedFile(path="a/b/c", data=b"x", mode=0o600)]))
    ) as tar:
        members = {member.name: (member.isdir(), member.uid, member.mode) for member in tar}
    assert members == {
        "a": (True, 0, 0o755),
        "a/b": (True, 0, 0o755),
        "a/b/c": (False, 0, 0o600),
    }


def test_digest_tells_where_parts_meet() -> None:
    assert digest(b"ab", b"c") != digest(b"a", b"bc")


def test_only_sources_are_taken(tmp_path: Path) -> None:
    (tmp_path / "__pycache__").mkdir()
    for name in ("a.py", "b.sh", "c.txt", "__pycache__/a.cpython-311.pyc"):
        (tmp_path / name).write_bytes(b"")
    assert [entry.path for entry in python_sources(tmp_path, "p")] == ["p/a.py", "p/b.sh"]


def test_what_pip_notes_about_this_machine_is_left_out(tmp_path: Path) -> None:
    for name in ("bin/clush", "share/man", "x/__init__.py", "x-1.dist-info/RECORD"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    assert [entry.path for entry in installed_libraries(tmp_path, "lib")] == ["lib/x/__init__.py"]
