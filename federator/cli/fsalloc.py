"""``fsalloc``: nodes of the federation for a shell or a command, as salloc has them at one site."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from federator.cli import session
from federator.cli.session import Session
from federator.cli.session_shell import CommandPlace
from federator.cli.session_words import FSALLOC, read_words

PROGRAM = FSALLOC


def main() -> NoReturn:
    """Entry point of the command."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Carry out one call and return its exit status."""
    return session.run(PROGRAM, lambda: _carry_out(argv, environment))


def _carry_out(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    wanted = read_words(PROGRAM, argv, environment)
    if session.answered(PROGRAM, wanted.options):
        return 0
    keeps = "no-shell" in wanted.own
    allocation = Session(PROGRAM, wanted, watched=not keeps)
    with session.ending_with(allocation):
        allocation.queue(environment)
        try:
            reply = allocation.await_start()
        except KeyboardInterrupt:
            allocation.cancel()
            allocation.say(f"Job allocation {allocation.id} has been revoked.", always=True)
            return 1
        allocation.say(f"Granted job allocation {allocation.id} on {reply.site}")
        if keeps:
            return 0
        place = CommandPlace.LOGIN if wanted.command else CommandPlace.SHELL
        terminal = place is CommandPlace.SHELL or (os.isatty(0) and os.isatty(1))
        status = allocation.use(reply, place, terminal=terminal)
        allocation.say(f"Relinquishing job allocation {allocation.id}")
        return allocation.give_back(status)


if __name__ == "__main__":
    main()
