"""Selects the image of each site, and builds it when it is not there yet.

An image's tag is a digest of all that goes into it, so it is built once per content. Third-party
libraries are fetched on the host for the image's Python: pip in a container would know neither
this machine's certificates nor its package index.
"""

from __future__ import annotations

import hashlib
import io
import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import docker
from docker.errors import APIError, BuildError, ImageNotFound

from federator.errors import FederatorError
from federator.testbed.archive import ArchivedFile, digest, installed_libraries, pack
from federator.testbed.commands import run
from federator.testbed.layout import LABEL, PREFIX, REPOSITORY, SiteLayout, StateDir

Progress = Callable[[str, str], None]  # site, what is being done

CONTAINERS: Final = REPOSITORY / "containers"
SPANK: Final = REPOSITORY / "slurm_plugins"
LOCK: Final = REPOSITORY / "requirements.lock"
IMAGE: Final = "federator-site"
LIBRARIES: Final = ("msgspec", "PyYAML", "ClusterShell", "click")  # what the agent imports
_PLATFORMS: Final = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_5")
_SCRIPTS: Final = ("entrypoint.sh", "install-package.py")
_SPANK_SOURCES: Final = ("Makefile", "spank_federator.c")
_OURS: Final = "federator: "  # begins what the Dockerfile has to say itself
_PIN: Final = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)", re.MULTILINE)


def base_tag(site: SiteLayout) -> str:
    """Return the tag of the bare Debian image below the site's."""
    return f"federator-base:{site.suite}"


def requirements(lock: str, names: tuple[str, ...] = LIBRARIES) -> tuple[str, ...]:
    """Return what to ask pip for: each of ``validation``, pinned if ``lock`` pins it."""
    pins = {_normal(m["name"]): m["version"] for m in _PIN.finditer(lock)}
    return tuple(
        f"{name}=={pins[_normal(name)]}" if _normal(name) in pins else name for name in names
    )


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pip_argv(python: str, machine: str, wanted: tuple[str, ...], target: Path) -> list[str]:
    """Return the command that fetches ``wanted`` for another Python than the running one."""
    platforms = [f"--platform={kind}_{machine}" for kind in _PLATFORMS]
    return [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--no-compile", "--no-deps", "--only-binary=:all:", "--implementation=cp"),
        *(f"--python-version={python}", *platforms, f"--target={target}", *wanted),
    ]


def ensure(site: SiteLayout, state: StateDir, progress: Progress) -> str:
    """Return the tag of the site's image, building base, libraries and image as needed.

    Raises:
        ConfigError: what the build needs is not on this machine.
        FederatorError: a step failed; the message ends with its output.
    """
    client = docker.from_env(timeout=900)
    try:
        ensure_base(client, site, progress)
        context = _context(ensure_libraries(site, state, progress))
        tag = f"{IMAGE}:{site.suite}-{_content_digest(context, site)[:12]}"
        if not exists(client, tag):
            progress(site.name, f"building image {tag}")
            build(client, tag, context, _build_args(site))
        return tag
    finally:
        client.close()


def why_failed(log: str) -> str:
    """Return what our own check in the Dockerfile says, or else the end of a build's log."""
    lines = log.splitlines()
    ours = [line.removeprefix(_OURS) for line in lines if line.startswith(_OURS)]
    return "\n".join(ours or lines[-15:])


def remove_superseded(client: docker.DockerClient, site: SiteLayout, tag: str) -> None:
    """Remove the site's images other than ``tag``; one that is still in use stays.

    With testbeds side by side they all stay, since another may be about to start one.
    """
    if PREFIX != "federator":
        return
    for other in _tags(client, IMAGE):
        if other.startswith(f"{IMAGE}:{site.suite}-") and other != tag:
            with suppress(APIError):
                client.images.remove(other)


def remove_all(client: docker.DockerClient) -> list[str]:
    """Remove the sites' images and their bases; returns the tags that were removed."""
    removed = []
    for name in ("federator-rpm", "federator-build", "federator-clean", IMAGE, "federator-base"):
        for tag in _tags(client, name):
            client.images.remove(tag, force=True)
            removed.append(tag)
    return removed


def _tags(client: docker.DockerClient, name: str) -> list[str]:
    """Tags of the images called ``name``; in one request, since others may be removed meanwhile."""
    found: list[dict[str, list[str] | None]] = client.api.images(name=name)
    return [tag for image in found for tag in image["RepoTags"] or ()]


def exists(client: docker.DockerClient, tag: str) -> bool:
    """Tell whether this machine has the image ``tag``."""
    try:
        client.images.get(tag)
    except ImageNotFound:
        return False
    return True


def ensure_base(client: docker.DockerClient, site: SiteLayout, progress: Progress) -> str:
    """Return the tag of the bare Debian image below the site's, making it as needed.

    Raises:
        ConfigError: what that needs is not on this machine.
        FederatorError: it failed; the message ends with the output.
    """
    tag = base_tag(site)
    if not exists(client, tag):
        progress(site.name, f"making base image {tag} (about half a minute)")
        run([str(CONTAINERS / "mkbase.sh"), site.suite, tag], f"base image {tag}")
    return tag


def ensure_libraries(
    site: SiteLayout, state: StateDir, progress: Progress, names: tuple[str, ...] = LIBRARIES
) -> Path:
    """Return a folder with ``validation`` for the Python of ``site``, fetching them as needed.

    Raises:
        FederatorError: pip failed; the message ends with its output.
    """
    wanted = requirements(LOCK.read_text() if LOCK.exists() else "", names)
    key = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:8]
    target = state.libraries / f"{site.python}-{key}"
    if target.is_dir():
        return target
    progress(site.name, f"fetching libraries for Python {site.python}")
    unfinished = target.with_name(target.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    argv = pip_argv(site.python, platform.machine(), wanted, unfinished)
    run(argv, f"libraries for {site.name}")
    unfinished.rename(target)
    return target


def _context(libraries: Path) -> bytes:
    folder = CONTAINERS / "site"
    entries = [ArchivedFile(path="Dockerfile", data=(folder / "Dockerfile").read_bytes())]
    entries += [
        ArchivedFile(path=name, data=(folder / name).read_bytes(), mode=0o755) for name in _SCRIPTS
    ]
    entries += [
        ArchivedFile(path=f"slurm_plugins/{name}", data=(SPANK / name).read_bytes())
        for name in _SPANK_SOURCES
    ]
    return pack(entries + installed_libraries(libraries, "lib"))


def _build_args(site: SiteLayout) -> dict[str, str]:
    """Return the base and the versions that the build demands of the Debian release."""
    return {"BASE": base_tag(site), "SLURM": site.slurm, "PYTHON": site.python}


def _content_digest(context: bytes, site: SiteLayout) -> str:
    return digest(context, *(value.encode() for value in _build_args(site).values()))


def build(
    client: docker.DockerClient,
    tag: str,
    context: bytes,
    arguments: Mapping[str, str],
    target: str | None = None,
) -> None:
    """Build the image ``tag`` from ``context``, a tar archive with its Dockerfile.

    ``target`` is the stage of the Dockerfile to end with; without it, the last.

    Raises:
        FederatorError: it failed; the message says why.
    """
    try:
        client.images.build(
            fileobj=io.BytesIO(context),
            custom_context=True,
            tag=tag,
            buildargs=dict(arguments),
            target=target,
            labels={LABEL: "1"},
            rm=True,
            forcerm=True,
        )
    except BuildError as error:
        log = "".join(_text(part) for part in error.build_log)
        raise FederatorError(f"building {tag} failed:\n{why_failed(log)}") from error
    except APIError as error:
        raise FederatorError(f"building {tag} failed: {error.explanation}") from error


def _text(part: Mapping[str, str]) -> str:
    return part.get("stream") or part.get("error") or ""
