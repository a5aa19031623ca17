"""Data sets: what the catalogue knows of each, and where its copies are.

A data set has a name and a version. Its replicas are in storage domains, each at a path below the
domain's root; a site that mounts the domain has it at the root's path there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, unique
from typing import Final

from msgspec import Struct

from federator.model.names import SiteName, TenantName

MAX_PATH_BYTES: Final = 1024
MOST_REPLICAS: Final = 256  # of one data set
_DIGEST: Final = re.compile(r"[a-z0-9]{1,16}:[0-9a-f]{16,128}", re.ASCII)


@unique
class DataClass(Enum):
    """The kind of a data set, in MAST's words."""

    FRESH = "fresh"  # made or added to where it is
    REPLICA = "replica"  # a copy of what is made elsewhere, staler
    SCRATCH = "scratch"  # may be written to, and is missed by nobody


@unique
class DataSharing(Enum):
    """Those beside its owner who may see a data set and name it."""

    NONE = "none"
    TENANT = "tenant"  # the users of its tenant
    ALL = "all"

    def covers(self, needed: DataSharing) -> bool:
        """Whether who needs this much may see it."""
        order = (DataSharing.NONE, DataSharing.TENANT, DataSharing.ALL)
        return order.index(self) >= order.index(needed)


@unique
class ReplicaState(Enum):
    READY = "ready"  # jobs may read it
    COPYING = "copying"  # not whole yet
    LOST = "lost"  # known to be gone, or damaged
    RETIRED = "retired"  # no job is given it any more; its files go after a grace


@unique
class CopyPhase(Enum):
    """How far the making of a copy is, as its site says it."""

    NONE = "none"  # nothing has begun
    COPYING = "copying"
    CHECKING = "checking"  # its digest is computed
    DONE = "done"  # it is in its place
    FAILED = "failed"  # it is tried again later
    DROPPED = "dropped"  # what there was of it is gone
    FOUND = "found"  # of a checkpoint: there is one to copy, or a reason why not


class DataCopy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The making of a replica that was asked for."""

    by: str  # the user who asked; "": it was for a job
    asked_at_s: float  # Unix time, as the next ones
    began_at_s: float = 0.0  # of the present try; 0: it waits
    phase: CopyPhase = CopyPhase.NONE
    copied_bytes: int = 0
    began_bytes: int = 0  # of them that were there at ``began_at_s``
    told_at_s: float = 0.0  # when its site last told something new
    tries: int = 0  # that have failed
    detail: str = ""  # of the last that did
    planned: bool = False  # a plan of where data should be asked for it
    becomes_home: bool = False  # the data set's home is there, once it is whole

    def eta_s(self, size_bytes: int) -> float:
        """Unix time at which it may be there, at its present speed; 0: nobody knows."""
        took_s, came = self.told_at_s - self.began_at_s, self.copied_bytes - self.began_bytes
        if not self.began_at_s or came <= 0 or took_s <= 0 or not size_bytes:
            return 0.0
        left = max(0, size_bytes - self.copied_bytes)
        return self.told_at_s + left * took_s / came


class DataRemoval(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a replica that is retired: its files are removed, too."""

    by: str  # the user who asked; "": nobody had used it for long
    due_at_s: float  # Unix time from which its files may go; until then it can be taken back
    begun: bool = False  # they go: nothing takes it back any more
    tries: int = 0  # that have failed
    told_at_s: float = 0.0  # Unix time of the last that did
    detail: str = ""  # of it


class DataReplica(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One copy of a data set; ``path`` is below the root of its storage domain."""

    domain: str
    path: str
    state: ReplicaState = ReplicaState.READY
    digest: str = ""  # its seal: what it was proved to hold; "": it was not
    sealed_at_s: float = 0.0  # Unix time of that, as the next; 0: never
    used_at_s: float = 0.0  # of the last job that was given it
    copied_at_s: float = 0.0  # when a copy made it; 0: none did, it was there otherwise
    copied_from: str = ""  # the domain of that copy's source, where its speed was measured
    copied_kib_per_s: int = 0  # that speed, its check included; 0: not measured
    pinned: bool = False  # stays where it is
    copy: DataCopy | None = None  # it is being made, or made anew where it is lost
    for_jobs: bool = False  # that copy was made for jobs that waited
    removal: DataRemoval | None = None  # it is retired


class DataSet(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One version of a data set."""

    name: str
    version: str
    owner: str  # a user
    tenant: TenantName
    size_bytes: int = 0  # 0: not known, as the next
    files: int = 0
    digest: str = ""  # of its content, ALGORITHM:HEX; "": not known
    kind: DataClass = DataClass.FRESH
    sharing: DataSharing = DataSharing.NONE
    added_at_s: float = 0.0  # Unix time
    replicas: tuple[DataReplica, ...] = ()  # one in a domain at most
    home: str = ""  # the domain that a plan chose; see ``home_of``

    @property
    def label(self) -> str:
        """``NAME@VERSION``."""
        return f"{self.name}@{self.version}"

    @property
    def used_at_s(self) -> float:
        """Unix time at which a job was last given any of it; 0: none was."""
        return max((replica.used_at_s for replica in self.replicas), default=0.0)

    def replica_in(self, domain: str) -> DataReplica | None:
        return next((replica for replica in self.replicas if replica.domain == domain), None)


def home_of(of: DataSet) -> str:
    """The storage domain where a data set has its home; "": it is whole nowhere.

    The one that a plan chose, as long as it is whole there; else the first where it is.
    """
    ready = [replica.domain for replica in of.replicas if replica.state is ReplicaState.READY]
    return of.home if of.home in ready else next(iter(ready), "")


class StorageDomain(Struct, frozen=True, kw_only=True):
    """What a set of sites mounts, or an object store that none mounts, by federation.yaml."""

    mounts: Mapping[SiteName, str]  # the path at each, absolute
    rclone: str = ""  # of an object store: REMOTE:PATH, as its users' rclone knows it
    capacity_bytes: int = 0  # 0: not told
    keep_free_bytes: int = 0  # that no copy may take
    copy_kib_per_s: int = 0  # of each copy to it; 0: as fast as it goes
    copy_streams: int = 1  # of each copy to it, side by side


def is_digest(text: str) -> bool:
    """Tell whether a text is ALGORITHM:HEX."""
    return _DIGEST.fullmatch(text) is not None


def path_mistake(path: str) -> str:
    """The reason why a path below a domain's root cannot be; "" when it can."""
    if not path or path.startswith("/"):
        return "must be below the domain's root, and not begin with /"
    if not path.isprintable():
        return "holds a newline or another control character"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "is not UTF-8"
    if size > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "has an empty part, . or .."
    return ""


def below_root(path: str, domain: StorageDomain) -> str:
    """A path as one below the domain's root; one that is absolute at a site that mounts it, too.

    What lies below no root stays as it is, and is refused by ``path_mistake``.
    """
    roots = sorted({root.rstrip("/") + "/" for root in domain.mounts.values()}, key=len)
    for root in reversed(roots):
        if path.startswith(root):
            return path.removeprefix(root).rstrip("/")
    return path


class DataVerb(Enum):
    """What may be asked of the catalogue."""

    ADD = "add"  # or add to, or change
    PIN = "pin"
    UNPIN = "unpin"
    REMOVE = "rm"
    SEAL = "seal"  # replicas hold what they should: what was read is given
    LOSE = "lose"  # they do not
    COPY = "copy"  # to one domain
    RETIRE = "retire"  # replicas, and have their files removed after a grace


class DataPlace(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A domain, and a path below its root; "": not told."""

    domain: str
    path: str = ""


class DataGiven(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A data set as somebody names or describes it; None: nothing is said of it.

    ``at``: its replicas; to pin, unpin or remove: in these domains only, none: in all.
    """

    name: str
    version: str = ""  # "": the one added last; of one that is added "1"
    owner: str | None = None
    tenant: TenantName | None = None
    size_bytes: int | None = None
    files: int | None = None
    digest: str | None = None
    kind: DataClass | None = None
    sharing: DataSharing | None = None
    at: tuple[DataPlace, ...] = ()

    @property
    def label(self) -> str:
        """``NAME@VERSION``, or the name alone."""
        return f"{self.name}@{self.version}" if self.version else self.name


class DataRefusalCode(Enum):
    """Each names what stands against it; see ``DataRefusal`` for the rest."""

    UNKNOWN = "unknown"
    DENIED = "denied"
    NAME_TAKEN = "name taken"  # others have a data set of that name
    OTHER_CONTENT = "other content"  # it is known with another size, digest or path: ``detail``
    NO_DOMAIN = "no such domain"  # ``detail``
    NO_REPLICA = "no replica"  # in the domain that ``detail`` names
    PINNED = "pinned"  # in the domain that ``detail`` names
    IN_USE = "in use"  # by ``jobs`` that have not ended, which would find it nowhere
    RUNNING = "running"  # the same of ``jobs`` at sites, whatever those that wait would do
    TOO_MANY = "too many replicas"
    SCRATCH = "scratch"  # which nothing is sealed of
    UNSEALED = "unsealed"  # nobody could tell whether a copy is whole
    NO_SOURCE = "no source"  # no ready replica in another domain
    OCCUPIED = "occupied"  # another data set is at ``detail``, above it or below
    NO_ROOM = "no room"  # by the capacity of ``detail``
    NOT_MOUNTED = "not mounted"  # no site mounts ``detail``
    LAST_COPY = "last copy"  # no other sealed replica would be left of that in ``detail``
    REMOVING = "removing"  # the files in ``detail`` are being removed


class DataRefusal(Struct, frozen=True, kw_only=True):
    """One cause, for one data set; ``label`` is as it was named."""

    code: DataRefusalCode
    label: str
    detail: str = ""
    jobs: int = 0
