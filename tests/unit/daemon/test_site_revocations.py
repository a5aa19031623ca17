"""What a site says to be revoked is drained, once, and leaves before it is gone."""

from __future__ import annotations

from dataclasses import replace

from structlog.testing import capture_logs

from federator.agent.base import Sweep
from federator.agent.report_diff import ReportDiff
from federator.daemon.effects import Effects
from federator.daemon.site_revocations import SiteRevocations
from federator.model.drain import DrainRefusal, DrainRefusalCode
from federator.model.lifecycle import WorkloadState
from federator.model.message import NOBODY, AnswerDrainRefused, DrainAsked
from federator.model.site import Capacity
from federator.model.site_message import Report, Revocation
from federator.model.workload import SiteName
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

ALPINE = SiteName("alpine")
NOW_S = 1_000_000.0
SPOT = Revocation(nodes=("a0",), deadline_s=NOW_S + 120, reason="spot notice")


def asked(revocations: SiteRevocations, *notices: Revocation) -> list[DrainAsked]:
    return list(revocations.asked(notices, NOW_S))


def test_each_notice_is_carried_out_once() -> None:
    revocations = SiteRevocations(ALPINE)
    with capture_logs() as logs:
        (first,) = asked(revocations, SPOT, SPOT)
    assert first == DrainAsked(
        client=NOBODY,
        site=ALPINE,
        nodes=("a0",),
        reason="spot notice",
        by="the site",
        deadline_s=NOW_S + 120,
        revoked=True,
    )
    assert [line["event"] for line in logs] == ["site_revoked"]
    assert asked(revocations, SPOT) == []
    later = Revocation(nodes=("a0",), deadline_s=NOW_S + 60)
    (again,) = asked(revocations, SPOT, later)
    assert (again.deadline_s, again.reason) == (NOW_S + 60, "revoked")


def test_a_notice_that_makes_no_sense_asks_for_nothing() -> None:
    revocations = SiteRevocations(ALPINE)
    for deadline_s in (float("nan"), float("inf"), 0.0, -5.0, NOW_S + 400 * 86_400):
        assert asked(revocations, Revocation(deadline_s=deadline_s)) == []
    many = Revocation(nodes=tuple(f"n{k}" for k in range(70_000)), deadline_s=NOW_S + 60)
    assert asked(revocations, many) == []


def test_a_refusal_is_in_the_log_since_nobody_waits_for_it() -> None:
    answered: list[int] = []
    effects = Effects("demo", {}, lambda client, _: answered.append(client), lambda _: None, {})
    refusal = DrainRefusal(code=DrainRefusalCode.UNKNOWN_NODES, nodes=("x9",))
    with capture_logs() as logs:
        effects.carry_out(AnswerDrainRefused(client=NOBODY, site=ALPINE, refusal=refusal))
    assert answered == []
    assert logs[0]["event"] == "revocation_refused"
    assert "no node x9" in logs[0]["detail"]


def test_the_daemon_hears_of_notices_when_they_change() -> None:
    diff, sweep = ReportDiff(), Sweep(nodes=(), attempts=())

    def report(sweep: Sweep) -> Report | None:
        return diff.next_report({}, {}, Capacity(nodes=()), (), 0, sweep)

    first = report(sweep)
    assert first is not None
    assert (first.complete, first.revoked) == (True, None)
    assert report(sweep) is None
    noticed = report(replace(sweep, revoked=(SPOT,)))
    assert noticed is not None
    assert noticed.revoked == (SPOT,)
    assert report(replace(sweep, revoked=(SPOT,))) is None
    diff.reset()
    again = report(replace(sweep, revoked=(SPOT,)))
    assert again is not None
    assert again.revoked == (SPOT,)
    over = report(sweep)
    assert over is not None
    assert over.revoked == ()


def test_work_on_revoked_nodes_saves_at_once_and_goes_on_elsewhere() -> None:
    sites = {"alpine": rack("a", 1), "baker": rack("b", 1)}
    f = Loopback(sites, Rules(preempt_frac=1.0, grace_s=120.0, cooldown_s=0.0))
    id_ = f.submit(draft(gang(1)))
    f.run_for(5.0)
    assert (f.state(id_), f.entry(id_).site) == (WorkloadState.RUNNING, ALPINE)
    deadline_s = f.clock() + 20  # sooner than the grace
    nodes = f.entry(id_).node_names
    notice = Revocation(nodes=tuple(nodes), deadline_s=deadline_s)
    for drain in SiteRevocations(ALPINE).asked([notice], f.clock()):
        f.observe(drain)
    f.run_until(lambda: f.entry(id_).site == "baker", limit_s=20.0)
    f.run_for(5.0)
    assert f.state(id_) is WorkloadState.RUNNING
    assert [site for site, _ in f.live_jobs(id_)] == ["baker"]
