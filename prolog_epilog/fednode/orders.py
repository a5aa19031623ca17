"""Passes the gate's verdict to Slurm: drain, requeue, cancel, and the single-node mark.

All through scontrol and scancel by absolute path, each with a time limit, as root on the node.
"""

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from fednode.run import Ran, run

REASON_CHARS = 120
SINGLE_NODE = "fed_single_node"  # a node's feature: only jobs of one node are to start there
_TIMEOUT_S = 2.0
_FORMAT = "%A|%F|%K|%n|%x"
_JOB = re.compile(
    r"(?P<job>[0-9]+)\|(?P<array>[0-9]+)\|(?P<task>[^|]*)\|(?P<wanted>[^|]*)\|(?P<excluded>[^|]*)"
)
_FIELD = re.compile(r"([A-Za-z]+)=(\S*)")


def reason(check: str, detail: str) -> str:
    """Return the drain reason: printable ASCII, one line, at most ``REASON_CHARS``."""
    text = " ".join(f"fed-gate: {check}: {detail}".split())
    plain = "".join(c if " " <= c <= "~" else "?" for c in text if c not in "\"'\\")
    return plain if len(plain) <= REASON_CHARS else plain[: REASON_CHARS - 3] + "..."


class JobNow(NamedTuple):
    """A job as Slurm has it.

    ``address`` is what Slurm's commands are to be told: of the tasks of an array one has the id of
    the whole array, and an order for that id would be one for all of them.
    """

    address: str
    wanted_nodes: str  # host list, "" where none
    excluded_nodes: str


class Orders:
    """Speaks to Slurm; what fails is in ``troubles``, and told by the answer."""

    def __init__(
        self,
        shared: "Dict[str, Any]",
        ask: "Callable[..., Ran]" = run,
    ) -> None:
        self._scontrol = shared["scontrol"]
        self._scancel = shared["scancel"]
        self._squeue = shared["squeue"]
        self._ask = ask
        self.troubles: "List[str]" = []

    def drain(self, node: str, why: str) -> bool:
        """Take ``node`` out of service."""
        return self._scontrol_does("update", f"nodename={node}", "state=drain", f"reason={why}")

    def cancel(self, job: str) -> bool:
        """End a job before it has started."""
        return self._does([self._scancel, job])

    def requeue(self, job: str) -> bool:
        """Put a job back into Slurm's queue; refused for jobs that are not to be requeued."""
        return self._scontrol_does("requeue", job)

    def exclude(self, job: str, nodes: str) -> bool:
        """Let a waiting job start on other nodes than these only."""
        return self._scontrol_does("update", f"jobid={job}", f"excnodelist={nodes}")

    def comment(self, job: str, text: str) -> bool:
        """Replace a job's comment."""
        return self._scontrol_does("update", f"jobid={job}", f"comment={text}")

    def job(self, job: int) -> "Optional[JobNow]":
        """Return what Slurm says of a job; None where it does not plainly say it.

        None of the fields asked for is a text of the user's that could pass for others.
        """
        argv = [self._squeue, "--noheader", "--states=all", f"--jobs={job}", f"--format={_FORMAT}"]
        ran = self._ask(argv, _TIMEOUT_S)
        rows = [row for row in map(_JOB.fullmatch, ran.out.splitlines()) if row is not None]
        own = [row for row in rows if row["job"] == str(job)]
        if ran.status != 0 or len(own) != 1:
            self.troubles.append(f"Slurm does not say where job {job} is: {ran.err.strip()[:200]}")
            return None
        (found,) = own
        single = found["task"] == "N/A" and found["array"] == str(job)
        if not single and not found["task"].isdigit():
            self.troubles.append(f"Slurm does not say which task job {job} is")
            return None
        address = str(job) if single else f"{found['array']}_{found['task']}"
        nodes = [text if text != "(null)" else "" for text in (found["wanted"], found["excluded"])]
        return JobNow(address, *nodes)

    def mark(self, node: str, single: bool) -> bool:
        """Give ``node`` the feature ``SINGLE_NODE`` or take it away; tells whether it is so now."""
        shown = self._show("node", node)
        if "AvailableFeatures" not in shown:
            self.troubles.append(f"Slurm does not say which features {node} has")
            return False
        features = [f for f in shown["AvailableFeatures"].split(",") if f not in ("", "(null)")]
        if (SINGLE_NODE in features) is single:
            return True
        wanted = [f for f in features if f != SINGLE_NODE] + ([SINGLE_NODE] if single else [])
        active = shown.get("ActiveFeatures", "").split(",")
        now = [f for f in wanted if f in active or f == SINGLE_NODE]
        return self._scontrol_does(
            "update",
            f"nodename={node}",
            "availablefeatures=" + ",".join(wanted),
            "activefeatures=" + ",".join(now),
        )

    def _show(self, what: str, name: str) -> "Dict[str, str]":
        ran = self._ask([self._scontrol, "--oneliner", "show", what, name], _TIMEOUT_S)
        found: "Dict[str, str]" = {}
        if ran.status == 0:
            for key, value in _FIELD.findall(ran.out):
                found.setdefault(key, value)
        return found

    def _scontrol_does(self, *words: str) -> bool:
        return self._does([self._scontrol, *words])

    def _does(self, argv: "List[str]") -> bool:
        ran = self._ask(argv, _TIMEOUT_S)
        if ran.status != 0:
            words = (ran.err or ran.out).strip() or ran.trouble or f"status {ran.status}"
            self.troubles.append(f"{' '.join(argv)[:120]}: {words[:200]}")
        return ran.status == 0


def with_node(excluded: str, node: str) -> str:
    """Return Slurm's host list ``excluded`` with ``node`` added."""
    return f"{excluded},{node}" if excluded else node


def with_note(comment: str, word: str) -> str:
    """Return the comment of an attempt with ``fed-gate:<word>`` as its second word."""
    first, *others = comment.split()
    kept = [one for one in others if not one.startswith("fed-gate:")]
    return " ".join([first, f"fed-gate:{word}", *kept])
