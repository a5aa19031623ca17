"""Records what becomes of each arrival of a simulation, and how the fleet stands meanwhile."""

from __future__ import annotations

from typing import Final

from federator.model.event import Awarded, Changed, Claimed, ClaimEnded, LogRecord
from federator.model.lifecycle import WorkloadEvent
from federator.model.message import AnswerRefused, AnswerSubmitted
from federator.model.reason import ReasonCode
from federator.model.workload import SiteName, WorkloadId
from federator.sim.scenario import AttemptInterval, FleetSample, JobTrace, Scenario
from federator.sim.site_state import SimulatedAttempt
from federator.sim.trace import ReplayOptions

BEGIN_S: Final = 1_000_000.0  # of virtual time; the scenario's clock begins here


class JobRecords:
    """The lives of all arrivals.

    Args:
        scenario: with the arrivals.
        options: of the replay.

    Attributes:
        lives: one for each arrival, in their order.
        samples: the fleet from one instant to the next.
        awards: in order, if ``options.keep_awards``.
        over: arrivals that have ended, or were refused.
        changed_at_s: when something ended or came, the last time.
    """

    def __init__(self, scenario: Scenario, options: ReplayOptions) -> None:
        self._arrivals = scenario.arrivals
        self._options = options
        start_state = scenario.start_state
        known = start_state.known if start_state is not None else ()
        self._begin_s = start_state.begin_s if start_state is not None else BEGIN_S
        self._index_of = {id_: index for index, id_ in enumerate(known)}
        self._left_s = [arrival.duration_s for arrival in scenario.arrivals]  # useful work to do
        self._waiting_gpus = sum(self._asked_gpus(id_) for id_ in known)
        self.lives = [JobTrace() for _ in scenario.arrivals]
        self.samples: list[FleetSample] = []
        self.awards: list[Awarded] = []
        self.over = 0
        self.changed_at_s = self._begin_s

    def index(self, id_: WorkloadId) -> int:
        return self._index_of[id_]

    def life(self, id_: WorkloadId) -> JobTrace:
        return self.lives[self._index_of[id_]]

    # ---- work ----

    def left_s(self, id_: WorkloadId) -> float:
        """Useful work that is still to do when an attempt starts."""
        return self._left_s[self._index_of[id_]]

    def has_saved(self, id_: WorkloadId) -> bool:
        """Tell whether an attempt starts from a checkpoint."""
        index = self._index_of[id_]
        return self._left_s[index] < self._arrivals[index].duration_s

    def speed(self, attempt: SimulatedAttempt) -> float:
        """Useful work in a second of an attempt: 1, unless it is elastic and of another size."""
        nodes = sum(len(plan.nodes) for plan in attempt.order.jobs)
        return self._arrivals[self._index_of[attempt.order.workload.id]].speed(nodes)

    def done_s(self, attempt: SimulatedAttempt, now_s: float) -> float:
        """Useful work of an attempt so far."""
        left_s = self.left_s(attempt.order.workload.id)
        return min(left_s, max(0.0, now_s - attempt.works_from_s) * attempt.speed)

    # ---- steps ----

    def answered(self, answer: AnswerSubmitted | AnswerRefused) -> None:
        """An arrival, whose index is that of the client, has its id; or it is not queued."""
        if isinstance(answer, AnswerRefused):
            life = self.lives[answer.client]
            life.refused, life.refusals = True, answer.refusals
            self.over += 1
            self._options.progress(1)
        else:
            self._index_of[answer.id] = answer.client
            self._waiting_gpus += self._asked_gpus(answer.id)

    def launched(self, id_: WorkloadId) -> None:
        self._waiting_gpus -= self._asked_gpus(id_)

    def started(self, id_: WorkloadId, site: SiteName, now_s: float) -> None:
        life = self.life(id_)
        life.start_s = now_s - self._begin_s
        life.first_start_s = life.start_s if life.first_start_s < 0 else life.first_start_s
        life.site = site

    def requeued(self, attempt: SimulatedAttempt, done_s: float, kept_s: float) -> None:
        """An attempt ends before its work is done, and has saved this much of it."""
        index = self._index_of[attempt.order.workload.id]
        self._left_s[index] -= kept_s
        self.lives[index].lost_gpu_s += (done_s - kept_s) / attempt.speed * attempt.gpus
        self.lives[index].useful_gpu_s += kept_s / attempt.speed * attempt.gpus
        self._waiting_gpus += self._asked_gpus(attempt.order.workload.id)

    def left_site(self, attempt: SimulatedAttempt, now_s: float) -> None:
        """An attempt that ran does no more."""
        stay = AttemptInterval(
            attempt.order.site, attempt.started_at_s - self._begin_s, now_s - self._begin_s
        )
        self.life(attempt.order.workload.id).stays.append(stay)

    def completed(self, attempt: SimulatedAttempt) -> None:
        """An attempt has done all that was left."""
        id_ = attempt.order.workload.id
        self.life(id_).useful_gpu_s += self.left_s(id_) / attempt.speed * attempt.gpus

    def ended(self, id_: WorkloadId, now_s: float) -> None:
        self.life(id_).end_s = now_s - self._begin_s
        self.over += 1
        self.changed_at_s = now_s
        self._options.progress(1)

    def sample(self, held_gpus: int, now_s: float) -> None:
        """Note how the fleet stands now."""
        self.samples.append(FleetSample(now_s - self._begin_s, held_gpus, self._waiting_gpus))

    # ---- decisions ----

    def take(self, event: LogRecord, now_s: float) -> None:
        """Take an event of the federation's log."""
        match event:
            case Awarded():
                self._awarded(event, now_s)
            case Changed(happening=WorkloadEvent.REQUEUE_ASKED):
                is_resize = event.reason is not None and event.reason.code is ReasonCode.RESIZED
                self.life(event.workload).resizes += is_resize
            case Claimed():
                self.life(event.workload).promised_s = event.promised_by_s - self._begin_s
            case ClaimEnded():
                self.life(event.workload).promised_s = -1.0

    def _awarded(self, award: Awarded, now_s: float) -> None:
        if self._options.keep_awards:
            self.awards.append(award)
        life = self.life(award.attempt.workload)
        if award.attempt.attempt == 1:
            life.within_quota = award.within_quota
        if life.promised_s >= 0:
            kept = now_s - self._begin_s <= life.promised_s
            life.claims_kept += kept
            life.claims_broken += not kept
            life.promised_s = -1.0

    def _asked_gpus(self, id_: WorkloadId) -> int:
        arrival = self._arrivals[self._index_of[id_]]
        return sum(job.total_gpus for job in arrival.draft.jobs)
