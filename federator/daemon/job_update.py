"""Reads ``fscontrol update``: fields of scontrol's, as changes of sbatch's options.

The new options meet the same checks as those of a new submission (``interpret``), so a job cannot
become one that would have been refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from msgspec import structs

from federator.daemon.dependency import known_dependency
from federator.errors import InvalidRequest
from federator.model.eligibility import Dependency, DependencyKind
from federator.model.event import Amended, Draft
from federator.model.submission import Option, unpack_submission, with_options
from federator.model.workload import WorkloadId
from federator.sched.passes.admission import never_runs
from federator.sched.passes.federation import Federation
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.slurm.options import quantities
from federator.slurm.options.dependency_option import read_dependency
from federator.slurm.options.interpret import Interpreted, interpret

OPTION_OF: Final[Mapping[str, str]] = {
    "comment": "comment",
    "cpuspertask": "cpus-per-task",
    "features": "constraint",
    "gres": "gres",
    "jobname": "job-name",
    "mailtype": "mail-type",
    "mailuser": "mail-user",
    "mincpusnode": "mincpus",
    "minmemorycpu": "mem-per-cpu",
    "minmemorynode": "mem",
    "name": "job-name",
    "nice": "nice",
    "numnodes": "nodes",
    "numtasks": "ntasks",
    "partition": "partition",
    "prefer": "prefer",
    "qos": "qos",
    "stderr": "error",
    "stdin": "input",
    "stdout": "output",
    "timelimit": "time",
    "timemin": "time-min",
    "wckey": "wckey",
    "workdir": "chdir",
}
"""Fields of ``scontrol update JobId=…`` in lower case, and the option that each sets."""
OTHERS: Final = ("dependency", "eligibletime", "requeue", "starttime")
_OF_ONE_COMPONENT: Final = frozenset(
    {"constraint", "cpus-per-task", "gres", "mem", "mem-per-cpu", "mincpus", "nodes", "ntasks",
     "partition"}
)  # fmt: skip
_INSTEAD: Final[Mapping[str, Sequence[str]]] = {"mem": ("mem-per-cpu", "mem-per-gpu"),
                                                "mem-per-cpu": ("mem", "mem-per-gpu")}  # fmt: skip


class _Change(NamedTuple):
    """The options that fields set and take away."""

    options: tuple[Option, ...]
    without: tuple[str, ...]


def updates_of(
    federation: Federation, ids: Iterable[WorkloadId], fields: Mapping[str, str]
) -> tuple[Amended, ...]:
    """The changes of these workloads, one for all that share a submission.

    Args:
        federation: read, not changed.
        ids: workloads that exist; those that do not wait are left to the core.
        fields: by name in lower case.

    Raises:
        InvalidRequest: a field is not known or its value cannot be; a job would be one that is
            refused, or would depend on itself.
    """
    unknown = sorted(fields.keys() - OPTION_OF.keys() - set(OTHERS) - {"timelimit+", "timelimit-"})
    if unknown:
        raise InvalidRequest(
            f"Update of this parameter is not supported: {unknown[0][:60]}; fscontrol update "
            f"takes {', '.join(sorted({*OPTION_OF, *OTHERS}))}"
        )
    groups: dict[tuple[int, float, bool], list[WorkloadRecord]] = {}
    for entry in map(federation.ledger.entries.__getitem__, ids):
        w = entry.workload
        key = id(w.submission), w.time_limit_s, entry.waits_for.kill
        groups.setdefault(key, []).append(entry)
    return tuple(_update(federation, group, fields) for group in groups.values())


def _update(
    federation: Federation, group: Sequence[WorkloadRecord], fields: Mapping[str, str]
) -> Amended:
    workload, ledger = group[0].workload, federation.ledger
    ids = tuple(entry.workload.id for entry in group)
    begin = fields.get("starttime", fields.get("eligibletime"))
    waits_for = None
    if "dependency" in fields:
        waits_for = _dependency(ledger, ids, fields["dependency"], kill=group[0].waits_for.kill)
    event = Amended(
        at_s=0.0,
        workloads=ids,
        begin_at_s=None if begin is None else quantities.unix_time_s(begin),
        waits_for=waits_for,
    )
    change = _change(fields, workload.time_limit_s)
    if not (change.options or change.without):
        return event
    names = {option.name for option in change.options}
    if len(workload.jobs) > 1 and names & _OF_ONE_COMPONENT:
        raise InvalidRequest(
            "the size of a het job cannot be changed: cancel it and submit it with other options"
        )
    new = unpack_submission(with_options(workload.submission, *change))
    if not new.components:
        raise InvalidRequest(f"job {workload.id} was adopted, and its options are not known")
    asked = interpret(new)
    _refuse_what_never_runs(federation, group[0], asked)
    return structs.replace(
        event,
        options=change.options,
        without=change.without,
        name=asked.name,
        time_limit_s=asked.time_limit_s,
        nice=asked.nice,
        requeue=asked.requeue,
        jobs=asked.jobs if asked.jobs != workload.jobs else None,
    )


def _change(fields: Mapping[str, str], time_limit_s: float) -> _Change:
    options: dict[str, Option] = {}
    without: list[str] = []
    for name, value in fields.items():
        option = OPTION_OF.get(name)
        if option is not None and value:
            options[option] = Option(name=option, value=value)
            without += _INSTEAD.get(option, ())
        elif option is not None:
            without.append(option)
        elif name.startswith("timelimit"):
            minutes = _minutes(time_limit_s, name[-1], value)
            options["time"] = Option(name="time", value=str(minutes))
        elif name == "requeue":
            if value not in ("0", "1"):
                raise InvalidRequest(f"Requeue={value[:20]}: expected 0 or 1")
            chosen, other = ("requeue", "no-requeue")[:: 1 if value == "1" else -1]
            options[chosen] = Option(name=chosen)
            without.append(other)
    return _Change(tuple(options.values()), tuple(without))


def _minutes(time_limit_s: float, sign: str, value: str) -> int:
    by_s = quantities.time_limit_s(value)
    if inf in (time_limit_s, by_s):
        raise InvalidRequest(f"TimeLimit{sign}={value[:20]}: the job has no time limit")
    minutes = int(time_limit_s + by_s if sign == "+" else time_limit_s - by_s) // 60
    if minutes < 1:
        raise InvalidRequest(f"TimeLimit{sign}={value[:20]} leaves the job no time")
    return minutes


def _refuse_what_never_runs(
    federation: Federation, entry: WorkloadRecord, asked: Interpreted
) -> None:
    w = entry.workload
    draft = Draft(
        name=asked.name,
        user=w.user,
        tenant=w.tenant,
        priority=w.priority,
        jobs=asked.jobs,
        submission=w.submission,
        time_limit_s=asked.time_limit_s,
        requeue=asked.requeue,
        no_preempt=w.no_preempt,
    )
    if never_runs(draft, federation.ledger.tenancy, federation.sites) is not None:
        raise InvalidRequest(
            f"Requested node configuration is not available: no site can ever run job {w.id} so"
        )


# ---- dependencies ----


def _dependency(ledger: Ledger, ids: Sequence[WorkloadId], text: str, *, kill: bool) -> Dependency:
    try:
        asked = read_dependency([text], ["yes" if kill else None])
        found = known_dependency(ledger, asked)
    except InvalidRequest as error:
        raise InvalidRequest(str(error).removeprefix("Batch job submission failed: ")) from error
    for id_ in ids:
        if _leads_to(ledger, found, ledger.entries[id_]):
            raise InvalidRequest(f"Circular job dependency: job {id_} would depend on itself")
    return found


def _leads_to(ledger: Ledger, waits_for: Dependency, entry: WorkloadRecord) -> bool:
    """Whether a workload would wait for itself, however many lie between."""
    seen: set[WorkloadId] = set()
    ahead = _waited_for(ledger, waits_for, entry)
    while ahead:
        other = ahead.pop()
        if other.workload.id == entry.workload.id:
            return True
        if other.workload.id not in seen:
            seen.add(other.workload.id)
            ahead += _waited_for(ledger, other.waits_for, other)
    return False


def _waited_for(
    ledger: Ledger, waits_for: Dependency, entry: WorkloadRecord
) -> list[WorkloadRecord]:
    return [
        job
        for condition in waits_for.conditions
        if condition.kind is not DependencyKind.SINGLETON
        for job in ledger.dependents.jobs_of(ledger.dependents.key_of(condition, entry))
    ]
