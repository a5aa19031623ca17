"""One scheduling pass, in rounds: as ``SchedulingPass``, ``Bidding`` and ``auction`` decide it.

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

from federator.sched.bid.bids import EXPLAINED
from federator.sim.fast.flat_site import UNASKED, FlatBid, FlatPlan, FlatSite
from federator.sim.fast.lanes import WaitingJobs
from federator.sim.fast.request_shape import AskedShape
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
        self,
        waiting: WaitingJobs,
        shapes: Sequence[AskedShape],
        sites: Sequence[FlatSite],
        mix: SharedMix,
        window: int,
    ) -> None:
        self._waiting = waiting
        self._shapes = shapes
        self._sites = sites
        self._mix = mix
        self._window: Final = window
        self.unnoted: dict[int, None] = {}  # waiting jobs that the mix does not know
        self._now_s = 0.0
        self._all_weighed_at = -1  # epoch of the mix

    def run(self, now_s: float, came: Iterable[int], freed: Collection[FlatSite]) -> list[Launch]:
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
        self.unnoted.update(dict.fromkeys(came))
        waiting = self._waiting
        if not waiting.jobs:
            return []
        if len(waiting.jobs) == 1:
            return self._lone(*waiting.jobs)
        possible = self._possible(came, freed)
        beyond = len(waiting.jobs) > self._window and (possible or self.unnoted)
        if beyond or self._may_stay_unexplained():
            return self._in_windows()
        asked = list(waiting.by_shape)
        jobs = [job for shape in possible for job in self._in_reach(shape)]
        minded = {*jobs, *self.unnoted}
        minded.update(self._mix.forgotten_for(len(self.unnoted), waiting.jobs))
        if len(minded) > 1:
            ranked = waiting.ranked(minded, now_s)
            self._note(ranked)
            if self.unnoted and possible:  # forgotten after their turn: asked in vain, and noted
                return self._in_windows(noted=True)
            jobs = [job for job in ranked if self._shapes[job] in possible]
        else:
            self._note(minded)
        return self._in_rounds(jobs, asked)

    # ---- who is asked ----

    def _lone(self, job: int) -> list[Launch]:
        """Nobody else waits."""
        if self.unnoted:
            self._note((job,))
        bids = self._bids(self._shapes[job])
        self._weigh_where_refused((self._shapes[job],))
        if not bids:
            return []
        *_, winner, best = min(bids)
        launch = (job, winner, best.plan)
        self._carry_out(launch)
        return [launch]

    def _possible(self, came: Iterable[int], freed: Iterable[FlatSite]) -> set[AskedShape]:
        """What may be placed: of the new anywhere, of the others where something came free."""
        new = {self._shapes[job] for job in came}
        possible = {shape for shape in new if self._fits(shape)}
        for site in freed:
            possible.update([shape for shape in self._waiting.by_shape if site.fits(shape)])
        return possible

    def _in_reach(self, shape: AskedShape) -> list[int]:
        """Waiting jobs of a shape, among them all that any site may bid for in this pass.

        Those of one shape get bids from the first on, until nobody has room. So nobody bids for
        more of them than are placed in the whole pass, and in the last round once more.
        """
        count = len(self._waiting)
        if shape.gpus:
            room = sum([site.nodes.reachable // shape.gpus for site in self._sites])
            count = min(count, 2 * room)
        return self._waiting.first_of(shape, count)

    def _may_stay_unexplained(self) -> bool:
        """Tell whether refusals that price nothing may use up the explanations of a message."""
        waiting, sites = self._waiting, self._sites
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
        outcome = self._round(jobs)
        self._weigh_where_refused(asked)  # later, who prices nothing has nothing new to price
        self._carry_out(*outcome.launches)
        launches = outcome.launches
        while outcome.again and self._fits_any(outcome.again):
            outcome = self._round(outcome.again)
            self._carry_out(*outcome.launches)
            launches += outcome.launches
        return launches

    def _in_windows(self, noted: bool = False) -> list[Launch]:
        """Message by message, as ``SchedulingPass.next_window`` makes them up.

        Args:
            noted: those of the first message are noted already.
        """
        launches: list[Launch] = []
        rest = iter(self._waiting.ranked(self._waiting.jobs, self._now_s))
        failed: set[AskedShape] = set()  # known to fail everywhere
        again: list[int] = []
        while True:
            window = again
            while len(window) < self._window and (job := next(rest, None)) is not None:
                if self._shapes[job] not in failed:
                    window.append(job)
            if not window:
                return launches
            if not noted:
                self._note(window)
            noted = False
            outcome = self._round(window)
            self._weigh_where_refused(dict.fromkeys([self._shapes[job] for job in window]))
            self._carry_out(*outcome.launches)
            launches += outcome.launches
            for refused in {self._shapes[job] for job in outcome.refused}:
                failed.update([s for s in self._waiting.by_shape if refused.implies(s)])
            again = outcome.again
            if not self.unnoted and not self._fits_any(self._waiting.jobs):
                return launches

    def _fits(self, shape: AskedShape) -> bool:
        for site in self._sites:  # noqa: SIM110 - any() is slower
            if site.fits(shape):
                return True
        return False

    def _fits_any(self, jobs: Iterable[int]) -> bool:
        return any(self._fits(shape) for shape in {self._shapes[job] for job in jobs})

    # ---- one round ----

    def _round(self, jobs: Sequence[int]) -> FlatOutcome:
        """Ask all sites about some jobs, in this order, and award them."""
        outcome = FlatOutcome([], [], [])
        lost_a_hold: set[FlatSite] = set()
        holding: set[FlatSite] = set()
        refused: set[AskedShape] = set()  # of which nobody has room for another
        last = len(jobs) - 1
        for position, job in enumerate(jobs):
            shape = self._shapes[job]
            bids = [] if shape in refused else self._bids(shape)
            if not bids:
                refused.add(shape)
                (outcome.again if lost_a_hold else outcome.refused).append(job)
                continue
            held_back = [
                site in lost_a_hold
                for *_, site, bid in bids
                if bid.racks > 1 and site.is_held_back(shape, bid)
            ]
            if any(held_back):
                outcome.again.append(job)
            else:
                *_, winner, best = min(bids)
                outcome.launches.append((job, winner, best.plan))
                lost_a_hold.update([site for *_, site, _ in bids if site is not winner])
            if position < last:
                for *_, site, bid in bids:
                    site.hold(bid.plan)
                    holding.add(site)
        for site in holding:
            site.close()
        return outcome

    def _bids(self, shape: AskedShape) -> list[tuple[int, float, float, int, FlatSite, FlatBid]]:
        """With what decides between them: the score, and the order of the sites."""
        epoch = self._mix.epoch
        found = []
        for site in self._sites:
            bid = site.known.get(shape, UNASKED)
            if bid is not None and bid.epoch != epoch:
                bid = site.bid(shape)
            if bid is not None:
                score = bid.gpus_unasked, bid.locality_cost, bid.fragmentation
                found.append((*score, site.rank, site, bid))
        return found

    def _weigh_where_refused(self, asked: Iterable[AskedShape]) -> None:
        """Sites that have bid nothing may have put a price on what they offered instead."""
        if self._all_weighed_at == self._mix.epoch:
            return
        left = 0
        for site in self._sites:
            if site.unweighed:
                if site.nodes.levels >= 2 and self._prices_in_refusing(site, asked):
                    site.weigh_anew()
                else:
                    left += 1
        if not left:
            self._all_weighed_at = self._mix.epoch

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

    def _carry_out(self, *launches: Launch) -> None:
        for job, site, plan in launches:
            site.take(plan)
            self._waiting.start(job, self._now_s)
            self.unnoted.pop(job, None)
