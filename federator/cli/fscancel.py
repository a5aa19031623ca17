"""fscancel: end jobs of the federation, wherever they are."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from federator.cli import flags
from federator.cli.client import ask
from federator.cli.flags import Flag, Given, Program
from federator.cli.text import listed, my_name, printable, unexpected
from federator.errors import InvalidRequest
from federator.wire.client_protocol import CancelCall, CancelReply, ErrorReply

PROGRAM: Final = Program(
    "fscancel",
    "[JOBID[_INDEX]]...",
    "Cancel jobs by id (an array's id cancels all its tasks), or all of a user's.\n\n"
    "Examples: fscancel 4294967297 · fscancel 4294967300_3 · fscancel --me",
    (
        Flag("user", "u", "NAME", "All jobs of this user."),
        Flag("me", about="All my jobs."),
        Flag("verbose", "v", about="Say what is cancelled."),
        Flag("quiet", "Q", about="Say nothing of ids that do not exist."),
        Flag("json", about="Print what was cancelled as JSON."),
    ),
)


def fscancel(given: Given) -> int:
    """Cancel what the command line names; 1 if any of it could not be."""
    users = (*listed(given.get("user")), *((my_name(),) if "me" in given else ()))
    ids = given.operands
    if not ids and not users:
        raise InvalidRequest("No job identification provided")
    wanted = tuple(id_ for word in ids for id_ in listed(word))
    if ids and not wanted:  # an empty variable must not widen --me to everything
        raise InvalidRequest("Invalid job id specified: it is empty")
    reply = ask(CancelCall(ids=wanted, users=users), _note)
    if isinstance(reply, ErrorReply):
        raise InvalidRequest(reply.message)
    if not isinstance(reply, CancelReply):
        raise unexpected(reply)
    if "json" in given:
        answer = {"schema": 1, "cancelled": reply.ids, "errors": reply.errors}
        print(msgspec.json.encode(answer).decode())
    elif "verbose" in given:
        for id_ in reply.ids:
            print(f"fscancel: Terminating job {id_}", file=sys.stderr)
    errors = () if "quiet" in given else reply.errors
    for error in errors:
        print(printable(f"fscancel: error: Kill job error: {error}"), file=sys.stderr)
    return 1 if errors else 0


def _note(text: str) -> None:
    print(printable(f"fscancel: {text}"), file=sys.stderr)


def main() -> None:
    """Entry point of the command."""
    flags.main(PROGRAM, fscancel)


if __name__ == "__main__":
    main()
