"""The names of a job's files have the federation's ids, and otherwise what Slurm would say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.model.submission import Submission
from federator.slurm.options.file_names import (
    FederationIds,
    JobFiles,
    files_of,
    with_federation_ids,
)
from federator.slurm.options.options import parse_command_line, resolve

JOB = FederationIds(workload=4294967301)
TASK = FederationIds(workload=4294967301, array=4294967297, index=14)


@pytest.mark.parametrize(
    ("pattern", "of_job", "of_task"),
    [
        ("%j", "4294967301", "4294967301"),
        ("%J", "4294967301", "4294967301"),
        ("%A_%a", "4294967301_%a", "4294967297_14"),
        ("%b-%5a-%05a-%99a", "%b-%5a-%05a-%99a", "4-00014-00014-0000000014"),
        ("%5j %12j", "4294967301 4294967301", "4294967301 4294967301"),
        ("%L %4L", "%j %4j", "%j %4j"),
        ("%%j %3%j", "%%j %3%j", "%%j %3%j"),
        ("%%%j", "%%4294967301", "%%4294967301"),
        ("%u %x %N %n %t %s %r %S %q", "%u %x %N %n %t %s %r %S %q", "%u %x %N %n %t %s %r %S %q"),
        ("%", "%", "%"),
        ("%5", "%5", "%5"),
        (r"\\%j", r"\\%j", r"\\%j"),
        (r"a\%j%A", r"a\%j%A", r"a\%j%A"),
        ("%" + "9" * 5000 + "j", "4294967301", "4294967301"),
    ],
)
def test_symbols(pattern: str, of_job: str, of_task: str) -> None:
    assert with_federation_ids(pattern, JOB) == of_job
    assert with_federation_ids(pattern, TASK) == of_task


def as_slurm(pattern: str, site_job_id: int) -> str:
    """What 26.05 makes of a pattern of a plain job (fname.c, in our words)."""
    if "\\" in pattern:
        return pattern.replace("\\", "")
    out, k = "", 0
    while k < len(pattern):
        width, start = "", k
        if pattern[k] != "%":
            out, k = out + pattern[k], k + 1
            continue
        k += 1
        while k < len(pattern) and pattern[k] in "0123456789":
            width, k = width + pattern[k], k + 1
        symbol = pattern[k : k + 1]
        k += 1
        pad = min(10, int(width or 0))
        if symbol in ("j", "J", "A"):
            out += str(site_job_id).zfill(pad)
        elif symbol == "%" and not width:
            out += "%"
        else:
            out += pattern[start:k]
    return out


@given(
    st.text(alphabet="%jJAab05\\/x.L", max_size=12),
    st.integers(min_value=2**32, max_value=2**60),
    st.integers(min_value=1, max_value=2**31),
)
def test_slurm_makes_of_our_pattern_what_it_would_make_of_the_users_with_the_federations_id(
    pattern: str, id_: int, site_job_id: int
) -> None:
    if "L" in pattern:
        pattern = pattern.replace("L", "")
    ours = as_slurm(with_federation_ids(pattern, FederationIds(workload=id_)), site_job_id)
    assert ours == as_slurm(pattern, id_)


@given(
    st.integers(min_value=2**32, max_value=2**60),
    st.integers(min_value=2**32, max_value=2**60),
    st.integers(min_value=1, max_value=2**31),
)
def test_two_jobs_never_write_to_one_default_file_whatever_ids_their_sites_gave(
    one: int, other: int, site_job_id: int
) -> None:
    names = {
        as_slurm(FederationIds(workload=id_).default_output, site_job_id) for id_ in (one, other)
    }
    assert len(names) == len({one, other})


def files(*words: str, ids: FederationIds = JOB, site_job_id: int = 0) -> JobFiles:
    submission = Submission(
        components=resolve(parse_command_line(list(words)).groups, (), ()),
        script="#!/bin/sh\n",
        args=(),
        environment={},
        work_dir="/home/u/run",
    )
    return files_of(submission, ids, user="u", name="t %j", site_job_id=site_job_id)


def test_where_a_jobs_files_are() -> None:
    assert files() == JobFiles(
        work_dir="/home/u/run",
        stdin="/dev/null",
        stdout="/home/u/run/slurm-4294967301.out",
        stderr="/home/u/run/slurm-4294967301.out",
    )
    told = files("-o", "%x-%u-%N-%%.%L", "-e", "/l/%A_%a", "-i", "in", "-D", "sub", ids=TASK)
    assert told == JobFiles(
        work_dir="/home/u/run/sub",
        stdin="/home/u/run/sub/in",
        stdout="/home/u/run/sub/t %j-u-%N-%.%L",
        stderr="/l/4294967297_14",
    )
    assert files("-o", "x.%5L", site_job_id=7).stdout == "/home/u/run/x.00007"
    assert files("-o", r"a\%j", "-e", "none").stdout == "/home/u/run/a%j"
    assert files("-e", "none").stderr == "/dev/null"
