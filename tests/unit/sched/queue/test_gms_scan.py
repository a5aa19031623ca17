"""Who is within quota, by hand. Unless said otherwise a workload asks for one node with 8 GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from federator.model.site_mode import SiteMode
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import FIRST_WORKLOAD_ID, Job, TenantName, Workload
from federator.sched.queue.gms_scan import GmsScan
from federator.sched.state.backlog import Backlog
from federator.sched.state.credit import CreditWeights
from federator.sched.state.holdings import Charge, Holdings
from federator.sched.state.usage import WindowAverage
from tests.fakes.build import gang, tenant, workload

HOUR_S = 3600.0
NOW_S = 100 * HOUR_S


class Queue:
    """Waiting workloads and what is held; ``within`` scans anew."""

    def __init__(self, tenants: Sequence[Tenant], *queue: Workload) -> None:
        self.tenancy = Tenancy(tenants)
        self.backlog = Backlog(self.tenancy)
        self.holdings = Holdings(self.tenancy, WindowAverage(HOUR_S))
        for waiting in queue:
            self.backlog.add(waiting)

    def hold(
        self, name: str, gpus: int, cpus: int = 0, *, within: bool = False, **gpu_types: int
    ) -> None:
        row = self.tenancy.row(TenantName(name))
        amounts = self.tenancy.resources.amounts(gpus, cpus, gpu_types)
        self.holdings.add(Charge(row=row, amounts=amounts, weighted_gpus=0.0), within, 0.0)
        self.backlog.touch(row)

    def within(self, fair_share: Sequence[float] = (), now_s: float = NOW_S) -> list[int]:
        """The numbers of those within quota."""
        terms = list(fair_share) or [0.0] * len(self.tenancy)
        GmsScan(self.backlog, self.holdings, CreditWeights(), terms, now_s).run()
        lanes = [lane for row in self.backlog.rows() for lane in self.backlog.lanes(row)]
        places = (place for lane in lanes for place in map(lane.place, range(lane.within)))
        return sorted(id_ - FIRST_WORKLOAD_ID for _, id_ in places)


def asking(
    number: int,
    gpus: int,
    *,
    cpus: int = 1,
    types: tuple[str, ...] = (),
    hour: float | None = None,
    **fields: str | int,
) -> Workload:
    """The later the number the later it was submitted."""
    job = Job(name="train", nodes=1, gpus_per_node=gpus, cpus_per_node=cpus, gpu_types=types)
    at_s = (number if hour is None else hour) * HOUR_S
    return workload(number, job, submitted_at_s=at_s, **fields)  # type: ignore[arg-type]


def three(gpus: Iterable[int] = (8, 8, 8)) -> list[Workload]:
    return [asking(k, n) for k, n in enumerate(gpus)]


def test_the_oldest_that_fit_into_the_quota_are_within() -> None:
    assert Queue([tenant("vision", 16)], *three()).within() == [0, 1]


def test_what_fits_exactly_is_within_and_one_more_is_not() -> None:
    assert Queue([tenant("vision", 24)], *three()).within() == [0, 1, 2]
    assert Queue([tenant("vision", 23)], *three()).within() == [0, 1]


def test_what_does_not_fit_is_over_and_a_later_smaller_one_still_fits() -> None:
    assert Queue([tenant("vision", 16)], *three((12, 8, 4))).within() == [0, 2]


def test_what_runs_counts_against_the_quota_borrowed_or_not() -> None:
    queue = Queue([tenant("vision", 16)], *three())
    queue.hold("vision", 8)
    assert queue.within() == [0]
    queue.hold("vision", 8)
    assert queue.within() == []


def test_gpus_that_fit_do_not_help_when_the_cpus_do_not() -> None:
    both = [tenant("vision", Allowance(gpus=16, cpus=10))]
    queue = [asking(0, 8, cpus=8), asking(1, 8, cpus=8), asking(2, 8, cpus=2)]
    assert Queue(both, *queue).within() == [0, 2]


def test_a_quota_of_one_type_bounds_those_that_ask_for_this_type_alone() -> None:
    typed = [tenant("vision", Allowance(gpus=64, gpu_types={"h100": 8}))]
    queue = [
        asking(0, 8, types=("h100",)),
        asking(1, 8, types=("h100",)),
        asking(2, 8, types=("a100",)),
        asking(3, 8),
    ]
    assert Queue(typed, *queue).within() == [0, 2, 3]


def test_who_accepts_two_types_counts_against_neither_types_quota() -> None:
    typed = [tenant("vision", Allowance(gpus=64, gpu_types={"h100": 8, "a100": 0}))]
    queue = [asking(k, 8, types=("h100", "a100")) for k in range(2)]
    assert Queue(typed, *queue, asking(2, 8, types=("h100",))).within() == [0, 1, 2]
    assert Queue(typed, *queue, asking(2, 8, types=("a100",))).within() == [0, 1]


def test_a_het_workload_is_within_as_a_whole_or_not_at_all() -> None:
    het = workload(0, gang(1, 8, "train"), gang(1, 4, "serve"))
    assert Queue([tenant("vision", 8)], het).within() == []
    assert Queue([tenant("vision", 12)], het).within() == [0]


def test_of_two_submitted_at_once_the_smaller_id_is_scanned_first() -> None:
    queue = [asking(1, 8, hour=5), asking(0, 8, hour=5)]
    assert Queue([tenant("vision", 8)], *queue).within() == [0]


def test_past_the_age_cap_the_earlier_submission_is_still_first() -> None:
    old = [asking(1, 8, hour=0), asking(0, 8, hour=1)]
    assert Queue([tenant("vision", 8)], *old).within(now_s=1000 * HOUR_S) == [1]


def test_without_a_quota_all_is_over_quota() -> None:
    assert Queue([tenant("vision")], *three()).within() == []
    assert Queue([], *three()).within() == []  # nobody named the tenant


def test_a_quota_of_nothing_admits_nothing_and_one_without_bounds_all() -> None:
    assert Queue([tenant("vision", 0)], *three()).within() == []
    assert Queue([tenant("vision", Allowance())], *three()).within() == [0, 1, 2]


def test_a_parents_quota_bounds_the_sum_and_credit_decides_among_siblings() -> None:
    lab = [tenant("lab", 16), tenant("vision", 16, parent="lab"), tenant("speech", parent="lab")]
    queue = [asking(0, 8), asking(1, 8, tenant="speech"), asking(2, 8), asking(3, 8, tenant="lab")]
    assert Queue(lab, *queue).within() == [0, 1]
    assert Queue(lab, *queue).within(fair_share=(0.0, 0.0, 24.0)) == [0, 1]
    assert Queue(lab, *queue).within(fair_share=(24.0, 0.0, 0.0)) == [0, 3]
    assert Queue(lab, *queue).within(fair_share=(24.0, 0.0, 24.0)) == [1, 3]


def test_an_own_quota_holds_below_a_larger_one_of_the_parent() -> None:
    lab = [tenant("lab", 64), tenant("vision", 8, parent="lab"), tenant("speech", parent="lab")]
    queue = [asking(0, 8), asking(1, 8), asking(2, 8, tenant="speech")]
    assert Queue(lab, *queue).within() == [0, 2]


def test_what_a_sibling_runs_counts_against_the_parents_quota() -> None:
    lab = [tenant("lab", 16), tenant("vision", 16, parent="lab"), tenant("speech", parent="lab")]
    queue = Queue(lab, *three())
    queue.hold("speech", 8, within=True)
    assert queue.within() == [0]


def test_what_a_sibling_borrowed_costs_nobody_a_guarantee() -> None:
    research = [
        tenant("research", 96),
        tenant("vision", 64, parent="research"),
        tenant("nlp", 32, parent="research"),
    ]
    queue = Queue(
        research,
        asking(0, 8, tenant="nlp"),
        asking(1, 32, tenant="nlp"),
        asking(2, 8, tenant="vision"),
    )
    queue.hold("vision", 64, within=True)
    queue.hold("vision", 40)
    assert queue.within() == [0]


def test_what_the_parent_itself_borrowed_counts_against_its_own_work_only() -> None:
    lab = [tenant("lab", 16), tenant("vision", 16, parent="lab")]
    queue = Queue(lab, asking(0, 8, tenant="lab"), asking(1, 8))
    queue.hold("lab", 16)
    assert queue.within() == [1]


def test_gpus_of_a_type_that_are_overdrawn_bar_only_who_asks_for_the_type() -> None:
    quota = Allowance(gpus=64, gpu_types={"h100": 16})
    queue = Queue(
        [Tenant(name=TenantName("vision"), quota=quota)],
        asking(0, 8),
        asking(1, 8, types=("h100",)),
    )
    queue.hold("vision", 24, h100=24)
    assert queue.within() == [0]


def test_an_overdrawn_quota_fits_nobody_whatever_is_asked_for() -> None:
    queue = Queue([tenant("vision", Allowance(gpus=8, cpus=100))], asking(0, 0), asking(1, 1))
    queue.hold("vision", 9)
    assert queue.within() == []  # not even the first, which asks for CPUs alone


def test_a_quota_that_is_just_used_up_still_fits_who_asks_for_none_of_it() -> None:
    queue = Queue([tenant("vision", Allowance(gpus=8, cpus=100))], asking(0, 0), asking(1, 1))
    queue.hold("vision", 8)
    assert queue.within() == [0]


def test_who_lowered_its_priority_is_scanned_after_those_that_did_not() -> None:
    queue = [asking(0, 8, asked_priority=5), asking(1, 8), asking(2, 8)]
    assert Queue([tenant("vision", 16)], *queue).within() == [1, 2]
    assert Queue([tenant("vision", 24)], *queue).within() == [0, 1, 2]


def test_asking_for_the_own_level_or_a_higher_one_demotes_nobody() -> None:
    queue = [asking(0, 8, asked_priority=3), asking(1, 8, asked_priority=2), asking(2, 8)]
    assert Queue([tenant("vision", 16, priority=3)], *queue).within() == [0, 1]


def test_siblings_are_demoted_by_how_far_they_went_below_their_own_level() -> None:
    lab = [
        tenant("lab", 8),
        tenant("vision", parent="lab", priority=1),
        tenant("speech", parent="lab", priority=5),
    ]
    queue = [asking(0, 8, asked_priority=4), asking(1, 8, tenant="speech", asked_priority=6)]
    assert Queue(lab, *queue).within() == [1]  # by three levels, and by one


def test_an_account_for_each_level_gives_a_team_a_quota_for_each() -> None:
    team = [
        tenant("vision", 32),
        tenant("vision-urgent", 16, parent="vision", priority=2),
        tenant("vision-batch", 16, parent="vision", priority=4),
    ]
    urgent = [asking(k, 8, tenant="vision-urgent") for k in range(3)]
    batch = [asking(k, 8, tenant="vision-batch") for k in range(3, 6)]
    queue = Queue(team, *urgent, *batch)
    assert queue.within() == [0, 1, 3, 4]  # neither level has what the other one leaves
    lanes = [lane for row in queue.backlog.rows() for lane in queue.backlog.lanes(row)]
    assert [queue.backlog.level(lane) for lane in lanes] == [2, 4]


def test_nice_puts_a_workload_behind_younger_ones_of_its_tenant() -> None:
    queue = [asking(0, 8, nice=200), asking(1, 8), asking(2, 8)]  # worth two hours
    assert Queue([tenant("vision", 8)], *queue).within() == [1]
    assert Queue([tenant("vision", 16)], *queue).within() == [0, 1]  # a tie with 2, and older


def test_time_may_change_who_is_within_when_tenants_share_a_quota() -> None:
    lab = [tenant("lab", 8), tenant("vision", parent="lab"), tenant("speech", parent="lab")]
    queue = Queue(lab, asking(0, 8, hour=0), asking(1, 8, hour=24, tenant="speech"))
    terms = (0.0, 0.0, 12.0)
    assert queue.within(terms, 100 * HOUR_S) == [0]
    assert queue.within(terms, 181 * HOUR_S) == [1]  # 168 against 157 + 12


def test_quota_that_comes_free_is_given_to_the_next() -> None:
    queue = Queue([tenant("vision", 8)], *three())
    assert queue.within() == [0]
    queue.backlog.remove(asking(0, 8))
    assert queue.within() == [1]


def test_a_family_that_no_longer_waits_is_not_scanned_for_ever() -> None:
    lab = [tenant("lab", 8), tenant("vision", parent="lab"), tenant("speech", parent="lab")]
    two = [asking(0, 8), asking(1, 8, tenant="speech")]
    queue = Queue(lab, *two)
    queue.within()
    assert queue.backlog.moving == {0}
    for waiting in two:
        queue.backlog.remove(waiting)
    queue.within()
    assert queue.backlog.moving == set()


def test_nobody_waits_and_nobody_is_within() -> None:
    assert Queue([tenant("vision", 8)]).within() == []


def test_a_tenant_for_which_nothing_is_started_takes_no_quota_from_its_relatives() -> None:
    lab, nlp = tenant("lab", 16), tenant("nlp", parent="lab")
    bio = replace(tenant("bio", parent="lab"), mode=SiteMode.SHADOW)
    bios = [asking(number, 8, tenant="bio", hour=0.0) for number in (1, 2)]
    nlps = [asking(number, 8, tenant="nlp", hour=90.0) for number in (3, 4)]
    assert Queue((lab, bio, nlp), *bios, *nlps).within() == [3, 4]
    assert Queue((lab, replace(bio, mode=SiteMode.OPT_IN), nlp), *bios, *nlps).within() == [1, 2]
    assert Queue((replace(lab, mode=SiteMode.ADVISORY), nlp), *nlps).within() == []


def test_the_first_of_a_tenant_of_the_lowest_priority_is_the_oldest_within_quota_or_not() -> None:
    queue = Queue([tenant("vision", 4, priority=7)], asking(0, 8), asking(1, 4))
    assert queue.within() == [1]
    (head,) = queue.backlog.heads.values()
    assert head.place[1] - FIRST_WORKLOAD_ID == 0


def test_small_workloads_behind_one_that_does_not_fit_any_more_are_within() -> None:
    queue = Queue(
        [tenant("vision", 20)],
        *[asking(k, 8, nice=k) for k in range(4)],
        *[asking(4 + k, 2, nice=k) for k in range(4)],
    )
    assert queue.within() == [0, 1, 4, 5]
