"""Reads a daemon's event log as a scenario, to be replayed.

A workload holds its nodes as long as the daemon's log says: from what led to its award (its own
submission, or the end of another) to the news of its end. So the simulation sees each site with
what was free there when bids were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from federator.errors import InvalidRequest
from federator.model.eligibility import NO_DEPENDENCY, Hold
from federator.model.event import Amended, Awarded, Changed, LogRecord, Submitted
from federator.model.lifecycle import TERMINAL, WorkloadEvent
from federator.model.tenant import Tenant
from federator.model.workload import WorkloadId
from federator.sched.state.amendment import asks_for_other
from federator.sched.state.ledger import Ledger
from federator.sim.scenario import Arrival, Scenario, SimulatedSite


class Placement(NamedTuple):
    """Where an award put a workload: of each of its jobs, the nodes with their GPUs."""

    site: str
    nodes: tuple[tuple[tuple[str, int], ...], ...]

    @classmethod
    def of(cls, award: Awarded) -> Placement:
        nodes = (tuple((n, s.gpus) for n, s in plan.nodes.items()) for plan in award.jobs)
        return cls(str(award.site), tuple(nodes))


class LivedThrough(NamedTuple):
    """What the daemon lived through, and where it put each arrival.

    ``prompt``: nothing waited. Where work waits, the simulator may award otherwise: which of two
    messages came first, that were on their way together, is not in the log.
    """

    scenario: Scenario
    placements: tuple[Placement, ...]
    prompt: bool


PROMPT_S: Final = 2.0  # an award so soon was made when the submission came


@dataclass(slots=True)
class _Story:
    """What a log says of one workload. Times are those of the log; 0: it does not say."""

    submitted: Submitted
    came_s: float  # into the queue: with its submission, or when it could start
    award: Awarded | None = None
    freed_s: float = 0.0  # when something had come free, the last time before its award
    over_s: float = 0.0

    @property
    def is_prompt(self) -> bool:
        return self.award is not None and self.award.at_s - self.came_s <= PROMPT_S

    @property
    def began_s(self) -> float:
        """When that happened which led to its award."""
        if self.is_prompt:
            return self.came_s
        return max(self.freed_s, self.came_s)

    def arrival(self, began_s: float) -> Arrival:
        """``began_s``: when the scenario's clock begins."""
        return Arrival(
            at_s=self.came_s - began_s,
            # one attempt did it all, whatever it asked for, and whatever it had waited for
            draft=replace(
                self.submitted.draft,
                array_indices=(),
                continues=False,
                hold=Hold.NONE,
                begin_at_s=0.0,
                waits_for=NO_DEPENDENCY,
            ),
            duration_s=self.over_s - self.began_s,
        )


def scenario_of_log(
    events: Sequence[LogRecord], sites: tuple[SimulatedSite, ...], tenants: tuple[Tenant, ...]
) -> LivedThrough:
    """A log in which every workload was awarded once, and ended.

    Args:
        events: of a daemon, from the first on.
        sites: as they were, in the daemon's order, with nothing on them.
        tenants: as they were configured.

    Raises:
        InvalidRequest: a workload was never awarded, tried twice, changed, or has not ended: that
            is not the whole story, or one that depends on what sites did by themselves.
    """
    ledger = Ledger()
    stories: dict[WorkloadId, _Story] = {}
    freed_s = 0.0
    for event in events:
        ledger.apply(event)
        match event:
            case Submitted():
                for workload in event.workloads():
                    stories[workload.id] = _Story(event, event.at_s)
            case Awarded():
                story = stories[event.attempt.workload]
                story.award, story.freed_s = event, freed_s
            case Changed(happening=WorkloadEvent.ELIGIBLE):
                stories[event.workload].came_s = event.at_s
            case Amended() if asks_for_other(event):
                raise InvalidRequest(f"workload {event.workloads[0]} was changed while it waited")
            case Changed() if ledger.entries[event.workload].state in TERMINAL:
                stories[event.workload].over_s = freed_s = event.at_s
    for id_, story in stories.items():
        if story.award is None or not story.over_s or ledger.entries[id_].attempt != 1:
            raise InvalidRequest(f"workload {id_}: expected one award and an end in the log")
    _seen_before_bidding(list(stories.values()))
    ordered = sorted(stories.values(), key=lambda story: story.came_s)
    began_s = ordered[0].came_s if ordered else 0.0
    scenario = Scenario(
        sites=sites,
        tenants=tenants,
        arrivals=tuple(story.arrival(began_s) for story in ordered),
    )
    placements = tuple(Placement.of(story.award) for story in ordered if story.award is not None)
    return LivedThrough(scenario, placements, all(story.is_prompt for story in ordered))


def _seen_before_bidding(stories: Sequence[_Story]) -> None:
    """Sites look at their Slurm when they are asked: what ended by then was over when it came."""
    asked = [(s.came_s, s.award.at_s) for s in stories if s.is_prompt and s.award]
    for story in stories:
        for came_s, awarded_s in asked:
            if came_s < story.over_s <= awarded_s:
                story.over_s = came_s
            if came_s < story.freed_s <= awarded_s:
                story.freed_s = came_s
