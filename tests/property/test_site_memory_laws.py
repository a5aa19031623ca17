"""A site that remembers its answers says what one says that works out every answer anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf
from typing import NamedTuple

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec import structs

from federator.model.plan import Bid, BidRequest
from federator.model.reason import Refusal
from federator.model.site import LocalJob, Node, NodeShare, NodeState, RunningJob, VictimTerms
from federator.model.site_message import SiteAnswer, SiteClaim
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.answer_memory import AnswerMemory, KnownBid, KnownRefusal, Question
from federator.sched.bid.site_scheduler import SiteScheduler
from tests.fakes.build import attempt, bid_request, gang, rack
from tests.property.test_placement_laws import jobs, nodes

MANY = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LIMITS_S = (inf, inf, 50.0, 100.0)
NAMES = ("train", "serve")

JOBS = 4  # of the federation that run at once, at most

Act = tuple[str, int, int]


class NoMemory(AnswerMemory):
    """Every answer is worked out anew."""

    def get(self, question: Question) -> KnownBid | KnownRefusal | None:
        self._known.pop(question, None)
        return None

    def never(self, number: int) -> Refusal | None:
        self._never.pop(number, None)
        return super().never(number)


class Forgetful(SiteScheduler):
    """Keeps what is free and what runs, and nothing that was concluded from it."""

    def __init__(self) -> None:
        super().__init__(("gpu",))
        self._memory = NoMemory(lambda jobs: self._empty.never_fits(jobs, self.partitions))

    def bid(
        self,
        requests: Iterable[BidRequest],
        now_s: float = 0.0,
        *,
        reserve: BidRequest | None = None,
        reserving: bool = False,
        claims: tuple[SiteClaim, ...] = (),
    ) -> tuple[SiteAnswer, ...]:
        self._endings.forget()
        for f in self._room.nodes:
            f.rack.version += 1
        # No site has so many nodes; but what may be larger is not told what others were told.
        whole_way = [structs.replace(request, sizes=(10**6,)) for request in requests]
        return super().bid(whole_way, now_s, reserve=reserve, reserving=reserving, claims=claims)


class Asked(NamedTuple):
    """One request of a message, as drawn."""

    shape: int
    limit: int
    budget: float
    renamed: bool
    avoids: bool
    run: int = 0  # predicted


asked = st.builds(
    Asked,
    st.integers(0, 4),
    st.integers(0, 3),
    st.sampled_from([0.0, 0.0, 0.0, 8.0, inf]),
    st.booleans(),
    st.sampled_from([False, False, False, True]),
    st.integers(0, 3),
)
questions = st.lists(asked, min_size=1, max_size=8)
gangs = st.builds(gang, st.integers(1, 3), st.sampled_from([0, 1, 4, 8]))
picky = st.builds(
    lambda job, nodelist, exclude, constraint: replace(
        job, nodelist=nodelist, exclude=exclude, constraint=constraint
    ),
    gangs,
    st.sampled_from([(), ("a1",), ("a1", "b1")]),
    st.sampled_from([(), ("a1",), ("b2",)]),
    st.sampled_from(["", "[ib|x]", "ib*1", "ib|x"]),
)
shapes = st.lists(
    st.one_of(
        st.tuples(picky),
        st.tuples(gangs),
        st.tuples(gangs),
        st.tuples(gangs, gangs),
        st.tuples(jobs(), jobs()),
    ),
    min_size=1,
    max_size=5,
)
racks = st.builds(
    lambda few, more: rack("a", few, features=("ib",)) + rack("b", more), *[st.integers(1, 2)] * 2
)


class World:
    """The same site twice: once with its memory, once without."""

    def __init__(
        self, site: tuple[Node, ...], shapes: list[tuple[Job, ...]], usual: list[Asked]
    ) -> None:
        self.both = (SiteScheduler(("gpu",)), Forgetful())
        self.remembering = self.both[0]
        self.site = site
        self.shapes = shapes
        self.usual = usual  # asked after every change
        self.now_s = 1_000.0
        self.running: dict[int, RunningJob] = {}
        self.local: tuple[LocalJob, ...] = ()
        self.sweep()

    def sweep(self, seen: Iterable[int] = (), switches: dict[str, str] | None = None) -> None:
        for scheduler in self.both:
            scheduler.update(
                tuple(replace(n) for n in self.site),
                {attempt(k) for k in seen},
                switches=switches,
                running=list(self.running.values()),
                local=self.local,
            )
        self.ask(self.usual, 1, 0)

    def ask(self, message: list[Asked], x: int, y: int) -> tuple[SiteAnswer, ...]:
        requests = tuple(self._request(k, a) for k, a in enumerate(message))
        kept = bid_request(id=WorkloadId(90), jobs=self.shapes[y % len(self.shapes)])
        found = [
            scheduler.bid(
                requests, self.now_s, reserve=kept if x % 4 == 3 else None, reserving=x % 2 == 0
            )
            for scheduler in self.both
        ]
        assert found[0] == found[1]
        return found[0]

    def _request(self, k: int, a: Asked) -> BidRequest:
        jobs = self.shapes[a.shape % len(self.shapes)]
        if a.renamed:
            jobs = tuple(replace(job, name=NAMES[i % 2]) for i, job in enumerate(jobs))
        if a.avoids:
            jobs = tuple(replace(job, avoid=(self.site[0].name,)) for job in jobs)
        return bid_request(
            id=WorkloadId(91 + k),
            jobs=jobs,
            time_limit_s=LIMITS_S[a.limit],
            priority=3,
            preempt_gpus=a.budget,
            predicted_run_s=LIMITS_S[a.run],
        )

    def act(self, name: str, x: int, y: int) -> None:
        ACTS[name](self, x, y)

    def end(self, x: int, y: int) -> None:
        """A job ends; or another, which is not the federation's, has taken its place since."""
        x %= JOBS
        job = self.running.pop(x, None)
        if job is None:
            return
        if y % 3:
            self._allocate(job, -1)
        for scheduler in self.both:
            if y % 3 == 1:
                scheduler.ended(x)
        self.ask(self.usual, 1, 0)
        self.sweep()

    def extend(self, x: int, y: int) -> None:
        """An administrator changes the time limit of a job."""
        x %= JOBS
        if x in self.running:
            ends_by_s = self.now_s + LIMITS_S[y % 4] / 2
            self.running[x] = replace(self.running[x], ends_by_s=ends_by_s)
            self.sweep()

    def load(self, x: int, y: int) -> None:
        """Local jobs hold more, or end at another time, or both."""
        node = self._node(x)
        if y % 3:
            self._set(node, gpus_alloc=min(node.gpus, max(node.gpus_alloc, y)))
        if y % 3 < 2:
            ends_by_s = self.now_s + LIMITS_S[y % 4]
            self.local = (LocalJob(id=y, nodes=(node.name,), ends_by_s=ends_by_s),)
        self.sweep()

    def drain(self, x: int, y: int) -> None:
        self._set(self._node(x), state=NodeState.DRAINED if y % 2 else NodeState.MIXED)
        self.sweep()

    def grow(self, x: int, y: int) -> None:
        """A node has come, or was given more GPUs: what never fitted may fit."""
        if y % 2:
            self._set(self._node(x), gpus=8, cpus=64, gpu_type="a100")
        else:
            self.site += (replace(self._node(x), name=f"new{len(self.site)}"),)
        self.sweep()

    def release(self, x: int, _: int) -> None:
        for scheduler in self.both:
            scheduler.release(attempt(x % 2))
        self.ask(self.usual, 1, 0)

    def rank(self, x: int, y: int) -> None:
        terms = {
            WorkloadId(id_): VictimTerms(priority=4 + (id_ + y) % 4)
            for id_ in self.running
            if (id_ + x) % 4
        }
        for scheduler in self.both:
            scheduler.rank(terms)

    def expect(self, x: int, y: int) -> None:
        """When some of what runs is predicted to be over is known, or is not any more."""
        ends = {
            WorkloadId(id_): self.now_s + 50.0 * (1 + (id_ + y) % 3)
            for id_ in range(JOBS)
            if (id_ + x) % 3
        }
        for scheduler in self.both:
            scheduler.expect(ends if y else {})
        self.ask(self.usual, 1, 0)

    def later(self, _: int, y: int) -> None:
        self.now_s += 10.0 * y

    def rewire(self, x: int, y: int) -> None:
        up = {"a": "s1", "b": f"s{1 + x % 2}", "r1": "s1", "r2": f"s{1 + y % 2}"}
        self.sweep(switches=up)

    def hold(self, bid: Bid, x: int, y: int) -> None:
        for scheduler in self.both:
            scheduler.hold(
                attempt(x % 2), bid.jobs, self.now_s + LIMITS_S[y % 4], bid.victims, bid.shrinks
            )
        self.ask(self.usual, 1, 0)

    def start(self, x: int, y: int) -> None:
        """A job starts; a sweep shows it, or what ordered it tells so."""
        x %= JOBS
        if x in self.running:
            return
        node = self._node(x)
        share = NodeShare(
            gpus=min(1 + y, node.gpus - node.gpus_alloc),
            cpus=min(1 + y, node.cpus - node.cpus_alloc),
        )
        job = RunningJob(
            id=x,
            tenant="t",
            priority=4 + y % 4,
            preemptible=True,
            started_at_s=self.now_s - 100.0,
            nodes={node.name: share},
            ends_by_s=self.now_s + LIMITS_S[(x + y) % 4],
        )
        self.running[x] = job
        self._allocate(job, 1)
        if y % 2:
            self.sweep()
            return
        for scheduler in self.both:
            scheduler.update(self.site, (), local=self.local)
        self.ask(self.usual, 1, 0)
        for scheduler in self.both:
            scheduler.started(job)
        self.ask(self.usual, 1, 0)

    def _node(self, x: int) -> Node:
        return self.site[x % len(self.site)]

    def _allocate(self, job: RunningJob, sign: int) -> None:
        for name, share in job.nodes.items():
            node = next(n for n in self.site if n.name == name)
            self._set(
                node,
                gpus_alloc=max(0, node.gpus_alloc + sign * share.gpus),
                cpus_alloc=max(0, node.cpus_alloc + sign * share.cpus),
            )

    def _set(self, node: Node, **fields: object) -> None:
        changed = replace(node, **fields)  # type: ignore[arg-type]  # fields of a node
        self.site = tuple(changed if n is node else n for n in self.site)


ACTS: dict[str, Callable[[World, int, int], None]] = {
    "start": World.start,
    "end": World.end,
    "extend": World.extend,
    "load": World.load,
    "drain": World.drain,
    "grow": World.grow,
    "release": World.release,
    "rank": World.rank,
    "expect": World.expect,
    "later": World.later,
    "rewire": World.rewire,
    "sweep": lambda world, x, _: world.sweep(seen=(x % 2,)),
}
OFTEN = ("ask", "ask", "ask", "hold", "hold", "start", "start", "start")
acts = st.tuples(st.sampled_from(OFTEN + tuple(ACTS)), st.integers(0, 7), st.integers(0, 7))


@MANY
@given(
    st.one_of(racks, racks, nodes(5)),
    shapes,
    st.lists(acts, min_size=8, max_size=24),
    st.lists(questions, min_size=1, max_size=4),
)
def test_a_site_that_remembers_answers_as_one_that_does_not(
    site: tuple[Node, ...],
    shapes: list[tuple[Job, ...]],
    history: list[Act],
    messages: list[list[Asked]],
) -> None:
    world = World(site, shapes, messages[0])
    for name, x, y in history:
        if name in ("ask", "hold"):
            answers = world.ask(messages[x % len(messages)], x, y)
            bids = [answer.bid for answer in answers if answer.bid is not None]
            event(f"victims: {any(bid.victims for bid in bids)}")
            if name == "hold" and bids:
                world.hold(bids[y % len(bids)], x, y)
        else:
            world.act(name, x, y)
    for message in messages:
        for reserving_or_not in (1, 0, 3):
            world.ask(message, reserving_or_not, 0)
        world.act("later", 0, 1)
        world.ask(message, 1, 0)
