"""fscontrol: hold, release and change jobs of the federation, as scontrol does at a site."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from federator.cli import flags
from federator.cli.cancel_ids import job_ids
from federator.cli.client import ask
from federator.cli.flags import Flag, Given, Program
from federator.cli.text import printable, unexpected
from federator.errors import InvalidRequest
from federator.wire.client_protocol import ControlCall, ControlReply, ErrorReply

IDS_IN_A_CALL: Final = 1_000  # that a daemon takes

PROGRAM: Final = Program(
    "fscontrol",
    "COMMAND [ARGUMENT]...",
    "Change jobs of the federation: your own, or anybody's as an operator on the daemon's host.\n\n"
    "  hold JOBS      keep these out of the queue; one that runs, once it is requeued\n"
    "  uhold JOBS     as hold; what an operator holds so, its user may release\n"
    "  release JOBS   let them into the queue again; also tries again what no site took\n"
    "  requeue JOBS   have these leave their sites, after their grace to save, and start again\n"
    "  requeuehold JOBS   as requeue, and hold them then\n"
    "  show job|node|partition|site [NAME]   print all that is known of it\n"
    "  update JobId=JOBS FIELD=VALUE...   change jobs that wait: TimeLimit[+|-], Nice, Name,\n"
    "                 Comment, Dependency, StartTime, Partition, Features, Gres, NumNodes ...\n\n"
    "JOBS are ids (ID, ID_INDEX, ID_[1-3]; an array's id is all of its tasks), or jobname=NAME.\n\n"
    "Examples: fscontrol hold 4294967297 · fscontrol release jobname=train ·\n"
    "fscontrol update JobId=4294967297 TimeLimit=2:00:00",
    (
        Flag("all", "a", about="No effect."),
        Flag("clusters", "M", "NAMES",
             instead="a job is held for all sites; name it by its id", also=("cluster",)),
        Flag("json", about="Print what was changed as JSON."),
        Flag("details", "d", about="No effect."),
        Flag("oneliner", "o", about="Of show: one line each."),
        Flag("quiet", "Q", about="Print no errors."),
        Flag("uid", "u", "USER", instead="who calls is known; operators may change any job"),
        Flag("verbose", "v", about="Say what was changed."),
    ),
)  # fmt: skip

_AT_A_SITE: Final = frozenset(
    {
        "abort", "cancel_reboot", "cluster", "completing", "create", "delete", "errnumstr",
        "fsdampeningfactor", "getaddrs", "getent", "listjobs", "listpids", "liststeps", "notify",
        "pidinfo", "ping", "power", "reboot", "reboot_nodes", "reconfigure", "resume",
        "schedloglevel", "setdebug", "setdebugflags", "shutdown", "suspend", "takeover", "token",
        "wait_job", "write",
    }
)  # fmt: skip
_SAME_FOR_ANY: Final = frozenset({"hide", "all", "details", "oneliner", "quiet", "verbose"})


def fscontrol(given: Given) -> int:
    """Carry out one command; 1 if part of it could not be."""
    words = [word for word in given.operands if word.lower() not in _SAME_FOR_ANY]
    if not words:
        raise InvalidRequest("no command was given; see fscontrol --help")
    verb, rest = _verb(words[0]), words[1:]
    return COMMANDS[verb](given, verb, rest)


def _verb(word: str) -> str:
    """The command that a word, or the beginning of one, means.

    Raises:
        InvalidRequest: there is none, or it is one for a single site.
    """
    asked = word.lower()
    if asked in COMMANDS:
        return asked
    if asked == "top":
        raise InvalidRequest("top is not enabled; lower your other jobs: update JobId=ID Nice=N")
    if asked in _AT_A_SITE:
        raise InvalidRequest(f"{asked} is for one cluster; use scontrol at the job's site")
    found = [verb for verb in COMMANDS if len(asked) >= 3 and verb.startswith(asked)]
    if len(found) == 1:
        return found[0]
    raise InvalidRequest(f"invalid keyword: {word}; commands are {', '.join(COMMANDS)}")


def _change(given: Given, verb: str, words: Sequence[str]) -> int:
    incomplete = [word for word in words if word.lower() != "incomplete"]
    names, ids = _jobs(verb, incomplete if verb.startswith("requeue") else words)
    return _send(given, verb, ids, names, {})


def _send(
    given: Given,
    verb: str,
    ids: tuple[str, ...],
    names: tuple[str, ...],
    fields: dict[str, str],
) -> int:
    done: list[int] = []
    errors: list[str] = []
    for start in range(0, max(len(ids), 1), IDS_IN_A_CALL):
        part = ids[start : start + IDS_IN_A_CALL]
        call = ControlCall(verb=verb, ids=part, names=() if start else names, fields=fields)
        reply = ask(call, lambda text: print(printable(f"fscontrol: {text}"), file=sys.stderr))
        if isinstance(reply, ErrorReply):
            raise InvalidRequest(reply.message)
        if not isinstance(reply, ControlReply):
            raise unexpected(reply)
        done += reply.ids
        errors += reply.errors
    return _say(given, verb, done, errors)


def _update(given: Given, verb: str, words: Sequence[str]) -> int:
    """``update JobId=… FIELD=VALUE …``; without an id JobName chooses the jobs."""
    fields, ids, names = _fields(words)
    if ids is None and names is None:
        raise InvalidRequest("update needs JobId=ID; nodes and partitions are each site's own")
    if not fields:
        raise InvalidRequest("nothing to change; see fscontrol --help")
    for name in ("starttime", "eligibletime"):
        if name in fields:
            from federator.cli.slurm_time import parsed_time  # noqa: PLC0415  # seldom needed

            begin_s = parsed_time(fields[name], time.time(), to_come=True)
            fields[name] = f"uts{begin_s:.0f}"
    return _send(given, verb, ids or (), names or (), fields)


def _fields(
    words: Sequence[str],
) -> tuple[dict[str, str], tuple[str, ...] | None, tuple[str, ...] | None]:
    """The fields to change, and the ids, or the name, of the jobs."""
    fields: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise InvalidRequest(f"Invalid input: {printable(word)}; expected FIELD=VALUE")
        fields[name.lower()] = value
    ids = names = None
    for name in ("jobid", "job"):
        if name in fields:
            ids = job_ids((fields.pop(name),))
    if ids is None and "jobname" in fields:
        names = (fields.pop("jobname"),)
    return fields, ids, names


def _show(given: Given, _verb: str, words: Sequence[str]) -> int:
    from federator.cli.control_show import show  # noqa: PLC0415  # slow to import

    return show(given, words)


def _jobs(verb: str, words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and the ids that an argument list means.

    Raises:
        InvalidRequest: there are none, or one is neither an id nor a name.
    """
    names = tuple(
        word.partition("=")[2] for word in words if word.lower().startswith(("jobname=", "name="))
    )
    rest = [word for word in words if not word.lower().startswith(("jobname=", "name="))]
    ids = job_ids([word.partition("=")[2] if "=" in word else word for word in rest])
    if not names and not ids:
        raise InvalidRequest(f"too few arguments for keyword:{verb}")
    return names, ids


def _say(given: Given, verb: str, done: Sequence[int], errors: Sequence[str]) -> int:
    if "json" in given:
        answer = {"schema": 1, "command": verb, "changed": done, "errors": errors}
        print(msgspec.json.encode(answer).decode())
    elif "verbose" in given:
        for id_ in done:
            print(f"fscontrol: {verb} job {id_}", file=sys.stderr)
    if "quiet" not in given:
        for error in errors:
            print(printable(error), file=sys.stderr)
    return 1 if errors else 0


COMMANDS: Final[Mapping[str, Callable[[Given, str, Sequence[str]], int]]] = MappingProxyType(
    {
        "hold": _change,
        "uhold": _change,
        "release": _change,
        "requeue": _change,
        "requeuehold": _change,
        "show": _show,
        "update": _update,
    }
)


def main() -> None:
    """Entry point of the command."""
    flags.main(PROGRAM, fscontrol)


if __name__ == "__main__":
    main()
