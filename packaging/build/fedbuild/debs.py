"""Makes the Debian packages, each in a container of the release that it is for.

A package is kept under a digest of all that goes into it, and so built once per content. Libraries
are fetched on the host, as for the sites' images. Nothing is fetched when a package is installed.
"""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import docker
from docker.models.containers import Container

from fedbuild import deb_contents, package_contents, wheel
from fedbuild.deb_contents import DEBIAN
from fedbuild.package_contents import RELEASED_AT_S, PackageContents, Sources
from federator.errors import FederatorError
from federator.testbed import images, inside
from federator.testbed.archive import ArchivedFile, digest, pack
from federator.testbed.images import Progress
from federator.testbed.layout import LABEL, PREFIX, SiteLayout, StateDir

_IN: Final = "/build/in"
_OUT: Final = "/build/out"
_BUILDER: Final = "build-in-suite.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class DebPackage:
    """One package as built; ``lint`` is what lintian says of it, a line each."""

    name: str
    path: Path
    lint: tuple[str, ...]


def make(site: SiteLayout, state: StateDir, progress: Progress) -> list[DebPackage]:
    """Return all packages for the Debian release of ``site``, building those that are not there.

    Raises:
        ConfigError: what the build needs is not on this machine.
        FederatorError: a step failed; the message ends with its output.
    """
    client = docker.from_env(timeout=900)
    try:
        image = ensure_image(client, site, progress, "build")
        progress(site.name, "building the wheel")
        built = wheel.build(state.root / "cache" / "wheel" / site.suite)
        sources = Sources(
            wheel=built,
            agent_libraries=images.ensure_libraries(site, state, progress),
            daemon_libraries=images.ensure_libraries(
                site, state, progress, package_contents.DAEMON_LIBRARIES
            ),
        )
        wanted = {
            _kept_at(state, site, contents, image): contents
            for contents in package_contents.contents(deb_contents.platform_of(site), sources)
        }
        missing = {path: contents for path, contents in wanted.items() if not path.exists()}
        if missing:
            names = ", ".join(contents.name for contents in missing.values())
            progress(site.name, f"building {names} for {site.suite}")
            _build(client, site, image, missing)
        return [_read(contents.name, path) for path, contents in wanted.items()]
    finally:
        client.close()


def copy_to(folder: Path, site: SiteLayout, made: Sequence[DebPackage]) -> list[Path]:
    """Copy packages to ``write``/SUITE as NAME.deb."""
    target = folder / site.suite
    target.mkdir(parents=True, exist_ok=True)
    return [Path(shutil.copy2(one.path, target / f"{one.name}.deb")) for one in made]


def ensure_image(
    client: docker.DockerClient, site: SiteLayout, progress: Progress, target: str
) -> str:
    """Return the tag of the image ``clean`` or ``build`` of packaging/deb/Dockerfile."""
    base = images.ensure_base(client, site, progress)
    context = pack(
        ArchivedFile(path=name, data=(DEBIAN / name).read_bytes())
        for name in ("Dockerfile", _BUILDER)
    )
    tag = f"federator-{target}:{site.suite}-{digest(context)[:12]}"
    if not images.exists(client, tag):
        progress(site.name, f"building image {tag}")
        images.build(client, tag, context, {"BASE": base}, target)
    return tag


@contextmanager
def container_of(
    client: docker.DockerClient, image: str, network: str = "none"
) -> Iterator[Container]:
    """Yield a container that does nothing by itself, and remove it."""
    container = client.containers.create(
        image,
        ["sleep", "infinity"],
        network_mode=network,
        init=True,
        labels={LABEL: f"{PREFIX}-deb"},
    )
    try:
        container.start()
        yield container
    finally:
        container.remove(force=True)


def fetched(container: Container, folder: str) -> dict[str, bytes]:
    """Return every file in ``folder`` of ``container``, by its name."""
    chunks, _ = container.get_archive(folder)
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
        files = {Path(member.name).name: tar.extractfile(member) for member in tar}
        return {name: file.read() for name, file in files.items() if file is not None}


def _kept_at(state: StateDir, site: SiteLayout, contents: PackageContents, image: str) -> Path:
    tree = pack(deb_contents.tree(contents, site, "any"))
    key = digest(tree, image.encode(), str(RELEASED_AT_S).encode())[:16]
    return state.root / "cache" / "deb" / site.suite / f"{contents.name}-{key}.deb"


def _build(
    client: docker.DockerClient, site: SiteLayout, image: str, missing: dict[Path, PackageContents]
) -> None:
    with container_of(client, image) as container:
        asked = inside.run(container, ["dpkg", "--print-architecture"])
        trees = [deb_contents.tree(c, site, asked.stdout.strip()) for c in missing.values()]
        inside.run(container, ["mkdir", "-p", _IN])
        container.put_archive(_IN, pack(file for tree in trees for file in tree))
        done = inside.run(container, [_BUILDER, str(RELEASED_AT_S)])
        if done.exit_status != 0:
            tail = "\n".join(done.stdout.splitlines()[-15:])
            raise FederatorError(f"packages for {site.suite}: {_BUILDER} failed:\n{tail}")
        made = fetched(container, _OUT)
    for path, contents in missing.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob(f"{contents.name}-*"):
            old.unlink()
        path.with_suffix(".lintian").write_bytes(made[f"{contents.name}.lintian"])
        path.write_bytes(made[f"{contents.name}.deb"])


def _read(name: str, path: Path) -> DebPackage:
    lint = path.with_suffix(".lintian").read_text(encoding="utf-8").splitlines()
    return DebPackage(name=name, path=path, lint=tuple(lint))
