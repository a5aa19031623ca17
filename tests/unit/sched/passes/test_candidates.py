"""Whom a pass asks about, where many that wait ask for the same."""

from __future__ import annotations

from federator.model.event import Submitted
from federator.model.lifecycle import WorkloadState
from federator.model.message import (
    Command,
    Observation,
    SendTo,
    SiteSent,
    SiteUp,
    SubmitAsked,
    Tick,
)
from federator.model.plan import BidRequest
from federator.model.reason import Reason, ReasonCode, Refusal, RefusalKind
from federator.model.site_message import Ask, BidsMade, Report, SiteAnswer
from federator.model.workload import FIRST_WORKLOAD_ID, Job, SiteName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.bid.empty_site import capacity_of
from federator.sched.passes.asking_limit import ASKED_AT_FIRST, GROWTH
from federator.sched.passes.cycle import SchedulingPass
from federator.sched.passes.federation import Federation
from federator.sched.passes.known_refusals import KnownRefusals
from federator.sched.passes.round import Round
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

ALPINE, BAKER = SiteName("alpine"), SiteName("baker")
FULL = Refusal(kind=RefusalKind.WAIT, reasons=(Reason(code=ReasonCode.RESOURCES, needed=8),))


class OnePass:
    """A pass over so many single nodes, and two nodes behind them, at one site."""

    def __init__(self, singles: int) -> None:
        self.ledger, self.known = Ledger(), KnownRefusals([ALPINE])
        self.known.heard(ALPINE, 1)
        for k in range(singles + 1):
            wanted = draft(gang(1) if k < singles else gang(2))
            first = WorkloadId(FIRST_WORKLOAD_ID + k)
            self.ledger.apply(Submitted(at_s=float(k), draft=wanted, first_id=first, key=str(k)))
        ranking = Mast().rank(self.ledger, 100.0)
        self.pass_ = SchedulingPass(ranking, self.ledger, known=self.known)

    def window(self, *again: int) -> list[int]:
        """The numbers of those who are asked about."""
        ids = {WorkloadId(FIRST_WORKLOAD_ID + k) for k in again}
        window = self.pass_.next_window(ids, 500, [ALPINE], 100.0)
        by_id = {request.id: request for request in window}
        self.pass_.round = Round(pass_id=1, requests=by_id, waiting_for={ALPINE}, deadline_s=200.0)
        return [self.number(request) for request in window]

    @staticmethod
    def number(request: BidRequest) -> int:
        return request.id - FIRST_WORKLOAD_ID

    def refused(self, number: int) -> None:
        id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
        answers = [SiteAnswer(id=id_, refusal=FULL)]
        self.pass_.round.take(ALPINE, answers, self.known.generation(ALPINE))
        self.pass_.learn(id_)

    def must_wait(self, number: int) -> bool:
        return self.pass_.candidates.must_wait(WorkloadId(FIRST_WORKLOAD_ID + number))


def test_of_those_alike_a_few_are_asked_about_at_first_and_then_more() -> None:
    one = OnePass(100)
    few = ASKED_AT_FIRST
    assert one.window() == [*range(few), 100]
    more = few * GROWTH
    assert one.window() == list(range(few, few + more))  # all before were settled


def test_who_ranks_behind_one_that_was_not_asked_waits_for_it() -> None:
    one = OnePass(10)
    assert one.window() == [0, 1, 2, 3, 10]
    assert not any(map(one.must_wait, range(4)))
    assert one.must_wait(10)
    assert one.window(10) == [*range(4, 10), 10]  # in rank order
    assert not one.must_wait(10)


def test_nobody_waits_for_those_whose_like_is_refused_everywhere() -> None:
    one = OnePass(10)
    one.window()
    one.refused(3)
    assert not one.must_wait(10)
    assert one.window(10) == []  # it asks for more than what was refused


def asks(commands: list[Command]) -> list[Ask]:
    return [c.message for c in commands if isinstance(c, SendTo) and isinstance(c.message, Ask)]


def test_a_burst_of_one_kind_starts_at_once_and_in_order() -> None:
    f = Loopback({"alpine": rack("a", 8), "baker": rack("b", 8)})
    f.site_down("alpine")
    f.site_down("baker")
    ids = [f.submit(draft(gang(1, 2))) for _ in range(100)]
    f.site_up("alpine")
    f.site_up("baker")
    f.run_for(1.0)
    running = [f.state(id_) is WorkloadState.RUNNING for id_ in ids]
    assert running == [True] * 64 + [False] * 36


def test_a_site_is_asked_only_about_what_is_not_known_of_it() -> None:
    f = Loopback({"alpine": rack("a", 2), "baker": rack("b", 2)})
    running = [f.submit(draft(gang(2))) for _ in range(2)]
    f.run_for(1.0)
    waiting = [f.submit(draft(gang(2))) for _ in range(30)]
    f.run_for(1.0)
    f.commands.clear()
    late = f.submit(draft(gang(2)))
    f.run_for(1.0)
    assert asks(f.commands) == []
    assert f.refusals(late).keys() == {"alpine", "baker"}
    f.slurm("alpine").end(f.entry(running[0]).attempt_id)
    f.run_for(20.0)
    assert f.state(waiting[0]) is WorkloadState.RUNNING
    sites = {c.site for c in f.commands if isinstance(c, SendTo) and isinstance(c.message, Ask)}
    assert sites == {f.entry(running[0]).site}


def test_another_kind_of_job_is_asked_about_though_the_first_is_refused() -> None:
    f = Loopback({"alpine": rack("a", 3)})
    f.submit(draft(gang(2)))
    f.run_for(1.0)
    large = f.submit(draft(gang(2)))
    small = f.submit(draft(Job(name="train", nodes=1, gpus_per_node=1)))
    f.run_for(1.0)
    assert (f.state(large), f.state(small)) == (WorkloadState.PENDING, WorkloadState.RUNNING)


# ---- what happens between question and answer ----


def idle_site() -> Loopback:
    f = Loopback({"alpine": rack("a", 2)})
    f.run_for(400.0)
    return f


def test_room_held_for_one_that_was_cancelled_meanwhile_is_no_reason_to_refuse_the_next() -> None:
    for passed_s in (0.0, 0.002, 0.01, 0.019):
        f = idle_site()
        first, second = f.submit(draft(gang(2))), f.submit(draft(gang(2)))
        f.run_for(passed_s)
        f.cancel(first)
        f.run_for(10.0)
        assert f.state(second) is WorkloadState.RUNNING


class TwoSites:
    """A federation whose sites answer when a test says so."""

    def __init__(self) -> None:
        partitions: dict[SiteName, tuple[str, ...]] = {ALPINE: ("gpu",), BAKER: ("gpu",)}
        self.federation = Federation(partitions, Mast(), Rules())
        self.asked: dict[SiteName, Ask] = {}
        self.now_s = 1_000.0
        self.federation.begin_epoch(self.now_s)
        for site in partitions:
            self.see(SiteUp(site=site))
            capacity = capacity_of(rack(site, 2))
            self.see(
                SiteSent(
                    site=site,
                    message=Report(attempts=(), complete=True, capacity=capacity, freed=5),
                )
            )
        self.see(SubmitAsked(client=1, key="k", draft=draft(gang(2))))
        self.see(Tick())

    def see(self, observation: Observation) -> None:
        self.now_s += 0.1
        for command in self.federation.handle(observation, self.now_s):
            if isinstance(command, SendTo) and isinstance(command.message, Ask):
                self.asked[command.site] = command.message

    def refuses(self, site: SiteName, freed: int) -> None:
        ask = self.asked.pop(site)
        answers = tuple(SiteAnswer(id=r.id, refusal=FULL) for r in ask.requests)
        self.see(
            SiteSent(site=site, message=BidsMade(pass_id=ask.pass_id, answers=answers, freed=freed))
        )


def test_an_answer_from_before_something_came_free_is_not_believed_afterwards() -> None:
    two = TwoSites()
    two.refuses(ALPINE, freed=5)
    two.see(SiteSent(site=ALPINE, message=Report(attempts=(), freed=6)))
    two.refuses(BAKER, freed=5)
    two.see(Tick())
    assert two.asked.keys() == {ALPINE}
    two.refuses(ALPINE, freed=6)
    two.see(Tick())
    assert not two.asked
