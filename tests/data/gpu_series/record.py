"""Records what nvidia-smi and /proc show of labelled trainings on one real GPU.

    python3 record.py OUT            about 400 s on one GPU; needs torch, nothing of ours
    python3 record.py OUT --cpu      a dry run of a few seconds each, without a GPU

It changes no setting of the GPU. It writes into OUT: samples.csv (nvidia-smi twice a second),
sm.csv (SM activity once a second, where `nvidia-smi dmon` has it), proc.csv (CPU time and bytes
read of the job's processes) and steps.json (the steps of each training, and where it waited).
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist

GPU_FIELDS = (
    "index,utilization.gpu,utilization.memory,memory.used,memory.total,power.draw,power.limit,"
    "clocks.sm,temperature.gpu"
)
MORE_FIELDS = ",power.draw.instant,clocks_throttle_reasons.active"  # that some drivers lack
LOOK_EVERY_S = 0.5
MOST_STEPS = 1500  # of one training that are written
CPU_RUN_S = 2.0


# ---- the trainings; each runs in a process of its own until ``end_s`` of the monotonic clock ----


class Model(torch.nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(
            width, max(1, width // 64), 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.body = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, width)

    def forward(self, x):
        return self.head(self.body(x))


class Training:
    """A model, its optimiser and a batch; ``step`` is one step that has ended on the GPU."""

    def __init__(self, cpu, width=1024, layers=12, batch=24, length=512):
        self.cpu = cpu
        self.device = "cpu" if cpu else "cuda"
        if cpu:
            width, layers, batch, length = 64, 1, 2, 16
        torch.manual_seed(1)
        self.shape = (batch, length, width)
        self.model = Model(width, layers).to(self.device)
        self.run = self.model
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batch = torch.randn(self.shape, device=self.device)
        self.steps = []  # [began_at_s, step_s, wait_s]: all of the step, and its wait before
        self.marks = []  # [began_at_s, for_s, what]

    def sync(self):
        if not self.cpu:
            torch.cuda.synchronize()

    def compute(self, batch=None, apply=True):
        batch = self.batch if batch is None else batch
        with torch.autocast(self.device, dtype=torch.bfloat16):
            loss = self.run(batch).float().pow(2).mean()
        loss.backward()
        if apply:
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
        self.sync()

    def step(self, load=None, began_s=None):
        began_s = time.monotonic() if began_s is None else began_s
        batch = None
        if load is not None:
            batch = load()
            self.sync()
        waited_s = time.monotonic() - began_s
        self.compute(batch)
        self.steps.append([began_s, time.monotonic() - began_s, waited_s])

    def mark(self, what, began_s):
        self.marks.append([began_s, time.monotonic() - began_s, what])

    def step_s(self, times=5):
        """The length of a step, measured; the first ones are not."""
        for _ in range(3):
            self.compute()
        began_s = time.monotonic()
        for _ in range(times):
            self.compute()
        return (time.monotonic() - began_s) / times


class Slow(torch.utils.data.Dataset):
    """Batches that cost CPU time, as decoding does."""

    def __init__(self, work_s):
        self.work_s = work_s

    def __len__(self):
        return 1 << 30

    def __getitem__(self, index):
        until_s = time.monotonic() + self.work_s
        batch = torch.full((1 << 18,), 0.1)  # a MiB: /dev/shm may be small
        while time.monotonic() < until_s:
            sum(range(2000))
        return batch


def healthy(cpu, end_s, tell):
    training = Training(cpu)
    training.step_s()
    while time.monotonic() < end_s:
        training.step()
    return training


def starved(cpu, end_s, tell, frac=0.5, workers=2):
    """``frac`` of the time waits for the loader, whose two workers are too few."""
    training = Training(cpu)
    work_s = workers * training.step_s() / (1 - frac)
    loader = torch.utils.data.DataLoader(
        Slow(work_s),
        batch_size=None,
        num_workers=workers,
        prefetch_factor=2,
        pin_memory=not cpu,
    )
    batches = iter(loader)
    while time.monotonic() < end_s:
        training.step(lambda: training.batch + next(batches).to(training.device).mean())
    return training


def shards(cpu, end_s, tell, load_s=3.0, use_s=3.0):
    """It reads a shard, trains on it, reads the next: the saw-tooth in its plain form."""
    training = Training(cpu)
    training.step_s()
    if cpu:
        load_s = use_s = 0.3
    while time.monotonic() < end_s:
        began_s = time.monotonic()
        Slow(load_s)[0]
        training.mark("load", began_s)
        training.step(began_s=began_s)
        until_s = time.monotonic() + use_s
        while time.monotonic() < min(until_s, end_s):
            training.step()
    return training


def copies(cpu, end_s, tell):
    """Each step first copies much pageable memory to the GPU."""
    training = Training(cpu)
    training.step_s()
    size = 1 << (16 if cpu else 27)
    source = torch.empty(size).fill_(0.5)  # 512 MiB

    def load():
        for _ in range(2):
            source.to(training.device)
        return training.batch

    while time.monotonic() < end_s:
        training.step(load)
    return training


def idle(cpu, end_s, tell, mib=20_000):
    """It holds memory and does nothing."""
    training = Training(cpu, layers=1)
    held = None if cpu else torch.empty(mib << 20, dtype=torch.uint8, device="cuda").fill_(1)
    training.step_s()
    while time.monotonic() < end_s:
        time.sleep(0.2)
    del held
    return training


def left_over(cpu, end_s, tell):
    """A process that its job left behind: the job has ended, its child holds a context."""
    return idle(cpu, end_s, tell, mib=1500)


def tiny(cpu, end_s, tell):
    """A small model in 2 of 80 GiB."""
    training = Training(cpu, width=256, layers=2, batch=8, length=64)
    training.step_s()
    while time.monotonic() < end_s:
        training.step()
    return training


def small_batches(cpu, end_s, tell):
    """Many small kernels keep a kernel on the GPU always, with few of its SMs."""
    training = Training(cpu, width=256, layers=1, batch=1, length=64)
    training.step_s()
    small = torch.randn(8, 8, 64, 64, device=training.device)
    while time.monotonic() < end_s:
        began_s = time.monotonic()
        for _ in range(1 if cpu else 300):
            small = torch.tanh(small @ small.transpose(-1, -2) * 0.01)
        training.sync()
        training.steps.append([began_s, time.monotonic() - began_s, 0.0])
    return training


def saving(cpu, end_s, tell, every_s=7.0):
    """Sound training that saves every few seconds, each save a pause."""
    training = Training(cpu)
    training.step_s()
    every_s = 0.5 if cpu else every_s
    file = f"/tmp/gpu-series-{os.getpid()}.pt"
    next_s = time.monotonic() + every_s
    while time.monotonic() < end_s:
        training.step()
        if time.monotonic() >= next_s:
            began_s = time.monotonic()
            state = {"m": training.model.state_dict(), "o": training.optimiser.state_dict()}
            torch.save(state, file)
            training.mark("save", began_s)
            next_s = time.monotonic() + every_s
    if os.path.exists(file):
        os.unlink(file)
    return training


def evaluating(cpu, end_s, tell, every_s=9.0, pause_s=1.2):
    """Sound training with evaluations: a pause of the CPU (a new loader), then forward only."""
    training = Training(cpu)
    training.step_s()
    every_s, pause_s = (0.5, 0.1) if cpu else (every_s, pause_s)
    next_s = time.monotonic() + every_s
    while time.monotonic() < end_s:
        training.step()
        if time.monotonic() >= next_s:
            began_s = time.monotonic()
            Slow(pause_s)[0]
            with torch.no_grad(), torch.autocast(training.device, dtype=torch.bfloat16):
                for _ in range(20):
                    training.run(training.batch)
            training.sync()
            training.mark("evaluation", began_s)
            next_s = time.monotonic() + every_s
    return training


def compiled(cpu, end_s, tell, warm_s=8.0):
    """A phase in which only CPUs work (here: compiled where it can be), then sound training."""
    training = Training(cpu)
    began_s = time.monotonic()
    if not cpu:
        try:
            training.run = torch.compile(training.model)
            training.compute()
            training.mark("compile", began_s)
        except Exception as error:
            training.run = training.model
            tell(f"not compiled: {type(error).__name__}")
    rest_s = (0.3 if cpu else warm_s) - (time.monotonic() - began_s)
    if rest_s > 0:
        began_s = time.monotonic()
        Slow(rest_s)[0]
        training.mark("warm-up", began_s)
    training.step_s()
    while time.monotonic() < end_s:
        training.step()
    return training


def limping(cpu, end_s, tell):
    """Sound training while another process takes a part of the GPU."""
    thief = CONTEXT.Process(target=_steals, args=(cpu, end_s), daemon=False)
    thief.start()
    try:
        return healthy(cpu, end_s, tell)
    finally:
        thief.terminate()
        thief.join()


def _steals(cpu, end_s, frac=0.25):
    training = Training(cpu, layers=4)
    step_s = training.step_s()
    while time.monotonic() < end_s:
        training.compute()
        time.sleep(step_s * (1 - frac) / frac)


def gang(cpu, end_s, tell, late_s=0.0):
    """Two ranks on one GPU that sum their gradients through the CPU; one may be late."""
    port = 20_000 + os.getpid() % 20_000
    ends, processes = [], []
    for rank in range(2):
        mine, theirs = CONTEXT.Pipe()
        args = (rank, port, cpu, end_s, late_s if rank == 1 else 0.0, theirs)
        processes.append(CONTEXT.Process(target=_rank, args=args, daemon=False))
        ends.append(mine)
        processes[-1].start()
    ranks = [
        end.recv() if end.poll(max(1.0, end_s - time.monotonic() + 10)) else None for end in ends
    ]
    for process in processes:
        process.join(3)
        process.kill()
    training = Training(True)
    training.ranks = ranks
    return training


def _rank(rank, port, cpu, end_s, late_s, pipe):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(4)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    training = Training(cpu, layers=6, batch=32)
    training.step_s()
    stop = torch.zeros(1)
    steps = []  # [began_at_s, compute_s, summed_s]
    while True:
        began_s = time.monotonic()
        if late_s:
            until_s = time.monotonic() + (0.02 if cpu else late_s)
            while time.monotonic() < until_s:
                pass
        training.compute(apply=False)
        computed_s = time.monotonic()
        grads = [p.grad for p in training.model.parameters() if p.grad is not None]
        flat = torch.cat([grad.flatten() for grad in grads])
        flat = (flat[:100_000] if os.environ.get("GANG_SMALL") else flat).cpu()
        dist.all_reduce(flat)
        training.optimiser.step()
        training.optimiser.zero_grad(set_to_none=True)
        training.sync()
        steps.append([began_s, computed_s - began_s, time.monotonic() - computed_s])
        stop[0] = float(time.monotonic() >= end_s)
        dist.all_reduce(stop, op=dist.ReduceOp.MAX)
        if stop[0]:
            break
    pipe.send(steps[-MOST_STEPS:])
    pipe.close()


def late_gang(cpu, end_s, tell):
    """The gang with little to sum, whose second rank takes longer in each step."""
    os.environ["GANG_SMALL"] = "1"
    return gang(cpu, end_s, tell, late_s=0.06)


def sound_gang(cpu, end_s, tell):
    """The gang with little to sum: neither bound by it nor skewed."""
    os.environ["GANG_SMALL"] = "1"
    return gang(cpu, end_s, tell)


def starved_by(frac):
    return lambda cpu, end_s, tell: starved(cpu, end_s, tell, frac=frac)


WORKLOADS = (  # label, seconds, training
    ("healthy", 34, healthy),
    ("starved-30", 22, starved_by(0.3)),
    ("starved-50", 22, starved_by(0.5)),
    ("starved-80", 22, starved_by(0.8)),
    ("starved-shards", 26, shards),
    ("copies", 18, copies),
    ("idle", 12, idle),
    ("left-over", 10, left_over),
    ("tiny", 18, tiny),
    ("small-batches", 18, small_batches),
    ("saving", 30, saving),
    ("evaluating", 30, evaluating),
    ("compiled", 34, compiled),
    ("limping", 24, limping),
    ("communication", 20, gang),
    ("straggler", 20, late_gang),
    ("gang", 18, sound_gang),
)
CONTEXT = multiprocessing.get_context("fork")  # torch is loaded once; CUDA begins in each child


def child(run, cpu, end_s, pipe):
    def tell(words):
        print("   ", words, flush=True)

    try:
        training = run(cpu, end_s, tell)
        found = {"steps": training.steps[-MOST_STEPS:], "of": len(training.steps)}
        found["marks"] = training.marks
        found["shape"] = list(training.shape)
        if hasattr(training, "ranks"):
            found["ranks"] = training.ranks
            found["steps"] = []
        if not cpu and not hasattr(training, "ranks"):
            found["peak_mib"] = torch.cuda.max_memory_allocated() >> 20
    except Exception as error:
        found = {"trouble": f"{type(error).__name__}: {error}"[:300]}
        print("   ", found["trouble"], flush=True)
    pipe.send(found)
    pipe.close()


# ---- the sampling ----


def family(pid):
    """The process and what it started, from /proc."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents.setdefault(int(file.read().rsplit(")", 1)[1].split()[1]), []).append(
                        int(name)
                    )
            except (OSError, IndexError, ValueError):
                pass
    found, ahead = [], [pid]
    while ahead:
        found.append(ahead.pop())
        ahead += parents.get(found[-1], [])
    return found


def proc_row(pid):
    """CPU seconds, MiB resident and MiB read by the job, all its processes together."""
    tick, cpu_s, resident, read = os.sysconf("SC_CLK_TCK"), 0.0, 0, 0
    pids = family(pid)
    for one in pids:
        try:
            with open(f"/proc/{one}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            cpu_s += (int(fields[11]) + int(fields[12])) / tick
            resident += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
            with open(f"/proc/{one}/io") as file:
                read += int(file.readline().split()[1])
        except (OSError, IndexError, ValueError):
            pass
    return f"{cpu_s:.2f},{len(pids)},{resident >> 20},{read >> 20}"


class Recorder:
    def __init__(self, out):
        self.out = out
        self.label = ""
        self.began_s = time.monotonic()
        self.files = {}
        self.programs = []
        self.over = False

    def row(self, name, head, words):
        if name not in self.files:
            path = os.path.join(self.out, name)
            self.files[name] = open(path, "w", buffering=1)  # noqa: SIM115 - until ``stop``
            self.files[name].write(f"at_s,workload,{head}\n")
        at_s = time.monotonic() - self.began_s
        self.files[name].write(f"{at_s:.2f},{self.label},{words}\n")

    def follow(self, argv, name, head, read):
        try:
            program = subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        except OSError as error:
            print(f"{argv[0]}: {error}", flush=True)
            return
        self.programs.append(program)

        def lines():
            for line in program.stdout:
                words = read(line)
                if words and self.label:
                    self.row(name, head, words)

        threading.Thread(target=lines, daemon=True).start()

    def start(self):
        threading.Thread(target=self.look, daemon=True).start()
        self.follow(
            [
                "stdbuf",
                "-oL",
                "nvidia-smi",
                "dmon",
                "-d",
                "1",
                "-s",
                "u",
                "--gpm-metrics",
                "2,3,5,10",
            ],
            "sm.csv",
            "gpu,sm,mem,enc,dec,jpg,ofa,sm_activity,sm_occupancy,tensor_activity,dram_activity",
            lambda line: "" if line.startswith("#") else ",".join(line.split()),
        )

    def look(self):
        fields = GPU_FIELDS + MORE_FIELDS
        next_s = time.monotonic()
        while not self.over:
            argv = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
            try:
                ran = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=20)
            except (OSError, subprocess.SubprocessError) as error:
                print(f"nvidia-smi: {error}", flush=True)
                return
            if ran.returncode and fields != GPU_FIELDS:
                print("   ", (ran.stdout + ran.stderr).strip()[:200], flush=True)
                fields = GPU_FIELDS
                continue
            for line in ran.stdout.splitlines() if self.label else ():
                self.row("samples.csv", fields, ",".join(part.strip() for part in line.split(",")))
            next_s = max(next_s + LOOK_EVERY_S, time.monotonic())
            time.sleep(max(0.05, next_s - time.monotonic()))

    def stop(self):
        self.over = True
        time.sleep(1.5)
        for program in self.programs:
            program.terminate()
        for file in self.files.values():
            file.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--cpu", action="store_true", help="a dry run without a GPU")
    parser.add_argument("--total", type=float, default=410.0, help="seconds for all")
    parser.add_argument("--only", default="", help="labels, with commas")
    asked = parser.parse_args()
    os.makedirs(asked.out, exist_ok=True)
    recorder = Recorder(asked.out)
    if not asked.cpu:
        recorder.start()
    over_s = time.monotonic() + asked.total
    only = set(asked.only.split(",")) - {""}
    chosen = [one for one in WORKLOADS if not only or one[0] in only]
    found = {}
    for number, (label, planned_s, run) in enumerate(chosen):
        rest_s = sum(one[1] + 3.0 for one in chosen[number:])
        scale = min(1.0, max(0.0, over_s - time.monotonic()) / rest_s)
        length_s = CPU_RUN_S if asked.cpu else planned_s * scale
        print(
            f"{time.monotonic() - recorder.began_s:6.1f} s {label} for {length_s:.0f} s", flush=True
        )
        recorder.label = label
        mine, theirs = CONTEXT.Pipe()
        started_s = time.monotonic()
        process = CONTEXT.Process(
            target=child, args=(run, asked.cpu, started_s + length_s, theirs), daemon=False
        )
        process.start()
        latest_s = started_s + length_s + 12
        while time.monotonic() < latest_s and not mine.poll(1.0):
            recorder.row("proc.csv", "cpu_s,processes,resident_mib,read_mib", proc_row(process.pid))
        result = mine.recv() if mine.poll(0) else {"trouble": "it did not end in time"}
        process.join(2)
        for pid in family(process.pid) if process.is_alive() else ():
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        result["began_s"] = round(started_s - recorder.began_s, 2)
        result["length_s"] = round(time.monotonic() - started_s, 2)
        found[label] = shifted(result, recorder.began_s)
        with open(os.path.join(asked.out, "steps.json"), "w") as file:
            json.dump({"info": info(asked.cpu), "workloads": found}, file, separators=(",", ":"))
    recorder.stop()


def shifted(result, began_s):
    """Times from the beginning of the recording on, in fewer digits."""
    for rows in (result.get("steps", ()), result.get("marks", ()), *(result.get("ranks") or ())):
        for row in rows or ():
            row[0] = round(row[0] - began_s, 2)
            row[1] = round(row[1], 5)
            if not isinstance(row[2], str):
                row[2] = round(row[2], 5)
    return result


def info(cpu):
    name = "" if cpu else _gpu_name()
    return {
        "torch": torch.__version__,
        "gpu": name,
        "cpus": os.cpu_count(),
        "python": sys.version.split()[0],
    }


def _gpu_name():
    argv = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        ran = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=20)
        return ran.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


if __name__ == "__main__":
    main()
