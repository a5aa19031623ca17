"""Answers ``federator usage``: reports of what was used, from the history."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from federator.config import FederationConfig
from federator.config_tenants import gpu_quotas
from federator.daemon.history_answers import NO_HISTORY, HistoryAnswers, check_names
from federator.errors import InvalidRequest
from federator.history.service import JobHistory
from federator.history.usage_query import question_of
from federator.model.viewer import Viewer
from federator.usage.report import report
from federator.wire.replies import Reply
from federator.wire.usage_messages import UsageCall, UsageReply

MAX_ROWS: Final = 5_000  # in one answer
MAX_SUMS: Final = 50_000  # that a report is made of: a second's work of a reader


class UsageDesk:
    """Takes the calls of ``federator usage``; the history's own threads read.

    Args:
        config: has the prices and the quotas.
        history: None: none is kept.
    """

    def __init__(self, config: FederationConfig, history: JobHistory | None) -> None:
        self._history = history
        self._answers = HistoryAnswers()
        self.reconfigure(config)

    def reconfigure(self, config: FederationConfig) -> None:
        """Answer by this configuration from now on."""
        self._federation = config.federation
        self._prices, self._quotas = config.prices.price_list(), gpu_quotas(config.tenants)

    def take(self, call: UsageCall, viewer: Viewer | None, answer: Callable[[Reply], None]) -> None:
        """Take a call; the answer comes later.

        Args:
            call: what is asked.
            viewer: who asks, and sees a part; None: one who sees all.
            answer: takes the answer.

        Raises:
            InvalidRequest: it names what there cannot be, or no history is kept.
        """
        if self._history is None:
            raise InvalidRequest(NO_HISTORY)
        check_names((call.by, call.tenants, call.users, call.sites))
        self._answers.give(self._reported(self._history, call, viewer), answer, call)

    async def _reported(self, history: JobHistory, call: UsageCall, viewer: Viewer | None) -> Reply:
        whole = viewer is None
        made = await history.usage(
            question_of(call, viewer, self._prices),
            MAX_SUMS,
            partial(
                report,
                by=call.by,
                prices=self._prices,
                quotas=self._quotas if whole else (),
                most=MAX_ROWS,
                shows_supply=whole,
            ),
        )
        return UsageReply(report=made, federation=self._federation, is_whole=whole)
