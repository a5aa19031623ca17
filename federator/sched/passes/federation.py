"""The federation's core: ``Federation.handle`` takes every observation and returns commands.

Same history in, same commands out: no clock, I/O or randomness inside. The daemon turns
messages and time into observations and carries out the commands; a simulator does the same with
simulated sites.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from federator.model.dataset import CopyPhase
from federator.model.event import (
    Claimed,
    EpochBegan,
    Forgotten,
    LogRecord,
    Planned,
)
from federator.model.message import (
    AnswerPlanned,
    AttemptsShown,
    CancelAsked,
    Command,
    ControlAsked,
    CopySeen,
    DataAsked,
    DataPlacementAsked,
    DataTidied,
    DrainAsked,
    Observation,
    OutputSeen,
    PlanAsked,
    QuotaAsked,
    QuotasMeasured,
    ResumeAsked,
    SiteDown,
    SiteSent,
    SiteUp,
    StartsEstimated,
    SubmitAsked,
    Tick,
    TiersMeasured,
    Wake,
    WriteOffAsked,
)
from federator.model.reason import Refusal
from federator.model.site_message import (
    BidsMade,
)
from federator.model.tenant import Tenancy
from federator.model.workload import SiteName, first_id_of
from federator.sched.passes import unused_quotas
from federator.sched.passes.checkpoint_moves import CHECKPOINT, CheckpointMoves
from federator.sched.passes.control import cancel
from federator.sched.passes.data_copies import take_copy
from federator.sched.passes.data_moves import move_data, take_data_plan
from federator.sched.passes.data_removals import tidy_data
from federator.sched.passes.data_sets import change_catalogue
from federator.sched.passes.deadlines import Deadlines
from federator.sched.passes.drains import Drains
from federator.sched.passes.eligibility import Eligibility
from federator.sched.passes.eviction import budget_gpus, whole_budget_gpus
from federator.sched.passes.growth import Growth
from federator.sched.passes.held import Holding
from federator.sched.passes.job_outputs import take_output
from federator.sched.passes.job_updates import JobUpdates
from federator.sched.passes.rounds import Rounds
from federator.sched.passes.shadow import without_orders
from federator.sched.passes.site_events import SiteEvents
from federator.sched.passes.site_view import SiteView
from federator.sched.passes.slow_nodes import SlowNodes
from federator.sched.passes.spoken import Spoken
from federator.sched.passes.submissions import submit
from federator.sched.passes.transaction import Transaction
from federator.sched.passes.write_off import WriteOffs
from federator.sched.queue.policy import Policy
from federator.sched.queue.ranked import Ranked
from federator.sched.state.expiry import forgettable
from federator.sched.state.ledger import Ledger, WorkloadRecord
from federator.sched.state.recount import recount
from federator.sched.state.rules import Rules
from federator.sched.state.usage import UsageAverage

FORGOTTEN_AT_ONCE = 100_000  # ids in one record
FIRST_PASS_S = 5.0  # after the start at the latest; before, with the first site that is there


class Federation:
    """The global queue and its decisions.

    Args:
        sites: the partitions the federation may use, by site, in the order that breaks ties.
        policy: ranks the queue.
        rules: see ``Rules``.
        ledger: an empty one, that knows the tenants; by default none has a quota.
        same_process: sites are asked in this process, as in a simulation.

    Attributes:
        rules: by which it decides.
        rounds: the passes.
        checkpoints: copies of checkpoints to other regions.
        slow_nodes: how fast trainings are, and which nodes are slow.
    """

    def __init__(
        self,
        sites: dict[SiteName, tuple[str, ...]],
        policy: Policy,
        rules: Rules,
        ledger: Ledger | None = None,
        *,
        same_process: bool = False,
    ) -> None:
        self.ledger = Ledger() if ledger is None else ledger
        self.ledger.catalogue.domains = rules.storage
        self.sites = {
            name: SiteView(
                partitions=p, shadow=name in rules.shadow, advisory=name in rules.advisory
            )
            for name, p in sites.items()
        }
        self._policy = policy
        self.rules = rules
        self._pass_not_before_s = 0.0  # unless a site is ready
        self._holding = Holding(self.sites, rules, self.ledger)
        self._eligibility = Eligibility()
        self.rounds = Rounds(
            self.sites, policy, rules, self.ledger, self._holding, same_process=same_process
        )
        self._updates = JobUpdates(self.rounds, self._eligibility)
        self._write_offs = WriteOffs(self.sites, rules, self.ledger, self.rounds)
        self.checkpoints = CheckpointMoves(self.sites, rules, self.ledger)
        self._drains = Drains(self.sites, rules, self.ledger, self.rounds, self.checkpoints)
        self._growth = Growth(self.sites, rules, self.ledger, self.refusals_of)
        self.slow_nodes = SlowNodes(self.sites, rules, self.ledger, self.rounds)
        self._site_events = SiteEvents(
            self.sites, self.ledger, self.rounds, self._holding, self._write_offs, self.slow_nodes
        )
        self._deadlines = Deadlines(self.sites, self.ledger, self._holding)
        self._seen_s = 0.0  # when something was observed the last time

    # ---- history ----

    def replay(self, events: Iterable[LogRecord]) -> None:
        """Take the log in. Commands are not repeated: sites tell what became of them."""
        for event in events:
            self.ledger.apply(event)

    def begin_epoch(self, now_s: float, epoch: int = 0, log_began: int = 0) -> list[Command]:
        """Start a new term as leader; call once after ``replay``.

        Epochs grow with time, and first ids with epochs, so that both do so even across a log that
        was lost, or replaced by an older copy.

        Args:
            now_s: Unix time.
            epoch: the term's number at the store; the one that begins is no smaller.
            log_began: by which sites know the log, if it is empty; 0: by the epoch that begins.
        """
        turn = self._turn(now_s)
        self._site_events.log_epoch = self.ledger.epoch
        epoch = max(self.ledger.epoch + 1, int(now_s), epoch)
        first_id = max(self.ledger.next_id, first_id_of(epoch))
        log_began = self.ledger.log_began or log_began or epoch
        turn.record(EpochBegan(at_s=now_s, epoch=epoch, first_id=first_id, log_began=log_began))
        turn.commands.append(Wake(at_s=now_s))
        self._pass_not_before_s = now_s + FIRST_PASS_S
        self._write_offs.began_s = now_s
        turn.commands.append(Wake(at_s=self._pass_not_before_s))
        self._deadlines.begin(turn)
        self._eligibility.begin_epoch(turn)
        return without_orders(turn.commands, self.rules)

    def forget_ended(self, now_s: float, keep_s: float) -> list[Command]:
        """Know no more of what ended longer ago than ``keep_s``; see ``sched.state.expiry``.

        Before a snapshot is taken, so that the log does not grow for ever.
        """
        turn = self._turn(now_s)
        ids = forgettable(self.ledger, now_s - keep_s)
        for first in range(0, len(ids), FORGOTTEN_AT_ONCE):
            gone = ids[first : first + FORGOTTEN_AT_ONCE]
            turn.record(Forgotten(at_s=now_s, ids=gone))
        return without_orders(turn.commands, self.rules)

    def reconfigure(
        self,
        sites: Mapping[SiteName, tuple[str, ...]],
        policy: Policy,
        rules: Rules,
        tenancy: Tenancy,
        usage: UsageAverage,
        now_s: float,
    ) -> list[Command]:
        """Go on by another configuration, as after a restart; what sites do is not disturbed.

        A pass that is open is dropped, and the next one is due.

        Args:
            sites: as of ``__init__``; the news of one that is left out is ignored from now on.
            policy: ranks the queue.
            rules: see ``Rules``.
            tenancy: the tenants; none of its rows has been used.
            usage: an empty average, which goes on from the present one.
            now_s: Unix time.
        """
        views = {name: self.sites.get(name) for name in sites}
        gone = [name for name in self.sites if name not in sites]
        self.sites.clear()
        for name, view in views.items():
            kept = view is not None and view.partitions == sites[name]
            self.sites[name] = view if view and kept else SiteView(partitions=sites[name])
            self.sites[name].shadow = name in rules.shadow
            self.sites[name].advisory = name in rules.advisory
        self._policy = policy
        self.rules = self._holding.rules = self._write_offs.rules = self._drains.rules = rules
        self._growth.rules = self.checkpoints.rules = self.slow_nodes.rules = rules
        self.ledger.catalogue.domains = rules.storage
        recount(self.ledger, tenancy, usage, now_s)
        self._site_events.count_gpus()
        turn = self._turn(now_s)
        self.rounds.reconfigure(turn, policy, rules, gone)
        self._deadlines.begin(turn)
        self._updates.carry_out(turn)
        return without_orders(turn.commands, self.rules)

    # ---- the door ----

    def handle(self, observation: Observation, now_s: float) -> list[Command]:
        """Decide what to do about one observation.

        Args:
            observation: what happened.
            now_s: Unix time; never earlier than in the call before.

        Returns:
            Commands to carry out in order, records durably first.

        Raises:
            LogIsOld: a site has served a daemon that this log does not know; nothing may be
                started, for what waits here may run there.
        """
        return self.handle_all((observation,), now_s)

    def handle_all(self, observations: Sequence[Observation], now_s: float) -> list[Command]:
        """As ``handle``, of what has come at once: what follows from all of it is decided once."""
        turn = self._turn(now_s)
        self._seen_s = now_s
        for observation in observations:
            self._take_in(turn, observation)
            if self.ledger.unsettled:
                self._eligibility.settle(turn)
        if any(map(_may_end_a_round, observations)):
            self.rounds.conclude(turn)
        self._drains.settle(turn)
        self._write_offs.settle(turn)
        self._growth.settle(turn)
        self.slow_nodes.settle(turn)
        self.checkpoints.settle(turn)
        turn.evict_for_accepted()
        self._updates.carry_out(turn)
        if self.ledger.unsettled:
            self._eligibility.settle(turn)
        self._holding.release_like(turn)
        return without_orders(turn.commands, self.rules)

    def _take_in(self, turn: Transaction, observation: Observation) -> None:
        match observation:
            case SubmitAsked():
                submit(turn, observation, self.sites, self.rounds)
            case CancelAsked():
                cancel(turn, observation)
            case ControlAsked() | DrainAsked() | ResumeAsked() | WriteOffAsked() | QuotaAsked():
                self._asked_for(turn, observation)
            case (
                PlanAsked()
                | QuotasMeasured()
                | TiersMeasured()
                | StartsEstimated()
                | DataPlacementAsked()
            ):
                self._look_ahead(turn, observation)
            case DataAsked():
                change_catalogue(turn, observation)
                self.rounds.data_changed(turn)
            case CopySeen() | OutputSeen() | DataTidied():
                self._take_news_of_data(turn, observation)
            case SiteUp() | SiteDown() | SiteSent() | AttemptsShown():
                if observation.site in self.sites:  # else it was taken out meanwhile
                    self._site_events.take(turn, observation)
            case Tick():
                self._tick(turn)

    def _take_news_of_data(
        self, turn: Transaction, seen: CopySeen | OutputSeen | DataTidied
    ) -> None:
        if isinstance(seen, DataTidied):
            tidy_data(turn)
        elif isinstance(seen, OutputSeen):
            take_output(turn, seen)
        elif seen.name == CHECKPOINT:
            self.checkpoints.take(turn, seen)
        else:
            take_copy(turn, seen)
            if seen.phase in (CopyPhase.DONE, CopyPhase.FAILED):
                move_data(turn)  # another may be begun

    def _look_ahead(
        self,
        turn: Transaction,
        observed: PlanAsked | QuotasMeasured | TiersMeasured | StartsEstimated | DataPlacementAsked,
    ) -> None:
        match observed:
            case TiersMeasured():
                self.rounds.tariff.factors = observed.factors
            case QuotasMeasured():
                unused_quotas.quotas_measured(turn, observed)
            case StartsEstimated():
                self.rounds.memory.starts = self.checkpoints.starts = observed.starts
            case DataPlacementAsked():
                take_data_plan(turn, observed)
            case PlanAsked():
                turn.record(Planned(at_s=turn.now_s, plan=observed.plan))
                turn.commands.append(AnswerPlanned(client=observed.client))
                self.rounds.is_due(turn)  # somebody may be lent what was kept before

    def ranked(self, now_s: float) -> Sequence[Ranked]:
        """All pending workloads in the order in which a pass would try them now, for a report.

        It leaves the backlog's quota scan renewed; see ``Backlog.unchanged``.
        """
        return self._policy.rank(self.ledger, now_s).listed()

    def ranked_one_by_one(self, now_s: float) -> Iterator[Ranked]:
        """The same, for one who wants the first alone."""
        return iter(self._policy.rank(self.ledger, now_s))

    def is_ready(self, site: SiteName) -> bool:
        """Whether a site is there, and may be asked."""
        view = self.sites.get(site)
        return view is not None and view.ready

    def refusals_of(
        self, entry: WorkloadRecord, spoken: Spoken | None = None
    ) -> Mapping[SiteName, Refusal]:
        """Why a workload waits: as ``PassMemory.refusals_of``."""
        said = self.rounds.memory.refusals_of(entry, self._seen_s, spoken)
        if not entry.saved_at:
            return said
        id_, says = entry.workload.id, self.checkpoints.with_progress
        return {site: says(id_, refusal) for site, refusal in said.items()}

    def eviction_budget(self, now_s: float) -> tuple[float, float]:
        """The GPUs that may be evicted in any window, and those that may be now."""
        rules = self.rules
        whole = whole_budget_gpus(rules, self._site_events.fleet_gpus)
        return whole, budget_gpus(self.ledger, rules, self._site_events.fleet_gpus, now_s)

    def claims(self) -> list[tuple[Claimed, int]]:
        """The claims, first to be served first, each with the GPUs that are still to be evicted."""
        return self.rounds.memory.needed_gpus()

    def lendable_gpus(self, now_s: float) -> list[float]:
        """The GPUs that may be lent now to work that cannot be evicted, by window of the plan."""
        return self.rounds.guests.now(self._turn(now_s)).lendable_gpus()

    # ---- operators ----

    def _asked_for(
        self,
        turn: Transaction,
        asked: ControlAsked | DrainAsked | ResumeAsked | WriteOffAsked | QuotaAsked,
    ) -> None:
        match asked:
            case ControlAsked():
                self._updates.take(turn, asked)
            case DrainAsked():
                self._drains.drain(turn, asked)
            case ResumeAsked():
                self._drains.resume(turn, asked)
            case WriteOffAsked():
                self._write_offs.write_off(turn, asked)
            case QuotaAsked():
                unused_quotas.quota_asked(turn, asked)

    # ---- time ----

    def _tick(self, turn: Transaction) -> None:
        self._eligibility.time_passed(turn)
        self._deadlines.passed(turn)
        if unused_quotas.time_passed(turn):
            self.rounds.is_due(turn)  # somebody may be lent what was kept before
        self.rounds.conclude(turn)
        self._updates.carry_out(turn)
        self.rounds.open_if_due(turn, anyway=turn.now_s >= self._pass_not_before_s)

    def _turn(self, now_s: float) -> Transaction:
        return Transaction(
            now_s=now_s,
            ledger=self.ledger,
            rules=self.rules,
            fleet_gpus=self._site_events.fleet_gpus,
            leave_sent_s=self._deadlines.leave_sent_s,
            left_alone=self._deadlines.left_alone,
            limits=self._deadlines.limits,
            pass_is_due=self.rounds.is_due,
        )


def _may_end_a_round(observation: Observation) -> bool:
    """Tell whether a site that was waited for has answered, or never will."""
    if isinstance(observation, SiteSent):
        return isinstance(observation.message, BidsMade)
    return isinstance(observation, SiteDown | DrainAsked | WriteOffAsked)
