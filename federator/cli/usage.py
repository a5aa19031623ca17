"""Ends a click command that cannot do its work with one line and an exit status."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from federator.cli import pipe
from federator.errors import (
    AuditError,
    ConfigError,
    DamagedAudit,
    DamagedLog,
    FederatorError,
    HistoryError,
    InvalidRequest,
    LeadershipLost,
    LogIsOld,
    NotAllowed,
    SiteUnavailable,
    StoreError,
)

_STATUSES: Final[tuple[tuple[type[FederatorError], int], ...]] = (
    (ConfigError, os.EX_CONFIG),
    (LogIsOld, os.EX_CONFIG),
    (InvalidRequest, os.EX_USAGE),
    (NotAllowed, os.EX_NOPERM),
    (SiteUnavailable, os.EX_UNAVAILABLE),
    (LeadershipLost, os.EX_TEMPFAIL),  # a kind of StoreError, as the next: so before it
    (DamagedLog, os.EX_DATAERR),
    (DamagedAudit, os.EX_DATAERR),
    (AuditError, os.EX_IOERR),
    (HistoryError, os.EX_IOERR),
    (StoreError, os.EX_IOERR),
)


def run(command: click.Command, program: str, usage_status: int) -> None:
    """Run ``command`` and exit; what click finds wrong is one line on stderr.

    Args:
        command: its callback may raise errors of ours, which pass through.
        program: the name in the message.
        usage_status: exit status for wrong options and arguments.
    """
    try:
        status = command.main(prog_name=program, standalone_mode=False)
        pipe.flush()
    except BrokenPipeError:
        pipe.end_by_sigpipe()
    except click.exceptions.NoArgsIsHelpError as error:  # a group without a command
        print(error.format_message(), file=sys.stderr)
        sys.exit(usage_status)
    except click.ClickException as error:
        print(f"{program}: error: {error.format_message()}", file=sys.stderr)
        sys.exit(usage_status)
    except click.Abort:
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)


def exit_status(error: FederatorError) -> int:
    """The sysexits.h status for an error of an admin command."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), os.EX_SOFTWARE)
