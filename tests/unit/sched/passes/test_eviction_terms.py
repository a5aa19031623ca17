"""Terms of evictions that are kept from pass to pass: what renews them, and what does not."""

from __future__ import annotations

from dataclasses import replace

from federator.model.event import Awarded, Changed, Forgotten, Submitted
from federator.model.lifecycle import WorkloadEvent
from federator.model.site import Leave
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import FIRST_WORKLOAD_ID, SiteName, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.passes.eviction import victim_terms
from federator.sched.passes.eviction_terms import EvictionTerms
from federator.sched.passes.federation import Federation
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules
from federator.sched.state.save_times import family_of
from tests.fakes.build import attempt, draft, gang, plan_on

RULES = Rules(preempt_gpus=8, cooldown_s=600.0)
ALPINE, BAKER = SiteName("alpine"), SiteName("baker")


def of_lab(name: str, quota: float | None, priority: int = 3) -> Tenant:
    allowance = None if quota is None else Allowance(gpus=quota)
    return Tenant(
        name=TenantName(name), priority=priority, quota=allowance, parent=TenantName("lab")
    )


class Kept:
    """A ledger, and the terms that are kept of it."""

    def __init__(self) -> None:
        lab = Tenant(name=TenantName("lab"), quota=Allowance(gpus=12))
        self.ledger = Ledger(Tenancy((lab, of_lab("vision", 8), of_lab("speech", None, 4))))
        self.terms = EvictionTerms(self.ledger, RULES)
        self.now_s = 0.0

    def runs(self, number: int, tenant: str, gpus: int, site: str = ALPINE, **more: bool) -> None:
        self.now_s += 1.0
        id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
        wanted = draft(gang(1, gpus), name=f"w{number}", tenant=tenant)
        wanted = replace(wanted, **more)  # type: ignore[arg-type]  # fields of a draft
        self.ledger.apply(Submitted(at_s=self.now_s, draft=wanted, first_id=id_, key=f"k{number}"))
        self.starts(number, gpus, site)

    def starts(self, number: int, gpus: int, site: str, nth: int = 1) -> None:
        plan = plan_on(f"{site}{number}", gpus=gpus)
        self.ledger.apply(
            Awarded(at_s=self.now_s, attempt=attempt(number, nth), site=site, jobs=plan)
        )
        self.change(number, WorkloadEvent.ACCEPTED, nth, site_job_id=7)
        self.change(number, WorkloadEvent.STARTED, nth, started_at_s=self.now_s)

    def change(self, number: int, event: WorkloadEvent, nth: int = 1, **more: object) -> None:
        self.now_s += 1.0
        id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
        self.ledger.apply(
            Changed(at_s=self.now_s, workload=id_, attempt=nth, happening=event, **more)  # type: ignore[arg-type]  # its fields
        )

    def priorities(self) -> dict[int, int]:
        """By number; renewed, and held against what the whole ledger says."""
        self.terms.renew(self.now_s)
        assert self.terms.by_id == victim_terms(self.ledger, RULES, self.now_s)
        return {id_ - FIRST_WORKLOAD_ID: t.priority for id_, t in self.terms.by_id.items()}


def test_what_one_of_a_family_takes_makes_another_run_over_quota_and_back() -> None:
    kept = Kept()
    kept.runs(1, "speech", 8)
    assert kept.priorities() == {1: 4}
    kept.runs(2, "vision", 8)
    assert kept.priorities() == {1: 4, 2: 7}
    kept.change(1, WorkloadEvent.COMPLETED)
    assert kept.priorities() == {2: 3}


def test_a_tenant_that_nobody_has_named_before_has_no_quota() -> None:
    kept = Kept()
    kept.priorities()
    kept.runs(1, "guest", 1)
    assert kept.priorities() == {1: 7}


def test_who_comes_back_elsewhere_is_there_and_nowhere_else() -> None:
    kept = Kept()
    kept.runs(1, "vision", 8)
    kept.priorities()
    at_alpine = kept.terms.at(ALPINE)
    kept.change(1, WorkloadEvent.SITE_PREEMPTED)
    kept.starts(1, 8, BAKER, nth=2)
    assert kept.priorities() == {1: 3}
    assert not kept.terms.at(ALPINE)
    assert list(kept.terms.at(BAKER)) == [FIRST_WORKLOAD_ID + 1]
    assert list(at_alpine) == [FIRST_WORKLOAD_ID + 1]  # a question with it may be on its way


def test_what_is_learned_of_one_run_concerns_its_family_everywhere() -> None:
    kept = Kept()
    kept.runs(1, "vision", 1)
    kept.priorities()
    workload = kept.ledger.entries[WorkloadId(FIRST_WORKLOAD_ID + 1)].workload
    leave = Leave(told_at_s=10.0, saved_at_s=400.0)
    kept.ledger.saves.learn(family_of(workload), leave, 0.0)
    kept.priorities()
    (terms,) = kept.terms.at(ALPINE).values()
    assert terms.save_s == 390.0


def test_who_comes_near_its_time_limit_has_no_terms_though_nothing_has_changed() -> None:
    kept = Kept()
    kept.runs(1, "vision", 8, continues=True)
    assert kept.priorities() == {1: 3}
    kept.now_s += 3590.0
    assert kept.priorities() == {}


def test_who_is_forgotten_has_no_terms() -> None:
    kept = Kept()
    kept.runs(1, "vision", 8)
    kept.priorities()
    kept.change(1, WorkloadEvent.COMPLETED)
    kept.ledger.apply(Forgotten(at_s=kept.now_s, ids=(WorkloadId(FIRST_WORKLOAD_ID + 1),)))
    assert kept.priorities() == {}


def test_nothing_new_is_the_same_object() -> None:
    kept = Kept()
    kept.runs(1, "vision", 4)
    kept.priorities()
    before = kept.terms.at(ALPINE)
    kept.runs(2, "vision", 1, BAKER, requeue=False)
    kept.priorities()
    assert kept.terms.at(ALPINE) is before


def test_who_may_evict_nobody_collects_nothing() -> None:
    """A fleet without GPUs has no budget: nobody would read it, and it would grow for ever."""
    assert not Federation({ALPINE: ("gpu",)}, Mast(), RULES).ledger.watches
    kept = Kept()
    kept.runs(1, "vision", 1)
    assert not kept.ledger.watches
    kept.terms.renew(kept.now_s)  # all that is known by then is looked at
    assert len(kept.terms.by_id) == 1
