"""Conditions that keep a workload out of the queue: who holds it, and what it depends on.

A workload that waits for one of them is ``INELIGIBLE``: no site is asked about it, and it gains no
age. ``sched.state.eligibility`` says which of them it waits for.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from federator.model.workload import WorkloadId


class Hold(Enum):
    """The one who holds a workload; only they, or somebody with more rights, release it."""

    NONE = ""
    USER = "user"
    ADMIN = "admin"


class DependencyKind(Enum):
    """The types of ``--dependency``, with Slurm's meaning."""

    AFTER = "after"  # all have started, or ended without
    AFTER_ANY = "afterany"  # all have ended
    AFTER_OK = "afterok"  # all have completed
    AFTER_NOT_OK = "afternotok"  # all have ended, and one has not completed
    AFTER_CORR = "aftercorr"  # as afterok, of the task with the same index
    SINGLETON = "singleton"  # no earlier job of its user and name lives, and no other runs


TAKES_UNKNOWN: Final = frozenset({DependencyKind.AFTER, DependencyKind.AFTER_ANY})
"""Kinds for which a job that is known no more has done its part: it has ended."""


class Condition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One part of a dependency: one job, one task of an array, or all tasks of an array."""

    kind: DependencyKind
    job: WorkloadId = WorkloadId(0)  # a workload, or an array; 0 of a singleton
    task: int | None = None  # of that array; None: all of its tasks
    delay_s: float = 0.0  # of ``AFTER``: since the start
    failed: bool = False  # it can never be met, whatever becomes of the job later

    def text(self) -> str:
        """As squeue writes it, e.g. ``afterok:4294967300_4(unfulfilled)``."""
        status = "failed" if self.failed else "unfulfilled"
        if self.kind is DependencyKind.SINGLETON:
            return f"{self.kind.value}({status})"
        task = f"_{self.task}" if self.task is not None else ""
        delay = f"+{int(self.delay_s) // 60}" if self.delay_s else ""
        return f"{self.kind.value}:{self.job}{task}{delay}({status})"


class Dependency(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The conditions that are left of ``--dependency``; those that were met are gone."""

    conditions: tuple[Condition, ...] = ()
    any_of: bool = False  # one of them is enough
    kill: bool = False  # if it can never be satisfied the workload is cancelled

    def __bool__(self) -> bool:
        return bool(self.conditions)

    @property
    def never(self) -> bool:
        """Whether it can never be satisfied any more."""
        failed = [condition.failed for condition in self.conditions]
        return bool(failed) and (all(failed) if self.any_of else any(failed))


NO_DEPENDENCY: Final = Dependency()
