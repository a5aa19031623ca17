"""The columns of fsqueue's ``-o`` and ``-O``: squeue's names, letters, headings and values.

A value that the federation does not have is what squeue prints where it is unset: ``N/A``,
``(null)``, ``0`` or ``*``, as squeue has it for each. ``Site``, ``SiteJobID``, ``GPUs`` and
``Project`` are the federation's own.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from math import inf
from types import MappingProxyType
from typing import Final, NamedTuple

from federator.cli.columns import Column
from federator.cli.job_states import ENDED, INELIGIBLE, WAITS, state_code, state_name
from federator.cli.memory_text import memory_text
from federator.cli.node_lists import folded
from federator.cli.start_text import range_text
from federator.cli.text import is_utf8
from federator.model.reason import ReasonCode
from federator.wire.client_protocol import QueueRow
from federator.wire.queue_rows import JobDetails

NONE: Final = "(null)"
ABSENT: Final = "N/A"
YEAR_S: Final = 365 * 86_400
_BITSTR_LEN: Final = 64  # characters of a list of tasks; squeue's default
_NO_DETAILS: Final = JobDetails()
_ENDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "FAILED": "NonZeroExitCode",
        "TIMEOUT": "TimeLimit",
        "OUT_OF_MEMORY": "OutOfMemory",
        "NODE_FAIL": "NodeDown",
        "DEADLINE": "DeadLine",
        "BOOT_FAIL": "BootFail",
    }
)
"""Slurm's reasons of ends for which the federation has none of its own."""
_WORDS: Final[Mapping[ReasonCode, str]] = MappingProxyType(
    {code: code.value for code in ReasonCode} | {ReasonCode.USER_HOLD: "JobHeldUser"}
)
_SHOWS_WHY: Final = frozenset({"PENDING", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "FAILED"})


class Shown(NamedTuple):
    """One row as a column sees it."""

    row: QueueRow
    now_s: float = 0.0  # the daemon's clock
    convert: bool = True  # write 2048 MiB as 2G
    whole_tasks: bool = False  # do not shorten a list of tasks
    step: str = ""  # of a table of steps: the step's name

    @property
    def details(self) -> JobDetails:
        return self.row.details or _NO_DETAILS

    def option(self, name: str, default: str) -> str:
        """The value of an sbatch option, if it was given."""
        return self.details.options.get(name, default) or default


# ---- how squeue writes values ----


def seconds_text(seconds: float) -> str:
    """``1:02:03``, ``2-00:00:00``, ``0:05``; INVALID what is negative or beyond a year."""
    if not 0 <= seconds <= YEAR_S:
        return "INVALID"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def time_text(at_s: float) -> str:
    """A time as Slurm's commands write it, in the local time zone; N/A: there is none.

    ``SLURM_TIME_FORMAT`` changes the form, as it does theirs.
    """
    if not 0 < at_s < inf:
        return ABSENT
    form = os.environ.get("SLURM_TIME_FORMAT", "standard")
    if form in ("standard", "relative", "") or not is_utf8(form):
        form = "%Y-%m-%dT%H:%M:%S"
    return time.strftime(form, time.localtime(at_s))


@lru_cache(maxsize=1024)
def _account(user: str) -> tuple[str, str]:
    """The uid and gid of a user on this host."""
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        return ABSENT, ABSENT
    return str(entry.pw_uid), str(entry.pw_gid)


@lru_cache(maxsize=1024)
def _group(user: str) -> str:
    import grp  # noqa: PLC0415  # hardly ever asked for

    gid = _account(user)[1]
    try:
        return grp.getgrgid(int(gid)).gr_name if gid != ABSENT else ABSENT
    except KeyError:
        return gid


# ---- values ----


def job_id(shown: Shown) -> str:
    """``ARRAY_INDEX`` for a task of an array, ``ARRAY_[5-99%4]`` for many that wait."""
    row = shown.row
    if row.array_tasks:
        tasks = row.array_tasks if shown.whole_tasks else _shortened(row.array_tasks)
        return f"{row.array_id}_{tasks}"
    return f"{row.array_id}_{row.array_index}" if row.array_id else str(row.id)


def _shortened(tasks: str) -> str:
    """A long list of tasks as squeue shows it: its beginning, and three dots."""
    if len(tasks) <= _BITSTR_LEN:
        return tasks
    indices, mark, throttle = tasks.strip("[]").partition("%")
    kept = indices[:_BITSTR_LEN].rpartition(",")[0]
    return f"[{kept},...{mark}{throttle}]"


def _array_task_id(shown: Shown) -> str:
    row = shown.row
    if row.array_tasks:
        return row.array_tasks.strip("[]")
    return str(row.array_index) if row.array_id else ABSENT


def own_id(row: QueueRow) -> int:
    """The job's own number: of tasks that share a row the array's."""
    return row.array_id if row.array_tasks else row.id


def elapsed_s(shown: Shown) -> float:
    """Seconds since its start, until its end."""
    row = shown.row
    if not row.started_at_s or row.state in WAITS:
        return 0.0
    return max(0.0, (row.ended_at_s or shown.now_s) - row.started_at_s)


def end_s(shown: Shown) -> float:
    """When it ended, or will at the latest; 0: not known; inf: it has no limit."""
    row = shown.row
    if row.ended_at_s or row.state in ENDED:
        return row.ended_at_s
    return row.started_at_s + row.time_limit_s if row.started_at_s else 0.0


def starts(shown: Shown) -> tuple[float, str]:
    """When it started, or could by the word of a site, and that site; 0 and "": not known."""
    row = shown.row
    if row.started_at_s and row.state not in WAITS:
        return row.started_at_s, row.site
    if row.state == INELIGIBLE:
        return shown.details.begin_at_s, ""
    if row.start is not None and not row.start.none:
        return row.start.likely_s, ""
    found = [
        (refusal.starts_in_s, site)
        for site, refusal in row.refusals.items()
        if refusal.starts_in_s is not None
    ]
    if not found or row.state in ENDED:
        return 0.0, ""
    seconds, site = min(found)
    return shown.now_s + seconds, site


def _start_range(shown: Shown) -> str:
    """The interval of its estimated start; what has started, or has no estimate, has none."""
    start = shown.row.start
    return ABSENT if start is None or start.none else range_text(start, shown.now_s)


def eligible_s(shown: Shown) -> float:
    """Since when it could start, or from when it may; 0: that is not known."""
    if shown.row.state == INELIGIBLE:
        return shown.details.begin_at_s
    return shown.details.eligible_at_s or shown.row.submitted_at_s


def _limit_text(shown: Shown) -> str:
    """The time limit, as squeue writes it."""
    limit_s = shown.row.time_limit_s
    return "UNLIMITED" if limit_s == inf else seconds_text(limit_s)


def _left_text(shown: Shown) -> str:
    limit_s = shown.row.time_limit_s
    return "UNLIMITED" if limit_s == inf else seconds_text(limit_s - int(elapsed_s(shown)))


def _end_text(shown: Shown) -> str:
    at_s = end_s(shown)
    return "NONE" if at_s == inf else time_text(at_s)


def reason_word(shown: Shown) -> str:
    """The reason of its state in one word: ``None`` where there is none."""
    reason = shown.row.reason
    if reason is not None:
        return _WORDS[reason.code]
    return _ENDS.get(state_name(shown.row), "None")


def _reason_list(shown: Shown) -> str:
    if state_name(shown.row) in _SHOWS_WHY:
        return f"({reason_word(shown)})"
    return _nodes(shown)


def _nodes(shown: Shown) -> str:
    return folded(shown.row.node_names)


def _batch_host(shown: Shown) -> str:
    return shown.row.node_names[0] if shown.row.node_names else "n/a"


def _partition(shown: Shown) -> str:
    """Of the row itself; one of an older daemon has it among its details alone."""
    return shown.row.partition or ",".join(shown.details.partitions) or NONE


def _exit_code(shown: Shown) -> str:
    return f"{shown.row.exit_code or 0}:{shown.row.signal}"


def _cpus_per_tres(shown: Shown) -> str:
    cpus = shown.option("cpus-per-gpu", "")
    return f"gres/gpu:{cpus}" if cpus else ABSENT


def _mem_per_tres(shown: Shown) -> str:
    mem = shown.option("mem-per-gpu", "")
    return f"gres/gpu:{mem}" if mem else ABSENT


def _tres_alloc(shown: Shown) -> str:
    row, details = shown.row, shown.details
    parts = [f"cpu={details.cpus}"]
    parts += [f"mem={memory_text(details.mem_mib, convert=shown.convert)}"] * bool(details.mem_mib)
    parts += [f"node={row.nodes}"] * bool(row.nodes) + [f"billing={details.cpus}"]
    if row.gpus:
        parts.append(f"gres/gpu={row.gpus}")
        parts += [f"gres/gpu:{kind}={n}" for kind, n in sorted(details.gpu_types.items()) if kind]
    return ",".join(parts)


def _tres_per_node(shown: Shown) -> str:
    asked = shown.option("gres", "") or shown.option("gpus-per-node", "")
    if not asked:
        return ABSENT
    words = asked.split(",")
    if not shown.option("gres", ""):
        words = [f"gpu:{word}" for word in words]
    return ",".join(f"gres/{word.removeprefix('gres/').removeprefix('gres:')}" for word in words)


def _tres_gpus(option: str) -> Callable[[Shown], str]:
    def text(shown: Shown) -> str:
        gpus = shown.option(option, "")
        return f"gres/gpu:{gpus}" if gpus else ABSENT

    return text


def _sockets_cores_threads(shown: Shown) -> str:
    names = ("sockets-per-node", "cores-per-socket", "threads-per-core")
    return ":".join(shown.option(name, "*") for name in names)


def _core_spec(shown: Shown) -> str:
    threads = shown.option("thread-spec", "")
    return f"{threads} Threads" if threads else shown.option("core-spec", ABSENT)


def _pending_s(shown: Shown) -> str:
    row = shown.row
    until_s = row.started_at_s or row.ended_at_s or shown.now_s
    return str(max(0, int(until_s - row.submitted_at_s)))


def _priority_frac(shown: Shown) -> str:
    return f"{(8 - shown.row.priority) / 7:16.14f}"


def _het(text: Callable[[QueueRow], str]) -> Callable[[Shown], str]:
    return lambda shown: text(shown.row) if shown.row.jobs > 1 else ABSENT


def _number(text: str) -> Callable[[Shown], str]:
    """A value that is the same for every job."""
    return lambda _: text


def _option(name: str, default: str) -> Callable[[Shown], str]:
    return lambda shown: shown.option(name, default)


def _flag(name: str) -> Callable[[Shown], str]:
    return lambda shown: str(int(name in shown.details.options))


def _over_subscribe(shown: Shown) -> str:
    if shown.details.exclusive:
        return "NO"
    return "YES" if "oversubscribe" in shown.details.options else "OK"


def _file(name: str) -> Callable[[Shown], str]:
    def text(shown: Shown) -> str:
        path: str = getattr(shown.row, name)
        return path or NONE

    return text


_unset, _absent, _zero = _number(NONE), _number(ABSENT), _number("0")
_C = Column[Shown]

COLUMNS: Final[tuple[Column[Shown], ...]] = (
    _C("Account", "ACCOUNT", lambda s: s.row.tenant, "a"),
    _C("AccrueTime", "ACCRUE_TIME", lambda s: time_text(eligible_s(s))),
    _C("admin_comment", "ADMIN_COMMENT", _unset),
    _C("AllocNodes", "ALLOC_NODES", _absent),
    _C("AllocSID", "ALLOC_SID", _zero),
    _C("ArrayJobId", "ARRAY_JOB_ID", lambda s: str(s.row.array_id or s.row.id), "F"),
    _C("ArrayTaskId", "ARRAY_TASK_ID", _array_task_id, "K"),
    _C("AssocId", "ASSOC_ID", _zero),
    _C("BatchFlag", "BATCH_FLAG", _number("1")),
    _C("BatchHost", "EXEC_HOST", _batch_host, "B"),
    _C("BoardsPerNode", "BOARDS_PER_NODE", _zero),
    _C("BurstBuffer", "BURST_BUFFER", _unset),
    _C("BurstBufferState", "BURST_BUFFER_STATE", _unset),
    _C("Cluster", "CLUSTER", lambda s: s.row.site or ABSENT),
    _C("ClusterFeature", "CLUSTER_FEATURES", _unset),
    _C("Command", "COMMAND", _file("command"), "o"),
    _C("Comment", "COMMENT", _option("comment", NONE), "k"),
    _C("Container", "CONTAINER", _unset),
    _C("ContainerId", "CONTAINERID", _unset),
    _C("ContainerType", "CONTAINERTYPE", _unset),
    _C("Contiguous", "CONTIGUOUS", _flag("contiguous"), "O"),
    _C("Cores", "CORES_PER_SOCKET", _option("cores-per-socket", "*"), "I"),
    _C("CoreSpec", "CORE_SPEC", _core_spec, "X"),
    _C("CPUsPerTask", "CPUS_PER_TASK", _option("cpus-per-task", "1")),
    _C("cpus-per-task", "CPUS_PER_TASK", _option("cpus-per-task", "1")),
    _C("cpus-per-tres", "CPUS_PER_TRES", _cpus_per_tres),
    _C("CronJob", "CRON_JOB", _number("No")),
    _C("Deadline", "DEADLINE", lambda s: time_text(s.details.deadline_at_s)),
    _C("DelayBoot", "DELAY_BOOT", _number("0:00")),
    _C("Dependency", "DEPENDENCY", lambda s: s.details.dependency or NONE, "E"),
    _C("DerivedEC", "DERIVED_EC", _number("0:0")),
    _C("EligibleTime", "ELIGIBLE_TIME", lambda s: time_text(eligible_s(s))),
    _C("EndTime", "END_TIME", _end_text, "e"),
    _C("ExcNodes", "EXC_NODES", _option("exclude", ""), "x", whole=True),
    _C("Exclusive", "EXCLUSIVE", lambda s: "NODE" if s.details.exclusive else "NO"),
    _C("exit_code", "EXIT_CODE", _exit_code),
    _C("Feature", "FEATURES", _option("constraint", NONE), "f"),
    _C("Gres", "TRES_PER_NODE", _tres_per_node, "b"),
    _C("GroupId", "GROUP", lambda s: _account(s.row.user)[1], "G"),
    _C("GroupName", "GROUP", lambda s: _group(s.row.user), "g"),
    _C("HetJobId", "HET_JOB_ID", _het(lambda row: str(row.id))),
    _C("HetJobIdSet", "HET_JOB_ID_SET", _het(lambda row: str(row.id))),
    _C("HetJobOffset", "HET_JOB_OFFSET", _het(lambda _: "0")),
    _C("JobArrayId", "JOBID", job_id, "i"),
    _C("JobId", "JOBID", lambda s: str(own_id(s.row)), "A"),
    _C("LastSchedEval", "LAST_SCHED_EVAL", _absent),
    _C("Licenses", "LICENSES", _option("licenses", NONE), "W"),
    _C("LicensesAlloc", "LICENSES_ALLOC", _unset),
    _C("MaxCPUs", "MAX_CPUS", lambda s: str(s.details.cpus)),
    _C("MaxNodes", "MAX_NODES", lambda s: str(s.row.nodes)),
    _C("mem-per-tres", "MEM_PER_TRES", _mem_per_tres),
    _C("MCSLabel", "MCSLABEL", _option("mcs-label", NONE)),
    _C("MinCPUs", "MIN_CPUS", lambda s: str(s.details.min_cpus), "c"),
    _C(
        "MinMemory",
        "MIN_MEMORY",
        lambda s: memory_text(s.details.min_mem_mib, convert=s.convert),
        "m",
    ),
    _C("MinTime", "TIME_MIN", _option("time-min", "0:00")),
    _C("MinTmpDisk", "MIN_TMP_DISK", _option("tmp", "0"), "d"),
    _C("Name", "NAME", lambda s: s.step or s.row.name, "j"),
    _C("Network", "NETWORK", _option("network", NONE)),
    _C("Nice", "NICE", lambda s: str(s.details.nice), "y"),
    _C("NodeList", "NODELIST", _nodes, "N", whole=True, whole_heading=True),
    _C("NTPerCore", "NTASKS_PER_CORE", _option("ntasks-per-core", ABSENT)),
    _C("NTPerNode", "NTASKS_PER_NODE", _option("ntasks-per-node", "0")),
    _C("NTPerSocket", "NTASKS_PER_SOCKET", _option("ntasks-per-socket", ABSENT)),
    _C("NTPerBoard", "NTASKS_PER_BOARD", _zero),
    _C("NumCPUs", "CPUS", lambda s: str(s.details.cpus), "C"),
    _C("NumNodes", "NODES", lambda s: str(s.row.nodes or 1), "D"),
    _C("NumTasks", "TASKS", lambda s: str(s.details.tasks_on(s.row.nodes))),
    _C("Origin", "ORIGIN", _number("NA")),
    _C("OriginRaw", "ORIGIN_RAW", _number("NA")),
    _C("OverSubscribe", "OVER_SUBSCRIBE", _over_subscribe, "h"),
    _C("PackJobId", "HET_JOB_ID", _het(lambda row: str(row.id))),
    _C("PackJobIdSet", "HET_JOB_ID_SET", _het(lambda row: str(row.id))),
    _C("PackJobOffset", "HET_JOB_OFFSET", _het(lambda _: "0")),
    _C("Partition", "PARTITION", _partition, "P"),
    _C("PendingTime", "PENDING_TIME", _pending_s),
    _C("PreemptTime", "PREEMPT_TIME", _absent),
    _C("Prefer", "PREFER", _option("prefer", NONE)),
    _C("Priority", "PRIORITY", _priority_frac, "p"),
    _C("PriorityLong", "PRIORITY", lambda s: str(s.row.priority), "Q"),
    _C("Profile", "PROFILE", _option("profile", "NotSet")),
    _C("QOS", "QOS", _option("qos", NONE), "q"),
    _C("Reason", "REASON", reason_word, "r"),
    _C("ReasonList", "NODELIST(REASON)", _reason_list, "R", whole=True, whole_heading=True),
    _C("Reboot", "REBOOT", _flag("reboot")),
    _C("ReqNodes", "REQ_NODES", _option("nodelist", ""), "n", whole=True),
    _C("ReqSwitch", "REQ_SWITCH", lambda s: s.option("switches", "0").partition("@")[0]),
    _C("Requeue", "REQUEUE", lambda s: str(int(s.details.requeue))),
    _C("Reservation", "RESERVATION", _option("reservation", NONE), "v"),
    _C("ResizeTime", "RESIZE_TIME", _absent),
    _C("RestartCnt", "RESTART_COUNT", lambda s: str(s.details.restarts)),
    _C("Runtime", "RUNTIME", _unset),
    _C(
        "SchedNodes",
        "SCHEDNODES",
        lambda s: starts(s)[1] or NONE,
        "Y",
        whole=True,
        whole_heading=True,
    ),
    _C("SCT", "S:C:T", _sockets_cores_threads, "z"),
    _C("SegmentSize", "SEGMENT_SIZE", _option("segment", ABSENT)),
    _C("SelectJobInfo", "SELECT_JOBINFO", _number("")),
    _C("SiblingsActive", "ACTIVE_SIBLINGS", _number("NA")),
    _C("SiblingsActiveRaw", "ACTIVE_SIBLINGS_RAW", _number("NA")),
    _C("SiblingsViable", "VIABLE_SIBLINGS", _number("NA")),
    _C("SiblingsViableRaw", "VIALBLE_SIBLINGS_RAW", _number("NA")),
    _C("Shared", "OVER_SUBSCRIBE", _over_subscribe, "h"),
    _C("SLUID", "SLUID", _absent, "s"),
    _C("Sockets", "SOCKETS_PER_NODE", _option("sockets-per-node", "*"), "H"),
    _C("SPerBoard", "SOCKETS_PER_BOARD", _zero),
    _C("StartRange", "START_RANGE", _start_range),
    _C("StartTime", "START_TIME", lambda s: time_text(starts(s)[0]), "S"),
    _C("State", "STATE", lambda s: state_name(s.row), "T"),
    _C("StateCompact", "ST", lambda s: state_code(s.row), "t"),
    _C("StdErr", "STDERR", _file("stderr")),
    _C("StdIn", "STDIN", _file("stdin")),
    _C("StdOut", "STDOUT", _file("stdout")),
    _C("SubmitTime", "SUBMIT_TIME", lambda s: time_text(s.row.submitted_at_s), "V"),
    _C("system_comment", "SYSTEM_COMMENT", _unset),
    _C("Threads", "THREADS_PER_CORE", _option("threads-per-core", "*"), "J"),
    _C("TimeLeft", "TIME_LEFT", _left_text, "L", whole=True),
    _C("TimeLimit", "TIME_LIMIT", _limit_text, "l", whole=True),
    _C("TimeUsed", "TIME", lambda s: seconds_text(elapsed_s(s)), "M", whole=True),
    _C("Tres", "TRES_ALLOC", _tres_alloc),
    _C("tres-alloc", "TRES_ALLOC", _tres_alloc),
    _C("tres-bind", "TRES_BIND", _option("tres-bind", ABSENT)),
    _C("tres-freq", "TRES_FREQ", _absent),
    _C("tres-per-job", "TRES_PER_JOB", _tres_gpus("gpus")),
    _C("tres-per-node", "TRES_PER_NODE", _tres_per_node),
    _C("tres-per-socket", "TRES_PER_SOCKET", _absent),
    _C("tres-per-task", "TRES_PER_TASK", _tres_gpus("gpus-per-task")),
    _C("UserId", "UID", lambda s: _account(s.row.user)[0], "U"),
    _C("UserName", "USER", lambda s: s.row.user, "u"),
    _C("Wait4Switch", "WAIT4SWITCH", _number("0:00")),
    _C("WCKey", "WCKEY", _option("wckey", NONE), "w"),
    _C("WorkDir", "WORK_DIR", _file("work_dir"), "Z"),
    # The federation's own.
    _C("Site", "SITE", lambda s: s.row.site or ABSENT),
    _C("SiteJobID", "SITE_JOBID", lambda s: str(s.row.site_job_id or ABSENT)),
    _C("GPUs", "GPUS", lambda s: str(s.row.gpus)),
    _C("Project", "PROJECT", lambda s: s.row.project or NONE),
)
"""Those of squeue 22.05 to 26.11, in its order."""

STEP_COLUMNS: Final[tuple[Column[Shown], ...]] = (
    _C("ArrayJobId", "ARRAY_JOB_ID", lambda s: str(s.row.array_id or s.row.id)),
    _C("ArrayTaskId", "ARRAY_TASK_ID", _array_task_id),
    _C("Cluster", "CLUSTER", lambda s: s.row.site),
    _C("JobId", "JOB_ID", lambda s: str(s.row.id)),
    _C("Nodes", "NODELIST", _nodes, "N", whole=True, whole_heading=True),
    _C("NumCPUs", "NUM_CPUS", lambda s: str(s.details.cpus)),
    _C("NumTasks", "TASKS", _number("1"), "A"),
    _C("Partition", "PARTITION", _partition, "P"),
    _C("StartTime", "START_TIME", lambda s: time_text(s.row.started_at_s), "S"),
    _C("StepId", "STEPID", lambda s: f"{job_id(s)}.{s.step}", "i"),
    _C("StepName", "NAME", lambda s: s.step, "j"),
    _C("StepState", "STATE", lambda s: state_name(s.row)),
    _C("TimeLimit", "TIME_LIMIT", _limit_text, "l"),
    _C("TimeUsed", "TIME", lambda s: seconds_text(elapsed_s(s)), "M"),
    _C("tres-per-node", "TRES_PER_NODE", _tres_per_node, "b"),
    _C("UserId", "UID", lambda s: _account(s.row.user)[0], "U"),
    _C("UserName", "USER", lambda s: s.row.user, "u"),
)
"""Of ``fsqueue -s``: of each running job the batch step, which is all that the federation knows."""

FILES: Final = frozenset({"Command", "StdErr", "StdIn", "StdOut", "WorkDir"})
"""Columns that need the names of files."""

STARTS: Final = frozenset({"StartRange", "StartTime", "SchedNodes"})
"""Columns that need the sites' refusals."""

PLAIN: Final = frozenset(
    {
        "Account", "ArrayJobId", "ArrayTaskId", "BatchHost", "Cluster", "EndTime", "GPUs",
        "JobArrayId", "JobId", "Name", "NodeList", "NumNodes", "Partition", "PriorityLong",
        "Project", "Reason", "ReasonList", "Site", "SiteJobID", "State", "StateCompact",
        "SubmitTime", "TimeLeft", "TimeLimit", "TimeUsed", "UserId", "UserName", "exit_code",
    }
)  # fmt: skip
"""Columns that need no details of the request."""
