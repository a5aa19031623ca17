"""Nothing that a ledger learns may be missing from a snapshot, and nothing may be added unseen.

Whoever adds an attribute finds a test here that fails until a snapshot keeps it, or it is declared
to follow from the rest or to be of the moment (``tests/fakes/ledger_dump.py``). That snapshots
keep what they should in whole histories is in tests/property/test_compaction_laws.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import msgspec
import pytest

from federator.model.data_placement import DataPlacement
from federator.model.data_use import DataPath
from federator.model.dataset import DataCopy, DataReplica, DataSet, ReplicaState
from federator.model.eligibility import Condition, Dependency, DependencyKind, Hold
from federator.model.event import (
    Awarded,
    Changed,
    DataPlanned,
    DataSetDropped,
    DataSetKept,
    LogRecord,
    Planned,
    QuotaLoan,
    SnapshotWorkload,
    Submitted,
    decode_event,
    encode_event,
)
from federator.model.lending import LendingPlan
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.plan import Shrink
from federator.model.quota_loan import LoanStep
from federator.model.reason import Reason, ReasonCode
from federator.model.score import Score
from federator.model.site import Leave
from federator.model.tenant import Tenancy
from federator.model.workload import FIRST_WORKLOAD_ID, AttemptId, SiteName, TenantName, WorkloadId
from federator.sched.state.backlog import Backlog
from federator.sched.state.bad_nodes import BadNodes
from federator.sched.state.catalogue import Catalogue
from federator.sched.state.corrections import Corrections
from federator.sched.state.data_moves import DataMoves
from federator.sched.state.durations import DurationModel
from federator.sched.state.failures import NodeFailures
from federator.sched.state.holdings import Holdings
from federator.sched.state.learned_durations import LearnedDurations
from federator.sched.state.ledger import Ledger
from federator.sched.state.moves import Moves
from federator.sched.state.outputs import Outputs
from federator.sched.state.preemption_cost import PreemptionTax
from federator.sched.state.promised_nodes import PromisedNodes
from federator.sched.state.recent_runs import RecentRuns
from federator.sched.state.save_times import SaveTimes
from federator.sched.state.scaling_curves import ScalingCurves
from federator.sched.state.snapshot import taken
from federator.sched.state.state_index import StateIndex
from federator.sched.state.submission_keys import SubmissionKeys
from federator.sched.state.usage import DecayedAverage, UsageAverage, WindowAverage
from federator.sched.state.workload_record import RareFields, WorkloadRecord
from tests.fakes.build import draft, gang, plan_on
from tests.fakes.ledger_dump import DERIVED, VOLATILE, attributes, dump

ALPINE, FIRST = SiteName("alpine"), FIRST_WORKLOAD_ID
FOLLOWS = {"workload": "kept once for all that share it", "charge": "from the plan"}
IN_AN_ENTRY = [
    field.name
    for cls in (WorkloadRecord, RareFields)
    for field in msgspec.structs.fields(cls)
    if field.name != "rare"
]
KEPT: dict[type, set[str]] = {  # by taken(), or made anew from what is
    Ledger: {
        "tenancy",
        "holdings",
        "backlog",
        "entries",
        "epoch",
        "log_began",
        "next_id",
        "array_tasks",
        "keys",
        "latest_s",
        "evictions",
        "failures",
        "saves",
        "scaling",
        "durations",
        "tax",
        "promised",
        "moves",
        "elastic",
        "claims",
        "planned",
        "loans",
        "data_moves",
        "drains",
        "catalogue",
        "outputs",
        "by_state",
        "_half_restored",
    },
    Catalogue: {"sets"},
    DataMoves: {"planned", "begun", "_last_s", "_bytes"},
    SubmissionKeys: {"id_of"},
    StateIndex: {"_ids"},
    PromisedNodes: {"shrinking"},
    Moves: {"places", "at_s"},
    Holdings: {"tenancy", "_usage", "_own", "_used", "_within", "_counted"},
    WindowAverage: {"_window_s", "_width_s", "_gpus", "_since_s", "_ring", "_bucket"},
    DecayedAverage: {"_half_life_s", "_gpus", "_since_s", "_average"},
    Backlog: {"tenancy", "_lanes", "_count"},
    NodeFailures: {"_seen"},
    SaveTimes: {"_seen"},
    ScalingCurves: {"_seen"},
    LearnedDurations: {"_model", "_kept_s"},
    DurationModel: {"recent", "_corrections", "_runs"},
    RecentRuns: {"_of_kind", "cut_offs", "longest_s"},
    Corrections: {"_parts", "_seen"},
    PreemptionTax: {"by_preemptor", "by_victim", "victims", "gpu_s"},
    BadNodes: {"_failed"},
    Outputs: {"_kept"},
}


def instances() -> list[object]:
    ledger = Ledger()
    return [
        ledger,
        ledger.keys,
        ledger.catalogue,
        ledger.data_moves,
        ledger.outputs,
        ledger.by_state,
        ledger.promised,
        ledger.moves,
        ledger.holdings,
        WindowAverage(1.0),
        DecayedAverage(1.0),
        ledger.backlog,
        ledger.failures,
        ledger.saves,
        ledger.scaling,
        ledger.durations,
        DurationModel(),
        RecentRuns(),
        Corrections(),
        ledger.tax,
        BadNodes(),
    ]


@pytest.mark.parametrize("part", instances(), ids=lambda part: type(part).__name__)
def test_every_attribute_of_the_ledger_is_in_the_snapshot_or_said_not_to_be(part: object) -> None:
    said = {name for cls, name in (*DERIVED, *VOLATILE) if cls is type(part)}
    assert set(attributes(part)) == KEPT[type(part)] | said


def test_every_field_of_an_entry_is_in_the_snapshot_or_said_not_to_be() -> None:
    volatile = {name for cls, name in VOLATILE if cls is WorkloadRecord}
    kept = {field.name for field in msgspec.structs.fields(SnapshotWorkload)}
    workload_has = {"id", "index", "optional"}
    assert set(IN_AN_ENTRY) == (kept - workload_has) | set(FOLLOWS) | volatile


def test_an_entry_is_restored_field_by_field_in_the_order_of_the_snapshot() -> None:
    in_snapshot = [field.name for field in msgspec.structs.fields(SnapshotWorkload)]
    alike = IN_AN_ENTRY[5:]
    assert alike == [name for name in in_snapshot if name in alike]


def award(id_: int, attempt: int = 1, at_s: float = 5.0, **more: Any) -> Awarded:
    return Awarded(
        at_s=at_s,
        attempt=AttemptId(workload=WorkloadId(id_), attempt=attempt),
        site="alpine",
        jobs=plan_on("n1", "n2"),
        within_quota=True,
        offers={"alpine": Score(locality_cost=2.0)},
        **more,
    )


def changed(id_: int, happening: WorkloadEvent, at_s: float = 6.0, **more: Any) -> Changed:
    return Changed(at_s=at_s, workload=WorkloadId(id_), happening=happening, attempt=1, **more)


def data_sets() -> list[DataSet]:
    """Of one name two versions, the second one added first."""
    replicas = tuple(
        DataReplica(domain=f"d{k}", path="c", digest="md5:0", pinned=bool(k)) for k in range(2)
    )
    named = [("wiki", "1"), ("c4", "2"), ("c4", "1")]
    return [
        DataSet(
            name=name, version=version, owner="ada", tenant=TenantName("lab"), replicas=replicas
        )
        for name, version in named
    ]


def being_moved() -> DataSet:
    """A plan has begun to copy it to another domain."""
    copy = DataCopy(by="", asked_at_s=99.8, planned=True, becomes_home=True)
    replica = DataReplica(domain="d9", path="m", state=ReplicaState.COPYING, copy=copy)
    return DataSet(
        name="moved",
        version="1",
        owner="ada",
        tenant=TenantName("vision"),
        size_bytes=9,
        replicas=(replica,),
        home="d1",
    )


def eventful(ledger: Ledger) -> Ledger:
    """Every part has learned something."""
    run = (WorkloadEvent.ACCEPTED, WorkloadEvent.STARTED)
    events: list[LogRecord] = [
        Submitted(at_s=1.0, draft=draft(gang(2), tenant="lab"), first_id=FIRST, key="a"),
        Submitted(
            at_s=2.0,
            draft=draft(gang(2), array_indices=(3, 7), optional=(7,)),
            first_id=WorkloadId(FIRST + 1),
            key="b",
        ),
        Submitted(
            at_s=3.0,
            draft=draft(gang(2), gang(1, 8, "more"), optional=(1,)),
            first_id=WorkloadId(FIRST + 3),
            key="c",
        ),
        award(FIRST),
        *(changed(FIRST, h, site_job_id=9, started_at_s=6.0) for h in run),
        award(FIRST + 1, victims=(FIRST,)),
        changed(FIRST + 1, WorkloadEvent.ACCEPTED),
        changed(FIRST, WorkloadEvent.EVICTED),
        changed(
            FIRST,
            WorkloadEvent.PREEMPTED,
            8.0,
            ended_at_s=7.5,
            leave=Leave(told_at_s=6.5, saved_at_s=7.0),
        ),
        *(DataSetKept(at_s=8.5, kept=kept) for kept in data_sets()),
        DataSetDropped(at_s=8.6, name="wiki", version="1"),
        award(FIRST + 3, data=(DataPath(name="c4", version="2", domain="d1", root="/", path="c"),)),
        *(changed(FIRST + 3, h, started_at_s=7.0) for h in run),
        award(FIRST + 2, shrinks=(Shrink(FIRST + 3, 1),)),
        changed(FIRST + 2, WorkloadEvent.ACCEPTED),
        changed(FIRST + 3, WorkloadEvent.SHRUNK, 9.0, components=(1,)),
        changed(FIRST + 1, WorkloadEvent.STARTED, 9.0, started_at_s=9.0),
        changed(
            FIRST + 1,
            WorkloadEvent.NODE_FAILED,
            99.0,
            failed_nodes=("n1",),
            ended_at_s=98.0,
            reason=Reason(code=ReasonCode.NODE_FAILED, detail="n1"),
        ),
        Planned(
            at_s=99.5, plan=LendingPlan(made_at_s=99.0, expires_at_s=999.0, windows_s=(300.0,))
        ),
        QuotaLoan(
            at_s=99.6, tenant=TenantName("vision"), step=LoanStep.LENT, used_frac=0.1, days=3
        ),
        DataPlanned(at_s=99.7, plan=DataPlacement(made_at_s=99.0, expires_at_s=999.0)),
        DataSetKept(at_s=99.8, kept=being_moved(), moved_to="d9"),
    ]
    for event in events:
        ledger.apply(event)
    return ledger


def restored(ledger: Ledger, into: Ledger) -> Ledger:
    for record in taken(ledger, 100.0):
        into.apply(decode_event(encode_event(record)))
    return into


AVERAGES: list[Callable[[], UsageAverage]] = [
    lambda: WindowAverage(3600.0),
    lambda: DecayedAverage(1800.0),
]


@pytest.mark.parametrize("average", AVERAGES)
def test_a_ledger_made_from_a_snapshot_knows_what_the_first_knew(
    average: Callable[[], UsageAverage],
) -> None:
    ledger = eventful(Ledger(usage=average()))
    assert dump(restored(ledger, Ledger(usage=average()))) == dump(ledger)


def test_an_entry_keeps_every_field_whatever_stands_in_it() -> None:
    ledger = eventful(Ledger())
    entry = ledger.entries[FIRST]
    for name in IN_AN_ENTRY:
        if name not in {*FOLLOWS, "refusals", "state", "award", "plan", "bad_nodes"}:
            setattr(entry, name, _other(getattr(entry, name), name))
    again = restored(ledger, Ledger()).entries[FIRST]
    entry.refusals, again.charge = {}, entry.charge
    assert again == entry


def _other(value: Any, name: str) -> Any:
    """Anything but the default."""
    samples: dict[str, Any] = {
        "reason": Reason(code=ReasonCode.LOST, needed=3),
        "promised_to": FIRST,
        "evicted_for": FIRST,
        "setbacks": {ALPINE: Reason(code=ReasonCode.LEASE_OVER)},
        "avoid_until_s": {ALPINE: inf},
        "failures_at": {ALPINE: 3},
        "plans_refused": {ALPINE: 2},
        "promised_jobs": {2: FIRST},
        "leaving_jobs": {3: FIRST, 1: FIRST},
        "taken_jobs": frozenset({1, 2}),
        "work_dir": "",
        "stints": ((2, 60.0),),
        "ran_before_at": (ALPINE,),
        "interruptions": ((60.0, ALPINE, "gpu", "a100"),),
        "stalls": 1,
        "hold": Hold.ADMIN,
        "waits_for": Dependency(
            conditions=(Condition(kind=DependencyKind.AFTER, job=FIRST, delay_s=60.0),), any_of=True
        ),
    }
    match value:
        case _ if name in samples:
            return samples[name]
        case bool():
            return not value
        case int() | float():
            return value + 3
        case str():
            return value + "x"
    raise AssertionError(f"{name}: say here what else may stand in it")


def test_the_catalogue_is_kept_with_its_order_its_use_and_what_was_used_last() -> None:
    ledger = eventful(Ledger())
    again = restored(ledger, Ledger()).catalogue
    newest = again.find("c4")
    assert newest is not None
    assert newest.version == "1"  # it was added last
    used = again.find("c4", "2")
    assert used is not None
    assert used.used_at_s == 5.0
    assert again.usage == ledger.catalogue.usage


def test_no_record_of_a_snapshot_is_large() -> None:
    ledger = Ledger()
    wanted = draft(array_indices=tuple(range(3_000)))
    ledger.apply(Submitted(at_s=1.0, draft=wanted, first_id=FIRST, key="a"))
    for k in range(3_000):
        ledger.apply(award(FIRST + k))
    assert max(len(encode_event(record)) for record in taken(ledger, 9.0)) < 64 << 10


def test_what_was_kept_of_one_average_is_near_enough_for_another() -> None:
    """An admin who sets another window starts with what is known, not with nothing."""
    hour_s = 3600.0
    for old, new in (
        (WindowAverage(24 * hour_s), WindowAverage(12 * hour_s)),
        (WindowAverage(24 * hour_s), DecayedAverage(4 * hour_s)),
        (DecayedAverage(4 * hour_s), WindowAverage(24 * hour_s)),
        (DecayedAverage(4 * hour_s), DecayedAverage(8 * hour_s)),
    ):
        began_s = 1_000_000.0
        old.change(0, 8.0, began_s)
        old.change(1, 4.0, began_s + 40 * hour_s)
        now_s = began_s + 48 * hour_s
        old.change(0, -2.0, now_s)
        ledger = Ledger(usage=old)
        for name in ("lab", "guest"):
            ledger.tenancy.row(name)  # type: ignore[arg-type]
        for record in ledger.holdings.saved_usage(now_s):
            new.restore(record, range(len(record.tenants)))
        known, kept = old.averages(2, now_s), new.averages(2, now_s)
        assert kept[0] == pytest.approx(known[0], rel=0.02)
        assert 0.0 < kept[1] <= 4.0
        assert new.averages(2, now_s + 1e9)[:2] == pytest.approx([6.0, 4.0], rel=0.01)


def test_use_agrees_with_what_runs_when_gpu_weights_were_set_anew() -> None:
    """Or else what was charged at the old weight would never be given back at the new one."""
    ledger = Ledger(usage=DecayedAverage(100.0))
    ledger.apply(Submitted(at_s=1.0, draft=draft(gang(2)), first_id=FIRST, key="a"))
    plans = tuple(replace(plan, gpu_types={"h100": 16}) for plan in plan_on("n1", "n2"))
    ledger.apply(msgspec.structs.replace(award(FIRST), jobs=plans))
    for happening in (WorkloadEvent.ACCEPTED, WorkloadEvent.STARTED):
        ledger.apply(changed(FIRST, happening))
    new = restored(ledger, Ledger(Tenancy(gpu_weights={"h100": 3.0}), DecayedAverage(100.0)))
    new.apply(changed(FIRST, WorkloadEvent.COMPLETED, 200.0))
    assert new.entries[FIRST].state is WorkloadState.COMPLETED
    assert new.holdings.averages(1e6)[0] == pytest.approx(0.0)
