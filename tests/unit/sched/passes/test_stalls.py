"""One that finishes no step in its lease starts again, once, and on other nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.event import Changed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import Note, SiteSent
from federator.model.reason import ReasonCode
from federator.model.site import SiteJobState
from federator.model.site_message import Report
from federator.model.workload import SiteName, WorkloadId
from federator.sched.state.rules import Rules
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_elastic_sizes import RUNS, fleet, rigid, started

GRACE_S = 60.0
RULES = Rules(grace_s=GRACE_S, cooldown_s=600.0, pass_interval_s=30.0)
STALL = "rank 0 of 2 on a1: no step since 4 for 90 s, in agree (ranks.py:98)"


def stalls(f: Loopback, id_: WorkloadId, since_s: float = 0.0, stall: str = STALL) -> None:
    """Its site tells that its lease is over."""
    entry = f.entry(id_)
    (report,) = (r for r in f.slurm(entry.site).reports() if r.attempt == entry.attempt_id)
    since_s = since_s or f.clock.now_s - 90.0
    told = replace(report, stalled_since_s=since_s, stall=stall)
    f.observe(SiteSent(site=SiteName(entry.site), message=Report(attempts=(told,))))


def asked(f: Loopback, id_: WorkloadId) -> list[Changed]:
    changes = [e for e in f.log if isinstance(e, Changed) and e.workload == id_]
    return [e for e in changes if e.happening is WorkloadEvent.REQUEUE_ASKED]


def test_it_leaves_with_what_its_ranks_say_and_starts_again_on_other_nodes() -> None:
    f = fleet(rules=RULES)
    f.save_s = 1000.0  # it hangs
    (id_,) = started(f, rigid(2))
    before = f.entry(id_).node_names
    stalls(f, id_)
    assert f.state(id_) is WorkloadState.PREEMPTING
    (event,) = asked(f, id_)
    assert event.reason is not None
    assert (event.reason.code, event.reason.detail) == (ReasonCode.STALLED, STALL)
    assert event.reason.more_in_s == pytest.approx(90.0)
    assert not len(f.federation.ledger.evictions.within)  # it costs none of the budget
    f.run_for(GRACE_S + 60.0)
    assert (f.state(id_), f.entry(id_).attempt) == (RUNS, 2)
    assert set(f.entry(id_).node_names).isdisjoint(before)


def test_where_only_these_nodes_are_left_it_waits_for_a_while_and_has_them_again() -> None:
    f = fleet(alpine=2, rules=RULES)
    f.save_s = 1000.0
    (id_,) = started(f, rigid(2))
    stalls(f, id_)
    f.run_for(GRACE_S + 120.0)
    assert f.state(id_) is WorkloadState.PENDING
    f.run_for(400.0)
    assert (f.state(id_), f.entry(id_).attempt) == (RUNS, 2)


def test_its_site_is_not_to_blame() -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, rigid(2))
    stalls(f, id_)
    f.run_for(GRACE_S + 60.0)
    assert f.state(id_) is RUNS
    assert not f.entry(id_).avoid_until_s
    assert not f.entry(id_).failures_at


def test_it_happens_once() -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, rigid(2))
    stalls(f, id_)
    stalls(f, id_)
    f.run_for(GRACE_S + 60.0)
    stalls(f, id_)
    f.run_for(60.0)
    assert (f.state(id_), len(asked(f, id_))) == (RUNS, 1)
    (note,) = (c for c in f.commands if isinstance(c, Note) and c.event == "stands_still")
    assert (note.fields["attempt"], note.fields["detail"]) == (f"fed:{id_}:2", STALL)


def test_of_one_that_is_left_alone_the_log_has_one_line_whatever_its_ranks_say() -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, rigid(2))
    stalls(f, id_)
    f.run_for(GRACE_S + 60.0)

    def lines() -> int:
        return sum(isinstance(c, Note) and c.event == "stands_still" for c in f.commands)

    for number in range(5):
        stalls(f, id_, since_s=f.clock.now_s - 90.0 + number, stall=f"rank 0: step {number}")
    assert lines() == 1
    entry = f.entry(id_)
    f.slurm(entry.site).end(entry.attempt_id, SiteJobState.NODE_FAIL)
    f.run_for(900.0)
    assert (f.state(id_), f.entry(id_).attempt) == (RUNS, 3)
    stalls(f, id_)
    assert lines() == 2, "another attempt"


def test_it_happens_once_even_to_a_daemon_that_comes_anew() -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, rigid(2))
    stalls(f, id_)
    f.run_for(GRACE_S + 60.0)
    f.restart()
    f.run_for(60.0)
    stalls(f, id_)
    assert (f.state(id_), len(asked(f, id_))) == (RUNS, 1)


def test_one_that_may_not_start_again_runs_on() -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, rigid(2, requeue=False))
    stalls(f, id_)
    assert (f.state(id_), asked(f, id_)) == (RUNS, [])


@pytest.mark.parametrize("since_s", [-5.0, float("inf"), float("nan"), 1e300])
def test_a_time_that_is_none_is_no_stall(since_s: float) -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, rigid(2))
    stalls(f, id_, since_s=since_s)
    assert (f.state(id_), asked(f, id_)) == (RUNS, [])


def test_news_of_the_stall_of_one_that_has_ended_is_none() -> None:
    f = fleet(rules=RULES)
    (id_,) = started(f, rigid(2))
    entry = f.entry(id_)
    f.slurm("alpine").end(entry.attempt_id)
    f.run_for(30.0)
    (report,) = (r for r in f.slurm("alpine").reports() if r.attempt == entry.attempt_id)
    assert report.state is SiteJobState.COMPLETED
    told = replace(report, stalled_since_s=f.clock.now_s)
    f.observe(SiteSent(site=SiteName("alpine"), message=Report(attempts=(told,))))
    assert (f.state(id_), asked(f, id_)) == (WorkloadState.COMPLETED, [])
