"""What does one scheduling pass decide? As ``Pass``, ``Bidding`` and ``auction``, in rounds.

Room only shrinks during a pass, and no reservation is ever made, for want of time limits. So what
no site can take when the pass begins is refused whenever it is asked about, and it does not matter
that it was. Left to decide are the jobs that a site could take; in rank order, where they are more
than one. Only the mix of requests minds who else is asked and when; where that may come out
differently every window is made up as the federation does it (``_in_windows``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from federator.sched.bidding import EXPLAINED
from federator.sim.fast.asked import AskedShape
from federator.sim.fast.flat_site import FlatBid, FlatPlan, FlatSite
from federator.sim.fast.lanes import WaitingJobs
from federator.sim.fast.shared_mix import SharedMix

Launch = tuple[int, FlatSite, FlatPlan]


@dataclass(frozen=True, slots=True)
class FlatOutcome:
    """What became of the jobs of a round; as ``auction.Outcome``."""

    launches: list[Launch]
    again: list[int]
    refused: list[int]


class FlatPasses:
    """The passes of one replay.

    Args:
        waiting: the queue; who is launched leaves it.
        shapes: of the jobs, by position.
        sites: in the order that breaks ties.
        mix: of the requests to all of them.
        window: jobs asked about in one message to a site.
    """

    def __init__(
        self, waiting: WaitingJobs, shapes: Sequence[AskedShape], sites: Sequence[FlatSite],
        mix: SharedMix, window: int,
    ) -> None:  # fmt: skip
        self._waiting = waiting
        self._shapes = shapes
        self._sites = sites
        self._mix = mix
        self._window: Final = window
        self.unnoted: dict[int, None] = {}  # waiting jobs that the mix does not know
        self._now_s = 0.0

    def run(
        self, now_s: float, came: Iterable[int], freed: Collection[FlatSite]
    ) -> list[Launch]:
        """One pass.

        Args:
            now_s: of the federation.
            came: jobs that wait since the last pass.
            freed: sites where something came free since the last pass. What waited then, no other
                site can take now.

        Returns:
            Who starts where; it is taken from the sites and the queue.
        """
        self._now_s = now_s
        waiting = self._waiting
        self.unnoted.update(dict.fromkeys(came))
        if not waiting.jobs:
            return []
        possible = self._possible(came, freed)
        if self._windows_matter():
            return self._in_windows()
        asked = list(waiting.by_shape)
        jobs = waiting.of_shapes(possible)
        minded = {*jobs, *self.unnoted}
        if len(minded) > 1:
            ranked = waiting.ranked(minded, now_s)
            self._note(ranked)
            jobs = [job for job in ranked if self._shapes[job] in possible]
        else:
            self._note(minded)
        return self._in_rounds(jobs, asked)

    # ---- who is asked ----

    def _possible(self, came: Iterable[int], freed: Iterable[FlatSite]) -> set[AskedShape]:
        """What may be placed: of the new anywhere, of the others where something came free."""
        new = {self._shapes[job] for job in came}
        possible = {shape for shape in new if any([site.fits(shape) for site in self._sites])}
        for site in freed:
            possible.update([shape for shape in self._waiting.by_shape if site.fits(shape)])
        return possible

    def _windows_matter(self) -> bool:
        """Tell whether it may matter who is asked in the same message, and who at all.

        With more waiting than are asked at once; where the mix forgets a job that it must note
        again; and where the explained refusals may be used up by those that price nothing.
        """
        waiting, sites = self._waiting, self._sites
        if len(waiting.jobs) > self._window:
            return True
        if self._mix.would_forget(len(self.unnoted), waiting.jobs):
            return True
        return len(waiting.by_shape) > EXPLAINED and any(site.nodes.starved() for site in sites)

    def _note(self, jobs: Iterable[int]) -> None:
        mix = self._mix
        for job in jobs:
            if not mix.knows(job):
                forgotten = mix.note(job, self._shapes[job])
                self.unnoted.pop(job, None)
                if forgotten is not None and forgotten in self._waiting.jobs:
                    self.unnoted[forgotten] = None

    def _in_rounds(self, jobs: list[int], asked: Sequence[AskedShape]) -> list[Launch]:
        """All that wait are asked about in each message; ``jobs`` are those that matter."""
        launches: list[Launch] = []
        first = True
        while first or self._fits_any(jobs):
            outcome = self._round(jobs)
            if first:  # later, who prices nothing has nothing new to price
                self._weigh_where_refused(asked)
            self._carry_out(outcome)
            launches += outcome.launches
            jobs, first = outcome.again, False
        return launches

    def _in_windows(self) -> list[Launch]:
        """Message by message, as ``Pass.next_window`` makes them up."""
        launches: list[Launch] = []
        rest = iter(self._waiting.ranked(self._waiting.jobs, self._now_s))
        failed: dict[AskedShape, bool] = {}  # whether a shape is known to fail everywhere
        again: list[int] = []
        while True:
            window = again
            while len(window) < self._window and (job := next(rest, None)) is not None:
                if not failed.get(self._shapes[job]):
                    window.append(job)
            if not window:
                return launches
            self._note(window)
            outcome = self._round(window)
            self._weigh_where_refused(dict.fromkeys([self._shapes[job] for job in window]))
            self._carry_out(outcome)
            launches += outcome.launches
            refused = {self._shapes[job] for job in outcome.refused}
            for shape in self._waiting.by_shape:
                if any(other.implies(shape) for other in refused):
                    failed[shape] = True
            again = outcome.again
            if not self.unnoted and not self._fits_any(self._waiting.jobs):
                return launches

    def _fits_any(self, jobs: Iterable[int]) -> bool:
        shapes = {self._shapes[job] for job in jobs}
        return any(site.fits(shape) for shape in shapes for site in self._sites)

    # ---- one round ----

    def _round(self, jobs: Sequence[int]) -> FlatOutcome:
        """Ask all sites about some jobs, in this order, and award them."""
        if len(jobs) == 1:
            return self._alone(jobs[0])
        outcome = FlatOutcome([], [], [])
        lost_a_hold: set[FlatSite] = set()
        refused: set[AskedShape] = set()  # of which nobody has room for another
        for job in jobs:
            shape = self._shapes[job]
            bids = [] if shape in refused else self._bids(shape)
            if not bids:
                refused.add(shape)
                (outcome.again if lost_a_hold else outcome.refused).append(job)
                continue
            held_back = False
            for _, _, _, site, bid in bids:
                if site.is_held_back(shape, bid) and site in lost_a_hold:
                    held_back = True
                site.hold(bid.plan)
            if held_back:
                outcome.again.append(job)
                continue
            _, _, _, winner, bid = min(bids)
            outcome.launches.append((job, winner, bid.plan))
            lost_a_hold.update([site for _, _, _, site, _ in bids if site is not winner])
        for site in self._sites:
            site.close()
        return outcome

    def _alone(self, job: int) -> FlatOutcome:
        """The same of one job, where no hold is in anybody's way."""
        bids = self._bids(self._shapes[job])
        if not bids:
            return FlatOutcome([], [], [job])
        _, _, _, winner, bid = min(bids)
        return FlatOutcome([(job, winner, bid.plan)], [], [])

    def _bids(self, shape: AskedShape) -> list[tuple[float, float, int, FlatSite, FlatBid]]:
        """With what decides between them: the score, and the order of the sites."""
        return [
            (bid.locality_cost, bid.fragmentation, site.rank, site, bid)
            for site in self._sites
            if (bid := site.bid(shape)) is not None
        ]

    def _weigh_where_refused(self, asked: Iterable[AskedShape]) -> None:
        """Sites that have bid nothing may have put a price on what they offered instead."""
        for site in self._sites:
            if site.unweighed and self._prices_in_refusing(site, asked):
                site.weigh_anew()

    def _prices_in_refusing(self, site: FlatSite, asked: Iterable[AskedShape]) -> bool:
        explained: list[AskedShape] = []
        for shape in asked:
            if len(explained) >= EXPLAINED:
                return False
            if site.never_fits(shape) or any(known.implies(shape) for known in explained):
                continue
            if site.prices_in_refusing(shape):
                return True
            explained.append(shape)
        return False

    def _carry_out(self, outcome: FlatOutcome) -> None:
        for job, site, plan in outcome.launches:
            site.take(plan)
            self._waiting.start(job, self._now_s)
            self.unnoted.pop(job, None)
