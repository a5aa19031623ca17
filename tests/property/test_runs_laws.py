"""Whatever finishes first, and whatever was kept, results are those of one run after another."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.cli.experiment import experiment
from federator.cli.simulate import simulate
from federator.sim.experiments.mast_slo import MastSloExperiment
from federator.sim.runs.base import Finished, SimRun, outcomes, performed
from federator.sim.runs.executors import InProcess
from federator.sim.runs.kept import KeptRuns
from tests.fakes.runs import squares


class Shuffled:
    """Finishes runs in a drawn order."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self.done = 0

    def perform(
        self, runs: Sequence[SimRun[Any]], progress: Callable[[int, float], None]
    ) -> Generator[Finished, None, None]:
        order = list(range(len(runs)))
        self._draw.shuffle(order)
        for number in order:
            self.done += 1
            yield number, performed(runs[number], partial(progress, number))


NUMBERS = st.lists(st.integers(0, 14), max_size=12)  # 13 and 14 fail


@given(numbers=NUMBERS, draw=st.randoms(use_true_random=False))
def test_results_do_not_depend_on_what_finishes_first(numbers: list[int], draw: Random) -> None:
    runs = squares(numbers)
    assert list(outcomes(runs, Shuffled(draw))) == list(outcomes(runs, InProcess()))


@settings(max_examples=60, deadline=None)
@given(
    numbers=NUMBERS,
    before=NUMBERS,
    draw=st.randoms(use_true_random=False),
    damage=st.lists(st.tuples(st.integers(0, 11), st.binary(max_size=40)), max_size=3),
)
def test_results_do_not_depend_on_what_was_kept_or_on_what_became_of_it(
    numbers: list[int], before: list[int], draw: Random, damage: list[tuple[int, bytes]]
) -> None:
    runs = squares(numbers)
    with tempfile.TemporaryDirectory() as name:
        kept = KeptRuns.at(Path(name))
        list(outcomes(squares(before), InProcess(), kept=kept))
        files = sorted(Path(name).iterdir())
        good = len(files)
        for at, data in damage:
            if at < len(files):
                files[at].write_bytes(data)
        executor = Shuffled(draw)
        assert list(outcomes(runs, executor, kept=kept)) == list(outcomes(runs, InProcess()))
        fails = sum(number > 12 for number in numbers)
        if good == len(files) and not damage:
            new = set(numbers) - set(before)
            assert executor.done == fails + sum(n in new and n <= 12 for n in numbers)


TRACE = """\
submit_s,duration_s,gpus,num_nodes,pool,user,status,cpus,job_id
0,7200,8,1,ant,ann,COMPLETED,8,1
60,3600,4,,ant,bob,FAILED,8,2
90,600,4,1,bee,,,,3
95,60,2,,bee,,,,4
"""
POOLS = "pool,nodes,gpus_per_node,gpus\nant,1,8,8\nbee,1,4,4\n"


@pytest.mark.slow
def test_a_command_prints_the_same_bytes_whatever_jobs_and_resume_are(tmp_path: Path) -> None:
    (tmp_path / "T.csv").write_text(TRACE)
    (tmp_path / "P.csv").write_text(POOLS)
    files = ["--trace", str(tmp_path / "T.csv"), "--pools", str(tmp_path / "P.csv"), "--json"]
    replays = ["--policy", "mast", "--policy", "global-fifo", "--set", "startup_median_s=0,30"]
    small = ["--quick", "--set", "days=0.1", "--set", "warm_up_days=0", "--set", "loads=0.5"]
    for command, words in (
        (simulate, [*files, *replays, "--seed", "1", "--seed", "2"]),
        (experiment, ["mast-slo", *small, "--json"]),
    ):
        kept = str(tmp_path / f"kept-{command.name}")
        said = [
            CliRunner().invoke(command, [*words, *more], catch_exceptions=False).stdout_bytes
            for more in ([], ["--jobs", "3"], ["--resume", kept], ["--resume", kept, "--jobs", "2"])
        ]
        assert len(said[0]) > 500
        assert set(said) == {said[0]}


def test_parameters_of_other_runs_change_no_runs_of_an_experiment() -> None:
    """So that a resumed call with one more load does only that load."""
    few = MastSloExperiment(loads=(0.9,)).runs(1)
    more = MastSloExperiment(loads=(0.8, 0.9)).runs(1)
    assert [run.task for run in few] == [run.task for run in more[len(few) :]]
