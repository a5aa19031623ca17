"""The columns of fsacct: sacct's names, in its order, with its widths and values.

What only a site's own sacct has, such as ``MaxDiskRead``, is empty, as sacct shows what is missing.
``Site``, ``SiteJobID``, ``GPUs`` and ``Project`` are the federation's own.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from federator.cli.columns import Column
from federator.cli.memory_text import MEMORY_UNITS, memory_text
from federator.cli.node_lists import folded
from federator.cli.text import clock_text
from federator.model.reason import ReasonCode
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow

DEFAULT: Final = "jobid,jobname,partition,account,alloccpus,state,exitcode"
BRIEF: Final = "jobid,state,exitcode"
LONG: Final = (
    "jobid,jobidraw,jobname,partition,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,"
    "maxrssnode,maxrsstask,averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu,mincpunode,"
    "mincputask,avecpu,ntasks,alloccpus,elapsed,state,exitcode,avecpufreq,reqcpufreqmin,"
    "reqcpufreqmax,reqcpufreqgov,reqmem,consumedenergy,maxdiskread,maxdiskreadnode,"
    "maxdiskreadtask,avediskread,maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,"
    "reqtres,alloctres"
)
_ENDED_FROM_OUTSIDE: Final = ("CANCELLED", "TIMEOUT")
_NO_ATTEMPT: Final = AccountingAttempt(attempt=0)


class AccountingLine(NamedTuple):
    """One line of the table: a workload, or one of its attempts as a step."""

    row: AccountingRow
    attempt: AccountingAttempt  # whose times and amounts are shown
    is_step: bool = False
    now_s: float = 0.0  # the daemon's clock
    federation: str = ""
    unit: str = ""  # of memory: K M G T P; "": one that suits it
    convert: bool = True

    @property
    def is_over(self) -> bool:
        return bool(self.attempt.ended_at_s or self.row.over_at_s)

    @property
    def elapsed_s(self) -> int:
        """Seconds since its start, until its end."""
        made = self.attempt
        if not made.started_at_s:
            return 0
        end_s = made.ended_at_s or self.row.over_at_s or self.now_s
        return max(0, int(end_s - made.started_at_s))


def table_lines(
    rows: Iterable[AccountingRow], pattern: AccountingLine, *, steps: bool, duplicates: bool
) -> Iterator[AccountingLine]:
    """The lines of rows, in the order of their ids.

    Args:
        rows: in any order.
        pattern: what all lines share.
        steps: whether each attempt follows its job, as a step.
        duplicates: whether an earlier attempt has a line as if it were its job, as with
            ``sacct --duplicates``.
    """
    for row in sorted(rows, key=lambda row: row.id):
        made = (*row.earlier, *(() if row.last is None else (row.last,)))
        latest = row.last or _NO_ATTEMPT
        for attempt in row.earlier if duplicates else ():
            yield pattern._replace(row=row, attempt=attempt)
        yield pattern._replace(row=row, attempt=latest)
        for attempt in made if steps else ():
            yield pattern._replace(row=row, attempt=attempt, is_step=True)


# ---- how sacct writes values ----


def moment_text(at_s: float, missing: str = "Unknown") -> str:
    """A time in the local time zone; ``SLURM_TIME_FORMAT`` changes the form, as sacct's."""
    if not 0 < at_s < inf:
        return missing
    form = os.environ.get("SLURM_TIME_FORMAT", "standard")
    if form in ("standard", "relative", ""):
        form = "%Y-%m-%dT%H:%M:%S"
    return time.strftime(form, time.localtime(at_s))


@lru_cache(maxsize=1024)
def _account(user: str) -> tuple[str, str]:
    """The uid and gid of a user on this host; "" where it has none such."""
    try:
        entry = pwd.getpwnam(user)
    except (KeyError, ValueError):
        return "", ""
    return str(entry.pw_uid), str(entry.pw_gid)


@lru_cache(maxsize=1024)
def _group(user: str) -> str:
    import grp  # noqa: PLC0415  # hardly ever asked for

    gid = _account(user)[1]
    try:
        return grp.getgrgid(int(gid)).gr_name if gid else ""
    except KeyError:
        return gid


# ---- values ----


def state_text(line: AccountingLine) -> str:
    """``CANCELLED by UID`` where it is known who asked, and this host knows the user."""
    state = line.row.state if _is_latest(line) else line.attempt.state
    state = state or line.attempt.state or line.row.state
    by = line.row.cancelled_by
    if state != "CANCELLED" or not by or not _is_latest(line):
        return state
    return f"CANCELLED by {_account(by)[0] or by}"


def exit_of(line: AccountingLine) -> tuple[int, int]:
    """Exit code and signal.

    Accounts hear of a cancel or a time limit before the script has ended: sacct shows 0:0 of such a
    job, and how the script ended of its step.
    """
    if not line.is_step and line.row.state in _ENDED_FROM_OUTSIDE and _is_latest(line):
        return 0, 0
    return line.attempt.exit_code, line.attempt.signal


def _is_latest(line: AccountingLine) -> bool:
    last = line.row.last
    return line.attempt.attempt == (last.attempt if last is not None else 0)


def job_id(line: AccountingLine) -> str:
    """``ID``, ``ARRAY_INDEX``, ``ARRAY_[5-99%4]``; of an attempt with ``.N`` behind it."""
    row = line.row
    name = f"{row.array_id}_{row.array_tasks or row.array_index}" if row.array_id else str(row.id)
    return name + _step(line)


def _raw_id(line: AccountingLine) -> str:
    row = line.row
    return f"{row.array_id if row.array_tasks else row.id}{_step(line)}"


def _step(line: AccountingLine) -> str:
    return f".{line.attempt.attempt}" if line.is_step else ""


def _name(line: AccountingLine) -> str:
    return line.attempt.site if line.is_step else line.row.name


def _partition(line: AccountingLine) -> str:
    return "" if line.is_step else line.attempt.partition or line.row.asked_partition


def _start(line: AccountingLine) -> str:
    return moment_text(line.attempt.started_at_s, "None" if line.is_over else "Unknown")


def _end(line: AccountingLine) -> str:
    latest = _is_latest(line) and not line.is_step
    return moment_text(line.attempt.ended_at_s or (line.row.over_at_s if latest else 0.0))


def _nodes(line: AccountingLine) -> str:
    return str(line.attempt.nodes or line.row.asked_nodes)


def _node_list(line: AccountingLine) -> str:
    names = line.attempt.node_list
    if not names:
        return "None assigned"
    return names if "[" in names else folded(names.split(","))  # few are not folded in the history


def _reason(line: AccountingLine) -> str:
    found = line.attempt.reason if line.is_step else line.row.reason
    return reason_code(found)


def reason_code(found: str) -> str:
    """The word for a reason as a row has it, without its detail; as in fsqueue's columns."""
    code = found.partition(" ")[0] or "None"
    return "JobHeldUser" if code == ReasonCode.USER_HOLD.value else code


def _limit(line: AccountingLine) -> str:
    limit_s = line.row.time_limit_s
    return "UNLIMITED" if limit_s == inf else clock_text(int(limit_s))


def _limit_raw(line: AccountingLine) -> str:
    limit_s = line.row.time_limit_s
    return "UNLIMITED" if limit_s == inf else str(int(limit_s) // 60)


def _planned_s(line: AccountingLine) -> int:
    row = line.row
    until_s = line.attempt.started_at_s or row.over_at_s or line.now_s
    return max(0, int(until_s - row.eligible_at_s)) if row.eligible_at_s else 0


def _memory(line: AccountingLine, mib: int) -> str:
    return memory_text(mib, line.unit, convert=line.convert)


def _asked_mem(line: AccountingLine) -> str:
    return "" if line.is_step else _memory(line, line.row.asked_mem_mib)


def _asked_tres(line: AccountingLine) -> str:
    row = line.row
    parts = [f"billing={row.asked_cpus}", f"cpu={row.asked_cpus}"]
    parts += [f"gres/gpu={row.asked_gpus}"] * bool(row.asked_gpus)
    parts += [f"mem={_memory(line, row.asked_mem_mib)}"] * bool(row.asked_mem_mib)
    return ",".join([*parts, f"node={row.asked_nodes or 1}"])


def _given_tres(line: AccountingLine) -> str:
    made = line.attempt
    if not made.nodes:
        return ""
    parts = [] if line.is_step else [f"billing={made.cpus}"]
    parts.append(f"cpu={made.cpus}")
    parts += [f"gres/gpu:{kind}" for kind in made.gpu_types.split(",") if kind]
    parts += [f"gres/gpu={made.gpus}"] * bool(made.gpus)
    parts += [f"mem={_memory(line, made.mem_mib)}"] * bool(made.mem_mib)
    return ",".join([*parts, f"node={made.nodes}"])


def _cpu(name: str) -> Callable[[AccountingLine], str]:
    """A time as sacct writes those that are measured: ``01:02.345``, ``02:03:04``."""

    def text(line: AccountingLine) -> str:
        seconds = getattr(line.attempt.use, name, None)
        if seconds is None:
            return ""
        whole, rest = divmod(round(seconds * 1000), 1000)
        return f"{clock_text(whole)[3:]}.{rest:03}" if whole < 3600 and rest else clock_text(whole)

    return text


def _max_rss(line: AccountingLine) -> str:
    use = line.attempt.use
    if use is None or use.task_mem_mib is None:
        return ""
    if not line.convert or not line.unit:
        return f"{use.task_mem_mib * 1024:.0f}K"
    return f"{use.task_mem_mib / 1024 ** (MEMORY_UNITS.index(line.unit) - 1):.2f}{line.unit}"


def _used_tres(line: AccountingLine) -> str:
    use = line.attempt.use
    if use is None:
        return ""
    parts = [f"cpu={clock_text(int(use.cpu_s))}"] if use.cpu_s is not None else []
    if use.gpu_mem_mib is not None:
        parts.append(f"gres/gpumem={use.gpu_mem_mib:.0f}M")
    if use.gpu_util_frac is not None:
        parts.append(f"gres/gpuutil={100 * use.gpu_util_frac * line.attempt.gpus:.0f}")
    if use.mem_mib is not None:
        parts.append(f"mem={use.mem_mib * 1024:.0f}K")
    return ",".join(parts)


def _job(text: Callable[[AccountingRow], str]) -> Callable[[AccountingLine], str]:
    """A value that a job has, and a step has not."""
    return lambda line: "" if line.is_step else text(line.row)


def _empty(_: AccountingLine) -> str:
    return ""


def _column(
    name: str, width: int, value: Callable[[AccountingLine], str] = _empty
) -> Column[AccountingLine]:
    return Column(name, name, value, width=width)


COLUMNS: Final[tuple[Column[AccountingLine], ...]] = (
    _column("Account", 10, lambda line: line.row.tenant),
    _column("AdminComment", 19),
    _column("AllocCPUS", 10, lambda line: str(line.attempt.cpus)),
    _column("AllocNodes", 10, lambda line: str(line.attempt.nodes)),
    _column("AllocTRES", 10, _given_tres),
    _column("AssocID", 10),
    _column("AveCPU", 10),
    _column("AveCPUFreq", 10),
    _column("AveDiskRead", 14),
    _column("AveDiskWrite", 14),
    _column("AvePages", 10),
    _column("AveRSS", 10),
    _column("AveVMSize", 10),
    _column("BlockID", 16),
    _column("Cluster", 10, lambda line: line.attempt.site or line.federation),
    _column("Comment", 14, _job(lambda row: row.comment)),
    _column("Constraints", 19),
    _column("ConsumedEnergy", 14),
    _column("ConsumedEnergyRaw", 17),
    _column("Container", 25),
    _column("CPUTime", 10, lambda line: clock_text(line.elapsed_s * line.attempt.cpus)),
    _column("CPUTimeRAW", 10, lambda line: str(line.elapsed_s * line.attempt.cpus)),
    _column("DBIndex", 10, _job(lambda row: str(row.id))),
    _column("DerivedExitCode", 15, _job(lambda _: "0:0")),
    _column("Elapsed", 10, lambda line: clock_text(line.elapsed_s)),
    _column("ElapsedRaw", 10, lambda line: str(line.elapsed_s)),
    _column("Eligible", 19, lambda line: moment_text(line.row.eligible_at_s)),
    _column("End", 19, _end),
    _column("Exclusive", 14),
    _column("ExitCode", 8, lambda line: "{}:{}".format(*exit_of(line))),
    _column("Extra", 19),
    _column("FailedNode", 20),
    _column("Flags", 20),
    _column("GID", 6, _job(lambda row: _account(row.user)[1])),
    _column("Group", 9, _job(lambda row: _group(row.user))),
    _column("JobID", -12, job_id),
    _column("JobIDRaw", -12, _raw_id),
    _column("JobName", 10, _name),
    _column("Layout", 9),
    _column("Licenses", 20),
    _column("MaxDiskRead", 12),
    _column("MaxDiskReadNode", 15),
    _column("MaxDiskReadTask", 15),
    _column("MaxDiskWrite", 12),
    _column("MaxDiskWriteNode", 16),
    _column("MaxDiskWriteTask", 16),
    _column("MaxPages", 8),
    _column("MaxPagesNode", 12),
    _column("MaxPagesTask", 14),
    _column("MaxRSS", 10, _max_rss),
    _column("MaxRSSNode", 10),
    _column("MaxRSSTask", 10),
    _column("MaxVMSize", 10),
    _column("MaxVMSizeNode", 14),
    _column("MaxVMSizeTask", 14),
    _column("McsLabel", 9),
    _column("MinCPU", 10),
    _column("MinCPUNode", 10),
    _column("MinCPUTask", 10),
    _column("NCPUS", 10, lambda line: str(line.attempt.cpus)),
    _column("NNodes", 8, _nodes),
    _column("NodeList", 15, _node_list),
    _column("NTasks", 8),
    _column("OriginalSLUID", 14),
    _column("OverSubscribe", 14),
    _column("Partition", 10, _partition),
    _column("Planned", 10, lambda line: clock_text(_planned_s(line))),
    _column("PlannedCPU", 10, lambda line: clock_text(_planned_s(line) * line.row.asked_cpus)),
    _column("PlannedCPURAW", 13, lambda line: str(_planned_s(line) * line.row.asked_cpus)),
    _column("Priority", 10, _job(lambda row: str(row.priority))),
    _column("QOS", 10, _job(lambda row: row.qos)),
    _column("QOSRAW", 10),
    _column("QOSREQ", 10, _job(lambda row: row.qos)),
    _column("Reason", 22, _reason),
    _column("ReqCPUFreq", 10),
    _column("ReqCPUFreqGov", 13),
    _column("ReqCPUFreqMax", 13),
    _column("ReqCPUFreqMin", 13),
    _column("ReqCPUS", 8, lambda line: str(line.row.asked_cpus)),
    _column("ReqMem", 10, _asked_mem),
    _column("ReqNodes", 8, lambda line: str(line.row.asked_nodes or 1)),
    _column("ReqReservation", 20),
    _column("ReqTRES", 10, lambda line: "" if line.is_step else _asked_tres(line)),
    _column("Reservation", 20),
    _column("ReservationId", 15),
    _column("Restarts", 8, lambda line: str(max(0, line.attempt.attempt - 1))),
    _column("SegmentSize", 11),
    _column("SLUID", 14),
    _column("Start", 19, _start),
    _column("State", 10, state_text),
    _column("StdErr", 20),
    _column("StdIn", 20),
    _column("StdOut", 20),
    _column("Submit", 19, lambda line: moment_text(line.row.submitted_at_s)),
    _column("SubmitLine", 20),
    _column("Suspended", 10, lambda _: "00:00:00"),
    _column("SystemComment", 20),
    _column("SystemCPU", 10, _cpu("system_cpu_s")),
    _column("Timelimit", 10, lambda line: "" if line.is_step else _limit(line)),
    _column("TimelimitRaw", 12, lambda line: "" if line.is_step else _limit_raw(line)),
    _column("TotalCPU", 10, _cpu("cpu_s")),
    *(
        _column(f"TRESUsage{way}{what}", 19, _used_tres if way + what == "InTot" else _empty)
        for way in ("In", "Out")
        for what in ("Ave", "Max", "MaxNode", "MaxTask", "Min", "MinNode", "MinTask", "Tot")
    ),
    _column("UID", 6, _job(lambda row: _account(row.user)[0])),
    _column("User", 9, _job(lambda row: row.user)),
    _column("UserCPU", 10, _cpu("user_cpu_s")),
    _column("WCKey", 10),
    _column("WCKeyID", 10),
    _column("WorkDir", 10, _job(lambda row: row.work_dir)),
    _column("Site", 10, lambda line: line.attempt.site),
    _column("SiteJobID", 10, lambda line: str(line.attempt.site_job_id or "")),
    _column("GPUs", 6, lambda line: str(line.attempt.gpus or line.row.asked_gpus)),
    _column("Project", 10, _job(lambda row: row.project)),
)
OF_USE: Final = frozenset({"MaxRSS", "SystemCPU", "TotalCPU", "TRESUsageInTot", "UserCPU"})
"""Columns that show what a site has measured, which is not in every answer."""
