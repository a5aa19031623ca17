"""Remembers from earlier sweeps why a site requeued or ended a job; one sweep does not show it.

Once a job waits again squeue names neither the nodes it had nor that it was preempted (22.05,
24.11 and 26.05 alike). Both were seen before: its nodes in a plan or an earlier sweep, and the
preemption for as long as the victim had its grace or was on its way out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from federator.model.site import AttemptReport, Node, SiteJobState
from federator.model.workload import AttemptId
from federator.sched.bid.free_capacity import SINGLE_NODE

MAX_WHY: Final = 300  # characters
_SINGLE: Final = "takes jobs of one node only"
_NODES_DID_IT: Final = (SiteJobState.NODE_FAIL, SiteJobState.BOOT_FAIL)
_OF_PROLOGS: Final = ("Prolog error", "fed-gate:")  # drain reasons: Slurm's, and our own gate's
PROLOG_TAKES_S: Final = 15.0  # at most; our own gate 8 s


class _Failed(NamedTuple):
    nodes: tuple[str, ...] = ()
    why: str = ""


class RequeueCauses:
    """Completes reports with what earlier sweeps showed; at first there were none.

    Args:
        planned: the nodes of an attempt that was ordered and has not been seen to run.
    """

    def __init__(self, planned: Callable[[AttemptId], tuple[str, ...]]) -> None:
        self._planned = planned
        self._had: dict[AttemptId, tuple[str, ...]] = {}
        self._preempted: set[AttemptId] = set()
        self._failed: dict[AttemptId, _Failed] = {}  # of those that were put back

    def complete(
        self, reports: Mapping[AttemptId, AttemptReport], nodes: Iterable[Node]
    ) -> dict[AttemptId, AttemptReport]:
        """The same reports, with ``preempted``, ``failed_nodes`` and ``failed_why``.

        Args:
            reports: of all genuine attempts at the site.
            nodes: of the same sweep, read after the jobs.
        """
        nodes = list(nodes)
        broken = {node.name: node.drain_reason for node in nodes if not node.state.takes_jobs}
        single = {node.name: _SINGLE for node in nodes if SINGLE_NODE in node.features}
        self._had = {a: self._nodes_of(report) for a, report in reports.items()}
        self._preempted = {a for a, report in reports.items() if self._is_preempted(report)}
        self._failed = {
            a: failed
            for a, failed in self._failed.items()
            if a in reports and reports[a].state is not SiteJobState.RUNNING  # again, elsewhere
        }
        return {a: self._completed(report, broken, single) for a, report in reports.items()}

    def _nodes_of(self, report: AttemptReport) -> tuple[str, ...]:
        """All it was pinned to: of a job on its way out, squeue names only those not yet free.

        The first sweep that shows a job may show it so: its plan knows the others.
        """
        before = self._had.get(report.attempt) or self._planned(report.attempt)
        return tuple(dict.fromkeys((*before, *report.nodes)))

    def _is_preempted(self, report: AttemptReport) -> bool:
        waits = report.state is SiteJobState.PENDING
        return report.preempted or (waits and report.attempt in self._preempted)

    def _completed(
        self, report: AttemptReport, broken: Mapping[str, str], single: Mapping[str, str]
    ) -> AttemptReport:
        """Args: the nodes that take no jobs, those that take jobs of one node only, and why."""
        failed = _Failed()
        put_back = report.state is SiteJobState.PENDING and report.restarts > 0
        if put_back or report.state in _NODES_DID_IT:
            had = self._had[report.attempt]
            unfit = {**single, **broken} if len(had) > 1 else broken
            names = tuple(name for name in had if name in unfit)
            if not names and report.state in _NODES_DID_IT:
                names = had
            failed = _Failed(names, _why(names, unfit))
        if report.state is SiteJobState.CANCELLED:  # what was put back was taken back
            failed = self._failed.get(report.attempt) or self._refused(report, broken)
        elif _may_never_have_begun(report):
            failed = self._refused(report, broken)
        if failed.nodes:
            self._failed[report.attempt] = failed
        preempted = report.attempt in self._preempted
        if preempted == report.preempted and not failed.nodes:
            return report
        return replace(
            report, preempted=preempted, failed_nodes=failed.nodes, failed_why=failed.why
        )

    def _refused(self, report: AttemptReport, broken: Mapping[str, str]) -> _Failed:
        """Slurm ends what a prolog would not let start, if it may not be put back, or was taken."""
        names = tuple(
            name
            for name in self._had[report.attempt]
            if broken.get(name, "").startswith(_OF_PROLOGS)
        )
        return _Failed(names, _why(names, broken))


def _may_never_have_begun(report: AttemptReport) -> bool:
    """A batch host whose prolog fails reports exit status 1, if it is quicker than the cancel.

    The job ends FAILED then, as if its script had said so (seen on 22.05, in 4 of 5 such jobs on a
    busy machine). Its node, drained by a prolog, tells the difference.
    """
    failed = report.state is SiteJobState.FAILED and (report.exit_code, report.signal) == (1, 0)
    return failed and report.ended_at_s - report.started_at_s <= PROLOG_TAKES_S


def _why(names: Iterable[str], broken: Mapping[str, str]) -> str:
    """The site's texts about these nodes; equal texts once."""
    said: dict[str, list[str]] = {}
    for name in names:
        if words := broken.get(name):
            said.setdefault(words, []).append(name)
    text = "; ".join(f"{','.join(of)}: {words}" for words, of in said.items())
    return text[:MAX_WHY]
