"""``fsbatch``: sbatch for the whole federation, with sbatch's options, output and exit codes."""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from federator import __version__
from federator.cli import pipe
from federator.cli.asked import (
    named,
    timed,
    too_many_nodes,
    travelling,
    umask,
    with_node_file,
    work_dir,
)
from federator.cli.client import NoAnswer, ask, call
from federator.cli.text import is_utf8, printable, reason_text, refusal_text, unexpected
from federator.errors import FederatorError, InvalidRequest, SiteUnavailable
from federator.model.reason import SUBMIT_LIMITS
from federator.model.submission import ScriptEncoding, Submission
from federator.slurm.options.options import (
    MAX_SCRIPT_BYTES,
    CommandLine,
    Options,
    UsageError,
    check_script,
    parse_command_line,
    parse_environment,
    parse_script,
    resolve,
    split_client,
)
from federator.wire.client_protocol import (
    ErrorKind,
    ErrorReply,
    QueueCall,
    QueueReply,
    QueueRow,
    SubmitCall,
    SubmitReply,
)
from federator.wire.queue_rows import QueueOutcome

if TYPE_CHECKING:
    from federator.slurm.options.interpret import Interpreted
    from federator.wire.replies import Reply

POLL_S: Final = 1.0
USAGE_STATUS: Final = 255  # sbatch's -1
# What it says then, in 22.05, 24.11 and 26.05; numbers that are none end it with 1.
_USAGE_WORDS: Final = re.compile(
    r"Invalid --[a-z-]+ specification|\".*\" is not a valid node count"
    r"|Maximum node count \d+ is less than|invalid --profile="
)
_NO_NUMBER: Final = "Invalid numeric value"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A submission with what fsbatch itself is to do about it."""

    submission: Submission
    client: dict[str, str]  # options that never travel, by name


def main() -> NoReturn:
    """Entry point of the command."""
    sys.exit(run(sys.argv[1:], os.environ))


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Carry out one call of fsbatch and return its exit status."""
    try:
        status = _carry_out(argv, environment)
        pipe.flush()
    except UsageError as error:
        print(printable(f"fsbatch: {error}"), file=sys.stderr)
        print('Try "fsbatch --help" for more information', file=sys.stderr)
        return USAGE_STATUS
    except FederatorError as error:
        print(printable(f"fsbatch: error: {error}"), file=sys.stderr)
        return _error_status(str(error), environment)
    except BrokenPipeError:
        pipe.end_by_sigpipe()
    except KeyboardInterrupt:
        return 130
    return status


def _carry_out(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    command_line = parse_command_line(argv)
    asked = {option.name for group in command_line.groups for option in group}
    if "version" in asked and not {"help", "usage"} & asked:
        print(f"federator {__version__}")
        return 0
    if {"help", "usage"} & asked:
        from federator.cli.fsbatch_help import USAGE, help_text  # noqa: PLC0415  # seldom needed

        print(help_text() if "help" in asked else USAGE)
        return 0
    order = read_order(argv, environment)
    if "quiet" not in order.client:
        for text in filter(None, map(too_many_nodes, order.submission.components)):
            _note(f"warning: {text}")
    return _submit(order, environment.get("FED_SUBMIT_KEY") or os.urandom(16).hex())


def _error_status(said: str, environment: Mapping[str, str]) -> int:
    """Return sbatch's status on errors: SLURM_EXIT_ERROR if it is a number above 0, else 1.

    Of the values that it checks itself some end it with ``USAGE_STATUS``, whatever that says.
    """
    if _USAGE_WORDS.match(said):
        return USAGE_STATUS
    text = environment.get("SLURM_EXIT_ERROR", "")
    return int(text) if text.isdecimal() and 0 < int(text) < 256 else 1


# ---- from words to a submission ----


def read_order(argv: Sequence[str], environment: Mapping[str, str]) -> Order:
    """Read command line, environment and script into a submission.

    What the options ask for is not read here: the daemon does that before it queues anything, and
    doing so twice would double the time that fsbatch takes.

    Raises:
        InvalidRequest: in sbatch's words where sbatch has them.
    """
    command_line = parse_command_line(argv)
    name, script, path = _script_of(command_line, environment)
    components = resolve(
        command_line.groups, parse_environment(environment), parse_script(script, name)
    )
    components = tuple(with_node_file(component) for component in components)
    client, components = split_client(components)
    components = tuple(timed(component) for component in components)
    encoding: ScriptEncoding = "utf-8" if is_utf8(script) else "latin-1"
    submission = Submission(
        components=tuple(named(component, name) for component in components),
        script=script.encode("utf-8", "surrogateescape").decode(encoding),
        script_encoding=encoding,
        args=command_line.operands[1:],
        environment=travelling(environment),
        work_dir=work_dir(),
        umask=umask(),
        script_path=path if is_utf8(path) else "",
    )
    return Order(submission=submission, client={o.name: o.value or "" for o in client})


def _script_of(words: CommandLine, environment: Mapping[str, str]) -> tuple[str, str, str]:
    """The name of the script, its text, and its path; "" of what is in no file."""
    first_words = {option.name: option.value for g in words.groups for option in g}
    wrap = first_words.get("wrap")
    if wrap is not None:
        if words.operands:
            raise InvalidRequest("Script arguments not permitted with --wrap option")
        return "wrap", _wrapped(wrap), ""
    if words.operands:
        name = words.operands[0]
        found = _find(name, first_words.get("chdir") or ".", environment)
        script = check_script(_read_file(found, name), name)
        return os.path.basename(name), script, os.path.normpath(os.path.join(work_dir(), found))
    if sys.stdin.isatty():  # "--time job.sh" would wait for a script to be typed
        _check_first(words.groups)
    return "sbatch", check_script(sys.stdin.buffer.read(MAX_SCRIPT_BYTES + 1)), ""


def _check_first(groups: tuple[Options, ...]) -> None:
    """Check each value of the command line; how they go together the script has a say in.

    Raises:
        InvalidRequest: a value is wrong, whatever the script asks for.
    """
    components = split_client(tuple(map(with_node_file, groups)))[1]
    components = tuple(map(timed, components))
    try:
        _interpreted(Submission(components=components, script="#!/bin/sh\n"))
    except InvalidRequest as error:
        if _USAGE_WORDS.match(str(error)) or str(error).startswith(_NO_NUMBER):
            raise


def _wrapped(command: str) -> str:
    script = f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n"
    return check_script(script.encode("utf-8", "surrogateescape"))


def _read_file(found: str, path: str) -> bytes:
    try:
        with open(found, "rb") as file:
            if stat.S_ISDIR(os.fstat(file.fileno()).st_mode):
                return b""
            return file.read(MAX_SCRIPT_BYTES + 1)
    except IsADirectoryError:
        return b""  # sbatch: "Batch script is empty!"
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"Unable to open file {path}") from error


def _find(path: str, work_dir: str, environment: Mapping[str, str]) -> str:
    """Find a script where sbatch does.

    A path that begins with ``/`` or ``.`` is taken as it is. Any other is looked for in
    ``--chdir``, then along PATH (whose relative folders lie in ``--chdir``), and at last here.
    """
    if path.startswith(("/", ".")):
        return path
    for folder in (".", *environment.get("PATH", "").split(":")):
        found = os.path.join(work_dir, folder, path)
        if folder and os.path.exists(found) and not os.path.isdir(found):
            return found
    return path


# ---- to the daemon and back ----


def _expect(reply: Reply) -> Reply:
    """Turn the daemon's refusal into an error of ours."""
    if isinstance(reply, ErrorReply):
        if reply.kind is ErrorKind.UNAVAILABLE:
            raise SiteUnavailable(reply.message)
        own = reply.reasons.get("")
        if own is not None and own.reasons[0].code in SUBMIT_LIMITS:  # a line before, as sbatch
            print(f"fsbatch: error: {own.reasons[0].code.value}", file=sys.stderr)
        sites = [
            f"{site or 'federation'}: {refusal_text(refusal)}"
            for site, refusal in reply.reasons.items()
        ]
        raise InvalidRequest("; ".join([reply.message, *sites]))
    return reply


def _submit(order: Order, key: str) -> int:
    message = SubmitCall(
        submission=order.submission,
        key=key,
        as_user=order.client.get("uid", ""),
        test_only="test-only" in order.client,
        federation=order.client.get("clusters", ""),
    )
    reply = _expect(_queued(message))
    if message.test_only:
        from federator.cli.bid_text import print_bids  # noqa: PLC0415  # slow: plans and bids

        return print_bids(reply, as_json="json" in order.client)
    if not isinstance(reply, SubmitReply):
        raise unexpected(reply)
    if "json" in order.client:
        answer = {"schema": 1, "id": reply.id, "federation": reply.federation}
        print(msgspec.json.encode(answer).decode(), flush=True)
    elif "parsable" in order.client:
        federation = f";{reply.federation}" if message.federation else ""
        print(printable(f"{reply.id}{federation}"), flush=True)
    elif "quiet" not in order.client:
        print(f"Submitted batch job {reply.id}", flush=True)
    if "quiet" not in order.client:  # the id is out: a file system that hangs keeps it from nobody
        from federator.cli.file_warnings import warnings_of  # noqa: PLC0415  # once it is queued

        for text in warnings_of(order.submission):
            _note(text)
    return _wait(reply.id) if "wait" in order.client else 0


def _queued(message: SubmitCall) -> Reply:
    """Ask until the daemon says what became of the submission, or nobody answers any more."""

    def away(text: str) -> None:
        _interpreted(message.submission)  # a mistake is said now, not after a wait
        _note(text)

    try:
        return ask(message, away)
    except NoAnswer as error:
        if message.test_only:
            raise
        raise NoAnswer(f"{error}; {_again(message.key)}") from error
    except KeyboardInterrupt:
        if not message.test_only:
            _note(_again(message.key))
        raise


def _again(key: str) -> str:
    import shlex  # noqa: PLC0415  # seldom needed

    return (
        "it is not known whether the job was queued. To ask again without queueing it twice: "
        f"FED_SUBMIT_KEY={shlex.quote(key)} and the same fsbatch command"
    )


def _interpreted(submission: Submission) -> Interpreted:
    """Interpret a submission as the daemon does; only where time does not matter.

    Raises:
        InvalidRequest: the daemon would refuse it, too.
    """
    from federator.slurm.options.interpret import interpret  # noqa: PLC0415  # slow to import

    return interpret(submission)


def _note(text: str) -> None:
    print(printable(f"fsbatch: {text}"), file=sys.stderr)


def _wait(job_id: int) -> int:
    """Wait until the workload, or every task of the array, has ended or is held.

    Returns:
        The highest exit code; 1 for what a signal, a time limit or a cancellation ended, and for
        what no site takes.
    """
    heard = True
    while True:
        try:
            reply, outcome = _asked_outcome(job_id)
        except SiteUnavailable as error:
            if heard:
                _note(f"{error}; still waiting")
            heard = False
        else:
            heard = True
            if not outcome.unsettled:
                _say_failures(reply.rows, outcome.failed)
                return outcome.exit_code
        time.sleep(POLL_S)


def _asked_outcome(job_id: int) -> tuple[QueueReply, QueueOutcome]:
    reply = _expect(call(QueueCall(ids=(str(job_id),), ended=True, outcome=True)))
    if not isinstance(reply, QueueReply):
        raise unexpected(reply)
    if reply.unknown:
        raise InvalidRequest(f"job {job_id} is no longer known; its end was not seen")
    if reply.outcome is None:
        raise SiteUnavailable(
            "the federation's daemon, or its agent here, is of an older release and does not tell "
            "how jobs end"
        )
    return reply, reply.outcome


def _say_failures(rows: Sequence[QueueRow], failed: int) -> None:
    """Print why the jobs of the rows failed, and how many more did."""
    reasons = [f"job {row.id}: {reason_text(row.reason)}" for row in rows if row.reason]
    for text in reasons:
        _note(text)
    if reasons and failed > len(reasons):
        _note(f"{failed - len(reasons)} more did not complete; fsqueue --states=all shows them")


if __name__ == "__main__":
    main()
