"""The shell script that carries out an assignment at one site, node by node; nothing runs it here.

A node leaves its partition only when it is drained, and a partition's list of nodes is written
whole, because that is what every Slurm from 22.05 on takes. The script prints what it would do; it
does so only with --apply, and only where the partitions are as the plan found them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from federator.planner.capacity.assign import Assignment, Move

HEAD: Final = """\
#!/bin/sh
# Partitions of {site}: {count}. Made by 'federator capacity plan'.
# Prints what it would do; 'sh {name} --apply' does it, as an admin of Slurm, node by node. If it
# stops, a step's number has it go on from there: 'sh {name} --apply 3'.
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


def site_script(site: str, found: Assignment, listing: Listing) -> str:
    """The script of one site, from the plan of all."""
    steps = [move for move in steps_of(found) if move.node.site == site]
    text = _Text(listing)
    touched = text.touched(steps)
    count = f"{len(steps)} node{'s' * (len(steps) != 1)} to move"
    lines = [HEAD.format(site=_plain(site), count=count, name=shlex.quote(f"{site}.sh"))]
    lines += [f"as_planned {text.name(p)} {text.nodes(p)}" for p in touched]
    for number, move in enumerate(steps, start=1):
        lines += ["", *text.step(number, move)]
    lines += ["", "# In slurm.conf, or Slurm forgets it at its next start:"]
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
        name, new = shlex.quote(move.node.name), move.new or "spare"
        title = f"{number}. {move.node.name}: {move.old or 'spare'} -> {new}: {move.why}"
        reason = shlex.quote(f"capacity plan: to {_plain(new)}")
        inner = [f"empty {name} {reason}"]
        for partition, own in self._now.items():
            if move.node.name in own:
                own.remove(move.node.name)
                inner.append(self._update(partition))
        if move.new:
            self._now.setdefault(move.new, []).append(move.node.name)
            inner.append(self._update(move.new))
        inner.append(f"open_again {name}")
        begin = f'if [ "$first" -le {number} ]; then'
        return [f"# {_plain(title)}", begin, *(f"    {line}" for line in inner), "fi"]

    def _update(self, partition: str) -> str:
        name, nodes = self.name(partition), self.nodes(partition)
        return f"run scontrol update PartitionName={name} Nodes={nodes}"


def _plain(text: str) -> str:
    """Text that stays in its comment, whatever a site calls its nodes."""
    return "".join(c if c.isprintable() else "?" for c in text)
