"""sstat under ``federator shims``: what a job uses while it runs is known at its site alone."""

from __future__ import annotations

import sys
from typing import Final, NoReturn

from federator.cli import flags
from federator.cli.client import call
from federator.cli.text import listed, printable, unexpected
from federator.errors import InvalidRequest
from federator.wire.client_protocol import ErrorReply, QueueCall, QueueReply

_AFTERWARDS: Final = "fseff and fsacct show what it used when it has ended"


def where(words: list[str]) -> str:
    """What to do instead, with the site and its number of the job that is asked about."""
    ids = _asked(words)
    if not ids:
        return f"the federation has no sstat; call it at the job's site. {_AFTERWARDS}"
    job, _, step = ids[0].partition(".")
    reply = call(QueueCall(ids=(job,), ended=True))
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    if not isinstance(reply, QueueReply):
        raise unexpected(reply)
    row = next((row for row in reply.rows if row.site_job_id), None)
    if row is None:
        return f"job {job} is at no site now. {_AFTERWARDS}"
    there = f"{row.site_job_id}.{step}" if step else str(row.site_job_id)
    return f"job {job} is {row.site_job_id} at {row.site}; there: sstat -j {there}. {_AFTERWARDS}"


def _asked(words: list[str]) -> tuple[str, ...]:
    """The ids behind -j, or without it."""
    for k, word in enumerate(words):
        if word in ("-j", "--jobs", "--job"):
            return listed(",".join(words[k + 1 : k + 2]))
        if word.startswith("--job") and "=" in word:
            return listed(word.partition("=")[2])
        if word.startswith("-j"):
            return listed(word[2:])
    return tuple(word for word in words if word[:1].isdigit())


def main() -> NoReturn:
    """Entry point of the command."""
    sys.exit(flags.ended_well("sstat", _refuse))


def _refuse() -> int:
    raise InvalidRequest(printable(where(sys.argv[1:])))
