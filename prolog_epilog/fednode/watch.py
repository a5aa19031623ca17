"""The work of fed-watch, once a minute: finds jobs that hold GPUs without using them.

Looks at the GPUs, brings each job's story up to date (watching.py decides), and only for a job that
is to be warned or reclaimed asks Slurm about it. What it knows survives in watch.json; two never
run at once.
"""

import os
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from fednode import config, dcgm_use, records, summary, watch_text, watching
from fednode.epilog import append
from fednode.gpu_use import Gpu, GpuQuery
from fednode.limited import limited, tell
from fednode.locks import locked
from fednode.slurm_jobs import JobNow, SlurmJobs, is_federated, with_note
from fednode.swings import mean_busy
from fednode.watching import Finding, Policy, Quiet, Reading, Story

NAME = "fed-watch"
LOG = "watch.jsonl"
_DAY_S = 86_400
_TRY_AGAIN_LOOKS = 10
_FAREWELL_S = 2.0  # slurmctld says that it took a message before the job's node has it
_STALE_S = 6 * 3600.0  # a job on the node for so long is asked about as often
SCHEMA = {
    "enabled": config.Key(True, config.flag),
    "partitions": config.Key([], config.texts),
    "interval_s": config.Key(60, config.number(0.1, 3600)),
    "looks": config.Key(3, config.number(1, 20)),
    "look_gap_s": config.Key(2, config.number(0, 60)),
    "zombie_s": config.Key(600, config.number(1, 30 * _DAY_S)),
    "idle_s": config.Key(7200, config.number(1, 30 * _DAY_S)),
    "busy_frac": config.Key(0.05, config.number(0.001, 1)),
    "held_mib": config.Key(1024, config.number(1, 1 << 24)),
    "warn_again_s": config.Key(900, config.number(1, 30 * _DAY_S)),
    "reclaim": config.Key("none", config.one_of("none", "requeue", "cancel")),
    "reclaim_after_s": config.Key(1800, config.number(1, 30 * _DAY_S)),
    "opt_out": config.Key(True, config.flag),
    "interactive": config.Key("leave", config.one_of("leave", "warn", "reclaim")),
    "multi_node": config.Key("warn", config.one_of("leave", "warn", "reclaim")),
    "nvidia_smi_timeout_s": config.Key(10, config.number(0.1, 60)),
    "gpu_use": config.Key(
        dcgm_use.AUTO, config.one_of(dcgm_use.AUTO, dcgm_use.NVIDIA_SMI, dcgm_use.DCGM)
    ),
    "dcgm_port": config.Key(9400, config.number(1, 65535)),
    "dcgm_timeout_s": config.Key(2, config.number(0.1, 60)),
    "limit_s": config.Key(45, config.number(1, 3600)),
}  # type: config.Schema


def policy_of(own: "Dict[str, Any]") -> Policy:
    """Return what node.json asks for; three looks may be missed."""
    return Policy(
        zombie_s=own["zombie_s"],
        idle_s=own["idle_s"],
        busy_frac=own["busy_frac"],
        held_mib=own["held_mib"],
        max_gap_s=3 * own["interval_s"],
        warn_again_s=own["warn_again_s"],
        reclaim_after_s=own["reclaim_after_s"],
        reclaim=own["reclaim"] != "none",
    )


class Watched(NamedTuple):
    """The watch's knowledge of one job."""

    started_at_s: float  # of its record: a job that was put back starts anew
    tally: "Dict[str, Any]"
    quiet: "Optional[Quiet]" = None
    story: "Optional[Story]" = None
    not_before_s: float = 0.0  # what could not be done is not tried again before
    asked_s: float = 0.0  # when Slurm last said that it is there, or it was first seen


class Due(NamedTuple):
    """The step that one job is due now."""

    record: records.JobRecord
    finding: Finding
    step: str


def most_of(looks: "List[Dict[int, Gpu]]") -> "Dict[int, Reading]":
    """Return for each GPU the most that any look saw of it; what one look does not know, others do.

    A GPU that computes in bursts is busy if one look of several meets a burst.
    """
    found = {}  # type: Dict[int, Reading]
    for gpus in looks:
        for index, gpu in gpus.items():
            before = found.get(index, gpu.reading)
            pairs = zip(before, gpu.reading)
            both = [max((v for v in pair if v is not None), default=None) for pair in pairs]
            found[index] = Reading(*both)
    return found


def noted(
    known: "Dict[int, Watched]",
    found: "List[records.JobRecord]",
    readings: "Dict[int, Reading]",
    policy: Policy,
    at_s: float,
    looks: "Sequence[Dict[int, Gpu]]" = (),
) -> "Tuple[Dict[int, Watched], List[Due]]":
    """Return what is known after a look, by job id, and what is due. Pure.

    Args:
        found: the jobs with GPUs that are on the node now; all others are forgotten.
        readings: by GPU index; empty where nvidia-smi had no answer.
        at_s: by the boot clock.
        looks: of which ``readings`` are the most, in their order.
    """
    after = {}  # type: Dict[int, Watched]
    due = []  # type: List[Due]
    for record in found:
        before = _known_of(record, known, at_s)
        mine = [readings.get(gpu) for gpu in record.gpus]
        now_doing = watching.doing(mine, policy)
        if any(mine):
            swings = [mean_busy([_reading(gpus, gpu) for gpu in record.gpus]) for gpus in looks]
            before = before._replace(tally=summary.added(before.tally, mine, swings))
        if now_doing is None:  # nothing is decided without data
            after[record.job] = before
            continue
        quiet = watching.extended(before.quiet, now_doing, at_s, policy)
        finding = watching.judge(quiet, policy)
        step = watching.step(finding, before.story, policy)
        story = watching.after_notice(before.story, finding, watching.NOTHING)
        after[record.job] = before._replace(quiet=quiet, story=story)
        if finding is not None and step != watching.NOTHING and at_s >= before.not_before_s:
            due.append(Due(record, finding, step))
    return after, due


def _reading(gpus: "Dict[int, Gpu]", index: int) -> "Optional[Reading]":
    return gpus[index].reading if index in gpus else None


def _known_of(record: records.JobRecord, known: "Dict[int, Watched]", at_s: float) -> Watched:
    before = known.get(record.job)
    if before is None or before.started_at_s != record.started_at_s:
        return Watched(record.started_at_s, {}, asked_s=at_s)
    return before


class Watch:
    """One run of the watch on one node."""

    def __init__(self, node: str, shared: "Dict[str, Any]", own: "Dict[str, Any]") -> None:
        self._node = node
        self._shared = shared
        self._own = own
        self._policy = policy_of(own)
        self._slurm = SlurmJobs(shared)
        self._file = summary.watch_file(shared["state_dir"], node)
        self._dcgm_trouble = ""  # as it was logged last

    def run(self) -> None:
        """Look, write down, act, write down."""
        here = records.of_node(self._node, self._shared["state_dir"])
        if not here and not os.path.exists(self._file):
            return
        os.makedirs(os.path.dirname(self._file), mode=0o755, exist_ok=True)
        with locked(os.path.join(os.path.dirname(self._file), ".watch.lock")):
            found = [record for record in here if self._of(record)]
            looks = self._look() if found else []
            now_s = boot_clock_s()
            before = self._read()
            known, due = noted(before, found, self._most(looks), self._policy, now_s, looks)
            for record in here:  # of all others just how long they are here
                known.setdefault(record.job, _known_of(record, before, now_s))
            self._write(known)
            for one in due:
                known[one.record.job] = self._after(known[one.record.job], one, self._act(one))
                # At once: who has been told is not told again, though the next job's turn hangs.
                self._write(known)
            self._forget(known, now_s)

    def _forget(self, known: "Dict[int, Watched]", now_s: float) -> None:
        """Take away the record of a job whose epilog never did, once Slurm knows it is over."""
        for job, watched in sorted(known.items()):
            if now_s - watched.asked_s < _STALE_S:
                continue
            known[job] = watched._replace(asked_s=now_s)
            self._write(known)
            if self._slurm.is_gone(job):
                records.remove(self._node, job, self._shared["state_dir"])
            elif self._slurm.trouble:
                return  # the next answer may be waited for as long

    def _after(self, watched: Watched, due: Due, done: str) -> Watched:
        """Job and Slurm may be asked again in a while, not each time."""
        story = watching.after_notice(watched.story, due.finding, done)
        wait_s = _TRY_AGAIN_LOOKS * self._own["interval_s"] if done == watching.NOTHING else 0.0
        return watched._replace(story=story, not_before_s=due.finding.at_s + wait_s)

    def _of(self, record: records.JobRecord) -> bool:
        partitions = self._own["partitions"]
        return bool(record.gpus) and (not partitions or record.partition in partitions)

    def _look(self) -> "List[Dict[int, Gpu]]":
        query = GpuQuery(self._shared["nvidia_smi"], self._own["nvidia_smi_timeout_s"], self._node)
        looks = []  # type: List[Dict[int, Gpu]]
        for number in range(int(self._own["looks"])):
            if number:
                time.sleep(self._own["look_gap_s"])
            gpus = query.gpus()
            if gpus is None:
                print(query.trouble, file=sys.stderr)
                break  # it may hang for as long again
            looks.append(gpus)
        return looks

    def _most(self, looks: "List[Dict[int, Gpu]]") -> "Dict[int, Reading]":
        """Return the most of the looks, with what DCGM says: a mean, so once is enough."""
        readings, source = most_of(looks), self._own["gpu_use"]
        if source == dcgm_use.NVIDIA_SMI or not readings:
            return readings
        exporter = dcgm_use.Exporter(int(self._own["dcgm_port"]), self._own["dcgm_timeout_s"])
        seen = exporter.gpus()
        if exporter.trouble != self._dcgm_trouble:  # once, not each minute
            meant = "nvidia-smi tells" if source == dcgm_use.AUTO else "nobody knows"
            instead = f"{exporter.trouble}; {meant} how busy GPUs are"
            print(f"dcgm-exporter: {instead if seen is None else 'answers'}", file=sys.stderr)
            self._dcgm_trouble = exporter.trouble
        return dcgm_use.with_seen(readings, looks, seen, source)

    # ---- what is known ----

    def _read(self) -> "Dict[int, Watched]":
        try:
            state = records.read_json(self._file)
            if state["boot"] != records.boot_id():
                return {}
            self._dcgm_trouble = str(state.get("dcgm", ""))
            return {int(job): _watched(known) for job, known in state["jobs"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            print(f"{self._file}: {error}; the watch begins anew", file=sys.stderr)
            return {}

    def _write(self, known: "Dict[int, Watched]") -> None:
        jobs = {str(job): watched._asdict() for job, watched in known.items()}
        state = {"boot": records.boot_id(), "dcgm": self._dcgm_trouble, "jobs": jobs}
        records.replace_json(self._file, state)

    # ---- what is done ----

    def _act(self, due: Due) -> str:
        """Do what is due, if the job is still one to which it may be done; return what was."""
        now = self._slurm.look(due.record.job)
        allowed = self._allowed(due, now)
        if now is None or allowed is None:
            return watching.NOTHING
        step = due.step
        if step == watching.RECLAIM and allowed == "warn":
            return watching.NOTHING
        if step == watching.RECLAIM:
            done = self._reclaim(due, now)
        else:
            done = self._slurm.notify(due.record.job, self._message(due, allowed))
        self._log(due, step if step != watching.RECLAIM else self._own["reclaim"], done)
        return step if done else watching.NOTHING

    def _allowed(self, due: Due, now: "Optional[JobNow]") -> "Optional[str]":
        """Return "warn" or "reclaim"; None: the job is to be left alone."""
        if now is None or not now.running or now.user != due.record.user:
            return None
        if self._own["opt_out"] and watch_text.OPT_OUT in now.comment.split():
            return None
        allowed = {"reclaim"}
        if not now.batch:
            allowed.add(self._own["interactive"])
        if now.nodes > 1 or now.het:
            allowed.add(self._own["multi_node"])
        if "leave" in allowed:
            return None
        return "warn" if "warn" in allowed or self._own["reclaim"] == "none" else "reclaim"

    def _message(self, due: Due, allowed: str) -> str:
        left_s = self._own["reclaim_after_s"]
        if due.step == watching.WARN_AGAIN:
            left_s = max(0, left_s - self._own["warn_again_s"])
        action = self._own["reclaim"] if allowed == "reclaim" else "none"
        return watch_text.warning(due.record, due.finding, action, left_s, self._own["opt_out"])

    def _reclaim(self, due: Due, now: JobNow) -> bool:
        job = due.record.job
        name = str(due.record.het_job) if due.record.het_job else now.name
        farewell = watch_text.farewell(due.record, due.finding, self._own["reclaim"])
        if self._slurm.notify(job, farewell):
            time.sleep(_FAREWELL_S)
        if is_federated(now.comment):
            note = watch_text.note(due.finding)
            if not self._slurm.comment(now.name, with_note(now.comment, note)):
                print(f"job {job}: {self._slurm.trouble}", file=sys.stderr)
        if self._own["reclaim"] == "requeue":
            return self._slurm.requeue(name)
        return self._slurm.cancel(name)

    def _log(self, due: Due, step: str, done: bool) -> None:
        line = {
            "at_s": round(time.time(), 3),
            "node": self._node,
            "job": due.record.job,
            "user": due.record.user,
            "gpus": list(due.record.gpus),
            "condition": due.finding.condition,
            "for_s": round(due.finding.at_s - due.finding.since_s),
            "step": step,
            "done": done,
        }
        if not done:
            line["trouble"] = self._slurm.trouble
        try:
            append(os.path.join(self._shared["log_dir"], LOG), line)
        except OSError as error:  # what is done is done, and is to be remembered
            print(f"{LOG}: {error}: {line}", file=sys.stderr)


def _watched(known: "Dict[str, Any]") -> Watched:
    quiet, story = known["quiet"], known["story"]
    return Watched(
        started_at_s=known["started_at_s"],
        tally=dict(known["tally"]),
        quiet=None if quiet is None else Quiet(*quiet),
        story=None if story is None else Story(*story),
        not_before_s=known["not_before_s"],
        asked_s=known["asked_s"],
    )


def boot_clock_s() -> float:
    """Return seconds since boot, sleep included; no one can set this clock."""
    return time.clock_gettime(7)  # CLOCK_BOOTTIME, which Python names from 3.7 on


def main(environ: "Dict[str, str]", file: str = config.PATH) -> int:
    """Watch once; 0 unless it could not even begin. The node's name is Slurm's or the machine's."""
    try:
        shared, own, problems = config.load("watch", SCHEMA, file)
        for problem in problems:
            tell(NAME, problem)
        if not own["enabled"]:
            return 0
        node = records.node_name(environ)
        watch = Watch(node, config.of_node(shared, node), own)
    except (OSError, ValueError) as error:
        tell(NAME, f"nothing is done: {error}")
        return 1
    return 0 if limited(NAME, watch.run, own["limit_s"]) else 1
