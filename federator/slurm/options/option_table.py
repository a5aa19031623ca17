"""The options that sbatch has, and what the federation does with each.

The union of Slurm 22.05.8, 24.11.5 and 26.05.5, read from the programs themselves: names from
getopt's own list of possibilities, arity from its complaints. Where generations differ the wider
arity is kept (``--requeue`` and ``--get-user-env`` take a value in some). A site that does not
know a passed option says so when it is asked to launch.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Arity(Enum):
    NONE = 0
    REQUIRED = 1
    OPTIONAL = 2  # only as --name=value or -kvalue, never as the next word


class Treatment(Enum):
    """The program that acts on an option."""

    READ = "read"  # the federation plans with it; the site gets it too unless the plan replaces it
    PASSED = "passed"  # the site's sbatch alone judges it, on the planned nodes
    CLIENT = "client"  # fsbatch acts on it; it never travels
    REFUSED = "refused"  # cannot be honoured yet; ``OptionSpec.instead`` says what to do


class OptionSpec(NamedTuple):
    name: str
    short: str
    arity: Arity
    treatment: Treatment
    instead: str = ""


_N, _R, _O = Arity.NONE, Arity.REQUIRED, Arity.OPTIONAL
_READ, _PASS, _CLIENT = Treatment.READ, Treatment.PASSED, Treatment.CLIENT

_FILE = "the file may not exist at the chosen site"

_ACCEPTED: Final = (
    ("account", "A", _R, _READ),
    ("acctg-freq", "", _R, _PASS),
    ("array", "a", _R, _READ),
    ("batch", "", _R, _PASS),
    ("begin", "b", _R, _READ),
    ("chdir", "D", _R, _READ),
    ("clusters", "M", _R, _CLIENT),
    ("comment", "", _R, _READ),
    ("consolidate-segments", "", _N, _PASS),
    ("constraint", "C", _R, _READ),
    ("container", "", _R, _PASS),
    ("container-id", "", _R, _PASS),
    ("container-type", "", _R, _PASS),
    ("context", "", _R, _PASS),
    ("contiguous", "", _N, _READ),
    ("core-spec", "S", _R, _PASS),
    ("cores-per-socket", "", _R, _PASS),
    ("cpu-freq", "", _R, _PASS),
    ("cpus-per-gpu", "", _R, _READ),
    ("cpus-per-task", "c", _R, _READ),
    ("deadline", "", _R, _READ),
    ("delay-boot", "", _R, _PASS),
    ("dependency", "d", _R, _READ),
    ("distribution", "m", _R, _PASS),
    ("error", "e", _R, _PASS),
    ("exclusive", "", _O, _READ),
    ("exclude", "x", _R, _READ),
    ("export", "", _R, _READ),
    ("extra", "", _R, _PASS),
    ("extra-node-info", "B", _R, _PASS),
    # The federation's own:
    ("fed-continue", "", _N, _READ),
    ("fed-dataset", "", _R, _READ),
    ("fed-elastic", "", _R, _READ),
    ("fed-gpu-mem", "", _R, _READ),
    ("fed-gpu-types", "", _R, _READ),
    ("fed-migrate", "", _N, _READ),
    ("fed-no-preempt", "", _N, _READ),
    ("fed-nvlink", "", _N, _READ),
    ("fed-optional", "", _O, _READ),
    ("fed-output", "", _R, _READ),
    ("fed-pp", "", _R, _READ),
    ("fed-priority", "", _R, _READ),
    ("fed-progress", "", _R, _READ),
    ("fed-project", "", _R, _READ),
    ("fed-spare", "", _R, _READ),
    ("fed-tp", "", _R, _READ),
    ("get-user-env", "", _O, _PASS),
    ("gpu-bind", "", _R, _PASS),
    ("gpu-freq", "", _R, _PASS),
    ("gpus", "G", _R, _READ),
    ("gpus-per-node", "", _R, _READ),
    ("gpus-per-task", "", _R, _READ),
    ("gres", "", _R, _READ),
    ("gres-flags", "", _R, _PASS),
    ("help", "h", _N, _CLIENT),
    ("hint", "", _R, _PASS),
    ("hold", "H", _N, _READ),
    ("json", "", _N, _CLIENT),  # fsbatch's own
    ("ignore-pbs", "", _N, _READ),
    ("input", "i", _R, _PASS),
    ("job-name", "J", _R, _READ),
    ("kill-on-invalid-dep", "", _R, _READ),
    ("licenses", "L", _R, _READ),
    ("mail-type", "", _R, _PASS),
    ("mail-user", "", _R, _PASS),
    ("mcs-label", "", _R, _PASS),
    ("mem", "", _R, _READ),
    ("mem-bind", "", _R, _PASS),
    ("mem-per-cpu", "", _R, _READ),
    ("mem-per-gpu", "", _R, _READ),
    ("mem-update", "", _R, _PASS),
    ("mincpus", "", _R, _READ),
    ("network", "", _R, _PASS),
    ("nice", "", _O, _READ),
    ("no-kill", "k", _O, _PASS),
    ("no-requeue", "", _N, _READ),
    ("nodefile", "F", _R, _CLIENT),  # fsbatch reads the file
    ("nodelist", "w", _R, _READ),
    ("nodes", "N", _R, _READ),
    ("ntasks", "n", _R, _READ),
    ("ntasks-per-core", "", _R, _PASS),
    ("ntasks-per-gpu", "", _R, _READ),
    ("ntasks-per-node", "", _R, _READ),
    ("ntasks-per-socket", "", _R, _PASS),
    ("oom-kill-step", "", _O, _PASS),
    ("open-mode", "", _R, _PASS),
    ("output", "o", _R, _PASS),
    ("overcommit", "O", _N, _READ),
    ("oversubscribe", "s", _N, _PASS),
    ("parsable", "", _N, _CLIENT),
    ("partition", "p", _R, _READ),
    ("power", "", _R, _PASS),
    ("prefer", "", _R, _PASS),
    ("profile", "", _R, _PASS),
    ("propagate", "", _O, _PASS),
    ("qos", "q", _R, _READ),
    ("quiet", "Q", _N, _CLIENT),
    ("reboot", "", _N, _PASS),
    ("requeue", "", _O, _READ),
    ("reservation", "", _R, _READ),
    ("resources", "", _R, _PASS),
    ("resv-ports", "", _O, _PASS),
    ("segment", "", _R, _PASS),
    ("signal", "", _R, _PASS),
    ("sockets-per-node", "", _R, _PASS),
    ("spread-job", "", _N, _PASS),
    ("spread-segments", "", _N, _PASS),
    ("stepmgr", "", _N, _PASS),
    ("switches", "", _R, _READ),
    ("test-only", "", _N, _CLIENT),
    ("thread-spec", "", _R, _PASS),
    ("threads-per-core", "", _R, _PASS),
    ("time", "t", _R, _READ),
    ("time-min", "", _R, _PASS),
    ("tmp", "", _R, _PASS),
    ("tres-bind", "", _R, _PASS),
    ("uid", "", _R, _CLIENT),
    ("usage", "", _N, _CLIENT),
    ("use-min-nodes", "", _N, _PASS),
    ("verbose", "v", _N, _CLIENT),
    ("version", "V", _N, _CLIENT),
    ("wait", "W", _N, _CLIENT),
    ("wait-all-nodes", "", _R, _PASS),
    ("wckey", "", _R, _PASS),
    ("wrap", "", _R, _CLIENT),
)

_REFUSED: Final = (
    ("autocomplete", "", _R, "ask the site's own sbatch"),
    ("bb", "", _R, "no site's burst buffer can be planned; stage the data in the script"),
    ("bbf", "", _R, "no site's burst buffer can be planned; stage the data in the script"),
    ("cluster-constraint", "", _R, "use --constraint: the federation looks at every site"),
    ("export-file", "", _R, f"{_FILE}; set the variables before fsbatch, or in the script"),
    ("external", "", _N, "external jobs belong to one cluster; use that site's sbatch"),
    ("gid", "", _R, "the job runs with the user's own groups at the site"),
    ("gpus-per-socket", "", _R, "sockets are not planned with; use --gpus-per-node"),
    ("ntasks-per-tres", "", _R, "use --ntasks-per-gpu"),
    ("priority", "", _R, "the priority is the tenant's; --fed-priority and --nice can lower it"),
    ("tres-per-task", "", _R, "use --cpus-per-task and --gpus-per-task"),
)

OPTIONS: Final = {
    name: OptionSpec(name, short, arity, treatment) for name, short, arity, treatment in _ACCEPTED
} | {
    name: OptionSpec(name, short, arity, Treatment.REFUSED, instead)
    for name, short, arity, instead in _REFUSED
}
"""By canonical long name."""

SHORT: Final = {spec.short: spec.name for spec in OPTIONS.values() if spec.short}

OWN: Final = frozenset(
    {
        "fed-continue",
        "fed-dataset",
        "fed-elastic",
        "fed-gpu-mem",
        "fed-gpu-types",
        "fed-migrate",
        "fed-no-preempt",
        "fed-nvlink",
        "fed-optional",
        "fed-output",
        "fed-pp",
        "fed-priority",
        "fed-progress",
        "fed-project",
        "fed-spare",
        "fed-tp",
        "json",
    }
)
"""Options that no sbatch knows by itself (slurm_plugins/ teaches it the others); they do not take
part in what abbreviations of its own mean."""

ALIASES: Final = {"cluster": "clusters", "tasks-per-node": "ntasks-per-node"}
"""Other long names that sbatch accepts, and the canonical one."""

ACCUMULATING: Final = frozenset({"mail-type"})
"""Options whose repetitions add up; of all others the last one counts."""

NUMBERED: Final = frozenset({"fed-optional"})
"""Options with an optional value of which a number in a variable is the value, not a flag."""

CARRIED: Final = frozenset(
    {
        "account",
        "chdir",
        "comment",
        "delay-boot",
        "error",
        "extra",
        "input",
        "job-name",
        "mem",
        "nice",
        "no-requeue",
        "open-mode",
        "output",
        "qos",
        "requeue",
        "time",
        "time-min",
        "wckey",
    }
)
"""Options that a het component passes on to the next one, as observed on all three generations."""

REPLACES: Final = {"requeue": "no-requeue", "no-requeue": "requeue"}
"""Setting one unsets the other."""

EXCLUSIVE_FAMILIES: Final = (
    frozenset({"mem", "mem-per-cpu", "mem-per-gpu"}),
    frozenset({"cpus-per-task", "cpus-per-gpu"}),
)
"""At most one of each may be set by the command line and script together; one from the
environment gives way to them."""

ENVIRONMENT: Final = (
    ("SBATCH_ACCOUNT", "account"),
    ("SBATCH_ACCTG_FREQ", "acctg-freq"),
    ("SBATCH_ARRAY_INX", "array"),
    ("SBATCH_BATCH", "batch"),
    ("SBATCH_BURST_BUFFER", "bb"),
    ("SBATCH_CLUSTER_CONSTRAINT", "cluster-constraint"),
    ("SLURM_CLUSTERS", "clusters"),
    ("SBATCH_CLUSTERS", "clusters"),
    ("SBATCH_CONSOLIDATE_SEGMENTS", "consolidate-segments"),
    ("SBATCH_CONSTRAINT", "constraint"),
    ("SBATCH_CONTAINER", "container"),
    ("SBATCH_CONTAINER_ID", "container-id"),
    ("SBATCH_CONTAINER_TYPE", "container-type"),
    ("SBATCH_CORE_SPEC", "core-spec"),
    ("SBATCH_CPU_FREQ_REQ", "cpu-freq"),
    ("SBATCH_CPUS_PER_GPU", "cpus-per-gpu"),
    ("SBATCH_DELAY_BOOT", "delay-boot"),
    ("SBATCH_DISTRIBUTION", "distribution"),
    ("SBATCH_ERROR", "error"),
    ("SBATCH_EXCLUSIVE", "exclusive"),
    ("SBATCH_EXPORT", "export"),
    ("SBATCH_GET_USER_ENV", "get-user-env"),
    ("SBATCH_GPU_BIND", "gpu-bind"),
    ("SBATCH_GPU_FREQ", "gpu-freq"),
    ("SBATCH_GPUS", "gpus"),
    ("SBATCH_GPUS_PER_NODE", "gpus-per-node"),
    ("SBATCH_GPUS_PER_SOCKET", "gpus-per-socket"),
    ("SBATCH_GPUS_PER_TASK", "gpus-per-task"),
    ("SBATCH_GRES", "gres"),
    ("SBATCH_GRES_FLAGS", "gres-flags"),
    ("SLURM_HINT", "hint"),
    ("SBATCH_HINT", "hint"),
    ("SBATCH_IGNORE_PBS", "ignore-pbs"),
    ("SBATCH_INPUT", "input"),
    ("SBATCH_JOB_NAME", "job-name"),
    ("SBATCH_MEM_BIND", "mem-bind"),
    ("SBATCH_MEM_PER_CPU", "mem-per-cpu"),
    ("SBATCH_MEM_PER_GPU", "mem-per-gpu"),
    ("SBATCH_MEM_PER_NODE", "mem"),
    ("SBATCH_NETWORK", "network"),
    ("SBATCH_NO_KILL", "no-kill"),
    ("SBATCH_NO_REQUEUE", "no-requeue"),
    ("SBATCH_OPEN_MODE", "open-mode"),
    ("SBATCH_OUTPUT", "output"),
    ("SBATCH_OVERCOMMIT", "overcommit"),
    ("SBATCH_PARTITION", "partition"),
    ("SBATCH_POWER", "power"),
    ("SBATCH_PROFILE", "profile"),
    ("SBATCH_QOS", "qos"),
    ("SBATCH_REQ_SWITCH", "switches"),
    ("SBATCH_REQUEUE", "requeue"),
    ("SBATCH_RESERVATION", "reservation"),
    ("SBATCH_SEGMENT_SIZE", "segment"),
    ("SBATCH_SIGNAL", "signal"),
    ("SBATCH_SPREAD_JOB", "spread-job"),
    ("SBATCH_SPREAD_SEGMENTS", "spread-segments"),
    ("SBATCH_THREAD_SPEC", "thread-spec"),
    ("SBATCH_THREADS_PER_CORE", "threads-per-core"),
    ("SBATCH_TIMELIMIT", "time"),
    ("SBATCH_TRES_BIND", "tres-bind"),
    ("SBATCH_TRES_PER_TASK", "tres-per-task"),
    ("SBATCH_USE_MIN_NODES", "use-min-nodes"),
    ("SBATCH_WAIT", "wait"),
    ("SBATCH_WAIT_ALL_NODES", "wait-all-nodes"),
    ("SBATCH_WCKEY", "wckey"),
    # The federation's own:
    ("SBATCH_FED_CONTINUE", "fed-continue"),
    ("SBATCH_FED_DATASET", "fed-dataset"),
    ("SBATCH_FED_ELASTIC", "fed-elastic"),
    ("SBATCH_FED_GPU_MEM", "fed-gpu-mem"),
    ("SBATCH_FED_GPU_TYPES", "fed-gpu-types"),
    ("SBATCH_FED_MIGRATE", "fed-migrate"),
    ("SBATCH_FED_NO_PREEMPT", "fed-no-preempt"),
    ("SBATCH_FED_NVLINK", "fed-nvlink"),
    ("SBATCH_FED_OPTIONAL", "fed-optional"),
    ("SBATCH_FED_OUTPUT", "fed-output"),
    ("SBATCH_FED_PP", "fed-pp"),
    ("SBATCH_FED_PRIORITY", "fed-priority"),
    ("SBATCH_FED_PROGRESS", "fed-progress"),
    ("SBATCH_FED_PROJECT", "fed-project"),
    ("SBATCH_FED_SPARE", "fed-spare"),
    ("SBATCH_FED_TP", "fed-tp"),
)
"""Input variables and their options, in the order in which sbatch reads them.

SBATCH_WAIT4SWITCH only refines SBATCH_REQ_SWITCH, SBATCH_DEBUG only sbatch's own chatter.
"""
