"""The work of fed-epilog: clears away what a job leaves on its node.

In this order: processes, GPU memory, /dev/shm, DCGM's mapping files, the job's record; then one
line in jobs.jsonl. Each part stands alone: if one fails, it is told and the rest is done. Nothing
here fails the epilog, and with that the node; a node that keeps a GPU's memory is drained if the
admin wants that.
"""

import json
import os
import pwd
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from fednode import config, dcgm, processes, records, shm, summary, use_report
from fednode.epilog_keys import SCHEMA
from fednode.gpu_use import App, Gpu, GpuQuery
from fednode.limited import limited, tell
from fednode.run import run

NAME = "fed-epilog"
LOG = "jobs.jsonl"
_REASON_CHARS = 120


class HeldGpu(NamedTuple):
    """A GPU of the job that keeps memory though the job is over."""

    gpu: int
    memory_mib: int
    pids: "Tuple[int, ...]"


class Epilog:
    """One job's epilog; ``line`` is what the log will say of it."""

    def __init__(
        self, job: records.JobRecord, shared: "Dict[str, Any]", own: "Dict[str, Any]"
    ) -> None:
        self._job = job
        self._shared = shared
        self._own = own
        self._began, self._began_s = time.monotonic(), time.time()
        self._query = GpuQuery(shared["nvidia_smi"], own["nvidia_smi_timeout_s"], job.node)
        self._seen = job  # by its prolog, if that left a record
        self.line = {}  # type: Dict[str, Any]
        self.troubles = []  # type: List[str]

    def run(self, environ: "Dict[str, str]") -> None:
        """Do all of it; what fails is in ``troubles``."""
        record = records.read(self._job.node, self._job.job, self._shared["state_dir"])
        self._seen = record or self._job
        self.line.update(
            summary.of_job(record or self._job, environ, time.time(), record is not None)
        )
        if self._own["enabled"]:
            self._attempt("orphans", self._orphans)
            self._attempt("gpu_memory", self._gpu_memory)
            self._attempt("shm", self._shm)
        # What the prolog wrote down goes whatever the settings are.
        self._attempt("dcgm", self._dcgm)
        self._attempt("usage", self._usage)
        self._attempt("record", self._record)
        self.line["took_s"] = round(time.monotonic() - self._began, 3)
        if self.troubles:
            self.line["troubles"] = self.troubles
        self._attempt("log", self._log)
        self._attempt("usage_dir", self._report_use)  # the last: the spool may hang

    def _attempt(self, name: str, part: "Callable[[], None]") -> None:
        try:
            part()
        except (OSError, ValueError, KeyError, TypeError) as error:
            self.troubles.append(f"{name}: {type(error).__name__}: {error}"[:300])

    def _spared(self) -> bool:
        """Whether nothing of this owner is ever touched: root, and services."""
        return bool(self._job.uid < self._own["min_uid"])

    def _orphans(self) -> None:
        if not self._own["orphans"] or self._spared():
            return
        job, uid, node = self._job.job, self._job.uid, self._job.node
        found = processes.all_processes(uid)
        victims = processes.of_job(found, job, uid, node)
        if self._own["exclusive_nodes"] and not self._others(found):
            victims = found
        killed = processes.kill(victims, self._own["kill_grace_s"])
        if killed:
            self.line["killed"] = len(killed)

    def _others(self, found: "List[processes.Process]") -> bool:
        """Whether the user has another job here, by their processes and by the records."""
        return bool(self._spoken_of(found)) or self._recorded_others()

    def _spoken_of(self, found: "List[processes.Process]") -> "Set[int]":
        """The user's other jobs by their processes.

        What a process says of itself can shield it. Where nodes are shared that is the price of
        sparing other jobs; where they are not, there is none to be spared.
        """
        exclusive = self._own["exclusive_nodes"]
        return processes.other_jobs(found, self._job.job, self._job.uid, exclusive)

    def _recorded_others(self) -> bool:
        found = records.of_machine(self._shared["state_dir"])
        mine = (self._job.node, self._job.job)
        return any(r.uid == self._job.uid and (r.node, r.job) != mine for r in found)

    def _gpu_memory(self) -> None:
        if self._own["gpu_memory"] == "off" or not self._job.gpus:
            return
        held = self._held()
        deadline = time.monotonic() + self._own["gpu_wait_s"]
        while held and time.monotonic() < deadline:  # the driver frees it a little later
            time.sleep(0.2)
            held = self._held()
        if not held:
            return
        self.line["gpu_memory_held"] = [gpu._asdict() for gpu in held]
        reason = drain_reason(held, self._job.job)
        self.troubles.append(reason)
        if self._own["gpu_memory"] == "drain":
            argv = [
                self._shared["scontrol"],
                "update",
                f"nodename={self._job.node}",
                "state=drain",
                f"reason={reason}",
            ]
            drained = run(argv, self._own["nvidia_smi_timeout_s"])
            self.line["drained"] = drained.status == 0

    def _held(self) -> "List[HeldGpu]":
        """The job's GPUs that keep memory, less those that another job has as well.

        The job's own processes on them are killed by their driver's word, whatever the
        environment they started with.
        """
        gpus = self._query.gpus()
        if gpus is None:
            self.line["gpus_unknown"] = self._query.trouble
            return []
        found = records.of_node(self._job.node, self._shared["state_dir"])
        shared = {gpu for other in found if other.job != self._job.job for gpu in other.gpus}
        mine = {index: gpus[index] for index in self._job.gpus if index in gpus}
        full = {
            index: gpu
            for index, gpu in mine.items()
            if index not in shared and (gpu.reading.memory_mib or 0) >= self._own["gpu_memory_mib"]
        }
        if not full:
            return []
        apps = self._query.apps() or []
        self._kill_apps(apps, full)
        return held_gpus(full, apps)

    def _kill_apps(self, apps: "List[App]", full: "Dict[int, Gpu]") -> None:
        uuids = {gpu.uuid for gpu in full.values()}
        if self._spared() or not self._own["orphans"]:
            return
        looked = [processes.look(app.pid, self._job.uid) for app in apps if app.uuid in uuids]
        mine = [process for process in looked if process is not None]
        other = self._spoken_of(mine)
        victims = [p for p in mine if p.held not in other and p.job not in other]
        killed = processes.kill(victims, self._own["kill_grace_s"])
        if killed:
            self.line["killed_on_gpus"] = self.line.get("killed_on_gpus", 0) + len(killed)

    def _shm(self) -> None:
        if not self._own["shm"] or self._spared():
            return
        swept: "Optional[shm.Swept]" = None
        if not self._others(processes.all_processes(self._job.uid)):  # by now: GPUs took a while
            swept = shm.sweep(
                self._job.uid,
                self._began_s,
                self._began + self._own["limit_s"] * 0.7,
                alone=lambda: not self._recorded_others(),
            )
        if swept is None:
            self.line["shm_left"] = "the user has another job on this machine"
            return
        if swept.trouble:
            self.troubles.append(swept.trouble)
        if swept.files or swept.in_use:
            self.line["shm"] = {k: v for k, v in swept._asdict().items() if k != "trouble"}

    def _dcgm(self) -> None:
        setting = self._own["dcgm_mapping_dir"]
        if setting is not None:
            dcgm.remove(dcgm.directory(setting, self._job.node), self._job.job)

    def _usage(self) -> None:
        usage = summary.usage(self._job, self._shared["state_dir"])
        if usage is not None:
            self.line["usage"] = usage

    def _report_use(self) -> None:
        folder, usage = self._own["usage_dir"], self.line.get("usage")
        if folder is not None and usage is not None:
            use_report.report(folder, self._seen, usage, time.time())

    def _record(self) -> None:
        records.remove(self._job.node, self._job.job, self._shared["state_dir"])

    def _log(self) -> None:
        append(os.path.join(self._shared["log_dir"], LOG), self.line)


def held_gpus(full: "Dict[int, Gpu]", apps: "List[App]") -> "List[HeldGpu]":
    """Return what to say of GPUs that keep memory: how much, and which processes hold it."""
    return [
        HeldGpu(
            index,
            int(gpu.reading.memory_mib or 0),
            tuple(sorted(app.pid for app in apps if app.uuid == gpu.uuid)),
        )
        for index, gpu in sorted(full.items())
    ]


def drain_reason(held: "List[HeldGpu]", job: int) -> str:
    """Return why the node is not fit for jobs, in at most 120 characters."""
    parts = []
    for gpu in held:
        pids = " ".join(map(str, gpu.pids[:3]))
        holder = f"by process {pids}" if pids else "by no process"
        parts.append(f"GPU {gpu.gpu} holds {gpu.memory_mib} MiB ({holder})")
    return f"{NAME}: after job {job} {', '.join(parts)}"[:_REASON_CHARS]


def append(file: str, line: "Dict[str, Any]") -> None:
    """Add one line of JSON in one write, so that several epilogs do not mix.

    Raises:
        OSError: it cannot be written.
    """
    os.makedirs(os.path.dirname(file), mode=0o755, exist_ok=True)
    data = (json.dumps(line, sort_keys=False) + "\n").encode()
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def main(environ: "Dict[str, str]", file: str = config.PATH) -> int:
    """Run as Slurm's epilog with its environment; always 0, since a node is not at fault here."""
    try:
        shared, own, problems = config.load("epilog", SCHEMA, file)
        for problem in problems:
            tell(NAME, problem)
        job = records.from_environment(environ, time.time())
        if not job.user:
            job = job._replace(user=pwd.getpwuid(job.uid).pw_name)
    except (OSError, ValueError, KeyError) as error:
        tell(NAME, f"nothing is done: {error}")
        return 0
    epilog = Epilog(job, config.of_node(shared, job.node), own)

    def work() -> None:
        epilog.run(environ)
        for trouble in epilog.troubles:
            print(f"job {job.job}: {trouble}", file=sys.stderr)

    limited(NAME, work, own["limit_s"])
    return 0
