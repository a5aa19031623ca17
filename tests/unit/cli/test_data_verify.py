"""``federator data verify``: what is read, what the catalogue is told, and the digest itself."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from federator.cli import data, data_questions, data_sets, data_verify
from federator.cli.data_digest import tree_digest
from federator.errors import InvalidRequest
from federator.model.dataset import DataClass, DataReplica, DataSet
from federator.model.workload import TenantName
from federator.wire.client_protocol import Call
from federator.wire.data_rows import DataCall, DataReply, DataSetsCall, DataSetsReply, DomainRow
from federator.wire.replies import Reply

Run = Callable[..., tuple[list[DataCall], str, int]]

# As docs/data.md says that anybody may compute it.
RECIPE = r"""cd "$1" && find . -type f -printf '%P\0' | LC_ALL=C sort -z |
while IFS= read -r -d '' f; do
  printf '%s %s %s\0' "$(sha256sum <"$f" | cut -d' ' -f1)" "$(stat -c%s -- "$f")" "$f"
done | sha256sum | cut -d' ' -f1"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Names whose order by parts is not their order as bytes, and one that is not UTF-8."""
    root = tmp_path / "w" / "set"
    for name in ("a/b", "a-b", "a.c/x", "B", "d/e/f", "line\nbreak", os.fsdecode(b"\xff")):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(name) * 3)
    (root / "empty").mkdir()
    return root


# ---- the digest ----


def test_the_digest_is_the_one_of_the_recipe(tree: Path) -> None:
    recipe = subprocess.run(
        ["bash", "-c", RECIPE, "bash", tree], capture_output=True, text=True, check=True
    ).stdout.strip()
    for threads in (1, 3):
        found = tree_digest(os.fsencode(tree), threads)
        assert found.digest == f"sha256tree:{recipe}"
    assert found.files == 7
    assert found.size_bytes == sum(p.stat().st_size for p in tree.rglob("*") if p.is_file())


def test_a_data_set_may_be_one_file_or_empty(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x")
    line = f"{hashlib.sha256(b'x').hexdigest()} 1 \0".encode()
    found = tree_digest(os.fsencode(tmp_path / "one"))
    assert found.digest == f"sha256tree:{hashlib.sha256(line).hexdigest()}"
    (tmp_path / "none").mkdir()
    assert tree_digest(os.fsencode(tmp_path / "none"))[1:] == (0, 0)


def test_every_change_of_a_tree_is_another_digest(tree: Path) -> None:
    seen = [tree_digest(os.fsencode(tree)).digest]
    (tree / "B").write_bytes(b"BBC")
    seen.append(tree_digest(os.fsencode(tree)).digest)
    (tree / "B").rename(tree / "b")
    seen.append(tree_digest(os.fsencode(tree)).digest)
    (tree / "d" / "e" / "f").unlink()
    seen.append(tree_digest(os.fsencode(tree)).digest)
    (tree / "new").touch()
    seen.append(tree_digest(os.fsencode(tree)).digest)
    assert len(set(seen)) == 5


def test_links_and_what_is_no_file_are_refused_by_name(tree: Path) -> None:
    (tree / "a" / "link").symlink_to("b")
    with pytest.raises(InvalidRequest, match=r"a/link is a link"):
        tree_digest(os.fsencode(tree))
    (tree / "a" / "link").unlink()
    os.mkfifo(tree / "pipe")
    with pytest.raises(InvalidRequest, match="neither a file nor a folder"):
        tree_digest(os.fsencode(tree))


def test_a_file_that_changes_while_it_is_read_is_no_data(tree: Path) -> None:
    def grow(_bytes: int) -> None:
        with (tree / "B").open("ab") as file:
            file.write(b"x")

    with pytest.raises(InvalidRequest, match="has changed while it was read"):
        tree_digest(os.fsencode(tree), 1, grow)


# ---- the command ----


def data_set(*domains: str, digest: str = "", kind: DataClass = DataClass.FRESH) -> DataSet:
    replicas = tuple(DataReplica(domain=domain, path="set") for domain in domains)
    return DataSet(
        name="wiki",
        version="1",
        owner="ada",
        tenant=TenantName("lab"),
        digest=digest,
        kind=kind,
        replicas=replicas,
    )


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Verify at alpine, which mounts west and disk; the catalogue takes what it is told."""

    def command(of: DataSet, *words: str, site: str = "alpine") -> tuple[list[DataCall], str, int]:
        changes: list[DataCall] = []
        domains = tuple(
            DomainRow(name=name, mounts={at: str(tmp_path / folder)})
            for name, at, folder in (
                ("west", "alpine", "w"),
                ("disk", "alpine", "d"),
                ("bare", "alpine", "b"),
                ("east", "cedar", "e"),
            )
        )

        def call(message: Call) -> Reply:
            nonlocal of
            if isinstance(message, DataSetsCall):
                return DataSetsReply(sets=(of,), domains=domains, now_s=0.0, site=site)
            assert isinstance(message, DataCall)
            changes.append(message)
            of = msgspec.structs.replace(of, digest=message.sets[0].digest or of.digest)
            return DataReply(sets=(of,))

        for module in (data_sets, data_questions):
            monkeypatch.setattr(module, "call", call)
        ended = CliRunner().invoke(data.data, ["verify", "wiki", *words])
        if ended.exception is not None and not isinstance(ended.exception, SystemExit):
            raise ended.exception
        return changes, ended.output, ended.exit_code

    return command


def test_a_replica_that_is_read_is_sealed_with_what_it_holds(run: Run, tree: Path) -> None:
    changes, text, status = run(data_set("west", "east"))
    found = tree_digest(os.fsencode(tree))
    (change,) = changes  # the other one is not mounted here
    (given,) = change.sets
    assert (change.verb, status) == ("seal", 0)
    assert (given.digest, given.files, given.size_bytes) == found
    assert [place.domain for place in given.at] == ["west"]
    assert f"wiki@1 in west is sealed: 7 files, {found.size_bytes} B, {found.digest}" in text


def test_a_replica_that_has_not_the_digest_of_the_catalogue_is_lost(
    run: Run, tree: Path, tmp_path: Path
) -> None:
    (tmp_path / "d" / "set").mkdir(parents=True)
    (tmp_path / "d" / "set" / "B").write_text("other")
    known = tree_digest(os.fsencode(tree)).digest
    changes, text, status = run(data_set("west", "disk", digest=known))
    assert [(c.verb, c.sets[0].at[0].domain) for c in changes] == [
        ("seal", "west"),
        ("lose", "disk"),
    ]
    assert status == 1
    assert "wiki@1 in disk is lost: its digest is sha256tree:" in text


def test_of_copies_that_differ_none_is_lost_while_no_digest_is_known(
    run: Run, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d" / "set").mkdir(parents=True)
    (tmp_path / "d" / "set" / "B").write_text("other")
    told: list[DataCall] = []
    monkeypatch.setattr(data_verify, "ask_to_change", told.append)
    with pytest.raises(InvalidRequest, match="the copies of wiki@1 differ") as raised:
        run(data_set("west", "disk"))
    for folder in (tree, tmp_path / "d" / "set"):
        assert tree_digest(os.fsencode(folder)).digest in str(raised.value)
    assert not told


def test_copies_that_agree_give_the_digest_and_one_that_is_gone_is_lost(
    run: Run, tree: Path, tmp_path: Path
) -> None:
    (tmp_path / "d" / "another").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    shutil.copytree(tree, tmp_path / "b" / "set")
    changes, _, status = run(data_set("west", "disk", "bare"))
    assert [(c.verb, c.sets[0].at[0].domain) for c in changes] == [
        ("seal", "west"),
        ("lose", "disk"),
        ("seal", "bare"),
    ]
    assert status == 1


@pytest.mark.usefixtures("tree")
def test_nothing_is_told_while_one_of_the_copies_cannot_be_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[DataCall] = []
    monkeypatch.setattr(data_verify, "ask_to_change", told.append)
    with pytest.raises(InvalidRequest, match="disk: its storage domain is not mounted"):
        run(data_set("west", "disk"))
    assert not told


def test_a_replica_that_is_gone_is_lost(run: Run, tmp_path: Path) -> None:
    (tmp_path / "w" / "another").mkdir(parents=True)
    changes, text, status = run(data_set("west"), "--json")
    assert [change.verb for change in changes] == ["lose"]
    (row,) = json.loads(text)["replicas"]
    assert (row["sound"], row["detail"], status) == (False, "it does not exist", 1)


@pytest.mark.usefixtures("tree")
def test_what_cannot_be_told_is_an_error_and_changes_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for of, words, site, message in (
        (data_set("east"), (), "alpine", "no replica in a storage domain that alpine mounts"),
        (data_set("disk"), (), "alpine", "its storage domain is not mounted"),
        (data_set("bare"), (), "alpine", "as if it were not mounted"),
        (data_set("west"), (), "", "run it at a site, or say --site"),
        (data_set("west", kind=DataClass.SCRATCH), (), "alpine", "it has no seal"),
        (data_set("west", digest="md5:" + "0" * 32), (), "alpine", "has a digest of md5"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            run(of, *words, site=site)
    (tmp_path / "w" / "set" / "B").unlink()
    (tmp_path / "w" / "set" / "B").symlink_to("a")
    with pytest.raises(InvalidRequest, match="is a link"):
        run(data_set("west"))
