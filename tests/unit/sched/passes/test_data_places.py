"""Jobs start where their data sets are, and say which they wait for: the whole federation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from federator.model.data_use import DataUse
from federator.model.dataset import DataGiven, DataPlace, DataVerb, StorageDomain
from federator.model.draft import Draft
from federator.model.event import Awarded, Claimed, ClaimEnded
from federator.model.lifecycle import WorkloadState
from federator.model.message import (
    AnswerData,
    AnswerDataRefused,
    AnswerTested,
    DataAsked,
    LaunchAt,
)
from federator.model.reason import ReasonCode
from federator.model.site import SiteJobState
from federator.model.tenant import Allowance, Tenant
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

RUNS, WAITS = WorkloadState.RUNNING, WorkloadState.PENDING
ALPINE, BAKER, CEDAR = map(SiteName, ("alpine", "baker", "cedar"))
STORAGE = {
    "west": StorageDomain(mounts={ALPINE: "/w"}),
    "east": StorageDomain(mounts={BAKER: "/e", CEDAR: "/mnt/e"}),
}
RULES = Rules(storage=STORAGE)


def fleet(rules: Rules = RULES, nodes: int = 2) -> Loopback:
    """Three sites; alpine is asked first, and wins where scores are equal."""
    names = {"alpine": "a", "baker": "b", "cedar": "c"}
    return Loopback({name: rack(of, nodes) for name, of in names.items()}, rules)


def change(f: Loopback, verb: DataVerb, name: str, **places: str) -> AnswerData | AnswerDataRefused:
    at = tuple(DataPlace(domain=domain, path=path) for domain, path in places.items())
    asked = DataAsked(
        client=-7, verb=verb, sets=(DataGiven(name=name, version="1", at=at),), by="ada"
    )
    f.observe(asked)
    f.run_for(2.0)
    answer = f.answers.pop(-7)
    assert isinstance(answer, AnswerData | AnswerDataRefused)
    return answer


def add(f: Loopback, name: str, **places: str) -> None:
    answer = change(f, DataVerb.ADD, name, **places)
    assert isinstance(answer, AnswerData), answer


def use(name: str, owner: str = "ada") -> DataUse:
    return DataUse(name=name, version="1", owner=owner)


def wanted(*names: str, **more: Any) -> Draft:
    return replace(draft(gang(1)), data=tuple(map(use, names)), **more)


def submit(f: Loopback, *names: str, **more: Any) -> WorkloadId:
    id_ = f.submit(wanted(*names, **more))
    f.run_for(2.0)
    return id_


def end(f: Loopback, id_: WorkloadId) -> None:
    entry = f.entry(id_)
    f.slurm(entry.site).end(entry.attempt_id, SiteJobState.COMPLETED)


def codes(f: Loopback, id_: WorkloadId) -> dict[str, ReasonCode]:
    found = f.federation.refusals_of(f.entry(id_))
    return {site: refusal.reasons[0].code for site, refusal in found.items()}


def test_a_job_runs_where_its_data_is_and_is_given_the_path_there() -> None:
    f = fleet()
    add(f, "wiki", east="text/wiki")
    id_ = submit(f, "wiki")
    assert (f.state(id_), f.entry(id_).site) == (RUNS, BAKER)
    (order,) = (c for c in f.commands if isinstance(c, LaunchAt))
    assert [(p.variable, p.absolute) for p in order.data] == [("FED_DATASET_WIKI", "/e/text/wiki")]


def test_a_job_with_two_data_sets_runs_where_both_are() -> None:
    f = fleet()
    add(f, "a", west="a", east="a")
    add(f, "b", east="b")
    assert f.entry(submit(f, "a", "b")).site == BAKER
    assert f.entry(submit(f, "a")).site == ALPINE


def test_a_job_whose_data_is_nowhere_waits_and_says_for_which_until_it_comes() -> None:
    f = fleet()
    add(f, "a", west="a")
    add(f, "b", east="b")
    missing, apart = submit(f, "c"), submit(f, "a", "b")
    for id_, labels in ((missing, "c@1"), (apart, "a@1, b@1")):
        refusals = f.federation.refusals_of(f.entry(id_))
        assert f.state(id_) is WAITS
        assert list(refusals) == [""]
        reason = refusals[SiteName("")].reasons[0]
        assert (reason.code, reason.detail) == (ReasonCode.DATA, labels)
    add(f, "b", west="b")
    assert (f.state(apart), f.entry(apart).site) == (RUNS, ALPINE)
    add(f, "c", east="c")
    assert (f.state(missing), f.entry(missing).site) == (RUNS, BAKER)


def test_where_the_sites_with_the_data_are_full_the_others_say_what_they_lack() -> None:
    f = fleet(nodes=1)
    add(f, "a", west="a")
    first, second = submit(f, "a"), submit(f, "a")
    assert (f.state(first), f.state(second)) == (RUNS, WAITS)
    found = codes(f, second)
    assert found == {
        "alpine": ReasonCode.RESOURCES,
        "baker": ReasonCode.DATA,
        "cedar": ReasonCode.DATA,
    }
    other = submit(f)  # jobs without data sets go past it
    assert (f.state(other), f.entry(other).site) == (RUNS, BAKER)
    end(f, first)
    f.run_for(30.0)
    assert (f.state(second), f.entry(second).site) == (RUNS, ALPINE)


def test_who_waits_for_data_is_asked_about_at_no_other_site() -> None:
    f = fleet()
    add(f, "a", west="a")
    f.site_down(ALPINE)
    id_ = submit(f, "a")
    f.run_for(1000.0)
    assert f.state(id_) is WAITS
    assert next(iter(codes(f, id_))) == "alpine"  # the main reason is not what others lack
    assert codes(f, id_)["alpine"] is ReasonCode.SITE_DOWN
    assert codes(f, id_)["baker"] is ReasonCode.DATA
    f.site_up(ALPINE)
    f.run_for(30.0)
    assert (f.state(id_), f.entry(id_).site) == (RUNS, ALPINE)


def test_anothers_data_set_of_that_name_is_not_given_to_the_job() -> None:
    f = fleet()
    id_ = f.submit(replace(wanted(), data=(use("a", owner="eve"),)))
    add(f, "a", west="a")  # ada's
    assert f.state(id_) is WAITS
    assert codes(f, id_) == {"": ReasonCode.DATA}


def test_a_restart_and_a_snapshot_keep_what_a_job_asked_for_and_what_it_was_given() -> None:
    f = fleet()
    add(f, "a", east="a")
    runs, waits = submit(f, "a"), submit(f, "nowhere")
    given = f.entry(runs).award
    f.restart()
    f.run_for(30.0)
    assert f.entry(runs).award == given
    assert given is not None
    assert [path.absolute for path in given.data] == ["/e/a"]
    assert codes(f, waits) == {"": ReasonCode.DATA}
    f.compact()
    f.restart()
    f.run_for(30.0)
    assert f.entry(runs).award == given
    add(f, "nowhere", west="n")
    assert f.entry(waits).site == ALPINE


def test_an_agent_of_an_older_release_gets_no_job_with_data() -> None:
    f = fleet()
    add(f, "a", east="a")
    for site in (BAKER, CEDAR):
        agent = f.sites[site].agent
        assert agent is not None
        agent.keeps_data = False
    id_ = submit(f, "a")
    assert f.state(id_) is WAITS
    assert codes(f, id_)["baker"] is ReasonCode.OLD_RELEASE
    assert f.state(submit(f)) is RUNS


def test_a_trial_says_which_sites_lack_the_data() -> None:
    f = fleet()
    add(f, "a", east="a")
    answer = f.ask(wanted("a"), test_only=True)
    assert isinstance(answer, AnswerTested)
    assert answer.winner == BAKER
    refusal = answer.answers[ALPINE].refusal
    assert refusal is not None
    assert refusal.reasons[0].code is ReasonCode.DATA


def test_the_last_replica_that_a_job_names_is_not_taken_out() -> None:
    f = fleet()
    add(f, "a", west="a", east="a")
    id_ = submit(f, "a")
    assert isinstance(change(f, DataVerb.REMOVE, "a", west=""), AnswerData)
    refused = change(f, DataVerb.REMOVE, "a")
    assert isinstance(refused, AnswerDataRefused)
    assert refused.refusal.jobs == 1
    end(f, id_)
    f.run_for(30.0)
    assert isinstance(change(f, DataVerb.REMOVE, "a"), AnswerData)


def test_uses_are_counted_as_jobs_come_start_and_end_and_after_restarts() -> None:
    f = fleet()
    add(f, "a", west="a")

    def uses() -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
        counts = f.federation.ledger.counts
        return dict(counts.using), dict(counts.using_at_sites)

    runs, _, _ = submit(f, "a"), submit(f, "a", "b"), submit(f)
    expected = {("a", "1"): 2, ("b", "1"): 1}, {("a", "1"): 1}
    assert uses() == expected
    f.restart()
    assert uses() == expected
    f.compact()
    f.restart()
    assert uses() == expected
    f.run_for(30.0)
    end(f, runs)
    f.run_for(30.0)
    assert uses() == ({("a", "1"): 1, ("b", "1"): 1}, {("a", "1"): 0})


def test_a_job_that_starts_again_finds_its_data_where_it_is_then() -> None:
    f = fleet()
    add(f, "a", west="a")
    id_ = submit(f, "a")
    add(f, "a", east="copies/a")
    change(f, DataVerb.REMOVE, "a", west="")
    f.slurm("alpine").fail_node("a1")
    f.run_for(60.0)
    award = f.entry(id_).award
    assert award is not None
    assert (f.state(id_), f.entry(id_).site) == (RUNS, BAKER)
    assert [path.absolute for path in award.data] == ["/e/copies/a"]


def test_use_is_noted_with_the_catalogue() -> None:
    f = fleet()
    add(f, "a", west="a", east="a")
    submit(f, "a")
    (awarded,) = (e for e in f.log if isinstance(e, Awarded))
    found = f.federation.ledger.catalogue.find("a")
    assert found is not None
    assert [r.used_at_s for r in found.replicas] == [awarded.at_s, 0.0]


# ---- with evictions ----

GUEST = Tenant(name=TenantName("guest"))
OWNER = Tenant(name=TenantName("owner"), priority=3, quota=Allowance(gpus=64))
EVICTS = Rules(preempt_gpus=16, preempt_window_s=300.0, grace_s=60.0, storage=STORAGE)


def owned() -> Loopback:
    """Two sites of one node each, both taken by guests."""
    sites = {"alpine": rack("a", 1), "baker": rack("b", 1)}
    f = Loopback(sites, EVICTS, None, Mast(), (GUEST, OWNER))
    for _ in sites:
        f.submit(replace(draft(gang(1)), tenant=TenantName("guest"), time_limit_s=36_000.0))
    f.run_for(5.0)
    return f


def test_only_who_is_in_the_way_of_the_data_is_evicted() -> None:
    f = owned()
    add(f, "a", east="a")
    id_ = submit(f, "a", tenant=TenantName("owner"))
    f.run_for(200.0)
    assert (f.state(id_), f.entry(id_).site) == (RUNS, BAKER)
    evicted = [e for e in f.federation.ledger.entries.values() if e.preemptions]
    assert len(evicted) == 1


def test_nobody_is_evicted_and_nothing_claimed_for_a_job_whose_data_is_nowhere() -> None:
    f = owned()
    id_ = submit(f, "a", tenant=TenantName("owner"))
    f.run_for(1000.0)
    assert f.state(id_) is WAITS
    assert not any(e.preemptions for e in f.federation.ledger.entries.values())
    assert not any(isinstance(e, Claimed | ClaimEnded) for e in f.log)


def test_a_reload_with_other_storage_counts_at_once() -> None:
    f = fleet()
    add(f, "a", west="a")
    id_ = submit(f, "b")
    add(f, "b", west="b")
    assert f.entry(id_).site == ALPINE
    other = replace(RULES, storage={"west": StorageDomain(mounts={CEDAR: "/c"})})
    f.reload(other)
    f.run_for(5.0)
    assert f.entry(submit(f, "a")).site == CEDAR


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_of_jobs_alike_but_for_their_data_none_stands_for_the_other(
    names: tuple[str, ...],
) -> None:
    """What sites refuse one of them says nothing of where the other may start."""
    f = fleet(nodes=1)
    add(f, "a", west="a")
    add(f, "b", east="b")
    full = submit(f, "a")
    assert f.entry(full).site == ALPINE
    ids = [f.submit(wanted(name)) for name in names]
    f.run_for(5.0)
    found = {name: f.state(id_) for name, id_ in zip(names, ids, strict=True)}
    assert found == {"a": WAITS, "b": RUNS}
