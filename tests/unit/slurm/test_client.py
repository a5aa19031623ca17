"""What the client makes of answers that no healthy site gives; the healthy ones: tests/contract."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from math import inf

import pytest

from federator.agent.base import KnownJobs, Launched
from federator.errors import SiteUnavailable
from federator.faults.clock import VirtualClock
from federator.model.site import LocalJob, NodeShare, NodeState
from federator.model.workload import AttemptId, WorkloadId
from federator.slurm.client import SETTINGS_FRESH_S, SlurmClient, SlurmSweep
from federator.slurm.other_jobs import OTHERS_FRESH_S
from federator.slurm.runner import Completed
from tests.fakes.runner import Answer, FakeRunner, printed
from tests.unit.slurm.texts import job_line, node_line, squeue_record


def client_of(answer: Answer) -> tuple[SlurmClient, FakeRunner]:
    runner = FakeRunner(answer)
    return SlurmClient(runner, layouts=True), runner


def running(*ids: int) -> bytes:
    return b"".join(squeue_record(JobID=str(i), Comment=f"fed:{i}:1") for i in ids)


def site(ids: Sequence[int], layouts: Mapping[int, str]) -> Answer:
    """Return a site with running jobs, and what scontrol prints of each."""

    def answer(argv: Sequence[str]) -> Completed:
        if argv[0] == "squeue":
            return printed(running(*ids))
        if argv[-1] == "jobs":
            return printed("".join(layouts.values()))
        if argv[-2] == "job":
            found = layouts.get(int(argv[-1]))
            return printed(found or "", 0 if found else 1, b"Invalid job id specified")
        return printed(node_line("n1") + "\n" if argv[-1] == "nodes" else "")

    return answer


@pytest.mark.parametrize(
    "output", [b"squeue: a new line of chatter\n", running(1)[:-5], b"1|2\n" + running(1)]
)
def test_job_lists_that_break_off_are_not_believed_in_part(output: bytes) -> None:
    client, _ = client_of(lambda _argv: printed(output))
    with pytest.raises(SiteUnavailable, match="squeue cannot be read"):
        asyncio.run(client.jobs())


def test_a_few_starts_are_looked_up_one_by_one_and_only_once() -> None:
    client, runner = client_of(site([5, 6], {5: job_line(5), 6: job_line(6)}))
    first, second = asyncio.run(client.jobs()), asyncio.run(client.jobs())
    assert [argv[-2:] for argv in runner.asked[1:3]] == [("job", "5"), ("job", "6")]
    assert len(runner.asked) == 4
    assert [job.nodes for job in second.records] == [{"n1": NodeShare(gpus=1, cpus=1)}] * 2
    assert first.records == second.records


def test_what_a_job_holds_is_known_though_it_was_renamed_since() -> None:
    layouts = {5: job_line(5)}
    client, runner = client_of(site([5], layouts))
    asyncio.run(client.jobs())
    renamed = squeue_record(JobID="5", Comment="lr=3e-4")
    runner.answer = lambda _argv: printed(renamed)
    (job,) = asyncio.run(client.jobs()).records
    assert job.nodes == {"n1": NodeShare(gpus=1, cpus=1)}


def test_many_starts_are_looked_up_by_one_dump() -> None:
    ids = range(1, 21)
    client, runner = client_of(site(ids, {i: job_line(i) for i in ids}))
    assert all(job.nodes["n1"].gpus for job in asyncio.run(client.jobs()).records)
    assert len(runner.asked) == 2


def test_a_job_whose_id_another_record_claims_is_asked_for_singly() -> None:
    ids = range(1, 7)
    layouts = {i: job_line(i) for i in ids} | {1: job_line(1, name="x\n" + job_line(3))}
    client, runner = client_of(site(ids, layouts))
    held = {job.job_id: job.nodes["n1"].gpus for job in asyncio.run(client.jobs()).records}
    assert held[3] == 1
    assert ("job", "3") in [argv[-2:] for argv in runner.asked]


def test_a_job_that_ends_before_it_is_looked_up_is_no_problem() -> None:
    client, _ = client_of(site([5], {}))
    reading = asyncio.run(client.jobs())
    assert (reading.problems, reading.records[0].nodes) == ((), {"n1": NodeShare()})


def test_a_layout_on_other_nodes_than_squeue_says_is_not_believed() -> None:
    elsewhere = job_line(5, "Nodes=n9 CPU_IDs=0 Mem=0 GRES=gpu:a100:8")
    client, _ = client_of(site([5], {5: elsewhere}))
    reading = asyncio.run(client.jobs())
    assert reading.records[0].nodes == {"n1": NodeShare()}
    assert "different nodes" in reading.problems[0]


def test_a_sweep_reads_the_jobs_before_the_nodes() -> None:
    client, runner = client_of(site([5], {5: job_line(5)}))
    asyncio.run(client.sweep())
    order = [argv[-1] for argv in runner.asked if argv[0] == "squeue" or argv[-1] == "nodes"]
    assert order[-1] == "nodes"
    assert len(order) == 2


def test_without_layouts_nothing_is_looked_up_and_shares_are_empty() -> None:
    runner = FakeRunner(site([5, 6], {5: job_line(5), 6: job_line(6)}))
    reading = asyncio.run(SlurmClient(runner).jobs())
    assert [job.nodes for job in reading.records] == [{"n1": NodeShare()}] * 2
    assert [argv[0] for argv in runner.asked] == ["squeue"]


def partitioned(states: Mapping[str, str], nodes: str = "") -> FakeRunner:
    """A site with one node in ``fed`` and ``local``; ``states`` may be changed later."""

    def answer(argv: Sequence[str]) -> Completed:
        if argv[-1] == "partitions":
            return printed("".join(f"PartitionName={n} State={s}\n" for n, s in states.items()))
        return printed((nodes or node_line("n1")) if argv[-1] == "nodes" else "")

    return FakeRunner(answer)


@pytest.mark.parametrize("state", ["DOWN", "DRAIN", "INACTIVE"])
def test_a_partition_that_starts_no_jobs_is_none_of_its_nodes_partitions(state: str) -> None:
    runner = partitioned({"fed": state, "local": "UP"})
    (node,) = asyncio.run(SlurmClient(runner).sweep()).nodes
    assert (node.partitions, node.closed_partitions) == (("local",), ("fed",))


def test_a_partition_that_cannot_be_read_stays_open_and_is_reported() -> None:
    sweep = asyncio.run(SlurmClient(partitioned({"fed": "UP MaxTime=soon", "local": "UP"})).sweep())
    assert sweep.nodes[0].partitions == ("fed", "local")
    assert "PartitionName=fed" in sweep.problems[0]
    assert sweep.nodes_complete


def test_partitions_are_asked_for_again_once_they_may_have_changed() -> None:
    states, clock = {"fed": "UP", "local": "UP"}, VirtualClock()
    runner = partitioned(states)
    client = SlurmClient(runner, clock=clock)

    def open_partitions() -> tuple[str, ...]:
        return asyncio.run(client.sweep()).nodes[0].partitions

    assert open_partitions() == ("fed", "local")
    states["fed"] = "DOWN"
    clock.advance(SETTINGS_FRESH_S - 0.1)
    assert open_partitions() == ("fed", "local")
    clock.advance(0.1)
    assert open_partitions() == ("local",)
    states["fed"] = "UP"
    clock.now_s -= 1000  # somebody set the clock
    assert open_partitions() == ("fed", "local")
    assert [argv[-1] for argv in runner.asked].count("partitions") == 3


def test_a_node_that_cannot_be_read_makes_the_sweep_incomplete() -> None:
    odd = node_line("n2").replace("CPUAlloc=0", "CPUAlloc=some")
    runner = partitioned({"fed": "UP"}, node_line("n1") + "\n" + odd)
    sweep = asyncio.run(SlurmClient(runner).sweep())
    assert [node.name for node in sweep.nodes] == ["n1"]
    assert (sweep.nodes_complete, sweep.jobs_complete) == (False, True)
    assert "NodeName=n2" in sweep.problems[0]


def test_a_few_jobs_are_asked_for_by_id_without_their_layouts() -> None:
    client, runner = client_of(lambda _: printed(running(5, 7)))
    assert [job.job_id for job in asyncio.run(client.some_jobs({7, 5}))] == [5, 7]
    (asked,) = runner.asked
    assert asked[asked.index("-j") + 1] == "5,7"


@pytest.mark.parametrize("ids", [(), (7,)])
def test_jobs_that_slurm_does_not_know_are_none(ids: tuple[int, ...]) -> None:
    """Seen on 22.05, 24.11 and 26.05: of one unknown id squeue says so, of several nothing."""
    said = b"slurm_load_jobs error: Invalid job id specified"
    client, _ = client_of(lambda _: printed("", 1, said))
    assert asyncio.run(client.some_jobs(ids)) == ()


def test_a_squeue_that_fails_otherwise_says_nothing_of_jobs() -> None:
    client, _ = client_of(lambda _: printed("", 1, b"slurm_load_jobs error: Zero Bytes"))
    with pytest.raises(SiteUnavailable):
        asyncio.run(client.some_jobs((7,)))


def test_jobs_of_other_partitions_are_not_asked_for() -> None:
    runner = FakeRunner(lambda _argv: printed(b""))
    asyncio.run(SlurmClient(runner, partitions=("fed", "cpu")).jobs())
    assert runner.asked[0][-2:] == ("-p", "fed,cpu")


def own(*job_ids: int, ended: Collection[int] = ()) -> KnownJobs:
    """What an agent knows that has launched these jobs, of which some are known to have ended."""
    launched = {i: Launched(attempt=attempt(i), user="vision1", at_s=0.0) for i in job_ids}
    return KnownJobs(launched=launched, ended={attempt(i) for i in ended})


def attempt(number: int) -> AttemptId:
    return AttemptId(workload=WorkloadId(number), attempt=1)


class Moving:
    """A client of partition fed, and the squeue of a site where jobs are in partitions."""

    def __init__(self) -> None:
        self.partition_of: dict[int, str] = {}
        self.fields: dict[str, str] = {"Comment": "fed:1:1"}
        self.layouts: dict[int, str] = {}
        self.runner = FakeRunner(self._answer)
        self.client = SlurmClient(self.runner, partitions=("fed",), layouts=True)

    def _answer(self, argv: Sequence[str]) -> Completed:
        if argv[0] == "scontrol":
            return printed(self.layouts[int(argv[-1])])
        named = argv[argv.index("-j") + 1].split(",") if "-j" in argv else []
        leader = self.fields.get("HetJobID")
        shown = [
            i
            for i, partition in self.partition_of.items()
            if str(i) in named or leader in named or ("-p" in argv and partition == "fed")
        ]
        records = (
            squeue_record(JobID=str(i), Partition=self.partition_of[i], **self.fields)
            for i in shown
        )
        return printed(b"".join(records))

    def jobs(self, *launched: int) -> list[int]:
        return [job.job_id for job in asyncio.run(self.client.jobs(own(*launched))).records]

    @property
    def asked(self) -> int:
        """How often squeue was called."""
        return sum(argv[0] == "squeue" for argv in self.runner.asked)


def test_a_launched_job_that_was_moved_to_another_partition_is_not_lost() -> None:
    site = Moving()
    site.fields |= {"State": "PENDING", "NodeList": ""}
    site.partition_of = {5: "fed", 6: "local", 7: "fed"}
    assert site.jobs(5, 7) == [5, 7]
    site.partition_of[5] = "local"
    assert site.jobs(5, 7) == [7, 5]
    assert site.jobs(5, 7) == [7, 5]


def test_a_moved_jobs_components_are_all_shown() -> None:
    site = Moving()
    site.partition_of = {5: "local", 6: "local"}
    site.fields |= {"HetJobID": "5", "State": "PENDING", "NodeList": ""}
    assert site.jobs(5) == [5, 6]


def test_a_moved_job_shows_what_it_holds_whatever_it_is_called() -> None:
    site = Moving()
    site.partition_of, site.layouts = {5: "local"}, {5: job_line(5)}
    site.fields["Comment"] = "lr=3e-4"
    (job,) = asyncio.run(site.client.jobs(own(5))).records
    assert job.nodes == {"n1": NodeShare(gpus=1, cpus=1)}


def test_jobs_that_have_ended_or_that_slurm_knows_no_more_cost_nothing() -> None:
    site = Moving()
    site.partition_of, site.fields["State"] = {5: "fed"}, "COMPLETED"
    site.layouts = {5: job_line(5)}
    assert site.jobs(5) == [5]
    site.partition_of = {}
    assert site.jobs(5, 9) == []  # 9 is looked for
    assert site.asked == 3
    assert site.jobs(5, 9) == []
    assert site.asked == 4


def test_what_an_earlier_agent_saw_end_is_not_looked_for() -> None:
    site = Moving()
    assert asyncio.run(site.client.jobs(own(5, 6, ended=[5, 6]))).records == ()
    assert site.asked == 1


def test_another_users_job_in_another_partition_whose_id_has_come_again_is_not_shown() -> None:
    site = Moving()
    site.partition_of, site.fields["UserName"] = {5: "local"}, "mallory"
    assert site.jobs(5) == []
    assert site.jobs(5) == []
    assert site.asked == 3  # it is not looked for again


def test_a_moved_job_that_cannot_be_read_is_looked_for_again() -> None:
    site = Moving()
    site.partition_of = {5: "local"}
    site.fields |= {"State": "PENDING", "NodeList": "", "SubmitTime": "soon"}
    assert not asyncio.run(site.client.jobs(own(5))).complete
    site.fields["SubmitTime"] = "1795210722"
    assert site.jobs(5) == [5]


class Partitioned:
    """A client of some partitions, at a site where others hold nodes as well."""

    def __init__(self, others: bytes, topology: str = "") -> None:
        self.others, self.topology = others, topology
        self.gpus_alloc = 0
        self.clock = VirtualClock()
        self.runner = FakeRunner(self._answer)
        self.client = SlurmClient(self.runner, partitions=("fed",), clock=self.clock)

    def _answer(self, argv: Sequence[str]) -> Completed:
        if argv[0] == "squeue":
            return printed(b"" if "-p" in argv else self.others)
        if argv[-1] == "topology":
            return printed(self.topology)
        used = f"gpu:a100:{self.gpus_alloc}"
        return printed(node_line("n1", used=used) + "\n" if argv[-1] == "nodes" else "")

    def sweep(self) -> tuple[LocalJob, ...]:
        return asyncio.run(self.client.sweep()).others

    @property
    def asked(self) -> int:
        """How often what holds nodes in other partitions was asked for."""
        return len([a for a in self.runner.asked if a[0] == "squeue" and "-p" not in a])


def test_what_holds_nodes_in_other_partitions_is_read_with_its_end() -> None:
    site = Partitioned(b"7|5|1005|n[1-2]|\n8|5|N/A|n1|\n9|5|1005||\n")
    assert site.sweep() == (
        LocalJob(id=7, nodes=("n1", "n2"), ends_by_s=1005.0),
        LocalJob(id=8, nodes=("n1",)),
    )


@pytest.mark.parametrize("end", ["NONE", "Unknown", str(5 + 365 * 86_400)])
def test_without_a_time_limit_it_has_no_end(end: str) -> None:
    (job,) = Partitioned(f"7|5|{end}|n1|\n".encode()).sweep()
    assert job.ends_by_s == inf


def test_it_is_read_again_when_nodes_changed_something_should_have_ended_or_time_has_passed() -> (
    None
):
    site = Partitioned(b"")
    ends_by_s = int(site.clock()) + 10
    site.others = f"7|{ends_by_s - 60}|{ends_by_s}|n1|\n".encode()
    site.sweep()
    site.sweep()
    assert site.asked == 1
    site.gpus_alloc = 4
    site.sweep()
    assert site.asked == 2
    site.clock.advance(10)  # it should be over
    site.sweep()
    assert site.asked == 3
    site.clock.advance(OTHERS_FRESH_S)
    site.sweep()
    assert site.asked == 4


def test_a_line_of_others_that_cannot_be_read_is_told_and_left_out() -> None:
    site = Partitioned(b"7|5|1005|n[1-2|\nnonsense\n8|5|N/A|n1|\n")
    sweep = asyncio.run(site.client.sweep())
    assert [job.id for job in sweep.others] == [8]
    assert len(sweep.problems) == 2


def test_a_sweep_shows_the_switch_above_each_switch() -> None:
    site = Partitioned(b"", "SwitchName=r1 Level=0 Nodes=n1\nSwitchName=s Level=1 Switches=r1\n")
    assert asyncio.run(site.client.sweep()).switches == {"r1": "s"}


def reserved(state: str, reservations: str, partitions: str = "fed") -> FakeRunner:
    """A site with one node in a state of its own, and what it says of reservations."""
    node = node_line("n1").replace("State=MIXED", f"State={state}")
    node = node.replace("State=IDLE", f"State={state}")

    def answer(argv: Sequence[str]) -> Completed:
        if argv[-1] == "reservations":
            return printed(reservations) if reservations != "denied" else printed("", 1, b"denied")
        if argv[-1] == "partitions":
            return printed(f"PartitionName={partitions} State=UP\n")
        return printed(node if argv[-1] == "nodes" else "")

    return FakeRunner(answer)


MAINT = "ReservationName=m StartTime={} EndTime={} Nodes=n[1-2] NodeCnt=2 Flags=MAINT TRES=cpu=8"


def swept(runner: FakeRunner, now_s: float = 5_000.0) -> SlurmSweep:
    clock = VirtualClock()
    clock.now_s = now_s
    return asyncio.run(SlurmClient(runner, clock=clock, partitions=("fed",)).sweep())


def test_a_sweep_shows_reservations_of_the_federation_s_nodes() -> None:
    (window,) = swept(reserved("IDLE", MAINT.format(6_000, 7_000))).windows
    assert (window.name, window.nodes, window.maintenance) == ("m", ("n1",), True)
    assert (window.starts_at_s, window.ends_at_s) == (6_000.0, 7_000.0)


def test_a_node_in_a_reservation_that_is_known_is_as_it_would_be_without() -> None:
    (node,) = swept(reserved("IDLE+MAINTENANCE+RESERVED", MAINT.format(1_000, 7_000))).nodes
    assert (node.state, node.reserved) == (NodeState.IDLE, True)


@pytest.mark.parametrize("said", ["", "denied", MAINT.format(1_000, "soon")])
def test_a_node_that_is_reserved_for_nobody_knows_what_takes_no_jobs(said: str) -> None:
    sweep = swept(reserved("IDLE+RESERVED", said))
    assert sweep.nodes[0].state is NodeState.DRAINED
    assert sweep.windows == ()
    assert bool(sweep.problems) == bool(said)


def test_a_look_tells_whether_admins_have_changed_anything_since_the_sweep() -> None:
    states, clock = {"fed": "UP"}, VirtualClock()
    client = SlurmClient(partitioned(states), clock=clock)

    async def looks() -> list[bool]:
        told = [await client.settings_changed()]  # nothing was swept
        await client.sweep()
        told.append(await client.settings_changed())
        states["fed"] = "DRAIN"
        clock.advance(SETTINGS_FRESH_S)
        told.append(await client.settings_changed())
        await client.sweep()
        told.append(await client.settings_changed())
        return told

    assert asyncio.run(looks()) == [False, False, True, False]
