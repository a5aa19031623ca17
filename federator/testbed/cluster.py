"""Brings the three sites up, shows them, and takes them down.

A container's label carries a digest of all that went into it, so ``up`` can tell a site that is
as it should be from one that must be made anew. Sites are handled in parallel, one thread each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container

from federator.errors import ConfigError, FederatorError, SiteUnavailable
from federator.testbed import images, inside, package, render, user_folders, user_keys
from federator.testbed import state as state_dir
from federator.testbed.archive import ArchivedFile, digest, pack
from federator.testbed.images import Progress
from federator.testbed.layout import (
    LABEL,
    NETWORK,
    NODES_PER_SITE,
    PREFIX,
    REPOSITORY,
    SITES,
    SiteLayout,
    StateDir,
)

# slurmd of 24.11 and later reads a user's login environment (--export=NONE) in a namespace of its
# own; without this it dies of "clone: Operation not permitted".
CAPABILITIES: Final = ["SYS_ADMIN"]

START_TIMEOUT_S: Final = 60.0
HEAL_TIMEOUT_S: Final = 10.0  # for a running site with nodes amiss, before it is made anew
_POLL_S: Final = 0.1
_CONFIG_LABEL: Final = "federator.config"
_OURS: Final = {"label": f"{LABEL}={PREFIX}"}
_USABLE: Final = frozenset({"idle", "mixed", "allocated", "completing", "planned", "reserved"})
_PROBE: Final = ("sinfo", "--noheader", "--Node", "--partition=fed", "--format=%T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteStatus:
    """The present state of one site."""

    site: str
    container: str  # docker's word: running, paused, exited ...; "absent" without one
    slurm: str
    region: str
    port: int | None
    nodes: dict[str, int]  # Slurm's node state to number of nodes

    @property
    def ready(self) -> bool:
        return self.container == "running" and _all_usable(self.nodes)


@contextmanager
def connect() -> Iterator[docker.DockerClient]:
    """Yield a client of the local docker engine.

    Raises:
        ConfigError: no engine answers.
        FederatorError: the engine refused what was asked of it meanwhile.
    """
    try:
        client = docker.from_env()
        client.ping()
    except DockerException as error:
        raise ConfigError(
            "the docker engine does not answer, or not to this user; start it"
            " (systemctl start docker, or as root without systemd:"
            " setsid dockerd >/var/log/dockerd.log 2>&1 &)"
        ) from error
    try:
        yield client
    except DockerException as error:
        raise FederatorError(f"docker refused a request: {error}") from error
    finally:
        client.close()


def up(state: StateDir, sites: Sequence[SiteLayout], progress: Progress) -> list[SiteStatus]:
    """Bring ``sites`` up and return the status of all; sites that are well are left alone.

    Raises:
        ConfigError: docker is missing.
        SiteUnavailable: a site's nodes did not come up; the message ends with the log's tail.
        FederatorError: an image could not be built.
    """
    with connect() as client, state_dir.locked(state):
        state_dir.prepare(state)
        alive = [container.name for container in _containers(client, all_states=False)]
        state_dir.settle_ports(state, [site.name for site in SITES if site.container in alive])
        _ensure_network(client)
        with ThreadPoolExecutor(len(sites)) as pool:
            futures = [pool.submit(_bring_up, site, state, progress) for site in sites]
        for future in futures:
            future.result()
        found = status(state)
        running = {one.site for one in found if one.container == "running"}
        state_dir.write_federation(state, [site for site in SITES if site.name in running])
        return found


def down(state: StateDir, *, with_state: bool = False, with_images: bool = False) -> None:
    """Remove containers and network, and the daemon's store; more if asked to."""
    with connect() as client:
        with ThreadPoolExecutor(len(SITES)) as pool:
            list(pool.map(_remove, _containers(client, all_states=True)))
        for network in client.networks.list(filters=_OURS):
            network.remove()
        if with_images:
            images.remove_all(client)
    if with_state:
        state_dir.remove_all(state)
    else:
        state_dir.remove_daemon_files(state)


def status(state: StateDir) -> list[SiteStatus]:
    """Return the status of every site, present or not."""
    with connect() as client, ThreadPoolExecutor(len(SITES)) as pool:
        return list(pool.map(lambda site: _site_status(client, state, site), SITES))


def _bring_up(site: SiteLayout, state: StateDir, progress: Progress) -> None:
    """Make, start or mend one site, and wait for its nodes."""
    image = images.ensure(site, state, progress)
    with connect() as client:
        files = _files_archive(site, state)
        config = _config_digest(site, state, image, files)
        container = _find(client, site)
        if container is not None and container.labels.get(_CONFIG_LABEL) != config:
            progress(site.name, "configuration changed, making the container anew")
            _remove(container)
            container = None
        if container is not None and not _mend(client, container, site, progress):
            progress(site.name, "nodes do not come back, making the container anew")
            _remove(container)
            container = None
        if container is None:
            progress(site.name, "starting container")
            container = _create(client, site, state, image, config)
            container.put_archive("/", files)
            container.start()
            images.remove_superseded(client, site, image)
        user_folders.let_in(container, site)
        if package.install(container):
            progress(site.name, "installed the federator package")
        _await_nodes(container, site, START_TIMEOUT_S)
        user_keys.install(container, site, state_dir.user_keys(state))  # accounts are there now


def _mend(
    client: docker.DockerClient, container: Container, site: SiteLayout, progress: Progress
) -> bool:
    """Unpause, reconnect or start an existing container; tells whether its nodes are well."""
    if container.status == "paused":
        progress(site.name, "unpausing")
        container.unpause()
    elif container.status != "running":
        progress(site.name, "starting the stopped container")
        container.start()
    if NETWORK not in container.attrs["NetworkSettings"]["Networks"]:
        progress(site.name, "reconnecting to the network")
        client.networks.get(NETWORK).connect(container, aliases=[site.name])
    try:
        _await_nodes(container, site, HEAL_TIMEOUT_S)
    except SiteUnavailable:
        return False
    return True


def _create(
    client: docker.DockerClient, site: SiteLayout, state: StateDir, image: str, config: str
) -> Container:
    return client.containers.create(
        image,
        name=site.container,
        hostname=site.name,
        network=NETWORK,
        ports={"22/tcp": ("127.0.0.1", state_dir.site_ports(state)[site.name])},
        volumes={str(state.shared(site.region)): {"bind": f"/shared/{site.region}", "mode": "rw"}},
        labels={LABEL: PREFIX, _CONFIG_LABEL: config},
        init=True,
        cap_add=CAPABILITIES,
    )


def _files_archive(site: SiteLayout, state: StateDir) -> bytes:
    files = render.site_files(site, state_dir.site_keys(state, site))
    entries = [
        ArchivedFile(path=file.path.lstrip("/"), data=file.text.encode(), mode=file.mode)
        for file in files
    ]
    # slurmctld does not start without it; the module it loads comes with the package.
    script = (REPOSITORY / "job_submit" / "job_submit.lua").read_bytes()
    return pack([*entries, ArchivedFile(path="etc/slurm/job_submit.lua", data=script)])


def _config_digest(site: SiteLayout, state: StateDir, image: str, files: bytes) -> str:
    port = state_dir.site_ports(state)[site.name]
    capabilities = ",".join(CAPABILITIES)
    settings = (str(port), str(state.root), capabilities)
    return digest(image.encode(), files, *(setting.encode() for setting in settings))


def _await_nodes(container: Container, site: SiteLayout, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    nodes: dict[str, int] = {}
    while time.monotonic() < deadline:
        container.reload()
        if container.status != "running":
            break
        nodes = _probe(container)
        if _all_usable(nodes):
            return
        time.sleep(_POLL_S)
    tail = container.logs(tail=10).decode(errors="replace").strip()
    with suppress(APIError):
        log = inside.run(container, ["tail", "-n", "15", "/var/log/slurm/slurmctld.log"])
        tail += "\n" + log.stdout.strip()
    raise SiteUnavailable(
        f"{site.name}: not all {NODES_PER_SITE} nodes are up after {timeout_s:g} s"
        f" (container {container.status}, nodes {nodes or 'unknown'}); its logs end with\n{tail}"
    )


def _probe(container: Container) -> dict[str, int]:
    """Return how many nodes are in which state; nothing while slurmctld does not answer."""
    done = inside.run(container, _PROBE)
    if done.exit_status != 0:
        return {}
    counts: dict[str, int] = {}
    for node_state in done.stdout.split():
        counts[node_state] = counts.get(node_state, 0) + 1
    return counts


def _all_usable(nodes: dict[str, int]) -> bool:
    return sum(nodes.values()) == NODES_PER_SITE and nodes.keys() <= _USABLE


def _site_status(client: docker.DockerClient, state: StateDir, site: SiteLayout) -> SiteStatus:
    container = _find(client, site)
    running = container is not None and container.status == "running"
    return SiteStatus(
        site=site.name,
        container="absent" if container is None else container.status,
        slurm=site.slurm,
        region=site.region,
        port=None if container is None else state_dir.site_ports(state).get(site.name),
        nodes=_probe(container) if container is not None and running else {},
    )


def _find(client: docker.DockerClient, site: SiteLayout) -> Container | None:
    try:
        return client.containers.get(site.container)
    except NotFound:
        return None


def _containers(client: docker.DockerClient, *, all_states: bool) -> list[Container]:
    found: list[Container] = client.containers.list(all=all_states, filters=_OURS)
    return found


def _remove(container: Container) -> None:
    with suppress(NotFound):
        container.remove(force=True, v=True)


def _ensure_network(client: docker.DockerClient) -> None:
    if not client.networks.list(names=[NETWORK]):
        client.networks.create(NETWORK, driver="bridge", labels={LABEL: PREFIX})
