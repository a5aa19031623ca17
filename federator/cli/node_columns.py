"""The columns of fsinfo's ``-o`` and ``-O``: sinfo's names, letters, headings and values.

Each row is a group of nodes. ``N/A``, ``Unknown`` and the like stand where the federation does not
know a value. ``Site``, ``Region`` and ``GPUsState`` are the federation's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final, NamedTuple

from federator.cli.columns import Column
from federator.cli.node_lists import folded
from federator.cli.queue_columns import seconds_text
from federator.cli.text import clock
from federator.wire.node_rows import NodeRow, PartitionRow

ABSENT: Final = "N/A"
NONE: Final = "(null)"
_COMPACT: Final = {
    "allocated": "alloc",
    "mixed": "mix",
    "drained": "drain",
    "draining": "drng",
    "reserved": "resv",
}
_BASES: Final = {"drained": "idle", "draining": "mixed", "maint": "idle", "reserved": "idle"}
_IDLE: Final = frozenset({"idle", "maint", "reserved"})
_BUSY: Final = frozenset({"allocated", "mixed", "draining"})


class SiteOf(NamedTuple):
    """The site of a node."""

    name: str
    region: str = ""
    slurm_version: str = ""


class Group(NamedTuple):
    """Nodes of one partition that a row stands for; without any the partition is empty."""

    site: SiteOf
    partition: PartitionRow
    by_name: dict[tuple[str, str], NodeRow]  # and site: each node once, whatever it is in

    @property
    def nodes(self) -> tuple[NodeRow, ...]:
        return tuple(self.by_name.values())


def state_of(node: NodeRow) -> str:
    """The state of a node in sinfo's words; a drained node on which jobs run is draining.

    One that is kept for a reservation goes by its jobs, if there are any.
    """
    if node.reserved and node.cpus_alloc:
        return "allocated" if node.cpus_alloc >= node.cpus else "mixed"
    if node.reserved:
        return "maint" if node.maintenance else "reserved"
    return "draining" if node.state == "drained" and node.cpus_alloc else node.state


def marked_state(node: NodeRow) -> str:
    """The same; with a dollar sign in a maintenance, unless the state says so itself."""
    state = state_of(node)
    return f"{state}$" if node.maintenance and state != "maint" else state


def state_words(node: NodeRow) -> tuple[str, ...]:
    """The base state of a node, and its flags in Slurm's words."""
    state = state_of(node)
    drains = ("drain",) * (state in ("drained", "draining"))
    kept = ("maintenance",) * node.maintenance
    reserved = ("reserved",) * (node.reserved or node.maintenance)
    return (_BASES.get(state, state), *drains, *kept, *reserved)


def _state_long(group: Group) -> str:
    return marked_state(group.nodes[0]) if group.nodes else "n/a"


def _state_compact(group: Group) -> str:
    if not group.nodes:
        return "n/a"
    state = state_of(group.nodes[0])
    return _COMPACT.get(state, state) + _state_long(group)[len(state) :]


def _state_complete(group: Group) -> str:
    return "+".join(state_words(group.nodes[0])) if group.nodes else "n/a"


def node_counts(nodes: Iterable[NodeRow]) -> tuple[int, int, int, int]:
    """How many nodes are allocated, idle, other, and all."""
    states = [state_of(node) for node in nodes]
    busy, idle = sum(s in _BUSY for s in states), sum(s in _IDLE for s in states)
    return busy, idle, len(states) - busy - idle, len(states)


def _usable(node: NodeRow) -> bool:
    return node.state not in ("drained", "down")


def idle_cpus(nodes: Iterable[NodeRow]) -> int:
    """As sinfo counts them: what is kept for a reservation is idle."""
    return sum(n.cpus - n.cpus_alloc for n in nodes if n.reserved or _usable(n))


def _cpu_counts(group: Group) -> str:
    alloc = sum(node.cpus_alloc for node in group.nodes)
    idle = idle_cpus(group.nodes)
    total = sum(node.cpus for node in group.nodes)
    return f"{alloc}/{idle}/{total - alloc - idle}/{total}"


def _gpu_counts(group: Group) -> str:
    alloc = sum(node.gpus_alloc for node in group.nodes)
    idle = sum(node.gpus - node.gpus_alloc for node in group.nodes if _usable(node))
    total = sum(node.gpus for node in group.nodes)
    return f"{alloc}/{idle}/{total - alloc - idle}/{total}"


def _slashed(numbers: Iterable[int]) -> str:
    return "/".join(map(str, numbers))


def _amount(of: Callable[[NodeRow], int]) -> Callable[[Group], str]:
    """The amount of a node; with a plus, the least of them, where they differ."""

    def text(group: Group) -> str:
        amounts = sorted({of(node) for node in group.nodes} or {0})
        return f"{amounts[0]}+" if len(amounts) > 1 else str(amounts[0])

    return text


def _first(of: Callable[[NodeRow], str], otherwise: str = NONE) -> Callable[[Group], str]:
    """A value that all nodes of a group have in common."""
    return lambda group: (of(group.nodes[0]) if group.nodes else "") or otherwise


def gres_text(node: NodeRow) -> str:
    """``gpu:a100:8,nic:2``."""
    kind = f"gpu:{node.gpu_type}" if node.gpu_type else "gpu"
    return ",".join([f"{kind}:{node.gpus}"] * bool(node.gpus) + _others(node.gres))


def gres_used_text(node: NodeRow) -> str:
    """What of it is in use: ``gpu:a100:2``."""
    kind = f"gpu:{node.gpu_type}" if node.gpu_type else "gpu"
    return ",".join([f"{kind}:{node.gpus_alloc}"] * bool(node.gpus) + _others(node.gres_alloc))


def _others(gres: dict[str, int]) -> list[str]:
    return [f"{name}:{amount}" for name, amount in sorted(gres.items())]


def _limit(seconds: float | None) -> str:
    if seconds is None:
        return "n/a"
    return "infinite" if seconds == inf else seconds_text(seconds)


def _size(group: Group) -> str:
    most = group.partition.max_nodes
    return f"{max(1, group.partition.min_nodes)}-{'infinite' if most is None else most}"


def _names(group: Group) -> str:
    return folded([node.name for node in group.nodes])


def _always(text: str) -> Callable[[Group], str]:
    return lambda _: text


def _partition(group: Group) -> str:
    return group.partition.name + "*" * group.partition.is_default


_C = Column[Group]


def _drained_at(node: NodeRow) -> str:
    return clock(node.reason_at_s) if node.reason_at_s else ""


def _of_shape(part: str) -> Callable[[Group], str]:
    """A part of what nodes are built of, as ``_amount``; of an older agent it is not known."""

    def text(group: Group) -> str:
        if not group.nodes:
            return "0"
        if any(node.shape is None for node in group.nodes):
            return ABSENT
        return _amount(lambda node: int(getattr(node.shape, part)))(group)

    return text


_sockets, _cores = _of_shape("sockets"), _of_shape("cores_per_socket")
_threads = _of_shape("threads_per_core")


def _sockets_cores_threads(group: Group) -> str:
    parts = [part(group) for part in (_sockets, _cores, _threads)]
    return ABSENT if ABSENT in parts else ":".join(parts)


def _weight(group: Group) -> str:
    if any(node.weight is None for node in group.nodes):
        return ABSENT
    return _amount(lambda node: node.weight or 0)(group)


def _root(group: Group) -> str:
    only = group.partition.root_only
    return ABSENT if only is None else ("yes" if only else "no")


def _over_subscribe(group: Group) -> str:
    return group.partition.over_subscribe or ABSENT


def _groups(group: Group) -> str:
    groups = group.partition.groups
    return ABSENT if groups is None else groups or "all"


_absent, _all = _always(ABSENT), _always("all")

COLUMNS: Final[tuple[Column[Group], ...]] = (
    _C("AllocMem", "ALLOCMEM", _amount(lambda node: node.mem_mib_alloc)),
    _C("AllocNodes", "ALLOCNODES", _all, "S"),
    _C("Available", "AVAIL", lambda g: "up" if g.partition.up else "down", "a"),
    _C("Cluster", "CLUSTER", lambda g: g.site.name, "V"),
    _C("Comment", "COMMENT", _always(NONE)),
    _C("Cores", "CORES", _cores, "Y"),
    _C("CPUs", "CPUS", _amount(lambda node: node.cpus), "c"),
    _C("CPUsLoad", "CPU_LOAD", _absent, "O"),
    _C("CPUsState", "CPUS(A/I/O/T)", _cpu_counts, "C"),
    _C("DefaultTime", "DEFAULTTIME", lambda g: _limit(g.partition.default_time_s), "L"),
    _C("Disk", "TMP_DISK", _of_shape("tmp_mib"), "d"),
    _C("Extra", "EXTRA", _always(NONE)),
    _C("Features", "AVAIL_FEATURES", _first(lambda node: ",".join(node.features)), "f"),
    _C("features_act", "ACTIVE_FEATURES", _first(lambda node: ",".join(node.features)), "b"),
    _C("FreeMem", "FREE_MEM", _absent, "e"),
    _C("Gres", "GRES", _first(gres_text), "G"),
    _C("GresUsed", "GRES_USED", _first(gres_used_text)),
    _C("Groups", "GROUPS", _groups, "g"),
    _C("MaxCPUsPerNode", "MAX_CPUS_PER_NODE", _always("UNLIMITED"), "B"),
    _C("Memory", "MEMORY", _amount(lambda node: node.mem_mib), "m"),
    _C("NodeAddr", "NODE_ADDR", _names, "o"),
    _C("NodeAI", "NODES(A/I)", lambda g: _slashed(node_counts(g.nodes)[:2]), "A"),
    _C("NodeAIOT", "NODES(A/I/O/T)", lambda g: _slashed(node_counts(g.nodes)), "F"),
    _C("NodeHost", "HOSTNAMES", _names, "n"),
    _C("NodeList", "NODELIST", _names, "N", whole=True, whole_heading=True),
    _C("Nodes", "NODES", lambda g: str(len(g.nodes)), "D"),
    _C("OverSubscribe", "OVERSUBSCRIBE", _over_subscribe, "h"),
    _C("Partition", "PARTITION", _partition, "P"),
    _C("PartitionName", "PARTITION", lambda g: g.partition.name, "R"),
    _C("Port", "PORT", _absent),
    _C("PreemptMode", "PREEMPT_MODE", lambda g: g.partition.preempt_mode, "M"),
    _C("PriorityJobFactor", "PRIO_JOB_FACTOR", _absent, "I"),
    _C("PriorityTier", "PRIO_TIER", lambda g: str(g.partition.priority_tier), "p"),
    _C("Reason", "REASON", _first(lambda node: node.reason, "none"), "E"),
    _C("Reservation", "RESERVATION", _always(""), "i"),
    _C("Root", "ROOT", _root, "r"),
    _C("Share", "OVERSUBSCRIBE", _over_subscribe, "h"),
    _C("Size", "JOB_SIZE", _size, "s"),
    _C("Sockets", "SOCKETS", _sockets, "X"),
    _C("SocketCoreThread", "S:C:T", _sockets_cores_threads, "z"),
    _C("StateCompact", "STATE", _state_compact, "t"),
    _C("StateComplete", "STATECOMPLETE", _state_complete),
    _C("StateLong", "STATE", _state_long, "T"),
    _C("Threads", "THREADS", _threads, "Z"),
    _C("Time", "TIMELIMIT", lambda g: _limit(g.partition.max_time_s), "l"),
    _C("TimeStamp", "TIMESTAMP", _first(_drained_at, "Unknown"), "H"),
    _C("User", "USER", _first(lambda node: node.reason_by, "Unknown"), "u"),
    _C("UserLong", "USER", _first(lambda node: node.reason_by, "Unknown"), "U"),
    _C("Version", "VERSION", lambda g: g.site.slurm_version or ABSENT, "v"),
    _C("Weight", "WEIGHT", _weight, "w"),
    # The federation's own.
    _C("Site", "SITE", lambda g: g.site.name),
    _C("Region", "REGION", lambda g: g.site.region),
    _C("GPUsState", "GPUS(A/I/O/T)", _gpu_counts),
)
"""Those of sinfo 22.05 to 26.11, in its order."""
