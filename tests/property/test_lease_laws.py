"""Whatever befalls attempts, agent and Slurm, leases say who may start, and nobody else may.

A real agent, with its journal and its spool, against a simulated Slurm in virtual time. Orders
come, get lost, are repeated and withdrawn; jobs start, end, are put back and forgotten; the agent
ends and another comes. After every step the next sweep must have made leases true.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from federator.agent.spool import TIDY_S
from federator.agent.spool_folder import TICKET_LASTS_S
from federator.model.site import SiteJobState
from federator.model.site_message import CancelOrder
from federator.model.workload import AttemptId
from federator.wire.agent_protocol import LaunchOrder
from tests.fakes.agent import Daemon
from tests.fakes.build import attempt, plan_on, submission

WORKLOADS = 3
STEPS = (
    "launch",
    "launch",
    "launch in vain",
    "reply lost",
    "order lost",
    "withdraw",
    "cancel",
    "end",
    "requeue",
    "hold back",
    "let start",
    "forget",
    "new agent",
    "spool wiped",
    "spool hangs",
    "stranger makes folder",
    "dies before intent",
    "sweep takes 70 s",
)
LEFT = "0" * 32  # a ticket of an agent that died
ENDS_AGENT = ("new agent", "spool wiped", "dies before intent")  # which the next agent finds
TAKES_S = 15.0  # until the next sweep
LONGEST_S = 70.0  # until a lost order is given up, and a job is taken for forgotten
SWEEP_S = 70.0  # a slow one, of a job's birth; its agent rests four times as long

_STEP = st.tuples(st.sampled_from(STEPS), st.integers(0, WORKLOADS - 1))


class Story:
    """One site and what happens there."""

    def __init__(self, folder: Path) -> None:
        self.daemon = Daemon(folder)
        (folder / "spool").mkdir()
        self.daemon.spool = str(folder / "spool")
        self.daemon.site.on_launch = self.submitted
        self.numbers = dict.fromkeys(range(WORKLOADS), 0)

    def submitted(self, which: AttemptId, token: str) -> None:
        """Whoever reaches sbatch has its lease and its ticket."""
        assert self.lease(which) in self.leases()
        text = Path(self.daemon.spool, "tickets", token).read_text()
        assert text.split()[:2] == [str(which), "ada"]

    def leases(self) -> set[str]:
        """Regular files: others may make what they like there."""
        entries = os.scandir(Path(self.daemon.spool, "leases"))
        return {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}

    @staticmethod
    def lease(which: AttemptId) -> str:
        return f"{which.workload}.{which.attempt}"

    def present(self, number: int) -> AttemptId:
        return AttemptId(workload=attempt(number).workload, attempt=self.numbers[number])

    # ---- what happens ----

    def launch(self, number: int) -> None:
        """The next attempt, as a federation orders it: when the one before has ended."""
        slurm = self.daemon.slurm
        if any(j.attempt.workload == attempt(number).workload for j in slurm.live()):
            return
        self.numbers[number] += 1
        self.daemon.tell(
            LaunchOrder(
                attempt=self.present(number),
                user="ada",
                tenant="vision",
                name="train",
                submission=submission(),
                jobs=plan_on(f"a{number + 1}"),
            )
        )

    def withdraw(self, number: int, *, pending_only: bool = True) -> None:
        self.daemon.tell(
            CancelOrder(attempt=self.present(number), user="ada", pending_only=pending_only)
        )

    def act(self, step: str, number: int) -> None:
        site, slurm = self.daemon.site, self.daemon.slurm
        site.refusal = "no" if step == "launch in vain" else ""
        site.reply_is_lost = step == "reply lost"
        site.order_is_lost = step == "order lost"
        present = self.present(number)
        job = next((j for j in slurm.jobs.values() if j.attempt == present), None)
        if step in ("launch", "launch in vain", "reply lost", "order lost"):
            self.launch(number)
        elif step in ("withdraw", "cancel"):
            self.withdraw(number, pending_only=step == "withdraw")
        elif step in {"hold back", "let start"}:
            slurm.starts_jobs = step == "let start"
            slurm.start_what_can()
        elif step == "end" and job is not None and job.live:
            slurm.end(present)
        elif step == "requeue" and job is not None and job.state is SiteJobState.RUNNING:
            slurm.requeue(present)
        elif step == "forget":
            slurm.forget(present)
        else:
            self.spoil(step, number)

    def spoil(self, step: str, number: int) -> None:
        """What befalls the spool."""
        leases = Path(self.daemon.spool, "leases")
        if step == "stranger makes folder":
            self.stranger(number)
        elif step == "dies before intent":
            self.numbers[number] += 1
            with suppress(IsADirectoryError):  # a stranger's is there; an agent puts it aside
                (leases / self.lease(self.present(number))).write_text("{}")
            left = Path(self.daemon.spool, "tickets", LEFT)
            left.write_text("")
            os.utime(left, (self.daemon.clock(), self.daemon.clock()))
        elif step == "spool wiped":
            for name in self.leases():
                (leases / name).unlink()

    def stranger(self, number: int) -> None:
        """Takes the name of the next lease, and of what ties the present one to its job."""
        next_ = AttemptId(workload=attempt(number).workload, attempt=self.numbers[number] + 1)
        for name in (
            self.lease(next_),
            f"{self.lease(next_)}.job",
            f"{self.lease(self.present(number))}.job",
        ):
            folder = Path(self.daemon.spool, "leases", name)
            if not os.path.lexists(folder):
                folder.mkdir()
                (folder / "mine").write_text("")

    async def spool_hangs(self, number: int) -> None:
        """For a while; nothing is submitted meanwhile, and what ends keeps its lease."""
        self.daemon.spool_hangs = True
        submitted = len(self.daemon.site.submitted)
        self.launch(number)
        await asyncio.sleep(TAKES_S)
        assert len(self.daemon.site.submitted) == submitted
        self.daemon.spool_hangs = False
        await asyncio.sleep(LONGEST_S)

    async def slow_sweep(self, number: int) -> None:
        """Slurm is asked for jobs, the attempt is accepted, and long after that the sweep ends."""
        self.daemon.site.sweep_takes_s = SWEEP_S
        await asyncio.sleep(TAKES_S)
        self.launch(number)
        await asyncio.sleep(SWEEP_S)
        self.daemon.site.sweep_takes_s = 0.0
        await asyncio.sleep(2 * SWEEP_S)
        live = {self.lease(job.attempt) for job in self.daemon.slurm.live()}
        assert self.leases() >= live
        await asyncio.sleep(5 * SWEEP_S)

    # ---- what must hold ----

    def check(self) -> None:
        """After a sweep: whoever may start has a lease, and nobody else."""
        live = {self.lease(job.attempt) for job in self.daemon.slurm.live()}
        assert self.leases() == live
        workloads = [name.split(".")[0] for name in self.leases()]
        assert len(workloads) == len(set(workloads))
        for ticket in os.scandir(Path(self.daemon.spool, "tickets")):
            assert ticket.name == LEFT  # of an agent that died: its sbatch may be on its way
            age_s = self.daemon.clock() - ticket.stat().st_mtime
            assert age_s < TICKET_LASTS_S + TIDY_S + LONGEST_S


@settings(max_examples=40, deadline=None)
@example([("sweep takes 70 s", 0)])
@example([("stranger makes folder", 0), ("launch", 0), ("stranger makes folder", 0), ("end", 0)])
@example([("launch", 0), ("spool hangs", 0), ("end", 0)])
@example([("launch", 0), ("end", 0), ("dies before intent", 0), ("launch", 1)])
@given(st.lists(_STEP, max_size=12))
def test_whoever_may_start_has_a_lease_and_nobody_else(steps: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as folder:
        story = Story(Path(folder))
        lives: list[list[tuple[str, int]]] = [[]]
        for step in steps:
            lives[-1].append(step)
            if step[0] in ENDS_AGENT:
                lives.append([])
        for life in lives:

            async def script(life: list[tuple[str, int]] = life) -> None:
                for step, number in life:
                    story.act(step, number)
                    if step == "sweep takes 70 s":
                        await story.slow_sweep(number)
                    if step == "spool hangs":
                        await story.spool_hangs(number)
                    if step not in ENDS_AGENT:
                        slow = step in ("order lost", "forget")
                        await asyncio.sleep(LONGEST_S if slow else TAKES_S)
                        story.check()

            story.daemon.serve(script)
            story.daemon.epoch += 1
