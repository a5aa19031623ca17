"""A result is written in full or not at all, and never over what was read."""

from __future__ import annotations

from pathlib import Path

import pytest

from federator.cli.out_file import out_file, spare_inputs
from federator.errors import InvalidRequest


def test_an_old_file_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "J.csv"
    path.write_text("old")

    def fail_halfway() -> None:
        with out_file(path, "--out") as file:
            assert file is not None
            file.write("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail_halfway()
    assert path.read_text() == "old"
    with out_file(path, "--out", binary=True) as file:
        assert file is not None
        file.write(b"new")
        assert path.read_text() == "old"
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("J.csv", "new")]


def test_a_link_is_replaced_and_a_device_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "kept")
    with out_file(link, "--out") as file:
        assert file is not None
        file.write("new")
    assert (link.read_text(), (tmp_path / "kept").read_text()) == ("new", "kept")
    with out_file(Path("/dev/null"), "--out") as file:
        assert file is not None
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["none/J", "x" * 300, ".", "a\0b"])
def test_a_name_that_cannot_be_written_is_found_before_the_work(tmp_path: Path, name: str) -> None:
    with (
        pytest.raises(InvalidRequest, match=r"^--out: .*cannot be written"),
        out_file(tmp_path / name, "--out"),
    ):
        pytest.fail("the work began")


def test_what_is_read_is_spared_and_an_input_that_is_missing_is_not_the_same(
    tmp_path: Path,
) -> None:
    path = tmp_path / "J"
    path.write_text("x")
    spare_inputs("--out", path, tmp_path / "missing", tmp_path / ("x" * 300))
    with pytest.raises(InvalidRequest, match="is the input"):
        spare_inputs("--out", path, path)
    with pytest.raises(InvalidRequest, match="cannot be written"):
        spare_inputs("--out", tmp_path / ("x" * 300), path)
