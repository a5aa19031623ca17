"""Options are read as sbatch reads them."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from federator.errors import InvalidRequest
from federator.model.submission import Option
from federator.slurm.options.options import (
    MAX_SCRIPT_BYTES,
    UsageError,
    check_script,
    parse_command_line,
    parse_environment,
    parse_script,
    resolve,
    split_client,
)


def pairs(options: tuple[Option, ...]) -> list[tuple[str, str | None]]:
    return [(option.name, option.value) for option in options]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-N2"], [("nodes", "2")]),
        (["-N", "2"], [("nodes", "2")]),
        (["--nodes=2"], [("nodes", "2")]),
        (["--nodes", "2"], [("nodes", "2")]),
        (["-sON2"], [("oversubscribe", None), ("overcommit", None), ("nodes", "2")]),
        (["--part=gpu"], [("partition", "gpu")]),
        (["--gpus-per-nod=8"], [("gpus-per-node", "8")]),  # an unambiguous prefix, as for getopt
        (["--j=a"], [("job-name", "a")]),  # as for sbatch, which has no --json
        (["--js"], [("json", None)]),
        (["--fed-pri=5"], [("fed-priority", "5")]),
        (["--fed-priority", "5"], [("fed-priority", "5")]),
        (["--nice", "-N2"], [("nice", None), ("nodes", "2")]),
        (["--nice=5"], [("nice", "5")]),
        (["--exclusive"], [("exclusive", None)]),
        (["--exclusive=user"], [("exclusive", "user")]),
        (["-koff"], [("no-kill", "off")]),
        (["--comment="], [("comment", "")]),
        (["-J", "-x"], [("job-name", "-x")]),
        (["--tasks-per-node=4"], [("ntasks-per-node", "4")]),
        (["--mem", "1G"], [("mem", "1G")]),
    ],
)
def test_command_line_is_read_like_getopt_long(
    words: list[str], expected: list[tuple[str, str | None]]
) -> None:
    assert pairs(parse_command_line(words).groups[0]) == expected


def test_options_after_the_script_are_its_arguments() -> None:
    line = parse_command_line(["-N1", "a.sh", "-N2", ":", "x"])
    assert pairs(line.groups[0]) == [("nodes", "1")]
    assert line.operands == ("a.sh", "-N2", ":", "x")


def test_two_dashes_end_the_options() -> None:
    assert parse_command_line(["-N1", "--", "-n"]).operands == ("-n",)


def test_colons_separate_het_components() -> None:
    line = parse_command_line(["-N1", ":", "-N2", "a.sh"])
    assert [pairs(group) for group in line.groups] == [[("nodes", "1")], [("nodes", "2")]]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--gpu-per-node=8"], "unrecognized option '--gpu-per-node=8'"),
        (["--gpus-per=8"], "option '--gpus-per' is ambiguous; possibilities: '--gpus-per-node'"),
        (["--contiguous=3"], "option '--contiguous' doesn't allow an argument"),
        (["--nodes"], "option '--nodes' requires an argument"),
        (["-N"], "option requires an argument -- 'N'"),
        (["-Z"], "invalid option -- 'Z'"),
    ],
)
def test_bad_options_are_refused_in_the_words_of_getopt(words: list[str], complaint: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_command_line(words)
    assert str(refused.value).startswith(complaint)


def test_options_of_a_site_pass_when_they_are_named() -> None:
    line = parse_command_line(["--fed-ckpt=x", "--fast"], frozenset({"fed-ckpt", "fast"}))
    assert pairs(line.groups[0]) == [("fed-ckpt", "x"), ("fast", None)]


@pytest.mark.parametrize(
    ("directive", "expected"),
    [
        ("#SBATCH -J a#b", [("job-name", "a")]),
        ('#SBATCH -J "a#b" -n "2"', [("job-name", "a#b"), ("ntasks", "2")]),
        ("#SBATCH --job-name=a # why", [("job-name", "a")]),
        ("#SBATCH --job-name=a\"b c\"d'e f'", [("job-name", "ab cde f")]),
        (r"#SBATCH --job-name='a\'b'", [("job-name", "a'b")]),
        (r"#SBATCH -J a\ b", [("job-name", "a b")]),
        ("#SBATCH -J a\\", [("job-name", "a\\")]),
        ("#SBATCH-N2", [("nodes", "2")]),
        ("#SBATCH --fed-priority=5 --nice", [("fed-priority", "5"), ("nice", None)]),
        ("#SBATCH -J a:b", [("job-name", "a:b")]),
        (" #SBATCH -N2", []),
        ("##SBATCH -N2", []),
        ("#sbatch -N2", []),
        ("# x\n\n  \n#SBATCH -N2\necho\n#SBATCH -N3", [("nodes", "2")]),
        ("#SBATCH", []),
    ],
)
def test_directives_are_read_like_sbatch(
    directive: str, expected: list[tuple[str, str | None]]
) -> None:
    assert [pairs(c) for c in parse_script(f"#!/bin/sh\n{directive}\necho\n")] == [expected]


@pytest.mark.parametrize(
    ("directive", "complaint"),
    [
        ('#SBATCH -J "a', 's: line 2: Unmatched `"` in [ -J "a]'),
        ("#SBATCH -N1 : -N2", "s: line 2: Unexpected `:` in [ -N1 : -N2]"),
        ("#SBATCH foo -J x", "Invalid directive found in batch script: foo"),
        ("#SBATCHX -N2", "Invalid directive found in batch script: X"),
        ("#SLURM -N2", "s: line 2: Change from #SLURM to #SBATCH"),
        ('#SBATCH -J ""', "option requires an argument -- 'J'"),
        ("#SBATCH --foo=1", "unrecognized option '--foo=1'"),
    ],
)
def test_bad_directives_are_refused(directive: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_script(f"#!/bin/sh\n{directive}\n", "s")
    assert str(refused.value).startswith(complaint)


@pytest.mark.parametrize("word", ["hetjob", "packjob"])
def test_hetjob_splits_the_script_and_ends_its_line(word: str) -> None:
    script = f"#!/bin/sh\n#SBATCH -N1\n#SBATCH -n4 {word} -N3\n#SBATCH -N2\n"
    assert [pairs(c) for c in parse_script(script)] == [
        [("nodes", "1"), ("ntasks", "4")],
        [("nodes", "2")],
    ]


def test_environment_flags_follow_the_rule_of_the_manual() -> None:
    assert pairs(parse_environment({"SBATCH_EXCLUSIVE": "", "SBATCH_REQUEUE": "yes"})) == [
        ("exclusive", None),
        ("requeue", None),
    ]
    assert pairs(parse_environment({"SBATCH_OVERCOMMIT": "no", "SBATCH_NO_REQUEUE": "0"})) == []
    assert pairs(parse_environment({"SBATCH_EXCLUSIVE": "user"})) == [("exclusive", "user")]
    assert pairs(parse_environment({"SBATCH_TIMELIMIT": "7"})) == [("time", "7")]


def resolved(
    words: str = "", environment: dict[str, str] | None = None, script: str = ""
) -> list[dict[str, str | None]]:
    components = resolve(
        parse_command_line(words.split()).groups,
        parse_environment(environment or {}),
        parse_script(f"#!/bin/sh\n{script}"),
    )
    return [dict(pairs(component)) for component in components]


def test_command_line_beats_environment_beats_script() -> None:
    script, environment = "#SBATCH -t 1 -N1 -p a\n", {"SBATCH_TIMELIMIT": "2", "SBATCH_QOS": "q"}
    assert resolved("-t 3", environment, script) == [
        {"nodes": "1", "partition": "a", "qos": "q", "time": "3"}
    ]
    assert resolved("", environment, script)[0]["time"] == "2"


def test_a_demotion_follows_the_order_of_force_of_all_options() -> None:
    script, environment = "#SBATCH --fed-priority=3\n", {"SBATCH_FED_PRIORITY": "5"}
    assert resolved("", {}, script) == [{"fed-priority": "3"}]
    assert resolved("", environment, script) == [{"fed-priority": "5"}]
    assert resolved("--fed-priority=4", environment, script) == [{"fed-priority": "4"}]


HET = "#SBATCH -n2 -J zero\n#SBATCH hetjob\n#SBATCH -n1 -J one --comment=c1\n"


def test_one_group_of_the_command_line_holds_for_every_component() -> None:
    assert [c["ntasks"] for c in resolved("-n3", None, HET)] == ["3", "3"]


def test_groups_of_the_command_line_match_components_and_the_last_goes_on() -> None:
    assert [c["ntasks"] for c in resolved("-n3 : -n4", None, HET)] == ["3", "4"]
    assert [c["ntasks"] for c in resolved(": -n4", None, HET)] == ["2", "4"]
    three = HET + "#SBATCH hetjob\n#SBATCH -J c\n"
    assert [c["ntasks"] for c in resolved("-n1 : -n2", None, three)] == ["1", "2", "2"]


def test_components_beyond_the_script_inherit_what_sbatch_carries_over() -> None:
    third = resolved(": -n4 : -n1", None, HET)[2]
    assert third == {"ntasks": "1", "job-name": "one", "comment": "c1"}


def test_environment_holds_for_every_component() -> None:
    environment = {"SBATCH_TIMELIMIT": "7"}
    assert [c["time"] for c in resolved("-t 5 : -n1", environment, HET)] == ["5", "7"]


def test_memory_from_the_environment_gives_way_to_another_kind_from_the_script() -> None:
    assert resolved("", {"SBATCH_MEM_PER_CPU": "3"}, "#SBATCH --mem=5\n") == [{"mem": "5"}]


def test_requeue_and_no_requeue_undo_each_other() -> None:
    assert resolved("--no-requeue", None, "#SBATCH --requeue\n") == [{"no-requeue": None}]


def test_mail_types_add_up_and_all_else_is_replaced() -> None:
    (component,) = resolve(
        parse_command_line(["--mail-type=END", "--mail-type=FAIL", "-N1", "-N2"]).groups, (), ()
    )
    assert pairs(component) == [("mail-type", "END"), ("mail-type", "FAIL"), ("nodes", "2")]


def test_client_options_are_taken_out() -> None:
    components = resolve(parse_command_line(["--parsable", "-N1", "-W"]).groups, (), ())
    client, rest = split_client(components)
    assert pairs(client) == [("parsable", None), ("wait", None)]
    assert [pairs(c) for c in rest] == [[("nodes", "1")]]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "Batch script is empty!"),
        (b" \n\t\n", "Batch script contains only whitespace!"),
        (b"echo hi\n", "This does not look like a batch script.  The first line must start with"),
        (b"\x7fELF\0\0", "This does not look like a batch script."),
        (b"#!/bin/sh\n\0\n", "The Slurm controller does not allow scripts that contain the NULL"),
        (b"#!/bin/sh\r\n", "Batch script contains DOS line breaks (\\r\\n) instead of expected"),
        (b"#!/bin/sh\n" + b"x" * MAX_SCRIPT_BYTES, "Script s is too big, read 4194314 > 4194304"),
    ],
)
def test_what_is_no_batch_script_is_refused_in_sbatchs_words(
    content: bytes, complaint: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_script(content, "s")
    assert str(refused.value).startswith(complaint)


def test_bytes_that_are_not_utf8_survive() -> None:
    content = b"#!/bin/sh\necho \xff\n"
    assert check_script(content).encode("utf-8", "surrogateescape") == content


@pytest.mark.parametrize(
    "line", ["#SBATCH -J " + "a" * 2**20, "#" * 2**20, " " * 2**20, "#SBATCH " + '"a" ' * 2**18]
)
def test_lines_of_a_megabyte_are_read_in_linear_time(line: str) -> None:
    started = time.process_time()
    with suppress(InvalidRequest):
        parse_script(f"#!/bin/sh\n{line}\n{line}\necho\n")
    assert time.process_time() - started < 5.0
