"""The command lines of fsalloc and fsrun: their own options, sbatch's, and the command."""

from __future__ import annotations

import pytest

from federator.cli.session_words import FSALLOC, FSRUN, job_name, read_words
from federator.errors import InvalidRequest


def options(*words: str) -> dict[str, str | None]:
    wanted = read_words(FSRUN, words, {})
    return {option.name: option.value for option in wanted.options}


def test_options_end_where_the_command_begins() -> None:
    wanted = read_words(FSRUN, ["-N2", "--gres", "gpu:8", "srun", "-n1", "--pty"], {})
    assert {o.name: o.value for o in wanted.options} == {"nodes": "2", "gres": "gpu:8"}
    assert wanted.command == ("srun", "-n1", "--pty")
    assert wanted.own == {}
    assert read_words(FSRUN, ["-N2", "--", "-x"], {}).command == ("-x",)


def test_values_may_be_words_of_their_own_and_may_begin_with_a_dash() -> None:
    assert options("-N", "2", "--comment", "-x", "true") == {"nodes": "2", "comment": "-x"}
    assert options("--job-name=a b", "-Ov", "true").keys() == {"job-name", "overcommit", "verbose"}


def test_own_options_stand_among_those_of_sbatch() -> None:
    words = ["--pty", "-N1", "-I", "-l", "-o", "out file", "-J", "x", "bash", "-i"]
    wanted = read_words(FSRUN, words, {})
    assert wanted.own == {"pty": "", "immediate": "", "label": "", "output": "out file"}
    assert wanted.step_options == ("--label", "--output=out file")
    assert wanted.command == ("bash", "-i")


@pytest.mark.parametrize(
    ("words", "seconds"),
    [(["-I"], 3.0), (["-I10"], 10.0), (["--immediate=7"], 7.0), (["--immediate"], 3.0), ([], None)],
)
def test_immediate_takes_a_value_only_with_it(words: list[str], seconds: float | None) -> None:
    wanted = read_words(FSALLOC, [*words, "5"], {})
    assert (wanted.immediate_s, wanted.command) == (seconds, ("5",))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--array=1-3", "x"], "fsbatch"),
        (["--wrap=x"], "write the command"),
        (["-N1", ":", "-N2", "x"], "one component"),
        (["--nonsense", "x"], "unrecognized option '--nonsense'"),
        (["--nonsense"], "unrecognized option '--nonsense'"),
        (["--gres"], "requires an argument"),
        (["--jobid"], "requires an argument"),
        (["--pty=yes", "x"], "doesn't allow an argument"),
        (["-j", "x"], "invalid option -- 'j'"),
    ],
)
def test_what_has_no_meaning_is_refused(words: list[str], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        read_words(FSRUN, words, {})


def test_immediate_is_a_number() -> None:
    with pytest.raises(InvalidRequest, match="expected a number of seconds"):
        _ = read_words(FSALLOC, ["--immediate=soon"], {}).immediate_s


def test_variables_are_those_of_salloc_and_srun_and_give_way_to_options() -> None:
    variables = {
        "SALLOC_PARTITION": "a",
        "SALLOC_TIMELIMIT": "5",
        "SLURM_PARTITION": "b",
        "SBATCH_PARTITION": "c",
    }
    of_fsalloc = read_words(FSALLOC, ["-t", "9", "x"], variables).options
    assert [(o.name, o.value) for o in of_fsalloc] == [("partition", "a"), ("time", "9")]
    of_fsrun = read_words(FSRUN, ["x"], variables).options
    assert [(o.name, o.value) for o in of_fsrun] == [("partition", "b")]


def test_a_job_is_called_as_its_command() -> None:
    assert job_name(["/usr/bin/python3", "x"]) == "python3"
    assert job_name([]) == job_name(["/"]) == "interactive"
