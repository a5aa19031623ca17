"""State that outlives the containers: SSH keys, ports, shared folders, and federation.yaml.

Everything is made on first use and then kept, so a site that is rebuilt has the same key and the
same port as before.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import socket
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from federator.errors import ConfigError
from federator.testbed import render
from federator.testbed.layout import SITES, TENANTS, SiteLayout, StateDir

# Below the kernel's range for outgoing connections, which could otherwise take a port while its
# container is down.
_FIRST_PORT: Final = 20_000
_PORTS: Final = 10_000
_DAEMON_FILES: Final = ("queue.db*", "daemon.sock", "daemon.pid")


@contextmanager
def locked(state: StateDir) -> Iterator[None]:
    """Hold the state directory for this process; a second one waits."""
    state.root.mkdir(parents=True, exist_ok=True)
    with (state.root / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def prepare(state: StateDir) -> None:
    """Make the folders, keys and ports that are not there yet."""
    state.keys.mkdir(mode=0o700, exist_ok=True)
    state.libraries.mkdir(parents=True, exist_ok=True)
    for region in {site.region for site in SITES}:
        _make_open_dir(state.shared(region), 0o1777)
        for user in users_of_tenants():
            (state.shared(region) / user).mkdir(exist_ok=True)  # ``user_folders`` sees to it
    for site in SITES:
        _ensure_key(state.client_key(site.name), f"federator@testbed to {site.name}")
        _ensure_key(state.host_key(site.name), f"host {site.name}")
    for user in users_of_tenants():
        _ensure_key(state.user_key(user), f"{user} at every site")


def users_of_tenants() -> tuple[str, ...]:
    """Everybody who may use the federation."""
    return tuple(user for tenant in TENANTS for user in tenant.users)


def site_keys(state: StateDir, site: SiteLayout) -> render.SiteKeys:
    """Return the keys of ``site``; ``prepare`` has made them."""
    host = state.host_key(site.name)
    return render.SiteKeys(
        client_public=_public(state.client_key(site.name)).read_text(),
        host_private=host.read_text(),
        host_public=_public(host).read_text(),
        hosts={s.container: _public(state.host_key(s.name)).read_text() for s in SITES},
    )


def user_keys(state: StateDir) -> dict[str, tuple[str, str]]:
    """Return the private and the public key of each user, the same at every site."""
    keys = {user: state.user_key(user) for user in users_of_tenants()}
    return {user: (key.read_text(), _public(key).read_text()) for user, key in keys.items()}


def site_ports(state: StateDir) -> dict[str, int]:
    """Return the loopback port of each site's sshd, as far as ports were settled."""
    try:
        found: dict[str, int] = json.loads(state.ports.read_text())
    except FileNotFoundError:
        return {}
    return found


def settle_ports(state: StateDir, running: Collection[str]) -> None:
    """Give each site a free loopback port, for good: a restart must not move its sshd.

    Args:
        state: where the choice is kept.
        running: sites that hold their port now; the others' may have been taken meanwhile.
    """
    ports = site_ports(state)
    start = zlib.crc32(str(state.root).encode()) % _PORTS
    candidates = (_FIRST_PORT + (start + step) % _PORTS for step in range(_PORTS))
    for site in SITES:
        if site.name in ports and (site.name in running or _is_free(ports[site.name])):
            continue
        ports[site.name] = next(
            port for port in candidates if port not in ports.values() and _is_free(port)
        )
    _write(state.ports, json.dumps(ports) + "\n")


def write_federation(state: StateDir, sites: Sequence[SiteLayout]) -> None:
    """Write federation.yaml and known_hosts for ``sites``; unchanged files are left alone."""
    ports = site_ports(state)
    hosts = {ports[site.name]: site_keys(state, site).host_public for site in sites}
    _write(state.known_hosts, render.known_hosts(hosts))
    listed = [(site, ports[site.name]) for site in sites]
    _write(state.federation, render.federation_yaml(state, listed))


def remove_daemon_files(state: StateDir) -> None:
    """Remove the daemon's store and socket; its log, keys, ports and shared folders stay."""
    for pattern in _DAEMON_FILES:
        for path in state.root.glob(pattern):
            path.unlink()


def remove_all(state: StateDir) -> None:
    """Remove the state directory.

    Raises:
        ConfigError: the directory is not one that the testbed made.
    """
    if not state.root.exists():
        return
    if not state.keys.is_dir():
        raise ConfigError(f"{state.root} does not look like a testbed's state: it has no keys/")
    shutil.rmtree(state.root)


def _make_open_dir(path: Path, mode: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)  # mkdir's mode is subject to the umask


def _public(key: Path) -> Path:
    return key.with_name(key.name + ".pub")


def _ensure_key(path: Path, comment: str) -> None:
    if path.exists() and _public(path).exists():
        return
    import asyncssh  # noqa: PLC0415 - slow to import, and only needed the first time

    key = asyncssh.generate_private_key("ssh-ed25519", comment=comment)
    path.touch(mode=0o600)
    path.write_bytes(key.export_private_key())
    _public(path).write_bytes(key.export_public_key())


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _write(path: Path, text: str) -> None:
    if path.exists() and path.read_text() == text:
        return
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(text)
    unfinished.replace(path)
