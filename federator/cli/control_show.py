"""Shows jobs, nodes, partitions and sites as ``scontrol show`` does: records of NAME=VALUE.

A field that the federation has no value for is what scontrol prints where it is unset, or it is
left out. ``Site``, ``SiteJobId``, ``GPUs`` and ``Project`` are the federation's own.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import Final

from federator.cli.cancel_ids import job_ids
from federator.cli.client import ask
from federator.cli.flags import Given
from federator.cli.job_states import state_name
from federator.cli.node_columns import gres_text, gres_used_text, state_of
from federator.cli.node_lists import expanded, folded
from federator.cli.queue_columns import (
    Shown,
    elapsed_s,
    eligible_s,
    end_s,
    limit_text,
    mebibytes_text,
    own_id,
    reason_word,
    seconds_text,
    time_text,
)
from federator.cli.text import printable, unexpected
from federator.errors import InvalidRequest
from federator.wire.client_protocol import (
    ErrorReply,
    NodesCall,
    NodesReply,
    QueueCall,
    QueueReply,
    SiteRow,
    SitesCall,
    SitesReply,
)
from federator.wire.node_rows import NodeRow, PartitionRow, SiteNodes, unpacked_nodes
from federator.wire.replies import Reply

Record = tuple[tuple[tuple[str, str], ...], ...]
"""Lines of fields with their values."""


def show(given: Given, words: Sequence[str]) -> int:
    """``show job|node|partition|site [NAME]``; 1 if there is no such one.

    Raises:
        InvalidRequest: it is something else, or the daemon refuses.
    """
    kind = words[0].lower() if words else ""
    if kind in ("hostnames", "hostlist"):
        return _host_names(kind, words[1:])
    name, names = kind, list(words[1:])
    if "=" in kind:
        name, _, value = words[0].partition("=")
        name, names = name.lower(), [value]
    found = next((k for k in KINDS if name.startswith(k) or (name[1:] and k.startswith(name))), "")
    if not found:
        raise InvalidRequest(
            f"invalid entity: {printable(kind) or 'none'}; one of {', '.join(KINDS)} is shown here"
        )
    records, missing = KINDS[found](names)
    end = "" if "oneliner" in given else "\n"
    for record in records:
        lines = [" ".join(f"{k}={v}" for k, v in line) for line in record]
        text = " ".join(lines) if "oneliner" in given else "\n   ".join(lines)
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
    print(folded(names) if kind == "hostlist" else "\n".join(names))
    return 0


def _in_order(text: str) -> Iterator[str]:
    """The names of a list, in its order."""
    for part in re.split(r",(?![^\[]*\])", text):
        yield from sorted(expanded(part, "show hostnames"), key=_numbered) if part else ()


def _numbered(name: str) -> list[tuple[int, str]]:
    return [(int(word) if word.isdecimal() else -1, word) for word in re.split(r"(\d+)", name)]


def _asked(message: QueueCall | NodesCall | SitesCall) -> Reply:
    reply = ask(message, lambda text: print(printable(f"fscontrol: {text}"), file=sys.stderr))
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    return reply


# ---- jobs ----


def _jobs(names: Sequence[str]) -> tuple[list[Record], list[str]]:
    ids = job_ids(names) if names else ()
    reply = _asked(QueueCall(ids=ids, ended=bool(ids), collapsed=True, files=True, details=True))
    if not isinstance(reply, QueueReply):
        raise unexpected(reply)
    missing = ["slurm_load_jobs error: Invalid job id specified"] if reply.unknown else []
    if reply.left_off:
        missing.append(f"fscontrol: {reply.left_off} more jobs are not shown; name ids")
    return [_job(Shown(row, reply.now_s)) for row in reply.rows], missing


def _job(shown: Shown) -> Record:
    row, details = shown.row, shown.details
    array: tuple[tuple[str, str], ...] = ()
    if row.array_id:
        tasks = row.array_tasks.strip("[]") or str(row.array_index)
        array = (("ArrayJobId", str(row.array_id)), ("ArrayTaskId", tasks))
    return (
        (("JobId", str(own_id(row))), *array, ("JobName", row.name)),
        (("UserId", row.user), ("Account", row.tenant), ("QOS", shown.option("qos", "(null)"))),
        (("Priority", str(row.priority)), ("Nice", str(details.nice)),
         ("Project", row.project or "(null)")),
        (("JobState", state_name(row)), ("Reason", reason_word(shown)),
         ("Dependency", details.dependency or "(null)")),
        (("Requeue", str(int(details.requeue))), ("Restarts", str(details.restarts)),
         ("BatchFlag", "1"), ("ExitCode", f"{row.exit_code or 0}:{row.signal}")),
        (("RunTime", seconds_text(elapsed_s(shown))), ("TimeLimit", limit_text(shown)),
         ("TimeMin", shown.option("time-min", "N/A"))),
        *_times(shown),
        *_place(shown),
        *_files(shown),
    )  # fmt: skip


def _times(shown: Shown) -> Iterator[tuple[tuple[str, str], ...]]:
    row = shown.row
    yield (
        ("SubmitTime", _known(row.submitted_at_s)),
        ("EligibleTime", _known(eligible_s(shown))),
    )
    end = end_s(shown)
    yield ("StartTime", _known(row.started_at_s)), ("EndTime", _known(0.0 if end == inf else end))


def _known(at_s: float) -> str:
    return time_text(at_s) if at_s else "Unknown"


def _place(shown: Shown) -> Iterator[tuple[tuple[str, str], ...]]:
    row, details = shown.row, shown.details
    site_job = str(row.site_job_id) if row.site_job_id else "(null)"
    yield ("Site", row.site or "(null)"), ("SiteJobId", site_job)
    yield (
        ("Partition", ",".join(details.partitions) or "(null)"),
        ("NodeList", folded(row.node_names)),
    )
    yield (
        ("NumNodes", str(row.nodes)),
        ("NumCPUs", str(details.cpus)),
        ("GPUs", str(row.gpus)),
        ("NumTasks", shown.option("ntasks", str(row.nodes or 1))),
        ("CPUs/Task", shown.option("cpus-per-task", "1")),
    )
    yield (
        ("MinCPUsNode", str(details.min_cpus)),
        ("MinMemoryNode", mebibytes_text(details.min_mem_mib, convert=True)),
        ("Features", shown.option("constraint", "(null)")),
    )


def _files(shown: Shown) -> Iterator[tuple[tuple[str, str], ...]]:
    row = shown.row
    yield (("Comment", shown.option("comment", "(null)")),)
    for name, path in (
        ("WorkDir", row.work_dir),
        ("StdErr", row.stderr or row.stdout),
        ("StdIn", row.stdin),
        ("StdOut", row.stdout),
    ):
        yield ((name, path or "(null)"),)


# ---- nodes and partitions ----


def _site_nodes() -> tuple[list[tuple[str, SiteNodes]], list[str]]:
    reply = _asked(NodesCall())
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
        (("Gres", gres_text(node)), ("GresUsed", gres_used_text(node))),
        (("RealMemory", str(node.mem_mib)), ("AllocMem", str(node.mem_mib_alloc))),
        (("State", state_of(node).upper()), ("Partitions", ",".join(node.partitions))),
        *(((("Reason", node.reason),),) if node.reason else ()),
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
    limit = "UNLIMITED" if partition.max_time_s == inf else seconds_text(partition.max_time_s)
    return (
        (("PartitionName", partition.name), ("Site", site)),
        (("State", "UP" if partition.up else "DOWN"), ("MaxTime", limit)),
        (("TotalCPUs", str(sum(n.cpus for n in nodes))), ("TotalNodes", str(len(nodes)))),
        (("Nodes", folded([node.name for node in nodes])),),
    )


# ---- sites ----


def _sites(names: Sequence[str]) -> tuple[list[Record], list[str]]:
    reply = _asked(SitesCall())
    if not isinstance(reply, SitesReply):
        raise unexpected(reply)
    found = [row for row in reply.sites if not names or row.name in names]
    missing = set(names) - {row.name for row in found}
    return [_site(row) for row in found], [f"Site {name} not found" for name in sorted(missing)]


def _site(row: SiteRow) -> Record:
    nodes = sum(
        p.nodes_allocated + p.nodes_mixed + p.nodes_idle + p.nodes_drained + p.nodes_down
        for p in row.partitions
    )
    gpus = sum(p.gpus for p in row.partitions)
    return (
        (("SiteName", row.name), ("Region", row.region), ("State", "UP" if row.up else "DOWN")),
        (("SlurmVersion", row.slurm_version or "Unknown"), ("DownSince", _known(row.down_since_s))),
        (("TotalNodes", str(nodes)), ("TotalGPUs", str(gpus)),
         ("AllocGPUs", str(sum(p.gpus_alloc for p in row.partitions)))),
        (("Partitions", ",".join(dict.fromkeys(p.partition for p in row.partitions))),),
    )  # fmt: skip


KINDS: Final[Mapping[str, Callable[[Sequence[str]], tuple[list[Record], list[str]]]]] = (
    MappingProxyType({"job": _jobs, "node": _nodes, "partition": _partitions, "site": _sites})
)
"""What is shown, by scontrol's word; its beginning, of two letters or more, is enough."""
