"""The core of an agent with one attempt, a disk that outlives it, and a Slurm that may lie.

Everything that can happen next has a name, so that tests can try every order of happenings: each
effect that is under way may be done, fail, or be done while its answer is lost; sbatch may land
late; the agent may die after any effect and come back with what is on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf
from typing import Any, Final

import msgspec

from federator.agent.base import CheckpointStatus, Holder, SubmittedJob, Sweep
from federator.agent.core import AgentCore
from federator.agent.effects import (
    AgentEffect,
    AskAccounts,
    AskKillWait,
    Failure,
    FindBoundJob,
    Inspect,
    KeepOrder,
    Kill,
    Leased,
    MakeSweep,
    NoteEndings,
    Notify,
    OpenLease,
    ReadFolders,
    Release,
    Sbatch,
    Scancel,
    Send,
    SendRemembered,
    SettleLeases,
    Terminate,
    WakeAt,
    WriteMark,
)
from federator.agent.journal import JournalMark, MarkIndex
from federator.agent.observations import (
    AgentObservation,
    Done,
    NotDone,
    Now,
    Ordered,
    Started,
    Woken,
)
from federator.model.reason import ReasonCode
from federator.model.site import AttemptReport, NodeShare, SiteJobState
from federator.model.site_message import AttemptAbsent, CancelOrder, LaunchAccepted, LaunchDeclined
from federator.model.tagged import Message
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import (
    PROTOCOL_VERSION,
    LaunchOrder,
    PreemptOrder,
    RecoverAsk,
    Welcome,
)
from tests.fakes.build import attempt, plan_on, rack, submission

ATTEMPT: Final = attempt()
JOB_ID: Final = 101
SBATCH_LANDS_WITHIN_S: Final = 42.0  # as ``slurm.site_exec`` sees to it
GRACE_S: Final = 60.0
WELCOME: Final = Welcome(
    protocol=PROTOCOL_VERSION, epoch=1, site="alpine", partitions=("gpu",), poll_interval_s=10.0
)
LAUNCH: Final = LaunchOrder(
    attempt=ATTEMPT,
    user="ada",
    tenant="vision",
    name="train",
    submission=submission(),
    jobs=plan_on("a1"),
    time_limit_s=3600.0,
)
ORDERS: Final[Mapping[str, Message]] = {
    "launch": LAUNCH,
    "cancel": CancelOrder(attempt=ATTEMPT, user="ada"),
    "withdraw": CancelOrder(attempt=ATTEMPT, user="ada", pending_only=True),
    "preempt": PreemptOrder(
        attempt=ATTEMPT, user="ada", site_job_id=JOB_ID, grace_s=GRACE_S, checkpoint_dir="/c"
    ),
    "recover": RecoverAsk(ask_id=1, attempts=(ATTEMPT,)),
}


class Died(Exception):
    """The agent was killed between two effects."""


@dataclass
class OneJob:
    """What Slurm knows of a job of the attempt."""

    job_id: int
    state: SiteJobState = SiteJobState.PENDING
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    shown: bool = True  # by squeue


@dataclass
class OneAttempt:
    """A site, and whatever agent it has.

    Args:
        record: whether to keep the story: what each agent observed, and what it decided.
    """

    accounts: bool = True  # there is a slurmdbd
    record: bool = False
    jobs: list[OneJob] = field(default_factory=list)
    leased: bool = False
    starts: int = 0
    said: list[Message] = field(default_factory=list)
    under_way: list[AgentEffect] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)  # until when sbatches may still land
    journal: list[tuple[AttemptId, JournalMark]] = field(default_factory=list)
    endings: dict[AttemptId, AttemptReport] = field(default_factory=dict)
    story: list[tuple[Now, AgentObservation, list[AgentEffect]]] = field(default_factory=list)
    now_s: float = 1_000.0
    dies_after: int = -1  # effects of the next decision; -1: it lives
    wake_at_s: float = inf
    lost_start: bool = False  # a promise was broken: see ``broken``
    lives: int = 0

    def __post_init__(self) -> None:
        self._begin()

    # ---- the agent's life ----

    def _begin(self) -> None:
        """An agent comes; what an earlier one asked for is answered to nobody."""
        for effect in self.under_way:
            if isinstance(effect, Sbatch):
                self.late_s.append(self.now_s + SBATCH_LANDS_WITHIN_S)
        self.under_way, self.wake_at_s, self.dies_after = [], inf, -1
        self.lives += 1
        index = MarkIndex()
        for each, mark in self.journal:
            index.remember(each, mark)
        self.durable = 0
        self.core = AgentCore("alpine", index, self.endings, self._now(), WELCOME)
        self.observe(Started())

    def _now(self) -> Now:
        return Now(self.now_s, self.now_s)

    def observe(self, observation: AgentObservation) -> None:
        """Tell the core, and begin what it decides; it may die in the middle."""
        effects = self.core.handle(observation, self._now())
        if self.record:
            self.story.append((self._now(), observation, effects))
        try:
            for done, effect in enumerate(effects):
                if done == self.dies_after:
                    raise Died
                self._carry_out(effect)
            if self.dies_after >= len(effects):
                raise Died
        except Died:
            self._begin()

    def _carry_out(self, effect: AgentEffect) -> None:
        assert effect.after <= self.durable, "it was begun before what it relies on was durable"
        match effect:
            case WriteMark():
                self.journal.append((effect.attempt, effect.mark))
                self.durable = effect.number
            case NoteEndings():
                self.endings.update({r.attempt: r for r in effect.reports if r.state.ended})
            case Send():
                self._hear(effect.message)
            case WakeAt():
                self.wake_at_s = effect.at_s
            case KeepOrder() | SendRemembered():
                pass
            case Sbatch():
                assert not any(isinstance(e, Sbatch) for e in self.under_way)
                self.under_way.append(effect)
            case _:
                self.under_way.append(effect)

    def _hear(self, message: Message) -> None:
        self.said.append(message)
        if isinstance(message, LaunchDeclined | AttemptAbsent) and (
            self._may_start() or self.starts
        ):
            self.lost_start = True

    def _may_start(self) -> bool:
        return self.leased and any(job.state is SiteJobState.PENDING for job in self.jobs)

    @property
    def given_up(self) -> bool:
        return any(isinstance(m, LaunchDeclined | AttemptAbsent) for m in self.said)

    # ---- what may happen ----

    def options(self) -> dict[str, Callable[[], None]]:
        """Everything that can happen now, by name."""
        found: dict[str, Callable[[], None]] = {
            name: partial(self.observe, Ordered(message=ORDERS[name])) for name in ORDERS
        }
        if self.dies_after < 0:
            found |= {f"die after {n}": partial(self._die_after, n) for n in range(3)}
        for effect in self.under_way:
            for how, act in self._ways(effect).items():
                found.setdefault(f"{type(effect).__name__}: {how}", act)
        return found | self._steps_of_the_job()

    def _steps_of_the_job(self) -> dict[str, Callable[[], None]]:
        found: dict[str, Callable[[], None]] = {}
        if self.late_s:
            found["a late sbatch lands"] = self._land
        if self.wake_at_s < inf:
            found["time passes"] = self._pass_time
        if self.jobs:
            job = self.jobs[-1]
            if job.state is SiteJobState.PENDING:
                found["the job starts"] = self._start
            if not job.state.ended:
                found["the job ends"] = self._end
            elif job.shown:
                found["Slurm forgets the job"] = self._forget
        return found

    def _die_after(self, effects: int) -> None:
        self.dies_after = effects

    def _ways(self, effect: AgentEffect) -> dict[str, Callable[[], None]]:
        """How an effect that is under way may end."""
        if isinstance(effect, Sbatch):
            return self._ways_of_sbatch(effect)
        value = self._values[type(effect)]

        def done() -> None:
            self._answer(effect, value(effect))

        def unheard() -> None:
            value(effect)
            fails()

        def fails() -> None:
            self._answer(effect, Failure(detail="no answer"))

        if isinstance(effect, ReadFolders) and effect.lane == "graces":
            saved = (CheckpointStatus(acked_at_s=self.now_s, checkpointed_at_s=self.now_s),)
            return {"done": done, "saved": lambda: self._answer(effect, saved), "fails": fails}
        if isinstance(effect, _NEVER_FAIL):
            return {"done": done}
        if isinstance(effect, OpenLease | Scancel | Release):
            return {"done": done, "fails": fails, "unheard": unheard}
        return {"done": done, "fails": fails}

    def _ways_of_sbatch(self, effect: Sbatch) -> dict[str, Callable[[], None]]:
        def ends(value: object, act: Callable[[], None] = lambda: None) -> Callable[[], None]:
            def end() -> None:
                act()
                self._answer(effect, value)

            return end

        lost = Failure(detail="no answer")
        return {
            "done": ends(SubmittedJob(JOB_ID), self._submit),
            "refused": ends(Failure(detail="no", refused=ReasonCode.LAUNCH_REFUSED)),
            "never": ends(lost),
            "unheard": ends(lost, self._submit),
            "late": ends(lost, self._submit_late),
        }

    @cached_property
    def _values(self) -> Mapping[type[AgentEffect], Callable[[Any], object]]:
        """What each does, and answers."""
        return {
            MakeSweep: lambda _: self._sweep(),
            SettleLeases: lambda _: self._settle_leases(),
            OpenLease: lambda _: self._lease(),
            FindBoundJob: lambda _: self.jobs[-1].job_id if self.starts else 0,
            Release: lambda _: self._release(),
            AskAccounts: lambda _: self._accounted(),
            Scancel: self._cancel,
            Kill: lambda _: self._end_job(),
            Terminate: lambda _: None,
            Notify: lambda _: None,
            AskKillWait: lambda _: 5.0,
            ReadFolders: lambda effect: (CheckpointStatus(),) * len(effect.orders),
            Inspect: lambda effect: ("",) * len(effect.attempts),
        }

    def _answer(self, effect: AgentEffect, value: object) -> None:
        self.under_way.remove(effect)
        if isinstance(value, Failure):
            self.observe(NotDone(effect=effect, failure=value))
        else:
            self.observe(Done(effect=effect, value=value))

    def _pass_time(self) -> None:
        self.now_s = max(self.now_s, self.wake_at_s)
        self.late_s = [until_s for until_s in self.late_s if until_s > self.now_s]
        self.wake_at_s = inf
        self.observe(Woken())

    def first_sweep(self) -> None:
        """What every agent begins with."""
        while self.under_way:
            self._ways(self.under_way[0])["done"]()

    def settle_down(
        self, turns: int = 2_000, for_s: float = 300.0, settled: dict[bytes, float] | None = None
    ) -> None:
        """Nothing bad happens any more: whatever is under way is done, and time passes.

        Args:
            turns: the most things that are done.
            for_s: for how long.
            settled: the states from which this site has settled already and broke no promise, and
                until when (seconds); it stops at one of these. Those that it passes are added,
                unless a promise is broken.
        """
        self.dies_after = -1
        until_s = self.now_s + for_s
        passed: list[bytes] = []
        for _ in range(turns):
            if settled is not None:
                passed.append(self.fingerprint())
                if settled.get(passed[-1], -inf) >= until_s:
                    break
            if self.under_way:
                ways = self._ways(self.under_way[0])
                ways["done"]()
            elif self.now_s < until_s and self.wake_at_s < inf:
                self._pass_time()
            else:
                break
        if settled is not None and not self.broken:
            settled.update(dict.fromkeys(passed, until_s))

    # ---- Slurm and the spool ----

    def _sweep(self) -> Sweep:
        known = [job for job in self.jobs if job.shown]
        node, rest = rack("a", 2)
        runs = [job for job in known if job.state is SiteJobState.RUNNING]
        share = NodeShare(gpus=8, cpus=1, mem_mib=0)
        if runs:
            node = replace(node, gpus_alloc=8, cpus_alloc=1)
        return Sweep(
            nodes=(node, rest),
            attempts=tuple(map(self._report, known)),
            holders=tuple(
                Holder(job_id=job.job_id, nodes={"a1": share}, ends_by_s=9_999.0, attempt=ATTEMPT)
                for job in runs
            ),
        )

    def _report(self, job: OneJob) -> AttemptReport:
        return AttemptReport(
            attempt=ATTEMPT,
            user="ada",
            site_job_id=job.job_id,
            state=job.state,
            started_at_s=job.started_at_s,
            ended_at_s=job.ended_at_s,
            nodes=("a1",) if job.started_at_s else (),
        )

    def _accounted(self) -> tuple[AttemptReport, ...]:
        return tuple(map(self._report, self.jobs[-1:])) if self.accounts else ()

    def _lease(self) -> Leased:
        self.leased = True
        return Leased(token="t", start_line="")

    def _release(self) -> bool:
        self.leased = False
        return True

    def _settle_leases(self) -> str:
        """As ``Spool.settle`` does it: by how the attempt stands now."""
        memory = self.core.memory
        if self.leased and memory.is_over(ATTEMPT):
            self.leased = False
        if ATTEMPT in memory.live():
            self.leased = True
        return ""

    def _submit(self) -> None:
        self.jobs.append(OneJob(JOB_ID + len(self.jobs)))

    def _submit_late(self) -> None:
        self.late_s.append(self.now_s + SBATCH_LANDS_WITHIN_S)

    def _land(self) -> None:
        self.late_s.pop()
        self._submit()

    def _start(self) -> None:
        """Its gate asks for the lease."""
        job = self.jobs[-1]
        if not self.leased:
            self._end_job(SiteJobState.CANCELLED)
            return
        job.state, job.started_at_s = SiteJobState.RUNNING, self.now_s
        self.starts += 1
        self.lost_start |= self.given_up

    def _end(self) -> None:
        self._end_job(SiteJobState.COMPLETED)

    def _end_job(self, state: SiteJobState = SiteJobState.CANCELLED) -> None:
        job = self.jobs[-1]
        if not job.state.ended:
            job.state, job.ended_at_s = state, self.now_s

    def _forget(self) -> None:
        self.jobs[-1].shown = False

    def _cancel(self, effect: Scancel) -> bool:
        there = [job for job in self.jobs if job.job_id == effect.job_id and not job.state.ended]
        for job in there:
            if not effect.pending_only or job.state is SiteJobState.PENDING:
                job.state, job.ended_at_s = SiteJobState.CANCELLED, self.now_s
        return bool(there)

    # ---- promises ----

    @property
    def broken(self) -> str:
        """The promise that does not hold; "": all do."""
        if len(self.jobs) > 1:
            return "it was submitted twice"
        if self.starts > 1:
            return "it ran twice"
        if self.lost_start:
            return "it was given up, and had started or starts"
        accepted = {m.site_job_id for m in self.said if isinstance(m, LaunchAccepted)}
        if not accepted <= {job.job_id for job in self.jobs}:
            return "a job was named that there is not"
        return ""

    def fingerprint(self) -> bytes:
        """Of everything that decides what can happen next."""
        memory = self.core.memory
        record = memory.records.get(ATTEMPT)
        numberless = sorted(
            msgspec.json.encode(msgspec.structs.replace(e, number=0, after=0))
            for e in self.under_way
        )
        return msgspec.json.encode(
            [
                [msgspec.to_builtins(vars(job)) for job in self.jobs],
                self.leased,
                self.starts,
                [type(m).__name__ for m in self.said if isinstance(m, _ANSWERS)],
                numberless,
                self.late_s,
                [mark for _, mark in self.journal[-1:]],
                sorted(map(str, self.endings)),
                self.now_s,
                self.dies_after,
                self.wake_at_s,
                None
                if record is None
                else [
                    record.state.value,
                    len(record.turns),
                    record.look_at_s,
                    record.look_from and record.look_from - self.core.sweeps_begun,
                    record.fresh,
                    record.grace is not None,
                    record.evict_later is not None,
                ],
                memory.known.get(ATTEMPT),
                sorted(map(str, memory.accepted_lately)),
            ]
        )


_NEVER_FAIL = (SettleLeases, AskAccounts, AskKillWait, ReadFolders, Inspect)
_ANSWERS = (LaunchAccepted, LaunchDeclined, AttemptAbsent)
