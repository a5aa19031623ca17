"""Storage domains in federation.yaml: what the core knows of them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from federator.config import load_config
from federator.config_storage import DataConfig
from federator.errors import ConfigError
from federator.model.data_placement import DataPlanning
from tests.unit.test_config import GOOD, load, write


def storage(text: str) -> str:
    return f"{GOOD}storage:\n{text}"


def test_a_domain_is_known_with_its_path_at_each_site(tmp_path: Path) -> None:
    text = "  flash: {capacity_tib: 1.5, mounts: {alpine: /lustre/fed/, baker: /mnt/w}}\n"
    config = load_config(write(tmp_path, storage(text)))
    flash = config.rules.storage["flash"]
    assert flash.capacity_bytes == 3 * 2**39
    assert flash.mounts == {"alpine": "/lustre/fed", "baker": "/mnt/w"}


def test_a_federation_without_storage_has_none(tmp_path: Path) -> None:
    assert not load(tmp_path).rules.storage


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("  flash: {mounts: {birch: /w}}\n", "storage.flash.mounts.birch: unknown site 'birch'"),
        ("  flash: {mounts: {}}\n", "storage.flash: expected either mounts or rclone"),
        ("  flash: {mounts: {alpine: /w}, rclone: 's3:x'}\n", "expected either mounts or rclone"),
        ("  flash: {rclone: ':local:/etc'}\n", "expected REMOTE:BUCKET/PATH of an rclone remote"),
        ("  flash: {rclone: 's3:a b'}\n", "expected REMOTE:BUCKET/PATH of an rclone remote"),
        ("  flash: {rclone: 's3:a/../b'}\n", "expected a path without . and .."),
        ("  flash: {mounts: {alpine: w}}\n", "expected an absolute path"),
        ("  flash: {mounts: {alpine: /}}\n", "expected a path below /"),
        ("  flash: {mounts: {alpine: /w/../x}}\n", "without empty parts, . and .."),
        ("  flash: {mounts: {alpine: //w}}\n", "without empty parts, . and .."),
        ('  flash: {mounts: {alpine: "/w\\n"}}\n', "without control characters"),
        ("  flash: {mounts: {alpine: /w}, capacity_tib: -1}\n", "storage.flash.capacity_tib"),
        (
            "  flash: {mounts: {alpine: /w}}\n  disk: {mounts: {alpine: /w/}}\n",
            "storage.disk.mounts.alpine: /w is storage domain flash at this site",
        ),
        ("  '../x': {mounts: {alpine: /w}}\n", "expected a name"),
    ],
)
def test_a_mistake_is_named_by_its_key(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(write(tmp_path, storage(text)))
    assert words in str(raised.value)


def test_an_object_store_is_a_domain_that_no_site_mounts(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, storage("  archive: {rclone: 's3:fed/sets'}\n")))
    archive = config.rules.storage["archive"]
    assert (archive.rclone, dict(archive.mounts)) == ("s3:fed/sets", {})


def test_off_needs_no_quotes_although_yaml_reads_it_as_false() -> None:
    found = DataConfig.model_validate({"stage": False, "checkpoints": False, "planning": False})
    assert (found.stage, found.checkpoints, found.planning) == ("off", "off", DataPlanning.OFF)
