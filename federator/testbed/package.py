"""Brings the working tree's code into a running site, unless it is there already."""

from __future__ import annotations

import posixpath
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from docker.models.containers import Container

from federator.errors import FederatorError
from federator.site_installer.files import HOOK_TREES
from federator.site_installer.helper import FOLDER, HELPER_SOURCE, helper_files
from federator.testbed import inside
from federator.testbed.archive import ArchivedFile, digest, files_below, pack, python_sources
from federator.testbed.layout import ACCOUNT, HELPER, LIB_DIR, REPOSITORY, USER_DIR

_LIBEXEC: Final = posixpath.dirname(HELPER)
_NO_HELPER: Final = "raise SystemExit('fed-site-exec is not part of this working tree')\n"
# The hooks of a site, and what stands in for its GPUs: from where in the tree to where in the file
# system. Of the directories that are ours alone, files that the tree no longer has are removed.
_HOOKS: Final = (
    *((f"{tree}/{folder}".rstrip("/"), target) for tree, folder, target in HOOK_TREES),
    ("containers/fake", "/opt/federator/testbed/bin"),
    ("tests/data/nvidia_smi", "/opt/federator/testbed/nvidia_smi"),
)
_OWNED: Final = (
    "/opt/federator/share/job_submit",
    "/opt/federator/libexec/fednode",
    f"{_LIBEXEC}/{FOLDER}",
    "/opt/federator/share/checks.d",
    "/opt/federator/testbed/bin",
    "/opt/federator/testbed/nvidia_smi",
)
_PROGRAMS_DIR: Final = "/opt/federator/bin"
_PATH_DIR: Final = "/usr/local/bin"  # on everybody's PATH
_LAUNCHER: Final = """\
#!/usr/bin/python3 -I
import sys

sys.path.insert(0, "{lib}")

from {module} import {function}

sys.exit({function}())
"""
_INSTALLER: Final = "/opt/federator/bin/install-package.py"


def package_archive(repository: Path, helper: Path) -> bytes:
    """Return package, helper and hooks as one archive, to be unpacked in /opt/federator."""
    source = helper.read_text(encoding="utf-8") if helper.exists() else _NO_HELPER
    entries = python_sources(repository / "federator", "incoming/federator")
    for path, (data, is_program) in helper_files(source).items():
        where = f"incoming/{path}" if is_program else f"incoming/root{_LIBEXEC}/{path}"
        entries.append(ArchivedFile(path=where, data=data, mode=0o755 if is_program else 0o644))
    entries.append(ArchivedFile(path="incoming/owned", data="\n".join(_OWNED).encode()))
    return pack([*entries, *hook_files(repository), *launchers(programs())])


def programs() -> dict[str, str]:
    """Return the programs of the project: name to ``module:function``."""
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        found: dict[str, str] = tomllib.load(file)["project"]["scripts"]
    return found


def launchers(programs: Mapping[str, str]) -> list[ArchivedFile]:
    """Return what starts each program at a site, as the Debian packages do it.

    In isolated mode the caller's PYTHON* variables, directory and own packages stay out of the
    program, and in the environment, where fsbatch picks them up for the job.
    """
    made = []
    for name, target in programs.items():
        module, _, function = target.partition(":")
        text = _LAUNCHER.format(lib=LIB_DIR, module=module, function=function)
        path = f"incoming/root{_PROGRAMS_DIR}/{name}"
        made.append(ArchivedFile(path=path, data=text.encode(), mode=0o755))
    return made


def hook_files(repository: Path) -> list[ArchivedFile]:
    """Return the site's hooks, each at ``incoming/root`` plus the path where it is installed."""
    return [
        file
        for source, target in _HOOKS
        for file in files_below(repository / source, f"incoming/root{target}")
    ]


def install(container: Container) -> bool:
    """Put the working tree's package into ``container``; tells whether it was needed.

    Raises:
        FederatorError: the installer in the container failed.
    """
    archive = package_archive(REPOSITORY, HELPER_SOURCE)
    wanted = digest(archive)
    present = inside.run(container, ["cat", f"{LIB_DIR}/federator.sha256"])
    if present.exit_status == 0 and present.stdout.strip() == wanted:
        return False
    inside.run(container, ["rm", "-rf", "/opt/federator/incoming"])
    container.put_archive("/opt/federator", archive)
    done = inside.run(container, [_INSTALLER, wanted])
    if done.exit_status != 0:
        message = f"{container.name}: installing the package failed:\n{done.stdout.strip()}"
        raise FederatorError(message)
    inside.run(container, ["mkdir", "-p", USER_DIR])
    inside.run(container, ["ln", "-sfn", f"{LIB_DIR}/federator", f"{USER_DIR}/federator"])
    commands = [f"{_PROGRAMS_DIR}/{name}" for name in programs()]
    inside.run(container, ["ln", "-sf", *commands, _PATH_DIR])
    # Agents that run would go on with the code they have loaded; the daemon starts them anew.
    inside.run(container, ["pkill", "--euid", ACCOUNT, "--full", "federator agent"])
    return True
