"""Draws what the user code of each simulated workload does."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random
from typing import Final

from federator.faults.checks.evidence import Evidence
from federator.faults.user_code import SAVED, Script
from federator.model.workload import AttemptId

SITS_S: Final = 400.0  # user code of an interactive job: longer than its command lives


class DrawnScripts:
    """The scripts of one history's workloads, each drawn when one of its attempts first starts.

    Args:
        evidence: knows what the users have asked for.
        seed: another one draws other scripts.
    """

    def __init__(self, evidence: Evidence, seed: float) -> None:
        self._evidence = evidence
        self._seed = seed
        self._by_workload: dict[int, Script] = {}

    def __call__(self, attempt: AttemptId) -> Script:
        """Each attempt does much the same; what was saved is not counted."""
        rng = Random(f"{attempt.workload}.{attempt.attempt}.{self._seed}")
        if attempt.workload not in self._by_workload:
            self._by_workload[attempt.workload] = self._draw(attempt, rng)
        script = self._by_workload[attempt.workload]
        if script.exit_code == SAVED and attempt.attempt > 1:
            return replace(script, exit_code=0)
        return script

    def _draw(self, attempt: AttemptId, rng: Random) -> Script:
        asked = self._evidence.truth(attempt.workload).script
        sits = asked is not None and asked.terminal_s > 0
        script = Script(
            duration_s=SITS_S if sits else rng.choice((3.0, 8.0, 15.0, 30.0, 60.0)),
            exit_code=rng.choice((0, 0, 0, 0, 0, 0, 1, SAVED)),
            saves_s=rng.choice((0.5, 2.0, 1e9)),
        )
        if asked is not None and asked.elastic:
            joins = rng.choice((inf, inf, 1, 2))
            script = replace(script, duration_s=rng.choice((45.0, 90.0)), joins=joins)
        if asked is not None and asked.spare:
            script = replace(script, duration_s=rng.choice((30.0, 60.0)))
        return script
