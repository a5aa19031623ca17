"""Asks a site what it remembers of attempts, and puts its answers into the words of the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import structlog

from federator.model.message import AttemptsShown, Remembered
from federator.model.submission import pack_submission
from federator.model.tagged import Message
from federator.model.workload import AttemptId, SiteName
from federator.wire.agent_protocol import RecoverAsk, RecoverDone, RememberedAttempt

log = structlog.get_logger()


class AttemptRecall:
    """The attempts that one site was asked about and has not answered for.

    Args:
        site: its name.
        send: sends a message over the channel that is up.
        observe: takes in what the site remembers of attempts that it was asked about.
    """

    def __init__(
        self,
        site: SiteName,
        send: Callable[[Message], None],
        observe: Callable[[AttemptsShown], None],
    ) -> None:
        self._site = site
        self._send = send
        self._observe = observe
        self._asked: set[AttemptId] = set()

    def ask(self, attempts: tuple[AttemptId, ...]) -> None:
        """Have the site tell what it knows of these; if the channel breaks it is asked again."""
        self._asked.update(attempts)
        self._send(RecoverAsk(ask_id=0, attempts=attempts))

    def take(self, done: RecoverDone) -> None:
        """Pass on what the site answers; nothing of attempts that nobody has asked about."""
        if done.detail:
            log.warning("attempts_not_told", site=self._site, detail=done.detail)
        attempts = tuple(remembered(kept) for kept in done.kept if kept.attempt in self._asked)
        self._asked.difference_update(kept.attempt for kept in done.kept)
        if attempts:
            self._observe(AttemptsShown(site=self._site, attempts=attempts))


def remembered(kept: RememberedAttempt) -> Remembered:
    """Put what a site remembers into the words of the core."""
    order, origin = kept.order, kept.order.origin if kept.order is not None else None
    found = Remembered(
        attempt=kept.attempt,
        user=kept.user,
        site_job_id=kept.site_job_id,
        void=kept.void,
        withdrawn=kept.withdrawn,
        cancelled=kept.cancelled,
        report=kept.report,
        unnotified=kept.unnotified,
    )
    if order is None or origin is None:
        return found
    return replace(
        found,
        workload=replace(origin.workload, submission=pack_submission(order.submission)),
        jobs=order.jobs,
        key=origin.key,
        priority=origin.priority,
        within_quota=origin.within_quota,
        credit=origin.credit,
    )
