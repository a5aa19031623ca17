"""Laws of dependencies, for random DAGs: what starts when, against a naive reading of sbatch(1).

The naive one knows no index, counts nothing and keeps only the conditions that it has seen met or
failed: it looks at every job after every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.model.eligibility import Condition, Dependency, DependencyKind, Hold
from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadState
from federator.model.message import ControlVerb
from federator.model.site import SiteJobState
from federator.model.workload import WorkloadId
from federator.sched.state.workload_record import WorkloadRecord
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

K = DependencyKind
NAMES = ("a", "b")
KINDS = [kind for kind in K if kind is not K.SINGLETON]


@dataclass(frozen=True)
class Asked:
    """One submission: the numbers of earlier ones that it depends on."""

    kinds: tuple[tuple[DependencyKind, int, int], ...]  # and a task, of an array; -1: all
    any_of: bool = False
    kill: bool = False
    singleton: bool = False
    tasks: int = 0
    held: bool = False
    name: str = "a"


@st.composite
def dags(draw: st.DrawFn) -> list[Asked]:
    found: list[Asked] = []
    for k in range(draw(st.integers(2, 9))):
        edges = st.tuples(st.sampled_from(KINDS), st.integers(0, k - 1), st.integers(-1, 1))
        found.append(
            Asked(
                kinds=tuple(draw(st.lists(edges, max_size=3))) if k else (),
                any_of=draw(st.booleans()),
                kill=draw(st.integers(0, 3)) == 0,
                singleton=draw(st.integers(0, 3)) == 0,
                tasks=draw(st.sampled_from([0, 0, 2, 3])),
                held=draw(st.integers(0, 5)) == 0,
                name=draw(st.sampled_from(NAMES)),
            )
        )
    return found


@dataclass
class Naive:
    """What each workload still waits for, by the words of the manual."""

    f: Loopback
    left: dict[WorkloadId, tuple[Dependency, set[Condition], set[Condition]]] = field(
        default_factory=dict
    )

    def submitted(self, waits_for: Dependency, ids: list[WorkloadId]) -> None:
        self.left |= {id_: (waits_for, set(), set()) for id_ in ids}

    def look(self) -> None:
        """Note what has become met, or failed, by now; jobs that are cancelled make others fail."""
        for _ in self.left:
            for id_, (waits_for, met, failed) in self.left.items():
                entry = self.f.entry(id_)
                if self.is_free(id_):
                    continue
                for condition in waits_for.conditions:
                    verdict = self._verdict(condition, entry)
                    if verdict is not None and condition not in met | failed:
                        (met if verdict else failed).add(condition)

    def is_free(self, id_: WorkloadId) -> bool:
        waits_for, met, _ = self.left[id_]
        needed = set(waits_for.conditions)
        return bool(needed & met) if waits_for.any_of and needed else needed <= met

    def never(self, id_: WorkloadId) -> bool:
        waits_for, _, failed = self.left[id_]
        needed = set(waits_for.conditions)
        return bool(needed) and (needed <= failed if waits_for.any_of else bool(needed & failed))

    def _verdict(self, condition: Condition, entry: WorkloadRecord) -> bool | None:
        """Whether it is met (True), never will be (False), or neither yet."""
        ledger = self.f.federation.ledger
        if condition.kind is K.SINGLETON:
            own = entry.workload.array
            own_tasks = ledger.array_tasks[own.array_id].values() if own is not None else ()
            others = [e for e in ledger.entries.values() if e.workload.id not in own_tasks]
            alike = [e for e in others if e.workload.name == entry.workload.name and e is not entry]
            earlier = [e for e in alike if e.workload.id < entry.workload.id]
            blocked = any(e.state not in TERMINAL for e in earlier)
            left_s = entry.eligible_at_s or inf  # those that came later did not stand in its way
            there = [e.award for e in alike if e.state in AT_SITE and e.award is not None]
            return None if blocked or any(award.at_s < left_s for award in there) else True
        tasks = ledger.array_tasks.get(condition.job)
        jobs = [ledger.entries[condition.job]] if tasks is None else None
        if tasks is not None and condition.task is not None:
            jobs = [ledger.entries[tasks[condition.task]]]
        own = entry.workload.array
        if (
            tasks is not None
            and jobs is None
            and condition.kind is K.AFTER_CORR
            and own is not None
        ):
            jobs = [ledger.entries[tasks[own.index]]] if own.index in tasks else None
        if jobs is None and tasks is not None:
            jobs = [ledger.entries[id_] for id_ in tasks.values()]
        assert jobs
        if condition.kind is K.AFTER:
            started = all(
                e.ran_at or e.state in TERMINAL or e.state is WorkloadState.RUNNING for e in jobs
            )
            return True if started else None
        if any(e.state not in TERMINAL for e in jobs):
            return None
        completed = all(e.state is WorkloadState.COMPLETED for e in jobs)
        if condition.kind is K.AFTER_ANY:
            return True
        return completed is not (condition.kind is K.AFTER_NOT_OK)


def _submit(f: Loopback, naive: Naive, asked: Asked, ids: list[list[WorkloadId]]) -> None:
    conditions: dict[Condition, None] = {}
    for kind, at, task in asked.kinds:
        is_array = len(ids[at]) > 1
        condition = Condition(
            kind=kind, job=ids[at][0], task=task if is_array and task >= 0 else None
        )
        conditions[condition] = None
    if asked.singleton:
        conditions[Condition(kind=K.SINGLETON)] = None
    waits_for = Dependency(conditions=tuple(conditions), any_of=asked.any_of, kill=asked.kill)
    first = f.submit(
        draft(
            gang(1, gpus_per_node=1),
            waits_for=waits_for,
            array_indices=tuple(range(asked.tasks)),
            hold=Hold.USER if asked.held else Hold.NONE,
            name=asked.name,
        )
    )
    ids.append([WorkloadId(first + k) for k in range(max(asked.tasks, 1))])
    naive.submitted(waits_for, ids[-1])
    naive.look()
    _run(f, naive)


def _run(f: Loopback, naive: Naive) -> None:
    for _ in range(12):
        f.run_for(1.0)
        naive.look()


def _check(f: Loopback, naive: Naive) -> None:
    for id_, (waits_for, _, _) in naive.left.items():
        entry = f.entry(id_)
        if entry.state is WorkloadState.INELIGIBLE:
            assert entry.hold is not Hold.NONE or not naive.is_free(id_), f"{id_} may start"
            assert entry.waits_for.never is naive.never(id_) or naive.is_free(id_)
            assert not (naive.never(id_) and waits_for.kill), f"{id_} should be cancelled"
        elif entry.ran_at:
            assert naive.is_free(id_), f"{id_} has started too early"


@settings(max_examples=60, deadline=None)
@given(dags(), st.data())
def test_jobs_start_and_end_in_the_order_that_their_dependencies_allow(
    asked: list[Asked], data: st.DataObject
) -> None:
    f = Loopback({"alpine": rack("a", 3), "baker": rack("b", 3)})
    naive, ids = Naive(f), list[list[WorkloadId]]()
    submitted = 0
    for _ in range(4 * len(asked)):
        ledger = f.federation.ledger
        running = list(ledger.in_state(WorkloadState.RUNNING))
        acts = ["submit"] * (submitted < len(asked)) + ["end"] * bool(running) * 3
        acts += ["cancel", "release", "restart", "compact"] if ids else []
        act = data.draw(st.sampled_from(acts))
        live = [id_ for group in ids for id_ in group if f.state(id_) not in TERMINAL]
        if act == "submit":
            _submit(f, naive, asked[submitted], ids)
            submitted += 1
        elif act == "end":
            entry = data.draw(st.sampled_from(running))
            ending = data.draw(
                st.sampled_from(
                    [SiteJobState.COMPLETED, SiteJobState.FAILED, SiteJobState.NODE_FAIL]
                )
            )
            f.slurm(entry.site).end(entry.attempt_id, ending)
        elif act == "cancel" and live:
            f.cancel(data.draw(st.sampled_from(live)))
        elif act == "release" and live:
            f.control(ControlVerb.RELEASE, data.draw(st.sampled_from(live)))
        elif act == "restart":
            f.restart()
        elif act == "compact":
            f.compact()
        naive.look()
        _run(f, naive)
        _check(f, naive)
