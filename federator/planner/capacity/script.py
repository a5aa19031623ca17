"""The shell script that carries out an assignment at one site, node by node; nothing runs it here.

A node leaves its partition only when it is drained, and a partition's list of nodes is written
whole, because that is what every Slurm from 22.05 on takes. The script prints what it would do; it
does so only with --apply, and only where a partition has the nodes that the plan expects then. A
step that was stopped is done again: what it has changed already is left as it is.
"""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from federator.planner.capacity.assign import Assignment, Move

HEAD: Final = """\
#!/bin/sh
# Partitions of {site}: {count}. Made by 'federator capacity plan'.
# Prints what it would do; 'sh {name} --apply' does it, as an admin of Slurm, node by node. If it
# stops, the number of the step has it go on from there: 'sh {name} --apply 3'.
set -eu
apply=; first=1
usage() {{
    echo "usage: sh SITE.sh [--apply [STEP]], with a step from 1 to {steps}" >&2; exit 64
}}
case $#:${{1:-}} in
    0:) ;;
    1:--apply) apply=yes ;;
    2:--apply) apply=yes; first=$2 ;;
    *) usage ;;
esac
case $first in ''|*[!0-9]*) usage ;; esac
[ "$first" -ge 1 ] && [ "$first" -le {steps} ] || usage
step() {{ # its number, and what it does; fails where it is to be left out
    [ "$first" -le "$1" ] || return 1
    printf 'step %s\\n' "$1. $2"
}}
hosts() {{ # the names in a host list
    [ -n "$1" ] || return 0
    names=$(scontrol show hostnames "$1") || {{ echo "scontrol cannot read $1" >&2; return 1; }}
    printf '%s\\n' "$names" | sort
}}
ask() {{ # a partition: which nodes it has now
    shown=$(scontrol -o show partition "$1") || shown=
    case $shown in
        PartitionName=*) ;;
        *) echo "scontrol does not show partition $1" >&2; exit 1 ;;
    esac
    nodes=$(printf '%s\\n' "$shown" | tr ' ' '\\n' | sed -n 's/^Nodes=//p')
    if [ "$nodes" = "(null)" ]; then nodes=; fi
    now=$(hosts "$nodes") || exit 1
}}
check() {{ # a partition, and its nodes before and after a step
    [ -n "$apply" ] || return 0
    ask "$1"
    before=$(hosts "$2") || exit 1
    after=$(hosts "$3") || exit 1
    if [ "$now" != "$before" ] && [ "$now" != "$after" ]; then
        echo "partition $1 has other nodes than planned; make a new plan" >&2
        exit 1
    fi
}}
start() {{ # as check, of the first step; later ones check what they change
    [ -n "$apply" ] || return 0
    if [ "$first" -eq 1 ]; then check "$@"; else ask "$1"; fi
}}
put() {{ # as check, and gives it the nodes after
    if [ -z "$apply" ]; then echo "scontrol update PartitionName=$1 Nodes=$3"; return 0; fi
    check "$@"
    if [ "$now" != "$after" ]; then scontrol update "PartitionName=$1" "Nodes=$3"; fi
}}
look() {{ # at a node: its state, and why it is out of service; one that is back may keep a reason
    shown=$(scontrol -o show node "$1") || {{ echo "scontrol does not show node $1" >&2; exit 1; }}
    state=$(printf '%s\\n' "$shown" | sed -n 's/ Reason=.*//; s/.* State=\\([^ ]*\\).*/\\1/p')
    why=
    case $state in *DRAIN*|*DOWN*|*FAIL*)
        why=$(printf '%s\\n' "$shown" | sed -n 's/.* Reason=\\(.*\\) \\[[^]]*\\].*/\\1/p') ;;
    esac
}}
empty() {{ # a node, and why: drains it, and waits until no job is left there
    if [ -z "$apply" ]; then
        echo "scontrol update NodeName=$1 State=DRAIN Reason='$2', and wait for its jobs"
        return 0
    fi
    look "$1"
    case $why in
        ''|"capacity plan: "*) ;;
        *) echo "$1 is drained for another reason: $why" >&2; exit 1 ;;
    esac
    scontrol update "NodeName=$1" State=DRAIN "Reason=$2"
    until jobs=$(squeue -h -w "$1" -o %i) && [ -z "$jobs" ]; do sleep 30; done
}}
open_again() {{ # a node, unless it failed or was drained for another reason meanwhile
    if [ -z "$apply" ]; then echo "scontrol update NodeName=$1 State=RESUME"; return 0; fi
    look "$1"
    case $state:$why in
        *DOWN*:*|*FAIL*:*) echo "$1 is not resumed, its state is $state: $why" >&2 ;;
        *:"capacity plan: "*) scontrol update "NodeName=$1" State=RESUME ;;
        *) echo "$1 stays drained: $why" >&2 ;;
    esac
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
    for move in joins:
        beyond[move.new] += amount[move.new](move.node)
    queues: dict[str, deque[tuple[int, Move]]] = {}
    for number, move in enumerate(found.moves):
        if move.old:
            queues.setdefault(move.old, deque()).append((-number, move))
    steps = list(joins)
    while queues:
        old = max(queues, key=lambda name: (beyond[name], queues[name][0][0]))
        _, move = queues[old].popleft()
        if not queues[old]:
            del queues[old]
        beyond[old] -= amount[old](move.node)
        if move.new:
            beyond[move.new] += amount[move.new](move.node)
        steps.append(move)
    return steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A site's partitions as they are.

    Attributes:
        members: all nodes of each partition, those that the plan cannot use too. Of the spare
            partitions as well: ``Move.old`` is "" for their nodes.
        fold: makes a host list of names.
        renamed: what the site calls a partition.
    """

    members: Mapping[str, Sequence[str]]
    fold: Callable[[Sequence[str]], str]
    renamed: Callable[[str], str]


def site_script(site: str, steps: Sequence[Move], listing: Listing) -> str:
    """The script of one site with moves, from ``steps_of`` the plan."""
    steps = [move for move in steps if move.node.site == site]
    text = _Text(listing)
    touched = text.touched(steps)
    planned = {p: text.nodes(p) for p in touched}
    body = text.step(1, steps[0])
    start = [f"start {text.name(p)} {planned[p]} {text.nodes(p)}" for p in touched]
    for number, move in enumerate(steps[1:], start=2):
        body += ["", *text.step(number, move)]
    count = f"{len(steps)} node{'s' * (len(steps) != 1)} to move"
    name = shlex.quote(f"{site}.sh")
    lines = [HEAD.format(site=_plain(site), count=count, name=name, steps=len(steps))]
    lines += [*start, "", *body, "", "# In slurm.conf, or Slurm forgets it at its next start:"]
    lines += [f"# PartitionName={text.name(p)} Nodes={text.nodes(p)}" for p in touched]
    return "\n".join(lines) + "\n"


class _Text:
    """Lines of a script, and the partitions' nodes as its steps change them."""

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._now = {name: list(own) for name, own in listing.members.items()}

    def touched(self, steps: Sequence[Move]) -> list[str]:
        names = {move.node.name for move in steps}
        gives = {p for p, own in self._now.items() if not names.isdisjoint(own)}
        return sorted(gives | {move.new for move in steps if move.new})

    def name(self, partition: str) -> str:
        return shlex.quote(self._listing.renamed(partition))

    def nodes(self, partition: str) -> str:
        return shlex.quote(self._listing.fold(self._now.get(partition, [])))

    def step(self, number: int, move: Move) -> list[str]:
        """Empty a node, take it out of its partitions, put it into its new one, and open it."""
        node, new = move.node.name, move.new or "spare"
        title = f"{node}: {move.old or 'spare'} -> {new}: {move.why}"
        changed = [partition for partition, own in self._now.items() if node in own]
        before = {partition: self.nodes(partition) for partition in (*changed, move.new)}
        for partition in changed:
            self._now[partition].remove(node)
        if move.new:
            self._now.setdefault(move.new, []).append(node)
            changed.append(move.new)
        lists = [f"{self.name(p)} {before[p]} {self.nodes(p)}" for p in changed]
        inner = [f"check {own}" for own in lists]
        inner.append(f"empty {shlex.quote(node)} {shlex.quote(f'capacity plan: to {_plain(new)}')}")
        inner += [f"put {own}" for own in lists]
        inner.append(f"open_again {shlex.quote(node)}")
        begin = f"if step {number} {shlex.quote(_plain(title))}; then"
        return [begin, *(f"    {line}" for line in inner), "fi"]


def _plain(text: str) -> str:
    """Text that stays in its comment, whatever a site calls its nodes."""
    return "".join(c if c.isprintable() else "?" for c in text)
