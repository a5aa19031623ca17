"""The model that checks the promises: it sees what Slurm ran and what clients were answered.

It never asks the daemon what it believes, but at the very end, when that is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

from federator.faults.cluster import CodeRun
from federator.model.event import Awarded, Changed, Submitted, decode_event
from federator.model.lifecycle import TERMINAL, TRANSITIONS, WorkloadEvent, WorkloadState
from federator.model.site import Node, SiteJobState
from federator.model.workload import AttemptId, Job, WorkloadId
from federator.sched.state.ledger import Ledger

CANCELS_WITHIN_S: Final = 15.0  # once nothing fails any more
_BY_ITSELF: Final = (SiteJobState.COMPLETED, SiteJobState.TIMEOUT)


class Broken(AssertionError):
    """A promise was broken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """A job array, as its record in the log says."""

    id: WorkloadId
    indices: tuple[int, ...]
    max_running: int  # 0: no throttle

    @property
    def tasks(self) -> dict[WorkloadId, int]:
        """Index by workload."""
        return {WorkloadId(self.id + k): index for k, index in enumerate(self.indices)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A number of nodes with GPUs, and of all nodes: of a site, or that a workload needs."""

    with_gpus: int
    nodes: int

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> Size:
        return cls(with_gpus=sum(node.gpus > 0 for node in nodes), nodes=len(nodes))

    @classmethod
    def needed(cls, jobs: Sequence[Job]) -> Size:
        """Each job has nodes of its own."""
        asked = [(job.nodes or 1, job.total_gpus > 0) for job in jobs]
        return cls(with_gpus=sum(n for n, gpus in asked if gpus), nodes=sum(n for n, _ in asked))

    def holds(self, other: Size) -> bool:
        return self.with_gpus >= other.with_gpus and self.nodes >= other.nodes


@dataclass(slots=True, eq=False)
class Truth:
    """The true history of one workload."""

    runs: list[CodeRun] = field(default_factory=list)
    acked: str = ""  # the key under which its client knows it
    cancel_asked: bool = False
    cancel_acked: bool = False
    cancel_acked_at_s: float = inf
    state: WorkloadState = WorkloadState.PENDING  # by the log
    last_attempt: int = 0  # by the log
    attempt_at_cancel: int = 0
    ended_outside: bool = False  # somebody ended a job of its in Slurm, or a gate did
    maimed: bool = False  # somebody ended a component of a het job of its in Slurm
    needs: Size | None = None
    refused_at: set[str] = field(default_factory=set)  # sites whose sbatch refused it for good
    unrecorded: set[AttemptId] = field(default_factory=set)  # attempts Slurm knows no more
    renamed: set[AttemptId] = field(default_factory=set)  # their jobs only their users may end

    @property
    def completed(self) -> bool:
        """Its user code ended well, of its own accord."""
        return any(
            r.ended is SiteJobState.COMPLETED and not r.exit_code and not r.notified
            for r in self.runs
        )


class Model:
    """Checks promises as things happen, and all of them at the end.

    Args:
        tell: notes what happened, for the story.
        clock: true time.
        gpu_limits: GPUs that these users may hold together, at all sites.
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        clock: Callable[[], float],
        gpu_limits: Mapping[frozenset[str], float],
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._gpu_limits = gpu_limits
        self._live: list[CodeRun] = []
        self.faults_stopped_at_s = inf  # from when on nothing fails any more
        self.truths: dict[WorkloadId, Truth] = {}
        self.id_of_key: dict[str, int] = {}
        self.arrays: dict[WorkloadId, Array] = {}  # by their tasks
        self.submissions: Counter[AttemptId] = Counter()
        self.sizes: dict[str, Size] = {}  # of the sites
        self.may_double: set[AttemptId] = set()  # its sbatch went beyond what Slurm can do
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []

    def truth(self, id_: WorkloadId) -> Truth:
        return self.truths.setdefault(id_, Truth())

    def break_(self, what: str) -> None:
        """Note a broken promise."""
        self.broken.append(what)
        self._tell(f"BROKEN: {what}")

    # ---- what Slurm does (a ``Witness``) ----

    def submitted(self, site: str, attempt: AttemptId, job_id: int) -> None:
        self._tell(f"{site}: sbatch of {attempt} is job {job_id}")
        self.submissions[attempt] += 1
        self.counts["sbatch"] += 1
        if self.submissions[attempt] > 1 and attempt not in self.may_double:
            self.break_(f"{attempt} was submitted twice")

    def misplaced(self, site: str, attempt: AttemptId) -> None:
        """Components of a het job are pinned to the same node, which Slurm does not take."""
        self.break_(f"{attempt} has two components on one node of {site}")

    def is_task(self, attempt: AttemptId, array_index: int | None) -> None:
        """A site is told that the attempt is of this task of an array, or of none."""
        array = self.arrays.get(attempt.workload)
        known = array.tasks[attempt.workload] if array is not None else None
        if array_index != known:
            self.break_(
                f"{attempt} is task {known} of its array, and was submitted as {array_index}"
            )

    def began(self, run: CodeRun) -> None:
        id_ = run.attempt.workload
        truth = self.truth(id_)
        self._tell(f"{run.site}: {run.attempt} runs as job {run.job_id}")
        self.counts["starts"] += 1
        for other in truth.runs:
            if other.ended is None:
                self.break_(
                    f"{id_} runs twice: job {other.job_id} at {other.site}, "
                    f"job {run.job_id} at {run.site}"
                )
        if truth.completed:
            self.break_(f"{id_} has completed, and runs again at {run.site}")
        if truth.cancel_acked and run.attempt.attempt > truth.attempt_at_cancel:
            self.break_(f"{id_} was cancelled, and {run.attempt} runs at {run.site}")
        truth.runs.append(run)
        self._live.append(run)
        self._check_limits()
        self._check_throttle(id_)

    def _check_limits(self) -> None:
        for users, limit in self._gpu_limits.items():
            gpus = sum(
                run.gpus
                for run in self._live
                if run.user in users
                and run.attempt not in self.truth(run.attempt.workload).unrecorded
            )
            if gpus > limit:
                self.break_(f"{', '.join(sorted(users))} use {gpus} GPUs, and may use {limit:g}")

    def _check_throttle(self, id_: WorkloadId) -> None:
        array = self.arrays.get(id_)
        if array is None or not array.max_running:
            return
        running = {
            run.attempt.workload
            for run in self._live
            if self.arrays.get(run.attempt.workload) is array
            and run.attempt not in self.truth(run.attempt.workload).unrecorded
        }
        if len(running) > array.max_running:
            self.break_(
                f"{len(running)} tasks of array {array.id} run, and {array.max_running} may"
            )

    def ended(self, run: CodeRun) -> None:
        state = run.ended.value if run.ended is not None else ""
        self._tell(f"{run.site}: {run.attempt} ends: {state} {run.exit_code}")
        self._live.remove(run)
        truth = self.truth(run.attempt.workload)
        since_s = self._clock() - max(truth.cancel_acked_at_s, self.faults_stopped_at_s)
        excused = truth.unrecorded or run.attempt in truth.renamed
        if run.ended in _BY_ITSELF and since_s > CANCELS_WITHIN_S and not excused:
            self.break_(f"{run.attempt.workload} was cancelled, and ran on for {since_s:.0f} s")

    def stopped(self, site: str, attempt: AttemptId, job_id: int) -> None:
        """The gate did not let it start."""
        self._tell(f"{site}: the gate stops {attempt}, job {job_id}")
        self.counts["stopped by a gate"] += 1
        self.truth(attempt.workload).ended_outside = True

    def unrecorded(self, attempt: AttemptId) -> None:
        """Slurm knows a job of the attempt no more."""
        self.truth(attempt.workload).unrecorded.add(attempt)

    def renamed(self, attempt: AttemptId) -> None:
        """A job of the attempt has another comment now."""
        self.truth(attempt.workload).renamed.add(attempt)

    def beyond(self, attempt: AttemptId) -> None:
        """Its sbatch does what Slurm's helper promises cannot be; its gate must stop it."""
        self.may_double.add(attempt)

    def refused(self, site: str, attempt: AttemptId) -> None:
        """Its sbatch refused the submission itself."""
        self._tell(f"{site}: sbatch refuses {attempt} for good")
        self.truth(attempt.workload).refused_at.add(site)

    def befell(self, what: str) -> None:
        """A fault strikes."""
        self._tell(what)

    # ---- what clients are told ----

    def acknowledged(self, key: str, id_: int) -> None:
        self._tell(f"client {key}: it is {id_}")
        self.counts["acknowledged submissions"] += 1
        known = self.id_of_key.setdefault(key, id_)
        if known != id_:
            self.break_(f"key {key} was {known}, and is {id_} now")
        self.truth(WorkloadId(id_)).acked = key

    def key_reused(self, key: str, id_: int) -> None:
        """Another submission with the same key was taken for the first one."""
        self.break_(f"key {key} of {self.id_of_key[key]} was used again, and answered with {id_}")

    def cancel_asked(self, id_: int) -> None:
        """A client wants it to end; it may not learn that it was heard."""
        self.truth(WorkloadId(id_)).cancel_asked = True

    def cancelled(self, ids: Iterable[int]) -> None:
        for id_ in ids:
            truth = self.truth(WorkloadId(id_))
            self._tell(f"client: {id_} is cancelled")
            self.counts["acknowledged cancels"] += 1
            if not truth.cancel_acked:
                truth.cancel_acked, truth.attempt_at_cancel = True, truth.last_attempt
                truth.cancel_acked_at_s = self._clock()

    # ---- what the log holds ----

    def logged(self, records: Sequence[bytes]) -> None:
        """These are durable now."""
        for record in records:
            event = decode_event(record)
            if isinstance(event, Awarded):
                self.truth(event.attempt.workload).last_attempt = event.attempt.attempt
                self._moves(event.attempt.workload, WorkloadEvent.AWARDED)
                self._tell(f"log: {event.attempt} awarded to {event.site}")
            elif isinstance(event, Changed):
                self._moves(event.workload, event.happening)
                self._tell(f"log: {event.workload} {event.happening.value}")
                if event.happening is WorkloadEvent.HELD:
                    self._held(event.workload)
            elif isinstance(event, Submitted):
                self._submitted(event)

    def _submitted(self, event: Submitted) -> None:
        self._tell(f"log: submitted {event.first_id}")
        self.counts["het jobs"] += len(event.draft.jobs) > 1
        for workload in event.workloads():
            self.truth(workload.id).needs = Size.needed(workload.jobs)
        if event.draft.array_indices:
            self.counts["arrays"] += 1
            array = Array(
                id=event.first_id,
                indices=event.draft.array_indices,
                max_running=event.draft.array_max_running,
            )
            self.arrays |= dict.fromkeys(array.tasks, array)

    def _held(self, id_: WorkloadId) -> None:
        self.counts["held"] += 1
        truth = self.truth(id_)
        for site, size in self.sizes.items():
            fits = truth.needs is None or size.holds(truth.needs)
            if fits and site not in truth.refused_at:
                self.break_(f"{id_} is held, and {site} has not refused it")

    def _moves(self, id_: WorkloadId, event: WorkloadEvent) -> None:
        truth = self.truth(id_)
        if truth.state in TERMINAL:
            self.break_(f"{id_} has ended, {truth.state.value}, and is {event.value}")
        elif (truth.state, event) in TRANSITIONS:
            truth.state = TRANSITIONS[truth.state, event].to

    def check_acknowledged(self, ledger: Ledger) -> None:
        """After a start from the log: whatever was acknowledged is known, under the same key."""
        for key, id_ in self.id_of_key.items():
            array = self.arrays.get(WorkloadId(id_))
            ids = array.tasks if array is not None else (WorkloadId(id_),)
            if ledger.id_of_key.get(key) != id_ or not all(i in ledger.entries for i in ids):
                self.break_(f"key {key} was acknowledged as {id_}, and is lost")

    # ---- at the end ----

    def check_end(self, ledger: Ledger) -> None:
        """Everything has ended, once, as Slurm and clients know it."""
        self.check_acknowledged(ledger)
        for id_, entry in ledger.entries.items():
            if entry.state not in TERMINAL:
                self.break_(f"{id_} never ended: {entry.state.value}")
                continue
            truth = self.truth(id_)
            if truth.maimed and entry.state is WorkloadState.CANCELLED:
                continue  # of components' ends the worst counts
            wrong = _disagreement(entry.state, truth)
            if wrong:
                self.break_(f"{id_} is {entry.state.value}, but {wrong}")
        for id_, truth in self.truths.items():
            if any(run.ended is None for run in truth.runs):
                self.break_(f"{id_} still runs")
        check_holdings(ledger, self.break_)


def _disagreement(state: WorkloadState, truth: Truth) -> str:
    """The evidence against this end; "" if there is none."""
    last = truth.runs[-1] if truth.runs else None
    lost = bool(truth.unrecorded)
    if truth.completed and state is not WorkloadState.COMPLETED and not lost:
        return "its user code completed"
    ended_well = any(r.ended is SiteJobState.COMPLETED and not r.exit_code for r in truth.runs)
    if state is WorkloadState.COMPLETED and not ended_well:
        return "its user code never completed"
    if state is WorkloadState.CANCELLED and not (truth.cancel_asked or truth.ended_outside):
        return "nobody cancelled it"
    how = last.ended if last is not None else None
    if state is WorkloadState.FAILED and how is not SiteJobState.FAILED and not lost:
        return f"its last run ended {how.value if how else 'never'}"
    if state is WorkloadState.TIMEOUT and how is not SiteJobState.TIMEOUT:
        return f"its last run ended {how.value if how else 'never'}"
    return ""


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
    for name in ("epoch", "log_began", "next_id", "id_of_key", "array_tasks", "shrinking"):
        if getattr(one, name) != getattr(other, name):
            found[name] = f"{getattr(one, name)} against {getattr(other, name)}"
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
