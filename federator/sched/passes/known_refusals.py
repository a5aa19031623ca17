"""Remembers what each site has refused for want of hardware, until something comes free there.

A site's room only shrinks while nothing comes free, whoever starts there. So what it has refused it
would refuse again, in later passes too, and need not be asked: a pass costs what has changed since
the last one. Sites count how often something came free (``BidsMade.freed``, ``Report.freed``); a
site that does not say so is asked anew in each pass.

When a refused workload could start depends on more: on what has started since. So a prediction is
forgotten at the next award to its site, while the refusal holds.

Source:
    MAST (OSDI'24) sec. 4.3, "negative cache", which holds for one pass; here for as long as it is
    true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from federator.model.reason import Refusal
from federator.model.workload import Job, SiteName
from federator.sched.bid.negative_cache import NOBODY, NegativeCache, as_for, of_hardware

SHAPES_KEPT: Final = 65_536  # of all sites, and of one


@dataclass(slots=True)
class _Said:
    """A site's own words about a shape.

    ``starts_at_s``: Unix time at which it could start; None: the site did not say. It holds as of
    so many ``awards``.
    """

    jobs: tuple[Job, ...]
    refusal: Refusal
    at_s: float
    starts_at_s: float | None
    awards: int


@dataclass(slots=True)
class _Site:
    """The refusals of one site since something last came free there."""

    freed: int = 0  # as the site counts; 0: it does not say
    failures: NegativeCache[Refusal] = field(default_factory=NegativeCache)
    count: int = 0  # of failures that were added
    tried: dict[int, int] = field(default_factory=dict)  # of how many a shape does not follow
    said: dict[int, _Said] = field(default_factory=dict)  # by number of the shape
    predicts: bool = False  # whether it has told of any refused one when it could start
    generation: int = 0  # how often all this was forgotten
    awards: int = 0  # since then: each may change when others could start


class KnownRefusals:
    """The refusals of all sites, by site and shape (``Backlog.number_of``).

    Sets of sites are bits, in the order of ``sites``.

    Args:
        sites: all that may be asked.
    """

    def __init__(self, sites: Iterable[SiteName]) -> None:
        self._bits: Final = {site: 1 << k for k, site in enumerate(sites)}
        self._sites = {site: _Site() for site in self._bits}
        self._refusing: dict[int, int] = {}  # sites, by shape
        self._predicting = 0  # sites of which ``predicts`` holds

    def bits(self, sites: Iterable[SiteName]) -> int:
        found = 0
        for site in sites:
            found |= self._bits[site]
        return found

    def heard(self, site: SiteName, freed: int) -> bool:
        """Take what a site says of how often something came free; whether that is news."""
        if self._sites[site].freed == freed:
            return False
        self.forget(site)
        self._sites[site].freed = freed
        return True

    def generation(self, site: SiteName) -> int:
        """A number that changes when what a site has said before holds no more."""
        return self._sites[site].generation

    def begin_pass(self) -> None:
        """Forget what holds for one pass only: what sites said that do not tell what came free."""
        too_much = len(self._refusing) >= SHAPES_KEPT
        self.forget(
            *(
                site
                for site, known in self._sites.items()
                if too_much or (known.count and not known.freed) or len(known.tried) >= SHAPES_KEPT
            )
        )
        if too_much:
            self._refusing.clear()

    def forget(self, *sites: SiteName) -> None:
        """Sites have come, gone or changed; of others nothing is known."""
        gone = 0
        for site in (site for site in sites if site in self._sites):
            known = self._sites[site]
            self._sites[site] = _Site(generation=known.generation + 1)
            if known.count:
                gone |= self._bits[site]
        if gone:
            self._predicting &= ~gone
            self._refusing = {number: left & ~gone for number, left in self._refusing.items()}

    def forget_predictions(self, site: SiteName) -> None:
        """Something starts at a site: when others could start is to be asked again."""
        self._sites[site].awards += 1

    def learn(
        self, site: SiteName, number: int, jobs: tuple[Job, ...], refusal: Refusal, now_s: float
    ) -> None:
        """Take a refusal that holds for whoever asks for the same, if it does."""
        known = self._sites[site]
        if not of_hardware(refusal):
            return
        starts_in_s = refusal.starts_in_s
        starts_at_s = None if starts_in_s is None else now_s + starts_in_s
        if starts_at_s is not None:
            known.predicts = True
            self._predicting |= self._bits[site]
        if not self.is_refused(number, jobs, self._bits[site]):
            known.failures.add(jobs, NOBODY, refusal)
            known.count += 1
        known.said[number] = _Said(jobs, refusal, now_s, starts_at_s, known.awards)
        self._refusing[number] = self._refusing.get(number, 0) | self._bits[site]

    def is_refused(self, number: int, jobs: tuple[Job, ...], sites: int) -> bool:
        """Tell whether all of these sites refuse a shape: by their own words, or as follows."""
        refusing = self._refusing.get(number, 0)
        missing = sites & ~refusing
        if not missing:
            return True
        for site in self._each(missing):
            if self._follows(site, number, jobs):
                refusing |= self._bits[site]
            else:
                self._refusing[number] = refusing
                return False
        self._refusing[number] = refusing
        return True

    def _each(self, sites: int) -> Iterator[SiteName]:
        return (site for site, bit in self._bits.items() if sites & bit)

    def _follows(self, site: SiteName, number: int, jobs: tuple[Job, ...]) -> bool:
        """Whether a refusal of a shape follows from that of another."""
        known = self._sites[site]
        if known.tried.get(number, 0) == known.count:
            return False
        if known.failures.find(jobs, NOBODY) is not None:
            return True
        known.tried[number] = known.count
        return False

    def refusal(
        self, site: SiteName, number: int, jobs: tuple[Job, ...], now_s: float
    ) -> Refusal | None:
        """The refusal by a site, as it would be given now; None: it has to be asked."""
        if not self.is_refused(number, jobs, self._bits[site]):
            return None
        said = self._sites[site].said.get(number)
        if said is not None:
            return as_for(jobs, said.jobs, later(said.refusal, now_s - said.at_s))
        found = self._sites[site].failures.find(jobs, NOBODY)
        return None if found is None else as_for(jobs, found.jobs, found.answer)

    def prediction(self, site: SiteName, number: int, now_s: float) -> float | None:
        """Seconds until a refused shape could start at a site; None: it is not known."""
        known = self._sites[site]
        said = known.said.get(number)
        if said is None or said.awards != known.awards:
            return None
        starts_at_s = said.starts_at_s
        return None if starts_at_s is None or starts_at_s <= now_s else starts_at_s - now_s

    def lacks_prediction(self, site: SiteName, number: int, now_s: float) -> bool:
        """Whether a site that predicts has not told when a refused shape could start."""
        known = self._sites[site]
        if not known.predicts:
            return False
        said = known.said.get(number)
        if said is None or said.awards != known.awards:
            return True
        if said.starts_at_s is None:
            return not said.refusal.no_end_in_sight
        return said.starts_at_s <= now_s

    def may_be_predicted(self, sites: int) -> bool:
        """Tell whether any of these sites predicts starts at all."""
        return bool(self._predicting & sites)


def later(refusal: Refusal, elapsed_s: float) -> Refusal:
    """A refusal as it reads some time after it was given."""
    if not elapsed_s:
        return refusal
    starts_in_s = refusal.starts_in_s
    timed = [reason for reason in refusal.reasons if reason.more]
    if starts_in_s is None and not timed:
        return refusal
    sooner_in_s = refusal.sooner_in_s
    return replace(
        refusal,
        starts_in_s=None if starts_in_s is None else max(0.0, starts_in_s - elapsed_s),
        sooner_in_s=None if sooner_in_s is None else max(0.0, sooner_in_s - elapsed_s),
        reasons=tuple(
            replace(reason, more_in_s=max(0.0, reason.more_in_s - elapsed_s))
            if reason.more
            else reason
            for reason in refusal.reasons
        ),
    )
