"""The shell script that carries out an assignment at one site, node by node; nothing runs it here.

A node leaves its partition only when it is drained, and a partition's list of nodes is written
whole, because that is what every Slurm from 22.05 on takes. The script prints what it would do; it
does so only with --apply, and only where the partitions are as the plan found them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Final

from federator.planner.capacity.assign import Assignment, Move
from federator.planner.capacity.fleet import CapacityNode

HEAD: Final = """\
#!/bin/sh
# Partitions of {site}: {count}. Made by 'federator capacity plan'.
# Prints what it would do; 'sh {name} --apply' does it, as an admin of Slurm, and may be begun anew
# with the number of a step, to go on from there: 'sh {name} --apply 3'.
set -eu
apply=; first=1
if [ "${{1:-}}" = --apply ]; then apply=yes; first=${{2:-1}}; fi
run() {{
    if [ -n "$apply" ]; then "$@"; else printf '%s ' "$@"; echo; fi
}}
hosts() {{
    if [ -n "$1" ]; then scontrol show hostnames "$1" | sort; fi
}}
as_planned() {{ # a partition, and its nodes when the plan was made
    [ -n "$apply" ] && [ "$first" -eq 1 ] || return 0
    now=$(scontrol -o show partition "$1" | tr ' ' '\\n' | sed -n 's/^Nodes=//p')
    if [ "$now" = "(null)" ]; then now=; fi
    if [ "$(hosts "$now")" != "$(hosts "$2")" ]; then
        echo "partition $1 has other nodes than when the plan was made; make a new one" >&2
        exit 1
    fi
}}
emptied() {{ # waits until no job is left on a node
    [ -n "$apply" ] || {{ echo "# waits until no job is left on $1"; return 0; }}
    while [ -n "$(squeue -h -w "$1" -o %i)" ]; do sleep 30; done
}}
"""


def steps_of(found: Assignment) -> list[Move]:
    """The moves in an order in which no partition falls below its plan sooner than it must.

    Those from no partition come first; then each time the partition with most beyond its want
    gives a node.
    """
    beyond = {h.want.name: h.amount - h.want.need for h in found.before}
    amount = {h.want.name: h.want.amount for h in found.before}
    joins = [move for move in found.moves if not move.old]
    leaves = [move for move in found.moves if move.old]
    for move in joins:
        beyond[move.new] += amount[move.new](move.node)
    steps = list(joins)
    while leaves:
        best = max(leaves, key=lambda move: (beyond[move.old], -leaves.index(move)))
        leaves.remove(best)
        beyond[best.old] -= amount[best.old](best.node)
        if best.new:
            beyond[best.new] += amount[best.new](best.node)
        steps.append(best)
    return steps


def site_script(
    site: str,
    found: Assignment,
    members: dict[str, list[str]],
    fold: Callable[[Sequence[str]], str],
) -> str:
    """The script of one site.

    Args:
        site: its name.
        found: the plan of all sites.
        members: all nodes of each partition as it is, those that the plan cannot use too. Of the
            spare partitions as well: ``Move.old`` is "" for their nodes.
        fold: makes a host list of names.
    """
    steps = [move for move in steps_of(found) if move.node.site == site]
    now = {name: list(own) for name, own in members.items()}
    touched = _touched(steps, now)
    count = f"{len(steps)} node{'s' * (len(steps) != 1)} to move"
    lines = [HEAD.format(site=site, count=count, name=f"{site}.sh")]
    lines += [f"as_planned {shlex.quote(p)} {shlex.quote(fold(now.get(p, [])))}" for p in touched]
    for number, move in enumerate(steps, start=1):
        lines += ["", *_step(number, move, now, fold)]
    lines += ["", "# In slurm.conf, or Slurm forgets it at its next start:"]
    lines += [f"# PartitionName={p} Nodes={fold(now[p])}" for p in touched if p in now]
    return "\n".join(lines) + "\n"


def _touched(steps: Sequence[Move], members: dict[str, list[str]]) -> list[str]:
    names = {move.node.name for move in steps}
    gives = {p for p, own in members.items() if not names.isdisjoint(own)}
    return sorted(gives | {move.new for move in steps if move.new})


def _step(
    number: int, move: Move, now: dict[str, list[str]], fold: Callable[[Sequence[str]], str]
) -> list[str]:
    node: CapacityNode = move.node
    name = shlex.quote(node.name)
    old = [p for p, own in now.items() if node.name in own and p != move.new]
    lines = [f"# {number}. {node.name}: {move.old or 'spare'} -> {move.new or 'spare'}: {move.why}"]
    lines.append(f'if [ "$first" -le {number} ]; then')
    reason = shlex.quote(f"capacity plan: to {move.new or 'spare'}")
    inner = [f"run scontrol update NodeName={name} State=DRAIN Reason={reason}", f"emptied {name}"]
    for partition in old:
        now[partition].remove(node.name)
        inner.append(_nodes(partition, now[partition], fold))
    if move.new:
        own = now.setdefault(move.new, [])
        own.append(node.name)
        inner.append(_nodes(move.new, own, fold))
    inner.append(f"run scontrol update NodeName={name} State=RESUME")
    return [*lines, *(f"    {line}" for line in inner), "fi"]


def _nodes(partition: str, nodes: Sequence[str], fold: Callable[[Sequence[str]], str]) -> str:
    # '' takes the last node away; 'ALL' is never written.
    return (
        f"run scontrol update PartitionName={shlex.quote(partition)} "
        f"Nodes={shlex.quote(fold(nodes))}"
    )
