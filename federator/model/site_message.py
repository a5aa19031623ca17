"""Messages that are the core's and the wire's at once: they travel as the core makes or reads them.

Field names and tags are those of the frames, and every release reads its neighbour's. Messages that
the core never sees, or that the daemon completes, are in ``federator.wire.agent_protocol``.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from federator.model.partition import PartitionSummary
from federator.model.plan import Bid, BidRequest
from federator.model.reason import Reason, Refusal
from federator.model.site import AttemptReport, Capacity, NodeShare, VictimTerms
from federator.model.tagged import Message
from federator.model.window import SiteWindow
from federator.model.workload import AttemptId, WorkloadId

# ---- to a site ----


class SiteClaim(Struct, frozen=True, kw_only=True, gc=False):
    """Nodes of a site that are to come free for one waiting workload; see ``model.event.Claimed``.

    What is free on them, up to these shares, is bid to nobody else, and nobody else evicts its
    victims, but for a workload that may evict, of a higher priority (a smaller number).
    """

    id: WorkloadId
    priority: int
    nodes: Mapping[str, NodeShare]
    victims: tuple[int, ...] = ()


class Ask(Message, frozen=True, kw_only=True, tag="ask"):
    """Bid for these workloads, in a pass.

    ``reserve``: a blocked workload for which the site keeps room, delayed by no bid. Without it,
    and if ``reserving``, that is the first of the requests which finds none.
    """

    pass_id: int
    requests: tuple[BidRequest, ...]  # in rank order; each is bid for as if those before had won
    reserve: BidRequest | None = None
    reserving: bool = False
    # Who of those running there may be evicted; empty also while the budget is spent.
    victims: Mapping[WorkloadId, VictimTerms] = field(default_factory=dict)
    claims: tuple[SiteClaim, ...] = ()  # at this site, first to be served first
    # When those running there are predicted to be over, Unix time; who ends by its limit before,
    # or is not known well enough, is left out. Used where time limits promise no start.
    predicted_ends: Mapping[WorkloadId, float] = field(default_factory=dict)
    # What a GPU costs for an hour, by partition and GPU type, as of ``Bid.cost``.
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    cells: bool = False  # whether jobs break the smallest cells that hold them; ``sched.bid.cells``


class ShrinkOrder(Message, frozen=True, kw_only=True, tag="shrink"):
    """End these components of a het job that runs; the others run on. May come again."""

    attempt: AttemptId
    user: str
    components: tuple[int, ...]


class CancelOrder(Message, frozen=True, kw_only=True, tag="cancel_attempt"):
    """End an attempt, or make sure that it will never start."""

    attempt: AttemptId
    user: str
    site_job_id: int = 0  # 0: not known; the agent looks the attempt up
    pending_only: bool = False  # withdraw it only if it has not started


SiteOrder = Ask | ShrinkOrder | CancelOrder

# ---- from a site ----


class SiteAnswer(Struct, frozen=True, kw_only=True, gc=False):
    """A site's word on one workload: exactly one of bid and refusal.

    ``gc=False``: a replay makes millions, and no cycle can lead through one.
    """

    id: WorkloadId
    bid: Bid | None = None
    refusal: Refusal | None = None
    held_back: bool = False  # the bid is worse because of those before it in the same message


class BidsMade(Message, frozen=True, kw_only=True, tag="bids"):
    """The answer to the question of a pass, for each workload with a bid or a refusal.

    ``freed``: as of ``Report``, when the answers were made. ``keeps_claims``: the agent knows what
    claims are; an older one would give away what comes free for one. ``keeps_wishes``: it knows
    ``constraint``, ``nodelist`` and ``exclude`` of jobs; the bids of an older one ignore them.
    ``keeps_contiguous``: it knows ``contiguous``; the nodes that an older one offers have gaps.
    ``keeps_data``: it gives jobs the paths of their data sets; an older one would not.
    ``keeps_outputs``: it makes the folders that they write data sets in; likewise.
    """

    pass_id: int
    answers: tuple[SiteAnswer, ...]
    freed: int = 0
    keeps_claims: bool = False
    keeps_wishes: bool = False
    keeps_contiguous: bool = False
    keeps_data: bool = False
    keeps_outputs: bool = False


class LaunchAccepted(Message, frozen=True, kw_only=True, tag="launched"):
    """An attempt has been submitted."""

    attempt: AttemptId
    site_job_id: int
    work_dir: str | None = None  # as of ``AttemptReport``


class LaunchDeclined(Message, frozen=True, kw_only=True, tag="launch_declined"):
    """An attempt does not exist at the site and never will."""

    attempt: AttemptId
    reason: Reason


class AttemptAbsent(Message, frozen=True, kw_only=True, tag="absent"):
    """The site has no such attempt, which was to end, and will refuse it from now on."""

    attempt: AttemptId


class Revocation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Nodes of a site that its provider takes back."""

    deadline_s: float  # Unix time: then they are gone
    nodes: tuple[str, ...] = ()  # none: all of the site
    reason: str = ""


class Report(Message, frozen=True, kw_only=True, tag="report"):
    """News of a sweep; a complete one has every attempt that the site knows.

    ``freed``: a number that grows whenever something may have come free at the site, of the agent
    that is connected; 0: it does not say. What the site refuses for want of hardware it goes on
    refusing for as long as the number stays the same.
    """

    attempts: tuple[AttemptReport, ...]
    gone: tuple[AttemptId, ...] = ()  # known before; the site's record has expired
    complete: bool = False
    unnotified: tuple[AttemptId, ...] = ()  # of those gone: it was not told to leave
    capacity: Capacity | None = None  # when it has changed
    partitions: tuple[PartitionSummary, ...] = ()  # when they have changed
    problems: tuple[str, ...] = ()  # records of the sweep that could not be read; for the daemon
    freed: int = 0
    windows: tuple[SiteWindow, ...] | None = None  # when they have changed
    revoked: tuple[Revocation, ...] | None = None  # likewise: all notices that the site has


SiteNews = BidsMade | LaunchAccepted | LaunchDeclined | AttemptAbsent | Report
