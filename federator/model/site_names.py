"""Names that one site has for what the federation calls otherwise, and the way between them.

Each mapping is from the federation's name to the site's. A name that is not listed is the same at
the site.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class SiteNames(Struct, frozen=True, kw_only=True):
    """The names of one site; in each mapping no name of the site is listed twice."""

    accounts: dict[str, str] = {}  # of tenants
    qos: dict[str, str] = {}
    partitions: dict[str, str] = {}
    gpu_types: dict[str, str] = {}  # gres types
    features: dict[str, str] = {}

    def __bool__(self) -> bool:
        return any((self.accounts, self.qos, self.partitions, self.gpu_types, self.features))


def reversed_names(names: Mapping[str, str]) -> dict[str, str]:
    """The federation's name of each of the site's."""
    return {there: here for here, there in names.items()}
