"""Answers ``federator usage``: reports of what was used, from the history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from federator.config import FederationConfig
from federator.config_tenants import gpu_quotas
from federator.daemon.accounting import NO_HISTORY
from federator.errors import HistoryError, InvalidRequest
from federator.history.service import JobHistory
from federator.history.usage_query import question_of
from federator.model.viewer import Viewer
from federator.usage.report import report
from federator.wire.client_protocol import ErrorKind, ErrorReply
from federator.wire.replies import Reply
from federator.wire.usage_messages import UsageCall, UsageReply

MAX_ROWS: Final = 5_000  # in one answer
MAX_SUMS: Final = 50_000  # that a report is made of: a second's work of a reader
MAX_NAMES: Final = 1_000  # of one kind, in one question

log = structlog.get_logger()


class UsageDesk:
    """Takes the calls of ``federator usage``; the history's own threads read.

    Args:
        config: has the prices and the quotas.
        history: None: none is kept.
    """

    def __init__(self, config: FederationConfig, history: JobHistory | None) -> None:
        self._history = history
        self._tasks: set[asyncio.Task[None]] = set()  # or they could be lost on their way
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
        if max(map(len, (call.by, call.tenants, call.users, call.sites))) > MAX_NAMES:
            raise InvalidRequest(f"more than {MAX_NAMES} names of one kind; ask for fewer")
        task = asyncio.get_running_loop().create_task(
            self._answer(self._history, call, viewer, answer)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(
        self,
        history: JobHistory,
        call: UsageCall,
        viewer: Viewer | None,
        answer: Callable[[Reply], None],
    ) -> None:
        try:
            whole = viewer is None
            made = await history.usage(
                question_of(call, viewer),
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
            answer(UsageReply(report=made, federation=self._federation, is_whole=whole))
        except HistoryError as error:
            answer(ErrorReply(message=str(error), kind=ErrorKind.UNAVAILABLE))
        except InvalidRequest as error:
            answer(ErrorReply(message=str(error)))
        except Exception:  # a fault of ours must not leave the caller without an answer
            log.exception("call_fault", call=type(call).__name__)
            answer(ErrorReply(message="the daemon failed on this request; its log says how"))
