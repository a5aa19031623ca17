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
from functools import partial
from typing import Final

from federator.config import FederationConfig
from federator.daemon.callers import Caller
from federator.daemon.group_lookup import GroupsOf, LookUp, at_once
from federator.model.workload import SiteName
from federator.wire.client_socket import user_of

GROUPS_FRESH_S: Final = 60.0  # what the host said of a user's groups
USERS_KEPT: Final = 10_000


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
        look_up: how the host is asked by ``when_known``.
    """

    def __init__(
        self,
        config: FederationConfig,
        groups_of: GroupsOf = groups_on_this_host,
        clock: Callable[[], float] = time.monotonic,
        look_up: LookUp = at_once,
    ) -> None:
        self._config = config
        self._groups_of = groups_of
        self._clock = clock
        self._look_up = look_up
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._operators = operators()
        self._known: dict[str, tuple[float, frozenset[str]]] = {}
        self._named = frozenset(
            [*config.roles.operator_groups, *config.roles.viewer_groups]
            + [name for tenant in config.tenants.values() for name in tenant.admin_groups]
        )

    def by(self, config: FederationConfig) -> Roles:
        """The roles by another configuration."""
        return Roles(config, self._groups_of, self._clock, self._look_up)

    def when_known(self, user: str, then: Callable[[], None]) -> None:
        """Call ``then`` once the groups of a user are known, or the host does not tell them.

        Where it does not, he has those that he had before, or none.
        """
        if self._is_fresh(user):
            then()
            return
        waiting = self._waiting.setdefault(user, [])
        waiting.append(then)
        if len(waiting) == 1:
            self._look_up(self._groups_of, user, partial(self._take, user))

    def _take(self, user: str, found: frozenset[str] | None) -> None:
        _, before = self._known.get(user, (0.0, frozenset[str]()))
        self._keep(user, before if found is None else found)
        for then in self._waiting.pop(user):
            then()

    def _is_fresh(self, user: str) -> bool:
        at_s, _ = self._known.get(user, (-GROUPS_FRESH_S, frozenset()))
        return not self._named or self._clock() - at_s < GROUPS_FRESH_S

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
        if not self._is_fresh(user):
            self._keep(user, self._groups_of(user))
        return self._known[user][1]

    def _keep(self, user: str, groups: frozenset[str]) -> None:
        if len(self._known) >= USERS_KEPT:
            self._known.clear()
        self._known[user] = self._clock(), groups & self._named
