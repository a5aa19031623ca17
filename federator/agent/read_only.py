"""A driver that reads its Slurm and does nothing there: an agent's own guard in shadow mode.

Whatever would go through the helper is refused before sudo is called, reads among it: in shadow
mode the helper is never started.
"""
# ruff: noqa: ARG002 - what is refused has the parameters of a driver all the same

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NoReturn

import msgspec

from federator.agent.base import (
    NOTHING,
    AgentDriver,
    CheckpointStatus,
    KnownJobs,
    Partition,
    Probe,
    Removal,
    SbatchRefused,
    SiteAccounts,
    SubmittedJob,
    Sweep,
    Tidying,
)
from federator.agent.config import AgentConfig
from federator.errors import SiteRefused, StaleState
from federator.model.dataset import CopyPhase
from federator.model.reason import ReasonCode
from federator.model.site import Node, SiteJob
from federator.model.site_mode import SiteMode
from federator.wire.agent_protocol import (
    CopyOrder,
    EndedJob,
    LaunchOrder,
    OutputOrder,
    OutputStatus,
    PreemptOrder,
    SignalTo,
    Welcome,
)

LOOK_AT_SETTINGS_S: Final = 10.0
"""At least, between two looks at partitions and reservations: nothing waits there to be started."""

REFUSED: Final = "the site is in mode shadow: the federation does nothing there"


def as_agreed(
    settings: AgentConfig, driver: AgentDriver, welcome: Welcome
) -> tuple[AgentConfig, AgentDriver]:
    """The settings and the driver by which an agent works, in the mode that the daemon names.

    In shadow mode it has no spool: leases, tickets and limits for the site's hooks are orders, too.

    Raises:
        StaleState: agent.yaml says shadow, and the daemon something else.
    """
    if welcome.mode is SiteMode.SHADOW:
        interval_s = max(settings.settings_interval_s, LOOK_AT_SETTINGS_S)
        settings = msgspec.structs.replace(
            settings, spool_dir="", consume_lease="gate", settings_interval_s=interval_s
        )
        return settings, ReadOnlyDriver(driver)
    if not settings.mode.acts:
        raise StaleState(
            f"agent.yaml of {settings.site} says mode: {settings.mode.value}, and the daemon acts "
            "there; write mode: shadow or advisory for the site in federation.yaml, or take it out "
            "of agent.yaml"
        )
    return settings, driver


def _refuse() -> NoReturn:
    raise SiteRefused(REFUSED)


class _RefusedActs:
    """Whatever of a driver goes through the helper."""

    async def launch(
        self, order: LaunchOrder, ticket: str = "", start_line: str = ""
    ) -> SubmittedJob:
        raise SbatchRefused(REFUSED, ReasonCode.SHADOW)

    async def notify(self, order: PreemptOrder, deadline_s: float) -> None:
        _refuse()

    async def signal(self, user: str, job_id: int, name: str, to: SignalTo) -> None:
        _refuse()

    async def limit(self, user: str, job_id: int, minutes: int) -> None:
        _refuse()

    async def inspect(self, user: str, orders: Sequence[LaunchOrder]) -> list[str]:
        _refuse()

    async def tidy(self, user: str, order: Tidying) -> Removal:
        _refuse()

    async def copy(self, order: CopyOrder) -> tuple[CopyPhase, int, str]:
        _refuse()

    async def output(self, order: OutputOrder) -> OutputStatus:
        _refuse()

    async def read_checkpoint_status(
        self, user: str, orders: Sequence[PreemptOrder | EndedJob]
    ) -> list[CheckpointStatus]:
        _refuse()

    async def cancel(self, user: str, job_id: int, *, pending_only: bool) -> bool:
        _refuse()

    async def probe(self, user: str, probe: Probe) -> int:
        _refuse()

    async def is_loose(self, user: str) -> bool:
        _refuse()


class ReadOnlyDriver(_RefusedActs):
    """Another driver's reads, and a refusal for everything else."""

    def __init__(self, driver: AgentDriver) -> None:
        self._driver = driver

    @property
    def accounts(self) -> SiteAccounts:
        return self._driver.accounts

    async def version(self) -> str:
        return await self._driver.version()

    async def sweep(self, own: KnownJobs = NOTHING) -> Sweep:
        return await self._driver.sweep(own)

    async def settings_changed(self) -> bool:
        return await self._driver.settings_changed()

    async def kill_wait_s(self) -> float:
        return await self._driver.kill_wait_s()

    async def settings(self) -> Mapping[str, str]:
        return await self._driver.settings()

    async def partitions(self) -> Sequence[Partition]:
        return await self._driver.partitions()

    async def nodes(self) -> Sequence[Node]:
        return await self._driver.nodes()

    async def jobs(self, job_ids: Collection[int]) -> Mapping[int, SiteJob]:
        return await self._driver.jobs(job_ids)

    async def missing_names(self) -> Sequence[str] | None:
        return await self._driver.missing_names()
