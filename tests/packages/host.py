"""A host of a site, as packages find it: a container of a Debian release, without a network."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from docker.models.containers import Container
from fedbuild import debs, rpms
from fedbuild.debs import DebPackage

from federator.testbed import cluster, inside
from federator.testbed.archive import ArchivedFile, pack
from federator.testbed.layout import LABEL, PREFIX, SiteLayout, StateDir
from federator.testbed.state import locked

# What changes whenever anything is installed or an account is made, whoever does it.
_NOT_OURS = (
    "/proc",
    "/sys",
    "/dev",
    "/tmp",
    "/packages",
    "/var/lib/dpkg",
    "/var/lib/rpm",
    "/var/cache",
    "/var/log",
)
_LIST = (
    "find / -xdev \\( "
    + " -o ".join(f"-path {path}" for path in _NOT_OURS)
    + " \\) -prune -o ! -path '/etc/*-' -printf '%y %p\\n'; getent passwd; getent group"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The container, with all packages in /packages; none is installed yet."""

    container: Container

    def run(self, *argv: str) -> str:
        """Run it as root; it must succeed."""
        done = inside.run(self.container, argv)
        assert done.exit_status == 0, f"{argv} ended with {done.exit_status}:\n{done.stdout}"
        return done.stdout

    def sh(self, script: str) -> str:
        return self.run("sh", "-euc", script)

    def write(self, path: str, text: str) -> None:
        entry = ArchivedFile(path=path.lstrip("/"), data=text.encode())
        self.container.put_archive("/", pack([entry]))

    def install(self, names: Sequence[str]) -> float:
        """Install packages; returns how long it took, in seconds."""
        began_s = time.monotonic()
        self.run("dpkg", "--install", *(f"/packages/{name}.deb" for name in names))
        return time.monotonic() - began_s

    def until(self, condition: str, *, seconds: int = 120) -> None:
        """Wait until this command of a shell succeeds."""
        loop = f"until {condition}; do sleep 0.2; done"
        self.run("timeout", str(seconds), "sh", "-c", loop)

    def everything(self) -> set[str]:
        """Every file, link and folder, and every account."""
        return set(self.sh(_LIST).splitlines())


@contextmanager
def builds() -> Iterator[StateDir]:
    """Where packages are built and kept, once for all processes of a parallel run.

    Each of these has a state directory of its own, below "side" of the first one's.
    """
    root = StateDir.default().root
    usual = root.parents[1] if root.parent.name == "side" else root
    state = StateDir(root=usual / "packages")
    with locked(state):
        state.libraries.mkdir(parents=True, exist_ok=True)
        yield state


@contextmanager
def clean(site: SiteLayout, packages: Sequence[DebPackage]) -> Iterator[Host]:
    """Yield a host that has never seen us."""
    with cluster.connect() as client:
        image = debs.ensure_image(client, site, lambda _site, _doing: None, "clean")
        with debs.container_of(client, image) as container:
            host = Host(container=container)
            _give(host, packages)
            yield host


def _give(host: Host, packages: Sequence[DebPackage]) -> None:
    files = [
        ArchivedFile(path=f"packages/{one.name}.deb", data=Path(one.path).read_bytes())
        for one in packages
    ]
    host.container.put_archive("/", pack(files))


@contextmanager
def booted(
    site: SiteLayout, packages: Sequence[DebPackage], folders: Mapping[Path, str]
) -> Iterator[Host]:
    """Yield a host that has never seen us, and whose first process is systemd.

    Args:
        site: whose Debian release it is of.
        packages: are in /packages.
        folders: of this machine, with where they are to be read there.
    """
    with cluster.connect() as client:
        image = debs.ensure_image(client, site, lambda _site, _doing: None, "booted")
        container = client.containers.create(
            image,
            network_mode="none",
            cap_add=["SYS_ADMIN", "SYS_PTRACE"],  # namespaces of units; what fed-watch may
            security_opt=["seccomp=unconfined", "apparmor=unconfined"],
            cgroupns="private",
            tmpfs={"/run": "exec"},
            volumes={str(path): {"bind": at, "mode": "ro"} for path, at in folders.items()},
            labels={LABEL: f"{PREFIX}-deb"},
        )
        try:
            container.start()
            host = Host(container=container)
            host.until("systemctl is-system-running | grep -qx 'running\\|degraded'")
            _give(host, packages)
            yield host
        finally:
            container.remove(force=True)


@contextmanager
def clean_with_rpm(packages: Sequence[Path]) -> Iterator[Host]:
    """Yield a host that has never seen us, and knows packages of RPM."""
    with rpms.container(lambda _folder, _doing: None) as container:
        files = [
            ArchivedFile(path=f"packages/{path.name}", data=path.read_bytes()) for path in packages
        ]
        container.put_archive("/", pack(files))
        yield Host(container=container)
