"""No order of the core ever goes to a site in shadow mode, whatever happens."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from federator.model.draft import Draft
from federator.model.event import Awarded
from federator.model.lifecycle import TERMINAL
from federator.model.message import Command, DrainAsked, LaunchAt, PreemptAt, Record, SendTo
from federator.model.site_message import Ask
from federator.model.site_mode import SiteMode
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

SITES = ("alpine", "baker")
RULES = Rules(preempt_gpus=16, preempt_window_s=60.0, grace_s=20.0, cooldown_s=30.0)
TENANTS = (
    Tenant(name=TenantName("guest")),
    Tenant(name=TenantName("owner"), priority=3, quota=Allowance(gpus=32)),
)
_SITE = st.sampled_from(SITES)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("watch"), _SITE),
        st.tuples(st.just("advise"), _SITE),
        st.tuples(st.just("enforce"), _SITE),
        st.tuples(st.just("submit"), st.sampled_from(["guest", "owner"])),
        st.tuples(st.just("test"), st.just("guest")),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
        st.tuples(st.just("drain"), _SITE),
        st.tuples(st.just("cut"), _SITE),
        st.tuples(st.just("stray"), _SITE),
        st.tuples(st.just("restart"), st.just("")),
        st.tuples(st.just("wait"), st.sampled_from([1, 15, 90])),
    ),
    max_size=14,
)


def orders_to(commands: list[Command], site: str) -> list[Command]:
    kinds = SendTo | LaunchAt | PreemptAt
    return [c for c in commands if isinstance(c, kinds) and c.site == site]


def questions_to(commands: list[Command], site: str) -> list[Command]:
    found = orders_to(commands, site)
    return [c for c in found if isinstance(c, SendTo) and isinstance(c.message, Ask)]


def work(tenant: str) -> Draft:
    return replace(draft(gang(1, 8)), tenant=TenantName(tenant))


class Story:
    """A federation whose sites change their modes, live work or not."""

    def __init__(self) -> None:
        self.f = Loopback({n: rack(n[0], 2) for n in SITES}, RULES, 40.0, Mast(), TENANTS)
        self.ids: list[WorkloadId] = []
        self.watched: set[str] = set()
        self.advises: set[str] = set()  # of those that are watched

    def step(self, verb: str, what: str | int) -> None:
        f, since, watched = self.f, len(self.f.commands), set(self.watched)
        match verb:
            case "watch" | "advise" | "enforce":
                (set.discard if verb == "enforce" else set.add)(self.watched, str(what))
                (set.add if verb == "advise" else set.discard)(self.advises, str(what))
                shadow = frozenset(map(SiteName, self.watched))
                advisory = frozenset(map(SiteName, self.advises))
                f.reload(replace(RULES, shadow=shadow, advisory=advisory))
                watched = self.watched
            case "submit":
                self.ids.append(f.submit(work(str(what))))
            case "test":
                f.ask(work(str(what)), test_only=True)
            case "cancel" if self.ids:
                f.cancel(self.ids[int(what) % len(self.ids)])
            case "drain":
                drain = DrainAsked(client=99, site=SiteName(str(what)), by="root", migrate=True)
                f.observe(drain)
            case _:
                self._befalls(verb, str(what))
        f.run_for(2.0)
        for site in watched:
            asked = questions_to(f.commands[since:], site)
            assert not asked or (verb == "test" and site in self.advises), (verb, what)
            assert orders_to(f.commands[since:], site) == asked, (verb, what)

    def _befalls(self, verb: str, what: str) -> None:
        match verb:
            case "cut":
                self.f.site_down(what)
                self.f.site_up(what)
            case "stray":
                self.f.repeat_last_report(what)
            case "restart":
                self.f.restart()
            case "wait":
                self.f.run_for(float(what))


@settings(max_examples=25, deadline=None)
@given(STEPS)
@example([("submit", "guest"), ("watch", "alpine"), ("cancel", 0)])
@example([("advise", "alpine"), ("submit", "guest"), ("test", "guest"), ("cut", "alpine")])
@example([("submit", "guest"), ("watch", "alpine"), ("drain", "alpine"), ("cut", "alpine")])
def test_no_order_goes_to_a_watched_site(
    steps: list[tuple[str, str | int]],
) -> None:
    story = Story()
    for verb, what in steps:
        story.step(verb, what)


def test_what_a_watched_site_runs_is_left_alone_and_its_end_is_taken_in() -> None:
    f = Loopback({"alpine": rack("a", 1)}, RULES, 40.0, Mast(), TENANTS)
    id_ = f.submit(work("guest"))
    f.run_for(5.0)
    f.reload(replace(RULES, shadow=frozenset({SiteName("alpine")})))
    f.cancel(id_)
    f.run_for(60.0)
    assert f.federation.ledger.entries[id_].state in TERMINAL


MODES = st.sampled_from(list(SiteMode))
TENANT_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("mode"), MODES),
        st.tuples(st.just("submit"), st.sampled_from(["guest", "owner"])),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
        st.tuples(st.just("cut"), _SITE),
        st.tuples(st.just("stray"), _SITE),
        st.tuples(st.just("restart"), st.just("")),
        st.tuples(st.just("wait"), st.sampled_from([1, 15, 90])),
    ),
    max_size=14,
)


@settings(max_examples=25, deadline=None)
@given(TENANT_STEPS)
@example([("mode", SiteMode.SHADOW), ("submit", "owner"), ("restart", ""), ("wait", 90)])
@example([("submit", "owner"), ("mode", SiteMode.ADVISORY), ("cut", "alpine"), ("wait", 90)])
def test_nothing_is_awarded_to_a_tenant_that_is_only_watched(
    steps: list[tuple[str, str | int | SiteMode]],
) -> None:
    """By the log: a launch that it tells of already is repeated, for the job is there."""
    story, mode = Story(), SiteMode.ENFORCED
    for verb, what in steps:
        since = len(story.f.commands)
        if isinstance(what, SiteMode):
            mode = what
            guest, owner = TENANTS
            story.f.reload(tenants=(guest, replace(owner, mode=mode)))
            story.f.run_for(2.0)
        else:
            story.step(verb, what)
        awarded = [
            story.f.federation.ledger.entries[each.event.attempt.workload].workload.tenant
            for each in story.f.commands[since:]
            if isinstance(each, Record) and isinstance(each.event, Awarded)
        ]
        assert mode.acts or "owner" not in awarded, (verb, what)
