"""The federation's own code with simulated sites, in virtual time.

``Federation.handle`` and ``SiteScheduler`` are those of daemon and agent; between them are
function calls. What the sites do by themselves is ``Physics``: start-up, saving, failing nodes,
local users.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf, isfinite

from federator.errors import FederatorError
from federator.model.lending import Lending
from federator.model.lifecycle import AT_SITE
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
from federator.model.partition import PartitionSummary
from federator.model.site_message import (
    Ask,
    BidsMade,
    CancelOrder,
    Report,
)
from federator.model.tenant import Tenancy
from federator.model.workload import SiteName
from federator.sched.passes.federation import Federation
from federator.sched.queue.policy import Policy
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules
from federator.sched.state.usage import UsageAverage
from federator.sim.agenda import Agenda
from federator.sim.attempts import SimulatedAttempts
from federator.sim.failures import SimEventKind, SiteFailures
from federator.sim.job_records import BEGIN_S, JobRecords
from federator.sim.physics import Physics
from federator.sim.planner import SimulatedPlanner
from federator.sim.scenario import JobTrace, Scenario
from federator.sim.site_state import SimulatedAttempt, SiteState
from federator.sim.trace import ReplayOptions
from federator.sim.true_durations import TrueDurations

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
        usage: empty; by default an average over a week. A start state has one of its own.
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
        start_state = scenario.start_state
        self.now_s = self._begin_s = BEGIN_S if start_state is None else start_state.begin_s
        self._until_s = inf if start_state is None else start_state.until_s
        self._inbox: deque[Observation] = deque()
        self._is_busy = False
        self._agenda = Agenda()
        self._records = JobRecords(scenario, self._options)
        self._forget_at = _FORGET_AFTER
        longest_s = max((a.duration_s for a in scenario.arrivals), default=0.0)
        self._patience_s = max(_PATIENCE_S, 50 * longest_s)
        self.moments = self._records.samples
        self.awards = self._records.awards
        self.sites = {site.name: SiteState.of(site) for site in scenario.sites}
        fresh = Ledger(Tenancy(scenario.tenants, {}), usage)
        ledger = fresh if start_state is None else start_state.ledger
        if scenario.known_durations:
            ledger.durations = TrueDurations(self._records.left_s)
        partitions = _partitions(scenario, ledger)
        self.federation = Federation(partitions, policy, rules, ledger, same_process=True)
        self._attempts = SimulatedAttempts(self, self._records, rules, self._physics, self._options)
        self._planner: SimulatedPlanner | None = None
        if rules.lending is not Lending.OFF:
            self._planner = SimulatedPlanner(self, Tenancy(scenario.tenants, {}))
        self._failures = SiteFailures(self, self._physics, self._options.seed)
        self._tells_usage = self._options.tells_usage or any(
            arrival.draft.elastic is not None for arrival in scenario.arrivals
        )

    def run(self) -> list[JobTrace]:
        """Live through all of it; one life for each arrival, in their order.

        Raises:
            FederatorError: workloads wait and nothing is to come, or run and never end, such as one
                whose nodes fail before it can save anything. With ``audit`` also when a node is
                used twice or while it is down.
        """
        self._carry_out(self.federation.begin_epoch(self.now_s))
        here = self._attempts.found(self.federation.ledger)
        for name, site in self.sites.items():
            self.see(SiteUp(site=name))
            scheduler = site.scheduler
            complete = Report(
                attempts=here[name],
                complete=True,
                capacity=scheduler.capacity,
                partitions=self.usage_of(site),
                freed=scheduler.freed,
            )
            self.see(SiteSent(site=name, message=complete))
        self._failures.begin()
        if self._planner is not None:
            self._planner.plan()
        with seldom_collecting():
            self._live_through()
        return self._records.lives

    def _live_through(self) -> None:
        arrivals, start_state = self._scenario.arrivals, self._scenario.start_state
        at = 0 if start_state is None else len(start_state.known)
        while self._records.over < len(arrivals):
            next_s = self._next_s(at)
            if next_s > self._until_s:
                break
            self.now_s = next_s
            self._agenda.act(self.now_s)
            while at < len(arrivals) and self._begin_s + arrivals[at].at_s <= self.now_s:
                self.see(SubmitAsked(client=at, key=str(at), draft=arrivals[at].draft))
                at, self._records.changed_at_s = at + 1, self.now_s
            while self._agenda.takes_ticks(self.now_s):
                self.see(Tick())
            held = sum(site.held_gpus for site in self.sites.values())
            self._records.sample(held, self.now_s)
            self.moment_over()
            self._forget_ended()

    def moment_over(self) -> None:
        """All that happens at an instant has happened; for whoever watches."""

    # ---- time ----

    def _next_s(self, at: int) -> float:
        arrivals = self._scenario.arrivals
        times = [self._begin_s + arrivals[at].at_s] if at < len(arrivals) else []
        times += self._agenda.times()
        if isfinite(self._until_s):
            return max(self.now_s, min(times, default=inf))
        patient_s = self._records.changed_at_s + self._patience_s
        if not times or (at == len(arrivals) and self.now_s > patient_s):
            raise FederatorError(f"{len(arrivals) - self._records.over} workloads do not end")
        return max(self.now_s, min(times))

    def later(self, at_s: float, occasion: SimEventKind, act: Callable[[], None]) -> None:
        """Have something happen at a time of the simulation."""
        self._agenda.add(at_s, occasion, act)

    def _forget_ended(self) -> None:
        """Now and then let the federation forget what is over, as a daemon does.

        Else a replay would keep the story of every workload to its end. Once as many have ended as
        are known, or ``_FORGET_AFTER``: so that it costs little.
        """
        if self._records.over >= self._forget_at:
            self._carry_out(self.federation.forget_ended(self.now_s, 0.0))
            known = len(self.federation.ledger.entries)
            self._forget_at = self._records.over + max(_FORGET_AFTER, known)

    # ---- the sites ----

    def came_free(self, name: SiteName) -> None:
        """Whoever waits at a site for what came free there starts, local users' jobs last."""
        self._attempts.start_what_can(name)
        self._failures.start_local(name)

    def break_off(self, attempt: SimulatedAttempt) -> None:
        """Its node fails."""
        self._attempts.break_off(attempt)

    def usage_of(self, site: SiteState) -> tuple[PartitionSummary, ...]:
        """Told where somebody needs it, for it costs time."""
        return site.usage() if self._tells_usage else ()

    # ---- the federation ----

    def see(self, observation: Observation) -> None:
        self._inbox.append(observation)
        if self._is_busy:
            return  # the loop below is already under way
        self._is_busy = True
        try:
            while self._inbox:
                self._carry_out(self.decide(_next_news(self._inbox)))
        finally:
            self._is_busy = False

    def decide(self, news: list[Observation]) -> list[Command]:
        """What the federation makes of news."""
        return self.federation.handle_all(news, self.now_s)

    def bids_of(self, site: SiteName, ask: Ask) -> BidsMade:
        """What a site answers."""
        return self.sites[site].answer(ask, self.now_s)

    def _carry_out(self, commands: list[Command]) -> None:
        for command in filter(self._concerns_somebody, commands):
            match command:
                case Wake():
                    self._agenda.add_tick(command.at_s)
                case SendTo(message=Ask() as ask):
                    made = self.bids_of(command.site, ask)
                    self._inbox.append(SiteSent(site=command.site, message=made))
                case LaunchAt():
                    self._attempts.launch(command)
                case PreemptAt():
                    self._attempts.preempt(command)
                case SendTo(message=CancelOrder() as order):
                    self._attempts.cancel(command.site, order)
                case AnswerSubmitted() | AnswerRefused():
                    self._records.answered(command)
                case Record():
                    if self._planner is not None:
                        self._planner.take(command.event)
                    self._records.take(command.event, self.now_s)

    def _concerns_somebody(self, command: Command) -> bool:
        """Whether it is for no site, or for one that is simulated."""
        return not isinstance(command, SendTo | LaunchAt | PreemptAt) or command.site in self.sites


def _partitions(scenario: Scenario, ledger: Ledger) -> dict[SiteName, tuple[str, ...]]:
    """Of each site; one that has work and is not simulated has none, and is down all the time."""
    found = {site.name: site.partitions for site in scenario.sites}
    for entry in ledger.in_state(*AT_SITE):
        found.setdefault(entry.site, ())
    return found


def _next_news(inbox: deque[Observation]) -> list[Observation]:
    """What has come first; the answers of one round together."""
    together = [inbox.popleft()]
    while _is_of_a_round(together[0]) and inbox and _is_of_a_round(inbox[0]):
        together.append(inbox.popleft())
    return together


def _is_of_a_round(observation: Observation) -> bool:
    return isinstance(observation, SiteSent) and isinstance(observation.message, BidsMade)
