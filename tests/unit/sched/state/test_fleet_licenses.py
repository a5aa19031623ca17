"""What of --licenses is of a pool that all sites share, and what is left of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.model.event import Amended
from federator.model.lifecycle import AT_SITE, WorkloadState
from federator.model.message import AnswerRefused, AnswerTested, SubmitAsked
from federator.model.reason import ReasonCode, RefusalKind
from federator.model.site import NodeShare
from federator.model.workload import Job, SiteName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.state.fleet_licenses import asked_of_pools, beyond_pools, split
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

POOLS = {"flexlm": 4, "solver@lm": 1}


def with_pool(amount: int = 1, name: str = "flexlm") -> Job:
    return replace(gang(1, 1), fleet_licenses=((name, amount),))


def federation(**pools: int) -> Loopback:
    rules = Rules(licenses=pools or POOLS, pass_interval_s=5.0)
    return Loopback({"alpine": rack("a", 4), "baker": rack("b", 4)}, rules, None, Mast())


def at_sites(f: Loopback, *ids: WorkloadId) -> list[bool]:
    f.run_for(30.0)
    return [f.state(id_) in AT_SITE for id_ in ids]


# ---- which are the federation's ----


def test_names_of_pools_go_to_the_federation_and_all_others_to_the_site() -> None:
    job = replace(gang(1), licenses=(("flexlm", 2), ("matlab", 1)))
    (found,) = split((job,), POOLS)
    assert (found.licenses, found.fleet_licenses) == ((("matlab", 1),), (("flexlm", 2),))
    assert split((job,), {}) == (job,)


def test_the_components_of_a_het_job_take_theirs_together() -> None:
    jobs = (with_pool(3), gang(1), with_pool(2))
    assert asked_of_pools(jobs) == (("flexlm", 5),)
    refusal = beyond_pools(jobs, POOLS)
    assert refusal is not None
    assert refusal.kind is RefusalKind.REJECT
    assert beyond_pools(jobs, {"flexlm": 5}) is None


# ---- what may start ----


def test_no_more_start_at_all_sites_together_than_the_pool_has() -> None:
    f = federation()
    ids = [f.submit(draft(with_pool(2))) for _ in range(3)]
    assert at_sites(f, *ids) == [True, True, False]
    ((site, refusal),) = f.federation.refusals_of(f.entry(ids[2])).items()
    (reason,) = refusal.reasons
    assert (site, refusal.kind, reason.code) == ("", RefusalKind.WAIT, ReasonCode.LICENSES)
    assert (reason.unit, reason.needed, reason.free) == ("flexlm", 2, 0)
    assert at_sites(f, f.submit(draft(gang(1, 1)))) == [True]  # who wants none is not kept
    f.cancel(ids[0])
    assert at_sites(f, *ids[1:]) == [True, True]


def test_who_wants_few_may_start_while_who_wants_many_waits() -> None:
    f = federation()
    first, many, few = (f.submit(draft(with_pool(n))) for n in (2, 3, 2))
    assert at_sites(f, first, many, few) == [True, False, True]


def test_tasks_of_an_array_take_theirs_one_by_one() -> None:
    f = federation()
    first = f.submit(draft(with_pool(), array_indices=tuple(range(6))))
    ids = [WorkloadId(first + k) for k in range(6)]
    assert sum(at_sites(f, *ids)) == 4
    assert f.federation.ledger.counts.licenses == {"flexlm": 4}


def test_a_job_that_no_site_takes_keeps_no_licence_from_others() -> None:
    f = federation(flexlm=1)
    for site, node in (("alpine", "a1"), ("baker", "b1")):
        f.slurm(SiteName(site)).take_locally(node, NodeShare(gpus=8))
    f.run_for(10.0)
    large = f.submit(draft(replace(gang(4, 8), fleet_licenses=(("flexlm", 1),))))
    small = f.submit(draft(with_pool()))
    assert at_sites(f, large, small) == [False, True]


@pytest.mark.parametrize(("amount", "name"), [(5, "flexlm"), (1, "gone")])
def test_more_than_there_ever_is_is_refused_at_once(amount: int, name: str) -> None:
    f = federation()
    wanted = draft(with_pool(amount, name))
    f.observe(SubmitAsked(client=7, key="key-00007", draft=wanted))
    answer = f.answers.pop(7)
    assert isinstance(answer, AnswerRefused)
    (reason,) = answer.refusals[SiteName("")].reasons
    assert (reason.code, reason.needed) == (ReasonCode.LICENSES, amount)


def test_a_trial_says_that_the_licences_are_taken() -> None:
    f = federation()
    f.submit(draft(with_pool(4)))
    f.run_for(10.0)
    f.observe(SubmitAsked(client=7, key="key-00007", draft=draft(with_pool()), test_only=True))
    f.run_for(10.0)
    answer = f.answers.pop(7)
    assert isinstance(answer, AnswerTested)
    refusal = answer.answers[SiteName("")].refusal
    assert answer.winner is None
    assert refusal is not None
    assert refusal.reasons[0].code is ReasonCode.LICENSES


# ---- how many are held ----


def test_a_restart_and_a_snapshot_know_what_is_held() -> None:
    f = federation()
    ids = [f.submit(draft(with_pool(3))), f.submit(draft(with_pool(3)))]
    f.run_for(10.0)
    for _ in range(2):
        f.restart()
        assert at_sites(f, *ids) == [True, False]
        assert f.federation.ledger.counts.licenses == {"flexlm": 3}
        f.compact()


def test_a_reload_makes_a_pool_larger_or_smaller_and_ends_nothing() -> None:
    f = federation(flexlm=2)
    ids = [f.submit(draft(with_pool(2))) for _ in range(3)]
    assert at_sites(f, *ids) == [True, False, False]
    f.reload(replace(f.federation.rules, licenses={"flexlm": 4}))
    assert at_sites(f, *ids) == [True, True, False]
    f.reload(replace(f.federation.rules, licenses={}))
    assert at_sites(f, *ids) == [True, True, False]
    f.cancel(ids[0], ids[1])
    assert at_sites(f, ids[2]) == [False]
    f.reload(replace(f.federation.rules, licenses={"flexlm": 2}))
    assert at_sites(f, ids[2]) == [True]


def test_a_job_that_asks_for_others_holds_those() -> None:
    f = federation()
    held, waits = f.submit(draft(with_pool(3))), f.submit(draft(with_pool(3)))
    assert at_sites(f, held, waits) == [True, False]
    ledger = f.federation.ledger
    ledger.apply(Amended(at_s=9.0, workloads=(waits,), jobs=(with_pool(1, "solver@lm"),)))
    f.run_for(10.0)
    assert f.state(waits) is WorkloadState.RUNNING
    assert ledger.counts.licenses == {"flexlm": 3, "solver@lm": 1}
