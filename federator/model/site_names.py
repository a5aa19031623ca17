"""Names that one site has for what the federation calls otherwise, and the way between them.

Each mapping is from the federation's name to the site's. A name that is not listed is the same at
the site.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct


class SiteNames(Struct, frozen=True, kw_only=True):
    """The names of one site; in each mapping no name of the site is listed twice."""

    accounts: dict[str, str] = {}  # of tenants
    qos: dict[str, str] = {}
    partitions: dict[str, str] = {}
    gpu_types: dict[str, str] = {}  # gres types
    features: dict[str, str] = {}
    users: dict[str, str] = {}

    def __bool__(self) -> bool:
        others = self.accounts, self.qos, self.partitions, self.gpu_types, self.features
        return bool(self.users) or any(others)

    def user_there(self, user: str) -> str | None:
        """The account of a user of the federation; None: the site's of this name is another's."""
        return mapped(user, self.users)


SAME: Final = SiteNames()


def mapped(name: str, names: Mapping[str, str]) -> str | None:
    """The other name of one, by a mapping of some, from either side; of the rest it is the same.

    None: what has this name on the other side is called otherwise here, and so is not meant.
    """
    other = names.get(name)
    if other is not None:
        return other
    return None if name in names.values() else name


def reversed_names(names: Mapping[str, str]) -> dict[str, str]:
    """The federation's name of each of the site's."""
    return {there: here for here, there in names.items()}
