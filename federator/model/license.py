"""Licences of a site, as its Slurm counts them, and those that a job asks for."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

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
