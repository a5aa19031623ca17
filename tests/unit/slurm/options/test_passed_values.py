"""Values of passed options: what no sbatch takes is refused, what some sbatch takes never is.

``passed_values.json`` holds what sbatch of 22.05, 24.11 and 26.05 made of each value: option,
value, the generations that took it, and what the others said last.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from federator.errors import InvalidRequest
from federator.model.submission import Option, Submission
from federator.slurm import site_exec
from federator.slurm.options import submission_checks as limits
from federator.slurm.options.interpret import interpret
from federator.slurm.options.option_table import OPTIONS, Treatment
from federator.slurm.options.passed_values import _FORMS, _LEAST_NUMBER, check_passed

ANSWERS = json.loads((Path(__file__).parent / "passed_values.json").read_text())
TAKEN = [(name, value) for name, value, takers, _ in ANSWERS if takers]
REFUSED = [(name, value, said) for name, value, takers, said in ANSWERS if not takers]
LEFT_TO_SITES = {
    # By how the sites are set up:
    ("acctg-freq", "0"),
    ("gres-flags", "one-task-per-sharing"),
    ("resv-ports", "0"),
    ("resv-ports", "1"),
    ("requeue", "expedite"),
    ("requeue", "Expedite"),
    ("cpu-freq", "100-200:PowerSave"),
    ("cpu-freq", "Conservative"),
    ("cpu-freq", "SchedUtil"),
    ("cpu-freq", "powersave"),
    ("cpu-freq", "conservative"),
    ("cpu-freq", "schedutil"),
    # By what else was said; the federation adds a list of nodes to the first:
    ("distribution", "arbitrary"),
    ("cpu-freq", "high:Performance"),
    ("cpu-freq", "200-100"),
    ("cpu-freq", "high-low"),
    ("cpu-freq", "1000:OnDemand"),
    ("gpu-bind", "V,closest"),
    ("gres-flags", "disable-binding,enforce-binding"),
    ("wait-all-nodes", "99999999999"),
    # The shell split these words when they were tried:
    ("core-spec", " 1"),
    ("wait-all-nodes", " 1"),
}


IN_OTHER_WORDS = {
    ("hint", "help"),
    ("mem-bind", "help"),
    ("mem-bind", "map_mem"),
    ("mem-bind", "map_mem:x"),
    ("gres-flags", "allow-task-sharing"),
    # sbatch names the one wrong part of a list, and says --resv-port:
    ("hint", "bogus,multithread"),
    ("hint", "multithread,bogus"),
    ("mem-bind", "q,bogus"),
    ("resv-ports", "set="),
    ("resv-ports", "x"),
}


@pytest.mark.parametrize(("name", "value"), TAKEN)
def test_a_value_that_some_sbatch_takes_is_not_refused(name: str, value: str) -> None:
    check_passed(name, value)


@pytest.mark.parametrize(("name", "value", "said"), REFUSED)
def test_a_value_that_no_sbatch_takes_is_refused(name: str, value: str, said: list[str]) -> None:
    if (name, value) in LEFT_TO_SITES:
        check_passed(name, value)
        return
    with pytest.raises(InvalidRequest) as refused:
        check_passed(name, value)
    if (name, value) not in IN_OTHER_WORDS:
        assert any(words in str(refused.value) for words in said)


def test_only_passed_options_are_checked() -> None:
    for name in {*_FORMS, *_LEAST_NUMBER} - {"requeue"}:  # its value has no meaning here
        assert OPTIONS[name].treatment is Treatment.PASSED, name


def submission(*options: Option, **others: object) -> Submission:
    fields = {"script": "#!/bin/sh\n", "args": (), "environment": {}, "work_dir": "/tmp"}
    return Submission(components=(options,), **(fields | others))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (Option(name="signal", value="XYZ"), "Invalid --signal specification"),
        (Option(name="mail-type", value="BOGUS"), "Invalid --mail-type specification"),
    ],
)
def test_a_submission_with_a_wrong_value_is_refused(option: Option, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        interpret(submission(option))


def test_a_value_of_a_sites_own_option_is_the_sites_affair() -> None:
    interpret(submission(Option(name="mail-type", value="x")), frozenset({"mail-type"}))


@pytest.mark.parametrize(
    ("least", "limit", "refused"),
    [
        ("5", "10", False),
        ("5", None, False),
        ("20", "10", True),
        ("0", "10", True),
        ("UNLIMITED", "10", True),
        ("UNLIMITED", None, False),
        ("bogus", "10", True),
        ("1-0", "30-0", False),
        ("10s", "30-0", True),
    ],
)
def test_the_least_time_is_a_time_within_the_limit(
    least: str, limit: str | None, refused: bool
) -> None:
    options = [Option(name="time-min", value=least)]
    options += [Option(name="time", value=limit)] if limit else []
    if not refused:
        interpret(submission(*options))
        return
    with pytest.raises(InvalidRequest, match=r"Invalid (--)?time-min specification"):
        interpret(submission(*options))


def test_an_environment_that_no_helper_takes_is_refused() -> None:
    most = {f"V{k}": "x" for k in range(limits.MAX_VARIABLES)}
    interpret(submission(environment=most))
    with pytest.raises(InvalidRequest, match=r"4001 environment variables, .* at most 4000"):
        interpret(submission(environment=most | {"ONE_MORE": ""}))
    assert limits.MAX_VARIABLES + 50 <= site_exec.MAX_ITEMS  # the federation's own
    assert limits.MAX_ARGS <= site_exec.MAX_ITEMS


def test_more_than_a_process_can_be_given_is_refused() -> None:
    large = {f"V{k}": "x" * 100_000 for k in range(20)}
    with pytest.raises(InvalidRequest, match="bytes, no command can be started with more than"):
        interpret(submission(environment=large))
    with pytest.raises(InvalidRequest, match="4097 arguments"):
        interpret(submission(args=("x",) * 4097))
