"""Plans which nodes each partition has, as the commands of ``federator capacity`` show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from federator.cli.client import call
from federator.cli.node_lists import folded
from federator.cli.out_file import out_file
from federator.cli.text import counted, refused, unexpected
from federator.errors import InvalidRequest
from federator.model.site import Snapshot
from federator.wire.agent_protocol import unpacked
from federator.wire.client_protocol import ErrorReply, SnapshotCall, SnapshotReply

if TYPE_CHECKING:
    from federator.planner.capacity.assign import Assignment, Move
    from federator.planner.capacity.fleet import CapacityNode, Want
    from federator.planner.capacity.proof import PartitionHolding

_NO_CHANGE: Final = "nothing to move: every partition is large enough"
Members = dict[str, dict[str, list[str]]]


class Question(NamedTuple):
    """What a plan is made from."""

    snapshots: list[Snapshot]
    nodes: list[CapacityNode]
    wants: tuple[Want, ...]
    members: Members  # nodes by site and partition
    renamed: Callable[[str, str], str]  # what a site calls a partition
    plan: Callable[[Sequence[CapacityNode], float], Assignment]  # nodes, seconds of each search


def question(
    wants: Path, config: Path | None, files: Sequence[Path], sites: Sequence[str]
) -> Question:
    """Read the wants, and ask for the sites' nodes, or read them.

    Args:
        wants: wants.yaml.
        config: federation.yaml, to ask the daemon; None: ``files`` are snapshots.
        files: a site's snapshot each.
        sites: only these; empty: all.

    Raises:
        InvalidRequest: a file cannot be read, or names what no site has; its ``plan`` also where
            no plan meets every want.
        SiteUnavailable: the daemon, or a site, does not answer.
    """
    from federator.cli.capacity_names import check_names  # noqa: PLC0415  # pydantic
    from federator.cli.capacity_wants import nodes_of, read_wants, wants_at  # noqa: PLC0415  # pydantic
    from federator.planner.capacity.assign import assign, checked  # noqa: PLC0415  # numpy

    file = read_wants(wants)
    taken, known, renamed = _taken(config, files, sites)
    nodes, members = nodes_of(taken, file)
    check_names(wants, file, taken, known)
    wanted = wants_at(file, members)
    return Question(
        snapshots=taken,
        nodes=nodes,
        wants=wanted,
        members=members,
        renamed=renamed,
        plan=lambda given, limit_s: checked(assign(given, wanted, file.as_costs, limit_s)),
    )


def _taken(
    config: Path | None, files: Sequence[Path], sites: Sequence[str]
) -> tuple[list[Snapshot], list[str], Callable[[str, str], str]]:
    """Snapshots, the names of all sites, and what each site calls a partition."""
    from federator.cli.bid_files import read_snapshot  # noqa: PLC0415

    if (config is None) == (not files):
        raise InvalidRequest("give --config, to ask the daemon, or --snapshot for each site")
    if config is None:
        taken = [read_snapshot(path) for path in files]
        known = sorted({str(snapshot.site) for snapshot in taken})
        if len(known) < len(taken):
            raise InvalidRequest("--snapshot: two files are of the same site")
        _check_sites(sites, known)
        return [s for s in taken if not sites or s.site in sites], known, lambda _, name: name
    from federator.config import load_config  # noqa: PLC0415  # pydantic

    federation = load_config(config)
    _check_sites(sites, list(federation.sites))
    names = {str(site): own.names.partitions for site, own in federation.sites.items()}
    live = [_asked(site) for site in federation.sites if not sites or site in sites]
    return live, list(names), lambda site, name: names[site].get(name, name)


def _check_sites(sites: Sequence[str], known: Sequence[str]) -> None:
    for site in sites:
        if site not in known:
            raise InvalidRequest(f"--site: no site {site[:80]!r}; there are {', '.join(known)}")


def _asked(site: str) -> Snapshot:
    reply = call(SnapshotCall(site=site))
    if isinstance(reply, ErrorReply):
        raise refused(reply)
    if not isinstance(reply, SnapshotReply):
        raise unexpected(reply)
    return unpacked(reply.snapshot)


def write_scripts(out: Path, found: Assignment, asked: Question) -> None:
    """Write a script for each site with moves.

    Raises:
        InvalidRequest: the folder cannot be made, or a file not written.
    """
    from federator.planner.capacity.script import Listing, site_script, steps_of  # noqa: PLC0415

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(f"--out: {out}: cannot be made: {error.strerror}") from error
    steps = steps_of(found)
    for site in sorted({move.node.site for move in steps}):
        listing = Listing(
            members=asked.members[site],
            fold=folded,
            renamed=lambda name, site=site: asked.renamed(site, name),  # type: ignore[misc]
        )
        with out_file(out / f"{site}.sh", "--out") as file:
            assert file is not None
            file.write(site_script(site, steps, listing))


def plan_lines(found: Assignment, most: int, out: Path | None) -> list[str]:
    """The table, the cost, and the first moves; ``out``: where scripts are."""
    before = {holding.want.name: holding for holding in found.before}
    names = max(9, *(len(holding.want.name) for holding in found.after))
    lines = [
        f"{'PARTITION':<{names}} {'NODES':>13} {'SIZE':>7} {'HAS':>17} {'AFTER ANY LOSS':>17} WORST"
    ]
    lines += [_holding_line(before[h.want.name], h, names) for h in found.after]
    lines += ["", _cost_line(found)]
    lines += [_move_text(move) for move in found.moves[:most]]
    if len(found.moves) > most:
        lines.append(f"… {len(found.moves) - most} more; --most, --json or --out shows them")
    if out is not None and found.moves:
        lines.append(f"scripts are in {out}; nothing has been changed")
    return lines


def _holding_line(before: PartitionHolding, after: PartitionHolding, names: int) -> str:
    want = after.want
    return (
        f"{want.name:<{names}} {f'{before.nodes} > {after.nodes}':>13} {want.need:>7} "
        f"{f'{before.amount} > {after.amount}':>17} {f'{before.left} > {after.left}':>17} "
        f"{after.worst or '-'}"
    )


def _cost_line(found: Assignment) -> str:
    if not found.moves:
        return _NO_CHANGE
    assert found.cost is not None
    drains = sum(bool(move.old) for move in found.moves)
    return (
        f"{counted(len(found.moves), 'move')}, {drains} of them out of a partition; cost "
        f"{found.cost:.2f}, {_above(found)} the bound of {found.bound:.2f}"
    )


def _above(found: Assignment) -> str:
    if found.above_frac == float("inf"):
        return "above"
    return f"{found.above_frac:.2%} above" if found.above_frac else "at"


def _move_text(move: Move) -> str:
    busy = ", busy" if move.node.busy else ""
    return (
        f"{move.node.site}:{move.node.name}: {move.old or 'spare'} > {move.new or 'spare'}"
        f"{busy}: {move.why}"
    )
