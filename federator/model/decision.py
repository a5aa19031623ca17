"""The grounds of an award: every offer, and what stood for or against it."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from federator.model.data_output import OutputPlace
from federator.model.data_use import DataPath
from federator.model.lending import LendingDecision
from federator.model.plan import Bid
from federator.model.reason import Refusal
from federator.model.site import VictimTerms
from federator.model.workload import AttemptId, SiteName, WorkloadId


class Preference(IntEnum):
    """For whom a workload within quota would be where it is offered a place."""

    OVER = 0  # it would exceed the quota, or is over it
    GUEST = 1  # away from home; or at home, and others are evicted for it
    WITHIN = 2


class OfferStanding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the federation makes of an offer."""

    preference: Preference = Preference.OVER
    within_quota: bool = False  # the workload is, with this plan
    reads: bool = True  # checkpoints of its last run can be read there
    lending: LendingDecision | None = None  # the forecast on which it would be taken
    refusal: Refusal | None = None  # why it may not be taken

    @property
    def rank(self) -> tuple[Preference, bool]:
        return self.preference, self.reads


class SeenOffer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A site's bid; ``standing`` None: none could be better than one before it."""

    site: SiteName
    bid: Bid
    standing: OfferStanding | None = None


class SeenDecision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that one award was decided on. Offers stand as they were compared, the best first."""

    at_s: float
    attempt: AttemptId
    pass_id: int
    sites: tuple[SiteName, ...]  # in the order that breaks ties
    answered: tuple[SiteName, ...]  # sites with a bid, in the order in which they answered
    priority: int  # as ranked, with the next two
    within_quota: bool
    credit: float
    offers: tuple[SeenOffer, ...]
    refusals: dict[SiteName, Refusal] = {}
    terms: dict[WorkloadId, VictimTerms] = {}  # of the victims that are offered
    chosen: SiteName = SiteName("")
    data: tuple[DataPath, ...] = ()  # where it finds its data sets there
    output: OutputPlace | None = None  # where it writes a data set there
