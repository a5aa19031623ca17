"""The rows of fsinfo: which nodes stand in one, which are left out, and in which order."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from federator.cli.node_columns import (
    COLUMNS,
    Group,
    SiteOf,
    gres_text,
    gres_used_text,
    marked_state,
    state_of,
    state_words,
)
from federator.errors import InvalidRequest
from federator.wire.node_rows import NodeRow, PartitionRow, SiteNodes

Site = tuple[SiteOf, SiteNodes]

STATES: Final = (
    ("unknown", "unk"), ("down", "down"), ("idle", "idle"), ("allocated", "alloc"),
    ("mixed", "mix"), ("future", "futr"), ("drain", "drain"), ("drained", "drain"),
    ("draining", "drng"), ("no_respond", "no_respond"), ("reserved", "resv"),
    ("planned", "plnd"), ("blocked", "block"), ("cloud", "cloud"), ("completing", "comp"),
    ("powering_down", "pow_dn"), ("powered_down", "powered_down"), ("power_down", "power_down"),
    ("powering_up", "pow_up"), ("fail", "fail"), ("maint", "maint"), ("reboot", "boot"),
)  # fmt: skip
"""sinfo's words for states of nodes, long and short, in the order in which it compares them."""

_ORDER: Final = (
    *("down", "idle", "reserved", "maint", "allocated", "mixed", "drained", "draining"),
)  # as Slurm's numbers
_NODE_VALUES: Final[Mapping[str, Callable[[NodeRow], object]]] = MappingProxyType(
    {
        "StateCompact": marked_state,
        "StateLong": marked_state,
        "StateComplete": state_words,
        "Features": lambda node: node.features,
        "features_act": lambda node: node.features,
        "Gres": gres_text,
        "GresUsed": gres_used_text,
        "Reason": lambda node: node.reason,
        "TimeStamp": lambda node: node.reason_at_s,
        "User": lambda node: node.reason_by,
        "UserLong": lambda node: node.reason_by,
        "NodeHost": lambda node: node.name,
        "NodeAddr": lambda node: node.name,
    }
)
"""Columns by which nodes are told apart: those of one row have the same value."""
_AMOUNTS: Final[Mapping[str, Callable[[NodeRow], object]]] = MappingProxyType(
    {
        "CPUs": lambda node: node.cpus,
        "Memory": lambda node: node.mem_mib,
        "AllocMem": lambda node: node.mem_mib_alloc,
        "Cores": lambda node: node.shape and node.shape.cores_per_socket,
        "Disk": lambda node: node.shape and node.shape.tmp_mib,
        "SocketCoreThread": lambda node: node.shape and node.shape[1:],
        "Sockets": lambda node: node.shape and node.shape.sockets,
        "Threads": lambda node: node.shape and node.shape.threads_per_core,
        "Weight": lambda node: node.weight,
    }
)
"""The same, only with ``--exact``."""
_SITE_COLUMNS: Final = frozenset({"Cluster", "Site", "Region", "Version"})
_PARTITION_VALUES: Final[Mapping[str, Callable[[PartitionRow], object]]] = MappingProxyType(
    {
        "Available": lambda p: p.up,
        "Groups": lambda p: p.groups,
        "OverSubscribe": lambda p: p.over_subscribe,
        "Root": lambda p: p.root_only,
        "Share": lambda p: p.over_subscribe,
        "DefaultTime": lambda p: p.default_time_s,
        "Partition": lambda p: (p.name, p.is_default),
        "PartitionName": lambda p: p.name,
        "PreemptMode": lambda p: p.preempt_mode,
        "PriorityTier": lambda p: p.priority_tier,
        "Size": lambda p: (p.min_nodes, p.max_nodes),
        "Time": lambda p: p.max_time_s,
    }
)
_EMPTY: Final = "empty"  # in place of the nodes' values
_SORT: Final = re.compile(r"([+#-]*)([A-Za-z])")
_NUMBERS: Final = re.compile(r"\d+")


def asked_states(text: str) -> Callable[[NodeRow], bool]:
    """Read the value of ``--states``: ``idle,mix``; ``drain&mixed``; ``~down``.

    Raises:
        InvalidRequest: a word is no state of sinfo's.
    """
    words = re.split(r"[,&+]", text)
    if text.lower() == "all":
        return lambda _: True
    tests = [_state_test(word) for word in words if word]
    every = all if re.search(r"[&+]", text) else any
    return lambda node: every(test(node) for test in tests)


def _state_test(word: str) -> Callable[[NodeRow], bool]:
    bare = word.lstrip("~!").lower()
    found = next((s for s, short in STATES if bare and (s.startswith(bare) or short == bare)), None)
    if found is None:
        valid = ",".join(state for state, _ in STATES)
        raise InvalidRequest(f'Bad state string: "{bare}"; valid states: {valid}')
    wanted = not word.startswith(("~", "!"))
    if found == "allocated":  # any on which a job runs, as with sinfo
        return lambda node: bool(node.cpus_alloc) is wanted
    return lambda node: (found in _states(node)) is wanted


def _states(node: NodeRow) -> Collection[str]:
    words = state_words(node)
    return (*words, state_of(node), *("maint",) * ("maintenance" in words))


class Wanted(NamedTuple):
    """What fsinfo is to show."""

    columns: frozenset[str]  # names of those shown: nodes that they cannot tell apart share a row
    keep: Callable[[NodeRow], bool] = lambda _: True  # the others count nowhere
    partitions: tuple[str, ...] = ()  # only these; empty: all
    each_node: bool = False  # a row for each node of each partition
    exact: bool = False  # amounts tell nodes apart, too
    empty: bool = True  # partitions of which no node is left have a row


class _Heads:
    """Tells rows apart, by the columns that are shown."""

    def __init__(self, wanted: Wanted) -> None:
        names = set(wanted.columns) | ({"Partition", "NodeHost"} if wanted.each_node else set())
        values = [value for name, value in _NODE_VALUES.items() if name in names]
        amounts = [value for name, value in _AMOUNTS.items() if name in names]
        self._of_node = values + amounts * wanted.exact
        self.of_partition = [value for name, value in _PARTITION_VALUES.items() if name in names]
        self._by_site = wanted.each_node or not names.isdisjoint(_SITE_COLUMNS)

    def partition(self, site: SiteOf, partition: PartitionRow) -> tuple[object, ...]:
        name = site.name if self._by_site else ""
        return (name, *(value(partition) for value in self.of_partition))

    def node(self, node: NodeRow) -> tuple[object, ...]:
        return tuple(value(node) for value in self._of_node)


def rows_of(sites: Iterable[Site], wanted: Wanted) -> list[Group]:
    """Put nodes together that the columns cannot tell apart; a node is in a row once."""
    heads = _Heads(wanted)
    groups: dict[object, dict[object, Group]] = {}  # by partition, as far as it is shown
    for site, partition, nodes in _partitions(sites, wanted):
        of_head = groups.setdefault(heads.partition(site, partition), {})
        if not nodes and wanted.empty and heads.of_partition:
            of_head.setdefault(_EMPTY, Group(site, partition, {}))
        for node in nodes:
            group = of_head.setdefault(heads.node(node), Group(site, partition, {}))
            group.by_name[site.name, node.name] = node
    for of_head in groups.values():
        if len(of_head) > 1:  # another partition of the same looks has nodes
            of_head.pop(_EMPTY, None)
    return [group for of_head in groups.values() for group in of_head.values()]


def _partitions(
    sites: Iterable[Site], wanted: Wanted
) -> Iterator[tuple[SiteOf, PartitionRow, list[NodeRow]]]:
    for site, listed in sites:
        for partition in listed.partitions:
            if wanted.partitions and partition.name not in wanted.partitions:
                continue
            mine = [n for n in listed.nodes if partition.name in n.partitions and wanted.keep(n)]
            yield site, partition, mine


def sorted_groups(groups: Sequence[Group], text: str | None, *, each_node: bool) -> list[Group]:
    """Put rows in order, by ``--sort``; else by partition and state, or by node.

    Raises:
        InvalidRequest: a letter that no column has.
    """
    if text is None:
        text = "N" if each_node else "#P,-t"
    bare = text.replace(",", "")
    fields = _SORT.findall(bare)
    if "".join(signs + letter for signs, letter in fields) != bare:
        raise InvalidRequest(f"Invalid sort specification: {text}")
    rows, order = list(groups), _partition_order(groups)
    for signs, letter in reversed(fields):
        if "#" in signs and letter == "P":
            rows.sort(key=lambda g: order[g.site.name, g.partition.name], reverse="-" in signs)
        else:
            rows.sort(key=_key(letter), reverse="-" in signs)
    return rows


def _key(letter: str) -> Callable[[Group], Any]:
    if letter in "tT":
        return _by_state
    value = next((column.value for column in COLUMNS if column.letter == letter), None)
    if value is None:
        raise InvalidRequest(f"Invalid sort specification: {letter}")
    shown = value
    return lambda group: natural(shown(group))


def _partition_order(rows: Sequence[Group]) -> dict[tuple[str, str], int]:
    order: dict[tuple[str, str], int] = {}
    for group in rows:
        order.setdefault((group.site.name, group.partition.name), len(order))
    return order


def _by_state(group: Group) -> int:
    state = state_of(group.nodes[0]) if group.nodes else ""
    return _ORDER.index(state) if state in _ORDER else -1


def natural(text: str) -> tuple[tuple[str, int], ...]:
    """A sort key by which ``n9`` comes before ``n10``."""
    parts: list[tuple[str, int]] = []
    at = 0
    for match in _NUMBERS.finditer(text):
        parts.append((text[at : match.start()], int(match[0][:18])))
        at = match.end()
    return (*parts, (text[at:], -1))
