"""Sites in shadow mode get no work, and workloads that wait for them say so."""

from __future__ import annotations

from dataclasses import replace

from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerTested, DrainAsked
from federator.model.reason import ReasonCode
from federator.model.workload import SiteName
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

ALPINE, BAKER = SiteName("alpine"), SiteName("baker")
WATCHED = Rules(preempt_frac=0.5, shadow=frozenset({ALPINE}))


def test_a_workload_that_only_a_watched_site_could_take_waits_with_that_reason() -> None:
    f = Loopback({"alpine": rack("a", 4), "baker": rack("b", 1)}, WATCHED)
    id_ = f.submit(draft(gang(4, 8)))
    f.run_for(600.0)
    entry = f.federation.ledger.entries[id_]
    assert entry.state is WorkloadState.PENDING
    refusals = f.federation.refusals_of(entry)
    assert [r.code for r in refusals[ALPINE].reasons] == [ReasonCode.SHADOW]


def test_work_goes_to_the_other_sites() -> None:
    f = Loopback({"alpine": rack("a", 4), "baker": rack("b", 1)}, WATCHED)
    id_ = f.submit(draft(gang(1, 8)))
    f.run_for(10.0)
    assert f.federation.ledger.entries[id_].site == BAKER


def test_a_question_about_a_test_only_job_is_not_put_to_it() -> None:
    f = Loopback({"alpine": rack("a", 1)}, WATCHED)
    answer = f.ask(draft(gang(1, 8)), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert answer.winner is None
    refusal = answer.answers[ALPINE].refusal
    assert refusal is not None
    assert refusal.reasons[0].code is ReasonCode.SHADOW


ADVISES = replace(WATCHED, advisory=frozenset({ALPINE}))


def test_a_site_in_mode_advisory_says_that_a_test_only_job_would_start_there() -> None:
    f = Loopback({"alpine": rack("a", 1)}, ADVISES)
    answer = f.ask(draft(gang(1, 8)), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert (answer.winner, answer.advised) == (None, (ALPINE,))
    assert answer.answers[ALPINE].bid is not None


def test_what_is_advised_is_beside_who_would_win() -> None:
    f = Loopback({"alpine": rack("a", 1), "baker": rack("b", 1)}, ADVISES)
    answer = f.ask(draft(gang(1, 8)), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert (answer.winner, answer.advised) == (BAKER, (ALPINE,))


def test_in_mode_advisory_nothing_is_started() -> None:
    f = Loopback({"alpine": rack("a", 4), "baker": rack("b", 1)}, ADVISES)
    id_ = f.submit(draft(gang(4, 8)))
    f.run_for(600.0)
    entry = f.federation.ledger.entries[id_]
    assert entry.state is WorkloadState.PENDING
    refusals = f.federation.refusals_of(entry)
    assert [r.code for r in refusals[ALPINE].reasons] == [ReasonCode.SHADOW]


def test_a_site_in_mode_advisory_that_is_drained_advises_nothing() -> None:
    f = Loopback({"alpine": rack("a", 1)}, ADVISES)
    f.observe(DrainAsked(client=9, site=ALPINE, by="root"))
    answer = f.ask(draft(gang(1, 8)), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert (answer.winner, answer.advised) == (None, ())


def test_its_gpus_are_no_part_of_the_eviction_budget() -> None:
    f = Loopback({"alpine": rack("a", 4), "baker": rack("b", 1)}, WATCHED)
    assert f.federation.eviction_budget(f.clock.now_s)[0] == 4.0
    f.reload(replace(WATCHED, shadow=frozenset()))
    assert f.federation.eviction_budget(f.clock.now_s)[0] == 20.0


def test_work_starts_as_soon_as_the_site_is_watched_no_more() -> None:
    f = Loopback({"alpine": rack("a", 1)}, WATCHED)
    id_ = f.submit(draft(gang(1, 8)))
    f.run_for(30.0)
    f.reload(replace(WATCHED, shadow=frozenset()))
    f.run_for(5.0)
    assert f.federation.ledger.entries[id_].state is WorkloadState.RUNNING
