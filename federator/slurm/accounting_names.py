"""Reads which accounts and QOS a site has, from its slurmdbd."""

from __future__ import annotations

from collections.abc import Mapping

from federator.slurm.client import ENVIRONMENT, READ_TIMEOUT_S
from federator.slurm.runner import Runner


class AccountingNames:
    """Asks sacctmgr.

    Args:
        runner: carries the commands out.
        environment: of every command, complete.
    """

    def __init__(self, runner: Runner, environment: Mapping[str, str] = ENVIRONMENT) -> None:
        self._runner = runner
        self._environment = dict(environment)

    async def accounts(self) -> frozenset[str] | None:
        """The names of all accounts, in small letters, as Slurm keeps them; None: not told."""
        return await self._names("account", "format=account")

    async def qos(self) -> frozenset[str] | None:
        """The names of all QOS; None: not told."""
        return await self._names("qos", "format=name")

    async def _names(self, kind: str, wanted: str) -> frozenset[str] | None:
        argv = ("sacctmgr", "--noheader", "--parsable2", "--readonly", "show", kind, wanted)
        done = await self._runner.run(argv, timeout_s=READ_TIMEOUT_S, env=self._environment)
        if done.exit_status != 0:
            return None
        return frozenset(done.stdout.decode("utf-8", "replace").split("\n")) - {""}
