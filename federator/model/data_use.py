"""Names of data sets in a job, and the paths that it is given for them at its site."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from msgspec import Struct

from federator.model.dataset import DataSet, DataSharing

NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*"
VERSION: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
MAX_NAME_BYTES: Final = 128
MAX_VERSION_BYTES: Final = 64
_NAME: Final = re.compile(NAME, re.ASCII)
_VERSION: Final = re.compile(VERSION, re.ASCII)


class DataWish(NamedTuple):
    """A value of ``--fed-dataset``: ``NAME[@VERSION][:ro|:rw]``; "": the version added last."""

    name: str
    version: str = ""
    write: bool = False

    @classmethod
    def of(cls, text: str) -> DataWish:
        """Split a text that is sound."""
        named, _, mode = text.partition(":")
        name, _, version = named.partition("@")
        return cls(name, version, mode == "rw")


def variable_of(name: str) -> str:
    """The variable that holds its path in a job: FED_DATASET_IMAGENET_V2 of imagenet/v2."""
    return "FED_DATASET_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


class DataUse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One data set of a job, as it was found in the catalogue when the job was submitted.

    ``owner``: whose it was. Should somebody else's take its name, the job does not get that.
    ``shared``: how far it has to be shared for the job's user, who was its owner, of its tenant, or
    neither. Should it be shared less, the job does not start with it.
    """

    name: str
    version: str
    owner: str
    write: bool = False
    shared: DataSharing = DataSharing.NONE

    @property
    def label(self) -> str:
        """``NAME@VERSION``."""
        return f"{self.name}@{self.version}"

    def may_have(self, of: DataSet) -> bool:
        """Whether the job may have the data set of that name that there is now."""
        return of.owner == self.owner and of.sharing.covers(self.shared)


class DataPath(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of a data set at one site, for one attempt of a job."""

    name: str
    version: str
    domain: str
    root: str  # of the domain at the site, absolute
    path: str  # below that
    write: bool = False

    @property
    def variable(self) -> str:
        return variable_of(self.name)

    @property
    def absolute(self) -> str:
        return f"{self.root.rstrip('/')}/{self.path}"


def is_data_name(text: str) -> bool:
    return len(text) <= MAX_NAME_BYTES and _NAME.fullmatch(text) is not None


def is_data_version(text: str) -> bool:
    return len(text) <= MAX_VERSION_BYTES and _VERSION.fullmatch(text) is not None
