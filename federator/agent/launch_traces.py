"""Makes the spans of an agent's part of a launch: its intent is durable, sbatch has answered.

It follows what the agent's shell has done; nothing depends on it.
"""

from __future__ import annotations

from federator.agent.base import SubmittedJob
from federator.agent.effects import Sbatch, WriteMark
from federator.agent.journal import JournalStep
from federator.agent.observations import Done, NotDone
from federator.model.workload import AttemptId, SiteName
from federator.traces.span import Tell, TracedSpan, Value, launch_key


class LaunchTraces:
    """The launches of one agent.

    Args:
        site: its own.
        tell: takes the spans.
    """

    def __init__(self, site: SiteName, tell: Tell) -> None:
        self._site, self._tell = site, tell

    def marked(self, effect: WriteMark, began_s: float, ended_s: float) -> None:
        """A line of the journal is durable."""
        if effect.mark.step is JournalStep.INTENT:
            self._span("intent", effect.attempt, (began_s, ended_s), {})

    def answered(self, answer: Done | NotDone, began_s: float, ended_s: float) -> None:
        """What took long is done, or is not."""
        if not isinstance(answer.effect, Sbatch):
            return
        about: dict[str, Value] = {}
        error = ""
        if isinstance(answer, NotDone):
            error = answer.failure.detail
        elif isinstance(answer.value, SubmittedJob):
            about["slurm.job_id"] = answer.value.job_id
        attempt = answer.effect.order.attempt
        self._span("sbatch", attempt, (began_s, ended_s), about, error)

    def _span(
        self,
        name: str,
        attempt: AttemptId,
        times_s: tuple[float, float],
        about: dict[str, Value],
        error: str = "",
    ) -> None:
        number = attempt.attempt
        about = {"federator.attempt": number, "federator.site": self._site, **about}
        around = launch_key(number)
        key = f"{name}/{number}"
        self._tell(TracedSpan(attempt.workload, name, key, *times_s, around, about, error))
