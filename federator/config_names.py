"""The key ``sites.NAME.names`` of federation.yaml: what a site calls otherwise."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from federator.config_services import Strict
from federator.config_tenants import TenantKey, checked_name
from federator.model.site_names import SiteNames, mapped, reversed_names

_FEATURE: Final = re.compile(r"[A-Za-z0-9_.:=/-]{1,128}", re.ASCII)
_USER: Final = re.compile(r"[a-z_][a-z0-9_.-]{0,31}", re.ASCII)
_THERE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+/-]{0,127}", re.ASCII)


def _name_there(name: str) -> str:
    if not _THERE.fullmatch(name):
        raise ValueError("expected a name of Slurm's: 1 to 128 of A-Z a-z 0-9 _ . : @ + / -")
    return name


def _feature(name: str) -> str:
    if not _FEATURE.fullmatch(name):
        raise ValueError("expected a feature, as --constraint names it")
    return name


def _user(name: str) -> str:
    if not _USER.fullmatch(name) or name == "root":
        raise ValueError("expected the name of an account, and not root")
    return name


_User = Annotated[str, AfterValidator(_user)]
_Here = Annotated[str, AfterValidator(checked_name)]
_There = Annotated[str, AfterValidator(_name_there)]
_Feature = Annotated[str, AfterValidator(_feature)]


class NamesConfig(Strict):
    """The federation's names, each with the site's."""

    accounts: dict[TenantKey, _There] = Field(default={})
    qos: dict[_Here, _There] = Field(default={})
    partitions: dict[_Here, _There] = Field(default={})
    gpu_types: dict[_Here, _There] = Field(default={})
    features: dict[_Feature, _There] = Field(default={})
    users: dict[str, _User] = Field(default={})

    @property
    def there(self) -> SiteNames:
        """As agents know them."""
        return SiteNames(
            accounts={str(name): there for name, there in self.accounts.items()},
            qos=self.qos,
            partitions=self.partitions,
            gpu_types=self.gpu_types,
            features=self.features,
            users=self.users,
        )

    @cached_property
    def _users_here(self) -> dict[str, str]:
        return reversed_names(self.users)

    def user_here(self, name: str) -> str | None:
        """The user of the federation who has an account of the site; None: nobody has it."""
        return mapped(name, self._users_here)

    def mistakes(
        self, known: Mapping[str, tuple[str, ...]]
    ) -> Iterator[tuple[tuple[str, ...], str]]:
        """What cannot be undone: two of the federation's names for one of the site's.

        Several tenants may have one account: what is told back of jobs goes by attempt.

        Args:
            known: all names of the federation, by kind; those not listed here are the site's, too.
        """
        for kind in ("qos", "partitions", "gpu_types", "features", "users"):
            listed: dict[str, str] = getattr(self, kind)
            names = {name: name for name in known.get(kind, ()) if name not in listed} | listed
            for there, times in Counter(names.values()).items():
                if times > 1:
                    both = [here for here, name in names.items() if name == there]
                    yield (kind, both[1]), f"{both[0]} is called '{there}', too"
