"""Makes the RPM packages, in a container of a Debian release that has rpmbuild.

Nothing is compiled but at a site that builds the plug-in, so the container need not be of the
distribution that packages are for. Libraries are fetched on the host.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import docker
from docker.models.containers import Container

from fedbuild import debs, package_contents, rpm_contents, wheel
from fedbuild.package_contents import RELEASED_AT_S, PackageContents, Sources
from federator.errors import FederatorError
from federator.testbed import images, inside
from federator.testbed.archive import ArchivedFile, digest, pack
from federator.testbed.images import Progress
from federator.testbed.layout import SITES, SiteLayout, StateDir

FOLDER: Final = "el"  # beside those of Debian's releases
_HOST: Final = SITES[0]  # whose Debian release the container is of
_IN: Final = "/build/in"
_OUT: Final = "/build/out"
_BUILDER: Final = "build.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class RpmPackages:
    """Packages as built, source packages among them; ``lint`` is what rpmlint says, a line each."""

    paths: tuple[Path, ...]
    lint: tuple[str, ...]


def make(folder: Path, state: StateDir, progress: Progress) -> RpmPackages:
    """Write all packages to ``folder``/el.

    Of the one with the plug-in there is the source package, too: sites build it anew.

    Raises:
        ConfigError: what the build needs is not on this machine.
        FederatorError: a step failed; the message ends with its output.
    """
    packages = package_contents.contents(rpm_contents.PLATFORM, _sources(state, progress))
    return build(packages, folder / FOLDER, progress)


def build(packages: list[PackageContents], target: Path, progress: Progress) -> RpmPackages:
    """Write ``packages`` to ``target``.

    Raises:
        ConfigError: what the build needs is not on this machine.
        FederatorError: it failed; the message ends with its output.
    """
    with container(progress) as host:
        progress(FOLDER, f"building {', '.join(package.name for package in packages)}")
        host.put_archive("/", pack(_inputs(packages)))
        done = inside.run(host, ["sh", f"{_IN}/{_BUILDER}", str(RELEASED_AT_S)])
        if done.exit_status != 0:
            tail = "\n".join(done.stdout.splitlines()[-15:])
            raise FederatorError(f"RPM packages: {_BUILDER} failed:\n{tail}")
        made = debs.fetched(host, _OUT)
    lint = made.pop("lint").decode().splitlines()
    if not any(" specfiles checked;" in line for line in lint):
        raise FederatorError("rpmlint did not look at the packages:\n" + "\n".join(lint[-15:]))
    target.mkdir(parents=True, exist_ok=True)
    for name, data in made.items():
        (target / name).write_bytes(data)
    return RpmPackages(
        paths=tuple(target / name for name in sorted(made)),
        lint=tuple(line for line in lint if ": E: " in line or ": W: " in line),
    )


@contextmanager
def container(progress: Progress) -> Iterator[Container]:
    """Yield a container with rpm, without a network, and remove it."""
    client = docker.from_env(timeout=900)
    try:
        clean = debs.ensure_image(client, _HOST, progress, "clean")
        image = _ensure_image(client, clean, _HOST, progress)
        with debs.container_of(client, image) as host:
            yield host
    finally:
        client.close()


def _ensure_image(
    client: docker.DockerClient, clean: str, site: SiteLayout, progress: Progress
) -> str:
    context = pack(
        [ArchivedFile(path="Dockerfile", data=(rpm_contents.RPM / "Dockerfile").read_bytes())]
    )
    tag = f"federator-rpm:{site.suite}-{digest(context, clean.encode())[:12]}"
    if not images.exists(client, tag):
        progress(FOLDER, f"building image {tag}")
        images.build(client, tag, context, {"BASE": clean})
    return tag


def _sources(state: StateDir, progress: Progress) -> Sources:
    # Of a site, no more is looked at than name and Python.
    target = replace(_HOST, name=FOLDER, python=rpm_contents.PLATFORM.python)
    progress(FOLDER, "building the wheel")
    return Sources(
        wheel=wheel.build(state.root / "cache" / "wheel" / FOLDER),
        agent_libraries=images.ensure_libraries(target, state, progress),
        daemon_libraries=images.ensure_libraries(
            target, state, progress, package_contents.DAEMON_LIBRARIES
        ),
    )


def _inputs(packages: list[PackageContents]) -> Iterator[ArchivedFile]:
    """What the container is given, by absolute paths."""
    for name in (_BUILDER, "rpmlint.toml"):
        yield package_contents.copied(rpm_contents.RPM / name, f"{_IN}/{name}".lstrip("/"))
    for package in packages:
        folder = f"{_IN}/{package.name}".lstrip("/")
        text = rpm_contents.spec(package).encode()
        yield ArchivedFile(path=f"{folder}/{package.name}.spec", data=text)
        yield ArchivedFile(
            path=f"{folder}/SOURCES/{rpm_contents.source_name(package)}",
            data=rpm_contents.source(package),
        )


def main() -> None:
    """Build all packages into the folder that the command line names."""
    made = make(Path(sys.argv[1]), StateDir.default(), print)
    print(*made.lint, *made.paths, sep="\n")


if __name__ == "__main__":
    main()
