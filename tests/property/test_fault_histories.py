"""Nothing is lost and nothing runs twice, whatever breaks: seeded histories of the real programs.

Each history is a daemon (or two) and agents in virtual time, with a dozen faults or more, checked
by a model that believes only simulated Slurms and clients; see ``federator.faults``. This file has
the first half of the seeds, ``test_more_fault_histories.py`` the second. The model must catch
planted bugs, or its silence would mean nothing: ``test_planted_bugs.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from federator.faults.history import run_history
from tests.fault_seeds import HistoryHalf, folder_of_run

_HALF = HistoryHalf(0)


@pytest.mark.parametrize("part", _HALF.parts)
def test_no_history_of_faults_breaks_a_promise(part: int) -> None:
    report = _HALF.play(part)
    assert not report.broken, "\n".join(report.lines())


def test_every_kind_of_fault_on_the_menu_strikes(tmp_path_factory: pytest.TempPathFactory) -> None:
    missing = _HALF.kinds_that_never_strike(folder_of_run(tmp_path_factory.getbasetemp()))
    if missing is None:
        pytest.skip("needs the histories of both halves")
    assert missing == []


_DIGESTS = "from federator.faults.history import run_history as r; print([r(s).digest for s in {}])"


def test_a_seed_replays_identically_in_another_process() -> None:
    seeds = [3, 14, 15, 92]

    def digests(hash_seed: str) -> str:
        argv = [sys.executable, "-c", _DIGESTS.format(seeds)]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert digests("1") == digests("2") == str([run_history(s).digest for s in seeds])
