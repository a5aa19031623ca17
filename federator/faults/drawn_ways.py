"""Draws how the daemon and each site of a history reach each other."""

from __future__ import annotations

from random import Random
from typing import Final

from federator.config import SiteConfig
from federator.model.workload import SiteName

DIALS_PART: Final = 0.3  # of the sites: the daemon cannot reach them, and they dial it
TWO_LOGIN_NODES_PART: Final = 0.4  # of the sites


def by_command(site: SiteName) -> dict[str, object]:
    """The keys of a site whose only agent the daemon starts."""
    return {"login": site, "command": ("agent", site)}


def drawn_way(rng: Random, site: SiteName) -> dict[str, object]:
    """The keys of a site that say how its agent is reached."""
    dials, two = rng.random() < DIALS_PART, rng.random() < TWO_LOGIN_NODES_PART
    if dials:
        return {"login": site, "connect": "outbound"}
    if not two:
        return by_command(site)
    keys = {"key": "/key", "known_hosts": "/known_hosts"}
    return {"ssh": {"host": site, "standbys": ("login2",), **keys}}


def drawn_login_nodes(rng: Random, site: SiteConfig) -> list[str]:
    """The names of a site's login nodes; what the daemon does not reach, only the site knows."""
    two = rng.random() < TWO_LOGIN_NODES_PART if site.dials else site.has_standby()
    return ["login1", "login2"] if two else ["login1"]
