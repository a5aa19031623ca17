"""Knows which users have an account at this site: asks the machine, remembers for a minute."""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable
from typing import Final

from federator.model.site_names import SAME, SiteNames

FRESH_S: Final = 60.0  # a look-up may go to a directory server


def _none_at_all(user: str) -> str:
    """The name of an account that no site has: of one who has none there."""
    return f"={user}"


def _look_up(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


class Accounts:
    """Answers from memory where the answer is fresh.

    Args:
        look_up: asks the machine.
        clock: returns seconds.
        names: of the site, which may call users otherwise.
    """

    def __init__(
        self,
        look_up: Callable[[str], bool] = _look_up,
        clock: Callable[[], float] = time.monotonic,
        names: SiteNames = SAME,
    ) -> None:
        self._names = names
        self._look_up = look_up
        self._clock = clock
        self._known: dict[str, tuple[bool, float]] = {}  # user: the answer, and when it was got

    def has(self, user: str) -> bool:
        """True if the user of the federation has an account here."""
        name = self._names.user_there(user)
        return name is not None and self._is_there(name)

    def name_of(self, user: str) -> str:
        """The name of a user's account here."""
        return self._names.user_there(user) or _none_at_all(user)

    def _is_there(self, user: str) -> bool:
        known, got_at_s = self._known.get(user, (False, -FRESH_S))
        if self._clock() - got_at_s >= FRESH_S:
            known = self._look_up(user)
            self._known[user] = (known, self._clock())
        return known
