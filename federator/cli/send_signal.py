"""Has the sites send a signal to jobs, for ``fscancel --signal``."""

from __future__ import annotations

from federator.cli.client import call
from federator.cli.flags import Given
from federator.cli.text import unexpected
from federator.errors import InvalidRequest
from federator.wire.client_protocol import ErrorReply, SignalCall, SignalReply

JOBS_IN_A_CALL = 200


def signalled(
    given: Given, ids: tuple[str, ...], signal: str
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Send it; return the ids of the jobs that got it, and an error for each other.

    Args:
        given: ``--full`` and ``--batch`` say to which part of a job; by default its steps.
        ids: of jobs that run.
        signal: its name, without SIG.
    """
    to = "all" if "full" in given else "batch" if "batch" in given else "steps"
    done: list[int] = []
    errors: list[str] = []
    for start in range(0, len(ids), JOBS_IN_A_CALL):
        part = ids[start : start + JOBS_IN_A_CALL]
        reply = call(SignalCall(ids=part, signal=signal, to=to))  # once: it is not repeatable
        if isinstance(reply, ErrorReply):
            raise InvalidRequest(reply.message)
        if not isinstance(reply, SignalReply):
            raise unexpected(reply)
        done += reply.ids
        errors += reply.errors
    return tuple(done), tuple(errors)
