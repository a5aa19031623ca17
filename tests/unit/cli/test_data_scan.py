"""``federator data scan``: what is found, what is left out, and that nothing is changed unasked."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from federator.cli import data, data_questions, data_sets
from federator.cli.data_file import read_data_file
from federator.cli.text import my_name
from federator.errors import InvalidRequest
from federator.model.dataset import DataPlace, DataReplica, DataSet, DataSharing
from federator.model.workload import TenantName
from federator.wire.client_protocol import Call
from federator.wire.data_rows import DataCall, DataReply, DataSetsCall, DataSetsReply, DomainRow
from federator.wire.replies import Reply

Run = Callable[..., tuple[list[DataCall], str, str]]
KNOWN = DataSet(
    name="old",
    version="3",
    owner="ada",
    tenant=TenantName("lab"),
    replicas=(DataReplica(domain="west", path="vision/known"),),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A part of domain west with all kinds of things in it."""
    here = tmp_path / "w" / "vision"
    (here / "imagenet" / "train").mkdir(parents=True)
    (here / "imagenet" / "a").write_bytes(b"123")
    (here / "imagenet" / "train" / "b").write_bytes(b"45")
    (here / "imagenet" / "link").symlink_to("/etc")
    (here / "known").mkdir()
    (here / "one.tar").write_bytes(b"6")
    (here / ".hidden").mkdir()
    (here / "with space").mkdir()
    (here / "out").symlink_to("/etc")
    os.mkfifo(here / "pipe")
    return here


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Scan at alpine, which mounts west; what the catalogue is told, stdout and stderr."""

    def command(*words: str, site: str = "alpine") -> tuple[list[DataCall], str, str]:
        changes: list[DataCall] = []
        west = DomainRow(name="west", mounts={"alpine": str(tmp_path / "w")})

        def call(message: Call) -> Reply:
            if isinstance(message, DataSetsCall):
                sets = () if message.only_domains else (KNOWN,)
                return DataSetsReply(sets=sets, domains=(west,), now_s=0.0, site=site)
            assert isinstance(message, DataCall)
            changes.append(message)
            return DataReply(sets=())

        for module in (data_sets, data_questions):
            monkeypatch.setattr(module, "call", call)
        ended = CliRunner().invoke(data.data, ["scan", *words])
        if ended.exception is not None:
            raise ended.exception
        return changes, ended.stdout, ended.stderr

    return command


def test_what_is_found_is_printed_as_a_file_to_import_and_nothing_is_changed(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    changes, text, left_out = run(str(folder))
    assert changes == []
    (tmp_path / "sets.yaml").write_text(text)
    given = read_data_file(tmp_path / "sets.yaml")
    assert [(g.name, g.owner, g.files, g.size_bytes, g.at) for g in given] == [
        ("vision/imagenet", my_name(), 2, 5, (DataPlace(domain="west", path="vision/imagenet"),)),
        ("vision/one.tar", my_name(), 1, 1, (DataPlace(domain="west", path="vision/one.tar"),)),
    ]
    assert left_out.splitlines() == [
        "vision/.hidden: left out: its name is none of a data set",
        "vision/known: left out: it is old@3",
        "vision/out: left out: it is neither a folder nor a file",
        "vision/pipe: left out: it is neither a folder nor a file",
        "vision/with space: left out: its name is none of a data set",
    ]


def test_it_is_added_when_that_is_asked_for(run: Run, folder: Path) -> None:
    changes, text, _ = run(str(folder), "--prefix", "v", "--share", "tenant", "--add")
    (change,) = changes
    assert change.verb == "add"
    assert [(g.name, g.sharing) for g in change.sets] == [
        ("v/imagenet", DataSharing.TENANT),
        ("v/one.tar", DataSharing.TENANT),
    ]
    assert text == "2 data sets added\n"


def test_what_is_another_users_is_left_out(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12_345)
    _, text, left_out = run(str(folder))
    assert text == "data_sets: []\n"
    assert "vision/imagenet: left out: it is another user's" in left_out


def test_a_folder_outside_or_behind_a_link_is_refused(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "w" / "elsewhere").symlink_to(folder)
    for where, site, words in (
        (tmp_path, "alpine", "is in no storage domain that alpine mounts"),
        (folder, "cedar", "is in no storage domain that cedar mounts"),
        (tmp_path / "w" / "elsewhere", "alpine", "leads through a link"),
        (tmp_path / "w" / "none", "alpine", "does not exist"),
        (folder, "", "run it at a site, or say --site"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            run(str(where), site=site)
