"""Reloads federation.yaml while the daemon leads: all of it or nothing, between two turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from federator.audit.chain import AuditAct
from federator.config import FederationConfig
from federator.model.workload import SiteName
from federator.wire.client_protocol import ErrorReply, ReloadCall, ReloadReply
from federator.wire.replies import Reply
from federator.wire.status_rows import KeyChange

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class AskedReload:
    """A reload that somebody has asked for.

    Attributes:
        dry_run: nothing is to be changed.
        by: the operator; "": a signal.
        answer: takes the reply.
    """

    dry_run: bool
    by: str
    answer: Callable[[Reply], None]


class ReloadQueue:
    """The reloads that wait for the end of the daemon's turn.

    Args:
        wake: sees to it that a turn comes.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: list[AskedReload] = []

    def ask(self, call: ReloadCall, by: str, answer: Callable[[Reply], None]) -> None:
        """Reload at the end of this turn, or of the next."""
        self._waiting.append(AskedReload(call.dry_run, by, answer))
        self._wake()

    def taken(self) -> list[AskedReload]:
        """Those that wait; they wait no more."""
        waiting, self._waiting = self._waiting, []
        return waiting


def changed_links(
    before: FederationConfig, after: FederationConfig, *, has_history: bool
) -> tuple[list[SiteName], list[SiteName]]:
    """The sites whose channels end, and those to which a new one is made.

    A site whose agent is told something else now is among both. Without a history none
    is told to tell of its site's own jobs.
    """

    def terms(config: FederationConfig, name: SiteName) -> object:
        return _terms_of_link(config, name, has_history=has_history)

    ends = [n for n in before.sites if terms(before, n) != terms(after, n)]
    return ends, [n for n in after.sites if n in ends or n not in before.sites]


def _terms_of_link(config: FederationConfig, name: SiteName, *, has_history: bool) -> object:
    """The way to a site, and what its agent is told at the start; None: it is not configured."""
    site = config.sites.get(name)
    if site is None:
        return None
    gpus = {kind: gpu.model_dump() for kind, gpu in config.gpus.items()}
    return site.model_dump(exclude={"region"}), gpus, has_history and config.watches(name)


def reload_act(asked: AskedReload, changes: Sequence[KeyChange], now_s: float) -> AuditAct:
    """A reload, for the audit; ``by`` "": a signal."""
    effect = {each.key: [each.before, each.after] for each in changes}
    return AuditAct(at_s=now_s, act="reload", by=asked.by, effect=effect)


def refuse(asked: AskedReload, error: Exception) -> None:
    """Say that nothing was changed, and why."""
    log.warning("reload_refused", by=asked.by, detail=str(error))
    asked.answer(ErrorReply(message=str(error)))


def report(
    asked: AskedReload, path: str, changes: Sequence[KeyChange], config: FederationConfig
) -> None:
    """Say what has changed, or would."""
    if not asked.dry_run:
        for each in changes:
            log.info("reload_change", key=each.key, before=each.before, after=each.after)
        log.info("reloaded", by=asked.by, path=path, changes=len(changes))
        for warning in config.warnings:
            log.warning("configuration", detail=warning)
    asked.answer(
        ReloadReply(
            path=path, changes=tuple(changes), dry_run=asked.dry_run, warnings=config.warnings
        )
    )
