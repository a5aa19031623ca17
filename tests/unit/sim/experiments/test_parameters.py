"""Experiments are found by name; a parameter that makes no sense is one clear message."""

from __future__ import annotations

import pytest

from federator.errors import InvalidRequest
from federator.sim.experiments.base import at_fraction, parameters_of
from federator.sim.experiments.registry import EXPERIMENTS, experiment_entry
from tests.fakes.traces import pool, trace

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_name_is_an_experiment_with_parameters(name: str) -> None:
    entry = experiment_entry(name)
    assert parameters_of(entry.make({}))
    assert parameters_of(entry.make({}, quick=True)) != parameters_of(entry.make({}))


def test_an_unknown_name_is_told_what_there_is() -> None:
    with pytest.raises(InvalidRequest, match=r"no experiment 'best'; expected one of mast-slo, sh"):
        experiment_entry("best")


def test_a_parameter_is_read_by_the_type_of_its_default() -> None:
    made = experiment_entry("sharing").make({"draws": "3", "loads": "0.5, 1", "policies": "ssf"})
    found = parameters_of(made)
    assert (found["draws"], found["loads"], found["policies"]) == (3, (0.5, 1.0), ("ssf",))


def test_what_is_set_wins_over_quick() -> None:
    entry = experiment_entry("sharing")
    assert parameters_of(entry.make({"draws": "7"}, quick=True))["draws"] == 7


def test_a_trace_is_named_by_its_size() -> None:
    jobs = trace("a 0 2 1\nb 0 2 1", pool("ant", 3))
    found = parameters_of(experiment_entry("sharing").make({}, trace=jobs))
    assert found["trace"] == "2 jobs, 1 pools, 3 GPUs"


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "sharing",
            {"x": "1"},
            "--set: 'x' is unknown to this experiment; expected one of policies",
        ),
        ("sharing", {"trace": "x"}, "--set: 'trace' is unknown to this experiment"),
        ("sharing", {"draws": "0"}, "draws: expected a whole number from 1 to 1000, found '0'"),
        ("sharing", {"draws": "1.5"}, "draws: expected a whole number from 1 to 1000"),
        ("sharing", {"loads": "0.6,nan"}, "loads: expected a number from 0.01 to 100, found 'nan'"),
        ("sharing", {"loads": ","}, "loads: expected at least one value"),
    ],
)
def test_a_parameter_that_makes_no_sense(name: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        experiment_entry(name).make(settings)


def test_an_experiment_that_makes_its_own_jobs_takes_no_trace() -> None:
    with pytest.raises(InvalidRequest, match="--trace: this experiment makes its own jobs"):
        experiment_entry("joint").make({}, trace=trace("", pool("ant", 1)))


def test_a_fraction_is_reached_by_the_least_number_that_reaches_it() -> None:
    numbers = [float(n) for n in range(1, 101)]
    assert [at_fraction(numbers, frac) for frac in (0.0, 0.05, 0.07, 0.5, 0.95, 1.0)] == [
        1,
        5,
        7,
        50,
        95,
        100,
    ]
    assert at_fraction([3.0], 0.95) == 3.0
