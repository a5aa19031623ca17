"""A host of a site, as packages find it: a container of a Debian release, without a network."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from docker.models.containers import Container
from fedbuild import debs, rpms
from fedbuild.debs import DebPackage

from federator.testbed import cluster, inside
from federator.testbed.archive import ArchivedFile, pack
from federator.testbed.layout import SiteLayout

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

    def everything(self) -> set[str]:
        """Every file, link and folder, and every account."""
        return set(self.sh(_LIST).splitlines())


@contextmanager
def clean(site: SiteLayout, packages: Sequence[DebPackage]) -> Iterator[Host]:
    """Yield a host that has never seen us."""
    with cluster.connect() as client:
        image = debs.ensure_image(client, site, lambda _site, _doing: None, "clean")
        with debs.container_of(client, image) as container:
            files = [
                ArchivedFile(path=f"packages/{one.name}.deb", data=Path(one.path).read_bytes())
                for one in packages
            ]
            container.put_archive("/", pack(files))
            yield Host(container=container)


@contextmanager
def clean_with_rpm(packages: Sequence[Path]) -> Iterator[Host]:
    """Yield a host that has never seen us, and knows packages of RPM."""
    with rpms.container(lambda _folder, _doing: None) as container:
        files = [
            ArchivedFile(path=f"packages/{path.name}", data=path.read_bytes()) for path in packages
        ]
        container.put_archive("/", pack(files))
        yield Host(container=container)
