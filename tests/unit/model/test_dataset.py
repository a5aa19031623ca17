"""Names, versions, digests and paths of data sets: what may be, and what is refused."""

from __future__ import annotations

import pytest

from federator.model.data_use import DataPath, DataWish, is_data_name, is_data_version, variable_of
from federator.model.dataset import StorageDomain, below_root, is_digest, path_mistake
from federator.model.workload import SiteName

WEST = StorageDomain(
    mounts={SiteName("alpine"): "/lustre/fed", SiteName("birch"): "/lustre/fed/inner"}
)


@pytest.mark.parametrize("name", ["a", "imagenet/v2", "wiki.en", "0", "a" * 128])
def test_a_name_is_words_with_slashes_between(name: str) -> None:
    assert is_data_name(name)


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "../a", "a/../b", ".a", "a\n", "ä", "a b", "a" * 129]
)
def test_a_name_leads_nowhere_and_holds_nothing_that_a_shell_or_terminal_reads(name: str) -> None:
    assert not is_data_name(name)


def test_a_version_is_one_word() -> None:
    assert is_data_version("2026-01.b")
    assert not any(map(is_data_version, ("", "a/b", "..", "-1", "1\n", "v" * 65)))


def test_a_digest_names_its_algorithm() -> None:
    assert is_digest("sha256:" + "0f" * 32)
    assert not any(map(is_digest, ("", "0f" * 32, "sha256:", "sha256:xyz", "sha256:" + "0f" * 65)))


@pytest.mark.parametrize("path", ["a", "vision/imagenet-2", "with space", "ünï"])
def test_a_path_may_be_anything_below_the_root(path: str) -> None:
    assert path_mistake(path) == ""


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/a",
        "..",
        "a/..",
        "../a",
        "a/../b",
        "a//b",
        "a/",
        "./a",
        "a\nb",
        "a\0",
        "a\x1b[1m",
        "\udcff",
        "a" * 1025,
    ],
)
def test_a_path_that_leads_out_or_holds_control_characters_is_refused(path: str) -> None:
    assert path_mistake(path)


def test_a_path_as_a_site_sees_it_becomes_one_below_the_root() -> None:
    assert below_root("/lustre/fed/a/b", WEST) == "a/b"
    assert below_root("/lustre/fed/inner/a/", WEST) == "a"  # the longest root counts
    assert below_root("a/b", WEST) == "a/b"
    assert path_mistake(below_root("/lustre/federal/a", WEST))  # no root: it stays, and is refused
    assert path_mistake(below_root("/lustre/fed/../../etc", WEST))


def test_what_a_user_names_has_a_version_and_a_mode() -> None:
    assert DataWish.of("a/b") == ("a/b", "", False)
    assert DataWish.of("a/b@2:rw") == ("a/b", "2", True)
    assert DataWish.of("a@2:ro") == ("a", "2", False)
    assert DataWish.of("a:ro") == ("a", "", False)


def test_the_variable_of_a_data_set_is_one_that_shells_know() -> None:
    assert variable_of("imagenet/v2.1-x") == "FED_DATASET_IMAGENET_V2_1_X"
    path = DataPath(name="a", version="1", domain="d", root="/r/", path="x/y")
    assert (path.variable, path.absolute) == ("FED_DATASET_A", "/r/x/y")
