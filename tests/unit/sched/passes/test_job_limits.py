"""How many jobs a user and a tenant may have: what is refused, what waits, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from federator.model.draft import Draft
from federator.model.event import Amended
from federator.model.lifecycle import AT_SITE, TERMINAL, WorkloadState
from federator.model.message import AnswerRefused, SubmitAsked
from federator.model.reason import ReasonCode
from federator.model.site import NodeShare
from federator.model.tenant import JobLimits, Tenancy, Tenant
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes.limits import submit_refusal
from tests.fakes.build import draft, gang, rack, tenant
from tests.fakes.loopback import Loopback

VISION = TenantName("vision")
TAKEN = ((SiteName("alpine"), "a1"), (SiteName("baker"), "b1"))  # by local users, where they are
_CLIENTS = count(10_000)


def limited(**limits: float) -> Tenant:
    return replace(tenant(), jobs=JobLimits(**limits))


def federation(*tenants: Tenant) -> Loopback:
    nodes = {"alpine": rack("a", 4), "baker": rack("b", 4)}
    return Loopback(nodes, None, None, Mast(), tenants)


def submitted(f: Loopback, wanted: Draft, jobs: int) -> list[WorkloadId]:
    return [f.submit(wanted) for _ in range(jobs)]


def refused(f: Loopback, wanted: Draft) -> ReasonCode | None:
    """The code of the refusal of a submission; None: it was queued."""
    client = next(_CLIENTS)
    f.observe(SubmitAsked(client=client, key=f"key-{client}", draft=wanted))
    answer = f.answers.pop(client)
    if not isinstance(answer, AnswerRefused):
        return None
    (reason,) = answer.refusals[next(iter(answer.refusals))].reasons
    return reason.code


def at_sites(f: Loopback, ids: Sequence[WorkloadId]) -> list[bool]:
    f.run_for(30.0)
    return [f.state(id_) in AT_SITE for id_ in ids]


# ---- those that may live ----


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"submit_per_user": 3}, ReasonCode.USER_SUBMIT),
        ({"submit": 3}, ReasonCode.TENANT_SUBMIT),
        ({"submit": 3, "submit_per_user": 3}, ReasonCode.USER_SUBMIT),
        ({"submit": 4}, None),
        ({}, None),
    ],
)
def test_a_submission_beyond_the_limit_is_refused_with_slurms_reason(
    limits: dict[str, float], code: ReasonCode | None
) -> None:
    f = federation(limited(**limits))
    submitted(f, draft(), 3)
    assert refused(f, draft()) is code


def test_a_limit_of_users_is_each_users_own_and_one_of_a_tenant_is_not() -> None:
    f = federation(limited(submit_per_user=2, submit=3))
    submitted(f, draft(user="ada"), 2)
    assert refused(f, draft(user="bob")) is None
    assert refused(f, draft(user="bob")) is ReasonCode.TENANT_SUBMIT


def test_tasks_of_an_array_count_one_by_one() -> None:
    f = federation(limited(submit_per_user=3))
    assert refused(f, draft(array_indices=(0, 1, 2, 3))) is ReasonCode.USER_SUBMIT
    f.submit(draft(array_indices=(0, 1)))
    assert refused(f, draft(array_indices=(0, 1))) is ReasonCode.USER_SUBMIT
    assert refused(f, draft()) is None


def test_what_has_ended_counts_no_more() -> None:
    f = federation(limited(submit_per_user=1))
    (first,) = submitted(f, draft(), 1)
    assert refused(f, draft()) is ReasonCode.USER_SUBMIT
    f.cancel(first)
    f.run_for(10.0)
    assert f.state(first) is WorkloadState.CANCELLED
    assert refused(f, draft()) is None


def test_a_parents_limit_counts_all_below_it_and_users_inherit_theirs() -> None:
    lab = replace(tenant("lab"), jobs=JobLimits(submit=3, submit_per_user=2))
    f = federation(lab, tenant("vision", parent="lab"), tenant("nlp", parent="lab"))
    submitted(f, draft(tenant="vision"), 2)
    assert refused(f, draft(tenant="vision")) is ReasonCode.USER_SUBMIT
    submitted(f, draft(tenant="nlp"), 1)
    assert refused(f, draft(tenant="nlp")) is ReasonCode.TENANT_SUBMIT


def test_a_retry_of_what_was_queued_is_answered_with_its_id() -> None:
    f = federation(limited(submit_per_user=1))
    first = f.submit(draft(), key="key-again")
    assert f.submit(draft(), key="key-again") == first


def test_limits_hold_after_a_restart_and_from_a_snapshot() -> None:
    f = federation(limited(submit_per_user=2))
    submitted(f, draft(), 2)
    for _ in range(2):
        f.restart()
        assert refused(f, draft()) is ReasonCode.USER_SUBMIT
        f.compact()


def test_the_counts_are_those_of_the_jobs_whatever_becomes_of_them() -> None:
    f = federation(limited())
    ids = [f.submit(draft(user=user)) for user in ("ada", "bob") for _ in range(6)]
    f.run_for(5.0)
    f.cancel(ids[0], ids[-1])
    f.site_down("baker")
    f.run_for(5.0)
    for _ in range(2):
        entries = f.federation.ledger.entries.values()
        live = Counter((VISION, e.workload.user) for e in entries if e.state not in TERMINAL)
        there = Counter((VISION, e.workload.user) for e in entries if e.state in AT_SITE)
        counts = f.federation.ledger.counts
        assert (counts.live, +counts.at_sites) == (live, there)
        assert (counts.live_of[VISION], counts.at_sites_of[VISION]) == (
            live.total(),
            there.total(),
        )
        f.compact()
        f.restart()


def test_other_limits_hold_from_a_reload_on() -> None:
    f = federation(limited(submit_per_user=1))
    submitted(f, draft(), 1)
    ledger = f.federation.ledger
    ledger.tenancy = Tenancy([limited(submit_per_user=2)])
    assert submit_refusal(ledger, VISION, "ada", 1) is None
    ledger.tenancy = Tenancy([limited(submit_per_user=1)])
    assert submit_refusal(ledger, VISION, "ada", 1) is not None


def test_jobs_that_change_their_account_count_in_the_new_one() -> None:
    f = federation(limited(submit_per_user=1), tenant("nlp"))
    (first,) = submitted(f, draft(tenant="nlp"), 1)
    ledger = f.federation.ledger
    ledger.apply(Amended(at_s=9.0, workloads=(first,), tenant=VISION))
    assert refused(f, draft()) is ReasonCode.USER_SUBMIT
    assert ledger.counts.live == {(VISION, "ada"): 1}


# ---- those that may run ----


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ({"running_per_user": 2}, ReasonCode.USER_JOBS),
        ({"running": 2}, ReasonCode.TENANT_JOBS),
    ],
)
def test_no_more_jobs_run_than_may_and_the_others_say_why(
    limits: dict[str, float], code: ReasonCode
) -> None:
    f = federation(limited(**limits))
    ids = submitted(f, draft(), 4)
    assert at_sites(f, ids) == [True, True, False, False]
    (refusal,) = f.federation.refusals_of(f.entry(ids[2])).values()
    assert refusal.reasons[0].code is code
    f.cancel(ids[0])
    assert at_sites(f, ids[1:]) == [True, True, False]


def test_one_users_limit_does_not_keep_another_from_starting() -> None:
    f = federation(limited(running_per_user=1))
    ids = [f.submit(draft(user=user)) for user in ("ada", "ada", "ada", "bob", "bob")]
    assert at_sites(f, ids) == [True, False, False, True, False]


def test_tasks_and_jobs_share_the_places() -> None:
    f = federation(limited(running_per_user=3))
    first = f.submit(draft(gang(1, 1), array_indices=(0, 1, 2, 3), array_max_running=2))
    ids = [*(WorkloadId(first + k) for k in range(4)), f.submit(draft()), f.submit(draft())]
    found = at_sites(f, ids)
    assert (sum(found), sum(found[:4])) == (3, 2)


def test_many_of_one_user_behind_the_limit_leave_the_place_to_who_has_one() -> None:
    f = federation(limited(running_per_user=1))
    ids = submitted(f, draft(user="ada"), 50)
    other = f.submit(draft(user="bob"))
    assert sum(at_sites(f, ids)) == 1
    assert at_sites(f, [other]) == [True]


@pytest.mark.parametrize("limits", [{"running_per_user": 1}, {"running": 1}])
def test_a_job_that_no_site_takes_does_not_keep_the_only_place(limits: dict[str, float]) -> None:
    f = federation(limited(**limits))
    for site, node in TAKEN:
        f.slurm(site).take_locally(node, NodeShare(gpus=8))
    f.run_for(10.0)
    large, small = f.submit(draft(gang(4, 8), user="ada")), f.submit(draft(user="ada"))
    assert at_sites(f, [large, small]) == [False, True]
