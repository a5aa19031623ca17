"""No text from a site, and none a user can smuggle into one, misleads the parsers."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from federator.model.site import NodeShare
from federator.slurm import site_exec
from federator.slurm.parse_base import (
    count_ids,
    expand_hosts,
    parse_duration_s,
    parse_exit,
    parse_gpus,
    parse_other_gres,
    parse_time_s,
)
from federator.slurm.parse_jobs import parse_jobs, parse_layout, parse_layouts
from federator.slurm.parse_nodes import parse_nodes, parse_state, parse_switches, parse_topology
from federator.slurm.parse_site import parse_config, parse_partitions, parse_version
from federator.slurm.render import fold
from tests.unit.slurm.texts import FREE, job_line, node_line, squeue_record

WORDS = st.sampled_from(
    [
        "JobId=7",
        "JobState=FAILED",
        "NodeList=n9",
        " JOB_GRES=gpu:9",
        "Nodes=n9",
        "CPU_IDs=0-9",
        "Mem=9",
        "GRES=gpu:9",
        " MinCPUsNode=1",
        "NodeName=n9",
        "State=DOWN",
        "\n",
        "|",
        " ",
        "fed:1:1",
        "\x1f",
        "\n1|root|",
        "\0",
        "é",
        "[0-9]",
        "gpu:a100:8",
        "(null)",
    ]
)
HOSTILE = st.one_of(st.text(), st.lists(WORDS).map("".join), st.lists(WORDS).map(" ".join))
NAMES = st.lists(
    st.from_regex(r"[a-z]{1,3}[0-9]{1,3}(x[0-9]{1,2})?", fullmatch=True),
    min_size=1,
    unique=True,
    max_size=40,
)


@given(HOSTILE)
@example("g[1-3")
@example("@all")
def test_no_text_makes_a_small_parser_fail_but_by_value_error(text: str) -> None:
    parsers = (
        expand_hosts,
        parse_gpus,
        parse_time_s,
        parse_duration_s,
        parse_exit,
        count_ids,
        parse_state,
        parse_version,
        parse_config,
    )
    for parse in parsers:
        try:
            parse(text)
        except ValueError:
            continue


@given(HOSTILE)
def test_no_text_makes_a_parser_of_lines_fail_at_all(text: str) -> None:
    parse_nodes(text)
    parse_topology(text)
    parse_switches(text)
    parse_partitions(text)
    parse_layouts(text)
    parse_other_gres(text)


@given(st.binary())
def test_no_bytes_make_the_job_parser_fail_but_by_value_error(output: bytes) -> None:
    try:
        parse_jobs(output)
    except ValueError:
        return


@given(NAMES)
def test_host_lists_survive_folding_and_expanding(names: list[str]) -> None:
    assert sorted(expand_hosts(fold(tuple(names)))) == sorted(names)


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), st.integers(0, 99)))
def test_gpus_survive_being_written_as_gres(gpus: dict[str, int]) -> None:
    written = ",".join(f"gpu:{kind}:{count}(IDX:0,2-3)" for kind, count in gpus.items())
    assert parse_gpus(written + ",shard:4" if written else "(null)") == gpus


@given(st.integers(1, 2**33))
def test_times_survive_being_written(at_s: int) -> None:
    assert parse_time_s(str(at_s)) == at_s


@given(st.integers(0, 400), st.integers(0, 86399))
def test_durations_survive_being_written(days: int, seconds: int) -> None:
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    assert parse_duration_s(f"{days}-{clock}" if days else clock) == days * 86400 + seconds


@given(st.integers(0, 255), st.integers(0, 64))
def test_both_writings_of_an_exit_code_agree(code: int, signal: int) -> None:
    assert parse_exit(f"{code}:{signal}") == parse_exit(str(code << 8 | signal)) == (code, signal)


@given(st.sampled_from(sorted(FREE)), st.one_of(st.binary(), HOSTILE))
def test_a_users_text_changes_no_other_field_and_no_other_job(
    field: str, value: str | bytes
) -> None:
    before, after = squeue_record(JobID="1", Name="a"), squeue_record(JobID="3", Name="c")
    middle = {"JobID": "2", "Name": "b", "Comment": "fed:5:1", "Account": "x", "Reason": "y"}
    plain = parse_jobs(before + squeue_record(**middle) + after)
    hostile = parse_jobs(before + squeue_record(**{**middle, field: value}) + after)
    assert hostile.problems == ()
    assert hostile.records[0] == plain.records[0]
    assert hostile.records[2] == plain.records[2]
    for name in plain.records[1].__slots__:
        if name != field.lower():
            assert getattr(hostile.records[1], name) == getattr(plain.records[1], name)


@given(HOSTILE)
def test_a_users_text_never_changes_what_a_job_is_said_to_hold(text: str) -> None:
    true = {"n1": NodeShare(gpus=1, cpus=1)}
    dump = job_line(5, name=text) + job_line(6)
    layouts, refused = parse_layouts(dump)
    assert layouts.get(5, true) == true
    assert layouts.get(6, true) == true
    assert {5, 6} <= set(layouts) | set(refused)
    try:
        assert parse_layout(job_line(5, name=text), 5) == true
    except ValueError:
        assert "JOB_GRES" in text or "MinCPUsNode" in text


@given(HOSTILE)
def test_an_admins_reason_changes_no_other_field_of_its_node(text: str) -> None:
    reason = text.replace("\n", " ")
    plain = parse_nodes(node_line("n1"))
    assert parse_nodes(node_line("n1", end=f" Reason={reason} [root@1]")) == plain


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["op", "argv", "args", "script", "job_id"]), _json))
def test_the_helper_answers_every_odd_request_with_a_refusal(request_: object) -> None:
    assert site_exec.answer_to(json.dumps(request_).encode())["exit_status"] == site_exec.USAGE


@given(HOSTILE.filter(lambda text: text != ":"))
def test_no_argv_item_but_a_long_option_passes_the_helper(item: str) -> None:
    if item.startswith("--"):
        return
    with pytest.raises(site_exec.Refused):
        site_exec.check_argv(["--comment=fed:1:1", item])
