"""fsinfo with sinfo's options: every site is asked for its nodes, which stand in sinfo's rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from federator.cli.client import call
from federator.cli.columns import Format, by_letters, by_names, fitted, lines
from federator.cli.flags import Given
from federator.cli.node_columns import COLUMNS, Group, SiteOf
from federator.cli.node_groups import STATES, Site, Wanted, asked_states, rows_of, sorted_groups
from federator.cli.node_lists import expanded
from federator.cli.text import listed, printable, unexpected
from federator.errors import InvalidRequest, SiteUnavailable
from federator.wire.client_protocol import ErrorReply, NodesCall, NodesReply, SiteNodesRow
from federator.wire.node_rows import NodeRow, unpacked_nodes

_SUMMARY: Final = "Partition:9 ,Cluster:8 ,Available:.5 ,Time:.10 ,NodeAIOT:.16 ,NodeList:"
_NODE: Final = "NodeList: ,Nodes:.6 ,Partition:.9 ,Cluster:8 ,StateCompact:6"
_NODE_LONG: Final = (
    "NodeList: ,Nodes:.6 ,Partition:.9 ,Cluster:8 ,StateLong:.11 ,CPUs:4 ,"
    "SocketCoreThread:.8 ,Memory:.6 ,Disk:.8 ,Weight:.6 ,Features:.8 ,Reason:20"
)
_REASONS: Final = "Reason:20 ,User:9 ,TimeStamp:19 ,Cluster:8 ,NodeList:"
_REASONS_LONG: Final = "Reason:20 ,UserLong:12 ,TimeStamp:19 ,StateCompact:6 ,Cluster:8 ,NodeList:"
_PLAIN: Final = (
    "Partition:9 ,Cluster:8 ,Available:.5 ,Time:.10 ,Nodes:.6 ,StateCompact:.6 ,NodeList:"
)
_LONG: Final = (
    "Partition:9 ,Cluster:8 ,Available:.5 ,Time:.10 ,Size:.10 ,Root:.4 ,OverSubscribe:.8 ,"
    "Groups:.10 ,Nodes:.6 ,StateLong:.11 ,Reservation:.11 ,NodeList:"
)
_VIEWS: Final = {
    "summarize": (_SUMMARY, _SUMMARY),
    "Node": (_NODE, _NODE_LONG),
    "list-reasons": (_REASONS, _REASONS_LONG),
}
_DISTINCT: Final = frozenset(
    {"Partition", "StateLong", "Gres", "GresUsed", "Features", "Reason", "Cluster"}
)  # in JSON
_SITE: Final = "Cluster:8 ,"
_OUT_OF_USE: Final = "down,fail,drain"


def show_help(asked: Collection[str]) -> int:
    """List what options can name."""
    if "helpstate" in asked:
        print("\n".join(state for state, _ in STATES))
    elif "helpformat" in asked:
        print(" ".join(f"%{column.letter}" for column in COLUMNS if column.letter))
    else:
        print("\n".join(column.name for column in COLUMNS))
    return 0


def show(given: Given, environment: Mapping[str, str], *, with_site: bool = True) -> int:
    """Print the table; 1 if no site has listed its nodes.

    ``with_site``: where no format is given, rows show their site, as a column more than sinfo's.
    """
    form = _form(given, environment, with_site=with_site)
    sites, status = _sites(given)
    each_node = "Node" in given
    wanted = Wanted(
        columns=frozenset(field.column.name for field in form.fields),
        keep=_kept(given),
        partitions=listed(given.get("partition")),
        each_node=each_node,
        exact="exact" in given,
        empty=not (each_node or "list-reasons" in given),
    )
    groups = rows_of(sites, wanted)
    rows = sorted_groups(groups, given.get("sort"), each_node=each_node)
    header = "noheader" not in given
    if header and ("long" in given or "iterate" in given):
        print(time.strftime("%a %b %d %H:%M:%S %Y"))
    if not {"format", "Format"} & set(given.values):
        form = _wide_enough(form, rows)
    for line in lines(form, rows, header=header):
        print(line)
    return status


def _wide_enough(form: Format[Group], rows: list[Group]) -> Format[Group]:
    for name in ("Partition", "Cluster"):
        form = fitted(form, name, rows)
    if form.fields[0].column.name == "NodeList":  # of -N, where it comes first
        form = fitted(form, "NodeList", rows)
        first = form.fields[0]._replace(width=max(form.fields[0].width, len("NODELIST")))
        form = form._replace(fields=(first, *form.fields[1:]))
    return form


def _form(given: Given, environment: Mapping[str, str], *, with_site: bool) -> Format[Group]:
    letters, names = given.get("format"), given.get("Format")
    is_long = "long" in given
    if is_long and (letters is not None or names is not None):
        raise InvalidRequest(
            "Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and "
            "retry."
        )
    if letters is not None:
        return by_letters(letters, COLUMNS, "node")
    if names is not None:
        return by_names(names, COLUMNS)
    view = next((_VIEWS[option] for option in _VIEWS if option in given), None)
    if view is None and "SINFO_FORMAT" in environment:
        return by_letters(environment["SINFO_FORMAT"], COLUMNS, "node")
    text = (view or (_PLAIN, _LONG))[is_long]
    return by_names(text if with_site else text.replace(_SITE, ""), COLUMNS)


def _kept(given: Given) -> Callable[[NodeRow], bool]:
    """Which nodes the options leave."""
    states = given.get("states")
    if states is None and "list-reasons" in given:
        states = _OUT_OF_USE
    in_state = asked_states(states) if states is not None else None
    text = given.get("nodes")
    names = expanded(text, "--nodes") if text is not None else None

    def keep(node: NodeRow) -> bool:
        return (
            (in_state is None or in_state(node))
            and (names is None or node.name in names)
            and ("dead" not in given or node.state == "down")
            and ("responding" not in given or node.state != "down")
        )

    return keep


# ---- the answer ----


def _sites(given: Given) -> tuple[list[Site], int]:
    """The sites that have listed their nodes; of the others the reason is said."""
    reply = call(NodesCall(clusters=listed(given.get("clusters"))))
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    if not isinstance(reply, NodesReply):
        raise unexpected(reply)
    from federator.cli.fsinfo import say  # noqa: PLC0415  # which imports this

    sites = [site for row in reply.sites if (site := _site(row)) is not None]
    for row in reply.sites:
        if not row.nodes:
            say(f"the nodes of site {row.site} are not known: {printable(row.detail)}")
    return sites, 1 if reply.sites and not sites else 0


def _site(row: SiteNodesRow) -> Site | None:
    if not row.nodes:
        return None
    try:
        nodes = unpacked_nodes(row.nodes)
    except ValueError as error:
        raise SiteUnavailable(f"the nodes of site {row.site} cannot be read: {error}") from error
    return SiteOf(row.site, row.region, row.slurm_version), nodes


def show_json(given: Given) -> int:
    """Print the rows as ``sinfo --json`` does."""
    from federator.cli.slurm_json import nodes_of  # noqa: PLC0415

    sites, status = _sites(given)
    wanted = Wanted(
        columns=_DISTINCT,
        keep=_kept(given),
        partitions=listed(given.get("partition")),
        each_node="Node" in given,
    )
    print(msgspec.json.encode(nodes_of(rows_of(sites, wanted))).decode())
    return status
