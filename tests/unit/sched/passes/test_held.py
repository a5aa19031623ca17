"""What every site has refused for good is held, with their words, and nothing else is."""

from __future__ import annotations

import pytest

from federator.model.event import Changed
from federator.model.lifecycle import WorkloadEvent, WorkloadState
from federator.model.message import LaunchAt
from federator.model.reason import ReasonCode
from federator.model.site import SiteJobState
from federator.model.workload import SiteName, WorkloadId
from federator.sched.passes.held import TRIED_EVERY_S
from federator.sched.state.backoff import PLANS_TRIED, REFUSING_SITE_S
from federator.sched.state.rules import Rules
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback

pytestmark = pytest.mark.slow

ALPINE, BAKER = SiteName("alpine"), SiteName("baker")
FOR_GOOD, OF_PLAN = ReasonCode.SBATCH_REFUSED, ReasonCode.PLAN_REFUSED
PENDING, HELD, RUNNING = WorkloadState.PENDING, WorkloadState.HELD, WorkloadState.RUNNING


def refusing(*sites: str, code: ReasonCode = FOR_GOOD) -> Loopback:
    """alpine is the larger and wins ties."""
    f = Loopback({"alpine": rack("a", 4), "baker": rack("b", 2)})
    for site in sites:
        f.refuse_launches(site, code=code)
    return f


def launches(f: Loopback, id_: WorkloadId) -> list[SiteName]:
    return [c.site for c in f.commands if isinstance(c, LaunchAt) and c.workload.id == id_]


def happened(f: Loopback, id_: WorkloadId) -> list[WorkloadEvent]:
    return [e.happening for e in f.log if isinstance(e, Changed) and e.workload == id_]


def test_what_all_sites_refuse_for_good_is_held_with_their_words() -> None:
    f = refusing("alpine", "baker")
    id_ = f.submit(draft(gang(2)))
    f.run_for(REFUSING_SITE_S - 10.0)
    entry = f.entry(id_)
    assert (entry.state, sorted(launches(f, id_))) == (HELD, [ALPINE, BAKER])
    assert happened(f, id_) == [WorkloadEvent.DECLINED, WorkloadEvent.DECLINED, WorkloadEvent.HELD]
    assert entry.reason is not None
    assert entry.reason.code is ReasonCode.HELD
    assert entry.reason.detail == "alpine, baker: sbatch said no"
    assert len(f.federation.ledger.backlog) == 0


def test_it_stays_held_across_restart_and_snapshot() -> None:
    f = refusing("alpine", "baker")
    id_ = f.submit(draft(gang(2)))
    f.run_for(10.0)
    reason = f.entry(id_).reason
    f.restart()
    f.run_for(10.0)
    assert (f.state(id_), f.entry(id_).reason) == (HELD, reason)
    f.compact()
    f.restart()
    f.run_for(REFUSING_SITE_S - 60.0)
    assert (f.state(id_), f.entry(id_).reason, len(launches(f, id_))) == (HELD, reason, 2)


def test_a_held_workload_can_be_cancelled() -> None:
    f = refusing("alpine", "baker")
    id_ = f.submit(draft(gang(2)))
    f.run_for(10.0)
    f.cancel(id_)
    assert f.state(id_) is WorkloadState.CANCELLED
    assert f.entry(id_).over_at_s


def test_what_one_site_refuses_for_good_runs_at_another() -> None:
    f = refusing("alpine")
    id_ = f.submit(draft(gang(2)))
    f.run_for(10.0)
    assert (f.state(id_), f.entry(id_).site) == (RUNNING, BAKER)


def test_a_site_is_told_whether_an_earlier_attempt_has_run_not_whether_one_was_refused() -> None:
    f = refusing("alpine")
    f.submit(draft(gang(2)))
    f.run_for(10.0)
    f.slurm("baker").fail_node("b1")
    f.run_for(30.0)
    f.slurm("baker").repair_node("b1")
    f.run_for(700.0)
    orders = [c for c in f.commands if isinstance(c, LaunchAt)]
    assert [(c.site, c.has_run) for c in orders] == [(ALPINE, False), (BAKER, False), (BAKER, True)]


def test_it_waits_for_a_site_that_is_down_and_starts_there() -> None:
    f = refusing("alpine")
    f.site_down("baker")
    id_ = f.submit(draft(gang(2)))
    f.run_for(60.0)
    refusals = f.refusals(id_)
    assert f.state(id_) is PENDING
    assert refusals[BAKER].reasons[0].code is ReasonCode.SITE_DOWN
    assert refusals[ALPINE].reasons[0].code is FOR_GOOD
    assert launches(f, id_) == [ALPINE]
    f.site_up("baker")
    f.run_for(10.0)
    assert (f.state(id_), f.entry(id_).site) == (RUNNING, BAKER)


def test_a_site_that_is_too_small_holds_nothing_up() -> None:
    f = refusing("alpine")
    id_ = f.submit(draft(gang(3)))  # baker has two nodes
    f.run_for(10.0)
    assert f.state(id_) is HELD
    f.site_down("baker")
    f.run_for(10.0)
    f.site_up("baker")
    f.run_for(10.0)
    assert (f.state(id_), launches(f, id_)) == (HELD, [ALPINE])


def test_it_is_released_when_a_site_comes_that_has_not_refused_it() -> None:
    f = refusing("alpine", "baker")
    f.take_out("baker")
    id_ = f.submit(draft(gang(2)))
    f.run_for(10.0)
    assert f.state(id_) is HELD
    f.refuse_launches("baker", refuses=False)
    f.bring_in("baker")
    f.run_for(10.0)
    assert (f.state(id_), f.entry(id_).site) == (RUNNING, BAKER)
    assert happened(f, id_)[:3] == [
        WorkloadEvent.DECLINED,
        WorkloadEvent.HELD,
        WorkloadEvent.RELEASED,
    ]


def test_a_refusal_that_may_pass_holds_nothing() -> None:
    f = refusing("alpine", "baker", code=ReasonCode.LAUNCH_REFUSED)
    id_ = f.submit(draft(gang(2)))
    f.run_for(2_000.0)
    assert f.state(id_) is PENDING
    f.refuse_launches("baker", refuses=False)
    f.run_for(700.0)
    assert f.state(id_) is RUNNING


def test_files_that_no_site_of_a_region_has_hold_nothing_while_another_region_may() -> None:
    f = refusing("alpine", code=ReasonCode.FILES)
    f.site_down("baker")
    id_ = f.submit(draft(gang(2)))
    f.run_for(200.0)
    assert f.state(id_) is PENDING
    f.site_up("baker")
    f.run_for(20.0)
    assert (f.state(id_), f.entry(id_).site) == (RUNNING, BAKER)


@pytest.mark.parametrize("code", [OF_PLAN, ReasonCode.FILES])
def test_a_plan_or_its_files_may_be_refused_a_few_times_before_the_workload_is_to_blame(
    code: ReasonCode,
) -> None:
    f = refusing("alpine", "baker", code=code)
    id_ = f.submit(draft(gang(2)))
    f.run_for(60.0)
    assert f.state(id_) is PENDING
    f.run_for(100.0)
    assert (f.state(id_), len(launches(f, id_))) == (HELD, 2 * PLANS_TRIED)


def test_a_site_that_refused_for_good_is_asked_again_after_an_hour_while_another_may_take_it() -> (
    None
):
    f = refusing("alpine")
    f.site_down("baker")
    id_ = f.submit(draft(gang(2)))
    f.run_for(REFUSING_SITE_S - 60.0)
    assert launches(f, id_) == [ALPINE]
    f.refuse_launches("alpine", refuses=False)  # the admin has mended it
    f.run_for(120.0)
    assert (f.state(id_), f.entry(id_).site) == (RUNNING, ALPINE)


@pytest.mark.parametrize("first", [1, 2])
def test_others_run_on_whatever_is_held(first: int) -> None:
    f = refusing("alpine", "baker")
    held = f.submit(draft(gang(first)))
    f.run_for(10.0)
    for site in ("alpine", "baker"):
        f.refuse_launches(site, refuses=False)
    other = f.submit(draft(gang(2)))
    f.run_for(10.0)
    assert (f.state(held), f.state(other)) == (HELD, RUNNING)


def test_a_plan_refused_once_after_other_setbacks_holds_nothing() -> None:
    f = refusing("alpine", "baker", code=ReasonCode.LAUNCH_REFUSED)
    id_ = f.submit(draft(gang(2)))
    f.run_until(lambda: all(f.entry(id_).failures_at.get(s) == 4 for s in (ALPINE, BAKER)), 300.0)
    for site in ("alpine", "baker"):
        f.refuse_launches(site, code=OF_PLAN)
    f.run_until(lambda: all(f.entry(id_).failures_at.get(s) == 5 for s in (ALPINE, BAKER)), 300.0)
    assert f.state(id_) is PENDING
    assert f.entry(id_).plans_refused == {ALPINE: 1, BAKER: 1}


def test_another_setback_between_begins_the_count_of_plans_anew_and_a_snapshot_keeps_it() -> None:
    f = refusing("alpine", "baker", code=OF_PLAN)
    id_ = f.submit(draft(gang(2)))
    f.run_until(lambda: f.entry(id_).plans_refused == {ALPINE: 4, BAKER: 4}, 300.0)
    f.compact()
    f.restart()
    assert f.entry(id_).plans_refused == {ALPINE: 4, BAKER: 4}
    for site in ("alpine", "baker"):
        f.refuse_launches(site, code=ReasonCode.LAUNCH_REFUSED)
    f.run_until(lambda: not f.entry(id_).plans_refused, 300.0)
    for site in ("alpine", "baker"):
        f.refuse_launches(site, code=OF_PLAN)
    f.run_until(lambda: f.entry(id_).plans_refused == {ALPINE: 4, BAKER: 4}, 4_000.0)
    assert f.state(id_) is PENDING
    f.run_for(700.0)
    assert f.state(id_) is HELD


def test_a_start_begins_the_count_of_plans_anew() -> None:
    f = refusing("alpine", code=OF_PLAN)
    f.site_down("baker")
    id_ = f.submit(draft(gang(2)))
    f.run_until(lambda: f.entry(id_).plans_refused == {ALPINE: 4}, 300.0)
    f.refuse_launches("alpine", refuses=False)
    f.run_for(100.0)
    assert (f.state(id_), f.entry(id_).plans_refused) == (RUNNING, {})


def test_jobs_that_slurm_itself_fails_before_they_start_count_as_plans_refused() -> None:
    f = refusing()
    for site in ("alpine", "baker"):
        f.slurm(site).fails_for = "BadConstraints"
    id_ = f.submit(draft(gang(2)))
    f.run_until(lambda: f.entry(id_).plans_refused == {ALPINE: 1, BAKER: 1}, 60.0)
    assert WorkloadEvent.FAILED not in happened(f, id_)
    f.run_for(300.0)
    entry = f.entry(id_)
    assert entry.state is HELD
    assert entry.reason is not None
    assert entry.reason.detail == "alpine, baker: Slurm says BadConstraints"


def test_jobs_that_slurm_leaves_pending_for_ever_count_as_plans_refused() -> None:
    f = refusing()
    for site in ("alpine", "baker"):
        f.slurm(site).starts_jobs = False
        f.slurm(site).waits_for = "PartitionConfig"
    id_ = f.submit(draft(gang(2)))
    f.run_until(lambda: f.entry(id_).plans_refused == {ALPINE: 1, BAKER: 1}, 300.0)
    f.run_for(1_500.0)
    entry = f.entry(id_)
    assert entry.state is HELD
    assert entry.reason is not None
    assert entry.reason.detail == "alpine, baker: Slurm says PartitionConfig"


@pytest.mark.parametrize("waits_for", ["Resources", "Priority", "ReqNodeNotAvail", ""])
def test_jobs_that_wait_for_what_passes_hold_nothing(waits_for: str) -> None:
    f = refusing()
    for site in ("alpine", "baker"):
        f.slurm(site).starts_jobs = False
        f.slurm(site).waits_for = waits_for
    id_ = f.submit(draft(gang(2)))
    f.run_for(1_500.0)
    assert f.state(id_) is not HELD
    assert not f.entry(id_).plans_refused


def test_a_job_that_ran_and_failed_is_no_refusal() -> None:
    f = refusing()
    id_ = f.submit(draft(gang(2)))
    f.run_for(10.0)
    f.slurm("alpine").fails_for = "BadConstraints"
    f.slurm("alpine").end(f.entry(id_).attempt_id, SiteJobState.FAILED)
    f.run_for(10.0)
    assert f.state(id_) is WorkloadState.FAILED


# ---- the way back ----


def test_a_site_that_grows_releases_what_now_fits() -> None:
    f = refusing("alpine")
    id_ = f.submit(draft(gang(3)))  # baker has two nodes
    f.run_for(10.0)
    assert f.state(id_) is HELD
    for node in rack("c", 4):
        f.slurm("baker").hardware.add(node)
    f.run_for(30.0)
    assert (f.state(id_), f.entry(id_).site) == (RUNNING, BAKER)


def test_what_is_held_is_tried_again_after_an_hour_and_starts_once_the_site_is_mended() -> None:
    f = refusing("alpine", "baker")
    id_ = f.submit(draft(gang(2)))
    f.run_for(REFUSING_SITE_S + 2 * TRIED_EVERY_S)
    assert (f.state(id_), len(launches(f, id_))) == (HELD, 4)
    f.refuse_launches("alpine", refuses=False)  # its admin has added the QOS
    f.run_for(REFUSING_SITE_S + 2 * TRIED_EVERY_S)
    assert (f.state(id_), f.entry(id_).site) == (RUNNING, ALPINE)


def test_plans_refused_for_good_are_tried_again_once_in_an_hour() -> None:
    f = refusing("alpine", "baker", code=OF_PLAN)
    id_ = f.submit(draft(gang(2)))
    f.run_for(200.0)
    assert f.state(id_) is HELD
    f.run_for(REFUSING_SITE_S + 2 * TRIED_EVERY_S)
    assert (f.state(id_), len(launches(f, id_))) == (HELD, 2 * (PLANS_TRIED + 1))


def held_array(tasks: int) -> tuple[Loopback, list[WorkloadId]]:
    """A thousand tasks or so that alpine has refused; baker is too small for any."""
    f = refusing("alpine")
    first = f.submit(draft(gang(3), array_indices=tuple(range(tasks))))
    ids = [WorkloadId(first + k) for k in range(tasks)]
    f.run_until(lambda: all(f.state(id_) is HELD for id_ in ids), 600.0)
    return f, ids


def test_of_those_alike_one_at_a_time_is_tried_in_turn() -> None:
    f, ids = held_array(100)
    before, at_s = len(f.log), f.clock.now_s
    f.run_for(REFUSING_SITE_S + 3 * TRIED_EVERY_S)
    tried = [id_ for id_ in ids if len(launches(f, id_)) > 1]
    most = (f.clock.now_s - at_s - REFUSING_SITE_S) / TRIED_EVERY_S + 1
    assert 2 <= len(tried) <= most
    assert len(f.log) - before == 4 * len(tried)  # released, awarded, declined, held
    assert all(f.state(id_) is HELD for id_ in ids)


def test_once_one_is_taken_those_held_like_it_follow() -> None:
    f, ids = held_array(100)
    other = f.submit(draft(gang(3), user="bob"))
    f.run_for(60.0)
    assert f.state(other) is HELD
    f.duration_s = 10.0
    f.refuse_launches("alpine", refuses=False)
    f.run_for(REFUSING_SITE_S + TRIED_EVERY_S)
    started = [id_ for id_ in ids if f.state(id_) is not HELD]
    assert len(started) == len(ids)
    f.run_for(REFUSING_SITE_S)
    assert all(f.state(id_) is WorkloadState.COMPLETED for id_ in (*ids, other))


def test_a_user_whom_another_site_comes_to_know_is_released() -> None:
    f = refusing("alpine")
    f.know_not("baker", "ada")
    id_ = f.submit(draft(gang(1)))
    f.run_for(10.0)
    assert f.state(id_) is HELD
    f.know_not("baker")
    f.submit(draft(gang(1)))  # with whom baker is asked about her
    f.run_for(10.0)
    assert (f.state(id_), f.entry(id_).site) == (RUNNING, BAKER)


def test_a_user_whom_another_site_comes_to_know_is_asked_for_within_the_hour() -> None:
    f = refusing("alpine")
    f.know_not("baker", "ada")
    id_ = f.submit(draft(gang(2)))
    f.run_for(10.0)
    f.know_not("baker")
    f.run_for(REFUSING_SITE_S + 2 * TRIED_EVERY_S)
    assert (f.state(id_), f.entry(id_).site) == (RUNNING, BAKER)


def strangers_held(count: int) -> tuple[Loopback, list[WorkloadId]]:
    """As many that alpine refuses, of a user whom baker does not know."""
    f = refusing("alpine")
    f.know_not("baker", "ada")
    ids = [f.submit(draft(gang(2))) for _ in range(count)]
    f.run_until(lambda: all(f.state(id_) is HELD for id_ in ids), 600.0)
    return f, ids


def test_a_site_that_comes_and_goes_releases_nothing_for_a_user_it_does_not_know() -> None:
    f, ids = strangers_held(20)
    before = len(f.log)
    for _ in range(5):
        f.site_down("baker")
        f.run_for(10.0)
        f.site_up("baker")
        f.run_for(10.0)
    assert len(f.log) == before
    assert all(f.state(id_) is HELD for id_ in ids)


def test_after_a_restart_one_workload_asks_whether_a_site_knows_its_user() -> None:
    f, ids = strangers_held(20)
    before = len(f.log)
    f.restart()
    f.run_for(20.0)
    assert all(f.state(id_) is HELD for id_ in ids)
    assert len(f.log) - before == 3  # the epoch; one is released, and held
    f.know_not("baker")
    f.restart()
    f.run_for(20.0)
    assert not any(f.state(id_) is HELD for id_ in ids)


def test_what_no_other_site_can_read_the_checkpoint_of_is_held_by_its_own_region() -> None:
    rules = Rules(regions={ALPINE: "east", BAKER: "west"})
    f = Loopback({"alpine": rack("a", 4), "baker": rack("b", 2)}, rules)
    id_ = f.submit(draft(gang(2), continues=True))
    f.run_for(60.0)
    assert f.entry(id_).site == ALPINE
    ((_, job),) = f.live_jobs(id_)
    job.saved_at_s = f.clock.now_s
    f.refuse_launches("alpine", code=FOR_GOOD)
    f.slurm("alpine").fail_node("a1")
    f.run_for(60.0)
    entry = f.entry(id_)
    assert (entry.saved_at, entry.state) == (ALPINE, HELD)
    assert launches(f, id_) == [ALPINE, ALPINE]
    f.restart()
    f.run_for(60.0)
    assert (f.state(id_), len(launches(f, id_))) == (HELD, 2)
    f.refuse_launches("alpine", refuses=False)
    f.run_for(REFUSING_SITE_S + TRIED_EVERY_S)
    assert (f.state(id_), f.entry(id_).site) == (RUNNING, ALPINE)
