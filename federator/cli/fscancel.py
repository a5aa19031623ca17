"""fscancel: end jobs of the federation, wherever they are, or send them signals."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Final

import msgspec

from federator.cli import flags
from federator.cli.cancel_ids import job_ids
from federator.cli.client import ask
from federator.cli.flags import Flag, Given, Program
from federator.cli.text import my_name, printable, unexpected, users_named
from federator.errors import InvalidRequest
from federator.wire.client_protocol import CancelCall, CancelReply, ErrorReply

IDS_IN_A_CALL: Final = 1_000  # that a daemon takes

PROGRAM: Final = Program(
    "fscancel",
    "[JOBID[_INDEX]]...",
    "Cancel jobs by id (an array's id cancels all its tasks), by what they are, or all of a "
    "user's.\nWithout an id or --user only your own, unless you are root.\n\n"
    "Examples: fscancel 4294967297 · fscancel 4294967300_[1-3] · fscancel --me -t PENDING",
    (
        Flag("account", "A", "NAME", "Only jobs of this account.", variable="SCANCEL_ACCOUNT"),
        Flag("batch", "b", about="Signal the batch script alone.", variable="SCANCEL_BATCH",
             is_true=True),
        Flag("clusters", "M", "NAMES", "Only jobs at these sites; 'all', or the federation's name.",
             also=("cluster",), variable="SLURM_CLUSTERS"),
        Flag("cron", "c", about="No effect.", variable="SCANCEL_CRON"),
        Flag("ctld", about="No effect.", variable="SCANCEL_CTLD"),
        Flag("full", "f", about="Signal the batch script and all steps.", variable="SCANCEL_FULL",
             is_true=True),
        Flag("hurry", "H", about="No effect.", variable="SCANCEL_HURRY"),
        Flag("interactive", "i", about="Ask before each job.", variable="SCANCEL_INTERACTIVE",
             is_true=True),
        Flag("json", about="Print what was cancelled as JSON."),
        Flag("me", about="All my jobs."),
        Flag("name", "n", "NAME", "Only jobs called so.", also=("jobname",),
             variable="SCANCEL_NAME"),
        Flag("nodelist", "w", "NODES", "Only jobs on these nodes; a path: a file of names."),
        Flag("partition", "p", "NAME", "Only jobs in this partition.",
             variable="SCANCEL_PARTITION"),
        Flag("qos", "q", "NAME", "Only jobs with this QOS.", variable="SCANCEL_QOS"),
        Flag("quiet", "Q", about="Say nothing of ids that do not exist."),
        Flag("reservation", "R", "NAME", "Only jobs in this reservation."),
        Flag("signal", "s", "SIGNAL", "Send this to running jobs; KILL cancels."),
        Flag("state", "t", "STATE", "Only PENDING, RUNNING or SUSPENDED jobs.",
             variable="SCANCEL_STATE"),
        Flag("user", "u", "NAME", "All jobs of this user.", variable="SCANCEL_USER",
             unless=("me",)),
        Flag("verbose", "v", about="Say what is cancelled.", variable="SCANCEL_VERBOSE",
             is_true=True),
        Flag("wckey", "", "KEY", "Only jobs with this workload key.", variable="SCANCEL_WCKEY"),
        Flag("admin-comment", "", "TEXT",
             instead="the federation keeps no such comment; leave it out"),
        Flag("autocomplete", "", "TEXT", instead="complete the words of scancel"),
        Flag("sibling", "", "SITE", instead="a job is at one site at a time; cancel it by its id"),
    ),
)  # fmt: skip
SELECTING: Final = frozenset(
    {"account", "name", "nodelist", "partition", "qos", "reservation", "state", "wckey"}
)
"""Options that choose jobs by what they are."""


def fscancel(given: Given) -> int:
    """Cancel what the command line names; 1 if any of it could not be."""
    users = (*users_named(given.get("user")), *((my_name(),) if "me" in given else ()))
    options = set(given.values)
    if not given.operands and not users and not options & SELECTING:
        raise InvalidRequest("No job identification provided")
    _check_users(given)
    ids = job_ids(given.operands)
    signal = _signal(given)
    if signal or options & {*SELECTING, "interactive", "clusters"}:
        from federator.cli import cancel_selected  # noqa: PLC0415  # most name ids

        return cancel_selected.run(given, ids, users, signal)
    reply = cancelled(ids, users)
    # Of the ids only those of the users named are cancelled.
    names = ids if ids and not users else map(str, reply.ids)
    return say(given, reply.ids, reply.errors, names)


def _check_users(given: Given) -> None:
    """Refuse a user whom nobody is, as scancel does; root may mean one of another site.

    Who has jobs in the queue is somebody, though this host may not know them, or by another name.
    """
    if "user" not in given or os.geteuid() == 0:
        return
    from federator.cli.unknown_names import is_user, with_jobs  # noqa: PLC0415  # seldom needed

    missing = [name for name in users_named(given.get("user")) if not is_user(name)]
    for name in missing and set(missing) - with_jobs(missing):
        raise InvalidRequest(f"Invalid user name: {printable(name)}")


def _signal(given: Given) -> str:
    """The signal to send, without SIG; "": the jobs are to end, as with KILL."""
    text = given.get("signal")
    if text is None:
        return ""
    from federator.cli.signal_names import signal_name  # noqa: PLC0415

    name = signal_name(text)
    return "" if name == "KILL" else name


def cancelled(ids: tuple[str, ...], users: tuple[str, ...]) -> CancelReply:
    """Have the daemon cancel these; of many ids some at a time."""
    done: list[int] = []
    errors: list[str] = []
    for start in range(0, max(len(ids), 1), IDS_IN_A_CALL):
        reply = ask(CancelCall(ids=ids[start : start + IDS_IN_A_CALL], users=users), _note)
        if isinstance(reply, ErrorReply):
            raise InvalidRequest(reply.message)
        if not isinstance(reply, CancelReply):
            raise unexpected(reply)
        done += reply.ids
        errors += reply.errors
    return CancelReply(ids=tuple(done), errors=tuple(errors))


def say(
    given: Given,
    ids: tuple[int, ...],
    errors: tuple[str, ...],
    names: Iterable[str],
    what: str = "Terminating",
) -> int:
    """Say what became of it; return the exit status.

    Args:
        given: ``--json``, ``--verbose`` and ``--quiet`` count.
        ids: of the jobs to which it was done.
        errors: one for each other.
        names: for ``--verbose``, as scancel says them: of those that were asked for.
        what: was done.
    """
    if "json" in given:
        answer = {"schema": 1, "cancelled": ids, "errors": errors}
        print(msgspec.json.encode(answer).decode())
    elif "verbose" in given:
        for name in names:
            print(f"fscancel: {what} job {name}", file=sys.stderr)
    errors = () if "quiet" in given else errors
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
