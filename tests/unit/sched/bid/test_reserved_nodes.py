"""Jobs that ask for a reservation of a site's Slurm run on its nodes, in its time, if admitted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from federator.model.reason import Reason, ReasonCode, RefusalKind
from federator.model.site_message import SiteAnswer
from federator.model.window import SiteWindow
from federator.model.workload import Job, WorkloadId
from federator.sched.bid.negative_cache import of_hardware
from federator.sched.bid.site_scheduler import SiteScheduler
from tests.fakes.build import bid_request, gang, rack

NOW_S = 1_000.0


def window(name: str, *nodes: str, starts_at_s: float = 0.0, **fields: object) -> SiteWindow:
    return SiteWindow(
        name=name,
        starts_at_s=starts_at_s,
        ends_at_s=9_000.0,
        nodes=nodes,
        **{"users": ("ada",), **fields},  # type: ignore[arg-type]
    )


def asking(*names: str, nodes: int = 1) -> Job:
    return replace(gang(nodes), reservation=names)


def answer(job: Job, *windows: SiteWindow, time_limit_s: float = 600.0) -> SiteAnswer:
    """Of a site of four nodes, to ada of vision."""
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(rack("a", 4), (), windows=windows)
    request = bid_request(id=WorkloadId(1), jobs=(job,), time_limit_s=time_limit_s)
    (found,) = scheduler.bid([request], NOW_S)
    return found


def nodes_of(found: SiteAnswer) -> set[str]:
    assert found.bid is not None, found
    return set(found.bid.jobs[0].nodes)


def refused(found: SiteAnswer) -> tuple[RefusalKind, Reason]:
    assert found.refusal is not None, found
    return found.refusal.kind, found.refusal.reasons[0]


def test_it_runs_on_nodes_of_its_reservation_and_others_do_not() -> None:
    kept = window("r1", "a3", "a4")
    inside = answer(asking("r1", nodes=2), kept)
    assert nodes_of(inside) == {"a3", "a4"}
    assert inside.bid is not None
    assert inside.bid.jobs[0].reservation == "r1"
    outside = answer(gang(2), kept)
    assert nodes_of(outside) == {"a1", "a2"}
    assert outside.bid is not None
    assert outside.bid.jobs[0].reservation == ""


def test_it_may_run_beyond_the_end_of_its_reservation_as_in_slurm() -> None:
    assert nodes_of(answer(asking("r1"), window("r1", "a3"), time_limit_s=90_000.0)) == {"a3"}


def test_before_its_reservation_begins_it_waits_and_is_told_when() -> None:
    found = answer(asking("r1"), window("r1", "a3", starts_at_s=1_600.0))
    kind, reason = refused(found)
    assert (kind, reason.code, reason.from_s) == (
        RefusalKind.WAIT,
        ReasonCode.RESERVATION,
        1_600.0,
    )
    assert found.refusal is not None
    assert found.refusal.starts_in_s == 600.0


@pytest.mark.parametrize(
    "who",
    [
        {"users": ("bob",)},
        {"users": ("-ada",)},
        {"users": (), "accounts": ("nlp",)},
        {"users": ("ada",), "accounts": ("nlp",)},
        {"users": (), "accounts": ("-vision",)},
    ],
)
def test_a_reservation_for_others_rejects_it(who: dict[str, tuple[str, ...]]) -> None:
    kept = structs.replace(window("r1", "a3", users=()), **who)
    kind, reason = refused(answer(asking("r1"), kept))
    assert (kind, reason.code) == (RefusalKind.REJECT, ReasonCode.NO_RESERVATION)
    assert reason.detail == "r1, which does not admit ada"


@pytest.mark.parametrize(
    "who",
    [
        {"users": (), "accounts": ("vision",)},
        {"users": ("-bob",)},
        {"users": ("ada",), "accounts": ("vision", "nlp")},
    ],
)
def test_a_reservation_for_its_user_or_account_admits_it(who: dict[str, tuple[str, ...]]) -> None:
    kept = structs.replace(window("r1", "a3", users=()), **who)
    assert nodes_of(answer(asking("r1"), kept)) == {"a3"}


def test_a_name_that_the_site_does_not_know_rejects_it() -> None:
    kind, reason = refused(answer(asking("R1"), window("r1", "a3")))
    assert (kind, reason.code, reason.detail) == (
        RefusalKind.REJECT,
        ReasonCode.NO_RESERVATION,
        "R1",
    )


def test_of_several_the_first_that_is_on_is_taken_and_all_must_admit_it() -> None:
    later, now = window("r1", "a1", starts_at_s=2_000.0), window("r2", "a2")
    assert nodes_of(answer(asking("r1", "r2"), now, later)) == {"a2"}
    closed = window("r3", "a3", users=("bob",))
    assert refused(answer(asking("r2", "r3"), now, closed))[1].code is ReasonCode.NO_RESERVATION


def test_nodes_that_another_window_will_close_are_left_aside() -> None:
    own = window("r1", "a1", "a2")
    maintenance = window("m", "a2", starts_at_s=1_200.0, users=("root",))
    assert nodes_of(answer(asking("r1"), own, maintenance)) == {"a1"}
    kind, reason = refused(answer(asking("r1", nodes=2), own, maintenance))
    assert (kind, reason.code) == (RefusalKind.WAIT, ReasonCode.RESOURCES)
    assert nodes_of(answer(asking("r1", nodes=2), own, maintenance, time_limit_s=60.0))


def test_a_refusal_that_is_due_to_another_window_says_so_and_holds_for_no_shorter_job() -> None:
    own = window("r1", "a1", "a2")
    maintenance = window("m", "a2", starts_at_s=1_200.0, users=("root",))
    elsewhere = window("r3", "a3", users=("root",))
    refusal = answer(asking("r1", nodes=2), own, maintenance, elsewhere).refusal
    assert refusal is not None
    told = [(reason.code, reason.detail) for reason in refusal.reasons[1:]]
    assert told == [(ReasonCode.SITE_RESERVATION, "m")]
    assert not of_hardware(refusal)
    refusal = answer(asking("r1", nodes=3), own, elsewhere).refusal
    assert refusal is not None
    assert of_hardware(refusal)


def test_a_job_beside_one_in_a_reservation_stays_out_of_all_windows() -> None:
    own = window("r1", "a3")
    now, later = window("m", "a1", users=("root",)), window("n", "a2", starts_at_s=1_200.0)
    beside = replace(gang(1), name="beside", exclude=("a9",))
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(rack("a", 4), (), windows=(own, now, later))
    jobs = (asking("r1"), beside)
    request = bid_request(id=WorkloadId(1), jobs=jobs, time_limit_s=600.0)
    (found,) = scheduler.bid([request], NOW_S)
    assert found.bid is not None
    assert [set(plan.nodes) for plan in found.bid.jobs] == [{"a3"}, {"a4"}]
    for other in (replace(beside, nodes=2), replace(beside, exclude=("a4",))):
        (found,) = scheduler.bid([structs.replace(request, jobs=(jobs[0], other))], NOW_S)
        assert found.refusal is not None
        assert found.refusal.kind is RefusalKind.WAIT
        assert not of_hardware(found.refusal)


def test_it_waits_while_windows_close_all_nodes_beside_the_reservation() -> None:
    windows = (window("r1", "a1"), window("m", "a2", "a3", "a4", users=("root",)))
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(rack("a", 4), (), windows=windows)
    jobs = (asking("r1"), replace(gang(1), name="beside"))
    (found,) = scheduler.bid([bid_request(id=WorkloadId(1), jobs=jobs, time_limit_s=600.0)], NOW_S)
    kind, reason = refused(found)
    assert (kind, reason.code) == (RefusalKind.WAIT, ReasonCode.SITE_RESERVATION)


def test_nodes_of_which_a_part_is_reserved_are_left_aside() -> None:
    parts = window("r1", "a1", cpus={"a1": 4})
    kind, reason = refused(answer(asking("r1"), parts))
    assert (kind, reason.code, reason.detail) == (RefusalKind.WAIT, ReasonCode.RESERVATION, "r1")


def test_too_many_nodes_for_the_reservation_wait_for_it_to_grow() -> None:
    kind, _ = refused(answer(asking("r1", nodes=3), window("r1", "a1", "a2")))
    assert kind is RefusalKind.WAIT


def test_a_failure_in_a_reservation_says_nothing_of_jobs_outside() -> None:
    scheduler = SiteScheduler(("gpu",))
    scheduler.update(rack("a", 4), (), windows=(window("r1", "a1"),))
    jobs = (asking("r1", nodes=2), gang(2), gang(2), asking("r1"))
    requests = [bid_request(id=WorkloadId(k), jobs=(job,)) for k, job in enumerate(jobs)]
    made = [found.bid is not None for found in scheduler.bid(requests, NOW_S)]
    assert made == [False, True, False, True]
