"""fsqueue: what is in the federation's queue, where it runs, and why the rest waits."""

from __future__ import annotations

import gc
import os
import re
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec.structs import replace

from federator.cli import flags
from federator.cli.client import call
from federator.cli.colour import coloured, is_looked_at, of_job
from federator.cli.columns import Format
from federator.cli.flags import Flag, Given, Program, SlurmsOwn, called_as_slurms
from federator.cli.job_states import CODES, ENDED, asked_states, is_asked, workload_states
from federator.cli.node_lists import expanded
from federator.cli.queue_columns import Shown
from federator.cli.queue_table import render
from federator.cli.text import listed, my_name, printable, unexpected, users_named
from federator.errors import InvalidRequest, SiteUnavailable
from federator.wire.client_protocol import (
    ErrorKind,
    ErrorReply,
    QueueCall,
    QueueReply,
    QueueRow,
)

_ID: Final = re.compile(r"([0-9]+(?:_[0-9]+)?)(?:\+[0-9]+)?((?:;.+)?)", re.ASCII)
_SLURMS: Final = (
    "JobArrayId:.18 ,Partition:.9 ,Name:.8 ,UserName:.8 ,StateCompact:.2 ,TimeUsed:.10 ,"
    "NumNodes:.6 ,ReasonList:"
)
_LONG: Final = (
    "JobArrayId:.18 ,Partition:.9 ,Name:.8 ,UserName:.8 ,State:.8 ,TimeUsed:.10 ,"
    "TimeLimit:.9 ,NumNodes:.6 ,Cluster:8 ,ReasonList:"
)
_START: Final = (
    "JobArrayId:.18 ,Partition:.9 ,Name:.8 ,UserName:.8 ,StateCompact:.2 ,StartTime:.19 ,"
    "NumNodes:.6 ,SchedNodes:20 ,StartRange:.23 ,ReasonList:"
)
_SITE: Final = "Cluster:8 ,"
_SLURMS_SORT: Final = "P,t,-p"
_STEPS: Final = "StepId:.20 ,StepName:.8 ,Partition:.9 ,UserName:.8 ,TimeUsed:.9 ,Nodes:"
_AWAY: Final = "slurm_load_jobs error: Unable to contact slurm controller"
_FORMATS: Final = ("SQUEUE_FORMAT", "SQUEUE_FORMAT2")
_SLURMS_JSON: Final = re.compile(r"slurm|v0\.0\.[0-9]{2}", re.ASCII)
_IDS_IN_A_CALL: Final = 1_000  # that a daemon takes
_COLLECT_SELDOM: Final = 200_000  # objects; see gc.set_threshold

PROGRAM: Final = Program(
    "fsqueue",
    "[JOBID]...",
    "Show the jobs of the federation, with squeue's options.\n\n"
    "Examples: fsqueue --me · fsqueue --why 4294967297 · fsqueue -t all -o '%i %T %R'",
    (
        Flag("accounts", "A", "NAMES", "Only these accounts.", variable="SQUEUE_ACCOUNT"),
        Flag("all", "a", about="No effect: no partition is hidden.", variable="SQUEUE_ALL"),
        Flag(
            "array",
            "r",
            about="One row for each waiting task of an array.",
            variable="SQUEUE_ARRAY",
        ),
        Flag("array-unique", about="No effect: what waits of an array has one row."),
        Flag("clusters", "M", "NAMES", "Only jobs at these sites; 'all', or the federation's name.",
             also=("cluster",), variable="SLURM_CLUSTERS"),
        Flag("complete", "", "KIND", "Print words for the completion of shells, as jobs or sites."),
        Flag("expand-patterns", about="No effect: names of files are expanded."),
        Flag("federation", about="No effect.", variable="SQUEUE_FEDERATION"),
        Flag("Format", "O", "FIELDS", "Columns by name: JobID:20,State (--helpFormat)."),
        Flag("format", "o", "TEXT", "Columns by letter: '%.18i %T' (--helpformat)."),
        Flag("helpformat", about="The letters of --format."),
        Flag("helpFormat", about="The names of --Format."),
        Flag("helpstate", about="The states of --states."),
        Flag("hide", about="No effect."),
        Flag("iterate", "i", "SECONDS", "Repeat for ever."),
        Flag("jobs", "j", "IDS", "Only these job ids.", optional=True),
        Flag("json", "", "slurm", "Print JSON (docs/formats.md), or as squeue's --json.",
             optional=True),
        Flag("licenses", "L", "NAMES", "Only jobs with these licences.",
             variable="SQUEUE_LICENSES"),
        Flag("local", about="No effect.", variable="SQUEUE_LOCAL"),
        Flag("long", "l", about="More columns."),
        Flag("me", about="Only my own."),
        Flag("name", "n", "NAMES", "Only jobs called so.", variable="SQUEUE_NAMES"),
        Flag("noconvert", about="Memory in MiB."),
        Flag("nodelist", "w", "NODES", "Only jobs on these nodes.", also=("node", "nodes")),
        Flag("noheader", "h", about="No header line."),
        Flag("notme", about="Only others'."),
        Flag("only-job-state", about="Only ids and states, unless --format says otherwise."),
        Flag("partitions", "p", "NAMES", "Only these partitions.", variable="SQUEUE_PARTITION"),
        Flag("priority", "P", about="No effect: a job has one priority.",
             variable="SQUEUE_PRIORITY"),
        Flag("qos", "q", "NAMES", "Only these QOS.", variable="SQUEUE_QOS"),
        Flag("reservation", "R", "NAMES", "Only jobs in these reservations."),
        Flag("running-over", "", "TIME", "Only jobs that have run for so long."),
        Flag("running-under", "", "TIME", "Only jobs that run, and not for so long."),
        Flag("sibling", also=("sib",), instead="a job is at one site at a time; see --clusters"),
        Flag("sort", "S", "FIELDS", "Order of the rows: P,t,-p.", variable="SQUEUE_SORT"),
        Flag("start", about="When waiting jobs could start, and where."),
        Flag("states", "t", "STATES", "'all' shows jobs that have ended too; or a list of states.",
             variable="SQUEUE_STATES"),
        Flag("steps", "s", "STEPS", "Steps of running jobs, as far as they are known.",
             optional=True),
        Flag("users", "u", "NAMES", "Only these users.", also=("user",), variable="SQUEUE_USERS",
             unless=("me",)),
        Flag("verbose", "v", about="Say how many rows there are."),
        Flag(
            "why",
            about="For every job that waits its rank, and each site's reason; of all what "
            "evictions cost.",
        ),
        Flag("autocomplete", "", "TEXT", instead="complete the words of squeue"),
        Flag("yaml", "", "VERSION", optional=True, instead="use --json or --json=slurm"),
    ),
)  # fmt: skip


class _View(NamedTuple):
    """How the answer is shown."""

    form: Format[Shown] | None  # None: the plain table
    sort: tuple[tuple[str, bool], ...]
    states: frozenset[str] | None
    steps: bool
    nodes: frozenset[str] | None  # None: any


class _Away(SlurmsOwn):
    """No daemon answers."""


def fsqueue(given: Given) -> int:
    """Show the table, or the same as JSON; with --iterate again and again."""
    if any(name in given for name in ("helpformat", "helpFormat", "helpstate")):
        return _help(given)
    if "complete" in given:
        return _complete(given.get("complete") or "")
    pause_s = _pause_s(given.get("iterate"))
    view = _view(given, os.environ)
    question = _question(given, view)
    is_first = True
    while True:
        try:
            reply = _ask(question)
            if is_first:
                _say_unknown(given, view, reply)
            is_first = False
            _show(reply, view, given)
        except _Away as error:  # the next daemon will be there soon
            if pause_s is None:
                raise
            print(printable(str(error)), file=sys.stderr)
        if pause_s is None:
            return 0
        if "noheader" not in given:
            print()
        sys.stdout.flush()
        time.sleep(pause_s)


def _help(given: Given) -> int:
    from federator.cli.queue_columns import COLUMNS  # noqa: PLC0415

    if "helpstate" in given:
        print("\n".join(CODES).lower())
    elif "helpformat" in given:
        print(" ".join(f"%{column.letter}" for column in COLUMNS if column.letter))
    else:
        print("\n".join(column.name for column in COLUMNS))
    return 0


def _complete(kind: str) -> int:
    from federator.cli.completion_words import WORDS, say  # noqa: PLC0415

    if kind not in WORDS:
        raise InvalidRequest(f"--complete={kind}: expected one of {', '.join(WORDS)}")
    return say(kind)


# ---- what is asked ----


def _view(given: Given, environment: Mapping[str, str]) -> _View:
    if "format" in given and "Format" in given:
        raise InvalidRequest("-O (--Format) is incompatible with -o (--format)")
    if "format" in given and "long" in given:
        raise InvalidRequest(
            "Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and "
            "retry."
        )
    text = given.get("states")
    if text is None and "start" in given and "steps" not in given:
        text = "PENDING"
    sort = given.get("sort") or _usual_sort(given)
    if {"running-over", "running-under"} & set(given.values):
        from federator.cli.queue_filter import check  # noqa: PLC0415

        check(given)
    nodes = expanded(given.get("nodelist") or "", "--nodelist") if "nodelist" in given else None
    return _View(
        _form(given, environment), _sort(sort), asked_states(text), "steps" in given, nodes
    )


def _usual_sort(given: Given) -> str:
    """The order that is not asked for: squeue's by its own name, and by starts with --start."""
    if "steps" in given:
        return ""
    if "start" in given:
        return "S"
    is_squeue = called_as_slurms(PROGRAM) and not {"json", "why"} & set(given.values)
    return _SLURMS_SORT if is_squeue else ""


def _sort(text: str) -> tuple[tuple[str, bool], ...]:
    if not text:
        return ()
    from federator.cli.queue_order import sort_fields  # noqa: PLC0415

    return sort_fields(text)


def _form(given: Given, environment: Mapping[str, str]) -> Format[Shown] | None:
    """The format that counts: of the command line, else of the environment; None: the table."""
    from federator.cli.columns import by_letters, by_names  # noqa: PLC0415
    from federator.cli.queue_columns import COLUMNS, STEP_COLUMNS  # noqa: PLC0415

    steps = "steps" in given
    columns, kind = (STEP_COLUMNS, "job step") if steps else (COLUMNS, "job")
    letters, names = given.get("format"), given.get("Format")
    if letters is None and names is None and not {"long", "steps", "start"} & set(given.values):
        letters, names = (environment.get(name) for name in _FORMATS)
    if letters is not None:
        return by_letters(letters, columns, kind)
    if names is not None:
        return by_names(names, columns)
    if steps:
        return by_names(_STEPS, columns)
    if "start" in given or "long" in given:
        text = _START if "start" in given else _LONG
        return by_names(text.replace(_SITE, "") if called_as_slurms(PROGRAM) else text, columns)
    if "only-job-state" in given:
        return by_letters("%.18i %.2t", columns)
    is_squeue = called_as_slurms(PROGRAM) and not {"json", "why"} & set(given.values)
    return by_names(_SLURMS, columns) if is_squeue else None


def _question(given: Given, view: _View) -> QueueCall:
    names = {field.column.name for field in view.form.fields} if view.form else set()
    as_json = given.get("json")
    if as_json and not _SLURMS_JSON.fullmatch(as_json):
        raise InvalidRequest(f"--json={as_json}: give no value, or slurm")
    states = workload_states(view.states)
    needs = _needs(names, view, given)
    is_brief = as_json is None and "why" not in given and "starts" not in needs
    return QueueCall(
        ids=_ids(given),
        users=(*users_named(given.get("users")), *((my_name(),) if "me" in given else ())),
        ended=view.states is None or not ENDED.isdisjoint(states),
        why="why" in given,
        collapsed="array" not in given and as_json is None and not view.steps,
        files="files" in needs,
        states=states if "states" in given or "start" in given else (),
        names=listed(given.get("name")),
        tenants=listed(given.get("accounts")),
        partitions=listed(given.get("partitions")),
        clusters=listed(given.get("clusters")),
        brief=is_brief,
        codes=is_brief,
        details="details" in needs,
        starts="estimates" in needs,
    )


def _needs(columns: set[str], view: _View, given: Given) -> set[str]:
    """The parts of rows that cost the daemon more than the rest."""
    from federator.cli.queue_columns import FILES, PLAIN, STARTS  # noqa: PLC0415
    from federator.cli.queue_order import OF_DETAILS  # noqa: PLC0415

    letters = {name for name, _ in view.sort}
    needs = set()
    if "json" in given or columns & FILES:
        needs.add("files")
    if "json" in given or "StartRange" in columns:
        needs.add("estimates")
    if columns & STARTS or "S" in letters:
        needs |= {"starts", "details"}  # --begin is among the details
    filters = {"qos", "partitions", "licenses", "reservation"} & set(given.values)
    slurms = bool(given.get("json"))
    if columns - FILES - STARTS - PLAIN or letters & OF_DETAILS or filters or slurms:
        needs.add("details")
    return needs


def _ids(given: Given) -> tuple[str, ...]:
    """The job ids asked for: ``N``, ``N_INDEX`` or ``N+COMPONENT``, with ``;FEDERATION`` or not."""
    of_steps = [given.get("steps"), *(given.operands if "steps" in given else ())]
    steps = (word.partition(".")[0] for text in of_steps for word in listed(text))
    words = filter(None, [given.get("jobs"), *(() if "steps" in given else given.operands)])
    ids = []
    for id_ in (*(id_ for word in words for id_ in _listed_ids(word)), *steps):
        match = _ID.fullmatch(id_)
        if match is None:
            raise InvalidRequest(f"Invalid job id: {id_}")
        ids.append(match[1] + match[2])
    return tuple(ids)


def _listed_ids(word: str) -> Iterable[str]:
    """The ids of a list; tasks in brackets are written out."""
    if "[" not in word:
        return listed(word)
    from federator.cli.cancel_ids import job_ids  # noqa: PLC0415  # seldom needed

    return job_ids((word,), to_look=True)


def _pause_s(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        pause_s = float(text)
    except ValueError:
        pause_s = 0.0
    if not 0.1 <= pause_s < 1e9:
        raise InvalidRequest(f"--iterate={text}: expected seconds, at least 0.1")
    return pause_s


def _ask(question: QueueCall) -> QueueReply:
    """The answer; of many ids as many as a daemon takes are asked about at a time."""
    ids = question.ids
    if len(ids) <= _IDS_IN_A_CALL:
        reply = _asked(question)
        if len(ids) == 1 and reply.unknown:
            raise SlurmsOwn("slurm_load_jobs error: Invalid job id specified")
        return reply
    starts = range(0, len(ids), _IDS_IN_A_CALL)
    parts = [_asked(replace(question, ids=ids[k : k + _IDS_IN_A_CALL])) for k in starts]
    rows = {row.id: row for part in parts for row in part.rows}
    left_off = sum(part.left_off for part in parts)
    unknown = tuple(id_ for part in parts for id_ in part.unknown)
    return replace(parts[-1], rows=tuple(rows.values()), left_off=left_off, unknown=unknown)


def _asked(question: QueueCall) -> QueueReply:
    try:
        reply = call(question)
    except SiteUnavailable as error:
        raise _Away(f"{_AWAY}: {error}") from error
    if isinstance(reply, ErrorReply):
        is_away = reply.kind is ErrorKind.UNAVAILABLE
        raise _Away(f"{_AWAY}: {reply.message}") if is_away else InvalidRequest(reply.message)
    if not isinstance(reply, QueueReply):
        raise unexpected(reply)
    return reply


# ---- what is shown ----


def _say_unknown(given: Given, view: _View, reply: QueueReply) -> None:
    """Say which users there are not, and refuse nodes that there are not, both as squeue does."""
    if "users" in given:
        from federator.cli.unknown_names import unknown_users  # noqa: PLC0415  # seldom needed

        for name in unknown_users(users_named(given.get("users")), reply.rows):
            print(printable(f"fsqueue: error: Invalid user: {name}"), file=sys.stderr)
    if view.nodes and not any(view.nodes & set(row.node_names) for row in reply.rows):
        from federator.cli.unknown_names import check_nodes  # noqa: PLC0415

        check_nodes(view.nodes, listed(given.get("clusters")))


def _show(reply: QueueReply, view: _View, given: Given) -> None:
    rows = list(_filtered(_in_states(reply.rows, view.states), reply, given, view.nodes))
    if reply.left_off:
        note = f"{reply.left_off} jobs are left off, of those that run the last; ask for fewer"
        print(f"fsqueue: {note} (-j, -u)", file=sys.stderr)
    if "json" in given:
        from federator.cli.queue_json import json_of, slurm_json_of  # noqa: PLC0415

        write = slurm_json_of if given.get("json") else json_of
        print(write(rows, reply.now_s))
        return
    header = "noheader" not in given
    if header and {"iterate", "long", "verbose"} & set(given.values):
        print(time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(reply.now_s)))
    if header and "clusters" in given:
        print(f"CLUSTER: {given.get('clusters')}")
    if "verbose" in given:
        print(f"last_update_time={int(reply.now_s)} records={len(reply.rows)}")
    for line in _lines(rows, reply.now_s, view, given):
        print(line)


def _in_states(rows: Iterable[QueueRow], asked: frozenset[str] | None) -> list[QueueRow]:
    """The rows in a state that is asked for; of thousands most are in the same."""
    if asked is not None and "PENDING" in asked:
        return [row for row in rows if row.state == "PENDING" or is_asked(row, asked)]
    return [row for row in rows if is_asked(row, asked)]


def _lines(rows: list[QueueRow], now_s: float, view: _View, given: Given) -> Iterable[str]:
    header = "noheader" not in given
    if view.form is None and not view.sort:
        return _table(rows, now_s, given)
    from federator.cli.columns import fitted, lines  # noqa: PLC0415
    from federator.cli.queue_order import in_order  # noqa: PLC0415

    step = "batch" if view.steps else ""
    shown = [
        Shown(row, now_s, "noconvert" not in given, "array" in given, step)
        for row in rows
        if not view.steps or row.state == "RUNNING"
    ]
    shown = in_order(shown, view.sort)
    if view.form is None:
        return _table([each.row for each in shown], now_s, given)
    form = view.form
    if not {"format", "Format"} & set(given.values):
        for name in ("JobArrayId", "StepId", "Cluster"):
            form = fitted(form, name, shown)
    return lines(form, shown, header=header)


def _table(rows: list[QueueRow], now_s: float, given: Given) -> Iterable[str]:
    """The plain table as one text; nothing where there is neither job nor heading."""
    paint = _paint if is_looked_at() else None
    header, why = "noheader" not in given, "why" in given
    return filter(None, [render(rows, now_s, header=header, why=why, paint=paint)])


def _paint(line: str, row: QueueRow) -> str:
    return coloured(line, of_job(row))


def _filtered(
    rows: list[QueueRow], reply: QueueReply, given: Given, nodes: frozenset[str] | None
) -> Iterable[QueueRow]:
    """Leave out what the daemon did not: it may be of an older release, or not asked to."""
    if not set(given.values) - {"states", "noheader", "users", "me", "jobs", "json", "why"}:
        return rows
    from federator.cli.queue_filter import filtered  # noqa: PLC0415

    return filtered(rows, reply.now_s, given, nodes, reply.caller)


def main() -> None:
    """Entry point of the command."""
    gc.set_threshold(_COLLECT_SELDOM)  # many rows, no cycles: saves a tenth
    flags.main(PROGRAM, fsqueue)


if __name__ == "__main__":
    main()
