"""The work of fed-prolog: decides whether a job may start on this node.

First the job's record is made, then its lease is looked at, then the node's health. A job without
its lease is ended; a node with a fault is drained with the reason, and Slurm puts the job back
into its queue. Whatever fails in here itself lets the job start: a gate that is broken must not
close a cluster.
"""

import json
import os
import sys
import time
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from fednode import arrival, config, findings, kernel, lease, manifests, records, scene
from fednode.findings import Finding
from fednode.limited import limited, tell
from fednode.orders import Orders, reason, with_node, with_note
from fednode.smi import Smi

NAME = "fed-prolog"
PASS, DRAIN = 0, 100  # exit statuses; the wrapper in prolog.d makes a failure of the second
LIMIT_S = 8.0  # Slurm gives up on a batch job whose start takes BatchStartTimeout=10
_CHECKS_S = 5.5  # of these for everything that is asked; the rest is for telling Slurm
_AGAIN_S = 0.5
_ORDER_S = 2.5  # of the limit, for what is begun at the end of it
SCHEMA: "config.Schema" = {
    "enabled": config.Key(True, config.flag),
    "partitions": config.Key(["fed"], config.texts),
    "limit_s": config.Key(LIMIT_S, config.number(1, 9)),
    "nvidia_smi_timeout_s": config.Key(5, config.number(0.1, 8)),
    "on_hang": config.Key("fail", config.one_of("fail", "warn")),
    "busy_again_s": config.Key(1, config.number(0, 3)),
    "checks_dir": config.Key(manifests.OWN, config.path),
    "shipped_checks_dir": config.Key(manifests.SHIPPED, config.path),
    "expected": config.Key(scene.EXPECTED, config.path),
    "lease": {
        "dir": config.Key(None, config.optional_path),
        "on_error": config.Key("allow", config.one_of("allow", "refuse")),
        "timeout_s": config.Key(2, config.number(0.1, 5)),
    },
}


class Gate:
    """One job's start on one node; ``log`` says what was found and done."""

    def __init__(
        self,
        environ: "Dict[str, str]",
        shared: "Dict[str, Any]",
        own: "Dict[str, Any]",
        orders: "Optional[Orders]" = None,
        problems: "Sequence[str]" = (),
    ) -> None:
        self._job = records.from_environment(environ, time.time())
        self._cluster = environ.get("SLURM_CLUSTER_NAME", "")
        nodes = environ.get("SLURM_JOB_NUM_NODES", "1")
        self._multi_node = nodes.isdigit() and int(nodes) > 1
        self._shared = config.of_node(shared, self._job.node)
        self._own = own
        self._orders = Orders(self._shared) if orders is None else orders
        self._end = time.monotonic() + own["limit_s"] - _ORDER_S
        self._until = time.monotonic() + min(_CHECKS_S, own["limit_s"] * 0.7)
        self._problems = problems  # with node.json
        self.log: "List[str]" = list(problems)

    @property
    def _leader(self) -> str:
        return str(self._job.het_job or self._job.job)

    def run(self) -> int:
        """Return ``PASS`` or ``DRAIN``; a job that must not start at all has been ended."""
        status = PASS
        refused = self._refusal()
        if refused:
            self._end_job(refused)
        elif self._is_gated():
            status = self._healthy()
        self.log += self._orders.troubles
        return status

    def _is_gated(self) -> bool:
        named = self._own["partitions"]
        return self._own["enabled"] and ("*" in named or self._job.partition in named)

    def _end_job(self, word: str) -> None:
        """End the job, again and again while there is time, with the reason in its comment.

        Slurm's controller may be too busy to answer at first. If it does not answer at all the job
        starts: failing the prolog would take a healthy node out of service instead.
        """
        while True:
            # An array's task that cannot be told from its array is not ended: others would be too.
            address = self._address()
            if address:
                self._orders.comment(address, with_note(self._job.comment, word))
                if self._orders.cancel(address):
                    return
            if time.monotonic() + _AGAIN_S > self._end:
                self.log.append(f"job {self._job.job} could not be ended: it starts")
                return
            time.sleep(_AGAIN_S)

    def _address(self) -> str:
        """Return what Slurm's commands call the job, all of a het job; "" if that is not known."""
        if self._job.het_job:
            return str(self._job.het_job)
        now = self._orders.job(self._job.job)
        return now.address if now is not None else ""

    def _refusal(self) -> str:
        """Return why the job must not start as what it says it is, in one word; "" if it may."""
        attempt, settings = lease.attempt_of(self._job.comment), self._own["lease"]
        if attempt is None or settings["dir"] is None:
            return ""
        claim = lease.Claim(attempt, self._job.user, self._cluster, self._leader, self._job.node)
        verdict = lease.check_in_time(settings["dir"], claim, settings["timeout_s"])
        if verdict.ok is not True:
            self.log.append(f"job {self._job.job}, attempt {attempt}: {verdict.why}")
        if verdict.ok is None:
            return verdict.word if settings["on_error"] == "refuse" else ""
        return "" if verdict.ok else verdict.word

    def _healthy(self) -> int:
        """Make the checks and do what their manifests say."""
        chosen, problems = manifests.load(self._own["shipped_checks_dir"], self._own["checks_dir"])
        expected, unusable = scene.read_expected(
            self._own["expected"].replace("%n", self._job.node)
        )
        self.log += problems + unusable
        if problems or unusable or self._problems:
            # What the site said of paths, thresholds and actions may be among what was not read.
            chosen = [manifest._replace(action=manifests.WARN) for manifest in chosen]
            self.log.append("the configuration is not sound: no check does more than warn")
        began = time.monotonic()
        found = self._look(chosen, expected)
        again_s, took_s = self._own["busy_again_s"], time.monotonic() - began
        if again_s and findings.busy_again(found):
            if time.monotonic() + again_s + took_s < self._until:
                time.sleep(again_s)
                found = self._look(chosen, expected)
            else:  # the job before may still be leaving
                found = findings.doubted(found, "there was no time for a second look")
        for finding in found:
            if finding.verdict != findings.OK:
                said = f"{finding.manifest.id}: {finding.verdict} ({finding.manifest.action})"
                self.log.append(f"job {self._job.job}: {said}: {finding.detail}")
        return self._act(found)

    def _look(
        self, chosen: "List[manifests.Manifest]", expected: scene.Expected
    ) -> "List[Finding]":
        whole_s = self._own["nvidia_smi_timeout_s"]
        left_s = max(0.2, self._until - time.monotonic())
        here = scene.Scene(
            Smi(
                self._shared["nvidia_smi"],
                min(whole_s, left_s),
                {"SLURMD_NODENAME": self._job.node},
                whole_time=whole_s <= left_s,  # else a slow spool took of it, or the first look
            ),
            self._shared,
            scene.View(self._job.node, self._job.gpus, self._multi_node, self._of_others()),
            expected,
            seen_us(self._shared["state_dir"], self._job.node),
        )
        return findings.look(chosen, here, self._until, self._own["on_hang"] == "fail")

    def _of_others(self) -> "FrozenSet[int]":
        """Return the GPUs that other jobs of this node have: a job may share its GPUs with them."""
        jobs = records.of_node(self._job.node, self._shared["state_dir"])
        return frozenset(gpu for job in jobs if job.job != self._job.job for gpu in job.gpus)

    def _act(self, found: "List[Finding]") -> int:
        fault = findings.worst(found, (manifests.DRAIN,))
        if fault is not None:
            return self._drain(fault)
        fault = findings.worst(found, (manifests.QUARANTINE,))
        return PASS if fault is None else self._quarantine(fault)

    def _drain(self, fault: Finding) -> int:
        self._orders.drain(self._job.node, reason(fault.manifest.id, fault.detail))
        return (
            DRAIN  # if Slurm could not be told why, the failing prolog drains the node all the same
        )

    def _quarantine(self, fault: Finding) -> int:
        """Mark the node as one for jobs of one node; send a job of several nodes elsewhere.

        A job of Slurm's own users that cannot be sent elsewhere (not to be requeued, pinned to
        this node, part of a het job) can only be kept away by draining the node.
        """
        if not self._orders.mark(self._job.node, single=True):
            return self._drain(fault)
        if not self._multi_node:
            return PASS
        federated = lease.attempt_of(self._job.comment) is not None
        if federated:  # the federation places its jobs itself, and keeps off marked nodes
            address = self._address()
            well = bool(address) and self._orders.requeue(address)
            return PASS if well else self._drain(fault)
        now = None if self._job.het_job else self._orders.job(self._job.job)
        if now is None or now.wanted_nodes or not self._orders.requeue(now.address):
            return self._drain(fault)
        self._orders.exclude(now.address, with_node(now.excluded_nodes, self._job.node))
        return PASS


def seen_us(state_dir: str, node: str) -> int:
    """Return until when an admin has seen to the Xid reports, in microseconds since boot."""
    try:
        return kernel.seen_until_us(kernel.seen_file(state_dir, node), records.boot_id())
    except OSError:
        return 0


def work(environ: "Dict[str, str]", file: str = config.PATH) -> "Tuple[int, List[str]]":
    """Do all of it; return the exit status and what is to be logged."""
    log = arrival.note(environ, file)
    shared, own, problems = config.load("gate", SCHEMA, file)
    gate = Gate(environ, shared, own, problems=problems)
    gate.log += log
    return gate.run(), gate.log


class _VerdictPipe(NamedTuple):
    """The pipe by which the child's verdict comes."""

    reader: int
    writer: int


def main(environ: "Dict[str, str]", file: str = config.PATH) -> int:
    """Do the work in a child that may be left behind; no word of it in time is ``PASS``."""
    pipe = _VerdictPipe(*os.pipe())

    def child() -> None:
        os.close(pipe.reader)
        status, log = work(environ, file)
        os.write(pipe.writer, json.dumps(status).encode())
        for line in log:
            print(line, file=sys.stderr)

    try:
        limit_s = config.load("gate", SCHEMA, file)[1]["limit_s"]
        limited(NAME, child, limit_s)
        os.close(pipe.writer)
        os.set_blocking(pipe.reader, False)
        said = os.read(pipe.reader, 16)
    except Exception as error:
        tell(NAME, f"let the job start after an error of its own: {error!r}")
        return PASS
    return DRAIN if said == str(DRAIN).encode() else PASS
