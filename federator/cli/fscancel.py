"""fscancel: end jobs of the federation, wherever they are."""

from __future__ import annotations

import sys

import click

from federator import __version__
from federator.cli.client import ask
from federator.cli.fsqueue import my_name
from federator.cli.usage import run
from federator.cli.words import listed, printable, unexpected
from federator.errors import FederatorError, InvalidRequest
from federator.sites.calls import CancelCall, CancelReply, ErrorReply


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("ids", nargs=-1, metavar="[JOBID[_INDEX]]...")
@click.option("-u", "--user", help="All jobs of this user.")
@click.option("--me", is_flag=True, help="All my jobs.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is cancelled.")
@click.option("-Q", "--quiet", is_flag=True, help="Say nothing of ids that do not exist.")
@click.option("--json", "as_json", is_flag=True, help="Print what was cancelled as JSON.")
@click.version_option(__version__, prog_name="fscancel")
def fscancel(  # one parameter for each option of scancel
    ids: tuple[str, ...], user: str | None, me: bool, verbose: bool, quiet: bool, as_json: bool
) -> None:
    """Cancel jobs by id (an array's id cancels all its tasks), or all of a user's.

    Examples: fscancel 4294967297 · fscancel 4294967300_3 · fscancel --me
    """
    users = (*listed(user), *((my_name(),) if me else ()))
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
    if as_json:
        import json  # noqa: PLC0415

        print(json.dumps({"schema": 1, "cancelled": reply.ids, "errors": reply.errors}))
    elif verbose:
        for id_ in reply.ids:
            print(f"fscancel: Terminating job {id_}", file=sys.stderr)
    errors = [] if quiet else list(reply.errors)
    for error in errors:
        print(printable(f"fscancel: error: Kill job error: {error}"), file=sys.stderr)
    if errors:
        sys.exit(1)


def _note(text: str) -> None:
    print(printable(f"fscancel: {text}"), file=sys.stderr)


def main() -> None:
    """Run the command; errors are one line and exit status 1, as scancel's."""
    try:
        run(fscancel, "fscancel", usage_status=1)
    except FederatorError as error:
        print(printable(f"fscancel: error: {error}"), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
