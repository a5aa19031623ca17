"""Makes the software that the sites of a region share.

PyTorch, for the tests and the example that train. Sites are of three Debian releases with three
Pythons, so the tree brings its own loader and libraries, as EESSI's does. It is made once, in a
container, and kept in the state directory; the other regions get hard links.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Final

from docker.errors import ContainerError

from federator.errors import FederatorError
from federator.testbed import cluster, images, layout
from federator.testbed import state as state_dir
from federator.testbed.images import CONTAINERS, Progress
from federator.testbed.layout import SITES, StateDir

_RECIPE: Final = CONTAINERS / "software" / "pytorch.sh"
_BASE_SITE: Final = "alpine"  # whose Debian release has a PyTorch that works with its Python
_MARK: Final = "recipe.sha256"


def pytorch(state: StateDir, region: str) -> Path:
    """Return where the region's PyTorch is on the host; sites see it in /shared/REGION."""
    return state.shared(region) / "software" / "pytorch"


def ensure(state: StateDir, progress: Progress) -> list[Path]:
    """Make the shared software of every region unless it is there; returns where it is.

    Raises:
        ConfigError: docker is missing.
        FederatorError: it could not be made, for want of a network say.
    """
    regions = sorted({site.region for site in SITES})
    trees = [pytorch(state, region) for region in regions]
    recipe = hashlib.sha256(_RECIPE.read_bytes()).hexdigest()
    with state_dir.locked(state):
        state_dir.prepare(state)
        for tree in trees:
            made = next((other for other in trees if _is_made(other, recipe)), None)
            if not _is_made(tree, recipe):
                _put_in_place(tree, made, recipe, progress)
    return trees


def _is_made(tree: Path, recipe: str) -> bool:
    mark = tree / _MARK
    return mark.exists() and mark.read_text() == recipe


def _put_in_place(tree: Path, made: Path | None, recipe: str, progress: Progress) -> None:
    """Make a tree whole or not at all: from the one that is made already, or anew."""
    unfinished = tree.with_name(tree.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.parent.mkdir(exist_ok=True)
    if made is not None:
        shutil.copytree(made, unfinished, symlinks=True, copy_function=os.link)
    else:
        unfinished.mkdir()
        _install(unfinished, progress)
    (unfinished / _MARK).unlink(missing_ok=True)  # it is a link to the other tree's
    (unfinished / _MARK).write_text(recipe)
    shutil.rmtree(tree, ignore_errors=True)
    unfinished.rename(tree)


def _install(folder: Path, progress: Progress) -> None:
    site = layout.site(_BASE_SITE)
    with cluster.connect() as client:
        base = images.ensure_base(client, site, progress)
        progress("software", "installing PyTorch (some minutes)")
        owner = f"{os.getuid()}:{os.getgid()}"
        argv = ["sh", "-c", _RECIPE.read_text(), _RECIPE.name, "/software", owner]
        volumes = {str(folder): {"bind": "/software", "mode": "rw"}}
        try:
            client.containers.run(base, argv, volumes=volumes, remove=True)
        except ContainerError as error:
            tail = "\n".join((error.stderr or b"").decode(errors="replace").splitlines()[-15:])
            raise FederatorError(
                f"PyTorch: {_RECIPE.name} ended with status {error.exit_status}:\n{tail}"
            ) from error
