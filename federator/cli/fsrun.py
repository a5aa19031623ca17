"""``fsrun``: a command on nodes of the federation, as srun runs one at a site."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from federator.cli import session
from federator.cli.session import Session
from federator.cli.session_shell import CommandPlace
from federator.cli.session_words import FSRUN, read_words
from federator.errors import InvalidRequest

PROGRAM = FSRUN


def main() -> NoReturn:
    """Entry point of the command."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Carry out one call and return its exit status."""
    return session.run(PROGRAM, lambda: _carry_out(argv, environment))


def _carry_out(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    if session.inside_a_job(environment):
        session.become_srun(argv)
    wanted = read_words(PROGRAM, argv, environment)
    if session.answered(PROGRAM, wanted.options):
        return 0
    if not wanted.command:
        raise InvalidRequest("No command given to execute.")
    terminal = "pty" in wanted.own
    if "jobid" in wanted.own:
        return session.attach(PROGRAM, wanted, CommandPlace.NODES, terminal=terminal)
    job = Session(PROGRAM, wanted)
    with session.ending_with(job):
        job.queue(environment)
        reply = job.await_start()
        status = job.use(reply, CommandPlace.NODES, terminal=terminal)
        return job.give_back(status)


if __name__ == "__main__":
    main()
