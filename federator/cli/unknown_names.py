"""Names on a command line that nobody has: of users, and of nodes."""

from __future__ import annotations

import pwd
from collections.abc import Collection

from federator.cli.client import call
from federator.cli.text import my_name
from federator.errors import InvalidRequest
from federator.wire.client_protocol import NodesCall, NodesReply, QueueCall, QueueReply, QueueRow
from federator.wire.node_rows import unpacked_nodes


def is_user(name: str) -> bool:
    """Tell whether this host knows a user of that name."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return name == my_name()
    return True


def unknown_users(names: Collection[str], rows: Collection[QueueRow]) -> list[str]:
    """Those users whom this host does not know and who have no row.

    A user of the federation need not have an account at every site. A look-up may go to a server,
    so the rows are asked first.
    """
    missing = set(names) - {row.user for row in rows} if names else set()
    return [name for name in names if name in missing and not is_user(name)]


def with_jobs(users: Collection[str]) -> set[str]:
    """Those users who have jobs in the queue."""
    reply = call(QueueCall(users=tuple(users), brief=True))
    return {row.user for row in reply.rows} if isinstance(reply, QueueReply) else set()


def check_nodes(names: Collection[str], clusters: tuple[str, ...]) -> None:
    """Refuse a node that is at no site; none, while a site has not listed its own.

    Raises:
        InvalidRequest: no site has one of these.
    """
    reply = call(NodesCall(clusters=clusters))
    if not isinstance(reply, NodesReply) or not all(site.nodes for site in reply.sites):
        return
    try:
        known = {node.name for site in reply.sites for node in unpacked_nodes(site.nodes).nodes}
    except ValueError:  # of a newer agent, say: then nothing is known of its nodes
        return
    if missing := sorted(set(names) - known):
        raise InvalidRequest(f"Invalid node name {missing[0]}")
