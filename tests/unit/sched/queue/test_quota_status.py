"""Within quota or not, of what runs; and what is in the way of what waits. By hand."""

from __future__ import annotations

from collections.abc import Sequence

from federator.model.event import Awarded, Changed, Submitted
from federator.model.lifecycle import WorkloadEvent
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import FIRST_WORKLOAD_ID, Job, TenantName, WorkloadId
from federator.policies.mast import Mast
from federator.sched.queue.quota_status import QuotaReport, QuotaStatus, Shortfall, quota_statuses
from federator.sched.state.ledger import Ledger
from tests.fakes.build import attempt, draft, gang, plan_on, tenant

WITHIN, OVER = (
    QuotaStatus(priority=3, within_quota=True),
    QuotaStatus(priority=7, within_quota=False),
)


class History:
    """A ledger to which things happen; workloads are called by their number."""

    def __init__(self, *tenants: Tenant) -> None:
        self.ledger = Ledger(Tenancy(tenants))
        self._now_s = 0.0

    def submit(self, *jobs: Job, tenant: str = "vision", asked_priority: int = 1) -> None:
        wanted = draft(*jobs, tenant=tenant, asked_priority=asked_priority)
        id_ = self.ledger.next_id
        self.ledger.apply(Submitted(at_s=self._later(), draft=wanted, first_id=id_, key=str(id_)))

    def award(self, number: int, *, within: bool, gpus: int = 8, cpus: int = 1) -> None:
        self.ledger.apply(
            Awarded(
                at_s=self._later(),
                attempt=attempt(number),
                site="alpine",
                jobs=plan_on(f"a{number}", gpus=gpus, cpus=cpus),
                within_quota=within,
            )
        )

    def lose(self, number: int) -> None:
        """The site declines, and the workload is cancelled."""
        for happening in (WorkloadEvent.DECLINED, WorkloadEvent.CANCEL_ASKED):
            id_ = WorkloadId(FIRST_WORKLOAD_ID + number)
            self.ledger.apply(Changed(at_s=self._later(), workload=id_, happening=happening))

    def running(self, *within: bool, tenant: str = "vision") -> History:
        for number, is_within in enumerate(within):
            self.submit(tenant=tenant)
            self.award(number, within=is_within)
        return self

    def standings(self) -> list[QuotaStatus]:
        return list(dict(sorted(quota_statuses(self.ledger).items())).values())

    def shortfalls(self) -> list[Shortfall]:
        """Of all that wait, in the order of their ids."""
        Mast().rank(self.ledger, self._now_s + 100.0)
        report = QuotaReport(self.ledger.holdings, self.ledger.backlog)
        waiting = [e for e in self.ledger.entries.values() if e.charge is None]
        return [report.shortfall(e.workload) for e in waiting]

    def _later(self) -> float:
        self._now_s += 1.0
        return self._now_s


def asking(gpus: int, cpus: int = 1) -> Job:
    return gang(1, gpus, cpus_per_node=cpus)


def short(name: Sequence[str], held: int, promised: int, asked: int, quota: int) -> Shortfall:
    owner, unit = name
    return Shortfall(
        tenant=TenantName(owner), unit=unit, held=held, promised=promised, asked=asked, quota=quota
    )


# ---- what runs ----


def test_what_was_awarded_within_quota_stays_so() -> None:
    history = History(tenant("vision", 16)).running(True, True)
    assert history.standings() == [WITHIN, WITHIN]


def test_what_was_borrowed_is_over_quota_while_the_quota_is_used() -> None:
    history = History(tenant("vision", 16)).running(True, True, False)
    assert history.standings() == [WITHIN, WITHIN, OVER]


def test_what_was_borrowed_becomes_the_tenants_own_when_its_quota_comes_free() -> None:
    history = History(tenant("vision", 16)).running(True, True, False, False)
    history.lose(0)
    assert history.standings() == [WITHIN, WITHIN, OVER]  # of the two, the one borrowed first


def test_an_earlier_borrower_takes_nothing_from_a_later_award_within_quota() -> None:
    history = History(tenant("vision", 8)).running(False, True)
    assert history.standings() == [OVER, WITHIN]


def test_what_was_borrowed_uses_up_the_quota_for_smaller_ones_borrowed_later() -> None:
    history = History(tenant("vision", 16))
    for number, gpus in enumerate((24, 8)):
        history.submit()
        history.award(number, within=False, gpus=gpus)
    assert history.standings() == [OVER, OVER]
    history.lose(0)
    assert history.standings() == [WITHIN]


def test_what_runs_is_judged_by_the_quota_of_now() -> None:
    larger = History(tenant("vision", 16)).running(False, False)
    assert larger.standings() == [WITHIN, WITHIN]
    smaller = History(tenant("vision", 8)).running(True, True)
    assert smaller.standings() == [WITHIN, OVER]


def test_a_running_workload_that_asked_for_less_stands_at_that_level() -> None:
    history = History(tenant("vision", 8, priority=2))
    history.submit(asked_priority=5)
    history.award(0, within=True)
    assert history.standings() == [QuotaStatus(priority=5, within_quota=True)]


def test_siblings_share_the_quota_above_them_in_the_order_of_their_awards() -> None:
    history = History(
        tenant("lab", 16), tenant("vision", 16, parent="lab"), tenant("speech", parent="lab")
    )
    for number, who in enumerate(("speech", "vision", "vision")):
        history.submit(tenant=who)
        history.award(number, within=True)
    assert history.standings() == [WITHIN, WITHIN, OVER]


def test_without_a_quota_all_that_runs_is_over() -> None:
    assert History(tenant("vision")).running(True, False).standings() == [OVER, OVER]
    assert History().running(True).standings() == [OVER]


def test_what_waits_or_has_ended_has_no_standing() -> None:
    history = History(tenant("vision", 16)).running(True)
    history.submit()
    history.lose(0)
    assert history.standings() == []


def test_an_award_of_an_older_release_is_judged_like_one_that_was_borrowed() -> None:
    history = History(tenant("vision", 8))
    history.submit()
    history.ledger.apply(Awarded(at_s=5.0, attempt=attempt(), site="alpine", jobs=plan_on("a1")))
    assert history.standings() == [WITHIN]  # its quota is free


# ---- what waits ----


def test_a_shortfall_names_the_quota_and_its_numbers() -> None:
    history = History(tenant("vision", 20)).running(True)
    history.submit(asking(8))
    history.submit(asking(8))
    assert history.shortfalls()[1] == short(("vision", "GPUs"), 8, 8, 8, 20)


def test_a_shortfall_may_be_of_cpus() -> None:
    history = History(tenant("vision", Allowance(gpus=64, cpus=16)))
    history.submit(asking(8, 12))
    history.submit(asking(8, 8))
    assert history.shortfalls()[1] == short(("vision", "CPUs"), 0, 12, 8, 16)


def test_a_shortfall_may_be_of_one_gpu_type() -> None:
    history = History(tenant("vision", Allowance(gpu_types={"h100": 4})))
    history.submit(Job(name="train", nodes=1, gpus_per_node=8, gpu_types=("h100",)))
    assert history.shortfalls() == [short(("vision", "h100 GPUs"), 0, 0, 8, 4)]


def test_a_shortfall_may_be_of_an_ancestor_whose_other_children_hold_the_rest() -> None:
    history = History(
        tenant("lab", 16), tenant("vision", 16, parent="lab"), tenant("speech", parent="lab")
    )
    history.submit(tenant="speech")
    history.award(0, within=True)
    history.submit(tenant="speech")
    history.submit()
    assert history.shortfalls()[1] == short(("lab", "GPUs"), 8, 8, 8, 16)


def test_without_any_quota_the_shortfall_names_none() -> None:
    history = History()
    history.submit()
    assert history.shortfalls() == [Shortfall()]


def test_smaller_ones_that_still_fit_count_as_promised() -> None:
    history = History(tenant("vision", 16))
    for gpus in (10, 8, 4):
        history.submit(asking(gpus))
    assert history.shortfalls()[1] == short(("vision", "GPUs"), 0, 14, 8, 16)
