"""The whole federation in one process: ``Federation.handle`` against sites, in virtual time.

No asyncio, no network: what happens next is the earliest entry of a heap of (time, seq). Messages
take ``LATENCY_S`` each way and stay in order; a channel that is down loses them. Invariants are
checked after every event.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, TypeVar

from msgspec import structs

from federator.agent.base import federated_and_local
from federator.agent.requeue_causes import RequeueCauses
from federator.errors import SiteRefused
from federator.faults.clock import VirtualClock
from federator.faults.slurm import SimulatedJob, SimulatedSlurm
from federator.model.decision import SeenDecision
from federator.model.draft import Draft
from federator.model.event import LogRecord, decode_event, encode_event
from federator.model.lifecycle import TERMINAL, WorkloadState
from federator.model.message import (
    Answer,
    AnswerControlled,
    AnswerSubmitted,
    AskAbout,
    CancelAsked,
    Command,
    ControlAsked,
    ControlVerb,
    Decided,
    LaunchAt,
    Note,
    Observation,
    PreemptAt,
    Record,
    SendTo,
    SiteDown,
    SiteSent,
    SiteUp,
    SubmitAsked,
    Tick,
    Wake,
)
from federator.model.partition import PartitionSummary
from federator.model.plan import BidRequest
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site import AttemptReport, Capacity, Leave, Node, SiteJobState, VictimTerms
from federator.model.site_message import (
    Ask,
    AttemptAbsent,
    BidsMade,
    CancelOrder,
    LaunchAccepted,
    LaunchDeclined,
    Report,
    ShrinkOrder,
    SiteAnswer,
    SiteNews,
)
from federator.model.tagged import Message
from federator.model.tenant import LOWEST_PRIORITY, Tenancy, Tenant
from federator.model.workload import AttemptId, SiteName, WorkloadId
from federator.policies.fifo import Fifo
from federator.sched.bid.site_scheduler import SiteScheduler, summarise
from federator.sched.passes.federation import Federation
from federator.sched.queue.policy import Policy
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.rules import Rules
from federator.sched.state.snapshot import taken
from federator.sched.state.usage import UsageMemory

_M = TypeVar("_M", bound=Message)

LATENCY_S: Final = 0.01
POLL_S: Final = 10.0
LIVELOCK: Final = 5_000  # events at one instant

SiteCommand = SendTo | LaunchAt | PreemptAt | AskAbout


def sent(commands: Iterable[Command], kind: type[_M]) -> list[tuple[SiteName, _M]]:
    """The messages of a kind that are to be sent, each with its site."""
    messages = ((c.site, c.message) for c in commands if isinstance(c, SendTo))
    return [(site, message) for site, message in messages if isinstance(message, kind)]


class LoopbackAgent:
    """One channel's worth of agent: what ``federator.agent`` does, without waiting.

    Args:
        site: its name.
        slurm: its cluster.
        marks: its journal, which outlives the channel: job ids of attempts, 0 for given up.
    """

    def __init__(
        self,
        site: SiteName,
        slurm: SimulatedSlurm,
        marks: dict[AttemptId, int],
        partitions: Sequence[str],
        clock: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._site = site
        self._slurm = slurm
        self._marks = marks
        self._scheduler = SiteScheduler(partitions)
        self._setbacks = RequeueCauses(self._scheduler.held_nodes)
        self._told: dict[AttemptId, AttemptReport] | None = None
        self._told_shape: tuple[Capacity | None, tuple[PartitionSummary, ...]] = (None, ())
        self.refuses = False  # sbatch says no
        self.refuses_as = ReasonCode.LAUNCH_REFUSED
        self.strangers: Collection[str] = ()  # users without an account
        self._lies = False
        self.keeps_claims = True  # an older agent does not
        self.keeps_wishes = True  # likewise
        self.keeps_contiguous = True  # likewise
        self.keeps_data = True  # likewise
        self.keeps_outputs = True  # likewise
        self.qos: frozenset[str] | None = None  # of its site; None: it does not say
        self.knows_claims = True  # of an even older one nothing is kept
        self.confirmed_dir: str | None = ""  # where its jobs work, as told by an answer
        self.reported_dir: str | None = None  # and by reports

    def sweep(self) -> Report:
        """Look at Slurm; the first report is complete."""
        nodes = self._slurm.nodes()
        reports = (replace(r, work_dir=self.reported_dir) for r in self._slurm.reports())
        known = self._setbacks.complete({r.attempt: r for r in reports}, nodes)
        visible = {a for a, r in known.items() if r.state is not SiteJobState.PENDING}
        running, _ = federated_and_local(
            self._slurm.holders(), {a: r.site_job_id for a, r in known.items()}
        )
        self._scheduler.update(nodes, visible, running=running)
        self._scheduler.know_qos(self.qos)
        told, old_shape = self._told, self._told_shape
        shape = (
            self._scheduler.capacity,
            summarise(nodes, self._scheduler.partitions, self._scheduler.mix),
        )
        self._told, self._told_shape = known, shape
        old = told or {}
        gone = (a for a, r in old.items() if a not in known and not r.state.ended)
        return Report(
            attempts=tuple(r for a, r in known.items() if old.get(a) != r),
            gone=tuple(gone),
            complete=told is None,
            capacity=shape[0] if shape[0] != old_shape[0] else None,
            partitions=shape[1] if shape[1] != old_shape[1] else (),
            freed=self._scheduler.freed,
        )

    def believes_all_are_lowest(self) -> None:
        """A lying site: it would evict anybody."""
        self._lies = True

    def _anybody(self) -> dict[WorkloadId, VictimTerms]:
        lowest = VictimTerms(priority=LOWEST_PRIORITY)
        return {report.attempt.workload: lowest for report in self._slurm.reports()}

    def do(self, command: SiteCommand) -> list[SiteNews]:
        match command:
            case SendTo(message=Ask() as ask):
                swept = self.sweep()  # bids are made on what is true now
                self._scheduler.rank(self._anybody() if self._lies else ask.victims)
                self._scheduler.expect(ask.predicted_ends, ask.prices, ask.cells)
                asked = [r for r in ask.requests if r.user not in self.strangers]
                answers = self._scheduler.bid(
                    asked,
                    self._clock(),
                    reserve=ask.reserve,
                    reserving=ask.reserving,
                    claims=ask.claims if self.knows_claims else (),
                )
                answers = (*answers, *self._of_strangers(ask.requests))
                freed = self._scheduler.freed
                bids = BidsMade(
                    pass_id=ask.pass_id,
                    answers=answers,
                    freed=freed,
                    keeps_claims=self.keeps_claims,
                    keeps_wishes=self.keeps_wishes,
                    keeps_contiguous=self.keeps_contiguous,
                    keeps_data=self.keeps_data,
                    keeps_outputs=self.keeps_outputs,
                )
                return [swept, bids]
            case LaunchAt():
                return [self._launch(command)]
            case SendTo(message=CancelOrder() as order):
                return self._cancel(order)
            case PreemptAt() if self._slurm.jobs.get(command.site_job_id) is None:
                return [AttemptAbsent(attempt=command.attempt)]
            case PreemptAt() | SendTo():
                return []  # ``Loopback`` ends the job when it has saved
            case AskAbout():  # it knows of no ending that Slurm does not show
                known = {report.attempt for report in self._slurm.reports()}
                gone = tuple(a for a in command.attempts if a not in known)
                return [Report(attempts=(), gone=gone, freed=self._scheduler.freed)]

    def _of_strangers(self, requests: Sequence[BidRequest]) -> list[SiteAnswer]:
        reason = Reason(code=ReasonCode.UNKNOWN_USER)
        no = Refusal(kind=RefusalKind.REJECT, reasons=(reason,))
        return [SiteAnswer(id=r.id, refusal=no) for r in requests if r.user in self.strangers]

    def _launch(self, order: LaunchAt) -> SiteNews:
        attempt = order.attempt
        ends_by_s = self._clock() + order.workload.time_limit_s
        if attempt not in self._marks:
            obstacle = self._scheduler.holds(order.jobs, order.victims, order.shrinks)
            if obstacle is None and self.refuses:
                obstacle = Reason(code=self.refuses_as, detail="sbatch said no")
            if obstacle is not None:
                self._marks[attempt] = 0
                return LaunchDeclined(attempt=attempt, reason=obstacle)
            self._hold(order, ends_by_s)
            user = order.workload.user
            limit_s = order.workload.time_limit_s
            self._marks[attempt] = self._slurm.submit(attempt, user, order.jobs, limit_s)
        elif self._waits(attempt):
            self._hold(order, ends_by_s)
        job_id = self._marks[attempt]
        if not job_id:
            reason = Reason(code=ReasonCode.LAUNCH_REFUSED, detail="given up before")
            return LaunchDeclined(attempt=attempt, reason=reason)
        return LaunchAccepted(attempt=attempt, site_job_id=job_id, work_dir=self.confirmed_dir)

    def _hold(self, order: LaunchAt, ends_by_s: float) -> None:
        self._scheduler.hold(order.attempt, order.jobs, ends_by_s, order.victims, order.shrinks)

    def _cancel(self, order: CancelOrder) -> list[SiteNews]:
        job_id = order.site_job_id or self._marks.get(order.attempt, 0)
        try:
            if job_id and self._slurm.cancel(job_id, pending_only=order.pending_only):
                return []
        except SiteRefused:
            return []  # the agent says CancelFailed, which the daemon only logs
        self._marks[order.attempt] = 0
        self._scheduler.release(order.attempt)
        return [AttemptAbsent(attempt=order.attempt)]

    def _waits(self, attempt: AttemptId) -> bool:
        """The attempt is in Slurm's queue, so its nodes do not show it yet."""
        waiting = (j for j in self._slurm.live() if j.state is SiteJobState.PENDING)
        return any(job.attempt == attempt for job in waiting)


@dataclass(slots=True)
class _Site:
    slurm: SimulatedSlurm
    marks: dict[AttemptId, int]
    agent: LoopbackAgent | None = None  # None while the channel is down
    refuses: bool = False
    refuses_as: ReasonCode = ReasonCode.LAUNCH_REFUSED
    strangers: Collection[str] = ()


class Loopback:
    """A federation of simulated sites.

    Args:
        sites: the nodes of each, in the order that breaks ties.
        rules: of the federation.
        duration_s: how long every job runs; None: until the test ends it.
        policy: ranks the queue; first come, first served by default.
        tenants: those with a quota, a limit or a priority.
        began_s: Unix time at which it begins.
    """

    def __init__(
        self,
        sites: Mapping[str, Sequence[Node]],
        rules: Rules | None = None,
        duration_s: float | None = None,
        policy: Policy = Fifo(),  # noqa: B008  # frozen
        tenants: Sequence[Tenant] = (),
        began_s: float = 1_000_000.0,
    ) -> None:
        self.clock = VirtualClock(began_s)
        self.duration_s = duration_s
        self.save_s = 1.0  # that a job takes to save when it is told to leave
        self.enforces_limits = False  # whether Slurm ends jobs at their time limit
        self.kill_wait_s = 5.0  # that Slurm gives a component
        self._leaving: set[AttemptId] = set()
        self._left_s: dict[WorkloadId, float] = {}  # work left, of those that have saved some
        self.log: list[LogRecord] = []
        self.decided: list[SeenDecision] = []
        self.history: list[tuple[Observation | None, float]] = []  # None: the epoch began
        self.commands: list[Command] = []
        self.answers: dict[int, Answer] = {}
        self._rules = rules or Rules()
        self._policy = policy
        self._tenants = tuple(tenants)
        self._nodes = {SiteName(name): tuple(nodes) for name, nodes in sites.items()}
        self.sites = {name: self._new_site(nodes) for name, nodes in self._nodes.items()}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._seq = 0
        self._wakes: set[float] = set()
        self._clients = 0
        self._last_report: dict[SiteName, Report] = {}
        self.shared_nodes = False  # True once local users or broken nodes may be in the way
        self.federation = self.new_federation()
        self._begin()
        for name in self.sites:
            self.site_up(name)
        self.run_for(1.0)

    def new_federation(self) -> Federation:
        """One with this configuration and no history."""
        partitions: dict[SiteName, tuple[str, ...]] = dict.fromkeys(self._nodes, ("gpu",))
        return Federation(partitions, self._policy, self._rules, self.new_ledger())

    def new_ledger(self) -> Ledger:
        """An empty one that knows the tenants."""
        return Ledger(Tenancy(self._tenants))

    def _new_site(self, nodes: Sequence[Node]) -> _Site:
        return _Site(slurm=SimulatedSlurm(nodes, self.clock, self._job_started), marks={})

    # ---- what users do ----

    def ask(self, wanted: Draft, key: str = "", test_only: bool = False) -> Answer | None:
        """Submit, and let the answer come."""
        self._clients += 1
        client = self._clients
        asked = SubmitAsked(
            client=client, key=key or f"key-{client}", draft=wanted, test_only=test_only
        )
        self.observe(asked)
        if test_only:
            self.run_for(1.0)
        return self.answers.get(client)

    def submit(self, wanted: Draft, key: str = "") -> WorkloadId:
        """Submit what is expected to be queued; return its id."""
        answer = self.ask(wanted, key)
        assert isinstance(answer, AnswerSubmitted), answer
        return answer.id

    def cancel(self, *ids: WorkloadId) -> None:
        self._clients += 1
        self.observe(CancelAsked(client=self._clients, ids=ids, by="ada"))

    def control(
        self, verb: ControlVerb, *ids: WorkloadId, by: str = "ada", is_operator: bool = False
    ) -> AnswerControlled:
        """Hold, release or change these."""
        self._clients += 1
        client = self._clients
        self.observe(
            ControlAsked(client=client, verb=verb, ids=ids, by=by, is_operator=is_operator)
        )
        answer = self.answers[client]
        assert isinstance(answer, AnswerControlled)
        return answer

    # ---- what befalls sites and daemon ----

    def slurm(self, site: str) -> SimulatedSlurm:
        return self.sites[SiteName(site)].slurm

    def refuse_launches(
        self, site: str, refuses: bool = True, code: ReasonCode = ReasonCode.LAUNCH_REFUSED
    ) -> None:
        found = self.sites[SiteName(site)]
        found.refuses, found.refuses_as = refuses, code
        if found.agent is not None:
            found.agent.refuses, found.agent.refuses_as = refuses, code

    def know_not(self, site: str, *users: str) -> None:
        """These users, and no others, have no account there."""
        found = self.sites[SiteName(site)]
        found.strangers = users
        if found.agent is not None:
            found.agent.strangers = users

    def site_down(self, site: str) -> None:
        """The channel breaks; what is on its way is lost, the cluster runs on."""
        name = SiteName(site)
        if self.sites[name].agent is not None:
            self.sites[name].agent = None
            self.observe(SiteDown(site=name))

    def site_up(self, site: str) -> None:
        name = SiteName(site)
        found = self.sites[name]
        if found.agent is None:
            found.agent = LoopbackAgent(name, found.slurm, found.marks, ("gpu",), self.clock)
            found.agent.refuses, found.agent.refuses_as = found.refuses, found.refuses_as
            found.agent.strangers = found.strangers
            self.observe(SiteUp(site=name))
            self._report(name, found.agent)
            self._later(POLL_S, self._poll(name, found.agent))

    def restart(self) -> None:
        """Kill the daemon and start one on the same log; every channel is made anew."""
        up = [name for name, site in self.sites.items() if site.agent is not None]
        for name in up:
            self.sites[name].agent = None
        self.federation = self.new_federation()
        self.federation.replay(decode_event(encode_event(event)) for event in self.log)
        self._begin()
        for name in up:
            self.site_up(name)

    def reload(
        self,
        rules: Rules | None = None,
        tenants: Sequence[Tenant] | None = None,
        policy: Policy | None = None,
        without: str = "",
    ) -> None:
        """An admin changes the configuration of the daemon that runs.

        Args:
            rules: the new ones; None: as before.
            tenants: likewise.
            policy: likewise.
            without: a site that is taken out; nothing lives there.
        """
        self._rules = rules or self._rules
        self._tenants = self._tenants if tenants is None else tuple(tenants)
        self._policy = policy or self._policy
        self._nodes.pop(SiteName(without), None)
        sites: dict[SiteName, tuple[str, ...]] = dict.fromkeys(self._nodes, ("gpu",))
        tenancy, usage = Tenancy(self._tenants), UsageMemory().average()
        now_s = self.clock.now_s
        self._carry_out(
            self.federation.reconfigure(sites, self._policy, self._rules, tenancy, usage, now_s)
        )

    def forget_ended(self, keep_s: float) -> None:
        """Know no more of what ended that long ago."""
        now_s = self.clock.now_s
        self._carry_out(self.federation.forget_ended(now_s, keep_s))

    def compact(self) -> None:
        """Put a snapshot in place of the log."""
        self.log[:] = taken(self.federation.ledger, self.clock.now_s)

    def take_out(self, site: str) -> None:
        """An admin removes a site, on which nothing lives, and restarts the daemon."""
        self.site_down(site)
        name = SiteName(site)
        del self._nodes[name]
        regions = {each: region for each, region in self._rules.regions.items() if each != name}
        self._rules = replace(self._rules, regions=regions)
        self.restart()

    def bring_in(self, site: str) -> None:
        """An admin adds a site that ``take_out`` has removed, and restarts the daemon."""
        name = SiteName(site)
        self._nodes[name] = tuple(self.sites[name].slurm.nodes())
        self.restart()
        self.site_up(site)

    def repeat_last_report(self, site: str, after_s: float = 0.0) -> None:
        """News of a site comes twice."""
        name = SiteName(site)
        found = self.sites[name]
        report, agent = self._last_report.get(name), found.agent
        if report is not None and agent is not None:
            again = structs.replace(report, complete=False)
            self._later(after_s, lambda: self._from_site(name, agent, again))

    # ---- time ----

    def run_for(self, seconds: float) -> None:
        until_s = self.clock.now_s + seconds
        at_once = 0
        while self._heap and self._heap[0][0] <= until_s:
            at_s, _, act = heapq.heappop(self._heap)
            at_once = at_once + 1 if at_s <= self.clock.now_s else 0
            assert at_once < LIVELOCK, "the federation wakes itself for ever"
            self.clock.now_s = max(self.clock.now_s, at_s)
            act()
            self.check_invariants()
        self.clock.now_s = until_s

    def run_until(self, true: Callable[[], bool], limit_s: float = 100.0) -> None:
        """Run in small steps until a condition holds.

        Raises:
            AssertionError: it does not within the limit.
        """
        until_s = self.clock.now_s + limit_s
        while not true():
            assert self.clock.now_s < until_s, f"it never came to that: {self.states()}"
            self.run_for(LATENCY_S / 2)

    def run_until_all_end(self, limit_s: float = 20_000.0) -> None:
        """Run until every workload has ended.

        Raises:
            AssertionError: some live on at the limit.
        """
        until_s = self.clock.now_s + limit_s
        while any(e.state not in TERMINAL for e in self.federation.ledger.entries.values()):
            assert self.clock.now_s < until_s, f"never ended: {self.states()}"
            self.run_for(POLL_S)

    def observe(self, observation: Observation) -> None:
        self.history.append((observation, self.clock.now_s))
        self._carry_out(self.federation.handle(observation, self.clock.now_s))

    def _begin(self) -> None:
        self._wakes.clear()
        self.history.append((None, self.clock.now_s))
        self._carry_out(self.federation.begin_epoch(self.clock.now_s))

    def _later(self, after_s: float, act: Callable[[], None]) -> None:
        self._seq += 1
        heapq.heappush(self._heap, (self.clock.now_s + after_s, self._seq, act))

    def _tick(self, at_s: float) -> None:
        if at_s in self._wakes:
            self._wakes.discard(at_s)
            self.observe(Tick())

    def _carry_out(self, commands: Sequence[Command]) -> None:
        self.commands += commands
        for command in commands:
            match command:
                case Record():
                    self.log.append(command.event)
                case Wake():
                    self._wake(max(self.clock.now_s, command.at_s))
                case Decided():
                    self.decided.append(command.seen)
                case Note():
                    pass
                case SendTo() | LaunchAt() | PreemptAt() | AskAbout():
                    self._to_site(command)
                case _:
                    self.answers[command.client] = command

    def _wake(self, at_s: float) -> None:
        if at_s not in self._wakes:
            self._wakes.add(at_s)
            self._later(at_s - self.clock.now_s, lambda: self._tick(at_s))

    # ---- channels ----

    def _to_site(self, command: SiteCommand) -> None:
        agent = self.sites[command.site].agent
        if agent is not None:
            self._later(LATENCY_S, lambda: self._arrive(command, agent))

    def _arrive(self, command: SiteCommand, agent: LoopbackAgent) -> None:
        if self.sites[command.site].agent is agent:
            for message in agent.do(command):
                self._send(command.site, agent, message)
            match command:
                case PreemptAt():
                    self._let_go(command)
                case SendTo(message=ShrinkOrder() as order):
                    self._take_jobs(command.site, order)
                case SendTo(message=Ask()):
                    return
            self._report(command.site, agent)

    def _let_go(self, order: PreemptAt) -> None:
        """The job saves for a while and goes, at its deadline in any case; orders may repeat."""
        slurm = self.sites[order.site].slurm
        wait_s = min(self.save_s, order.grace_s)
        told_at_s = self.clock.now_s
        for job in slurm.running():
            if job.attempt == order.attempt and job.leave is None:
                job.leave = Leave(told_at_s=told_at_s)

        def go() -> None:
            for job in slurm.running():
                if job.attempt == order.attempt:
                    self._leave(slurm, job, told_at_s, killed=self.save_s > order.grace_s)
            agent = self.sites[order.site].agent
            if agent is not None:
                self._report(order.site, agent)

        if order.attempt not in self._leaving:
            self._leaving.add(order.attempt)
            self._later(wait_s, go)

    def _take_jobs(self, name: SiteName, order: ShrinkOrder) -> None:
        """Its optional jobs are gone when Slurm has killed them."""
        site = self.sites[name]

        def go() -> None:
            site.slurm.cancel_components(site.marks[order.attempt], order.components)
            if site.agent is not None:
                self._report(name, site.agent)

        self._later(min(self.save_s, self.kill_wait_s), go)

    def _report(self, site: SiteName, agent: LoopbackAgent) -> None:
        report = agent.sweep()
        is_new = report.attempts or report.gone or report.complete or report.partitions
        if is_new or report.capacity is not None:
            self._last_report[site] = report
            self._send(site, agent, report)

    def _poll(self, site: SiteName, agent: LoopbackAgent) -> Callable[[], None]:
        def poll() -> None:
            if self.sites[site].agent is agent:
                self._report(site, agent)
                self._later(POLL_S, poll)

        return poll

    def _send(self, site: SiteName, agent: LoopbackAgent, message: SiteNews) -> None:
        self._later(LATENCY_S, lambda: self._from_site(site, agent, message))

    def _from_site(self, site: SiteName, agent: LoopbackAgent, message: SiteNews) -> None:
        if self.sites[site].agent is agent:
            self.observe(SiteSent(site=site, message=message))

    def _job_started(self, job: SimulatedJob) -> None:
        site = next(
            s
            for s in self.sites.values()
            if job.job_id in s.slurm.jobs and s.slurm.jobs[job.job_id] is job
        )
        started_at_s = job.started_at_s

        def end(state: SiteJobState) -> None:
            if job.started_at_s == started_at_s:  # or else Slurm has requeued it meanwhile
                site.slurm.end(job.attempt, state)

        if self.duration_s is not None:
            left_s = self._left_s.get(job.attempt.workload, self.duration_s)
            self._later(left_s, lambda: end(SiteJobState.COMPLETED))
        if self.enforces_limits and job.time_limit_s < inf:
            self._later(job.time_limit_s, lambda: end(SiteJobState.TIMEOUT))

    def _leave(
        self, slurm: SimulatedSlurm, job: SimulatedJob, told_at_s: float, *, killed: bool
    ) -> None:
        """It goes; what it has done by then needs not be done again, unless it was killed."""
        if killed:
            job.leave = Leave(told_at_s=told_at_s, forced=True)
            slurm.end(job.attempt, SiteJobState.FAILED, signal=9)
            return
        job.leave = Leave(told_at_s=told_at_s, saved_at_s=self.clock.now_s)
        slurm.end(job.attempt, SiteJobState.CANCELLED)
        if self.duration_s is not None:
            left_s = self._left_s.get(job.attempt.workload, self.duration_s)
            done_s = self.clock.now_s - job.started_at_s
            self._left_s[job.attempt.workload] = max(1.0, left_s - done_s)

    # ---- looking ----

    def entry(self, id_: WorkloadId) -> WorkloadRecord:
        return self.federation.ledger.entries[id_]

    def refusals(self, id_: WorkloadId) -> Mapping[SiteName, Refusal]:
        """Why a workload waits, as users are told."""
        return self.federation.refusals_of(self.entry(id_))

    def state(self, id_: WorkloadId) -> WorkloadState:
        return self.entry(id_).state

    def states(self) -> dict[WorkloadId, str]:
        return {id_: e.state.value for id_, e in self.federation.ledger.entries.items()}

    def live_jobs(self, id_: WorkloadId) -> list[tuple[SiteName, SimulatedJob]]:
        """The jobs that exist for a workload, at any site, and have not ended."""
        return [
            (name, job)
            for name, site in self.sites.items()
            for job in site.slurm.live()
            if job.attempt.workload == id_
        ]

    def replayed(self) -> Ledger:
        """The ledger as the log alone tells it."""
        ledger = self.new_ledger()
        for event in self.log:
            ledger.apply(decode_event(encode_event(event)))
        return ledger

    def _has_just_come(self, job: SimulatedJob) -> bool:
        """Launched onto free nodes, that is: one that ran, and was put back, may have lost some."""
        entry = self.entry(job.attempt.workload)
        return not entry.displaces and entry.state in (
            WorkloadState.AWARDED,
            WorkloadState.LAUNCHING,
        )

    def check_invariants(self) -> None:
        for id_, entry in self.federation.ledger.entries.items():
            live = self.live_jobs(id_)
            assert len(live) <= 1, f"{id_} is alive more than once: {live}"
            if entry.state in TERMINAL or entry.state is WorkloadState.PENDING:
                assert not live, f"{id_} is {entry.state.value}, but alive: {live}"
        for name, site in self.sites.items():
            for node in site.slurm.nodes():
                assert node.gpus_alloc <= node.gpus, f"{name}: {node.name} is over-allocated"
                assert node.cpus_alloc <= node.cpus, f"{name}: {node.name} is over-allocated"
            if site.slurm.starts_jobs and not self.shared_nodes:
                waiting = [
                    job
                    for job in site.slurm.live()
                    if job.state is SiteJobState.PENDING and self._has_just_come(job)
                ]
                assert not waiting, f"{name}: launched where there was no room: {waiting}"
