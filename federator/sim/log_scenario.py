"""What did a daemon live through? Its event log as a scenario, to be lived through once more.

A workload holds its nodes as long as the daemon's log says: from its award to the news of its end.
One that was awarded at once comes when it was awarded, since sites look at their Slurm before they
bid. So the simulation sees each site with what was free there when bids were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from federator.errors import InvalidRequest
from federator.model.event import Awarded, Changed, LogRecord, Submitted
from federator.model.lifecycle import TERMINAL
from federator.model.tenant import Tenant
from federator.model.workload import WorkloadId
from federator.sched.ledger import Ledger
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
    """``placements`` are the daemon's own, one for each arrival."""

    scenario: Scenario
    placements: tuple[Placement, ...]


PROMPT_S: Final = 2.0  # an award so soon was made when the submission came


class _Story:
    """What a log says of one workload. Times are those of the log."""

    def __init__(self, submitted: Submitted) -> None:
        self.submitted = submitted
        self.came_s = submitted.at_s
        self.award: Awarded | None = None
        self.began_s = 0.0  # when that happened which led to the award
        self.over_s = 0.0

    def arrival(self, began_s: float) -> Arrival:
        """``began_s``: when the scenario's clock begins."""
        return Arrival(
            at_s=self.came_s - began_s,
            draft=replace(self.submitted.draft, array_indices=()),
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
        InvalidRequest: a workload was never awarded, tried twice, or has not ended: that is not
            the whole story, or one that depends on what sites did by themselves.
    """
    ledger = Ledger()
    stories: dict[WorkloadId, _Story] = {}
    freed_s = 0.0  # when something came free, the last time
    for event in events:
        ledger.apply(event)
        match event:
            case Submitted():
                for workload in event.workloads():
                    stories[workload.id] = _Story(event)
            case Awarded():
                story = stories[event.attempt.workload]
                story.award, story.began_s = event, max(freed_s, story.submitted.at_s)
                if event.at_s - story.submitted.at_s <= PROMPT_S:
                    story.came_s = story.began_s = event.at_s
            case Changed() if ledger.entries[event.workload].state in TERMINAL:
                stories[event.workload].over_s = freed_s = event.at_s
    for id_, story in stories.items():
        if story.award is None or not story.over_s or ledger.entries[id_].attempt != 1:
            raise InvalidRequest(f"workload {id_}: expected one award and an end in the log")
    told = sorted(stories.values(), key=lambda story: story.came_s)
    began_s = told[0].came_s if told else 0.0
    scenario = Scenario(
        sites=sites,
        tenants=tenants,
        arrivals=tuple(story.arrival(began_s) for story in told),
    )
    placements = tuple(Placement.of(story.award) for story in told if story.award is not None)
    return LivedThrough(scenario, placements)
