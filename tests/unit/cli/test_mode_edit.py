"""The mode of a site is written into a federation.yaml, and nothing else of it changes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from federator.cli.mode_edit import replace_text, with_mode
from federator.errors import InvalidRequest
from federator.model.site_mode import SiteMode

FLOW = """\
# ours
sites:
  alpine: {region: west, mode: shadow, partitions: [gpu]}  # the first
  birch: {region: west, partitions: [gpu]}
"""
BLOCK = """\
sites:
  alpine:
    # since the spring
    region: west
    mode: "shadow"   # not for long
    partitions: [gpu]
  birch:
    region: west
"""


@pytest.mark.parametrize(
    ("text", "site", "old", "new"),
    [
        (FLOW, "alpine", "mode: shadow", "mode: opt-in"),
        (FLOW, "birch", "birch: {region", "birch: {mode: opt-in, region"),
        (BLOCK, "alpine", 'mode: "shadow"', "mode: opt-in"),
        (BLOCK, "birch", "  birch:\n", "  birch:\n    mode: opt-in\n"),
    ],
)
def test_comments_and_all_else_stay(text: str, site: str, old: str, new: str) -> None:
    assert with_mode(text, site, SiteMode.OPT_IN) == text.replace(old, new)


def test_the_mode_of_a_tenant_is_written_likewise() -> None:
    text = "sites:\n  bio: {region: west}\ntenants:\n  bio: {quota: {gpus: 8}}  # ours\n"
    expected = text.replace("bio: {quota", "bio: {mode: shadow, quota")
    assert with_mode(text, "bio", SiteMode.SHADOW, "tenants") == expected
    with pytest.raises(InvalidRequest, match=r"write tenants\.bio\.mode: shadow by hand"):
        with_mode("sites: {}\ntenants:\n  bio:\n", "bio", SiteMode.SHADOW, "tenants")


def test_what_is_shared_by_two_sites_is_to_be_changed_by_hand() -> None:
    text = "sites:\n  alpine: &one {region: west}\n  birch: *one\n"
    said = "write sites.birch.mode: shadow by hand, then: federator reload"
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        with_mode(text, "birch", SiteMode.SHADOW)


def test_a_file_is_replaced_with_its_rights_and_a_link_stays_one(tmp_path: Path) -> None:
    there = tmp_path / "there.yaml"
    there.write_text("a")
    there.chmod(0o640)
    link = tmp_path / "federation.yaml"
    link.symlink_to(there)
    replace_text(link, "b")
    assert (there.read_text(), there.stat().st_mode & 0o777, link.is_symlink()) == (
        "b",
        0o640,
        True,
    )
    assert sorted(os.listdir(tmp_path)) == ["federation.yaml", "there.yaml"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"none\.yaml: cannot be written: No such file"):
        replace_text(tmp_path / "none.yaml", "b")
