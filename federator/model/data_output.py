"""The data set that a job writes: what was asked for, and what becomes of its folder.

The job writes in a hidden folder of a storage domain. When it has completed, the folder is sealed,
put in its place by one rename, and added to the catalogue; else it is removed after a while.
"""

from __future__ import annotations

import re
from enum import Enum, unique
from typing import Final, NamedTuple

from msgspec import Struct

from federator.model.data_use import DataUse
from federator.model.names import TenantName, WorkloadId

OUTPUTS: Final = "outputs"  # below each user's folder in a storage domain
WORKING: Final = ".fed-output-"  # the hidden folder of a job, with its id
_HELD_IN: Final = "data"  # in that folder, so that notes can lie beside it

ROOM: Final = DataUse(name="", version="", owner="", write=True)
"""What every job with an output needs beside its data sets: any storage domain."""


class OutputWish(NamedTuple):
    """The value of ``--fed-output``: ``NAME[@VERSION][:home|:keep]``; "": the job's id."""

    name: str
    version: str = ""
    home: bool = False

    @classmethod
    def of(cls, text: str) -> OutputWish:
        """Split a text that is sound."""
        named, _, mode = text.partition(":")
        name, _, version = named.partition("@")
        return cls(name, version, mode == "home")


class DataOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job was submitted with; ``home``: the domain that it is brought to, "": none."""

    name: str
    version: str = ""
    home: str = ""

    def version_of(self, id_: WorkloadId) -> str:
        """The version that a job adds: its id, where none was said."""
        return self.version or str(id_)


@unique
class OutputState(Enum):
    """The state of a job's output."""

    WRITING = "writing"  # the job has not ended
    SEALING = "sealing"  # it has completed
    REGISTERED = "registered"  # it is in the catalogue
    LEFT = "left"  # the job ended otherwise; its folders are removed after a while
    EMPTY = "empty"  # it completed, and had written nothing
    GIVEN_UP = "given up"  # it could not be registered or removed; the files stay


class KeptOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The output of a job that was at a site at least once.

    ``folders``: the domains in which it has one, that of its last attempt behind the others.
    """

    id: WorkloadId
    user: str
    tenant: TenantName
    name: str
    version: str
    home: str = ""
    attempt: int = 0  # the last; this and the next two of it
    site: str = ""
    folders: tuple[str, ...] = ()
    state: OutputState = OutputState.WRITING
    over_at_s: float = 0.0  # Unix time at which the job ended; 0: it has not
    detail: str = ""  # why it was not registered or removed yet, or never will be
    forgotten: bool = False  # the job is not known any more

    @property
    def label(self) -> str:
        """``NAME@VERSION``."""
        return f"{self.name}@{self.version}"

    @property
    def domain(self) -> str:
        """That in which the last attempt wrote; "": none has a folder."""
        return self.folders[-1] if self.folders else ""

    @property
    def path(self) -> str:
        """Where it is put, below the domain's root."""
        return output_path(self.user, self.name, self.version)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is to be done for it any more."""
        return bool(self.over_at_s) and not self.folders


def output_path(user: str, name: str, version: str) -> str:
    """Below the root of a domain; no path of another data set leads through it."""
    return f"{user}/{OUTPUTS}/{name}@{version}"


class OutputPlace(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of a job's output at one site, for one attempt."""

    id: WorkloadId
    name: str
    version: str
    domain: str
    root: str  # of the domain at the site, absolute
    path: str  # at which it will be, below that

    @property
    def label(self) -> str:
        """``NAME@VERSION``."""
        return f"{self.name}@{self.version}"

    @property
    def variable(self) -> str:
        """The variable of the job that holds the folder: FED_OUTPUT_IMAGENET_V2 of imagenet/v2."""
        return "FED_OUTPUT_" + re.sub(r"[^A-Z0-9]", "_", self.name.upper())

    @property
    def folder(self) -> str:
        """Where the job writes, absolute."""
        above = self.path.rpartition("/")[0]
        return f"{self.root.rstrip('/')}/{above}/{WORKING}{self.id}/{_HELD_IN}"

    def for_helper(self, *, drop: bool = False) -> dict[str, object]:
        """The order for a site's helper; see ``site_output``."""
        return {"root": self.root, "path": self.path, "id": int(self.id), "drop": drop}
