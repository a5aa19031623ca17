"""Answers ``federator doctor``: findings about jobs and quotas, from the history."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from federator.config import FederationConfig
from federator.config_tenants import gpu_quotas
from federator.daemon.history_answers import NO_HISTORY, HistoryAnswers, check_names
from federator.errors import InvalidRequest
from federator.history import doctor_answer
from federator.history.service import JobHistory
from federator.model.viewer import Viewer
from federator.wire.replies import Reply
from federator.wire.usage_messages import DoctorCall


class DoctorDesk:
    """Takes the calls of ``federator doctor``; the history's own threads read and judge.

    Args:
        config: names the federation, and has the quotas.
        history: None: none is kept.
    """

    def __init__(self, config: FederationConfig, history: JobHistory | None) -> None:
        self._history = history
        self._answers = HistoryAnswers()
        self.reconfigure(config)

    def reconfigure(self, config: FederationConfig) -> None:
        """Answer by this configuration from now on."""
        self._federation, self._quotas = config.federation, gpu_quotas(config.tenants)

    def take(
        self, call: DoctorCall, viewer: Viewer | None, answer: Callable[[Reply], None]
    ) -> None:
        """Take a call; the answer comes later.

        Args:
            call: what is asked.
            viewer: who asks, and sees a part; None: one who sees all.
            answer: takes the answer.

        Raises:
            InvalidRequest: it names too much, or no history is kept.
        """
        if self._history is None:
            raise InvalidRequest(NO_HISTORY)
        check_names((call.tenants, call.users))
        self._answers.give(self._found(self._history, call, viewer), answer, call)

    async def _found(self, history: JobHistory, call: DoctorCall, viewer: Viewer | None) -> Reply:
        read = partial(
            doctor_answer.answer,
            call=call,
            viewer=viewer,
            federation=self._federation,
            quotas=self._quotas,
        )
        return doctor_answer.cut(await history.read(read))
