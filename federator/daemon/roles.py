"""Says who a caller is: a user, a viewer, the admin of tenants, or an operator.

Roles come from Unix groups of the daemon's host alone. A site vouches for a user's name, and only
for the users that ``sites.NAME.users`` lists; what groups it has is nobody's business here.
"""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Callable
from typing import Final

from federator.config import FederationConfig
from federator.daemon.callers import Caller
from federator.model.workload import SiteName
from federator.wire.client_socket import user_of

GROUPS_FRESH_S: Final = 60.0  # what the host said of a user's groups
USERS_KEPT: Final = 10_000

GroupsOf = Callable[[str], frozenset[str]]


def operators() -> frozenset[str]:
    """The users that may act for others: root, and the account that the daemon really runs as."""
    return frozenset({"root", user_of(os.geteuid())})


def groups_on_this_host(user: str) -> frozenset[str]:
    """The groups of a user, by name; none of one that this host does not know."""
    try:
        ids = os.getgrouplist(user, pwd.getpwnam(user).pw_gid)
    except KeyError:
        return frozenset()
    found = set()
    for gid in ids:
        try:
            found.add(grp.getgrgid(gid).gr_name)
        except KeyError:  # a group without a name
            continue
    return frozenset(found)


class Roles:
    """The roles of callers by one configuration.

    Args:
        config: names the groups.
        groups_of: a user's, on this host.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        config: FederationConfig,
        groups_of: GroupsOf = groups_on_this_host,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._groups_of = groups_of
        self._clock = clock
        self._operators = operators()
        self._known: dict[str, tuple[float, frozenset[str]]] = {}
        self._named = frozenset(
            [*config.roles.operator_groups, *config.roles.viewer_groups]
            + [name for tenant in config.tenants.values() for name in tenant.admin_groups]
        )

    def by(self, config: FederationConfig) -> Roles:
        """The roles by another configuration."""
        return Roles(config, self._groups_of, self._clock)

    def caller(self, user: str, via: SiteName | None) -> Caller:
        """The caller of this name; ``via``: the site that says so, None on the daemon's host."""
        groups = self._groups(user)
        roles = self._config.roles
        operator = via is None and (
            user in self._operators or not groups.isdisjoint(roles.operator_groups)
        )
        return Caller(
            user=user,
            operator=operator,
            via=via or "",
            viewer=not groups.isdisjoint(roles.viewer_groups),
            administers=frozenset(
                name
                for name, tenant in self._config.tenants.items()
                if not groups.isdisjoint(tenant.admin_groups)
            ),
        )

    def _groups(self, user: str) -> frozenset[str]:
        """Those that the configuration names; a host is asked only if it names any."""
        if not self._named:
            return frozenset()
        now_s = self._clock()
        at_s, known = self._known.get(user, (-GROUPS_FRESH_S, frozenset()))
        if now_s - at_s < GROUPS_FRESH_S:
            return known
        if len(self._known) >= USERS_KEPT:
            self._known.clear()
        found = self._groups_of(user) & self._named
        self._known[user] = (now_s, found)
        return found
