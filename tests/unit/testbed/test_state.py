"""What the testbed keeps is kept: keys and ports stay the same from one up to the next."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
import yaml

from federator.errors import ConfigError
from federator.testbed import layout, user_folders
from federator.testbed import state as state_dir
from federator.testbed.layout import SITES, StateDir


@pytest.fixture
def state(tmp_path: Path) -> StateDir:
    made = StateDir(root=tmp_path / "testbed")
    with state_dir.locked(made):
        state_dir.prepare(made)
    return made


def test_private_keys_are_for_their_owner_only(state: StateDir) -> None:
    for site in SITES:
        for key in (state.client_key(site.name), state.host_key(site.name)):
            assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_keys_survive_a_second_preparation(state: StateDir) -> None:
    before = state_dir.site_keys(state, SITES[0])
    state_dir.prepare(state)
    assert state_dir.site_keys(state, SITES[0]) == before


def test_every_user_may_make_folders_in_the_shared_ones(state: StateDir) -> None:
    assert stat.S_IMODE(state.shared("west").stat().st_mode) == 0o1777
    assert (state.shared("east") / "nlp1").is_dir()


def test_a_users_folder_lets_in_their_uids_of_all_sites_of_the_region_and_nobody_else(
    tmp_path: Path,
) -> None:
    uids = user_folders.uids_of("vision1", "west")
    assert {2001, 3009} <= set(uids)
    assert not {4002} & set(uids)
    try:
        os.setxattr(tmp_path, "system.posix_acl_access", user_folders.acl_of(uids))
    except OSError as error:
        pytest.skip(f"no access control lists here: {error}")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o770


def test_ports_are_distinct_and_kept(state: StateDir) -> None:
    state_dir.settle_ports(state, [])
    ports = state_dir.site_ports(state)
    state_dir.settle_ports(state, [])
    assert state_dir.site_ports(state) == ports
    assert len(set(ports.values())) == len(SITES)


def test_a_port_taken_meanwhile_is_replaced_unless_the_site_holds_it(state: StateDir) -> None:
    state_dir.settle_ports(state, [])
    before = state_dir.site_ports(state)
    with socket.socket() as taker:
        taker.bind(("127.0.0.1", before["alpine"]))
        state_dir.settle_ports(state, ["alpine"])
        assert state_dir.site_ports(state) == before
        state_dir.settle_ports(state, [])
    after = state_dir.site_ports(state)
    assert after["alpine"] not in before.values()
    assert after["boreal"] == before["boreal"]


def test_federation_file_and_known_hosts_name_the_same_ports(state: StateDir) -> None:
    state_dir.settle_ports(state, [])
    state_dir.write_federation(state, SITES)
    document = yaml.safe_load(state.federation.read_text())
    pinned = {line.split()[0] for line in state.known_hosts.read_text().splitlines()}
    assert pinned == {f"[127.0.0.1]:{s['ssh']['port']}" for s in document["sites"].values()}


def test_taking_down_keeps_keys_and_log_but_not_the_store(state: StateDir) -> None:
    for name in ("queue.db", "queue.db-wal", "daemon.sock", "daemon.log"):
        (state.root / name).touch()
    state_dir.remove_daemon_files(state)
    left = set(os.listdir(state.root))
    assert {"keys", "shared", "daemon.log"} <= left
    assert not left & {"queue.db", "queue.db-wal", "daemon.sock"}


def test_a_folder_that_is_no_testbed_state_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="does not look like"):
        state_dir.remove_all(StateDir(root=tmp_path))
    assert (tmp_path / "thesis.tex").exists()


def test_the_state_directory_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDERATOR_TESTBED_DIR", str(tmp_path))
    assert StateDir.default().root == tmp_path
    monkeypatch.delenv("FEDERATOR_TESTBED_DIR")
    assert StateDir.default().root == layout.REPOSITORY / ".testbed"


def test_an_unknown_site_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no site 'denali'.*alpine, boreal, cedar"):
        layout.site("denali")
