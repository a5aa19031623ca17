"""A trace and its pools are read as documented, and every mistake is named by its place."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from federator.errors import InvalidRequest
from federator.sim.importers.trace_csv import read_pools, read_trace
from federator.sim.trace import LeftOutReason, Trace, TracePool

HEADER = "submit_s,duration_s,gpus,num_nodes,pool,user,status,cpus,job_id"
ANT = TracePool(name="ant", nodes=2, gpus_per_node=8)
BEE = TracePool(name="bee", nodes=1, gpus_per_node=4)


def read(path: Path, *rows: str, header: str = HEADER, data: bytes | None = None) -> Trace:
    file = path / "T.csv"
    file.write_bytes("\n".join([header, *rows, ""]).encode() if data is None else data)
    return read_trace(file, (ANT, BEE))


def mistake(path: Path, *rows: str, header: str = HEADER, data: bytes | None = None) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read(path, *rows, header=header, data=data)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}/T.csv")
    return text.removeprefix(f"{path}/")


def pools_of(path: Path, text: str) -> tuple[TracePool, ...]:
    file = path / "P.csv"
    file.write_text(text)
    return read_pools(file)


def pools_mistake(path: Path, text: str) -> str:
    with pytest.raises(InvalidRequest) as caught:
        pools_of(path, text)
    return str(caught.value).removeprefix(f"{path}/")


def test_a_row_is_a_job(tmp_path: Path) -> None:
    jobs = read(tmp_path, "154,97,12,3,ant,ann,COMPLETED,24,7654_1")
    assert len(jobs) == 1
    assert (jobs.submit_s, jobs.duration_s, jobs.gpus, jobs.num_nodes) == ([154], [97], [12], [3])
    assert (jobs.pool, jobs.user, jobs.cpus, jobs.job_id) == ([0], ["ann"], [24], ["7654_1"])
    assert jobs.left_out == []


def test_empty_means_unknown(tmp_path: Path) -> None:
    jobs = read(tmp_path, "0,1,12,,ant,,,,", "0,1,0,,bee,,,,")
    assert jobs.num_nodes == [2, 1]  # the fewest that hold 12 GPUs; at least one
    assert (jobs.user, jobs.cpus, jobs.job_id) == (["", ""], [0, 0], ["1", "2"])


def test_columns_come_in_any_order_and_others_are_ignored(tmp_path: Path) -> None:
    jobs = read(tmp_path, "x,bee,4,9,5,y", header="note,pool,gpus,duration_s,submit_s,gpu_time")
    assert (jobs.submit_s, jobs.duration_s, jobs.gpus, jobs.pool) == ([5], [9], [4], [1])


def test_a_duration_of_0_is_1_s(tmp_path: Path) -> None:
    assert read(tmp_path, "0,0,1,,ant,,,,").duration_s == [1]


def test_a_job_larger_than_its_pool_is_left_out_and_told(tmp_path: Path) -> None:
    jobs = read(tmp_path, "0,9,5,,bee,,,,big", "0,9,4,,bee,,,,fits")
    assert jobs.job_id == ["fits"]
    (left_out,) = jobs.left_out
    assert (left_out.job_id, left_out.line, left_out.gpus) == ("big", 2, 5)
    assert left_out.reason is LeftOutReason.TOO_LARGE


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (",9,1,,ant,,,,a", LeftOutReason.NO_SUBMISSION),
        ("0,,1,,ant,,,,a", LeftOutReason.NO_DURATION),
        ("0,9,,,ant,,,,a", LeftOutReason.NO_GPUS),
        ("0,9,1,, ,,,,a", LeftOutReason.NO_POOL),
    ],
)
def test_a_job_of_which_too_little_is_known_is_left_out_and_told(
    tmp_path: Path, row: str, reason: LeftOutReason
) -> None:
    jobs = read(tmp_path, row)
    assert len(jobs) == 0
    assert [job.reason for job in jobs.left_out] == [reason]


def test_plain_gzipped_and_with_a_byte_order_mark(tmp_path: Path) -> None:
    data = f"{HEADER}\r\n0,1,1,1,ant,u,,,a\r\n\r\n".encode()
    for encoded in (data, gzip.compress(data), b"\xef\xbb\xbf" + data):
        assert read(tmp_path, data=encoded).job_id == ["a"]


def test_whole_numbers_may_have_blanks_and_an_empty_fraction(tmp_path: Path) -> None:
    jobs = read(tmp_path, " 5 ,9.0,1.,,ant,,,,a")
    assert (jobs.submit_s, jobs.duration_s, jobs.gpus) == ([5], [9], [1])


WHOLE_TIME = "expected a whole number of seconds from 0 to 253402300799"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("-5,9,1,,ant,,,,", f"submit_s: {WHOLE_TIME}, found '-5'"),
        ("0,9.5,1,,ant,,,,", f"duration_s: {WHOLE_TIME}, found '9.5'"),
        ("0,1_0,1,,ant,,,,", f"duration_s: {WHOLE_TIME}, found '1_0'"),
        ("0,nan,1,,ant,,,,", f"duration_s: {WHOLE_TIME}, found 'nan'"),
        ("0,٣,1,,ant,,,,", f"duration_s: {WHOLE_TIME}, found '٣'"),
        ("0,253402300800,1,,ant,,,,", f"duration_s: {WHOLE_TIME}, found '253402300800'"),
        ("0,9,two,,ant,,,,", "gpus: expected a whole number from 0 to 1000000000, found 'two'"),
        ("0,9,1,x,ant,,,,", "num_nodes: expected a whole number from 0 to 1000000000, found 'x'"),
        ("0,9,1,,ant,,,x,", "cpus: expected a whole number from 0 to 1000000000, found 'x'"),
        ("0,9,1,,cow,,,,", "pool: expected one of ant, bee, found 'cow'"),
        ("0,9,1,,ant", "expected 9 fields, found 5"),
        ("0,9,1,,ant,,,,,", "expected 9 fields, found 10"),
    ],
)
def test_a_mistake_is_named_by_line_and_column(tmp_path: Path, row: str, message: str) -> None:
    assert mistake(tmp_path, "0,1,1,,ant,,,,", row) == f"T.csv:3: {message}"


def test_a_long_value_is_shown_in_part(tmp_path: Path) -> None:
    text = mistake(tmp_path, f"0,9,{'9' * 5000},,ant,,,,")
    assert len(text) < 200


def test_quoted_lines_do_not_confuse_the_count(tmp_path: Path) -> None:
    text = mistake(tmp_path, '0,1,1,,ant,"two\nlines",,,', "0,1,x,,ant,,,,")
    assert text.startswith("T.csv:4: gpus: ")


def test_a_column_that_is_missing_or_twice(tmp_path: Path) -> None:
    text = mistake(tmp_path, "1", header="submit_s,gpus,pool")
    assert text == (
        "T.csv:1: duration_s: expected a column of this name in the header, "
        "found 'submit_s,gpus,pool'"
    )
    assert "expected this column once" in mistake(tmp_path, header=f"{HEADER},gpus")
    assert mistake(tmp_path, data=b"").endswith("the file is empty")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a\xff", "T.csv:1: expected UTF-8, found other bytes"),
        (gzip.compress(b"x" * 99, mtime=0)[:-9], "T.csv: cannot be unpacked: "),
        (b"\x1f\x8bxxxxxxxxxxxxxxxx", "T.csv: cannot be unpacked: "),
        (f'{HEADER}\n"open'.encode(), "T.csv:2: expected comma-separated values: "),
    ],
)
def test_a_file_that_is_no_csv(tmp_path: Path, data: bytes, message: str) -> None:
    assert mistake(tmp_path, data=data).startswith(message)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read: No such file"):
        read_trace(tmp_path / "none.csv", (ANT,))
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_pools(tmp_path)


def test_pools_are_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = "pool,nodes,gpus_per_node,gpus\nbee,1,4,4\nant,2,8,\n"
    assert pools_of(tmp_path, text) == (BEE, ANT)
    assert pools_of(tmp_path, "gpus_per_node,nodes,pool\n8,2,ant\n") == (ANT,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pool,nodes\nP10,362\n", "P.csv:1: gpus_per_node: expected a column of this name"),
        ("pool,nodes,gpus_per_node\n", "P.csv:1: pool: expected at least one pool"),
        ("pool,nodes,gpus_per_node\n,1,1\n", "P.csv:2: pool: expected a name, found nothing"),
        ('pool,nodes,gpus_per_node\n"a\nb",1,1\n', r"P.csv:3: pool: expected a name, found 'a\nb'"),
        ("pool,nodes,gpus_per_node\na,,8\n", "P.csv:2: nodes: expected a whole number, found noth"),
        ("pool,nodes,gpus_per_node\na,0,8\n", "P.csv:2: nodes: expected a whole number from 1 to"),
        ("pool,nodes,gpus_per_node\na,1,x\n", "P.csv:2: gpus_per_node: expected a whole number"),
        ("pool,nodes,gpus_per_node\na,1,8\na,1,8\n", "P.csv:3: pool: expected each pool once"),
        (
            "pool,nodes,gpus_per_node,gpus\na,2,8,12\n",
            "P.csv:2: gpus: expected nodes x gpus_per_node = 16, found 12",
        ),
        ("pool,nodes,gpus_per_node\na,1000000,1000000\n", "P.csv:2: nodes: expected at most"),
    ],
)
def test_a_mistake_in_the_pools(tmp_path: Path, text: str, message: str) -> None:
    assert pools_mistake(tmp_path, text).startswith(message)
