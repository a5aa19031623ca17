"""What is said of a workload's rank, how old it may be, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.config import FederationConfig
from federator.daemon.api import Api
from federator.daemon.views import RANKS_KEPT_S, RankView
from federator.model.draft import Draft
from federator.model.lifecycle import WorkloadState
from federator.model.message import SiteSent
from federator.model.site_message import Report
from federator.model.tenant import Tenant
from federator.model.workload import SiteName, WorkloadId
from federator.policies.fifo import Fifo
from federator.policies.mast import Mast
from federator.sched.passes.federation import Federation
from federator.sched.queue.policy import Policy
from federator.sched.state.credit import CreditWeights
from federator.wire.agent_protocol import ClientCall
from federator.wire.client_protocol import (
    Call,
    QueueCall,
    QueueReply,
    QueueRow,
    TenantsCall,
    TenantsReply,
    frame,
)
from federator.wire.queue_rows import QueueRank
from federator.wire.replies import Reply, reply_decoder
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.loopback import Loopback

HOUR_S = 3600.0
TENANTS = (tenant("vision", 16, priority=2), tenant("nlp", 8, priority=3))


class Counter:
    """An ``Api`` over one site of 4 nodes with 8 GPUs; it can count how often it ranks."""

    def __init__(
        self,
        policy: Policy = Mast(),  # noqa: B008  # frozen
        tenants: tuple[Tenant, ...] = TENANTS,  # frozen
    ) -> None:
        self.f = Loopback({"alpine": rack("a", 4)}, policy=policy, tenants=tenants)
        config = FederationConfig.model_validate(
            {
                "federation": "demo",
                "store": "memory:",
                "policy": {"name": "fifo" if isinstance(policy, Fifo) else "mast"},
                "regions": {"west": {"shared": "/shared"}},
                "sites": {
                    "alpine": {"region": "west", "partitions": ["gpu"], "command": ["agent"]}
                },
                "tenants": {t.name: {"priority": t.priority, "users": ["ada"]} for t in tenants},
            }
        )
        self.api = Api(config, self.f.federation, self.f.observe, self.f.clock)
        self.rankings = 0

    def count(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ranked = Federation.ranked

        def counted(federation: Federation, now_s: float) -> object:
            self.rankings += 1
            return ranked(federation, now_s)

        monkeypatch.setattr(Federation, "ranked", counted)

    def submit(self, wanted: Draft) -> WorkloadId:
        id_ = self.f.submit(wanted)
        self.f.run_for(1.0)
        return id_

    def fill(self, name: str = "nlp") -> list[WorkloadId]:
        """Four workloads of one tenant take all there is."""
        return [self.submit(draft(gang(1), tenant=name)) for _ in range(4)]

    def ask(self, call: Call) -> Reply:
        replies: list[Reply] = []
        self.api.take(
            ClientCall(call_id=1, user="ada", call=call), SiteName("alpine"), replies.append
        )
        return reply_decoder.decode(frame(replies[0])[4:])  # as it comes out at the other end

    def row(self, id_: WorkloadId, why: bool = True) -> QueueRow:
        reply = self.ask(QueueCall(ids=(str(id_),), ended=True, why=why))
        assert isinstance(reply, QueueReply), reply
        return reply.rows[0]

    def rank(self, id_: WorkloadId) -> QueueRank:
        rank = self.row(id_).rank
        assert rank is not None
        return rank


def test_a_workload_within_quota_shows_its_priority_and_what_its_credit_is_made_of() -> None:
    c = Counter()
    c.fill()
    first, second = (c.submit(draft(gang(1), tenant="vision", nice=50)) for _ in range(2))
    c.f.run_for(2 * HOUR_S)
    rank = c.rank(second)
    assert (rank.position, rank.of, rank.priority, rank.within_quota) == (2, 2, 2, True)
    assert (rank.policy, rank.tenant_priority, rank.shortfall) == ("mast", 2, None)
    assert rank.credit == rank.age_term + rank.fair_share_term - rank.nice_term
    assert rank.age_term == pytest.approx(rank.waited_s / HOUR_S)
    assert rank.waited_s == pytest.approx(2 * HOUR_S + 1)
    assert (rank.fair_share_term, rank.usage_share_frac, rank.nice_term) == (24.0, 0.0, 0.5)
    assert (rank.per_hour_waited, rank.age_cap_h) == (1.0, 168.0)
    assert c.row(second).priority == 2
    assert c.rank(first).position == 1


@pytest.mark.parametrize(("home", "away"), [("alpine", False), ("boreal", True)])
def test_a_guest_is_told_that_it_is_not_at_home(home: str, away: bool) -> None:
    nlp, vision = tenant("nlp", 8, priority=3), replace(TENANTS[0], home=(SiteName(home),))
    c = Counter(tenants=(vision, nlp))
    rank = c.rank(c.submit(draft(gang(1), tenant="vision")))
    assert (rank.away, rank.within_quota, rank.priority) == (away, not away, 7 if away else 2)


@pytest.mark.parametrize("firm", [draft(gang(1), no_preempt=True), draft(gang(1), requeue=False)])
def test_who_may_not_be_evicted_pays_with_credit_and_is_told(firm: Draft) -> None:
    c = Counter()
    c.fill()
    paying, other = c.submit(firm), c.submit(draft(gang(1)))
    rank = c.rank(paying)
    assert rank.non_preemptible_term == 2.0
    assert rank.credit == rank.age_term + rank.fair_share_term - rank.non_preemptible_term
    assert c.rank(other).position < rank.position  # though it came later


def test_a_workload_over_quota_shows_whose_quota_and_by_how_much() -> None:
    c = Counter()
    c.fill("vision")  # 32 GPUs of a quota of 16
    c.submit(draft(gang(1), tenant="nlp"))  # 8 of 8 promised
    over = c.submit(draft(gang(1, 4), tenant="nlp"))
    rank = c.rank(over)
    assert (rank.priority, rank.tenant_priority, rank.within_quota) == (7, 3, False)
    assert rank.shortfall is not None
    assert (rank.shortfall.tenant, rank.shortfall.unit) == ("nlp", "GPUs")
    numbers = (rank.shortfall.held, rank.shortfall.promised, rank.shortfall.asked)
    assert (*numbers, rank.shortfall.quota) == (0, 8, 4, 8)
    assert c.row(over).priority == 7
    assert c.row(over, why=False).priority == 3  # as it was submitted


def test_the_quota_in_the_way_may_be_an_ancestors() -> None:
    c = Counter(tenants=(tenant("lab", 8), tenant("vision", 16, parent="lab"), tenant("nlp", 8)))
    c.fill("nlp")
    c.submit(draft(gang(1), tenant="vision"))
    shortfall = c.rank(c.submit(draft(gang(1), tenant="vision"))).shortfall
    assert shortfall is not None
    assert (shortfall.tenant, shortfall.promised, shortfall.quota) == ("lab", 8, 8)


def test_a_tenant_without_any_quota_has_a_shortfall_without_a_name() -> None:
    c = Counter()
    c.fill()
    shortfall = c.rank(c.submit(draft(gang(1), tenant="guest"))).shortfall
    assert shortfall is not None
    assert shortfall.tenant == ""


def test_what_is_at_a_site_shows_how_it_stands_now_and_how_it_was_awarded() -> None:
    c = Counter()
    own, borrowed, *_ = c.fill("nlp")
    rank = c.rank(borrowed)
    assert (rank.position, rank.priority, rank.within_quota) == (0, 7, False)
    assert (rank.awarded_priority, rank.awarded_within_quota, rank.credit) == (7, False, 0.0)
    c.f.slurm("alpine").end(c.f.entry(own).attempt_id)
    c.f.run_for(15.0)
    rank = c.rank(borrowed)
    assert (rank.priority, rank.within_quota) == (3, True)  # its tenant's quota came free
    assert (rank.awarded_priority, rank.awarded_within_quota) == (7, False)
    assert c.row(borrowed).priority == 7  # at which it went


def test_what_has_ended_has_no_rank() -> None:
    c = Counter()
    id_ = c.fill("nlp")[0]
    c.f.cancel(id_)
    c.f.run_for(15.0)
    assert (c.f.state(id_), c.row(id_).rank) == (WorkloadState.CANCELLED, None)


def test_what_failed_at_a_site_says_so_only_when_asked_why() -> None:
    c = Counter()
    c.f.refuse_launches("alpine")
    id_ = c.submit(draft(gang(1)))
    setback = c.row(id_).setbacks["alpine"]
    assert (setback.reason.detail, setback.failures) == ("sbatch said no", 1)
    assert setback.avoid_until_s > c.f.clock.now_s
    assert c.row(id_, why=False).setbacks == {}


def test_first_come_first_served_knows_position_and_priority_alone() -> None:
    c = Counter(Fifo())
    at_site, *_ = c.fill("nlp")
    id_ = c.submit(draft(gang(1), priority=5))
    rank = c.rank(id_)
    assert (rank.policy, rank.position, rank.of, rank.priority) == ("global-fifo", 1, 1, 5)
    assert (rank.shortfall, rank.credit, rank.age_cap_h) == (None, 0.0, 0.0)
    assert (c.rank(at_site).position, c.rank(at_site).priority) == (0, 3)


# ---- what it costs ----


def test_nothing_is_ranked_for_whoever_does_not_ask_why(monkeypatch: pytest.MonkeyPatch) -> None:
    c = Counter()
    c.count(monkeypatch)
    id_ = c.fill()[0]
    assert c.row(id_, why=False).rank is None
    assert c.rankings == 0


def test_all_who_ask_within_seconds_share_one_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    c = Counter()
    ids = c.fill()
    waits = c.submit(draft(gang(1), tenant="vision"))
    c.count(monkeypatch)
    for id_ in (*ids, waits):
        assert c.row(id_).rank is not None
    assert isinstance(c.ask(TenantsCall()), TenantsReply)
    assert c.rankings == 1
    c.f.clock.advance(RANKS_KEPT_S)
    c.row(waits)
    assert c.rankings == 2


def test_a_kept_ranking_explains_itself_with_the_numbers_it_was_made_of() -> None:
    c = Counter()
    running = c.fill("nlp")
    over = c.submit(draft(gang(1), tenant="nlp"))
    before = c.rank(over)
    c.f.slurm("alpine").end(c.f.entry(running[0]).attempt_id)
    reports = c.f.slurm("alpine").reports()
    c.f.observe(SiteSent(site=SiteName("alpine"), message=Report(attempts=reports)))
    assert c.f.state(over) is WorkloadState.PENDING
    assert c.f.federation.ledger.holdings.used(1)[0] == 24
    assert c.rank(over) == before


def test_what_came_since_the_ranking_has_no_rank_yet_and_what_left_has_none_any_more() -> None:
    c = Counter()
    c.fill()
    left = c.submit(draft(gang(1), tenant="vision"))
    assert c.row(left).rank is not None
    c.f.cancel(left)
    came = c.f.submit(draft(gang(1), tenant="vision"))
    assert (c.row(left).rank, c.row(came).rank) == (None, None)
    c.f.run_for(RANKS_KEPT_S)
    assert c.rank(came).position == 1


def test_what_was_awarded_since_the_ranking_stands_as_it_was_awarded() -> None:
    c = Counter()
    view = RankView(c.f.federation, "mast", CreditWeights())
    snapshot = view.at(c.f.clock.now_s)
    id_ = c.submit(draft(gang(1), tenant="vision"))
    rank = snapshot.rank(c.f.entry(id_))
    assert rank is not None
    assert (rank.priority, rank.within_quota, rank.position) == (2, True, 0)


def test_a_clock_that_was_set_back_does_not_keep_a_ranking_for_ever() -> None:
    c = Counter()
    view = RankView(c.f.federation, "mast", CreditWeights())
    now_s = c.f.clock.now_s
    assert view.at(now_s) is view.at(now_s + 1.0)
    assert view.at(now_s - 1.0).at_s == now_s - 1.0
