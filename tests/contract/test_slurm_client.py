"""Promises of the Slurm client, kept by recordings of three releases and by three live sites."""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from math import inf

import pytest

from federator.agent.base import SbatchRefused
from federator.errors import SiteRefused, SiteUnavailable
from federator.model.license import SiteLicense
from federator.model.reason import ReasonCode
from federator.model.site import NodeShare, NodeState, SiteJobState
from federator.model.workload import AttemptId, WorkloadId
from federator.slurm import pyslurm_reader
from federator.slurm.client import SlurmClient, SlurmSweep
from federator.slurm.pyslurm_reader import PyslurmRunner, child_command
from federator.slurm.runner import Completed
from federator.testbed import cluster, layout
from federator.testbed.layout import StateDir
from tests.contract.live import SITES, LiveHands, NoHands
from tests.contract.record_pyslurm import READS, RELEASES, awaken
from tests.contract.runners import TRANSCRIPTS, DockerRunner, Exchange, ReplayRunner
from tests.contract.situation import FIRST_WORKLOAD, HOSTILE_NAME, Scene, play
from tests.fakes import pyslurm_shapes

PARAMETERS = [pytest.param(("recorded", release), id=f"recorded-{release}") for release in SITES]
PARAMETERS += [
    pytest.param(("pyslurm", release), id=f"recorded-pyslurm-{release}") for release in RELEASES
]
PARAMETERS += [
    pytest.param(("live", release), id=f"live-{site}", marks=pytest.mark.slurm)
    for release, site in SITES.items()
]


@pytest.fixture(scope="module", params=PARAMETERS)
def release(request: pytest.FixtureRequest) -> tuple[str, str]:
    kind, release = request.param
    return kind, release


@pytest.fixture(scope="module")
def scene(release: tuple[str, str]) -> Scene:
    kind, name = release
    if kind == "pyslurm":
        return asyncio.run(_replay_pyslurm(name))
    return asyncio.run(_replay(name) if kind == "recorded" else _play_live(SITES[name]))


async def _replay(release: str) -> Scene:
    foreign = int((TRANSCRIPTS / release / "foreign_job_id").read_text())
    return await play(
        SITES[release], SlurmClient(ReplayRunner.of(release), layouts=True), NoHands(foreign)
    )


async def _replay_pyslurm(release: str) -> Scene:
    """The child itself, and a recording in place of pyslurm."""
    recording = f"{release}-pyslurm"
    foreign = int((TRANSCRIPTS / recording / "foreign_job_id").read_text())
    commands = ReplayRunner.of(recording)
    shapes = str(TRANSCRIPTS / recording / "shapes.jsonl")
    child = (sys.executable, "-I", pyslurm_shapes.__file__, "replay", shapes, child_command()[-1])
    reader = PyslurmRunner(commands, lambda _event, _detail: None, child)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyslurm_reader, "ANSWER_S", 60.0)  # a busy machine keeps it waiting
        try:
            await awaken(reader)
            commands.rewind()
            commands.asked.clear()
            seconds = count(1e9)  # what is asked again after a while, was
            client = SlurmClient(reader, layouts=True, clock=lambda: next(seconds))
            scene = await play(SITES[release], client, NoHands(foreign))
        finally:
            await reader.close()
    # The child hung at the last question, in the outage, and only then was a command run for it.
    assert [commands.asked.count(argv) for argv in READS.values()] == [0, 1, 1]
    return scene


async def _play_live(site: str) -> Scene:
    hands = LiveHands(site)
    cluster.up(StateDir.default(), layout.SITES, lambda _site, _doing: None)
    try:
        await hands.prepare()
        return await play(site, SlurmClient(DockerRunner(hands.container), layouts=True), hands)
    finally:
        await hands.restore()


def test_the_version_is_the_release_in_full(scene: Scene, release: tuple[str, str]) -> None:
    assert scene.version.startswith(release[1] + ".")
    assert scene.config.version == scene.version


def test_the_settings_that_matter_are_read(scene: Scene) -> None:
    assert scene.config.cluster == scene.site
    assert (scene.config.message_timeout_s, scene.config.min_job_age_s) == (10.0, 300.0)
    assert scene.config.kill_wait_s == 5.0
    assert scene.config.private_data == ()
    assert not scene.config.accounting


def test_partitions_have_their_nodes_limits_and_grace(scene: Scene) -> None:
    assert scene.partitions.problems == ()
    partition = {p.name: p for p in scene.partitions.records}
    assert partition["fed"].grace_s == 20.0
    assert partition["fed"].max_time_s == inf
    assert partition["fed"].up
    assert len(partition["fed"].nodes) == 10
    assert [p.name for p in scene.partitions.records if p.is_default] == ["local"]


def test_every_node_is_under_its_leaf_switch(scene: Scene) -> None:
    rack1 = {name for name, switch in scene.topology.items() if switch == "rack1"}
    assert rack1 == {f"{scene.site}-{n}" for n in ("g1", "g2", "g3", "g4", "c1")}
    assert {node.switch for node in scene.idle.nodes} == {"rack1", "rack2"}


def test_an_idle_site_is_idle_in_every_node(scene: Scene) -> None:
    assert scene.idle.problems == ()
    assert len(scene.idle.nodes) == 10
    assert {node.state for node in scene.idle.nodes} == {NodeState.IDLE}
    assert {node.gpus_alloc + node.cpus_alloc for node in scene.idle.nodes} == {0}


def test_what_a_node_has_is_read_in_full(scene: Scene) -> None:
    gpu_type = scene.node("g1").gpu_type
    assert gpu_type in ("a100", "h100")
    assert (scene.node("g1").cpus, scene.node("g1").mem_mib, scene.node("g1").gpus) == (
        64,
        512_000,
        8,
    )
    assert scene.node("g1").features == ("nvlink", gpu_type)
    assert set(scene.node("g1").partitions) == {"fed", "local"}
    assert (scene.node("c1").gpus, scene.node("c1").gpu_type) == (0, "")


def test_allocations_of_all_jobs_show_on_the_nodes(scene: Scene) -> None:
    g1 = scene.node("g1")
    # A job that named no node is now and then put beside the gang, and still leaves at its end.
    there = [(job.state, job.nodes[g1.name]) for job in scene.busy.jobs if g1.name in job.nodes]
    staying = sum(share.cpus for state, share in there if not state.ended)
    assert 32 <= staying <= g1.cpus_alloc <= sum(share.cpus for _, share in there)
    assert g1.gpus_alloc == 8
    assert g1.state is NodeState.MIXED
    assert scene.node("g3").gpus_alloc == 1 + 2 + 1 + 1
    assert scene.node("g4").gpus_alloc == 4


def test_a_drained_node_stays_drained_whatever_its_reason_says(scene: Scene) -> None:
    assert scene.node("g8").state is NodeState.DRAINED


def test_a_node_whose_slurmd_died_is_down(scene: Scene) -> None:
    assert scene.node("g7").state is NodeState.DOWN


def test_a_gang_holds_exactly_what_it_asked_for_on_each_node(scene: Scene) -> None:
    share = NodeShare(gpus=8, cpus=32)
    gang = scene.job("gang")
    assert gang.nodes == {f"{scene.site}-g1": share, f"{scene.site}-g2": share}
    assert (gang.state, gang.user, gang.partition) == (SiteJobState.RUNNING, "vision1", "fed")
    assert gang.started_at_s >= gang.submitted_at_s > 1.7e9
    assert gang.ended_at_s == 0.0


def test_a_job_without_a_time_limit_has_no_end(scene: Scene) -> None:
    """None of the jobs has one; those that backfill started would end "in a year"."""
    running = [job for job in scene.busy.jobs if job.state is SiteJobState.RUNNING]
    assert running
    assert {job.ends_by_s for job in running} == {inf}


def test_the_components_of_a_het_job_share_the_leaders_id(scene: Scene) -> None:
    leader = scene.ids["het"]
    parts = sorted(
        (job for job in scene.busy.jobs if job.het_job_id == leader), key=lambda job: job.het_offset
    )
    assert [job.job_id for job in parts] == [leader, leader + 1]
    assert [job.het_offset for job in parts] == [0, 1]
    assert parts[0].nodes == {f"{scene.site}-g3": NodeShare(gpus=2, cpus=1)}
    four = NodeShare(gpus=4, cpus=parts[1].nodes[f"{scene.site}-g4"].cpus)
    assert parts[1].nodes == {f"{scene.site}-g4": four, f"{scene.site}-g5": four}
    assert four.cpus >= 3


def test_a_het_job_is_one_attempt(scene: Scene) -> None:
    reports = [r for r in scene.busy.attempts if r.site_job_id == scene.ids["het"]]
    assert [r.state for r in reports] == [SiteJobState.RUNNING]
    assert set(reports[0].nodes) == {f"{scene.site}-{n}" for n in ("g3", "g4", "g5")}
    attempt = AttemptId(workload=WorkloadId(FIRST_WORKLOAD + 3), attempt=1)
    assert reports[0].attempt == attempt


def test_array_tasks_know_their_index(scene: Scene) -> None:
    tasks = [job for job in scene.busy.jobs if job.array_job_id == scene.ids["array"]]
    assert {job.array_task_id for job in tasks} == {None, 1}
    assert scene.job("array").state is SiteJobState.PENDING


@pytest.mark.parametrize(
    ("name", "state", "exit_code", "signal"),
    [
        ("failed", SiteJobState.FAILED, 3, 0),
        ("killed", SiteJobState.FAILED, 0, 9),
        ("cancelled", SiteJobState.CANCELLED, 0, 15),
        ("withdrawn", SiteJobState.CANCELLED, 0, 0),
        ("signalled", SiteJobState.FAILED, 7, 0),
        ("told", SiteJobState.FAILED, 85, 0),
        ("doomed", SiteJobState.FAILED, 0, 9),
        ("with_args", SiteJobState.FAILED, 4, 0),
    ],
)
def test_an_ended_job_tells_how_it_ended(
    scene: Scene, name: str, state: SiteJobState, exit_code: int, signal: int
) -> None:
    job = scene.job(name)
    assert (job.state, job.exit_code, job.signal) == (state, exit_code, signal)
    assert job.ended_at_s > 0
    assert job.nodes == {}


def test_a_job_cancelled_before_its_start_has_never_started(scene: Scene) -> None:
    assert scene.job("withdrawn").started_at_s == 0.0


def test_withdrawing_a_running_job_leaves_it_running(scene: Scene) -> None:
    assert scene.job("one_gpu").state is SiteJobState.RUNNING


def test_a_pending_job_says_why_and_holds_nothing(scene: Scene) -> None:
    held, big = scene.job("held"), scene.job("too_big")
    assert (held.state, held.reason) == (SiteJobState.PENDING, "JobHeldUser")
    assert (big.state, big.nodes, big.started_at_s) == (SiteJobState.PENDING, {}, 0.0)
    assert big.reason not in ("", "None")


def test_a_hostile_name_changes_no_other_field(scene: Scene) -> None:
    job = scene.job("hostile")
    assert job.name == HOSTILE_NAME
    assert (job.state, job.user, job.partition) == (SiteJobState.RUNNING, "vision1", "fed")
    assert job.comment.startswith(f"fed:{FIRST_WORKLOAD + 9}:1 JOB_GRES=gpu:9")
    assert [job.job_id for job in scene.busy.jobs].count(1) <= 1
    assert not any(job.user == "root" for job in scene.busy.jobs)


def test_text_that_imitates_an_allocation_is_reported_and_not_believed(scene: Scene) -> None:
    assert scene.job("hostile").nodes == {f"{scene.site}-g3": NodeShare()}
    assert any(str(scene.ids["hostile"]) in problem for problem in scene.busy.problems)
    assert scene.busy.jobs_complete


def test_line_breaks_in_a_name_hide_nothing(scene: Scene) -> None:
    assert scene.job("newlines").name == "a\nJobId=77\nb"
    assert scene.job("newlines").nodes == {f"{scene.site}-g3": NodeShare(gpus=1, cpus=1)}


def test_a_missing_work_dir_does_not_stop_a_submission(scene: Scene) -> None:
    assert scene.job("elsewhere").state is SiteJobState.RUNNING
    assert scene.work_dirs["elsewhere"] == "/home/vision1"
    assert scene.work_dirs["gang"] == ""


def test_a_foreign_job_is_seen_but_is_no_attempt(scene: Scene) -> None:
    assert scene.job("foreign").state is SiteJobState.RUNNING
    assert scene.ids["foreign"] not in {r.site_job_id for r in scene.busy.attempts}


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("no such partition", "Invalid partition name specified"),
        ("never fits", "Requested node configuration is not available"),
        ("no batch script", "does not look like a batch script"),
        ("unknown option", "unrecognized option"),
        ("as root", "sudo: a password is required"),
        ("as a stranger", "sudo: a password is required"),
        ("as nobody known", "unknown user"),
        ("cancel another's", "belongs to another user"),
        ("cancel a foreign job", "is not of the federation"),
        ("signal a pending job", "is PENDING"),
    ],
)
def test_a_refusal_carries_the_sites_own_words(scene: Scene, what: str, words: str) -> None:
    assert isinstance(scene.errors[what], SiteRefused)
    assert words in str(scene.errors[what])


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("unknown option", ReasonCode.SBATCH_REFUSED),
        ("never fits", ReasonCode.PLAN_REFUSED),
        ("no such partition", ReasonCode.PLAN_REFUSED),
        ("as a stranger", ReasonCode.LAUNCH_REFUSED),
    ],
)
def test_a_refused_launch_tells_whether_it_is_for_good(
    scene: Scene, what: str, code: ReasonCode
) -> None:
    error = scene.errors[what]
    assert isinstance(error, SbatchRefused)
    assert error.code is code


@pytest.mark.parametrize("what", ["cancel one long gone", "cancel one that ended"])
def test_cancelling_what_is_over_is_no_error(scene: Scene, what: str) -> None:
    assert scene.errors[what] is None


@pytest.mark.parametrize("what", ["sweep", "nodes", "submit", "cancel"])
def test_a_silent_slurmctld_is_unavailable_not_a_refusal(scene: Scene, what: str) -> None:
    error = scene.errors[f"{what} in an outage"]
    assert isinstance(error, SiteUnavailable)
    assert "Unable to contact slurm controller" in str(error)


def test_a_healthy_site_is_read_in_full_with_every_partition_open(scene: Scene) -> None:
    assert scene.idle.nodes_complete
    assert scene.idle.jobs_complete
    assert {partition for n in scene.idle.nodes for partition in n.closed_partitions} == set()


@pytest.mark.parametrize("version", SITES)
def test_a_steady_sweep_costs_two_commands(version: str) -> None:
    async def sweep_again() -> list[tuple[str, ...]]:
        runner = ReplayRunner.of(version)
        client = SlurmClient(runner)
        await client.sweep()
        before = len(runner.asked)
        runner.rewind()
        await client.sweep()
        return runner.asked[before:]

    asked = asyncio.run(sweep_again())
    assert [argv[0] for argv in asked] == ["squeue", "scontrol"]


@pytest.mark.parametrize("version", SITES)
def test_licences_cost_a_third_where_there_are_any(version: str) -> None:
    stdout = b"LicenseName=matlab Total=4 Used=3 Free=1 Reserved=0 Remote=no\n"
    argv = ("scontrol", "-o", "show", "licenses")
    done = Completed(exit_status=0, stdout=stdout, stderr=b"")
    runner = ReplayRunner.of(version, Exchange(argv=argv, stdin=b"", done=done))
    client = SlurmClient(runner)

    async def sweep_twice() -> SlurmSweep:
        await client.sweep()
        runner.rewind()
        return await client.sweep()

    sweep = asyncio.run(sweep_twice())
    assert sweep.licenses == (SiteLicense(name="matlab", total=4, free=1),)
    assert runner.asked.count(argv) == 2


def test_what_a_job_leaves_in_its_folder_is_seen(scene: Scene) -> None:
    """It found its deadline there, and acknowledged."""
    assert scene.left_behind.acked_at_s > 0
    assert scene.left_behind.checkpointed_at_s > 0
