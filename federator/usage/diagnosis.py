"""Records of attempts, and findings of ``federator doctor`` about them; light."""

from __future__ import annotations

from typing import Final

import msgspec

OF_JOBS: Final = (
    "zombie",
    "idle",
    "starved",
    "communication",
    "straggler",
    "failing",
    "timeout",
    "checkpoint",
    "memory",
    "cpus",
    "gpu-size",
)
"""Kinds of findings about jobs."""
OF_QUOTAS: Final = (
    "unused-quota",
    "small-quota",
    "hoarding",
    "self-hoarding",
    "over-commit",
    "surge",
    "backlog",
    "fall",
    "busy-fall",
    "power-fall",
)
"""Kinds of findings of a review of quotas."""


class JudgedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that has ended, or runs (``ended_at_s`` is 0); amounts count all nodes together.

    None: not measured. Times are Unix times, 0: not, or not known.
    """

    id: int
    attempt: int = 1
    tenant: str = ""
    user: str = ""
    family: str = ""  # its name, with ``#`` for numbers
    site: str = ""
    nodes: int = 1
    gpus: int = 0
    cpus: int = 0  # that it was given, as the next
    mem_mib: float = 0.0
    started_at_s: float = 0.0
    ended_at_s: float = 0.0
    state: str = ""  # Slurm's
    time_limit_s: float = float("inf")
    saved_at_s: float = 0.0  # its last checkpoint that is known
    gpu_busy_frac: float | None = None
    cpu_s: float | None = None
    used_mem_mib: float | None = None  # the peak
    save_s: float | None = None  # in all its saves
    # The next are those of ``MeasuredUse``; of no watch, or no marks in its steps: None.
    gpu_mem_mib: float | None = None
    gpu_total_mib: float | None = None
    gpu_power_frac: float | None = None
    gpu_looks: float | None = None
    gpu_spread_frac: float | None = None
    gpu_low_frac: float | None = None
    gpu_high_frac: float | None = None
    gpu_falls: float | None = None
    gpu_longest_low_frac: float | None = None
    step_s: float | None = None
    load_s: float | None = None
    own_least_s: float | None = None
    own_most_s: float | None = None
    slow_rank: float | None = None
    ranks: float | None = None

    @property
    def ran_s(self) -> float:
        """Its length; 0: it never ran, or runs, or was over within a second."""
        ran = self.started_at_s > 0 and self.ended_at_s > self.started_at_s
        return self.ended_at_s - self.started_at_s if ran else 0.0

    @property
    def owner(self) -> tuple[str, str, str]:
        """Whose it is, and what it is."""
        return self.tenant, self.user, self.family


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A finding: whose, what, and by which figures."""

    kind: str  # of ``OF_JOBS`` or ``OF_QUOTAS``
    tenant: str = ""  # "": the fleet's
    user: str = ""
    family: str = ""
    jobs: tuple[int, ...] = ()  # the latest ids, a few
    gpu_h: float = 0.0  # GPU-hours that it concerns
    evidence: dict[str, float] = {}


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of all findings. *Spec*: fleet.md, the section in brackets; else chosen here."""

    few_jobs: int = 3  # less says nothing of a family
    shown_jobs: int = 5  # ids in a finding
    # Spec (preemption): a zombie's GPUs are under 5 % busy for more than 10 minutes.
    idle_frac: float = 0.05
    idle_s: float = 600.0
    idle_gpu_h: float = 1.0
    idle_part_frac: float = 0.5  # of the watched time of a family that idle attempts held
    # Data starvation (health and accounting): a saw-tooth, a deviation over 30 %; the rest of a
    # saw-tooth's form is chosen here, so that saves, evaluations and a slow start are none.
    spread_frac: float = 0.3
    least_looks: int = 30  # ten minutes of them
    low_frac: float = 0.25  # of the looks, without what its saves took
    high_frac: float = 0.15
    falls_frac: float = 0.04  # of the looks
    one_low_frac: float = 0.5  # of the low looks, in one piece: a start, a break, not a saw-tooth
    load_frac: float = 0.2  # of a step, where the job tells how long it waits for input
    # Communication bound (likewise): a step over 1.5 times its computing.
    step_times: float = 1.5
    # A straggler: chosen here; healthy ranks differ by a few percent.
    skew_times: float = 1.2
    wasted_gpu_h: float = 1.0  # of a family, at least, by any of these
    # Over-specification (health and accounting): peak much less than asked; half, as fseff.
    little_frac: float = 0.5
    spare: float = 1.25
    least_mem_mib: float = 4096.0  # a node, that would be free
    least_cpus: float = 2.0  # a node
    little_power_frac: float = 0.5  # a GPU at work draws more
    little_busy_frac: float = 0.5  # likewise, where nobody knows its power
    little_spread_frac: float = 0.08  # one that swings more waits for something
    steady_s: float = 600.0  # shorter jobs do not reach their peak
    # Families that fail, or always time out.
    failed_in_a_row: int = 5
    failed_of: int = 8  # at least, for the next
    failed_frac: float = 0.5  # which the lower bound of the rate's interval must exceed
    timed_out_in_a_row: int = 3
    timed_out_frac: float = 0.8
    # Beyond its end: Slurm's KillWait and OverTimeLimit are shorter than this.
    beyond_end_s: float = 900.0
    # Young-Daly (preemption): an interval of sqrt(2 * save * time between interruptions).
    interruptions: int = 3
    lost_times: float = 2.0  # the loss that the best interval leads one to expect
    lost_gpu_h: float = 1.0
    # Use it or lose it (quotas): below 20 % for 72 h.
    unused_frac: float = 0.2
    unused_days: int = 3
    # A quota that is too small.
    full_frac: float = 0.9
    long_wait_s: float = 3600.0
    long_waits: int = 10
    # Anomalies (quotas): three times the norm, a queue that grows faster than it drains, a fall.
    norm_days: int = 7
    least_gpus: float = 1.0
    watched_frac: float = 0.5
    surge_times: float = 3.0
    backlog_days: int = 3
    backlog_jobs: int = 10
    backlog_times: float = 1.2
    fall_frac: float = 0.5
    fall_known_days: int = 4  # of the week before, for the norm of use or power: a tenant may rest
    # Over-commitment (quotas): 1.2 to 1.5 by measured use.
    commit_days: int = 14
    commit_low: float = 1.2
    commit_high: float = 1.5


THRESHOLDS: Final = Thresholds()
