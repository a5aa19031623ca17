"""The testbed as values: three sites, their nodes, users and tenants.

Change the testbed here; ``render`` turns these values into files and ``cluster`` into containers.
$FEDERATOR_TESTBED_NAME, with $FEDERATOR_TESTBED_DIR, makes a second one beside the usual.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from federator.errors import ConfigError
from federator.site_installer import templates

REPOSITORY: Final = Path(__file__).resolve().parents[2]
_INSTANCE: Final = os.environ.get("FEDERATOR_TESTBED_NAME", "")
PREFIX: Final = f"federator-{_INSTANCE}" if _INSTANCE else "federator"  # of containers
NETWORK: Final = f"{PREFIX}-testbed"
LABEL: Final = "federator.testbed"
ACCOUNT: Final = templates.ACCOUNT
LOGIN_KNOWN_HOSTS: Final = "/etc/ssh/ssh_known_hosts"  # of the sites' login nodes, for users
USERS_GROUP: Final = templates.USERS_GROUP
LOCAL_USER: Final = "localuser"  # not of the federation; for local jobs
HELPER: Final = templates.HELPER_PATH
SPOOL_DIR: Final = templates.SPOOL_DIR  # what the agent leaves for the site's hooks
AGENT_CONFIG: Final = templates.AGENT_CONFIG
SPANK_PLUGIN: Final = templates.SPANK_PLUGIN
LIB_DIR: Final = "/opt/federator/lib"
USER_DIR: Final = "/opt/federator/user"  # what jobs may import: federator, and nothing beside it


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Identical nodes of one site, named ``<site>-<letter>1`` and up."""

    letter: str
    count: int
    cpus: int
    mem_mib: int
    gpus: int
    first_port: int

    def hostlist(self, site: str) -> str:
        """Return the group in Slurm's host list notation."""
        return f"{site}-{self.letter}[1-{self.count}]"

    def names(self, site: str) -> list[str]:
        """Return every node name, in order."""
        return [f"{site}-{self.letter}{number}" for number in range(1, self.count + 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rack:
    """A leaf switch; ``members`` are host lists without the site's prefix."""

    name: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLayout:
    """One tenant of the federation with its users; priority 1 is the highest."""

    name: str
    priority: int
    quota_gpus: int
    quota_cpus: int
    users: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteLayout:
    """One Slurm cluster in one container."""

    name: str
    suite: str  # Debian release, which decides the Slurm version
    slurm: str  # major.minor expected in that release
    python: str  # major.minor of that release's python3
    region: str
    gpu_type: str
    account_uid: int
    uids: tuple[tuple[str, int], ...]  # user, UID; differs from site to site on purpose
    licenses: str  # as in slurm.conf
    penalties: bool  # whether its sshd knows PerSourcePenalties

    @property
    def container(self) -> str:
        return f"{PREFIX}-{self.name}"

    @property
    def federated_users(self) -> tuple[str, ...]:
        return tuple(user for user, _ in self.uids if user != LOCAL_USER)


GPU_NODES: Final = NodeGroup(
    letter="g", count=8, cpus=64, mem_mib=512_000, gpus=8, first_port=17001
)
CPU_NODES: Final = NodeGroup(
    letter="c", count=2, cpus=64, mem_mib=256_000, gpus=0, first_port=17101
)
NODE_GROUPS: Final = (GPU_NODES, CPU_NODES)
NICS: Final = 2  # of the gres "nic", on each of these nodes
NIC_NODES: Final = (7, 8)  # numbers of nodes with GPUs
RACKS: Final = (
    Rack(name="rack1", members=("g[1-4]", "c1")),
    Rack(name="rack2", members=("g[5-8]", "c2")),
)
NODES_PER_SITE: Final = sum(group.count for group in NODE_GROUPS)

TENANTS: Final = (
    TenantLayout(
        name="vision", priority=2, quota_gpus=64, quota_cpus=1024, users=("vision1", "vision2")
    ),
    TenantLayout(name="nlp", priority=3, quota_gpus=64, quota_cpus=1024, users=("nlp1",)),
    TenantLayout(name="bio", priority=4, quota_gpus=32, quota_cpus=1024, users=("bio1",)),
)


def _uids(first: int, *users: str) -> tuple[tuple[str, int], ...]:
    return tuple((user, first + offset) for offset, user in enumerate(users))


SITES: Final = (
    SiteLayout(
        name="alpine",
        suite="bookworm",
        slurm="22.05",
        python="3.11",
        region="west",
        gpu_type="a100",
        account_uid=2901,
        uids=_uids(2001, "vision1", "vision2", "nlp1", "bio1", LOCAL_USER),
        licenses="matlab:4",
        penalties=False,
    ),
    SiteLayout(
        name="boreal",
        suite="trixie",
        slurm="24.11",
        python="3.13",
        region="west",
        gpu_type="a100",
        account_uid=3902,
        uids=_uids(3005, "bio1", LOCAL_USER, "nlp1", "vision2", "vision1"),
        licenses="matlab:4,fluent:2",
        penalties=True,
    ),
    SiteLayout(
        name="cedar",
        suite="forky",
        slurm="26.05",
        python="3.14",
        region="east",
        gpu_type="h100",
        account_uid=4903,
        uids=_uids(4001, "nlp1", "vision1", "bio1", "vision2", LOCAL_USER),
        licenses="matlab:1,abaqus:2",
        penalties=True,
    ),
)


def site(name: str) -> SiteLayout:
    """Return the site called ``name``.

    Raises:
        ConfigError: the testbed has no such site.
    """
    for layout in SITES:
        if layout.name == name:
            return layout
    known = ", ".join(layout.name for layout in SITES)
    raise ConfigError(f"the testbed has no site {name!r}; its sites are {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDir:
    """The folder where the testbed keeps what outlives its containers."""

    root: Path

    @classmethod
    def default(cls) -> StateDir:
        """Return ``$FEDERATOR_TESTBED_DIR``, else ``.testbed`` in the repository."""
        chosen = os.environ.get("FEDERATOR_TESTBED_DIR")
        return cls(root=Path(chosen).resolve() if chosen else REPOSITORY / ".testbed")

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def known_hosts(self) -> Path:
        return self.keys / "known_hosts"

    @property
    def ports(self) -> Path:
        return self.root / "ports.json"

    @property
    def federation(self) -> Path:
        return self.root / "federation.yaml"

    @property
    def libraries(self) -> Path:
        return self.root / "cache" / "lib"

    def client_key(self, site_name: str) -> Path:
        return self.keys / site_name

    def host_key(self, site_name: str) -> Path:
        return self.keys / f"{site_name}.host"

    def user_key(self, user: str) -> Path:
        return self.keys / f"{user}.user"

    def shared(self, region: str) -> Path:
        return self.root / "shared" / region
