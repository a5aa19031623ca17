"""Names the classes by which hit rates of estimated starts are kept: a size with a quota class."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from federator.sched.starts.calibration import Classes

_NAME: Final = re.compile(r"size ([1-9]|[1-5]\d), (within|over) quota", re.ASCII)


class RatedClass(NamedTuple):
    """Jobs of a size and a quota class.

    Attributes:
        gpus: how many they ask for, ``1`` or ``5-8``.
        quota: ``within`` or ``over`` that of their tenants.
    """

    gpus: str
    quota: str


def rated_class(classes: Classes) -> str:
    """Of the classes of a workload (``queue_view.classes_of``) the name of this one."""
    return ", ".join(classes[:2])


def read_class(name: str) -> RatedClass | None:
    """What ``rated_class`` named; None: it is no such name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    size = int(found[1])
    least, most = (1 << (size - 1)) // 2 + 1, 1 << (size - 1)
    return RatedClass(str(most) if least == most else f"{least}-{most}", found[2])
