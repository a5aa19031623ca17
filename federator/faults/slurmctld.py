"""The slurmctld that an agent's process asks: slow, or down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from federator.errors import SiteUnavailable
from federator.faults.process import Process
from federator.faults.spell import Spell

ASKING_S: Final = 0.02
GIVES_UP_S: Final = 2.0


class Slurmctld:
    """Answers, or does not.

    Args:
        spell: what befalls it.
        process: the agent's.
        tell: notes what struck.
    """

    def __init__(self, spell: Spell, process: Process, tell: Callable[[str], None]) -> None:
        self._spell = spell
        self._process = process
        self._tell = tell

    async def ask(self) -> None:
        """Let the time of a question pass.

        Raises:
            SiteUnavailable: it is down.
        """
        self._process.check()
        await asyncio.sleep(ASKING_S)
        if self._spell.down:
            self._spell.say_once("slurmctld down", self._tell)
            await asyncio.sleep(GIVES_UP_S)
            raise SiteUnavailable("slurmctld does not answer")
