"""fscontrol: hold, release and change jobs of the federation, as scontrol does at a site."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from federator.cli import flags
from federator.cli.cancel_ids import job_ids, of_federation
from federator.cli.client import ask
from federator.cli.control_words import verb_of
from federator.cli.flags import Flag, Given, Program
from federator.cli.text import printable, unexpected
from federator.errors import InvalidRequest
from federator.slurm.options.update_fields import field_of
from federator.wire.client_protocol import ControlCall, ControlReply, ErrorReply

_TIMES: Final = frozenset({"starttime", "deadline"})
IDS_IN_A_CALL: Final = 1_000  # that a daemon takes
_NEEDS_ID: Final = "update needs JobId=ID; nodes and partitions are each site's own"
_NO_JOBS: Final = ("nodename", "partitionname", "reservation=", "stepid")  # other things to update
_SAME_AS: Final = {
    "EligibleTime": "StartTime",
    "Name": "JobName",
    "ReqNodes": "NumNodes",
    "ReqProcs": "NumTasks",
    "Shared": "OverSubscribe",
}

PROGRAM: Final = Program(
    "fscontrol",
    "COMMAND [ARGUMENT]...",
    "Change jobs of the federation: your own, or anybody's as an operator on the daemon's host.\n\n"
    "  hold JOBS      keep these out of the queue; one that runs, once it is requeued\n"
    "  uhold JOBS     as hold; what an operator holds so, its user may release\n"
    "  release JOBS   let them into the queue again; also tries again what no site took\n"
    "  requeue JOBS   have these leave their sites, after their grace to save, and start again\n"
    "  requeuehold JOBS   as requeue, and hold them then\n"
    "  top JOBS       have your jobs that wait start in this order, before your others\n"
    "  show job|node|partition|site|config [NAME]   print all that is known of it\n"
    "  update JobId=JOBS FIELD=VALUE...   change jobs that wait: TimeLimit[+|-], Nice, Name,\n"
    "                 Account, ArrayTaskThrottle, Comment, Dependency, StartTime, Partition,\n"
    "                 Features, Gres, NumNodes ... (docs/slurm-options.md has all)\n"
    "  ping           say which sites answer\n\n"
    "JOBS are ids (ID, ID_INDEX, ID_[1-3]; an array's id is all of its tasks), or jobname=NAME.\n\n"
    "Examples: fscontrol hold 4294967297 · fscontrol release jobname=train ·\n"
    "fscontrol update JobId=4294967297 TimeLimit=2:00:00",
    (
        Flag("all", "a", about="No effect."),
        Flag("clusters", "M", "NAME", "No effect, if it is the federation's name.",
             also=("cluster",)),
        Flag("details", "d", about="No effect."),
        Flag("federation", about="As without it."),
        Flag("future", "F", about="No effect."),
        Flag("help", "h", about="Show this text."),
        Flag("hide", about="No effect."),
        Flag("json", "", "slurm", optional=True,
             about="Print what was changed as JSON; of show job: as scontrol's --json."),
        Flag("local", about="As without it."),
        Flag("oneliner", "o", about="Of show: one line each."),
        Flag("quiet", "Q", about="Print no errors."),
        Flag("sibling", about="As without it: a job has no siblings."),
        Flag("uid", "u", "USER", instead="who calls is known; operators may change any job"),
        Flag("verbose", "v", about="Say what was changed."),
        Flag("autocomplete", "", "WORD", instead="'federator completion' prints the shell's own"),
        Flag("yaml", "", "VERSION", optional=True, instead="use --json"),
    ),
)  # fmt: skip

_BEFORE: Final = frozenset({"hide", "all", "details", "oneliner", "quiet", "verbose"})


def fscontrol(given: Given) -> int:
    """Carry out one command; 1 if part of it could not be."""
    words = list(given.operands)
    while words and (before := words[0].lower()) in _BEFORE:
        given = Given({**given.values, before: ""}, given.operands)
        del words[0]
    if not words:
        raise InvalidRequest("no command was given; see fscontrol --help")
    verb, rest = verb_of(words[0]), words[1:]
    return CARRIED_OUT[verb](given, verb, rest)


def _change(given: Given, verb: str, words: Sequence[str]) -> int:
    verb = "uhold" if verb == "holdu" else verb
    incomplete = [word for word in words if word.lower() != "incomplete"]
    names, ids = _jobs(verb, incomplete if verb.startswith("requeue") else words)
    return _send(given, verb, ids, names, {})


def _top(given: Given, verb: str, words: Sequence[str]) -> int:
    """``top JOBS``: in this order; all in one call, since they are put before the others."""
    names, ids = _jobs(verb, words)
    if names or len(ids) > IDS_IN_A_CALL:
        raise InvalidRequest(f"top takes ids of jobs, {IDS_IN_A_CALL} at most")
    return _send(given, verb, ids, (), {})


def _send(
    given: Given,
    verb: str,
    ids: tuple[str, ...],
    names: tuple[str, ...],
    fields: dict[str, str],
) -> int:
    done: list[int] = []
    errors: list[str] = []
    ids = of_federation(ids, given.get("clusters"))
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
        raise InvalidRequest(_NEEDS_ID)
    if not fields:
        raise InvalidRequest("nothing to change; see fscontrol --help")
    for name in _TIMES & fields.keys():
        if name == "deadline" and not fields[name]:
            continue  # it is taken away
        from federator.cli.slurm_time import parsed_time  # noqa: PLC0415  # seldom needed

        at_s = parsed_time(fields[name], time.time(), to_come=True)
        fields[name] = f"uts{at_s:.0f}"
    return _send(given, verb, ids or (), names or (), fields)


def _fields(
    words: Sequence[str],
) -> tuple[dict[str, str], tuple[str, ...] | None, tuple[str, ...] | None]:
    """The fields to change, by name in lower case, and the ids, or the name, of the jobs."""
    fields: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        sign = name[-1:] if name[-1:] in ("+", "-") else ""
        if name.lower().startswith(_NO_JOBS):
            raise InvalidRequest(_NEEDS_ID)
        field = field_of(name.removesuffix(sign))
        if not equals and field.name != "Nice":
            raise InvalidRequest(f"Invalid input: {printable(word)}; expected FIELD=VALUE")
        if sign and field.name != "TimeLimit":
            raise InvalidRequest(f"Invalid input: {printable(word)}; only TimeLimit takes {sign}=")
        fields[_SAME_AS.get(field.name, field.name).lower() + sign] = value if equals else "100"
    ids = names = None
    if "jobid" in fields:
        ids = job_ids((fields.pop("jobid"),))
    if ids is None and "jobname" in fields:
        names = (fields.pop("jobname"),)
    return fields, ids, names


def _show(given: Given, _verb: str, words: Sequence[str]) -> int:
    from federator.cli.control_show import show  # noqa: PLC0415  # slow to import

    return show(given, words)


def _ping(_given: Given, _verb: str, _words: Sequence[str]) -> int:
    from federator.cli.control_show import ping  # noqa: PLC0415  # slow to import

    return ping()


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


CARRIED_OUT: Final[Mapping[str, Callable[[Given, str, Sequence[str]], int]]] = MappingProxyType(
    {
        "hold": _change,
        "uhold": _change,
        "holdu": _change,
        "release": _change,
        "requeue": _change,
        "requeuehold": _change,
        "top": _top,
        "update": _update,
        "show": _show,
        "ping": _ping,
        "version": lambda _given, _verb, _words: flags.say_version(PROGRAM),
        "help": lambda _given, _verb, _words: flags.say_help(PROGRAM),
    }
)
"""Those of ``control_words.COMMANDS`` that are not refused; others stand before a command."""


def main() -> None:
    """Entry point of the command."""
    flags.main(PROGRAM, fscontrol)


if __name__ == "__main__":
    main()
