"""Reads nodes and racks from `scontrol -d show nodes -o` and `scontrol show topology`.

One line per node. Everything decided on stands before the only free text that Slurm prints (Reason,
Comment, Extra come last), and the first match wins, so an admin's words cannot pass for a field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from federator.model.gres import Gres, without
from federator.model.node_shape import NodeShape
from federator.model.site import Node, NodeState
from federator.slurm.parse_base import (
    ABSENT,
    Reading,
    expand_hosts,
    gpus_in_parts,
    parse_count,
    parse_gpus,
    parse_other_gres,
    problem,
    shared_gres,
)

# Atomic groups: each key is the first of its name, and a line that does not match fails at once.
_NODE: Final = re.compile(
    r"NodeName=(?P<name>\S+) "
    r"(?>.*?\bCPUAlloc=)(?P<cpus_alloc>\d+) "
    r"(?>.*?\bCPU(?:Efctv|Tot)=)(?P<cpus>\d+) "
    r"(?>.*? ActiveFeatures=)(?P<features>\S*) "
    r"(?>.*?\bGres=)(?P<gres>\S*)"
    r"(?>(?P<between>.*?) RealMemory=)(?P<mem>\d+) "
    r"(?>.*?\bAllocMem=)(?P<mem_alloc>\d+) "
    r"(?>.*?\bState=)(?P<state>\S+) "
    r"(?P<rest>.*)"
)
_GRES_USED: Final = re.compile(r" GresUsed=(\S*)")  # absent on CPU nodes from 24.11 on
_SHAPE: Final = re.compile(
    r"(?>.*? CoresPerSocket=)(\d+) (?>.*?\bSockets=)(\d+) "
    r"(?>.*? ThreadsPerCore=)(\d+) TmpDisk=(\d+) (?:Weight=(\d+) )?"
)
_PARTITIONS: Final = re.compile(r" Partitions=(\S*)")
_REASON: Final = re.compile(r" Reason=(.*?) \[([^\s\[\]]+)@(\d+)\]")
MAX_REASON: Final = 200  # characters

_BASES: Final = {
    "IDLE": NodeState.IDLE,
    "MIXED": NodeState.MIXED,
    "ALLOCATED": NodeState.ALLOCATED,
    "DOWN": NodeState.DOWN,
    "ERROR": NodeState.DOWN,
    "FUTURE": NodeState.DOWN,
    "UNKNOWN": NodeState.DOWN,
}
_DRAINING: Final = frozenset(
    {
        "DRAIN",
        "FAIL",
        "MAINTENANCE",
        "MAINT",
        "RESERVED",
        "REBOOT_REQUESTED",
        "BLOCKED",
        "POWER_DRAIN",
        "POWER_DOWN",
    }
)
_MAINTENANCE: Final = frozenset({"MAINTENANCE", "MAINT"})
_RESERVED: Final = _MAINTENANCE | {"RESERVED"}
_GONE: Final = frozenset(
    {
        "NOT_RESPONDING",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_UP",
        "REBOOT",
        "REBOOT_ISSUED",
        "INVAL",
        "INVALID_REG",
        "FUTURE",
        "DYNAMIC_FUTURE",
    }
)
_HARMLESS: Final = frozenset(
    {
        "CLOUD",
        "COMPLETING",
        "DYNAMIC_NORM",
        "EXTERNAL",
        "PERFCTRS",
        "PLANNED",
        "RESUME",
        "UNDRAIN",
        "REBOOT_CANCEL",
    }
)
_SUFFIXES: Final = {
    "*": NodeState.DOWN,  # does not respond
    "~": NodeState.DOWN,  # powered off
    "#": NodeState.DOWN,  # powering up
    "!": NodeState.DRAINED,  # will be powered off
    "%": NodeState.DOWN,  # powering off
    "$": NodeState.DRAINED,  # in maintenance
    "@": NodeState.DRAINED,  # will be rebooted
    "^": NodeState.DOWN,  # reboots
    "-": None,  # planned by the backfill scheduler
    "+": None,
}


def parse_state(text: str) -> NodeState:
    """Return what ``IDLE+DRAIN``, ``MIXED*`` or ``DOWN*+CLOUD`` means for a placement.

    The worst of base state and flags counts: down, then drained, then the base. PLANNED changes
    nothing (the backfill scheduler means to use the node later; a job may run until then).

    Raises:
        ValueError: a word is none of Slurm's; what such a node takes is not known.
    """
    state: NodeState | None = None
    worst: set[NodeState] = set()
    for index, decorated in enumerate(text.split("+")):
        word = decorated.rstrip("*~#!%$@^-")
        worst.update(s for s in map(_SUFFIXES.get, decorated[len(word) :]) if s is not None)
        if index == 0:
            state = _BASES.get(word)
        elif word in _GONE:
            worst.add(NodeState.DOWN)
        elif word in _DRAINING:
            worst.add(NodeState.DRAINED)
        elif word not in _HARMLESS:
            raise ValueError(f"unknown node state {text[:60]!r}")
    if state is None:
        raise ValueError(f"unknown node state {text[:60]!r}")
    for bad in (NodeState.DOWN, NodeState.DRAINED):
        if bad in worst or state is bad:
            return bad
    return state


def parse_reserved(text: str) -> NodeState | None:
    """Return what a node would take if it were not reserved; None: it is not, or nothing either.

    Raises:
        ValueError: as ``parse_state``.
    """
    words = [word.replace("$", "") for word in text.split("+")]
    rest = "+".join(words[:1] + [w for w in words[1:] if w.rstrip("*~#!%@^-") not in _RESERVED])
    if rest == text:
        return None
    state = parse_state(rest)
    return state if state.takes_jobs else None


def is_maintenance(text: str) -> bool:
    """Tell whether a state names a maintenance, which ``$`` stands for as well."""
    words = text.split("+")
    return any(word.endswith("$") or word.rstrip("*") in _MAINTENANCE for word in words)


def parse_nodes(text: str, switch_of: Mapping[str, str] | None = None) -> Reading[Node]:
    """Read `scontrol -d show nodes -o`; nodes come in the site's own order.

    A node of unknown state is kept as drained, with a problem: it takes no job, yet what runs
    there is seen. One that is kept for a reservation is ``reserved``, and its state that without
    it. Where a node has GPUs of several types, the most numerous type is reported.

    Args:
        text: the command's stdout.
        switch_of: leaf switch by node name, from ``parse_topology``.
    """
    nodes: list[Node] = []
    problems: list[str] = []
    complete = True
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            nodes.append(_node(line, switch_of or {}, problems))
        except ValueError as error:
            complete = False
            problems.append(problem("node", line, error))
    return Reading(records=tuple(nodes), problems=tuple(problems), complete=complete)


def _node(line: str, switch_of: Mapping[str, str], problems: list[str]) -> Node:
    match = _NODE.match(line)
    if match is None:
        raise ValueError("a field is missing")
    field = match.groupdict()
    state, reserved = _states(field["state"], field["name"], problems)
    used = _first(_GRES_USED, field["between"])
    gpu_type, gpus, gpus_alloc = _gpus(field["gres"], used)
    gres, gres_alloc = _other_gres(field["gres"], used, problems)
    partitions = _first(_PARTITIONS, " " + field["rest"].partition(" BootTime=")[0])
    why, who, when_s = ("", "", 0) if state.takes_jobs else _reason(field["rest"])
    shape, weight = _shape(line)
    return Node(
        name=field["name"],
        partitions=_words(partitions),
        switch=switch_of.get(field["name"], ""),
        state=state if reserved is None else reserved,
        reserved=reserved is not None,
        maintenance=is_maintenance(field["state"]),
        cpus=parse_count(field["cpus"]),
        cpus_alloc=parse_count(field["cpus_alloc"]),
        mem_mib=parse_count(field["mem"]),
        mem_mib_alloc=parse_count(field["mem_alloc"]),
        gpu_type=gpu_type,
        gpus=gpus,
        gpus_alloc=gpus_alloc,
        features=_words(field["features"]),
        gres=gres,
        gres_alloc=gres_alloc,
        gres_shared=shared_gres(field["gres"]) if "no_consume" in field["gres"] else (),
        shape=shape,
        weight=weight,
        drain_reason=why,
        drained_by=who,
        drained_at_s=float(when_s),
    )


def _states(text: str, name: str, problems: list[str]) -> tuple[NodeState, NodeState | None]:
    """The state of a node, and that without the reservation that it is kept for."""
    try:
        return parse_state(text), parse_reserved(text)
    except ValueError as error:
        problems.append(problem("the state of node", name, error))
        return NodeState.DRAINED, None


def _shape(line: str) -> tuple[NodeShape | None, int | None]:
    """What the node is built of, and its weight; None: it is not shown."""
    found = _SHAPE.match(line)
    if found is None:
        return None, None
    cores, sockets, threads, tmp_mib = map(parse_count, found.groups()[:4])
    weight = None if found[5] is None else parse_count(found[5])
    return NodeShape(tmp_mib, sockets, cores, threads), weight


def _reason(rest: str) -> tuple[str, str, int]:
    """The reason that admin, health check or Slurm itself gave for taking the node out; who, when.

    A node that is back may keep it (24.11), so it says nothing of those that take jobs. It is shown
    to people and never decided on, so it may pretend what it likes.
    """
    found = _REASON.search(rest.partition(" BootTime=")[2])
    if found is None:
        return "", "", 0
    why, who = ("".join(c if c.isprintable() else "?" for c in text) for text in found.groups()[:2])
    at_s = int(found[3][:12])
    return why[:MAX_REASON].strip(), who[:MAX_REASON], at_s


def _gpus(configured: str, used: str) -> tuple[str, int, int]:
    """Return type, count and count in use of a node's (most numerous) GPUs.

    Those that are in use by parts count as a whole.
    """
    have, busy = parse_gpus(configured), parse_gpus(used)
    if not have:
        return "", 0, 0
    kind = max(have, key=lambda name: have[name])
    return kind, have[kind], min(have[kind], busy.get(kind, 0) + gpus_in_parts(used))


def _other_gres(configured: str, used: str, problems: list[str]) -> tuple[Gres, Gres]:
    """Return what else a node has and what is in use of it, without what cannot be read.

    Sites may give a gres any name and type, so one that cannot be read takes no node with it. Each
    is a problem once, not on every node that has it.
    """
    have, busy = parse_other_gres(configured), parse_other_gres(used)
    unread = {**busy.unread, **have.unread}
    for name, why in unread.items():
        line = problem("gres", name, f"{why}; the nodes count as without it")
        if line not in problems:
            problems.append(line)
    return without(have.known, unread), without(busy.known, unread)


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def _words(text: str) -> tuple[str, ...]:
    return () if text in ABSENT else tuple(word for word in text.split(",") if word)


def parse_switches(text: str) -> dict[str, str]:
    """Read `scontrol show topology`: the switch, or aggregated block, above each other one.

    A block names nodes and not the blocks in it, so it lies in the smallest that has its nodes. A
    line that cannot be read connects nothing.
    """
    above: dict[str, str] = {}
    blocks: dict[str, frozenset[str]] = {}
    for line in text.splitlines():
        field = dict(word.partition("=")[::2] for word in line.split())
        try:
            block = field.get("BlockName") or field.get("AggregatedBlock")
            if block:
                blocks[block] = frozenset(expand_hosts(field.get("Nodes", "")))
            elif field.get("SwitchName"):
                below = expand_hosts(field.get("Switches", ""))
                above.update(dict.fromkeys(below, field["SwitchName"]))
        except ValueError:
            continue
    return above | _blocks_above(blocks)


def _blocks_above(blocks: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """The smallest larger block around each block."""
    above: dict[str, str] = {}
    holding: dict[str, list[str]] = {}  # by node, the blocks with it, the smallest first
    for block in sorted(blocks, key=lambda name: (len(blocks[name]), name)):
        for node in blocks[block]:
            holding.setdefault(node, []).append(block)
    for block, nodes in blocks.items():
        around = holding[min(nodes)] if nodes else []
        wider = next((name for name in around if nodes < blocks[name]), None)
        if wider is not None:
            above[block] = wider
    return above


def parse_topology(text: str) -> dict[str, str]:
    """Read `scontrol show topology`: the leaf switch, or block, of each node.

    A line that cannot be read puts its nodes on no switch; a site without topology prints none.
    """
    switch_of: dict[str, str] = {}
    for line in text.splitlines():
        field = dict(word.partition("=")[::2] for word in line.split())
        leaf = field.get("SwitchName") if field.get("Level") == "0" else field.get("BlockName")
        if not leaf:
            continue
        try:
            hosts = expand_hosts(field.get("Nodes", ""))
        except ValueError:
            continue
        switch_of.update(dict.fromkeys(hosts, leaf))
    return switch_of
