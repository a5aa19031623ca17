"""The command by which a script that is not Python sees the deadline, and acknowledges it.

usage: python -m federator.checkpoint ack|deadline|dir|touch
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .job import FederatedJob

if TYPE_CHECKING:
    from collections.abc import Sequence

_HELP = """\
ack       tell that the state is saved: the federation ends the job at once
deadline  print the Unix time at which the job is killed; status 1 if it was not told to leave
dir       print the folder for checkpoints; status 1 if there is none
touch     tell that a checkpoint is complete as of now

Outside the federation, ack and touch do nothing.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m federator.checkpoint",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("ack", "deadline", "dir", "touch"))
    command = parser.parse_args(arguments).command
    job = FederatedJob.from_environment()
    try:
        if command == "ack":
            job.acknowledge()
        elif command == "touch":
            job.checkpointed()
    except OSError as error:
        print(f"federator.checkpoint: the answer cannot be written: {error}", file=sys.stderr)
        return 1
    if command in ("ack", "touch"):
        return 0
    answer = job.deadline_s() if command == "deadline" else job.directory
    if answer is None:
        return 1
    print(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
