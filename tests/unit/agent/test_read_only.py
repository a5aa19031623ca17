"""An agent in shadow mode reads its Slurm and refuses everything else, whoever asks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from federator.agent.base import AgentDriver, SiteDriver, SiteInspector
from federator.agent.config import AgentConfig
from federator.agent.read_only import REFUSED, ReadOnlyDriver, as_agreed
from federator.errors import SiteRefused, StaleState
from federator.model.site_message import LaunchDeclined, Report
from federator.model.site_mode import SiteMode
from federator.wire.agent_protocol import PROTOCOL_VERSION, Welcome
from tests.fakes.agent import Daemon, order

READS = {
    *("accounts", "version", "sweep", "settings_changed", "kill_wait_s", "settings"),
    *("partitions", "nodes", "jobs", "missing_names"),
}


def welcome(mode: SiteMode) -> Welcome:
    return Welcome(
        protocol=PROTOCOL_VERSION,
        epoch=1,
        site="alpine",
        partitions=("gpu",),
        poll_interval_s=10.0,
        mode=mode,
    )


def settings(mode: SiteMode = SiteMode.ENFORCED) -> AgentConfig:
    return AgentConfig(site="alpine", socket="/s", state_dir="/d", spool_dir="/spool", mode=mode)


class Untouchable:
    """A Slurm of which nothing may be called."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was called")


def test_every_method_of_a_driver_that_is_no_read_is_refused_before_it_is_tried() -> None:
    driver = ReadOnlyDriver(cast(AgentDriver, Untouchable()))
    names = {n for kind in (SiteDriver, SiteInspector) for n in vars(kind) if n[0] != "_"}
    for name in sorted(names - READS):
        method = getattr(driver, name)
        given: dict[str, Any] = dict.fromkeys(inspect.signature(method).parameters)
        called: Awaitable[object] = method(**given)
        with pytest.raises(SiteRefused, match=REFUSED):
            asyncio.run(cast(Any, called))


def test_in_shadow_mode_there_is_no_spool_for_hooks_either() -> None:
    driver = cast(AgentDriver, Untouchable())
    agreed, guarded = as_agreed(settings(), driver, welcome(SiteMode.SHADOW))
    assert agreed.spool_dir == ""
    assert isinstance(guarded, ReadOnlyDriver)
    assert as_agreed(settings(), driver, welcome(SiteMode.ENFORCED)) == (settings(), driver)


def test_in_shadow_mode_slurm_is_asked_for_its_settings_seldom() -> None:
    driver = cast(AgentDriver, Untouchable())
    for own_s, agreed_s in ((1.0, 10.0), (30.0, 30.0)):
        own = msgspec.structs.replace(settings(), settings_interval_s=own_s)
        agreed, _ = as_agreed(own, driver, welcome(SiteMode.SHADOW))
        assert agreed.settings_interval_s == agreed_s


def test_an_agent_that_its_admin_put_into_shadow_mode_serves_no_daemon_that_would_act() -> None:
    driver = cast(AgentDriver, Untouchable())
    with pytest.raises(StaleState, match=r"agent\.yaml of alpine says mode: shadow"):
        as_agreed(settings(SiteMode.SHADOW), driver, welcome(SiteMode.ENFORCED))


def test_a_launch_that_a_daemon_orders_all_the_same_is_declined_and_never_tried(
    tmp_path: Path,
) -> None:
    daemon = Daemon(tmp_path)
    site = daemon.site
    daemon.site = cast(Any, ReadOnlyDriver(site))

    async def story() -> None:
        await daemon.wait_for(Report)
        daemon.tell(order())
        declined = await daemon.wait_for(LaunchDeclined)
        assert REFUSED in str(declined)

    daemon.serve(story)
    assert site.submitted == []
