"""Every mistake in federation.yaml is named by file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from federator.config import FederationConfig, load_config
from federator.errors import ConfigError
from federator.model.workload import SiteName, TenantName

GOOD = """\
federation: demo
store: sqlite:///var/lib/federator/queue.db
policy:
  name: fifo
  launch_lease_s: 30
regions:
  west: {shared: /shared/west}
gpus:
  a100: {mem_gib: 80, nvlink: true}
sites:
  alpine:
    region: west
    partitions: [gpu, cpu]
    ssh: {host: alpine, key: keys/alpine, known_hosts: keys/known_hosts}
  baker:
    region: west
    partitions: [gpu]
    command: [federator, agent]
tenants:
  vision: {priority: 2, users: [ada, bob]}
  nlp: {users: [ada]}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "federation.yaml"
    path.write_text(text)
    return path


def load(folder: Path, old: str = "", new: str = "") -> FederationConfig:
    assert old in GOOD
    return load_config(write(folder, GOOD.replace(old, new, 1) if old else GOOD))


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert list(config.sites) == ["alpine", "baker"]
    assert config.policy.launch_lease_s == 30.0
    assert config.tenants[TenantName("nlp")].priority == 7


def test_key_files_are_taken_from_the_files_folder(tmp_path: Path) -> None:
    ssh = load(tmp_path).sites[SiteName("alpine")].ssh
    assert ssh is not None
    assert (ssh.key, ssh.known_hosts) == (tmp_path / "keys/alpine", tmp_path / "keys/known_hosts")


def test_a_users_first_tenant_is_the_default(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert config.tenants_of("ada") == ["vision", "nlp"]
    assert config.tenants_of("bob") == ["vision"]
    assert config.tenants_of("eve") == []


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "words"),
    [
        ("federation: demo", "federation: my demo", 1, "federation", "pattern"),
        ("federation: demo\n", "", 1, "federation", "required"),
        ("store: sqlite:///var/lib/federator/queue.db", "store: mysql://db", 2, "store", "mysql"),
        ("  name: fifo", "  name: lifo", 4, "policy.name", "lifo"),
        ("launch_lease_s: 30", "launch_lease_s: soon", 5, "policy.launch_lease_s", "soon"),
        ("launch_lease_s: 30", "launch_lease_s: 0", 5, "policy.launch_lease_s", "greater than 0"),
        ("launch_lease_s: 30", "lunch_lease_s: 30", 5, "policy.lunch_lease_s", "not permitted"),
        ("shared: /shared/west", "shared: 7", 7, "regions.west.shared", "path"),
        ("mem_gib: 80", "mem_gib: big", 9, "gpus.a100.mem_gib", "big"),
        ("    region: west", "    region: north", 12, "sites.alpine.region", "west"),
        ("    region: west\n", "", 11, "sites.alpine.region", "required"),
        ("partitions: [gpu, cpu]", "partitions: []", 13, "sites.alpine.partitions", "at least 1"),
        ("partitions: [gpu, cpu]", "partitions: gpu", 13, "sites.alpine.partitions", "'gpu'"),
        ("[gpu, cpu]", "[gpu, 7]", 13, "sites.alpine.partitions.1", "7"),
        ("ssh: {host: alpine,", "ssh: {host: alpine, port: 99999,", 14, "sites.alpine.ssh.port",
         "65536"),
        ("    command: [federator, agent]\n", "", 15, "sites.baker", "exactly one of"),
        ("priority: 2", "priority: 8", 20, "tenants.vision.priority", "7"),
        ("users: [ada, bob]", "users: {ada: 1}", 20, "tenants.vision.users", "valid"),
        ("tenants:", "tenant:", 19, "tenant", "not permitted"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_by_file_line_and_key(
    tmp_path: Path, old: str, new: str, line: int, key: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, old, new)
    first = str(caught.value).splitlines()[0]
    assert first.startswith(f"{tmp_path / 'federation.yaml'}:{line}: {key}: "), first
    assert words in first


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, GOOD.replace("name: fifo", "nome: fifo").replace("80", "-1")))
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("sites", ["sites: {}", "sites: []", "sites:", ""])
def test_a_federation_without_sites_is_refused(tmp_path: Path, sites: str) -> None:
    with pytest.raises(ConfigError, match=r"federation\.yaml:\d+: sites: "):
        load_config(write(tmp_path, f"federation: demo\nstore: 'memory:'\n{sites}\n"))


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words\n"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"federation\.yaml:1: .*mapping"):
        load_config(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("federation: demo\nsites: [unclosed\n", 3),
        ("federation: demo\nstore: {a: b\n", 3),
        ("federation: demo\n\tstore: x\n", 2),
        ("federation: demo\nstore: !!python/object:os.system x\n", 2),
        ("federation: demo\nstore: 2024-13-45\n", 2),
        ("federation: demo\nsites: &a [*a]\nstore: *b\n", 3),
    ],
)
def test_what_is_not_yaml_is_named_by_its_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(ConfigError, match=rf"federation\.yaml:{line}: "):
        load_config(write(tmp_path, text))


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"federation\.yaml:15: .*alpine"):
        load(tmp_path, "  baker:", "  alpine:")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_config(tmp_path / "none.yaml")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "federation.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"federation\.yaml: cannot be read"):
        load_config(path)
