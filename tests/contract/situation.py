"""One situation, played on a site, that all promises of the Slurm client refer to.

``play`` does everything that the tests look at, through the client alone. ``Hands`` do what is not
the client's: break nodes, stop slurmctld, wait. On a recording nothing needs to be done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from federator.agent.base import CheckpointStatus, Partition
from federator.errors import FederatorError
from federator.model.site import Node, NodeState, SiteJob, SiteJobState
from federator.model.workload import AttemptId, WorkloadId
from federator.slurm.client import SlurmClient, SlurmSweep
from federator.slurm.options.file_names import no_files
from federator.slurm.parse_base import Reading
from federator.slurm.parse_site import SlurmConfig
from federator.wire.agent_protocol import PreemptOrder, SignalTo

FIRST_WORKLOAD: Final = 2**32 + 7000
SLEEP: Final = "#!/bin/sh\nexec sleep 900\n"
DRAIN_REASON: Final = "bad State=IDLE fan: see ticket 5"
# The field names and the order are those of scontrol; it must not be taken for one.
HOSTILE_NAME: Final = "x JobState=FAILED\nJobId=1 JobName=y UserId=root(0)\t\x1f\x1e|\"'\\é"
HOSTILE_COMMENT: Final = (
    f"fed:{FIRST_WORKLOAD + 9}:1 JOB_GRES=gpu:9 Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:9 MinCPUsNode=1 "
    "\n1|root|COMPLETED|0:0|N/A|N/A|1|N/A|1|1|1||fed|\x1f"
)
SHARED: Final = "/tmp/fed-contract"  # of a region; who sets up a site makes it
FOLDER: Final = f"{SHARED}/vision1/checkpoints/16"
DEADLINE_S: Final = 4e9
# Acknowledges only where it finds the very deadline.
SAVES: Final = f"""#!/bin/sh
cd "$FED_CHECKPOINT_DIR/.fed"
rm -f saved.1
trap '[ "$(cat deadline.1)" = {DEADLINE_S:.3f} ] && touch saved.1 checkpointed; exit 85' USR1
while :; do sleep 0.2; done
"""
DEAF: Final = "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.2; done\n"
TRAP: Final = "#!/bin/sh\ntrap 'exit 7' USR1\nwhile :; do sleep 0.2; done\n"

Condition = Callable[[SlurmSweep], bool]


class Hands(Protocol):
    """Does at the site what the client cannot."""

    async def wait(self, condition: Condition) -> None: ...

    async def await_sleep(self, job_ids: Sequence[int], /) -> None:
        """Wait until the script of each has come to its sleep: it has set its traps."""
        ...

    async def drain(self, node: str, reason: str) -> None: ...

    async def kill_node(self, node: str) -> None: ...

    async def stop_controller(self) -> None: ...

    async def start_controller(self) -> None: ...

    async def submit_foreign(self, user: str, /) -> int:
        """Submit a job that is not of the federation."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One submission; structurally what the client takes."""

    argv: tuple[str, ...]
    args: tuple[str, ...] = ()
    script: str = SLEEP
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": "/usr/bin:/bin"})
    work_dir: str = "/tmp"
    umask: int = 0o022
    checkpoint_dir: str = ""
    files: Mapping[str, object] = field(default_factory=no_files)


@dataclass(slots=True, kw_only=True)
class Scene:
    """Everything the client said."""

    site: str
    version: str
    config: SlurmConfig
    partitions: Reading[Partition]
    topology: dict[str, str]
    idle: SlurmSweep
    ids: dict[str, int] = field(default_factory=dict)
    work_dirs: dict[str, str | None] = field(default_factory=dict)
    left_behind: CheckpointStatus = CheckpointStatus()  # by the job that was told to leave
    busy: SlurmSweep
    errors: dict[str, FederatorError | None] = field(default_factory=dict)

    def job(self, name: str) -> SiteJob:
        """Return the record of a job when the site was busy."""
        return next(job for job in self.busy.jobs if job.job_id == self.ids[name])

    def node(self, number: str) -> Node:
        """Return a node when the site was busy, e.g. ``g1``."""
        return next(n for n in self.busy.nodes if n.name == f"{self.site}-{number}")


def _calls(site: str) -> dict[str, Call]:
    """Return the submissions by name, in the order they are made."""

    def call(index: int, *options: str, script: str = SLEEP, work_dir: str = "/tmp") -> Call:
        comment = f"--comment=fed:{FIRST_WORKLOAD + index}:1"
        return Call(argv=(comment, "--partition=fed", *options), script=script, work_dir=work_dir)

    n = {number: f"{site}-{number}" for number in ("g1", "g2", "g3", "g4", "g5")}
    return {
        "gang": call(
            1,
            "--nodes=2",
            f"--nodelist={n['g1']},{n['g2']}",
            "--ntasks-per-node=1",
            "--cpus-per-task=32",
            "--gres=gpu:8",
            "--job-name=gang",
        ),
        "one_gpu": call(2, "--nodes=1", f"--nodelist={n['g3']}", "--gres=gpu:1"),
        "het": call(
            3,
            "--nodes=1",
            f"--nodelist={n['g3']}",
            "--gres=gpu:2",
            ":",
            f"--comment=fed:{FIRST_WORKLOAD + 3}:1",
            "--partition=fed",
            "--nodes=2",
            f"--nodelist={n['g4']},{n['g5']}",
            "--gres=gpu:4",
            "--cpus-per-task=3",
        ),
        "array": call(4, "--array=1-3%1"),
        "failed": call(5, script="#!/bin/sh\nexit 3\n"),
        "killed": call(6, script="#!/bin/sh\nkill -9 $$\n"),
        "cancelled": call(7),
        "held": call(8, "--hold"),
        "hostile": Call(
            argv=(
                f"--comment={HOSTILE_COMMENT}",
                "--partition=fed",
                f"--job-name={HOSTILE_NAME}",
                "--account=a JobState=FAILED",
                f"--nodelist={n['g3']}",
                "--gres=gpu:1",
            ),
        ),
        "newlines": call(10, "--job-name=a\nJobId=77\nb", f"--nodelist={n['g3']}", "--gres=gpu:1"),
        "withdrawn": call(11, "--hold"),
        "too_big": call(12, "--nodes=8", "--gres=gpu:8"),
        "signalled": call(13, script=TRAP),
        "with_args": Call(
            argv=(f"--comment=fed:{FIRST_WORKLOAD + 15}:1", "--partition=fed"),
            args=("two words", "--uid=0", "x"),
            script="#!/bin/sh\n[ $# = 3 ] && [ \"$1\" = 'two words' ] && exit 4\n",
        ),
        "told": replace(
            call(16, script=SAVES),
            checkpoint_dir=FOLDER,
            environment={"PATH": "/usr/bin:/bin", "FED_CHECKPOINT_DIR": FOLDER},
        ),
        "doomed": call(17, script=DEAF),
        "elsewhere": call(14, work_dir="/nonexistent"),
    }


async def play(site: str, client: SlurmClient, hands: Hands) -> Scene:
    """Play the whole situation on an idle site."""
    await hands.wait(lambda sweep: all(node.state is NodeState.IDLE for node in sweep.nodes))
    idle = await client.sweep()
    scene = Scene(
        site=site,
        version=await client.version(),
        config=await client.config(),
        partitions=await client.partitions(),
        topology=await client.topology(),
        idle=idle,
        busy=idle,
    )
    await hands.drain(f"{site}-g8", DRAIN_REASON)
    await hands.kill_node(f"{site}-g7")
    for name, call in _calls(site).items():
        done = await client.helper.submit("vision1", call)
        scene.ids[name], scene.work_dirs[name] = done
    await hands.wait(lambda sweep: _started(sweep, scene.ids))
    # One that is signalled while slurmd still starts it ends otherwise than its script says.
    await hands.await_sleep([scene.ids[n] for n in ("cancelled", "signalled", "told", "doomed")])
    await _act(client, scene)
    await _provoke(client, scene, hands)
    await hands.wait(lambda sweep: _settled(sweep, scene))
    (scene.left_behind,) = await client.helper.read_checkpoint_status(
        "vision1", [_order_to_leave(scene)]
    )
    scene.busy = await client.sweep()
    await _outage(client, scene, hands)
    return scene


def _started(sweep: SlurmSweep, ids: Mapping[str, int]) -> bool:
    state = {job.job_id: job for job in sweep.jobs}
    waiting = {"held", "withdrawn", "too_big", "array"}
    return all(i in state and state[i].started_at_s > 0 for n, i in ids.items() if n not in waiting)


def _settled(sweep: SlurmSweep, scene: Scene) -> bool:
    job = {job.job_id: job for job in sweep.jobs}
    over = (
        "told",
        "doomed",
        "failed",
        "with_args",
        "killed",
        "cancelled",
        "withdrawn",
        "signalled",
    )
    down = next(node for node in sweep.nodes if node.name == f"{scene.site}-g7")
    begun = {j.job_id for j in sweep.jobs if j.state is SiteJobState.RUNNING}
    begun |= {j.array_job_id for j in sweep.jobs if j.array_task_id == 1 and j.job_id in begun}
    return (
        down.state is NodeState.DOWN
        and all(job[scene.ids[name]].state.ended for name in over)
        and begun >= {scene.ids["foreign"], scene.ids["array"]}
        and job[scene.ids["too_big"]].reason not in ("", "None")  # Slurm has looked at it
    )


async def _act(client: SlurmClient, scene: Scene) -> None:
    await client.helper.cancel("vision1", scene.ids["cancelled"])
    await client.helper.cancel("vision1", scene.ids["withdrawn"], pending_only=True)
    await client.helper.cancel("vision1", scene.ids["one_gpu"], pending_only=True)  # it runs: stays
    await client.helper.signal("vision1", scene.ids["signalled"], "USR1", SignalTo.BATCH)
    await client.helper.signal("vision1", scene.ids["doomed"], "KILL", SignalTo.ALL)
    await client.helper.notify(_order_to_leave(scene), DEADLINE_S)


def _order_to_leave(scene: Scene) -> PreemptOrder:
    return PreemptOrder(
        attempt=AttemptId(workload=WorkloadId(FIRST_WORKLOAD + 16), attempt=1),
        user="vision1",
        site_job_id=scene.ids["told"],
        grace_s=60.0,
        signal="USR1",
        signal_to=SignalTo.BATCH,
        checkpoint_dir=FOLDER,
    )


async def _provoke(client: SlurmClient, scene: Scene, hands: Hands) -> None:
    """Ask for what a site must refuse, and for what must do no harm."""
    comment = f"--comment=fed:{FIRST_WORKLOAD + 20}:1"
    foreign = await hands.submit_foreign("vision1")
    scene.ids["foreign"] = foreign
    attempts = {
        "no such partition": client.helper.submit(
            "vision1", Call(argv=(comment, "--partition=nope"))
        ),
        "never fits": client.helper.submit("vision1", Call(argv=(comment, "--gres=gpu:99"))),
        "no batch script": client.helper.submit("vision1", Call(argv=(comment,), script="echo\n")),
        "unknown option": client.helper.submit("vision1", Call(argv=(comment, "--bogus"))),
        "as root": client.helper.submit("root", Call(argv=(comment,))),
        "as a stranger": client.helper.submit("localuser", Call(argv=(comment,))),
        "as nobody known": client.helper.submit("nosuchuser", Call(argv=(comment,))),
        "cancel another's": client.helper.cancel("vision2", scene.ids["gang"]),
        "cancel a foreign job": client.helper.cancel("vision1", foreign),
        "signal a pending job": client.helper.signal(
            "vision1", scene.ids["held"], "USR1", SignalTo.BATCH
        ),
        "cancel one long gone": client.helper.cancel("vision1", 4_000_000),
        "cancel one that ended": client.helper.cancel("vision1", scene.ids["failed"]),
    }
    for name, attempt in attempts.items():
        try:
            await attempt
        except FederatorError as error:
            scene.errors[name] = error
        else:
            scene.errors[name] = None


async def _outage(client: SlurmClient, scene: Scene, hands: Hands) -> None:
    """Ask everything while slurmctld is down."""
    await hands.stop_controller()
    call = Call(argv=(f"--comment=fed:{FIRST_WORKLOAD + 21}:1",))
    attempts = {
        "sweep in an outage": client.sweep(),
        "nodes in an outage": client.nodes(),
        "submit in an outage": client.helper.submit("vision1", call),
        "cancel in an outage": client.helper.cancel("vision1", scene.ids["gang"]),
    }
    results = await asyncio.gather(*attempts.values(), return_exceptions=True)
    await hands.start_controller()
    for name, result in zip(attempts, results, strict=True):
        if isinstance(result, BaseException) and not isinstance(result, FederatorError):
            raise result
        scene.errors[name] = result if isinstance(result, FederatorError) else None
