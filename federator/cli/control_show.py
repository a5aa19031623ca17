"""Shows jobs, nodes, partitions and sites as ``scontrol show`` does: records of NAME=VALUE.

A field that the federation has no value for is what scontrol prints where it is unset, or it is
left out. ``Site`` is the federation's own.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from federator import __version__
from federator.cli.cancel_ids import job_ids, of_federation
from federator.cli.control_sites import SITE_KINDS, Record, asked
from federator.cli.control_words import entity_of
from federator.cli.flags import Given
from federator.cli.job_record import job_record, limit_text
from federator.cli.node_columns import gres_text, gres_used_text, state_words
from federator.cli.node_lists import expanded, folded
from federator.cli.queue_columns import Shown, time_text
from federator.cli.slurm_json import jobs_of
from federator.cli.text import clock_text, printable, unexpected
from federator.errors import InvalidRequest
from federator.slurm.options.quantities import MAX_ARRAY_INDEX
from federator.wire.client_protocol import (
    NodesCall,
    NodesReply,
    QueueCall,
    QueueReply,
    StatusCall,
    StatusReply,
)
from federator.wire.node_rows import NodeRow, PartitionRow, SiteNodes, unpacked_nodes


def show(given: Given, words: Sequence[str]) -> int:
    """``show job|node|partition|site|config [NAME]``; 1 if there is no such one.

    Raises:
        InvalidRequest: it is something else, or the daemon refuses.
    """
    word, equals, value = (words[0] if words else "").partition("=")
    kind, names = entity_of(word), [value, *words[1:]] if equals else list(words[1:])
    if kind.startswith("host"):
        return _host_names(kind, names)
    if kind == "config":
        return _config(names)
    if kind == "job" and names:
        names = list(of_federation(job_ids(names, to_look=True), given.get("clusters")))
    if "json" in given:
        return _as_json(kind, names)
    records, missing = KINDS[kind](names)
    is_short = "oneliner" in given or kind == "licenses"  # as with scontrol
    end, indent = ("", "    ") if is_short else ("\n", "   ")
    if not (records or missing) and kind == "licenses":
        print("No licenses configured in Slurm.")
    for record in records:
        lines = [" ".join(f"{k}={v}" for k, v in line) for line in record]
        text = " ".join(lines) if "oneliner" in given else f"\n{indent}".join(lines)
        print("\n".join(map(printable, text.split("\n"))))
        print(end=end)
    for text in missing:
        print(printable(text), file=sys.stderr)
    return 1 if missing else 0


def _host_names(kind: str, words: Sequence[str]) -> int:
    """Write out a list of nodes, or fold names into one; no daemon is asked, as with scontrol."""
    text = ",".join(words) or os.environ.get("SLURM_JOB_NODELIST", "")
    if not text:
        raise InvalidRequest(f"show {kind} needs a list of nodes, or SLURM_JOB_NODELIST")
    names = tuple(_in_order(text))
    if kind == "hostlistsorted":
        names = tuple(sorted(set(names), key=_numbered))
    print("\n".join(names) if kind == "hostnames" else folded(names))
    return 0


def _in_order(text: str) -> Iterator[str]:
    """The names of a list, in its order."""
    for part in re.split(r",(?![^\[]*\])", text):
        yield from sorted(expanded(part, "show hostnames"), key=_numbered) if part else ()


def _numbered(name: str) -> list[tuple[int, str]]:
    return [(int(word) if word.isdecimal() else -1, word) for word in re.split(r"(\d+)", name)]


# ---- the federation ----


def ping() -> int:
    """Say whether each site answers; that this can be said shows that the daemon does."""
    status = _status()
    print(printable(f"Slurmctld(primary) at {status.federation} is UP"))
    for row in status.sites:
        print(printable(f"Site {row.name} is {'UP' if row.up else 'DOWN'}"))
    return 0


def _status() -> StatusReply:
    reply = asked(StatusCall())
    if not isinstance(reply, StatusReply):
        raise unexpected(reply)
    return reply


def _config(names: Sequence[str]) -> int:
    """The settings that programs look for in ``scontrol show config``."""
    status = _status()
    settings = {
        "AccountingStorageType": "federator",
        "ClusterName": status.federation,
        "MaxArraySize": str(MAX_ARRAY_INDEX + 1),
        "MinJobAge": f"{status.keep_ended_s:.0f} sec",
        "SLURM_VERSION": f"federator {__version__}",
    }
    wanted = {name.lower() for name in names}
    print(f"Configuration data as of {time_text(status.now_s)}")
    for name, value in settings.items():
        if not wanted or name.lower() in wanted:
            print(printable(f"{name:<24}= {value}"))
    return 0


# ---- jobs ----


def _as_json(kind: str, names: Sequence[str]) -> int:
    if kind != "job":
        raise InvalidRequest(f"show {kind} has no JSON; use fsinfo --json or --json=slurm")
    reply = _queue(names)
    print(msgspec.json.encode(jobs_of(reply.rows, reply.now_s)).decode())
    return 1 if reply.unknown else 0


def _queue(names: Sequence[str]) -> QueueReply:
    ids = job_ids(names, to_look=True) if names else ()
    reply = asked(QueueCall(ids=ids, ended=bool(ids), collapsed=True, files=True, details=True))
    if not isinstance(reply, QueueReply):
        raise unexpected(reply)
    return reply


def _jobs(names: Sequence[str]) -> tuple[list[Record], list[str]]:
    reply = _queue(names)
    missing = ["slurm_load_jobs error: Invalid job id specified"] if reply.unknown else []
    if reply.left_off:
        missing.append(f"fscontrol: {reply.left_off} more jobs are not shown; name ids")
    return [job_record(Shown(row, reply.now_s)) for row in reply.rows], missing


# ---- nodes and partitions ----


def _site_nodes() -> tuple[list[tuple[str, SiteNodes]], list[str]]:
    reply = asked(NodesCall())
    if not isinstance(reply, NodesReply):
        raise unexpected(reply)
    silent = [f"fscontrol: {row.site}: {row.detail}" for row in reply.sites if not row.nodes]
    known = [(row.site, unpacked_nodes(row.nodes)) for row in reply.sites if row.nodes]
    return known, silent


def _nodes(names: Sequence[str]) -> tuple[list[Record], list[str]]:
    """Nodes by name, or ``SITE:NAME``; names of two sites may be the same."""
    sites, missing = _site_nodes()
    wanted = {one for name in names for one in _node_names(name)}
    seen: set[str] = set()
    found: list[Record] = []
    for site, known in sites:
        for node in known.nodes:
            called = {node.name, f"{site}:{node.name}"} & wanted
            seen |= called
            if called or not wanted:
                found.append(_node(site, node))
    return found, missing + [f"Node {name} not found" for name in sorted(wanted - seen)]


def _node_names(text: str) -> Iterable[str]:
    site, colon, names = text.rpartition(":")
    return [f"{site}{colon}{name}" for name in expanded(names, "show node")]


def _node(site: str, node: NodeRow) -> Record:
    return (
        (("NodeName", node.name), ("Site", site)),
        (("CPUAlloc", str(node.cpus_alloc)), ("CPUTot", str(node.cpus))),
        (("AvailableFeatures", ",".join(node.features) or "(null)"),),
        (("Gres", gres_text(node) or "(null)"), ("GresUsed", gres_used_text(node) or "(null)")),
        (("RealMemory", str(node.mem_mib)), ("AllocMem", str(node.mem_mib_alloc))),
        *_built_of(node),
        (("State", "+".join(state_words(node)).upper()), ("Partitions", ",".join(node.partitions))),
        *(((("Reason", node.reason),),) if node.reason else ()),
    )


def _built_of(node: NodeRow) -> Record:
    """As far as its agent tells it."""
    if node.shape is None:
        return ()
    tmp_mib, sockets, cores, threads = map(str, node.shape)
    weight = () if node.weight is None else (("Weight", str(node.weight)),)
    return (
        (("CoresPerSocket", cores), ("Sockets", sockets), ("ThreadsPerCore", threads)),
        (("TmpDisk", tmp_mib), *weight),
    )


def _partitions(names: Sequence[str]) -> tuple[list[Record], list[str]]:
    sites, missing = _site_nodes()
    found = [
        (site, known, partition)
        for site, known in sites
        for partition in known.partitions
        if not names or {partition.name, f"{site}:{partition.name}"} & set(names)
    ]
    seen = {word for site, _, p in found for word in (p.name, f"{site}:{p.name}")}
    missing += [f"Partition {name} not found" for name in names if name not in seen]
    return [_partition(*each) for each in found], missing


def _partition(site: str, known: SiteNodes, partition: PartitionRow) -> Record:
    nodes = [node for node in known.nodes if partition.name in node.partitions]
    default_s = partition.default_time_s
    return (
        (("PartitionName", partition.name), ("Site", site)),
        (("State", "UP" if partition.up else "DOWN"), ("Default", _yes(partition.is_default))),
        (
            ("DefaultTime", "NONE" if default_s is None else clock_text(default_s)),
            ("MaxTime", limit_text(partition.max_time_s)),
        ),
        (
            ("MinNodes", str(partition.min_nodes)),
            ("MaxNodes", "UNLIMITED" if partition.max_nodes is None else str(partition.max_nodes)),
            ("PriorityTier", str(partition.priority_tier)),
            ("PreemptMode", partition.preempt_mode),
        ),
        (("TotalCPUs", str(sum(n.cpus for n in nodes))), ("TotalNodes", str(len(nodes)))),
        (("Nodes", folded([node.name for node in nodes])),),
    )


def _yes(is_so: bool) -> str:
    return "YES" if is_so else "NO"


# ---- sites ----


KINDS: Final[Mapping[str, Callable[[Sequence[str]], tuple[list[Record], list[str]]]]] = (
    MappingProxyType({"job": _jobs, "node": _nodes, "partition": _partitions, **SITE_KINDS})
)
"""What is shown as records; see ``control_words.SHOWN`` for the rest."""
