"""How does a click command end on wrong usage? With one line and the family's exit status."""

from __future__ import annotations

import sys

import click


def run(command: click.Command, program: str, usage_status: int) -> None:
    """Run ``command`` and exit; what click finds wrong is one line on stderr.

    Args:
        command: its callback may raise errors of ours, which pass through.
        program: the name in the message.
        usage_status: exit status for wrong options and arguments.
    """
    try:
        status = command.main(prog_name=program, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:  # a group without a command
        print(error.format_message(), file=sys.stderr)
        sys.exit(usage_status)
    except click.ClickException as error:
        print(f"{program}: error: {error.format_message()}", file=sys.stderr)
        sys.exit(usage_status)
    except click.Abort:
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)
