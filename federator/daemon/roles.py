"""Says who a caller is: a user, a viewer, the admin of tenants, or an operator.

Roles come from Unix groups of the daemon's host alone. A site vouches for a user's name, and only
for the users that ``sites.NAME.users`` lists; what groups it has is nobody's business here.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from federator.config import FederationConfig
from federator.daemon.callers import Caller
from federator.daemon.group_lookup import UserGroups
from federator.model.workload import SiteName
from federator.wire.client_socket import user_of


def operators() -> frozenset[str]:
    """The users that may act for others: root, and the account that the daemon really runs as."""
    return frozenset({"root", user_of(os.geteuid())})


class Roles:
    """The roles of callers by one configuration.

    Args:
        config: names the groups.
        groups: of users, on this host.
    """

    def __init__(self, config: FederationConfig, groups: UserGroups | None = None) -> None:
        self._config = config
        self._groups = UserGroups() if groups is None else groups
        self._operators = operators()
        self._named = frozenset(
            [*config.roles.operator_groups, *config.roles.viewer_groups]
            + [name for tenant in config.tenants.values() for name in tenant.admin_groups]
        )

    def by(self, config: FederationConfig) -> Roles:
        """The roles by another configuration."""
        return Roles(config, self._groups)

    def when_known(self, user: str, then: Callable[[], None]) -> None:
        """Call ``then`` once the user's groups are known, if the configuration names any."""
        if self._named:
            self._groups.when_known(user, then)
        else:
            then()

    def caller(self, user: str, via: SiteName | None) -> Caller:
        """The caller of this name; ``via``: the site that says so, None on the daemon's host."""
        groups = self._groups.of(user) if self._named else frozenset()
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
