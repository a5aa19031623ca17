"""Keeps the results of runs in a folder: one file each, named by a digest of what was asked.

A result is found again by the same task, with the same code and the same libraries under it. A file
that is damaged, cut short, renamed or not from here is no result: the run is done again.
"""

from __future__ import annotations

import hashlib
import secrets
import stat
import sys
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import msgspec

import federator
from federator.errors import InvalidRequest

SUFFIX: Final = ".run"
_FORMAT: Final = "federator run 1"
_MOST_BYTES: Final = 2**30  # of a file that is read
_LIBRARIES: Final = ("msgspec", "numpy", "xgboost-cpu")  # on which figures could depend
_NOT_SIMULATED: Final = frozenset(
    {"checkpoint", "cli", "daemon", "faults", "site_installer", "testbed"}
)


class _KeptRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file. ``sha256`` is that of the result."""

    format: str
    digest: str
    name: str
    sha256: str
    result: bytes


@dataclass(frozen=True, slots=True)
class KeptRuns:
    """A folder of results.

    Attributes:
        folder: where they are; it exists.
        unusable: files found there under the name of a run and not used.
    """

    folder: Path
    unusable: list[Path] = field(default_factory=list)

    @classmethod
    def at(cls, folder: Path) -> KeptRuns:
        """The results in a folder, which is made if it is missing.

        Raises:
            InvalidRequest: nothing can be written there.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            trial = _beside(folder / "trial")
            trial.touch()
            trial.unlink()
        except (OSError, ValueError) as error:
            raise _unwritable(folder, error) from error
        return cls(folder)

    def find(self, digest: str, returns: Any) -> bytes | None:
        """The encoded result of a task; None: there is none that can be used.

        Args:
            digest: of the task.
            returns: the type that the result must have.
        """
        path = self.folder / (digest + SUFFIX)
        try:
            if not path.exists():
                return None
            found = _read(path)
            if found.format != _FORMAT or found.digest != digest:
                raise ValueError("not the result of this run")
            if hashlib.sha256(found.result).hexdigest() != found.sha256:
                raise ValueError("damaged")
            msgspec.msgpack.decode(found.result, type=returns)
        except (OSError, ValueError):  # msgspec's errors are ValueErrors, too
            self.unusable.append(path)
            return None
        return found.result

    def keep(self, digest: str, name: str, result: bytes) -> None:
        """Keep an encoded result; it appears whole or not at all.

        Raises:
            InvalidRequest: it cannot be written.
        """
        path = self.folder / (digest + SUFFIX)
        kept = _KeptRun(_FORMAT, digest, name, hashlib.sha256(result).hexdigest(), result)
        written = _beside(path)
        try:
            try:
                with written.open("xb") as file:
                    file.write(msgspec.msgpack.encode(kept))
                written.replace(path)
            finally:
                written.unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(path, error) from error


def _beside(path: Path) -> Path:
    return path.with_name(f".federator-{secrets.token_hex(8)}.tmp")


def _read(path: Path) -> _KeptRun:
    """Raises OSError or ValueError for what is no such file."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
        raise ValueError("no such file")  # opening a pipe could take for ever
    return msgspec.msgpack.decode(path.read_bytes(), type=_KeptRun)


def _unwritable(path: Path, error: Exception) -> InvalidRequest:
    said = error.strerror if isinstance(error, OSError) else None
    return InvalidRequest(f"--resume: {path}: cannot be written: {said or error}")


# ---- digests ----


def digest_of(task: Any) -> str:
    """Names what a task asks for: its class, its fields, and the code that does it.

    Args:
        task: a dataclass; its fields hold no sets, whose order is another in each process.

    Returns:
        64 hexadecimal digits.
    """
    kind = type(task)
    asked = hashlib.sha256(f"{code_digest()} {kind.__module__}.{kind.__qualname__}\n".encode())
    asked.update(msgspec.msgpack.encode(task, enc_hook=_as_built_in))
    return asked.hexdigest()


def _as_built_in(value: Any) -> Any:
    """A configuration, which is pydantic's."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"a task cannot hold {type(value).__name__}")


@cache
def code_digest() -> str:
    """Names the code that simulates: that of the package, and the versions of its libraries."""
    root = Path(federator.__file__).parent
    code = hashlib.sha256(f"{federator.__version__} {sys.version_info[:2]}".encode())
    for name in _LIBRARIES:
        code.update(f"\n{name} {_version(name)}".encode())
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        if inside.parts[0] not in _NOT_SIMULATED:
            code.update(f"\n{inside.as_posix()} ".encode())
            code.update(hashlib.sha256(path.read_bytes()).digest())
    return code.hexdigest()


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "missing"
