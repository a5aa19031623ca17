"""Compares a sweep with what the daemon already knows, and reports only the difference."""

from __future__ import annotations

from collections.abc import Mapping

from federator.agent.base import Sweep
from federator.model.partition import PartitionSummary
from federator.model.site import AttemptReport, Capacity, SiteJobState
from federator.model.site_message import Report, Revocation
from federator.model.window import SiteWindow
from federator.model.workload import AttemptId

MOST_PROBLEMS = 20  # of one report, each cut to 300 characters


class ReportDiff:
    """The last report that was sent over this channel, to compare the next sweep with."""

    def __init__(self) -> None:
        self._attempts: Mapping[AttemptId, AttemptReport] | None = None  # None: tell all
        self._capacity: Capacity | None = None
        self._partitions: tuple[PartitionSummary, ...] = ()
        self._problems: tuple[str, ...] = ()
        self._freed = 0
        self._windows: tuple[SiteWindow, ...] = ()
        self._revoked: tuple[Revocation, ...] = ()

    def reset(self) -> None:
        """The next report is complete."""
        self._attempts = None

    def next_report(
        self,
        known: Mapping[AttemptId, AttemptReport],
        accepted: Mapping[AttemptId, tuple[str, int]],
        capacity: Capacity,
        partitions: tuple[PartitionSummary, ...],
        freed: int,
        sweep: Sweep,
    ) -> Report | None:
        """The report to send of a sweep; None when nothing is new.

        Args:
            known: attempts that the site has.
            accepted: user and job id of those that it has accepted while the sweep was made.
            capacity: of the site.
            partitions: summed up.
            freed: as of ``Report``.
            sweep: all this is from it.
        """
        reported = self._attempts
        fresh = [r for a, r in known.items() if reported is None or reported.get(a) != r]
        if reported is None:  # a complete report must not miss what was accepted as it was made
            fresh += [_pending(a, *of) for a, of in accepted.items() if a not in known]
        gone = [a for a, r in (reported or {}).items() if a not in known and not r.state.ended]
        new_capacity = None
        if sweep.nodes_complete and (capacity != self._capacity or reported is None):
            new_capacity = capacity
        changed = partitions != self._partitions or reported is None
        windows = self._new_windows(sweep, reported is None)
        revoked = self._new_revoked(sweep, reported is None)
        has_freed = freed != self._freed
        new_problems = sweep.problems != self._problems
        self._problems, self._freed = sweep.problems, freed
        self._attempts, self._capacity, self._partitions = dict(known), capacity, partitions
        something = fresh or gone or new_capacity is not None or changed or new_problems
        parts = windows is not None or revoked is not None
        if reported is not None and not (something or parts or has_freed):
            return None
        return Report(
            attempts=tuple(fresh),
            gone=tuple(gone),
            complete=reported is None,
            capacity=new_capacity,
            partitions=partitions if changed else (),
            problems=tuple(p[:300] for p in sweep.problems[:MOST_PROBLEMS]),
            freed=freed,
            windows=windows,
            revoked=revoked,
        )

    def _new_revoked(self, sweep: Sweep, first: bool) -> tuple[Revocation, ...] | None:
        known, self._revoked = self._revoked, sweep.revoked
        return sweep.revoked if (first and sweep.revoked) or sweep.revoked != known else None

    def _new_windows(self, sweep: Sweep, first: bool) -> tuple[SiteWindow, ...] | None:
        known, self._windows = self._windows, sweep.windows
        return sweep.windows if first or sweep.windows != known else None


def _pending(attempt: AttemptId, user: str, job_id: int) -> AttemptReport:
    return AttemptReport(attempt=attempt, user=user, site_job_id=job_id, state=SiteJobState.PENDING)
