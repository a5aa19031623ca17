"""Checks the end of a history: every workload has ended, once, as Slurm and clients know it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from operator import attrgetter

from federator.faults.checks.evidence import Evidence, Truth
from federator.faults.checks.wish_checks import WishChecks
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.site import SiteJobState
from federator.sched.state.ledger import Ledger


def check_end(evidence: Evidence, wishes: WishChecks, ledger: Ledger) -> None:
    """Compare how the last daemon's workloads ended with what is certain."""
    for id_, entry in ledger.entries.items():
        if entry.state not in TERMINAL:
            evidence.break_(f"{id_} never ended: {entry.state.value}")
            continue
        truth = evidence.truth(id_)
        if truth.maimed and entry.state is WorkloadState.CANCELLED:
            continue  # of components' ends the worst counts
        if entry.state is WorkloadState.CANCELLED and wishes.never_starts(truth):
            evidence.counts["never satisfied"] += 1
            continue
        wrong = _disagreement(entry.state, truth)
        if entry.site_state == SiteJobState.DEADLINE.value:
            evidence.counts["too late"] += 1
            wrong = _ends_too_late(truth)
        if wrong:
            evidence.break_(f"{id_} is {entry.state.value}, but {wrong}")
    for id_, truth in evidence.truths.items():
        if any(run.ended is None for run in truth.runs):
            evidence.break_(f"{id_} still runs")
    check_holdings(ledger, evidence.break_)


def _disagreement(state: WorkloadState, truth: Truth) -> str:
    """The evidence against this end; "" if there is none."""
    runs = truth.counted
    last = runs[-1] if runs else None
    lost = bool(truth.unrecorded)
    if truth.completed and state is not WorkloadState.COMPLETED and not lost:
        return "its user code completed"
    ended_well = any(r.ended is SiteJobState.COMPLETED and not r.exit_code for r in runs)
    if state is WorkloadState.COMPLETED and not ended_well:
        return "its user code never completed"
    if state is WorkloadState.CANCELLED and not (
        truth.cancel_asked or truth.ended_outside or truth.unheard
    ):
        return "nobody cancelled it"
    how = last.ended if last is not None else None
    if state is WorkloadState.FAILED and how is not SiteJobState.FAILED and not lost:
        return f"its last run ended {how.value if how else 'never'}"
    if state is WorkloadState.TIMEOUT and how is not SiteJobState.TIMEOUT:
        return f"its last run ended {how.value if how else 'never'}"
    return ""


def _ends_too_late(truth: Truth) -> str:
    """The evidence against an end since its deadline could not be kept; "" if there is none."""
    if truth.script is None or not truth.script.deadline_s:
        return "it has no deadline"
    return "its user code completed" if truth.completed and not truth.unrecorded else ""


def check_holdings(ledger: Ledger, break_: Callable[[str], None]) -> None:
    """Check that tenants hold the sum of what their live workloads hold."""
    tenancy, holdings = ledger.tenancy, ledger.holdings
    sums: dict[int, Counter[int]] = {}
    for entry in ledger.entries.values():
        if entry.charge is not None:
            own = sums.setdefault(entry.charge.row, Counter())
            for column, amount in enumerate(entry.charge.amounts):
                own[column] += amount
    for name in {entry.workload.tenant for entry in ledger.entries.values()}:
        row = tenancy.row(name)
        held = {k: n for k, n in enumerate(holdings.own(row)) if n}
        summed = {k: n for k, n in sums.get(row, Counter()).items() if n}
        if held != summed:
            break_(f"tenant {name} holds {held}, its workloads hold {summed}")


def differences(one: Ledger, other: Ledger) -> Mapping[str, str]:
    """In what two ledgers differ; empty if in nothing that matters."""
    found: dict[str, str] = {}
    for name in (
        "epoch",
        "log_began",
        "next_id",
        "keys.id_of",
        "array_tasks",
        "promised.shrinking",
        "drains",
    ):
        part = attrgetter(name)
        if part(one) != part(other):
            found[name] = f"{part(one)} against {part(other)}"
    if list(one.entries) != list(other.entries):
        found["entries"] = f"{list(one.entries)} against {list(other.entries)}"
    for id_, entry in one.entries.items():
        mine, theirs = _lasting(entry), _lasting(other.entries.get(id_))
        for name, value in mine.items():
            if value != theirs.get(name):
                found[f"{id_}.{name}"] = f"{value} against {theirs.get(name)}"
    return found


def _lasting(entry: object) -> dict[str, object]:
    """An entry's fields, but those that are not in the log."""
    names = getattr(type(entry), "__slots__", ())
    return {n: getattr(entry, n) for n in names if n not in ("refusals", "bad_nodes")}
