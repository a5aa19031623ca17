"""The work that evictions destroy: expected beforehand, and charged afterwards, in GPU-seconds.

Afterwards (the preemption tax) destroyed is what the victim's GPUs did after the last moment that
was of use: when it was told to leave, if it has saved since; else when its last known checkpoint
was complete; else its start. So saving and leaving count as well. What the restart costs (loading,
warming up) is not seen in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from federator.model.site import Leave
from federator.model.workload import TenantName

SAVE_EVERY_S: Final = 1800.0
"""Between two periodic checkpoints of a job of which nothing better is known: the default of
``federator.checkpoint``."""


class AtRisk(Protocol):
    """A running job, as far as its work may be lost; ``RunningJob`` is one."""

    @property
    def started_at_s(self) -> float: ...

    @property
    def saved_at_s(self) -> float: ...

    @property
    def save_s(self) -> float: ...

    @property
    def restart_s(self) -> float: ...

    @property
    def saves_in_time(self) -> bool: ...


def expected_loss_s(job: AtRisk, now_s: float, *, grace: bool = True) -> float:
    """Seconds of each of its GPUs that evicting a running job now is expected to destroy.

    It is ``unsaved + restart_s * (1 + T / (T + ran))``, with T = ``SAVE_EVERY_S``:

    * ``unsaved``: since its last save, where a save since its start is known; otherwise T / 2,
      the expected age of the last save of a job that saves every T. A job that is known to save
      when it is told to leave loses no more than what that save takes.
    * ``restart_s`` once: it must start again. And a second time, as far as it has not been worked
      off: what its present start took. Half of that is worked off after T, nearly all after a day.

    So of two jobs whose saves are unknown the longer running loses less. The seconds since the
    start would be the smallest for whoever has just started: it would be evicted before its first
    save, again and again, and never get anywhere.

    Args:
        job: what is known of it.
        now_s: Unix time, by the clock of ``started_at_s`` and ``saved_at_s``.
        grace: whether it is told before it must go; what is taken alone of a het job is not.

    Returns:
        Seconds >= 0.

    Source:
        MAST (OSDI'24) sec. 4.3, third rule among plans that preempt: better is to evict "those
        running for a longer duration", which "implies refraining from preempting newly started
        jobs". The paper gives no weights and knows no saves: counting what is lost, T, the bound
        T / 2 and the shape of the start-up term are our choice.
    """
    ran_s = max(0.0, now_s - job.started_at_s)
    if job.saved_at_s > job.started_at_s:
        unsaved_s = max(0.0, now_s - job.saved_at_s)
    else:
        unsaved_s = SAVE_EVERY_S / 2
    if grace and job.save_s and job.saves_in_time:
        unsaved_s = min(unsaved_s, job.save_s)
    not_worked_off = SAVE_EVERY_S / (SAVE_EVERY_S + ran_s)
    return unsaved_s + job.restart_s * (1.0 + not_worked_off)


def destroyed_gpu_s(
    gpus: int, started_at_s: float, ended_at_s: float, leave: Leave | None
) -> float:
    """GPU-seconds lost with one attempt that was made to leave.

    Args:
        gpus: that it held.
        started_at_s: Unix time.
        ended_at_s: Unix time, not before ``started_at_s``.
        leave: how it left; None: nothing is known of it.
    """
    useful_until_s = started_at_s
    if leave is not None:
        useful_until_s = max(started_at_s, min(leave.told_at_s, leave.saved_at_s))
    return gpus * max(0.0, ended_at_s - useful_until_s)


@dataclass(slots=True)
class PreemptionTax:
    """GPU-seconds destroyed since the log began: for whom that was done, and to whom."""

    by_preemptor: dict[TenantName, float] = field(default_factory=dict)
    by_victim: dict[TenantName, float] = field(default_factory=dict)
    victims: int = 0
    gpu_s: float = 0.0

    def add(self, preemptor: TenantName, victim: TenantName, gpu_s: float) -> None:
        """Take in what one eviction has destroyed."""
        self.by_preemptor[preemptor] = self.by_preemptor.get(preemptor, 0.0) + gpu_s
        self.by_victim[victim] = self.by_victim.get(victim, 0.0) + gpu_s
        self.victims += 1
        self.gpu_s += gpu_s
