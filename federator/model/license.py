"""Licences of a site, as its Slurm counts them, and those that a job asks for.

Pools that all sites share are the federation's own: ``sched.state.fleet_licenses``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from federator.model.gres import Gres

Licenses = Gres
"""Names and amounts, sorted by name; mostly empty."""


class SiteLicense(Struct, frozen=True, kw_only=True):
    """One kind of licence. What is neither used nor reserved is ``free``."""

    name: str
    total: int
    free: int


def totals(licenses: Iterable[SiteLicense]) -> dict[str, int]:
    """All that there are, by name."""
    return {each.name: each.total for each in licenses}


def free(licenses: Iterable[SiteLicense]) -> dict[str, int]:
    """Those that a job could have now, by name."""
    return {each.name: each.free for each in licenses}


def left_of(licenses: Iterable[SiteLicense], amounts: Mapping[str, int]) -> tuple[SiteLicense, ...]:
    """The same licences, of which so many are left."""
    return tuple(replace(each, free=max(0, amounts.get(each.name, 0))) for each in licenses)
