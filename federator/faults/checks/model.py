"""The model that checks the promises: it sees what Slurm ran and what clients were answered.

It never asks the daemon what it believes, but at the very end, when that is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from federator.faults.checks.answer_checks import AnswerChecks
from federator.faults.checks.end_checks import check_end
from federator.faults.checks.evidence import Evidence
from federator.faults.checks.log_checks import LogChecks
from federator.faults.checks.output_checks import OutputChecks
from federator.faults.checks.run_checks import RunChecks
from federator.faults.checks.size_checks import SizeChecks
from federator.faults.checks.wish_checks import WishChecks
from federator.sched.state.ledger import Ledger


class Model:
    """Checks promises as things happen, and all of them at the end.

    Args:
        tell: notes what happened, for the story.
        clock: true time.
        gpu_limits: GPUs that these users may hold together, at all sites.
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        clock: Callable[[], float],
        gpu_limits: Mapping[frozenset[str], float],
    ) -> None:
        self.evidence = evidence = Evidence(tell, clock)
        self.wishes = WishChecks(evidence)
        self.runs = RunChecks(evidence, gpu_limits, self.wishes)
        self.answers = AnswerChecks(evidence)
        self.outputs = OutputChecks(evidence)
        self.log = LogChecks(evidence, self.wishes, self.outputs)

    def check_end(self, ledger: Ledger) -> None:
        """Everything has ended, once, as Slurm and clients know it."""
        self.answers.check_acknowledged(ledger)
        check_end(self.evidence, self.wishes, ledger)
        SizeChecks(self.evidence).check_end(ledger)
        self.outputs.check_end(ledger)
