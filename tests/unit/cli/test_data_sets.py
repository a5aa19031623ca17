"""``federator data``: what is asked of the daemon, and what is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from federator.cli import data, data_questions, data_sets
from federator.cli.data_file import size_bytes
from federator.cli.text import size_shown
from federator.errors import InvalidRequest, NotAllowed
from federator.model.dataset import (
    CopyPhase,
    DataClass,
    DataCopy,
    DataGiven,
    DataPlace,
    DataReplica,
    DataSet,
    DataSharing,
    ReplicaState,
)
from federator.model.workload import TenantName
from federator.wire.client_protocol import Call, ErrorKind, ErrorReply
from federator.wire.data_rows import DataCall, DataReply, DataSetsCall, DataSetsReply, DomainRow
from federator.wire.replies import Reply

Run = Callable[..., tuple[list[Call], str]]
IMAGENET = DataSet(
    name="imagenet",
    version="2",
    owner="ada",
    tenant=TenantName("vision"),
    size_bytes=3 * 2**39,
    replicas=(DataReplica(domain="west", path="v/i\x1b", pinned=True),),
)
WEST = DomainRow(
    name="west",
    mounts={"alpine": "/w", "birch": "/mnt/w"},
    capacity_bytes=2**42,
    sets=1,
    used_bytes=3 * 2**39,
    copying=2,
    by_tenant={"vision": 3 * 2**39},
)
DONE = DataReply(sets=(IMAGENET,))


def answer(*sets: DataSet, after: tuple[str, str] | None = None) -> DataSetsReply:
    return DataSetsReply(sets=sets, domains=(WEST,), now_s=0.0, after=after)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``federator data`` against answers, the last one again; what it asks and prints."""

    def command(replies: Reply | list[Reply], *words: str) -> tuple[list[Call], str]:
        asked: list[Call] = []
        left = replies if isinstance(replies, list) else [replies]

        def call(message: Call) -> Reply:
            asked.append(message)
            return left.pop(0) if len(left) > 1 else left[0]

        monkeypatch.setattr(data_sets, "call", call)
        monkeypatch.setattr(data_questions, "call", call)
        ended = CliRunner().invoke(data.data, [*words])
        if ended.exception is not None:
            raise ended.exception
        return asked, ended.output

    return command


def test_a_data_set_is_added_with_all_that_was_said_of_it(run: Run) -> None:
    words = "--at west:v/i --at east:/e/i --size 1.5T --files 3 --class scratch --share all"
    asked, text = run(DONE, "add", "imagenet@2", *words.split())
    given = DataGiven(
        name="imagenet",
        version="2",
        size_bytes=3 * 2**39,
        files=3,
        kind=DataClass.SCRATCH,
        sharing=DataSharing.ALL,
        at=(DataPlace(domain="west", path="v/i"), DataPlace(domain="east", path="/e/i")),
    )
    assert asked == [DataCall(verb="add", sets=(given,))]
    assert text == "imagenet@2 is in the catalogue\n"


@pytest.mark.parametrize(
    ("words", "verb"), [("pin", "pin"), ("unpin", "unpin"), ("rm", "rm")], ids=str
)
def test_replicas_are_pinned_and_taken_out_by_domain(run: Run, words: str, verb: str) -> None:
    asked, _ = run(DONE, words, "imagenet", "--at", "west")
    given = DataGiven(name="imagenet", at=(DataPlace(domain="west"),))
    assert asked == [DataCall(verb=verb, sets=(given,))]


def test_what_jobs_that_wait_name_is_taken_out_only_with_force(run: Run) -> None:
    given = DataGiven(name="imagenet")
    assert run(DONE, "rm", "imagenet", "--force")[0] == [
        DataCall(verb="rm", sets=(given,), force=True)
    ]


def test_a_refusal_has_the_exit_status_of_its_kind(run: Run) -> None:
    with pytest.raises(NotAllowed):
        run(ErrorReply(message="only its owner", kind=ErrorKind.DENIED), "rm", "imagenet")
    with pytest.raises(InvalidRequest):
        run(ErrorReply(message="in use"), "rm", "imagenet")


def test_files_are_removed_only_by_a_word_of_their_own_and_never_by_force(run: Run) -> None:
    given = DataGiven(name="imagenet", at=(DataPlace(domain="west"),))
    asked, _ = run(DONE, "rm", "imagenet", "--at", "west", "--files")
    assert asked == [DataCall(verb="retire", sets=(given,))]
    with pytest.raises(InvalidRequest, match="--force"):
        run(DONE, "rm", "imagenet", "--at", "west", "--files", "--force")


@pytest.mark.parametrize("words", [("add", "a@"), ("add", "a", "--at", "west"), ("rm", "a@")])
def test_what_names_nothing_is_refused_before_anybody_is_asked(
    run: Run, words: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        run(DONE, *words)


def test_a_list_takes_all_pages_and_is_safe_for_a_terminal(run: Run) -> None:
    other = DataSet(name="wiki", version="1", owner="eve\x1b", tenant=TenantName(""))
    pages: list[Reply] = [answer(IMAGENET, after=("imagenet", "2")), answer(other)]
    asked, text = run(pages, "list", "--tenant", "vision,nlp")
    first = DataSetsCall(tenants=("vision", "nlp"))
    assert asked == [first, DataSetsCall(tenants=("vision", "nlp"), after=("imagenet", "2"))]
    header, one, two = text.splitlines()
    assert header.split()[:2] == ["NAME", "OWNER"]
    assert one.split() == [
        "imagenet@2",
        "ada",
        "vision",
        "fresh",
        "none",
        "1.5",
        "TiB",
        "-",
        "1/1",
        "west",
    ]
    assert two.split()[:3] == ["wiki@1", "eve?", "-"]


def test_where_names_the_path_at_each_site(run: Run) -> None:
    _, text = run(answer(IMAGENET), "where", "imagenet@2")
    assert [line.split() for line in text.splitlines()[1:]] == [
        ["imagenet@2", "alpine", "west", "/w/v/i?", "ready"],
        ["imagenet@2", "birch", "west", "/mnt/w/v/i?", "ready"],
    ]
    _, text = run(answer(IMAGENET), "where", "imagenet@2", "--json")
    assert [row["site"] for row in json.loads(text)["replicas"]] == ["alpine", "birch"]


def test_show_tells_the_variable_and_what_is_pinned(run: Run) -> None:
    asked, text = run(answer(IMAGENET), "show", "imagenet")
    assert asked == [DataSetsCall(names=("imagenet",))]
    assert "in a job FED_DATASET_IMAGENET" in text
    assert "west:v/i? ready, pinned" in text


def test_a_name_that_is_not_there_is_an_error(run: Run) -> None:
    reply = DataSetsReply(sets=(), domains=(), now_s=0.0, unknown=("x",))
    with pytest.raises(InvalidRequest, match="x: no such data set, or not yours to see"):
        run(reply, "show", "x")


def test_usage_tells_how_full_a_domain_is(run: Run) -> None:
    asked, text = run(answer(), "usage")
    assert asked == [DataSetsCall(only_domains=True)]
    assert "west   4.0 TiB  1         1.5 TiB 0       2       0    37.5  alpine,birch" in text
    assert "west: vision 1.5 TiB" in text


# ---- copies ----


def with_copy(copy: DataCopy | None) -> DataSet:
    east = DataReplica(domain="east", path="v/i", state=ReplicaState.COPYING, copy=copy)
    return msgspec.structs.replace(IMAGENET, size_bytes=400, replicas=(*IMAGENET.replicas, east))


def test_a_copy_is_asked_for_and_what_is_said_is_whether_it_is_there(run: Run) -> None:
    under_way = DataReply(sets=(with_copy(DataCopy(by="ada", asked_at_s=0.0)),))
    asked, text = run(under_way, "copy", "imagenet@2", "--to", "east:copies/i")
    place = DataPlace(domain="east", path="copies/i")
    given = DataGiven(name="imagenet", version="2", at=(place,))
    assert asked == [DataCall(verb="copy", sets=(given,))]
    assert text == "imagenet@2 in east is being copied there\n"
    _, text = run(DONE, "copy", "imagenet", "--to", "west")
    assert text == "imagenet@2 in west is there already\n"


@pytest.mark.parametrize(
    ("copy", "words"),
    [
        (DataCopy(by="", asked_at_s=0.0), "copying, waits for its turn"),
        (
            DataCopy(
                by="",
                asked_at_s=0.0,
                began_at_s=-20.0,
                told_at_s=0.0,
                phase=CopyPhase.COPYING,
                copied_bytes=100,
            ),
            "copying, 25 % copied, about 60 s left",
        ),
        (
            DataCopy(by="", asked_at_s=0.0, phase=CopyPhase.CHECKING),
            "copying, its digest is computed",
        ),
        (
            DataCopy(by="", asked_at_s=0.0, phase=CopyPhase.FAILED, tries=2, detail="no room"),
            "copying, failed 2 times, is tried again: no room",
        ),
    ],
)
def test_show_tells_how_far_a_copy_is(run: Run, copy: DataCopy, words: str) -> None:
    _, text = run(answer(with_copy(copy)), "show", "imagenet")
    assert f"east:v/i {words}" in text


def test_what_is_not_whole_yet_is_not_exported(run: Run) -> None:
    _, text = run(answer(with_copy(DataCopy(by="", asked_at_s=0.0))), "export")
    assert "west" in text
    assert "east" not in text


# ---- import ----


def test_a_file_is_added_some_hundred_at_a_time(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_sets, "AT_ONCE", 2)
    file = tmp_path / "sets.yaml"
    file.write_text(
        "data_sets:\n"
        "- {name: a, version: '2', size: 1K, class: replica, at: {west: x/a}}\n"
        "- {name: b, sharing: all}\n"
        "- {name: c, owner: eve, tenant: nlp, size: 7, files: 1}\n"
    )
    asked, text = run(DONE, "import", str(file))
    calls = [call for call in asked if isinstance(call, DataCall)]
    assert [[given.name for given in call.sets] for call in calls] == [["a", "b"], ["c"]]
    first, last = calls[0].sets[0], calls[1].sets[0]
    assert (first.version, first.size_bytes, first.kind) == ("2", 1024, DataClass.REPLICA)
    assert first.at == (DataPlace(domain="west", path="x/a"),)
    assert (last.owner, last.tenant, last.size_bytes) == ("eve", "nlp", 7)
    assert "in the catalogue" in text


def test_what_is_exported_is_imported_as_it_was_the_newest_version_last(
    run: Run, tmp_path: Path
) -> None:
    odd = msgspec.structs.replace(
        IMAGENET,
        version="1",
        files=3,
        digest="sha256tree:" + "0" * 64,
        added_at_s=5.0,
        replicas=(DataReplica(domain="west", path='a: "b" \'ünï #'),),
    )
    _, text = run(answer(odd, IMAGENET), "export")
    file = tmp_path / "sets.yaml"
    file.write_text(text)
    asked, _ = run(DONE, "import", str(file))
    (call,) = asked
    assert isinstance(call, DataCall)
    newer, older = call.sets
    assert (newer.version, older.version) == ("2", "1")  # by when they were added
    assert (older.files, older.digest, older.size_bytes) == (3, odd.digest, odd.size_bytes)
    assert (older.owner, older.tenant, older.kind) == ("ada", "vision", DataClass.FRESH)
    assert older.at == (DataPlace(domain="west", path=odd.replicas[0].path),)
    _, text = run(answer(), "export")
    file.write_text(text)
    assert run(DONE, "import", str(file))[0] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("data_sets: [", "not YAML"),
        ("data_sets:\n- {name: a, path: x}\n", "unknown field `path`"),
        ("data_sets:\n- {version: 1}\n", "missing required field `name`"),
        ("data_sets:\n- {name: a, size: big}\n", "'big' is no size"),
        ("!!python/object/apply:os.system [true]", "not YAML"),
    ],
)
def test_a_file_that_is_wrong_says_where(run: Run, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "sets.yaml"
    file.write_text(text)
    with pytest.raises(InvalidRequest) as raised:
        run(DONE, "import", str(file))
    assert words in str(raised.value)
    assert str(file) in str(raised.value)


@pytest.mark.parametrize("version", ["1.10", "010", "12:30", "2024-01-02", "2", "yes", "", "[a]"])
def test_a_version_that_yaml_would_change_has_to_be_quoted(
    run: Run, tmp_path: Path, version: str
) -> None:
    file = tmp_path / "sets.yaml"
    file.write_text(f"data_sets:\n- name: a\n  version: {version}\n")
    with pytest.raises(InvalidRequest, match=r"a: YAML takes its version for .* quote it"):
        run(DONE, "import", str(file))
    file.write_text(f"data_sets:\n- name: a\n  version: '{version}'\n")
    asked, _ = run(DONE, "import", str(file))
    (call,) = asked
    assert isinstance(call, DataCall)
    assert call.sets[0].version == version


def test_sizes_are_read_and_shown_in_powers_of_1024() -> None:
    sizes = {"0": 0, "7": 7, "1K": 1024, "1.5GiB": 3 * 2**29, "2 TB": 2**41}
    assert {text: size_bytes(text) for text in sizes} == sizes
    assert [size_shown(n) for n in (0, 512, 2**20, 2**61)] == [
        "-",
        "512 B",
        "1.0 MiB",
        "2048.0 PiB",
    ]
    for wrong in ("", "-1", "1X", "1e9", "\uff11"):
        with pytest.raises(InvalidRequest):
            size_bytes(wrong)
