"""Acts of the federation's operators: drains, write-offs and reloads, while all else breaks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from federator.config import FederationConfig
from federator.faults.inject.scene import FaultScene, Inject
from federator.faults.kinds import FaultKind
from federator.faults.process import outside
from federator.wire.client_protocol import (
    Call,
    DrainCall,
    DrainReply,
    ErrorKind,
    ErrorReply,
    ReloadCall,
    ReloadReply,
    ResumeCall,
    WriteOffCall,
)
from federator.wire.replies import Reply

PATIENCE_S: Final = 20.0  # of one command
AGAIN_S: Final = (1.0, 4.0)
LASTS_S: Final = (10.0, 80.0)  # a drain, until it is ended
CUT_OFF_S: Final = (25.0, 60.0)  # a site that is written off
GIVEN_UP_S: Final = 12.0  # after it was cut off
LEAVE_S: Final = (45.0, 75.0)  # from the command to the deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class _DrainScript:
    """One drain or cordon, from its command to its end."""

    kind: FaultKind
    cordon: bool = False
    migrate: bool = False
    deadline: bool = False
    one_node: bool = False


def _drain(script: _DrainScript, scene: FaultScene) -> None:
    site, rng = scene.site(), scene.world.rng
    nodes = (scene.node_of(site),) if script.one_node else ()
    leaves_s = rng.uniform(*LEAVE_S) if script.deadline else 0.0
    outside(_live_through(script, scene, site.name, nodes, leaves_s, rng.uniform(*LASTS_S)))


async def _live_through(
    script: _DrainScript,
    scene: FaultScene,
    site: str,
    nodes: tuple[str, ...],
    leaves_s: float,
    lasts_s: float,
) -> None:
    """Drain a site and resume it in the end: who lost an answer asks until there is one."""
    deadline_s = scene.world.clock() + leaves_s if leaves_s else 0.0
    call = DrainCall(
        site=site,
        nodes=nodes,
        reason="a drill",
        cordon=script.cordon,
        migrate=script.migrate,
        deadline_s=deadline_s,
    )
    if not await _carried_out(call, scene):
        return
    scene.world.strike(script.kind, site)
    if leaves_s:
        lasts_s = max(lasts_s, leaves_s + 1.0)
    await asyncio.sleep(lasts_s)
    if await _carried_out(ResumeCall(site=site, nodes=nodes), scene):
        scene.world.strike(FaultKind.SITE_RESUMED, site)


async def _carried_out(call: Call, scene: FaultScene) -> bool:
    """Ask the leader until it answers; False: it refused, and had not carried it out before."""
    in_doubt = False
    while True:
        reply: Reply | None = None
        for daemon in scene.world.daemons:
            try:
                reply = reply or await asyncio.wait_for(daemon.ask_here("root", call), PATIENCE_S)
            except TimeoutError:
                in_doubt = True
            if isinstance(reply, ErrorReply) and _is_for_later(reply, call):
                reply = None
        if isinstance(reply, DrainReply):
            return True
        if isinstance(reply, ErrorReply):
            return in_doubt and "already" in reply.message
        in_doubt = True
        await asyncio.sleep(scene.world.rng.uniform(*AGAIN_S))


def _is_for_later(reply: ErrorReply, call: Call) -> bool:
    """Tell whether to ask again: also to resume a site that is given up until it is back."""
    given_up = isinstance(call, ResumeCall) and "written off" in reply.message
    return reply.kind is not ErrorKind.REQUEST or given_up


def _write_off(scene: FaultScene) -> None:
    """A site is cut off for longer than an operator is patient; its jobs run on."""
    site, rng = scene.site(), scene.world.rng
    site.network.holds_down = site.network.holds_up = True
    lasts_s = rng.uniform(*CUT_OFF_S)
    scene.at(lasts_s, partial(site.network.heal, lose=True))
    outside(_give_up(scene, site.name, scene.world.clock() + lasts_s))


async def _give_up(scene: FaultScene, site: str, until_s: float) -> None:
    """Ask until it is done, or the site is back: who lost an answer learns that it is done."""
    await asyncio.sleep(GIVEN_UP_S)
    call = WriteOffCall(site=site, reason="a drill")
    while scene.world.clock() < until_s and not scene.over:
        for daemon in scene.world.daemons:
            reply: Reply | None = None
            with contextlib.suppress(TimeoutError):
                reply = await asyncio.wait_for(daemon.ask_here("root", call), PATIENCE_S)
            if isinstance(reply, DrainReply):
                scene.world.strike(FaultKind.SITE_WRITTEN_OFF, site)
                return
        await asyncio.sleep(scene.world.rng.uniform(*AGAIN_S))


def _reload(scene: FaultScene) -> None:
    """Other quotas and rules, and another channel to one site, in the files of all hosts."""
    rng, hosts = scene.world.rng, scene.world.daemons
    values = hosts[0].config.model_dump(exclude_unset=True)
    values["tenants"]["prod"]["quota"] = {"gpus": rng.choice((16, 24, 32))}
    values["policy"]["preemption"] |= {
        "grace_s": rng.choice((6.0, 8.0, 12.0)),
        "cooldown_s": rng.choice((5.0, 10.0, 30.0)),
    }
    values["policy"]["forecast_ends"] = rng.random() < 0.5
    if rng.random() < 0.5:
        values["sites"][scene.site().name]["poll_interval_s"] = rng.choice((4.0, 5.0, 6.0))
    config = FederationConfig.model_validate(values)
    for host in hosts:
        host.config = config
        if host.daemon is not None:
            host.daemon.reload()
    outside(_ask_to_reload(scene, FaultKind.RELOADED))


def _reload_what_is_wrong(scene: FaultScene) -> None:
    for host in scene.world.daemons:
        host.file_is_broken = True
    outside(_ask_to_reload(scene, FaultKind.RELOAD_REFUSED))


async def _ask_to_reload(scene: FaultScene, kind: FaultKind) -> None:
    """Ask until the leader answers; what was wrong is right again then."""
    answered = False
    while not (answered or scene.over):
        for daemon in scene.world.daemons:
            with contextlib.suppress(TimeoutError):
                reply = await asyncio.wait_for(daemon.ask_here("root", ReloadCall()), PATIENCE_S)
                refused = isinstance(reply, ErrorReply) and reply.kind is ErrorKind.REQUEST
                answered = answered or refused or isinstance(reply, ReloadReply)
        await asyncio.sleep(scene.world.rng.uniform(*AGAIN_S))
    for daemon in scene.world.daemons:
        daemon.file_is_broken = False
    if answered:
        scene.world.strike(kind)
    for daemon in scene.world.daemons:  # a signal may have met the file while it was wrong
        if daemon.daemon is not None:
            daemon.daemon.reload()


_SCRIPTS: Final = (
    _DrainScript(kind=FaultKind.SITE_CORDONED, cordon=True),
    _DrainScript(kind=FaultKind.SITE_DRAINED, migrate=True),
    _DrainScript(kind=FaultKind.SITE_DRAINED_BY, deadline=True),
    _DrainScript(kind=FaultKind.NODES_DRAINED, migrate=True, one_node=True),
)
OPERATOR_FAULTS: Final[Mapping[FaultKind, Inject]] = {
    **{script.kind: partial(_drain, script) for script in _SCRIPTS},
    FaultKind.SITE_WRITTEN_OFF: _write_off,
    FaultKind.RELOADED: _reload,
    FaultKind.RELOAD_REFUSED: _reload_what_is_wrong,
}
