"""Checks how a site is set up, as far as an agent can prove it, and returns findings.

All of it with the account that the agent has. Settings are read; what can be tried is tried: the
helper as a user, a submission without a ticket, and a job on each node asked for
(``probe_jobs``).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Final

from federator.agent.base import Probe, SiteInspector
from federator.agent.services.probe_jobs import Probes, probe_check, words_of
from federator.agent.services.probe_jobs import found_of as _found
from federator.agent.spool import Spool
from federator.errors import FederatorError, SiteRefused, SiteUnavailable
from federator.model.site import Node, NodeState
from federator.model.workload import AttemptId
from federator.slurm.generations import SUPPORTED_SLURM
from federator.wire.agent_protocol import VerifyAsk
from federator.wire.client_protocol import VERIFY_TAKES_S, Finding, Verdict

CLOSED: Final = "takes jobs of the federation only"  # says job_submit/federator.lua
MOST_NODES: Final = 64
LONG_KILL_WAIT_S: Final = 60.0
SHORT_JOB_AGE_S: Final = 60.0
SKEW_WARN_S: Final = 2.0
SKEW_FAIL_S: Final = 30.0  # tickets run out after 120 s
_NONE: Final = frozenset({"", "(null)", "none", "N/A"})
_HIDES: Final = ("jobs", "nodes", "partitions", "all")
_OK, _WARN, _FAIL = Verdict.OK, Verdict.WARN, Verdict.FAIL


class Verifier:
    """Looks at one site.

    Args:
        site: its Slurm.
        spool: see ``Spool``.
        clock: returns Unix time.
        knows_user: tells whether a user has an account here.
    """

    def __init__(
        self,
        site: SiteInspector,
        spool: Spool,
        clock: Callable[[], float],
        knows_user: Callable[[str], bool],
    ) -> None:
        self._site = site
        self._spool = spool
        self._clock = clock
        self._knows_user = knows_user
        self._turn = asyncio.Lock()
        self._probes = Probes(site, spool, clock)

    @property
    def probing(self) -> frozenset[AttemptId]:
        """Probes under way; their leases stay."""
        return self._probes.under_way

    async def verify(self, ask: VerifyAsk, partitions: tuple[str, ...]) -> tuple[Finding, ...]:
        """All findings, within ``VERIFY_TAKES_S``; ``partitions`` are the federation's."""
        found: list[Finding] = []
        try:
            async with (
                asyncio.timeout(VERIFY_TAKES_S),
                self._turn,
                aclosing(self._findings(ask, partitions)) as findings,
            ):
                async for finding in findings:
                    found.append(finding)
        except TimeoutError:
            checks = {finding.check for finding in found}
            unseen = [name for name in ask.nodes if probe_check(name) not in checks]
            missing = f"; not seen: {','.join(unseen)}" if unseen else ""
            detail = f"not all was seen in {VERIFY_TAKES_S:.0f} s{missing}"
            found.append(_found("time", _FAIL, detail))
        except FederatorError as error:
            found.append(_found("slurm", _FAIL, f"Slurm cannot be asked: {error}"))
        return tuple(found)

    async def _findings(
        self, ask: VerifyAsk, partitions: tuple[str, ...]
    ) -> AsyncGenerator[Finding, None]:
        yield version(await self._site.version())
        yield python()
        asked_s = self._clock()
        settings = await self._site.settings()
        for finding in settings_found(settings, asked_s, self._clock()):
            yield finding
        known = {p.name: p for p in await self._site.partitions()}
        for name in partitions:
            here = known.get(name)
            if here is None:
                detail = "there is none of this name, or it is hidden from the agent's account"
                yield _found(f"partition {name}", _FAIL, detail)
            elif not here.up or not here.nodes:
                detail = "it is not UP" if here.nodes else "it has no nodes"
                yield _found(f"partition {name}", _FAIL, detail)
            else:
                yield _found(f"partition {name}", _OK, f"UP, {len(here.nodes)} nodes")
        missing = await self._site.missing_names()
        if missing is not None:
            verdict = _FAIL if missing else _OK
            yield _found(
                "names",
                verdict,
                f"Slurm does not know {'; '.join(missing)}"
                if missing
                else "Slurm knows the names that federation.yaml gives it",
            )
        nodes = {n.name: n for n in await self._site.nodes() if set(n.partitions) & set(partitions)}
        yield nodes_found(nodes.values())
        async for finding in self._spool_found():
            yield finding
        async for finding in self._tried(ask, partitions, nodes, settings):
            yield finding

    # ---- what is tried ----

    async def _spool_found(self) -> AsyncGenerator[Finding, None]:
        if self._spool.folder is None:
            why = "agent.yaml names no spool_dir, or the site is in mode shadow or advisory"
            detail = f"none is used: {why}: no tickets, no leases, no figures of tenants"
            yield _found("spool", _WARN, detail)
            return
        try:
            owner, mode = await self._spool.examine()
        except SiteUnavailable as error:
            yield _found("spool", _FAIL, str(error))
            return
        where = f"{self._spool.folder}: "
        if owner != os.geteuid():
            yield _found("spool", _FAIL, f"{where}belongs to UID {owner}, not to the agent's")
        elif mode & 0o022:
            yield _found("spool", _FAIL, f"{where}mode {mode:o}; others may write, chmod 755")
        elif mode & 0o055 != 0o055:
            yield _found("spool", _FAIL, f"{where}mode {mode:o}; hooks cannot look in, chmod 755")
        else:
            yield _found("spool", _OK, f"{where}the agent's own, mode {mode:o}, writable")

    async def _tried(
        self,
        ask: VerifyAsk,
        partitions: tuple[str, ...],
        nodes: Mapping[str, Node],
        settings: Mapping[str, str],
    ) -> AsyncGenerator[Finding, None]:
        if not ask.user:
            yield _found("helper", _WARN, "not tried: no user was named (--user)")
            return
        helper = await self._helper(ask.user)
        yield helper
        if helper.verdict is not _OK:
            return
        yield await self._helper_refuses(ask.user)
        guarded = self._spool.folder is not None and _has(settings, "JobSubmitPlugins", "lua")
        for partition in partitions:
            yield await self._direct(ask, partition, guarded=guarded)
        names = ask.nodes[:MOST_NODES] or _any_idle(nodes.values())
        if not names:
            yield _found("probe", _WARN, "not tried: no node is idle; name some (--nodes)")
        asked = {name: nodes.get(name) for name in names}
        async with aclosing(self._probes.on(ask, asked, partitions)) as probed:
            async for finding in probed:
                yield finding

    async def _helper(self, user: str) -> Finding:
        check = f"helper for {user}"
        if not self._knows_user(user):
            return _found(check, _FAIL, "the user has no account here")
        try:
            await self._site.read_checkpoint_status(user, [])
        except FederatorError as error:
            return _found(check, _FAIL, f"{error}; see the sudo rule, and the helper's path")
        return _found(check, _OK, "sudo and helper work")

    async def _helper_refuses(self, user: str) -> Finding:
        try:
            if await self._site.is_loose(user):
                detail = "the helper, or sudo, let the agent do what it must not; install it anew"
                return _found("helper refuses", _FAIL, detail)
        except FederatorError as error:
            return _found("helper refuses", _FAIL, str(error))
        return _found("helper refuses", _OK, "other options, and root, as it must")

    async def _direct(self, ask: VerifyAsk, partition: str, *, guarded: bool) -> Finding:
        """Submit as a user would who thinks up an attempt; it is ended before it would start."""
        check = f"direct submission to {partition}"
        attempt = self._probes.attempt()
        probe = Probe(attempt=attempt, partition=partition, account=ask.account, later=True)
        try:
            job_id = await self._site.probe(ask.user, probe)
        except SiteRefused as error:
            if CLOSED in str(error):
                return _found(check, _OK, f"refused: {error}")
            detail = f"refused for another reason, so whether it is closed is not known: {error}"
            return _found(check, _WARN, detail)
        except SiteUnavailable as error:
            return _found(check, _FAIL, f"not known: {error}")
        try:
            await self._site.cancel(ask.user, job_id, pending_only=False)
        except FederatorError as error:
            return _found(check, _FAIL, f"job {job_id} was accepted, and not cancelled: {error}")
        detail = "accepted: users may bypass the federation"
        if not guarded:
            return _found(check, _WARN, f"{detail}; job_submit/lua or the spool is not set up")
        return _found(check, _FAIL, f"{detail}; see `closed` in admission.lua, slurmctld's log")


# ---- what is read ----


def version(text: str) -> Finding:
    """Whether the release is one of those that the project is tried with."""
    if text.startswith(SUPPORTED_SLURM):
        return _found("slurm", _OK, f"{text} answers")
    return _found("slurm", _WARN, f"{text} answers; tried are {', '.join(SUPPORTED_SLURM)}")


def python() -> Finding:
    """Check the Python that the agent runs on; an older one could not run it."""
    return _found("python", _OK, ".".join(map(str, sys.version_info[:3])))


def nodes_found(nodes: Iterable[Node]) -> Finding:
    """Count the nodes that take jobs, and say why others do not."""
    nodes = list(nodes)
    out = [n for n in nodes if not n.state.takes_jobs]
    if not nodes:
        return _found("nodes", _FAIL, "the agent sees no node of the federation's partitions")
    up = f"{len(nodes) - len(out)} of {len(nodes)} take jobs"
    if not out:
        return _found("nodes", _OK, up)
    shown = "; ".join(f"{n.name} {n.state.value} ({words_of(n)})" for n in out[:5])
    more = f"; and {len(out) - 5} more" if len(out) > 5 else ""
    return _found("nodes", _WARN, f"{up}; {shown}{more}")


def settings_found(settings: Mapping[str, str], asked_s: float, now_s: float) -> Iterator[Finding]:
    """Check the settings in `scontrol show config` that matter to us.

    Args:
        settings: key to value, as Slurm prints them; ``as of`` is when slurmctld answered.
        asked_s: when it was asked, by the agent's clock.
        now_s: when the answer was there.
    """
    yield _clock_skew(settings.get("as of", ""), asked_s, now_s)
    hidden = [word for word in _words(settings, "PrivateData") if word in _HIDES]
    yield (
        _found("PrivateData", _FAIL, f"hides {', '.join(hidden)} from the agent; take them out")
        if hidden
        else _found("PrivateData", _OK, "hides neither jobs nor nodes")
    )
    yield _is("JobRequeue", settings, "1", "what puts itself back (submitit, Lightning) cannot")
    kill_wait_s = _seconds(settings.get("KillWait", ""))
    long = f"{kill_wait_s:.0f} s are taken off the end of every grace; set 30 s or less"
    yield _bound("KillWait", kill_wait_s, kill_wait_s <= LONG_KILL_WAIT_S, long)
    age_s = _seconds(settings.get("MinJobAge", ""))
    short = "an agent that is away for longer does not learn how jobs ended; set 300 s"
    yield _bound("MinJobAge", age_s, age_s >= SHORT_JOB_AGE_S, short)
    yield from _hooks_found(settings)
    yield _preemption(settings)
    parts = settings.get("EnforcePartLimits", "NO")
    yield _found("EnforcePartLimits", _OK, f"{parts}: a refusal at once is told to the federation")


def _hooks_found(settings: Mapping[str, str]) -> Iterator[Finding]:
    prolog = _is_set(settings, "Prolog")
    if prolog:
        flags = _words(settings, "PrologFlags")
        if "alloc" not in flags and "contain" not in flags:
            yield _found("PrologFlags", _FAIL, "add Alloc: without, prologs run at the first step")
        elif "deferbatch" not in flags:
            detail = "add DeferBatch: without, a script starts when the first node's prolog is done"
            yield _found("PrologFlags", _WARN, detail)
        else:
            yield _found("PrologFlags", _OK, ",".join(flags))
        if _has(settings, "SchedulerParameters", "nohold_on_prolog_fail"):
            yield _found("nohold_on_prolog_fail", _OK, "jobs that a prolog refuses start elsewhere")
        else:
            detail = "add it to SchedulerParameters: local jobs that a prolog refuses are held"
            yield _found("nohold_on_prolog_fail", _WARN, detail)
    yield _hook("Prolog", prolog, "no health gate, no leases")
    yield _hook("Epilog", _is_set(settings, "Epilog"), "nothing is cleaned up after jobs")
    lua = _has(settings, "JobSubmitPlugins", "lua")
    yield _hook("JobSubmitPlugins", lua, "without lua the partition is open to everybody")


def _hook(key: str, is_there: bool, without: str) -> Finding:
    return _found(key, _OK, "is set") if is_there else _found(key, _WARN, f"not set: {without}")


def _preemption(settings: Mapping[str, str]) -> Finding:
    mode = settings.get("PreemptMode", "OFF")
    tells = _has(settings, "SlurmctldParameters", "preempt_send_user_signal")
    tells = tells or _has(settings, "PreemptParameters", "send_user_signal")
    if mode != "OFF" and not tells:
        detail = f"{mode}, without preempt_send_user_signal: victims of the site are not told"
        return _found("PreemptMode", _WARN, detail)
    return _found("PreemptMode", _OK, mode)


def _clock_skew(as_of: str, asked_s: float, now_s: float) -> Finding:
    """By how much slurmctld's answer, in whole seconds, is outside of the time that it took."""
    if not as_of.isascii() or not as_of.isdecimal():
        return _found("clock", _WARN, "slurmctld's time is not known")
    skew_s = max(0.0, asked_s - 1 - int(as_of), int(as_of) - now_s)
    detail = f"agent and slurmctld are {skew_s:.0f} s apart"
    if skew_s > SKEW_FAIL_S:
        return _found("clock", _FAIL, f"{detail}; run NTP: tickets run out too early or late")
    return _found("clock", _WARN if skew_s > SKEW_WARN_S else _OK, detail)


def _is(key: str, settings: Mapping[str, str], wanted: str, otherwise: str) -> Finding:
    value = settings.get(key, "")
    if value == wanted:
        return _found(key, _OK, value)
    return _found(key, _WARN, f"{value or 'not known'}: {otherwise}; set {key}={wanted}")


def _bound(key: str, value_s: float, good: bool, otherwise: str) -> Finding:
    if good:
        return _found(key, _OK, f"{value_s:.0f} s")
    return _found(key, _WARN, f"{value_s:.0f} s: {otherwise}")


def _seconds(text: str) -> float:
    head = text.split(maxsplit=1)[0] if text.split() else ""
    return float(head) if head.isascii() and head.isdecimal() else 0.0


def _words(settings: Mapping[str, str], key: str) -> list[str]:
    text = settings.get(key, "")
    return [] if text in _NONE else [word.strip().lower() for word in text.split(",")]


def _has(settings: Mapping[str, str], key: str, word: str) -> bool:
    return word in (each.split("=")[0] for each in _words(settings, key))


def _is_set(settings: Mapping[str, str], key: str) -> bool:
    """Later releases number what may be given several times: ``Prolog[0]``."""
    values = (v for k, v in settings.items() if k == key or k.startswith(f"{key}["))
    return any(value not in _NONE for value in values)


def _any_idle(nodes: Iterable[Node]) -> tuple[str, ...]:
    """One idle node, with GPUs if there is one."""
    idle = [n for n in nodes if n.state is NodeState.IDLE]
    return tuple(n.name for n in sorted(idle, key=lambda n: (-n.gpus, n.name))[:1])
