"""The federation's own code with simulated sites, in virtual time.

``Federation.handle`` and ``SiteScheduler`` are those of daemon and agent; between them are
function calls. What the sites do by themselves is ``Physics``: start-up, saving, failing nodes,
local users.
"""

from __future__ import annotations

import gc
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite

from federator.errors import FederatorError
from federator.model.event import Awarded, Claimed, ClaimEnded, LogRecord
from federator.model.lending import Lending
from federator.model.message import (
    AnswerRefused,
    AnswerSubmitted,
    Command,
    LaunchAt,
    Observation,
    PreemptAt,
    Record,
    SendTo,
    SiteSent,
    SiteUp,
    SubmitAsked,
    Tick,
    Wake,
)
from federator.model.site import AttemptReport, SiteJobState
from federator.model.site_message import (
    Ask,
    AttemptAbsent,
    BidsMade,
    CancelOrder,
    LaunchAccepted,
    Report,
)
from federator.model.tenant import Tenancy
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.queue.policy import Policy
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules
from federator.sched.state.usage import UsageAverage
from federator.sim.failures import SimEventKind, SiteFailures
from federator.sim.physics import Physics
from federator.sim.planner import SimulatedPlanner
from federator.sim.scenario import AttemptInterval, FleetSample, JobTrace, Scenario
from federator.sim.site_state import SimulatedAttempt, SiteState
from federator.sim.trace import ReplayOptions

BEGIN_S = 1_000_000.0  # of virtual time; the scenario's clock begins here
_FORGET_AFTER = 1_000  # workloads
_PATIENCE_S = 30 * 86_400.0  # if nothing ends in so long a time, nothing will


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Look for garbage in circles rarely: there is little, and a replay keeps millions of objects.

    A tenth of its time went into looking through them.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 20, 200)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


class Fleet:
    """A federation and its sites, and what they live through.

    Args:
        scenario: sites, tenants and arrivals.
        policy: ranks the queue.
        rules: of the federation.
        physics: of the sites.
        options: of the replay.
        usage: empty; by default an average over a week.
    """

    def __init__(
        self,
        scenario: Scenario,
        policy: Policy,
        rules: Rules,
        physics: Physics | None = None,
        options: ReplayOptions | None = None,
        usage: UsageAverage | None = None,
    ) -> None:
        self._scenario = scenario
        self._physics = Physics() if physics is None else physics
        self._options = ReplayOptions() if options is None else options
        self.now_s = BEGIN_S
        self._inbox: deque[Observation] = deque()
        self._is_busy = False
        self._wakes: list[float] = []
        self._heap: list[tuple[float, int, int, Callable[[], None]]] = []
        self._seq = 0
        self._arrival_of: dict[WorkloadId, int] = {}
        self._left_s = [arrival.duration_s for arrival in scenario.arrivals]  # useful work to do
        self._over = 0
        self._forget_at = _FORGET_AFTER
        self._ended_s = BEGIN_S  # when something ended or came, the last time
        longest_s = max((a.duration_s for a in scenario.arrivals), default=0.0)
        self._patience_s = max(_PATIENCE_S, 50 * longest_s)
        self._waiting_gpus = 0
        self.lives = [JobTrace() for _ in scenario.arrivals]
        self.moments: list[FleetSample] = []
        self.awards: list[Awarded] = []  # in order, if ``options.keep_awards``
        self.sites = {site.name: SiteState.of(site) for site in scenario.sites}
        ledger = Ledger(Tenancy(scenario.tenants, {}), usage)
        partitions = {site.name: site.partitions for site in scenario.sites}
        self.federation = Federation(partitions, policy, rules, ledger, same_process=True)
        self._evicts = rules.evicts
        self._predicts = rules.forecast_ends
        self._planner: SimulatedPlanner | None = None
        if rules.lending is not Lending.OFF:
            self._planner = SimulatedPlanner(self, Tenancy(scenario.tenants, {}))
        self._failures = SiteFailures(self, self._physics, self._options.seed)

    def run(self) -> list[JobTrace]:
        """Live through all of it; one life for each arrival, in their order.

        Raises:
            FederatorError: workloads wait and nothing is to come, or run and never end, such as one
                whose nodes fail before it can save anything. With ``audit`` also when a node is
                used twice or while it is down.
        """
        self._carry_out(self.federation.begin_epoch(self.now_s))
        for name, site in self.sites.items():
            self.see(SiteUp(site=name))
            scheduler = site.scheduler
            complete = Report(
                attempts=(), complete=True, capacity=scheduler.capacity, freed=scheduler.freed
            )
            self.see(SiteSent(site=name, message=complete))
        self._failures.begin()
        if self._planner is not None:
            self._planner.plan()
        with seldom_collecting():
            self._live_through()
        return self.lives

    def _live_through(self) -> None:
        arrivals = self._scenario.arrivals
        at = 0
        while self._over < len(arrivals):
            self.now_s = self._next_s(at)
            while self._heap and self._heap[0][0] <= self.now_s:
                heapq.heappop(self._heap)[3]()
            while at < len(arrivals) and BEGIN_S + arrivals[at].at_s <= self.now_s:
                self.see(SubmitAsked(client=at, key=str(at), draft=arrivals[at].draft))
                at, self._ended_s = at + 1, self.now_s
            self._tick()
            self._note_moment()
            self._forget_ended()

    # ---- time ----

    def _next_s(self, at: int) -> float:
        arrivals = self._scenario.arrivals
        times = [BEGIN_S + arrivals[at].at_s] if at < len(arrivals) else []
        times += [self._heap[0][0]] if self._heap else []
        times += [self._wakes[0]] if self._wakes else []
        if not times or (at == len(arrivals) and self.now_s > self._ended_s + self._patience_s):
            raise FederatorError(f"{len(arrivals) - self._over} workloads do not end")
        return max(self.now_s, min(times))

    def later(self, at_s: float, occasion: SimEventKind, act: Callable[[], None]) -> None:
        self._seq += 1
        heapq.heappush(self._heap, (at_s, occasion, self._seq, act))

    def _tick(self) -> None:
        while self._wakes and self._wakes[0] <= self.now_s:
            while self._wakes and self._wakes[0] <= self.now_s:
                heapq.heappop(self._wakes)
            self.see(Tick())

    def _note_moment(self) -> None:
        held = sum(site.held_gpus for site in self.sites.values())
        self.moments.append(FleetSample(self.now_s - BEGIN_S, held, self._waiting_gpus))

    def _forget_ended(self) -> None:
        """Now and then let the federation forget what is over, as a daemon does.

        Else a replay would keep the story of every workload to its end. Once as many have ended as
        are known, or ``_FORGET_AFTER``: so that it costs little.
        """
        if self._over >= self._forget_at:
            self._carry_out(self.federation.forget_ended(self.now_s, 0.0))
            known = len(self.federation.ledger.entries)
            self._forget_at = self._over + max(_FORGET_AFTER, known)

    # ---- attempts ----

    def _launch(self, order: LaunchAt) -> None:
        site = self.sites[order.site]
        if order.attempt in site.attempts:
            return  # the order was repeated
        if self._options.audit and (taken := site.scheduler.holds(order.jobs, order.victims)):
            raise FederatorError(f"{order.site}: {taken.detail}, and is launched on again")
        attempt = site.take(order)
        self._waiting_gpus -= self._asked_gpus(order.workload.id)
        accepted = LaunchAccepted(attempt=order.attempt, site_job_id=1)
        self.see(SiteSent(site=order.site, message=accepted))
        if attempt in site.can_start():
            self._start(attempt)

    def _start(self, attempt: SimulatedAttempt) -> None:
        order, physics = attempt.order, self._physics
        index = self._arrival_of[order.workload.id]
        life = self.lives[index]
        bounded = isfinite(order.workload.time_limit_s)
        tracked = self._evicts or self._predicts or bounded
        self.sites[order.site].start(attempt, self.now_s, tracked=tracked)
        saved = self._left_s[index] < self._scenario.arrivals[index].duration_s
        startup_s = physics.startup_s(self._options.seed, index, order.attempt.attempt)
        attempt.works_from_s = self.now_s + startup_s + (physics.restore_s if saved else 0.0)
        if self._options.audit and (node := self.sites[order.site].overused()):
            raise FederatorError(f"{order.site}: more runs on node {node} than it has")
        life.start_s = self.now_s - BEGIN_S
        life.first_start_s = life.start_s if life.first_start_s < 0 else life.first_start_s
        life.site = order.site
        limit_s = self.now_s + order.workload.time_limit_s
        ends_at_s = attempt.works_from_s + self._left_s[index]
        state = SiteJobState.COMPLETED if ends_at_s <= limit_s else SiteJobState.TIMEOUT
        self.later(min(ends_at_s, limit_s), SimEventKind.END, lambda: self._end(attempt, state))
        self._report(attempt, SiteJobState.RUNNING)

    def _end(self, attempt: SimulatedAttempt, state: SiteJobState) -> None:
        """It ends by itself; nothing happens if it has gone before."""
        order = attempt.order
        if self.sites[order.site].attempts.get(order.attempt) is attempt:
            life = self.lives[self._arrival_of[order.workload.id]]
            life.timed_out = state is SiteJobState.TIMEOUT
            self._over_with(attempt, state)

    def _over_with(self, attempt: SimulatedAttempt, state: SiteJobState) -> None:
        self.lives[self._arrival_of[attempt.order.workload.id]].end_s = self.now_s - BEGIN_S
        self._over += 1
        self._ended_s = self.now_s
        self._options.progress(1)
        self._gone(attempt, state)

    def _preempt(self, order: PreemptAt) -> None:
        """It saves and leaves, at its deadline at the latest; orders may be repeated."""
        attempt = self.sites[order.site].attempts.get(order.attempt)
        if attempt is None or isfinite(attempt.leaves_at_s):
            return
        saves = self._physics.save_s <= order.grace_s
        done_s = self._done_s(attempt)
        attempt.leaves_at_s = self.now_s + min(self._physics.save_s, order.grace_s)
        kept_s = done_s if saves else self._physics.kept_s(done_s)
        self.later(
            attempt.leaves_at_s, SimEventKind.LEAVE, lambda: self._leave(attempt, done_s, kept_s)
        )

    def _leave(self, attempt: SimulatedAttempt, done_s: float, kept_s: float) -> None:
        order = attempt.order
        if self.sites[order.site].attempts.get(order.attempt) is attempt:
            self.lives[self._arrival_of[order.workload.id]].preemptions += 1
            self._stop(attempt, done_s, kept_s, SiteJobState.CANCELLED)

    def break_off(self, attempt: SimulatedAttempt) -> None:
        """Its node fails: what it has not saved by itself is lost."""
        if attempt.started_at_s < 0:
            return
        done_s = self._done_s(attempt)
        if attempt.order.workload.requeue:
            self._stop(attempt, done_s, self._physics.kept_s(done_s), SiteJobState.NODE_FAIL)
        else:
            life = self.lives[self._arrival_of[attempt.order.workload.id]]
            life.failed = True
            life.lost_gpu_s += done_s * attempt.gpus
            self._over_with(attempt, SiteJobState.NODE_FAIL)

    def _stop(
        self, attempt: SimulatedAttempt, done_s: float, kept_s: float, state: SiteJobState
    ) -> None:
        """It goes back to the queue with what it has saved."""
        index = self._arrival_of[attempt.order.workload.id]
        self._left_s[index] -= kept_s
        self.lives[index].lost_gpu_s += (done_s - kept_s) * attempt.gpus
        self._waiting_gpus += self._asked_gpus(attempt.order.workload.id)
        self._gone(attempt, state)

    def _gone(self, attempt: SimulatedAttempt, state: SiteJobState) -> None:
        site = self.sites[attempt.order.site]
        site.remove(attempt.order.attempt)
        if attempt.started_at_s >= 0:
            life = self.lives[self._arrival_of[attempt.order.workload.id]]
            since_s, until_s = attempt.started_at_s - BEGIN_S, self.now_s - BEGIN_S
            life.stays.append(AttemptInterval(attempt.order.site, since_s, until_s))
        self._report(attempt, state)
        self.start_what_can(attempt.order.site)
        self._failures.start_local(attempt.order.site)

    def start_what_can(self, name: SiteName) -> None:
        """Who waited for others to leave, or for a node, and needs to no more."""
        for waited in self.sites[name].can_start():
            self._start(waited)

    def _cancel(self, site: SiteName, order: CancelOrder) -> None:
        """Only the federation's own withdrawals: a launched job whose node failed meanwhile."""
        attempt = self.sites[site].attempts.get(order.attempt)
        if attempt is None:
            self.see(SiteSent(site=site, message=AttemptAbsent(attempt=order.attempt)))
        elif attempt.started_at_s < 0:
            self._stop(attempt, 0.0, 0.0, SiteJobState.CANCELLED)

    def _done_s(self, attempt: SimulatedAttempt) -> float:
        """Useful work of this attempt so far."""
        left_s = self._left_s[self._arrival_of[attempt.order.workload.id]]
        return min(left_s, max(0.0, self.now_s - attempt.works_from_s))

    def _report(self, attempt: SimulatedAttempt, state: SiteJobState) -> None:
        order = attempt.order
        report = AttemptReport(
            attempt=order.attempt,
            user=order.workload.user,
            site_job_id=1,
            state=state,
            started_at_s=max(0.0, attempt.started_at_s),
            ended_at_s=self.now_s if state.ended else 0.0,
        )
        freed = self.sites[order.site].scheduler.freed
        self.see(SiteSent(site=order.site, message=Report(attempts=(report,), freed=freed)))

    def _asked_gpus(self, id_: WorkloadId) -> int:
        draft = self._scenario.arrivals[self._arrival_of[id_]].draft
        return sum(job.total_gpus for job in draft.jobs)

    # ---- the federation ----

    def see(self, observation: Observation) -> None:
        self._inbox.append(observation)
        if self._is_busy:
            return  # the loop below is already under way
        self._is_busy = True
        try:
            while self._inbox:
                self._carry_out(self.federation.handle_all(self._next_news(), self.now_s))
        finally:
            self._is_busy = False

    def _next_news(self) -> list[Observation]:
        """What has come first; the answers of one round together."""
        together = [self._inbox.popleft()]
        while _is_of_a_round(together[0]) and self._inbox and _is_of_a_round(self._inbox[0]):
            together.append(self._inbox.popleft())
        return together

    def _carry_out(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Wake():
                    heapq.heappush(self._wakes, command.at_s)
                case SendTo(message=Ask() as ask):
                    self._bid(command.site, ask)
                case LaunchAt():
                    self._launch(command)
                case PreemptAt():
                    self._preempt(command)
                case SendTo(message=CancelOrder() as order):
                    self._cancel(command.site, order)
                case AnswerSubmitted():
                    self._arrival_of[command.id] = command.client
                    self._waiting_gpus += self._asked_gpus(command.id)
                case AnswerRefused():
                    self.lives[command.client].refused = True
                    self._over += 1
                    self._options.progress(1)
                case Record():
                    self._recorded(command.event)

    def _recorded(self, event: LogRecord) -> None:
        if self._planner is not None:
            self._planner.take(event)
        match event:
            case Awarded():
                self._awarded(event)
            case Claimed():
                life = self.lives[self._arrival_of[event.workload]]
                life.promised_s = event.promised_by_s - BEGIN_S
            case ClaimEnded():
                self.lives[self._arrival_of[event.workload]].promised_s = -1.0

    def _awarded(self, award: Awarded) -> None:
        if self._options.keep_awards:
            self.awards.append(award)
        life = self.lives[self._arrival_of[award.attempt.workload]]
        if award.attempt.attempt == 1:
            life.within_quota = award.within_quota
        if life.promised_s >= 0:
            kept = self.now_s - BEGIN_S <= life.promised_s
            life.claims_kept += kept
            life.claims_broken += not kept
            life.promised_s = -1.0

    def _bid(self, site: SiteName, ask: Ask) -> None:
        scheduler = self.sites[site].scheduler
        scheduler.rank(ask.victims)
        scheduler.expect(ask.predicted_ends)
        answers = scheduler.bid(
            ask.requests,
            self.now_s,
            reserve=ask.reserve,
            reserving=ask.reserving,
            claims=ask.claims,
        )
        made = BidsMade(
            pass_id=ask.pass_id, answers=answers, freed=scheduler.freed, keeps_claims=True
        )
        self._inbox.append(SiteSent(site=site, message=made))


def _is_of_a_round(observation: Observation) -> bool:
    return isinstance(observation, SiteSent) and isinstance(observation.message, BidsMade)
