"""A job as ``scontrol show job`` prints it: lines of NAME=VALUE, in its order.

A field that the federation has no value for is what scontrol prints where it is unset, or it is
left out. The last line is the federation's own: ``Site``, ``SiteJobId``, ``GPUs``, ``Project``.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Final

from federator.cli.control_sites import Record, known_time
from federator.cli.job_states import INELIGIBLE, WAITS, state_name
from federator.cli.memory_text import memory_text
from federator.cli.node_lists import folded
from federator.cli.queue_columns import (
    ABSENT,
    COLUMNS,
    NONE,
    Shown,
    elapsed_s,
    eligible_s,
    end_s,
    own_id,
    reason_word,
    starts,
    time_text,
)
from federator.cli.text import clock_text
from federator.errors import InvalidRequest
from federator.slurm.options.quantities import mebibytes, time_limit_s
from federator.slurm.options.switches_option import switches
from federator.wire.client_protocol import QueueRow

_MEMORY: Final = {"cpu": "MinMemoryCPU", "gpu": "MinMemoryTRES"}
_COLUMN: Final = {column.name: column for column in COLUMNS}
_TRES: Final = (  # fields of a line each, which only few jobs have
    ("CpusPerTres", "cpus-per-tres"),
    ("MemPerTres", "mem-per-tres"),
    ("TresBind", "tres-bind"),
    ("TresPerJob", "tres-per-job"),
    ("TresPerNode", "tres-per-node"),
    ("TresPerTask", "tres-per-task"),
)
_Line = tuple[tuple[str, str], ...]


def job_record(shown: Shown) -> Record:
    """The record of one row of the queue."""
    return (
        *_names(shown),
        *_standing(shown),
        *_times(shown),
        *_place(shown),
        *_sizes(shown),
        *_wishes(shown),
        *_files(shown),
        *_own(shown),
    )


def limit_text(limit_s: float) -> str:
    """A time limit as scontrol writes it."""
    return "UNLIMITED" if limit_s == inf else clock_text(limit_s)


def _word(column: str, shown: Shown) -> str:
    """The value of one of fsqueue's columns."""
    return _COLUMN[column].value(shown)


def _array(row: QueueRow) -> _Line:
    """Which tasks of an array it is, and how many may run at once; nothing of another job."""
    if not row.array_id:
        return ()
    tasks = row.array_tasks.strip("[]") or str(row.array_index)
    ids = (("ArrayJobId", str(row.array_id)), ("ArrayTaskId", tasks))
    return (*ids, ("ArrayTaskThrottle", tasks.rpartition("%")[2])) if "%" in tasks else ids


def _names(shown: Shown) -> Iterator[_Line]:
    row, details = shown.row, shown.details
    number = str(own_id(row))
    het = (("HetJobId", number), ("HetJobOffset", "0")) if row.jobs > 1 else ()
    yield ("JobId", number), *_array(row), *het, ("JobName", row.name)
    if het:
        yield (("HetJobIdSet", number),)
    yield (
        ("UserId", f"{row.user}({_word('UserId', shown)})"),
        ("GroupId", f"{_word('GroupName', shown)}({_word('GroupId', shown)})"),
        ("MCS_label", shown.option("mcs-label", ABSENT)),
    )
    wckey = shown.option("wckey", "")
    yield (
        ("Priority", str(row.priority)),
        ("Nice", str(details.nice)),
        ("Account", row.tenant),
        ("QOS", shown.option("qos", NONE)),
        *((("WCKey", wckey),) if wckey else ()),
    )


def _standing(shown: Shown) -> Iterator[_Line]:
    row, details = shown.row, shown.details
    yield (
        ("JobState", state_name(row)),
        ("Reason", reason_word(shown)),
        ("Dependency", details.dependency or NONE),
    )
    yield (
        ("Requeue", str(int(details.requeue))),
        ("Restarts", str(details.restarts)),
        ("BatchFlag", "1"),
        ("Reboot", _word("Reboot", shown)),
        ("ExitCode", f"{row.exit_code or 0}:{row.signal}"),
    )


def _times(shown: Shown) -> Iterator[_Line]:
    row = shown.row
    yield (
        ("RunTime", clock_text(elapsed_s(shown))),
        ("TimeLimit", limit_text(row.time_limit_s)),
        ("TimeMin", _least_time(shown.option("time-min", ""))),
    )
    eligible = eligible_s(shown)
    yield (("SubmitTime", known_time(row.submitted_at_s)), ("EligibleTime", known_time(eligible)))
    waits = row.state == INELIGIBLE or eligible > shown.now_s
    yield (("AccrueTime", known_time(0.0 if waits else eligible)),)
    start = starts(shown)[0]
    end = start + row.time_limit_s if start and row.state in WAITS else end_s(shown)
    yield (
        ("StartTime", known_time(start)),
        ("EndTime", known_time(0.0 if end == inf else end)),
        ("Deadline", time_text(shown.details.deadline_at_s)),
    )


def _least_time(asked: str) -> str:
    try:
        return limit_text(time_limit_s(asked)) if asked else ABSENT
    except InvalidRequest:  # of a later release
        return asked


def _place(shown: Shown) -> Iterator[_Line]:
    names = shown.row.node_names
    yield (("Partition", ",".join(shown.details.partitions) or NONE),)
    asked, excluded = shown.option("nodelist", NONE), shown.option("exclude", NONE)
    yield (("ReqNodeList", asked), ("ExcNodeList", excluded))
    yield (("NodeList", folded(names)),)
    if names:
        yield (("BatchHost", names[0]),)


def _sizes(shown: Shown) -> Iterator[_Line]:
    row, details = shown.row, shown.details
    shape = (shown.option(name, "*") for name in ("cores-per-socket", "threads-per-core"))
    yield (
        ("NumNodes", str(row.nodes or 1)),
        ("NumCPUs", str(details.cpus)),
        ("NumTasks", str(details.tasks_on(row.nodes))),
        ("CPUs/Task", shown.option("cpus-per-task", "1")),
        ("ReqB:S:C:T", ":".join(("0", "0", *shape))),
    )
    tres = _word("tres-alloc", shown)
    if row.site:
        yield (("AllocTRES", tres),)
    else:
        yield (("ReqTRES", tres),)
        yield (("AllocTRES", NONE),)
    of_node = shown.option("ntasks-per-node", "0")
    of_parts = (shown.option(f"ntasks-per-{part}", "*") for part in ("socket", "core"))
    specialized = shown.option("thread-spec", "")
    cores = ("CoreSpec", shown.option("core-spec", "*"))
    yield (
        ("Socks/Node", shown.option("sockets-per-node", "*")),
        ("NtasksPerN:B:S:C", ":".join((of_node, "0", *of_parts))),
        ("ThreadSpec", specialized) if specialized else cores,
    )
    yield (
        ("MinCPUsNode", str(details.min_cpus)),
        (_MEMORY.get(details.min_mem_of, "MinMemoryNode"), memory_text(details.min_mem_mib)),
        ("MinTmpDiskNode", _disk(shown.option("tmp", "0"))),
    )


def _disk(asked: str) -> str:
    try:
        return memory_text(mebibytes(asked, "tmp"))
    except InvalidRequest:  # of a later release
        return asked


def _wishes(shown: Shown) -> Iterator[_Line]:
    yield (
        ("Features", shown.option("constraint", NONE)),
        ("DelayBoot", shown.option("delay-boot", "00:00:00")),
    )
    reservation = shown.option("reservation", "")
    if reservation:
        yield (("Reservation", reservation),)
    yield (
        ("OverSubscribe", _word("OverSubscribe", shown)),
        ("Contiguous", _word("Contiguous", shown)),
        ("Licenses", shown.option("licenses", NONE)),
        ("Network", shown.option("network", NONE)),
    )


def _files(shown: Shown) -> Iterator[_Line]:
    row, comment = shown.row, shown.option("comment", "")
    yield (("Command", row.command or NONE),)
    yield (("WorkDir", row.work_dir or NONE),)
    if comment:
        yield (("Comment", comment),)
    yield (("StdErr", row.stderr or row.stdout or NONE),)
    yield (("StdIn", row.stdin or NONE),)
    yield (("StdOut", row.stdout or NONE),)
    asked = shown.option("switches", "")
    if asked:
        yield (("Switches", _switches(asked)),)
    for name, column in _TRES:
        value = _word(column, shown)
        if value != ABSENT:
            yield ((name, value),)


def _switches(asked: str) -> str:
    try:
        found = switches(asked)
    except InvalidRequest:  # of a later release
        return asked
    return f"{found.most}@{limit_text(found.wait_s)}"


def _own(shown: Shown) -> Iterator[_Line]:
    row = shown.row
    yield (
        ("Site", row.site or NONE),
        ("SiteJobId", str(row.site_job_id or NONE)),
        ("GPUs", str(row.gpus)),
        ("Project", row.project or NONE),
    )
