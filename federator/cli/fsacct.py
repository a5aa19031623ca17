"""fsacct: jobs of the federation that live, and those that have ended, with sacct's options."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

import msgspec

from federator.cli import flags
from federator.cli.accounting_columns import (
    BRIEF,
    COLUMNS,
    DEFAULT,
    LONG,
    OF_USE,
    AccountingLine,
    table_lines,
)
from federator.cli.client import call
from federator.cli.columns import Field, by_sacct_names, delimited_lines, sacct_lines
from federator.cli.flags import Flag, Given, Program
from federator.cli.job_states import CODES
from federator.cli.node_lists import expanded
from federator.cli.slurm_time import midnight, parsed_time
from federator.cli.text import clock, listed, my_name, printable, unexpected
from federator.errors import InvalidRequest, SiteUnavailable
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow
from federator.wire.client_protocol import (
    AccountingCall,
    AccountingReply,
    ErrorKind,
    ErrorReply,
)

_ID: Final = re.compile(
    r"([0-9]{1,19})(?:_([0-9]{1,9}|\[[0-9,-]*\]))?(?:\+[0-9]{1,9})?"
    r"(?:\.(?:[0-9]{1,9}(?:\+[0-9]{1,9})?|batch|extern|interactive))?((?:;.+)?)",
    re.ASCII,
)
_IDS: Final = frozenset({"JobID", "JobIDRaw"})
_IDS_AT_ONCE: Final = 500  # in one question
_NAMED: Final = {code: name for name, code in CODES.items()}
_NOT_HERE: Final = "the accounts of a site have it: sacct there"

_SLURMS_JSON: Final = re.compile(r"slurm|v0\.0\.[0-9]{2}", re.ASCII)

PROGRAM: Final = Program(
    "fsacct",
    "",
    "Show jobs of the federation, ended or not, with sacct's options.\n\n"
    "Examples: fsacct · fsacct -j 4294967297 · fsacct -S now-7days -X -P -o JobID,State,Elapsed",
    (
        Flag("accounts", "A", "NAMES", "Only these accounts.", also=("account",)),
        Flag("allclusters", "L", about="As without it: all sites."),
        Flag("allocations", "X", about="One row for each job, none for its attempts."),
        Flag("allusers", "a", about="Everybody's jobs."),
        Flag("array", about="As without it: tasks of arrays that wait share a row."),
        Flag("brief", "b", about=f"As --format={BRIEF}."),
        Flag("clusters", "M", "NAMES", "Only jobs at these sites; 'all', or the federation's name.",
             also=("cluster",)),
        Flag("delimiter", "", "TEXT", "Between the fields of -p and -P, in place of a bar."),
        Flag("duplicates", "D", about="A row for each earlier attempt, as if it were its job."),
        Flag("endtime", "E", "TIME", "Only jobs that were there before; by default now."),
        Flag("expand-patterns", about="As without it."),
        Flag("federation", about="As without it.", variable="SACCT_FEDERATION"),
        Flag("format", "o", "FIELDS", "Columns: JobID%20,State (--helpformat).",
             variable="SACCT_FORMAT", unless=("brief", "long"), also=("fields",)),
        Flag("help", "h", about="Show this text."),
        Flag("helpformat", "e", about="The names of --format.", also=("help-fields",)),
        Flag("helpreason", instead="docs/reasons.md has the federation's reasons"),
        Flag("helpstate", about="The states of --state."),
        Flag("jobs", "j", "IDS", "Only these job ids.", also=("job",), adds=True),
        Flag("json", "", "slurm", "Print JSON (docs/formats.md), or as sacct's --json.",
             optional=True),
        Flag("local", about="As without it.", variable="SACCT_LOCAL"),
        Flag("long", "l", about="More columns."),
        Flag("name", "", "NAMES", "Only jobs called so."),
        Flag("noconvert", about="Memory in MiB."),
        Flag("nodelist", "N", "NODES", "Only jobs that were on these nodes."),
        Flag("noheader", "n", about="No header lines."),
        Flag("parsable", "p", about="Fields with a bar behind each."),
        Flag("parsable2", "P", about="Fields with bars between them."),
        Flag("partition", "r", "NAMES", "Only these partitions."),
        Flag("starttime", "S", "TIME", "Only jobs that were there after; by default today's."),
        Flag("state", "s", "STATES", "Only jobs that were in such a state in that time."),
        Flag("units", "", "KMGTP", "The unit of memory."),
        Flag("user", "u", "NAMES", "Only these users' jobs; by default my own.",
             also=("uid", "users")),
        Flag("use-local-uid", about="As without it: users are named, not numbered."),
        Flag("verbose", "v", about="Say how many jobs there are."),
        Flag("associations", "x", "IDS", instead="name an account (-A)"),
        Flag("autocomplete", "", "WORD", instead="'federator completion' prints the shell's own"),
        Flag("batch-script", "B", instead=_NOT_HERE),
        Flag("completion", "c", instead=_NOT_HERE),
        Flag("constraints", "C", "LIST", instead=_NOT_HERE),
        Flag("env-vars", instead=_NOT_HERE),
        Flag("file", "f", "FILE", instead="only the federation's own history is read"),
        Flag("flags", "F", "LIST", instead=_NOT_HERE),
        Flag("gid", "g", "GROUPS", instead="name users (-u)", also=("group",)),
        Flag("ncpus", "I", "RANGE", instead="print AllocCPUS and choose"),
        Flag("nnodes", "i", "RANGE", instead="print NNodes and choose"),
        Flag("qos", "q", "NAMES", instead="print QOS and choose"),
        Flag("reason", "R", "LIST", instead="print Reason and choose"),
        Flag("timelimit-max", "K", "TIME", instead="print Timelimit and choose"),
        Flag("timelimit-min", "k", "TIME", instead="print Timelimit and choose"),
        Flag("truncate", "T", instead="Start and End are shown as they were"),
        Flag("wckeys", "W", "NAMES", instead=_NOT_HERE),
        Flag("whole-hetjob", "", "yes|no", optional=True, instead="a het job has one row here"),
        Flag("yaml", "", "VERSION", optional=True, instead="use --json or --json=slurm"),
    ),
)  # fmt: skip


def fsacct(given: Given) -> int:
    """Show the table, or the same as JSON."""
    if "helpformat" in given:
        print(_names_in_columns())
        return 0
    if "helpstate" in given:
        print("\n".join(CODES))
        return 0
    form = given.get("json")
    if form and not _SLURMS_JSON.fullmatch(form):
        raise InvalidRequest(f"--json={form}: give no value, or slurm")
    fields = _fields(given)
    unit = _unit(given)
    use = "json" in given or any(field.column.name in OF_USE for field in fields)
    reasons = "json" in given or any(field.column.name == "Reason" for field in fields)
    replies = list(_answers(_question(given, time.time(), use=use, reasons=reasons)))
    rows = {row.id: row for reply in replies for row in reply.rows}
    _check_users(given, rows.values())
    for note in sorted({note for reply in replies if (note := _note(reply))}):
        print(printable(f"fsacct: {note}"), file=sys.stderr)
    if "verbose" in given:
        print(f"fsacct: {len(rows)} jobs", file=sys.stderr)
    if "json" in given:
        print(_json(rows.values(), replies[-1], given.get("json") or ""))
        return 0
    nobody = AccountingAttempt(attempt=0)
    pattern = AccountingLine(
        AccountingRow(id=0, name="", user="", tenant="", submitted_at_s=0.0),
        nobody,
        now_s=replies[-1].now_s,
        federation=replies[-1].federation,
        unit=unit,
        convert="noconvert" not in given,
    )
    only_jobs = "allocations" in given
    lines = list(
        table_lines(rows.values(), pattern, steps=not only_jobs, duplicates="duplicates" in given)
    )
    for text in _shown(fields, lines, given):
        print(text)
    return 0


def _shown(
    fields: tuple[Field[AccountingLine], ...], lines: list[AccountingLine], given: Given
) -> Iterator[str]:
    header = "noheader" not in given
    if "parsable" in given or "parsable2" in given:
        trailing = "parsable" in given
        delimiter = given.get("delimiter") or "|"
        return delimited_lines(fields, lines, header=header, delimiter=delimiter, trailing=trailing)
    return sacct_lines([_fitted(field, lines) for field in fields], lines, header=header)


def _fitted(field: Field[AccountingLine], lines: list[AccountingLine]) -> Field[AccountingLine]:
    """Widen a column of ids, unless its width was given: half an id names another job."""
    column = field.column
    if column.name not in _IDS or field.width != abs(column.width):
        return field
    return field._replace(width=max([field.width, *(len(column.value(line)) for line in lines)]))


def _fields(given: Given) -> tuple[Field[AccountingLine], ...]:
    text = given.get("format")
    if text is None:
        text = BRIEF if "brief" in given else LONG if "long" in given else DEFAULT
    if text.startswith("%"):  # sacct adds to its default columns then
        text = f"{DEFAULT},{text[1:]}"
    return by_sacct_names(text, COLUMNS)


def _unit(given: Given) -> str:
    unit = given.get("units") or ""
    if unit and unit.upper() not in "KMGTP":
        raise InvalidRequest(
            f"Invalid unit type '{printable(unit[:20])}'. Possible options are 'KMGTP'"
        )
    return unit.upper()


def _names_in_columns() -> str:
    names = [column.name for column in COLUMNS]
    return "\n".join(
        "".join(f"{name:<19} " for name in names[k : k + 4]).rstrip()
        for k in range(0, len(names), 4)
    )


# ---- the question ----


def _question(
    given: Given, now_s: float, *, use: bool = False, reasons: bool = False
) -> AccountingCall:
    start_s, end_s = _window(given, now_s)
    return AccountingCall(
        start_s=start_s,
        end_s=end_s,
        ids=_ids(given),
        users=_users(given),
        tenants=tuple(listed(given.get("accounts"))),
        names=tuple(listed(given.get("name"))),
        clusters=_clusters(given),
        partitions=tuple(listed(given.get("partition"))),
        nodes=_nodes(given),
        states=_states(given),
        attempts="allocations" not in given or "duplicates" in given or "json" in given,
        use=use,
        reasons=reasons,
    )


def _window(given: Given, now_s: float) -> tuple[float, float]:
    """The time that is asked about, by sacct's rules where one or both ends are not given."""
    start, end = given.get("starttime"), given.get("endtime")
    end_s = parsed_time(end, now_s) if end is not None else inf
    if start is not None:
        start_s = parsed_time(start, now_s)
    elif "jobs" in given:
        start_s = 0.0
    elif listed(given.get("state")):
        start_s = min(end_s, now_s)
    else:
        start_s = midnight(now_s)
    shown_end_s = now_s if end is None else end_s  # to sacct the end is now then
    if start_s > shown_end_s:
        raise InvalidRequest(
            f"Start time ({clock(start_s)}) requested is after end time ({clock(shown_end_s)})."
        )
    return start_s, end_s


def _ids(given: Given) -> tuple[str, ...]:
    """``N``, ``N_TASK``, ``N_[1-3]``; a step, ``+0`` or ``;FEDERATION`` may stand behind.

    Of these the step is dropped.
    """
    found: dict[str, None] = {}
    for word in _split(given.get("jobs")):
        match = _ID.fullmatch(word)
        if match is None:
            raise InvalidRequest(f"Bad job/step specified: {printable(word[:60])}")
        job, tasks, federation = match[1], match[2] or "", match[3]
        names = sorted(expanded(f"{job}_{tasks}", "--jobs")) if tasks else (job,)
        found.update(dict.fromkeys(f"{name}{federation}" for name in names))
    if "jobs" in given and not found:
        raise InvalidRequest("Bad job/step specified: it is empty")
    return tuple(found)


def _split(text: str | None) -> list[str]:
    """At commas, but for those between brackets."""
    return [word for word in re.split(r",(?![^\[]*\])", text or "") if word.strip()]


def _users(given: Given) -> tuple[str, ...]:
    """By name; a number is a uid of this host."""
    if "allusers" in given:
        return ()
    named = listed(given.get("user"))
    if not named:
        everybody = os.geteuid() == 0 or "jobs" in given or "nodelist" in given
        return () if everybody else (my_name(),)
    return tuple(_user(word) for word in named)


def _user(word: str) -> str:
    if not word.isdecimal():
        return word
    import pwd  # noqa: PLC0415

    try:
        return pwd.getpwuid(int(word)).pw_name
    except (KeyError, OverflowError) as error:
        raise InvalidRequest(f"Invalid user id: {word[:20]}") from error


def _check_users(given: Given, rows: Iterable[AccountingRow]) -> None:
    """Refuse a user whom nobody is, as sacct does.

    Who has jobs here, or had, is somebody, though this host may not know them.
    """
    if "allusers" in given or not (named := listed(given.get("user"))):
        return
    from federator.cli.unknown_names import is_user, with_jobs  # noqa: PLC0415  # seldom needed

    have = {row.user for row in rows}
    missing = {word for word in named if not (word.isdecimal() or word in have or is_user(word))}
    missing -= with_jobs(missing) if missing else set()
    if not missing:
        return
    ever = _ask(AccountingCall(users=tuple(missing)))  # whatever time was asked about
    missing -= {row.user for row in ever.rows}
    if ever.after is None:  # else there are more, of whom nobody knows
        for name in filter(missing.__contains__, named):
            raise InvalidRequest(f"Invalid user id: {printable(name[:60])}")


def _clusters(given: Given) -> tuple[str, ...]:
    named = tuple(listed(given.get("clusters")))
    return () if "all" in named or "allclusters" in given else named


def _nodes(given: Given) -> tuple[str, ...]:
    text = given.get("nodelist")
    return tuple(sorted(expanded(text, "--nodelist"))) if text else ()


def _states(given: Given) -> tuple[str, ...]:
    asked: dict[str, None] = {}
    for word in listed(given.get("state")):
        state = _NAMED.get(word.upper(), word.upper())
        if state not in CODES:
            raise InvalidRequest(f"unrecognized job state value '{printable(word[:60])}'")
        asked[state] = None
    return tuple(asked)


# ---- the answer ----


def _answers(question: AccountingCall) -> Iterator[AccountingReply]:
    """All pages; of many ids a few at a time."""
    ids = question.ids
    for k in range(0, max(1, len(ids)), _IDS_AT_ONCE):
        part = msgspec.structs.replace(question, ids=ids[k : k + _IDS_AT_ONCE], after=None)
        while True:
            reply = _ask(part)
            yield reply
            if reply.after is None:
                break
            part = msgspec.structs.replace(part, after=reply.after)


def _ask(question: AccountingCall) -> AccountingReply:
    reply = call(question)
    if isinstance(reply, ErrorReply):
        error = SiteUnavailable if reply.kind is ErrorKind.UNAVAILABLE else InvalidRequest
        raise error(reply.message)
    if not isinstance(reply, AccountingReply):
        raise unexpected(reply)
    return reply


def _note(reply: AccountingReply) -> str:
    if reply.left_off:
        return f"{reply.left_off} live jobs are left off; ask for fewer (-j, -u)"
    return reply.note


def _json(rows: Iterable[AccountingRow], reply: AccountingReply, form: str) -> str:
    if form:
        from federator.cli.accounting_json import accounts_of  # noqa: PLC0415  # seldom needed

        return msgspec.json.encode(accounts_of(rows, reply.now_s, reply.federation)).decode()
    jobs = []
    for row in sorted(rows, key=lambda row: row.id):
        fields = msgspec.structs.asdict(row)
        made = (*fields.pop("earlier"), *(() if row.last is None else (row.last,)))
        del fields["last"]
        jobs.append(fields | {"attempts": [_plain(attempt) for attempt in made]})
    return msgspec.json.encode({"schema": 1, "now_s": reply.now_s, "jobs": jobs}).decode()


def _plain(attempt: AccountingAttempt) -> dict[str, object]:
    fields = msgspec.structs.asdict(attempt)
    del fields["facts"]
    return fields


def main() -> None:
    """Entry point of the command."""
    flags.main(PROGRAM, fsacct)


if __name__ == "__main__":
    main()
