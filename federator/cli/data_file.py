"""The file of ``federator data import``: many data sets in YAML; and sizes as people write them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
import yaml

from federator.cli.text import printable
from federator.errors import InvalidRequest
from federator.model.dataset import (
    DataClass,
    DataGiven,
    DataPlace,
    DataSet,
    DataSharing,
    ReplicaState,
)
from federator.model.workload import TenantName

MAX_FILE_BYTES: Final = 64 * 2**20
_SIZE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([KMGTP]?)(iB|B)?", re.ASCII)
_NOT_THERE: Final = frozenset({ReplicaState.COPYING, ReplicaState.RETIRED})
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


class _Item(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One data set of the file."""

    name: str
    version: object = ""  # text; else a message, for YAML makes 1.1 of 1.10 and 750 of 12:30
    owner: str | None = None
    tenant: str | None = None
    size: str | int | None = None
    files: int | None = None
    digest: str | None = None
    kind: DataClass | None = msgspec.field(default=None, name="class")
    sharing: DataSharing | None = None
    at: dict[str, str] = msgspec.field(default_factory=dict)  # paths by storage domain


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    data_sets: list[_Item]


_NOT_YAML: Final = (yaml.YAMLError, ValueError, KeyError, AttributeError, TypeError, RecursionError)
"""What PyYAML raises: also for a date that there is not, and for too deep nesting."""


def read_data_file(path: Path) -> list[DataGiven]:
    """The data sets of a file, in its order.

    Raises:
        InvalidRequest: it cannot be read, or is not as it should be.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise InvalidRequest(f"{path} is larger than {MAX_FILE_BYTES} bytes")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        tree = yaml.load(raw, Loader=loader)  # noqa: S506  # both are safe
    except _NOT_YAML as error:
        raise InvalidRequest(f"{path}: not YAML: {printable(str(error))}") from error
    try:
        found = msgspec.convert(tree, _File)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{path}: {printable(str(error))}") from error
    try:
        return [_given(item) for item in found.data_sets]
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error}") from error


def _given(item: _Item) -> DataGiven:
    if not isinstance(item.version, str):
        raise InvalidRequest(
            f"{printable(item.name[:100])}: YAML takes its version for something else than text, "
            f'{printable(str(item.version)[:60])}; quote it, e.g. version: "1.10"'
        )
    return DataGiven(
        name=item.name,
        version=item.version,
        owner=item.owner,
        tenant=None if item.tenant is None else TenantName(item.tenant),
        size_bytes=None if item.size is None else size_bytes(str(item.size)),
        files=item.files,
        digest=item.digest,
        kind=item.kind,
        sharing=item.sharing,
        at=tuple(DataPlace(domain=domain, path=path) for domain, path in item.at.items()),
    )


def data_file(sets: Iterable[DataSet]) -> str:
    """A file of these data sets that can be imported, in the part of YAML that JSON is."""
    lines = [
        msgspec.json.encode(
            {
                "name": of.name,
                "version": of.version,
                "owner": of.owner,
                **({"tenant": of.tenant} if of.tenant else {}),
                **({"size": of.size_bytes} if of.size_bytes else {}),
                **({"files": of.files} if of.files else {}),
                **({"digest": of.digest} if of.digest else {}),
                "class": of.kind.value,
                "sharing": of.sharing.value,
                "at": {
                    replica.domain: replica.path
                    for replica in of.replicas
                    if replica.state not in _NOT_THERE  # it would be taken for ready
                },
            }
        ).decode()
        for of in sets
    ]
    return "\n".join(["data_sets:", *(f"- {line}" for line in lines)]) if lines else "data_sets: []"


def size_bytes(text: str) -> int:
    """Read a size: bytes, or with K, M, G, T or P, which are powers of 1024; 1.5T, 412GiB.

    Raises:
        InvalidRequest: it is none.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidRequest(f"{printable(text[:60])!r} is no size; e.g. 1.5T, 412GiB, or bytes")
    unit: int = 1024 ** _POWERS[match[2]]
    return round(float(match[1]) * unit)
