"""Shows what only a real GPU can: the node's hooks and the training example on this machine.

usage: python3 tests/bench/bench_gpu.py [SECTION...]

SECTION is the name of a function here, or a program that one tries; default all.
Needs nvidia-smi, PyTorch with CUDA (Lightning and Accelerate for two programs), root (the hooks
trust root's files only) and nothing of Federator's dependencies. GPU 0 must be idle. Where there is
no GPU it says so and ends well.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "prolog_epilog")]

from fednode import arrival, config, findings, manifests, scene, smi, watching  # noqa: E402
from fednode import epilog as fednode_epilog  # noqa: E402
from fednode.gpu_use import GpuQuery  # noqa: E402
from fednode.watch import SCHEMA, policy_of  # noqa: E402

from tests.bench import bench_gate  # noqa: E402

ASKED = 15  # times that each question is put
EXAMPLES = REPOSITORY / "examples" / "train"
STEPS = 600
OTHER_UID = 65534  # nobody's
SAVED_GIB = 8
CUDA = ["--device", "cuda"]
TWICE, EITHER = [signal.SIGUSR1, signal.SIGUSR1], [signal.SIGUSR1, signal.SIGTERM]
LEFT = 85  # the exit status of a training that saved and left
# Holds memory of GPU 0, and computes if told so; a line once it does.
HOLDER = """
import sys, time, torch
held = torch.empty(int(float(sys.argv[1]) * 2**30), dtype=torch.uint8, device="cuda")
held.fill_(1)
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
torch.cuda.synchronize()
print("ready", flush=True)
while True:
    if sys.argv[2] == "busy":
        for _ in range(50):
            a @ a
        torch.cuda.synchronize()
    else:
        time.sleep(1)
"""
# A state of so many GiB on the GPU, saved when the job is told to leave.
SAVER = """
import sys, time, torch
from federator.checkpoint import Checkpointer
state = {str(i): torch.full((2**28,), float(i), device="cuda") for i in range(int(sys.argv[1]))}
with Checkpointer(torch.save, torch.load, directory=sys.argv[2], interval_s=1e9) as ckpt:
    found = ckpt.latest()
    if found is not None:
        assert all(torch.equal(found.state[name], of) for name, of in state.items())
        sys.exit("as it was")
    print("ready", flush=True)
    for step in range(10**9):
        time.sleep(0.01)
        ckpt.step(step, lambda: state)
"""
# Where the time of a save goes.
PARTS = """
import os, sys, time, torch, zlib
state = {str(i): torch.full((2**28,), float(i), device="cuda") for i in range(int(sys.argv[1]))}
torch.cuda.synchronize()
def took(what, act):
    began = time.monotonic()
    act()
    print(f"  {what}: {time.monotonic() - began:.1f} s", flush=True)
def check():
    crc = 0
    with open(sys.argv[2], "rb") as file:
        while chunk := file.read(1 << 20):
            crc = zlib.crc32(chunk, crc)
def sync():
    with open(sys.argv[2], "rb") as file:
        os.fsync(file.fileno())
took("copied to the CPU alone", lambda: [of.cpu() for of in state.values()])
took("torch.save", lambda: torch.save(state, sys.argv[2]))
took("fsync", sync)
took("read once more for its CRC-32", check)
"""


def child(
    text: str, *words: str, env: dict[str, str] | None = None, user: int | None = None
) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)} if env is None else env
    command = [sys.executable, "-c", text, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, user=user)


@contextmanager
def holding(gib: float, doing: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds so much of GPU 0, and is killed at the end if it is still there."""
    process = child(HOLDER, str(gib), doing)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def median_ms(act: Callable[[], object]) -> str:
    took = []
    for _ in range(ASKED):
        began = time.monotonic()
        act()
        took.append((time.monotonic() - began) * 1e3)
    return f"median {statistics.median(took):5.0f} ms   max {max(took):5.0f} ms"


def questions(nvidia_smi: str, when: str) -> None:
    """How long each question of the gate takes alone, and all side by side."""
    for name in smi.QUESTIONS:
        print(f"{when}, {name:<12} {median_ms(partial(smi.Smi(nvidia_smi, 30)._answer, name))}")
    every = tuple(smi.QUESTIONS)
    together = median_ms(lambda: smi.Smi(nvidia_smi, 30).fetch(every))
    print(f"{when}, all together {together}")


def gate(nvidia_smi: str) -> None:
    """What the shipped checks say of this machine, and how long a job's start is held up."""
    shipped, problems = manifests.load(str(REPOSITORY / "prolog_epilog" / "checks.d"), "/none")
    assert not problems, problems
    asked = smi.Smi(nvidia_smi, 30)
    shared = {name: key.default for name, key in config.COMMON.items()}
    here = scene.Scene(asked, shared, scene.View("here", None, True), scene.Expected())
    for found in findings.look(shipped, here, time.monotonic() + 60):
        print(f"{found.verdict:<8} {found.manifest.id:<16} {found.detail}".rstrip())
    with tempfile.TemporaryDirectory() as folder:
        prolog = bench_gate.install(Path(folder), nvidia_smi)
        took = bench_gate.measure(prolog, {"SLURM_JOB_GPUS": "0"}, 50)
    p99 = statistics.quantiles(took, n=100)[98] * 1e3
    print(
        f"prolog of a gang's node: median {statistics.median(took) * 1e3:.0f} ms, p99 {p99:.0f} ms"
    )


def watch(nvidia_smi: str) -> None:
    """Whether the watch tells apart an idle GPU, one that is only held, and one that computes."""
    query = GpuQuery(nvidia_smi, 30)
    policy = policy_of({name: key.default for name, key in SCHEMA.items()})

    def seen(when: str) -> None:
        gpus, apps = query.gpus(), query.apps()
        assert gpus is not None, query.trouble
        assert apps is not None, query.trouble
        doing = watching.doing([gpus[0].reading], policy)
        print(f"{when}: {gpus[0].reading}, {len(apps)} processes, so {doing or 'not known'}")

    seen("idle")
    with holding(10, "idle"):
        time.sleep(3)
        seen("10 GiB held")
    with holding(10, "busy"):
        time.sleep(3)
        seen("computing")
        questions(nvidia_smi, "computing")


def memory_comes_back(nvidia_smi: str) -> None:
    """Seconds from kill -9 of a process to the last byte that it held."""
    query = GpuQuery(nvidia_smi, 30)

    def used_mib() -> float:
        gpus = query.gpus()
        assert gpus is not None, query.trouble
        return gpus[0].reading.memory_mib or 0.0

    before = used_mib()
    for gib in (10, 60):
        with holding(gib, "idle") as process:
            held = used_mib()
            process.send_signal(signal.SIGKILL)
            began = time.monotonic()
            while used_mib() > before:
                assert time.monotonic() - began < 60
            took = time.monotonic() - began
            print(f"{held:.0f} MiB held, killed: free after {took:.2f} s")


def epilog(nvidia_smi: str) -> None:
    """What a job leaves on the GPU is ended after it, and the memory is free when the epilog ends.

    The one process names its job in its environment; the other names nothing, and only the driver
    knows of it.
    """
    job = {
        "SLURM_JOB_ID": "900001",
        "SLURM_JOB_UID": str(OTHER_UID),
        "SLURM_JOB_USER": "ada",
        "SLURM_JOB_GPUS": "0",
        "SLURM_JOB_PARTITION": "fed",
        "SLURMD_NODENAME": "here",
    }
    for what, named in (("names its job", job), ("names nothing", {})):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "node.json"
            state, log = str(Path(folder) / "state"), str(Path(folder) / "log")
            settings = {"nvidia_smi": nvidia_smi, "state_dir": state, "log_dir": log}
            file.write_text(json.dumps(settings))
            file.chmod(0o644)
            assert arrival.note(job, str(file)) == []
            left = child(HOLDER, "10", "busy", env=named, user=OTHER_UID)
            assert left.stdout is not None
            assert left.stdout.readline() == "ready\n"
            began = time.monotonic()
            assert fednode_epilog.main(job, str(file)) == 0
            took = time.monotonic() - began
            gpus = GpuQuery(nvidia_smi, 30).gpus() or {}
            said = json.loads((Path(log) / fednode_epilog.LOG).read_text().splitlines()[-1])
            said = {name: said[name] for name in said if name.startswith(("killed", "gpu", "trou"))}
            print(f"epilog, a process that {what}: {took:.2f} s, {said},", end=" ")
            print(f"ended with {left.wait(10)}, {gpus[0].reading.memory_mib} MiB held then")


def training(program: str, words: Sequence[str], leaves: Sequence[int], folder: Path) -> None:
    """A training on the GPU that is told to leave ends with the same bits.

    Args:
        program: of the examples.
        words: its arguments that say that it is to use the GPU.
        leaves: the signals that tell it, one after the other.
        folder: for its checkpoints.
    """
    folder /= program

    def run(name: str, *signals: int) -> list[str]:
        words_ = ["--steps", str(STEPS), "--directory", str(folder / name), *words]
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
        said: list[str] = []
        for number in (*signals, None):
            command = [sys.executable, str(EXAMPLES / program), *words_, "--step-s", "0.005"]
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, env=environment
            ) as process:
                assert process.stdout is not None
                said.append(_first_line(process.stdout))
                if number is not None:
                    time.sleep(0.8)
                    process.send_signal(number)
                said += process.stdout.readlines()
            assert process.returncode == (0 if number is None else LEFT), said
        return said

    once, parts = run("once"), run("parts", *leaves)
    for line in (*once, *parts):
        print("  " + line.rstrip())
    assert once[-1] == parts[-1], "the digests differ"
    told = ", ".join(signal.Signals(number).name for number in leaves)
    print(
        f"{program}, {STEPS} steps on the GPU, undisturbed and told to leave by {told}: same bits"
    )


def _first_line(said: IO[str]) -> str:
    """The one with which a training says where it begins; frameworks say things before."""
    for line in said:
        if line.startswith(("begins", "goes on")):
            return line
    raise AssertionError("it ended before its first step")


def restarts(folder: Path) -> None:
    """From the death of a rank to its training again: torchrun's own restart, and a new job."""
    where = folder / "restarts"
    words = ["--steps", "1000000", "--step-s", "0.01", "--directory", str(where)]
    program = [str(EXAMPLES / "train_accelerate.py"), *words]
    environment = os.environ | {
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONUNBUFFERED": "1",
        "FED_CHECKPOINT_INTERVAL_S": "1",
    }
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts=9"]
    with subprocess.Popen(
        [*torchrun, *program], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        _first_line(process.stdout)
        took = []
        for _ in range(3):
            time.sleep(2.5)
            asked = ["pgrep", "--parent", str(process.pid)]
            (rank, *_) = subprocess.run(
                asked, capture_output=True, text=True, check=True
            ).stdout.split()
            began = time.monotonic()
            os.kill(int(rank), signal.SIGKILL)
            _first_line(process.stdout)
            took.append(time.monotonic() - began)
        process.terminate()
        process.wait()
    print("killed, and torchrun trains again after", *(f"{s:.1f}" for s in took), "s")
    took = []
    for _ in range(3):
        began = time.monotonic()
        with subprocess.Popen(
            [*torchrun, *program], stdout=subprocess.PIPE, text=True, env=environment
        ) as process:
            assert process.stdout is not None
            _first_line(process.stdout)
            took.append(time.monotonic() - began)
            process.terminate()
            process.wait()
    print("a new torchrun trains after", *(f"{s:.1f}" for s in took), "s, without Slurm's part")


def saving(folder: Path) -> None:
    """Seconds from the warning to the end of a job with a large state on the GPU."""
    where = str(folder / "large")
    process = child(SAVER, str(SAVED_GIB), where)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    began = time.monotonic()
    process.send_signal(signal.SIGUSR1)
    assert process.wait() == LEFT
    took = time.monotonic() - began
    print(f"{SAVED_GIB} GiB on the GPU: told to leave, saved and gone in {took:.1f} s", end="")
    print(f" ({SAVED_GIB / took:.2f} GiB/s, its CRC-32 and fsync included)")
    subprocess.run([sys.executable, "-c", PARTS, str(SAVED_GIB), where + "-parts"], check=True)
    began = time.monotonic()
    child(SAVER, str(SAVED_GIB), where).wait()
    print(f"read back and compared in {time.monotonic() - began:.1f} s, Python's start included")


def main() -> None:
    nvidia_smi = shutil.which("nvidia-smi")
    if nvidia_smi is None:
        print("skipped: no nvidia-smi here")
        return
    print(subprocess.run([nvidia_smi, "-L"], capture_output=True, text=True, check=True).stdout)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sections: tuple[partial[None], ...] = (
            partial(questions, nvidia_smi, "idle"),
            partial(gate, nvidia_smi),
            partial(watch, nvidia_smi),
            partial(memory_comes_back, nvidia_smi),
            partial(epilog, nvidia_smi),
            partial(training, "train.py", CUDA, TWICE, folder),
            partial(training, "trainer.py", CUDA, TWICE, folder),
            partial(training, "train_lightning.py", ["--accelerator", "gpu"], EITHER, folder),
            partial(training, "train_accelerate.py", [], EITHER, folder),
            partial(restarts, folder),
            partial(saving, folder),
        )
        chosen = [s for s in sections if not sys.argv[1:] or _names(s) & {*sys.argv[1:]}]
        failed = [section for section in chosen if not ended_well(section)]
    sys.exit(1 if failed else 0)


def _names(section: partial[None]) -> set[str]:
    """What a section is chosen by: its function's name, or the program that it tries."""
    return {section.func.__name__, *(word for word in section.args if isinstance(word, str))}


def ended_well(section: Callable[[], None]) -> bool:
    """Run a section; what is wrong with one does not keep the others from being seen."""
    try:
        section()
    except Exception:
        traceback.print_exc()
        return False
    return True


if __name__ == "__main__":
    main()
