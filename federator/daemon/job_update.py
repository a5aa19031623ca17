"""Reads ``fscontrol update``: fields of scontrol's, as changes of sbatch's options.

The new options meet the same checks as those of a new submission (``interpret``), so a job cannot
become one that would have been refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final, NamedTuple

from msgspec import structs

from federator.config import FederationConfig
from federator.daemon.dependency import known_dependency
from federator.daemon.submissions import (
    BEYOND_POLICY,
    account_of,
    check_interactive,
    check_mode,
)
from federator.errors import InvalidRequest
from federator.model.draft import Draft
from federator.model.eligibility import Dependency, DependencyKind, Hold
from federator.model.event import Amended
from federator.model.lifecycle import TERMINAL
from federator.model.message import ControlRefusal
from federator.model.submission import Option, Submission, unpack_submission, with_options
from federator.model.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from federator.model.viewer import Viewer
from federator.model.workload import TenantName, Workload, WorkloadId
from federator.sched.passes.admission import never_runs
from federator.sched.passes.federation import Federation
from federator.sched.passes.limits import submit_refusal
from federator.sched.state.fleet_licenses import split
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.slurm.options import quantities
from federator.slurm.options.dependency_option import read_dependency
from federator.slurm.options.interpret import Interpreted, interpret
from federator.slurm.options.update_fields import FIELDS, UpdateField, field_of

_FIELDS: Final[Mapping[str, UpdateField]] = {field.name.lower(): field for field in FIELDS}
_OF_ONE_COMPONENT: Final = frozenset(
    {
        "constraint",
        "core-spec",
        "cores-per-socket",
        "cpus-per-task",
        "gres",
        "mem",
        "mem-per-cpu",
        "exclude",
        "licenses",
        "mincpus",
        "nodelist",
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "partition",
        "sockets-per-node",
        "reservation",
        "switches",
        "thread-spec",
        "threads-per-core",
        "tmp",
    }
)
_DENIED: Final = "Access/permission denied"
_ON: Final[Mapping[str, bool]] = {"yes": True, "1": True, "no": False, "0": False}
_INSTEAD: Final[Mapping[str, Sequence[str]]] = {
    "mem": ("mem-per-cpu", "mem-per-gpu"),
    "mem-per-cpu": ("mem", "mem-per-gpu"),
}


class _Change(NamedTuple):
    """The options that fields set and take away."""

    options: tuple[Option, ...]
    without: tuple[str, ...]


class Asker(NamedTuple):
    """The one who asks for changes, and the configuration that says what that user may.

    ``viewer``: whose view of other jobs it has; None: it sees all.
    """

    config: FederationConfig
    is_operator: bool
    viewer: Viewer | None = None


def updates_of(
    federation: Federation, ids: Iterable[WorkloadId], fields: Mapping[str, str], asker: Asker
) -> tuple[Amended, ...]:
    """The changes of these workloads, one for all that share a submission.

    Args:
        federation: read, not changed.
        ids: workloads that exist; those that do not wait are left to the core.
        fields: by name in lower case.
        asker: may change these workloads.

    Raises:
        InvalidRequest: a field is not known or its value cannot be, or it is not the asker's to
            set; a job would be one that is refused, or would depend on itself.
    """
    for name in fields:
        field = field_of(name.removesuffix("+").removesuffix("-"))
        gives = not field.is_switch or _is_on(name, fields[name])
        if field.operators and gives and not asker.is_operator:
            raise InvalidRequest(f"{_DENIED}: only an operator sets {field.name}")
    ids = tuple(ids)
    if "arraytaskthrottle" in fields:
        _check_whole_arrays(federation.ledger, ids)
    groups: dict[tuple[object, ...], list[WorkloadRecord]] = {}
    for entry in map(federation.ledger.entries.__getitem__, ids):
        w = entry.workload
        key = id(w.submission), w.time_limit_s, entry.waits_for.kill, w.tenant, w.asked_priority
        switches = tuple(job.switches for job in w.jobs)  # some of an array have given theirs up
        groups.setdefault((*key, entry.hold, switches), []).append(entry)
    return tuple(_update(federation, group, fields, asker) for group in groups.values())


def _check_whole_arrays(ledger: Ledger, ids: Collection[WorkloadId]) -> None:
    named = set(ids)
    for id_ in ids:
        array = ledger.entries[id_].workload.array
        if array is None:
            raise InvalidRequest(f"ArrayTaskThrottle: job {id_} is no job array")
        tasks = ledger.array_tasks.get(array.array_id, {}).values()
        if any(t not in named and ledger.entries[t].state not in TERMINAL for t in tasks):
            raise InvalidRequest(
                f"ArrayTaskThrottle is of a whole array: name it by its id, {array.array_id}"
            )


def _update(
    federation: Federation,
    group: Sequence[WorkloadRecord],
    fields: Mapping[str, str],
    asker: Asker,
) -> Amended:
    workload, ledger = group[0].workload, federation.ledger
    ids = tuple(entry.workload.id for entry in group)
    begin = fields.get("starttime", fields.get("eligibletime"))
    throttle = fields.get("arraytaskthrottle")
    waits_for = None
    if "dependency" in fields:
        waits_for = _dependency(ledger, ids, fields["dependency"], group[0], asker.viewer)
    event = Amended(
        at_s=0.0,
        workloads=ids,
        begin_at_s=None if begin is None else quantities.unix_time_s(begin),
        waits_for=waits_for,
        array_max_running=None if throttle is None else _throttle(throttle),
        hold=_hold(group[0], fields["priority"], asker) if "priority" in fields else None,
    )
    change = _change(fields, workload, asker)
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
    asked = _interpreted(new, federation.rules.licenses)
    if workload.interactive:
        check_interactive(asker.config, asked)
    if fields.keys() & {"account", "priority"}:
        event = _ranked_anew(event, workload, asked, ledger, asker.config)
    tenant = event.tenant or workload.tenant
    _refuse_what_never_runs(federation, replace(workload, tenant=tenant), asked)
    return _with_options(event, change, workload, asked)


def _interpreted(submission: Submission, pools: Mapping[str, int]) -> Interpreted:
    asked = interpret(submission)
    return replace(asked, jobs=split(asked.jobs, pools))


def _ranked_anew(
    event: Amended, w: Workload, asked: Interpreted, ledger: Ledger, config: FederationConfig
) -> Amended:
    """The change with what follows from another account or priority.

    Raises:
        InvalidRequest: the account is not the user's, has too many jobs, or is in a mode in which
            nothing of it is taken.
    """
    tenant = w.tenant
    if asked.account != w.tenant:
        tenant = account_of(config, w.user, asked.account)
        check_mode(config, tenant)
        _check_submit_limits(ledger, w, tenant, len(event.workloads))
    level = max(config.tenants[tenant].priority, asked.asked_priority)
    return structs.replace(
        event, tenant=tenant, asked_priority=asked.asked_priority, priority=level
    )


def _check_submit_limits(ledger: Ledger, w: Workload, tenant: TenantName, jobs: int) -> None:
    if tenant == w.tenant:
        return
    refusal = submit_refusal(ledger, tenant, w.user, jobs, leaves=w.tenant)
    if refusal is not None:
        code, policy = refusal.reasons[0].code.value, BEYOND_POLICY.partition(": ")[2]
        raise InvalidRequest(f"{code}: {policy}")


def _with_options(event: Amended, change: _Change, w: Workload, asked: Interpreted) -> Amended:
    """The change as it is recorded: what the options say now.

    Few switches that a job has given up, when it had waited long enough, it wants no more.
    """
    jobs = asked.jobs
    if "switches" not in {*change.without, *(option.name for option in change.options)}:
        pairs = zip(jobs, w.jobs, strict=True)
        jobs = tuple(new if old.switches else replace(new, switches=0) for new, old in pairs)
    return structs.replace(
        event,
        options=change.options,
        without=change.without,
        name=asked.name,
        time_limit_s=asked.time_limit_s,
        nice=asked.nice,
        requeue=asked.requeue,
        jobs=jobs if jobs != w.jobs else None,
        deadline_at_s=_changed(asked.deadline.at_s, w.deadline_at_s),
        starts_by_s=_changed(asked.deadline.starts_by_s, w.starts_by_s),
    )


def _changed(now_s: float, before_s: float) -> float | None:
    return None if now_s == before_s else now_s


def _change(fields: Mapping[str, str], workload: Workload, asker: Asker) -> _Change:
    options: dict[str, Option] = {}
    without: list[str] = []
    for name, value in fields.items():
        known = _FIELDS.get(name)
        option = known.option if known is not None else ""
        if known is not None and known.is_switch and _is_on(name, value):
            options[option] = Option(name=option)
        elif option and value and not (known and known.is_switch):
            options[option] = Option(name=option, value=value)
            without += _INSTEAD.get(option, ())
        elif option:
            without.append(option)
        elif name.startswith("timelimit"):
            minutes = _minutes(workload.time_limit_s, name[-1], value)
            options["time"] = Option(name="time", value=str(minutes))
        elif name == "priority" and value != "0":
            _check_priority(value, workload, asker)
            options["fed-priority"] = Option(name="fed-priority", value=value)
        elif name == "requeue":
            if value not in ("0", "1"):
                raise InvalidRequest(f"Requeue={value[:20]}: expected 0 or 1")
            chosen, other = ("requeue", "no-requeue")[:: 1 if value == "1" else -1]
            options[chosen] = Option(name=chosen)
            without.append(other)
    return _Change(tuple(options.values()), tuple(without))


def _is_on(name: str, value: str) -> bool:
    if value.lower() not in _ON:
        raise InvalidRequest(f"{name}={value[:20]}: expected yes or no")
    return _ON[value.lower()]


def _throttle(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) > quantities.MAX_ARRAY_TASKS:
        raise InvalidRequest(f"ArrayTaskThrottle={text[:20]}: expected a number of tasks; 0: all")
    return int(text)


def _check_priority(text: str, workload: Workload, asker: Asker) -> None:
    """Users only lower what they asked for; nobody gets beyond the tenant's priority."""
    if text not in map(str, range(HIGHEST_PRIORITY, LOWEST_PRIORITY + 1)):
        raise InvalidRequest(
            f"Priority={text[:20]}: expected 1, the highest, to 7; or 0, which holds the job"
        )
    if int(text) < workload.priority and not asker.is_operator:
        raise InvalidRequest(f"{_DENIED}: users only lower the priority; 7 is the lowest")
    own = asker.config.tenants[workload.tenant].priority
    if int(text) < own:
        raise InvalidRequest(
            f"Priority={text} is above the priority of {workload.tenant}, which is {own}"
        )


def _hold(entry: WorkloadRecord, priority: str, asker: Asker) -> Hold | None:
    """What becomes of its hold: priority 0 holds it, and a user changes no operator's hold."""
    if priority == "0" and asker.is_operator:
        return Hold.ADMIN
    if priority == "0":
        return Hold.USER if entry.hold is Hold.NONE else None
    if entry.hold is not Hold.NONE:
        raise InvalidRequest(f"{ControlRefusal.HELD.value}: release job {entry.workload.id} first")
    return None


def _minutes(time_limit_s: float, sign: str, value: str) -> int:
    by_s = quantities.time_limit_s(value)
    if inf in (time_limit_s, by_s):
        raise InvalidRequest(f"TimeLimit{sign}={value[:20]}: the job has no time limit")
    minutes = int(time_limit_s + by_s if sign == "+" else time_limit_s - by_s) // 60
    if minutes < 1:
        raise InvalidRequest(f"TimeLimit{sign}={value[:20]} leaves the job no time")
    return minutes


def _refuse_what_never_runs(federation: Federation, w: Workload, asked: Interpreted) -> None:
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
    ledger, pools = federation.ledger, federation.rules.licenses
    if never_runs(draft, ledger.tenancy, federation.sites, pools=pools) is not None:
        raise InvalidRequest(
            f"Requested node configuration is not available: no site can ever run job {w.id} so"
        )


# ---- dependencies ----


def _dependency(
    ledger: Ledger,
    ids: Sequence[WorkloadId],
    text: str,
    entry: WorkloadRecord,
    viewer: Viewer | None,
) -> Dependency:
    """What these jobs depend on from now on; ``entry`` says what becomes of one that never can."""
    try:
        asked = read_dependency([text], ["yes" if entry.waits_for.kill else None])
        found = known_dependency(ledger, asked, viewer)
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
