"""Has the sites send a signal to jobs, for ``fscancel --signal``."""

from __future__ import annotations

from federator.cli.client import call
from federator.cli.flags import Given
from federator.cli.text import unexpected
from federator.errors import InvalidRequest
from federator.wire.client_protocol import ErrorReply, SignalCall, SignalReply

JOBS_IN_A_CALL = 200


def signalled(given: Given, ids: tuple[str, ...], signal: str) -> tuple[str, ...]:
    """Send it; return an error for each job that did not get it.

    Args:
        given: ``--full`` and ``--batch`` say to which part of a job; by default its steps.
        ids: of jobs that run.
        signal: its name, without SIG.
    """
    to = "all" if "full" in given else "batch" if "batch" in given else "steps"
    errors: list[str] = []
    for start in range(0, len(ids), JOBS_IN_A_CALL):
        part = ids[start : start + JOBS_IN_A_CALL]
        reply = call(SignalCall(ids=part, signal=signal, to=to))  # once: it is not repeatable
        if isinstance(reply, ErrorReply):
            raise InvalidRequest(reply.message)
        if not isinstance(reply, SignalReply):
            raise unexpected(reply)
        errors += reply.errors
    return tuple(errors)
