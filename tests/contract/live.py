"""Breaks and mends a live site of the testbed, as root in its container."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from federator.errors import SiteUnavailable
from federator.model.site import NodeState
from federator.slurm.client import SlurmClient
from federator.testbed import layout
from tests.contract.runners import DockerRunner
from tests.contract.situation import SHARED, SLEEP, Condition

SITES: Final = {"22.05": "alpine", "24.11": "boreal", "26.05": "cedar"}
PATIENCE_S: Final = 300.0
RULES: Final = "/etc/federator/admission.lua"
HOOKS: Final = "/etc/federator/node.json"
_NO_GATE: Final = (
    f"import json; path = {HOOKS!r}; text = json.load(open(path));"
    " text['gate'] = {'partitions': []}; json.dump(text, open(path, 'w'))"
)
_WHO_SLEEPS: Final = (
    "for pid in $(pgrep -x sleep); do"
    " tr '\\0' '\\n' </proc/$pid/environ | grep -x 'SLURM_JOB_ID=[0-9]*'; done 2>/dev/null; true"
)
PID_FILE: Final = "/run/slurmctld/slurmctld.pid"


class NoHands:
    """A recording needs no hands; the foreign job's id is what the recording asks about."""

    def __init__(self, foreign_job_id: int) -> None:
        self._foreign_job_id = foreign_job_id

    async def wait(self, condition: Condition) -> None: ...

    async def await_sleep(self, _job_ids: Sequence[int], /) -> None: ...

    async def drain(self, node: str, reason: str) -> None: ...

    async def kill_node(self, node: str) -> None: ...

    async def stop_controller(self) -> None: ...

    async def start_controller(self) -> None: ...

    async def submit_foreign(self, _user: str) -> int:
        return self._foreign_job_id


@dataclass(frozen=True, slots=True)
class LiveHands:
    """Acts in a container of the testbed; ``restore`` undoes all of it."""

    site: str

    @property
    def container(self) -> str:
        return layout.site(self.site).container

    def _watcher(self) -> SlurmClient:
        return SlurmClient(DockerRunner(self.container))

    async def root(self, *argv: str, stdin: bytes = b"") -> str:
        """Run a command as root in the container; what it prints."""
        runner = DockerRunner(self.container, user="root")
        done = await runner.run(argv, stdin=stdin, timeout_s=120, env={})
        return done.stdout.decode().strip()

    async def prepare(self) -> None:
        """Let jobs into the federation's partition though no agent gives them ticket and lease."""
        await self.root("sh", "-c", f"mv {RULES} {RULES}.aside; cp -p {HOOKS} {HOOKS}.aside")
        await self.root("python3", "-c", _NO_GATE)
        await self.root("install", "-d", "-m", "1777", SHARED)
        await asyncio.sleep(1.5)  # slurmctld looks once a second

    async def wait(self, condition: Condition) -> None:
        """Look again and again until the site is as wished."""
        watcher = self._watcher()
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if condition(await watcher.sweep()):
                        return
                except SiteUnavailable:
                    pass
                await asyncio.sleep(0.5)

    async def await_sleep(self, job_ids: Sequence[int], /) -> None:
        """See ``Hands``: the processes of all nodes are those of the container."""
        awaited = {f"SLURM_JOB_ID={job_id}" for job_id in job_ids}
        async with asyncio.timeout(PATIENCE_S):
            while awaited := awaited - set((await self.root("sh", "-c", _WHO_SLEEPS)).split()):
                await asyncio.sleep(0.1)

    async def drain(self, node: str, reason: str) -> None:
        await self.root("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    async def kill_node(self, node: str) -> None:
        await self.root("sh", "-c", f"kill -9 $(cat /run/slurmd-{node}.pid)")

    async def stop_controller(self) -> None:
        stop = f"p=$(cat {PID_FILE}); kill $p; while kill -0 $p 2>/dev/null; do sleep 0.1; done"
        await self.root("sh", "-c", stop)

    async def start_controller(self) -> None:
        await self.root("slurmctld")
        await self.wait(lambda sweep: bool(sweep.nodes))

    async def submit_foreign(self, user: str, /) -> int:
        argv = (
            "runuser",
            "-u",
            user,
            "--",
            "sbatch",
            "--parsable",
            "-D",
            "/tmp",
            "-p",
            "local",
            "--comment=mine",
            f"--exclude={self.site}-g1",  # where exactly the gang's CPUs are to be seen
        )
        return int(await self.root(*argv, stdin=SLEEP.encode()))

    async def restore(self) -> None:
        """Make the site idle and whole again."""
        for path in (RULES, HOOKS):
            await self.root("sh", "-c", f"[ ! -e {path}.aside ] || mv {path}.aside {path}")
        await self.root("rm", "-rf", SHARED)
        if not await self.root("sh", "-c", f"kill -0 $(cat {PID_FILE}) && echo up"):
            await self.root("slurmctld")
        for user in ("vision1", "vision2"):
            await self.root("scancel", "-u", user)
        g7, g8 = f"{self.site}-g7", f"{self.site}-g8"
        await self.root("sh", "-c", f"kill -0 $(cat /run/slurmd-{g7}.pid) || slurmd -N {g7}")
        for node in (g7, g8):
            await self.root("scontrol", "update", f"nodename={node}", "state=resume")
        await self.wait(lambda sweep: all(n.state is NodeState.IDLE for n in sweep.nodes))
