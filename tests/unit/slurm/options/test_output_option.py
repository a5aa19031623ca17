"""Which data sets jobs can write, and which jobs can write one."""

from __future__ import annotations

import pytest

from federator.errors import InvalidRequest
from federator.model.data_output import OutputWish
from tests.unit.slurm.options.test_interpret import read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("maps", OutputWish("maps")),
        ("vision/maps@3", OutputWish("vision/maps", "3")),
        ("maps:keep", OutputWish("maps")),
        ("maps@v1:home", OutputWish("maps", "v1", home=True)),
    ],
)
def test_a_job_names_one_data_set_that_it_writes(text: str, expected: OutputWish) -> None:
    assert read(f"-N1 --fed-output={text}").output == expected


def test_a_job_without_the_option_writes_none() -> None:
    assert read("-N1").output is None


@pytest.mark.parametrize("text", ["", "../a", "a@", "a:rw", "a,b", "a@1:home:keep", "a" * 129])
def test_a_bad_name_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"Invalid --fed-output value .*must be NAME"):
        read(f"-N1 --fed-output={text}")


def test_each_task_of_an_array_adds_a_version_of_its_own() -> None:
    assert read("-N1 --array=0-3 --fed-output=maps").output == OutputWish("maps")
    with pytest.raises(InvalidRequest, match="each task of an array adds a version of its own"):
        read("-N1 --array=0-3 --fed-output=maps@1")


def test_a_het_job_writes_none() -> None:
    with pytest.raises(InvalidRequest, match="is for a job of one component"):
        read("-N1 --fed-output=maps : -N1")
