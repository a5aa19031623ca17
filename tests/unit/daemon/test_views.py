"""What users see of a workload and of a site."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import Raw

from federator.daemon.views import queue_rows, site_rows
from federator.model.reason import ReasonCode
from federator.model.site import SiteJobState
from federator.model.submission import Option, Submission, pack_submission
from federator.model.window import SiteWindow
from federator.model.workload import Job, SiteName, WorkloadId
from federator.wire.client_protocol import QueueCall, QueueRow
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback


def federation() -> Loopback:
    return Loopback({"alpine": rack("a", 2)})


def row(f: Loopback, id_: WorkloadId) -> QueueRow:
    (found,) = rows(f, QueueCall(ids=(str(id_),), ended=True))
    return found


def rows(f: Loopback, call: QueueCall) -> tuple[QueueRow, ...]:
    found, left_off = queue_rows(f.federation, call, 100)
    assert left_off == 0
    return found


def test_a_running_workload_shows_where_it_runs() -> None:
    f = federation()
    id_ = f.submit(draft(gang(2)))
    f.run_for(1.0)
    seen = row(f, id_)
    assert (seen.state, seen.site, seen.site_job_id, seen.attempt) == ("RUNNING", "alpine", 101, 1)
    assert (seen.node_names, seen.nodes, seen.gpus) == (("a1", "a2"), 2, 16)
    assert seen.started_at_s > 0
    assert seen.unknown_since_s == 0.0
    assert list(seen.offers) == ["alpine"]


def test_a_waiting_workload_shows_what_it_asked_for_and_why_it_waits() -> None:
    f = federation()
    f.submit(draft(gang(2)))
    f.run_for(1.0)
    id_ = f.submit(draft(gang(2)))
    f.run_for(1.0)
    seen = row(f, id_)
    assert (seen.state, seen.site, seen.nodes, seen.gpus) == ("PENDING", "", 2, 16)
    assert seen.reason is not None
    assert seen.reason.code is ReasonCode.RESOURCES
    assert (seen.reason.needed, seen.reason.free) == (8, 0)
    assert list(seen.refusals) == ["alpine"]


def test_a_workload_that_no_pass_has_reached_says_so() -> None:
    f = federation()
    f.federation = f.new_federation()
    id_ = f.submit(draft())
    reason = row(f, id_).reason
    assert reason is not None
    assert reason.code is ReasonCode.NOT_TRIED


def test_a_job_whose_nodes_the_site_chooses_shows_none_before() -> None:
    f = federation()
    f.site_down("alpine")
    id_ = f.submit(draft(Job(name="t", gpus=4)))
    seen = row(f, id_)
    assert (seen.nodes, seen.gpus) == (0, 4)


def test_what_runs_at_an_unheard_site_is_unknown_since_then() -> None:
    f = federation()
    id_ = f.submit(draft())
    f.run_for(10.0)
    f.site_down("alpine")
    down_s = f.clock.now_s
    f.run_for(10.0)
    assert row(f, id_).unknown_since_s == down_s
    f.site_up("alpine")
    f.run_for(1.0)
    assert row(f, id_).unknown_since_s == 0.0


def test_an_end_shows_slurms_own_word_and_exit_code() -> None:
    f = federation()
    id_ = f.submit(draft())
    f.run_for(1.0)
    f.slurm("alpine").end(f.entry(id_).attempt_id, SiteJobState.OUT_OF_MEMORY, 137)
    f.run_for(15.0)
    seen = row(f, id_)
    assert (seen.state, seen.site_state, seen.exit_code) == ("FAILED", "OUT_OF_MEMORY", 137)
    assert seen.ended_at_s > seen.started_at_s


def test_what_never_ran_has_no_exit_code() -> None:
    f = federation()
    f.site_down("alpine")
    id_ = f.submit(draft())
    assert row(f, id_).exit_code is None
    f.cancel(id_)
    seen = row(f, id_)
    assert (seen.state, seen.exit_code, seen.signal) == ("CANCELLED", None, 0)


def test_what_ended_after_it_had_run_has_its_exit_code() -> None:
    f = federation()
    id_ = f.submit(draft())
    f.run_for(1.0)
    assert row(f, id_).exit_code is None
    f.slurm("alpine").end(f.entry(id_).attempt_id, SiteJobState.COMPLETED, 0)
    f.run_for(15.0)
    assert (row(f, id_).state, row(f, id_).exit_code) == ("COMPLETED", 0)


def test_what_no_site_takes_is_shown_with_their_words() -> None:
    f = federation()
    f.refuse_launches("alpine", code=ReasonCode.SBATCH_REFUSED)
    id_ = f.submit(draft())
    f.run_for(10.0)
    seen = row(f, id_)
    assert seen.reason is not None
    assert (seen.state, seen.reason.code.value) == ("HELD", "JobHeldUser")
    assert seen.reason.detail == "alpine: sbatch said no"
    assert row(f, id_).exit_code is None


def test_a_task_of_an_array_is_found_by_every_name_it_has() -> None:
    f = federation()
    first = f.submit(draft(gang(1, 1), array_indices=(4, 9)))
    for name in (f"{first}_9", str(first + 1)):
        (found,) = rows(f, QueueCall(ids=(name,)))
        assert (found.id, found.array_id, found.array_index) == (first + 1, first, 9)
    assert len(rows(f, QueueCall(ids=(str(first),)))) == 2
    assert rows(f, QueueCall(ids=(f"{first}_5", f"{first}_x", "x", "9" * 30))) == ()


def test_a_site_shows_since_when_it_is_down() -> None:
    f = federation()
    regions = {SiteName("alpine"): "west"}
    (up,) = site_rows(f.federation, regions)
    assert (up.up, up.down_since_s, up.partitions[0].gpus) == (True, 0.0, 16)
    f.site_down("alpine")
    (down,) = site_rows(f.federation, regions)
    assert (down.up, down.down_since_s) == (False, f.clock.now_s)


def test_a_site_shows_its_mode() -> None:
    f = federation()
    regions = {SiteName("alpine"): "west"}
    (row_,) = site_rows(f.federation, regions)
    assert row_.mode == "enforced"
    f.federation.sites[SiteName("alpine")].shadow = True
    (row_,) = site_rows(f.federation, regions)
    assert row_.mode == "shadow"


def test_users_do_not_see_who_may_use_a_reservation() -> None:
    """Its site names members for groups, and who is in a group is not for all to know."""
    f = federation()
    kept = SiteWindow(
        name="r1",
        starts_at_s=0.0,
        ends_at_s=9.0,
        nodes=("a1",),
        users=("ada",),
        accounts=("vision",),
    )
    f.federation.sites[SiteName("alpine")].windows = (kept,)
    (row_,) = site_rows(f.federation, {SiteName("alpine"): "west"})
    (shown,) = row_.windows
    assert (shown.name, shown.users, shown.accounts) == ("r1", (), ("vision",))


def test_files_are_shown_where_they_are_asked_for() -> None:
    f = federation()
    options = (Option(name="output", value="%j-%L.out"), Option(name="chdir", value="sub"))
    given = Submission(
        components=(options,),
        script="#!/bin/sh\n",
        work_dir="/home/ada",
        script_path="/home/ada/train.sh",
    )
    id_ = f.submit(replace(draft(gang(2)), submission=pack_submission(given)))
    f.run_for(1.0)
    (plain,) = rows(f, QueueCall(ids=(str(id_),)))
    assert (plain.work_dir, plain.stdout, plain.command) == ("", "", "")
    (shown,) = rows(f, QueueCall(ids=(str(id_),), files=True))
    assert (shown.work_dir, shown.stdin) == ("/home/ada/sub", "/dev/null")
    assert shown.command == "/home/ada/train.sh"
    assert shown.stdout == shown.stderr == f"/home/ada/sub/{id_}-101.out"


def submitted_in(folder: str, *options: Option) -> Raw:
    given = Submission(components=(options,), script="#!/bin/sh\n", work_dir=folder)
    return pack_submission(given)


def site_tells(f: Loopback, confirmed: str | None, reported: str | None) -> None:
    agent = f.sites[SiteName("alpine")].agent
    assert agent is not None
    agent.confirmed_dir, agent.reported_dir = confirmed, reported


@pytest.mark.parametrize("told", [("/home/there", None), (None, "/home/there")])
def test_files_are_where_the_site_ran_the_job_for_want_of_the_folder(
    told: tuple[str | None, str | None],
) -> None:
    f = federation()
    site_tells(f, *told)
    error = Option(name="error", value="/abs/%j")
    id_ = f.submit(replace(draft(gang(2)), submission=submitted_in("/data/ada", error)))
    f.run_for(1.0)
    (shown,) = rows(f, QueueCall(ids=(str(id_),), files=True))
    assert shown.state == "RUNNING"
    assert (shown.work_dir, shown.stdin) == ("/home/there", "/dev/null")
    assert (shown.stdout, shown.stderr) == (f"/home/there/slurm-{id_}.out", f"/abs/{id_}")
    f.compact()
    f.restart()
    (again,) = rows(f, QueueCall(ids=(str(id_),), files=True))
    assert (again.work_dir, again.stdout) == (shown.work_dir, shown.stdout)


def test_files_are_not_told_where_it_is_not_known_in_which_folder_they_are() -> None:
    f = federation()
    site_tells(f, None, None)
    error = Option(name="error", value="/abs/%j")
    id_ = f.submit(replace(draft(gang(2)), submission=submitted_in("/data/ada", error)))
    (asked,) = rows(f, QueueCall(ids=(str(id_),), files=True))
    assert asked.work_dir == "/data/ada"  # it is at no site yet
    f.run_for(1.0)
    (shown,) = rows(f, QueueCall(ids=(str(id_),), files=True))
    assert shown.state == "RUNNING"
    assert (shown.work_dir, shown.stdout, shown.stderr) == ("", "", f"/abs/{id_}")


def test_a_chosen_directory_is_the_jobs_whether_it_is_there_or_not() -> None:
    f = federation()
    site_tells(f, None, None)
    chosen = Option(name="chdir", value="/nowhere")
    id_ = f.submit(replace(draft(gang(2)), submission=submitted_in("/data/ada", chosen)))
    f.run_for(1.0)
    (shown,) = rows(f, QueueCall(ids=(str(id_),), files=True))
    assert (shown.work_dir, shown.stdout) == ("/nowhere", f"/nowhere/slurm-{id_}.out")
