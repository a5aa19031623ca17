"""The fields that ``scontrol update JobId=…`` has, and what the federation does with each.

The union of Slurm 22.05, 24.11 and 26.05, in the order in which scontrol looks at them: of several
fields that an abbreviation may mean, the first one is meant.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from federator.errors import InvalidRequest
from federator.slurm.options.option_table import OPTIONS


class UpdateField(NamedTuple):
    """One field. ``least``: so many letters of its name are enough."""

    name: str
    least: int
    about: str = ""
    option: str = ""  # of sbatch, that it sets
    instead: str = ""  # it is refused: what to do
    operators: bool = False  # only they may set it, as in Slurm
    is_switch: bool = False  # yes or no, of an option without a value

    @property
    def refusal(self) -> str:
        """What to do instead, also where the option itself is refused; "": it is honoured."""
        spec = OPTIONS.get(self.option)
        return self.instead or (spec.instead if spec is not None else "")


_F = UpdateField
_NO_TRES: Final = "set Gres"
_OF_ITS_OPTION: Final = "as --{}"
_RELATIVE: Final = "TimeLimit+= and -= add and take away. Lower: also while it runs"
FIELDS: Final = (
    _F("JobId", 3, "the jobs to change: ID, ID_TASK, ID_[1-3]"),
    _F("AdminComment", 6, instead="set Comment; the daemon's log says who changed what"),
    _F("SiteFactor", 5, instead="set Priority or Nice"),
    _F("ArrayTaskThrottle", 10, "tasks of an array that run at once; 0: all. Also while some run"),
    _F("Comment", 3, option="comment"),
    _F("Clusters", 8, instead="the federation chooses among all sites; set Partition or Features"),
    _F("ClusterFeatures", 8, instead="set Features: the federation looks at every site"),
    _F("DelayBoot", 5, option="delay-boot"),
    _F("Extra", 3, option="extra"),
    _F("TimeLimit", 5, f"as --time; {_RELATIVE}", "time"),
    _F("TimeMin", 5, option="time-min"),
    _F("Priority", 2, "1 to 7, as --fed-priority: users only lower it; 0 holds"),
    _F("Nice", 2, "as --nice; 100 without a value", "nice"),
    _F("CPUsPerTask", 9, option="cpus-per-task"),
    _F("CpusPerTres", 9, instead="set CPUsPerTask"),
    _F("NumCPUs", 6, instead="set NumTasks and CPUsPerTask"),
    _F("NumTasks", 8, option="ntasks"),
    _F("ReqProcs", 8, option="ntasks"),
    _F("Requeue", 4, "0 or 1, as --no-requeue or --requeue"),
    _F("ReqNodes", 8, option="nodes"),
    _F("NumNodes", 8, option="nodes"),
    _F("ReqSockets", 4, option="sockets-per-node"),
    _F("ReqCores", 4, option="cores-per-socket"),
    _F("TasksPerNode", 2, option="ntasks-per-node", operators=True),
    _F("ReqThreads", 4, option="threads-per-core"),
    _F("MinCPUsNode", 4, option="mincpus"),
    _F("MinMemoryNode", 10, option="mem"),
    _F("MinMemoryCPU", 10, option="mem-per-cpu"),
    _F("MinTmpDiskNode", 5, option="tmp"),
    _F("Partition", 2, option="partition"),
    _F("QOS", 2, option="qos"),
    _F("ReservationName", 3, option="reservation"),
    _F("Name", 2, option="job-name"),
    _F("JobName", 4, "as --job-name; without JobId it names the jobs to change", "job-name"),
    _F("WCKey", 1, option="wckey"),
    _F("StdOut", 6, option="output"),
    _F("StdErr", 6, option="error"),
    _F("StdIn", 5, option="input"),
    _F("Switches", 5, option="switches"),
    _F("wait-for-switch", 5, instead="write Switches=COUNT@TIME"),
    _F("OverSubscribe", 2, option="oversubscribe", operators=True, is_switch=True),
    _F("Shared", 2, option="oversubscribe", operators=True, is_switch=True),
    _F("Contiguous", 3, option="contiguous", operators=True, is_switch=True),
    _F("CoreSpec", 4, option="core-spec", operators=True),
    _F("MemPerTres", 5, instead="set MinMemoryNode or MinMemoryCPU"),
    _F("ThreadSpec", 4, option="thread-spec", operators=True),
    _F("TresBind", 5, option="tres-bind"),
    _F("TresFreq", 5, instead="submit the job with --gpu-freq"),
    _F("TresPerJob", 8, instead=_NO_TRES),
    _F("TresPerNode", 8, instead=_NO_TRES),
    _F("TresPerSocket", 8, instead=_NO_TRES),
    _F("TresPerTask", 8, instead=_NO_TRES),
    _F("ExcNodeList", 3, option="exclude"),
    _F("NodeList", 8, instead="a job that runs keeps its nodes; --fed-optional lets it shrink"),
    _F("ReqNodeList", 8, option="nodelist"),
    _F("Features", 1, option="constraint"),
    _F("Prefer", 3, option="prefer"),
    _F("Gres", 2, option="gres"),
    _F("Account", 1, "one of the user's accounts; empty: the first of them", "account"),
    _F("BurstBuffer", 1, option="bb"),
    _F("Dependency", 1, "as --dependency; empty: none"),
    _F("Licenses", 1, option="licenses"),
    _F("EligibleTime", 2, "as StartTime"),
    _F("StartTime", 2, "as --begin"),
    _F("EndTime", 2, instead="set TimeLimit"),
    _F("Reboot", 3, option="reboot", operators=True, is_switch=True),
    _F("UserID", 3, instead="name the jobs by their ids; an operator may change anybody's"),
    _F("Deadline", 3, option="deadline", operators=True),
    _F("WorkDir", 2, option="chdir"),
    _F("MailType", 5, option="mail-type"),
    _F("MailUser", 5, option="mail-user"),
    _F("MCSLabel", 4, option="mcs-label"),
    _F("ResetAccrueTime", 15, instead="set Nice: it takes credit off that waiting has brought"),
)  # fmt: skip
"""In scontrol's order, so that its abbreviations mean the same."""

_BY_NAME: Final = {field.name.lower(): field for field in FIELDS}


def field_of(word: str) -> UpdateField:
    """The field that a word, or the beginning of one, means.

    Raises:
        InvalidRequest: there is none, or it is refused.
    """
    asked = word.lower()
    found = _BY_NAME.get(asked) or next(
        (f for f in FIELDS if len(asked) >= f.least and f.name.lower().startswith(asked)), None
    )
    if found is None:
        known = ", ".join(field.name for field in FIELDS if not field.refusal)
        raise InvalidRequest(
            f"Update of this parameter is not supported: {word[:60]}; fscontrol update takes "
            f"{known}"
        )
    if found.refusal:
        raise InvalidRequest(
            f"Update of this parameter is not supported: {found.name}: {found.refusal}"
        )
    return found


def about(field: UpdateField) -> str:
    """What it sets, for people."""
    text = field.about or _OF_ITS_OPTION.format(field.option)
    return f"{text}; operators only" if field.operators else text
