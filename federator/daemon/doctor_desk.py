"""Answers ``federator doctor``: findings about jobs and quotas, from the history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from federator.config import FederationConfig
from federator.config_tenants import gpu_quotas
from federator.daemon.accounting import NO_HISTORY
from federator.daemon.usage_desk import MAX_NAMES
from federator.errors import HistoryError, InvalidRequest, NotAllowed
from federator.history import doctor_answer
from federator.history.service import JobHistory
from federator.model.viewer import Viewer
from federator.wire.client_protocol import ErrorKind, ErrorReply
from federator.wire.replies import Reply
from federator.wire.usage_messages import DoctorCall

log = structlog.get_logger()


class DoctorDesk:
    """Takes the calls of ``federator doctor``; the history's own threads read and judge.

    Args:
        config: names the federation, and has the quotas.
        history: None: none is kept.
    """

    def __init__(self, config: FederationConfig, history: JobHistory | None) -> None:
        self._history = history
        self._tasks: set[asyncio.Task[None]] = set()  # or they could be lost on their way
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
        if max(len(call.tenants), len(call.users)) > MAX_NAMES:
            raise InvalidRequest(f"more than {MAX_NAMES} names of one kind; ask for fewer")
        made = self._answer(self._history, call, viewer, answer)
        task = asyncio.get_running_loop().create_task(made)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(
        self,
        history: JobHistory,
        call: DoctorCall,
        viewer: Viewer | None,
        answer: Callable[[Reply], None],
    ) -> None:
        read = partial(
            doctor_answer.answer,
            call=call,
            viewer=viewer,
            federation=self._federation,
            quotas=self._quotas,
        )
        try:
            answer(await history.read(read))
        except HistoryError as error:
            answer(ErrorReply(message=str(error), kind=ErrorKind.UNAVAILABLE))
        except NotAllowed as error:
            answer(ErrorReply(message=str(error), kind=ErrorKind.DENIED))
        except InvalidRequest as error:
            answer(ErrorReply(message=str(error)))
        except Exception:  # a fault of ours must not leave the caller without an answer
            log.exception("call_fault", call=type(call).__name__)
            answer(ErrorReply(message="the daemon failed on this request; its log says how"))
