"""The federation's settings and a site's own make one slurm.conf, and come apart again."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.site_installer import write
from federator.site_installer.slurm_conf import snippet
from federator.slurm.generations import SUPPORTED_SLURM

SHELL = Path(write.__file__).parent / "shell"
SNIPPET = snippet("24.11", ["fed"], "g[1-8]")
KEY = re.compile(r"^\s*([A-Za-z0-9_]+)\s*=", re.MULTILINE)


def merged(conf: str, text: str = SNIPPET) -> tuple[str, str, str]:
    """What slurm-conf.awk makes of a site's slurm.conf: it, ours, and what is left to a person."""
    with tempfile.TemporaryDirectory() as where:
        at = Path(where)
        for name, content in (("site", conf), ("snippet", text), ("by_hand", ""), ("theirs", "")):
            (at / name).write_text(content)
        subprocess.run(
            [
                "awk",
                *(f"-v{name}={at / name}" for name in ("ours", "theirs", "by_hand")),
                "-f",
                str(SHELL / "slurm-conf.awk"),
                str(at / "snippet"),
                str(at / "site"),
            ],
            check=True,
        )
        theirs, ours, by_hand = ((at / n).read_text() for n in ("theirs", "ours", "by_hand"))
        return theirs, ours, by_hand


def restored(theirs: str) -> str:
    """What leave.sh makes of it."""
    done = subprocess.run(
        ["sed", "-e", r"/^Include federator\.conf$/d", "-e", "s/^#federator# //"],
        input=theirs,
        text=True,
        capture_output=True,
        check=True,
    )
    return done.stdout


def value(text: str, key: str) -> list[str]:
    return re.findall(rf"^(?:{key})=(.*)$", text, re.MULTILINE)


def test_a_site_that_sets_nothing_gets_all_of_it() -> None:
    theirs, ours, by_hand = merged("ClusterName=x\n")
    assert theirs == "ClusterName=x\nInclude federator.conf\n"
    assert ours == SNIPPET
    assert by_hand == ""


def test_lists_are_joined_and_the_sites_line_stays_behind_a_mark() -> None:
    theirs, ours, _ = merged("SchedulerParameters=bf_interval=2\njobsubmitplugins = throttle\n")
    assert value(ours, "SchedulerParameters") == ["bf_interval=2,nohold_on_prolog_fail"]
    assert value(ours, "JobSubmitPlugins") == ["throttle,lua"]
    assert theirs.startswith(
        "#federator# SchedulerParameters=bf_interval=2\n#federator# jobsubmitplugins = throttle\n"
    )


def test_what_a_site_has_already_is_left_alone() -> None:
    conf = (
        "JobSubmitPlugins=lua,throttle\nPrologFlags=Contain,alloc,DeferBatch\n"
        "Prolog=/etc/slurm/prolog.d/*\n"
    )
    theirs, ours, by_hand = merged(conf)
    assert theirs == f"{conf}Include federator.conf\n"
    assert not value(ours, "JobSubmitPlugins|PrologFlags|Prolog")
    assert by_hand == ""


def test_a_sites_folder_of_prologs_stays_and_its_single_program_gives_way_to_a_folder() -> None:
    theirs, ours, _ = merged("Prolog=/site/prolog.d/*\nEpilog=/site/epilog\n")
    assert not value(ours, "Prolog")
    assert value(ours, "Epilog") == ["/etc/slurm/epilog.d/*"]
    assert theirs == (
        "Prolog=/site/prolog.d/*\n#federator# Epilog=/site/epilog\nInclude federator.conf\n"
    )


def test_a_partition_that_is_there_is_not_made_twice() -> None:
    _, ours, _ = merged("PartitionName=fed Nodes=ALL\n")
    assert not value(ours, "PartitionName")


@pytest.mark.parametrize(
    "conf",
    [
        "SchedulerParameters=bf_interval=2,\\\nbf_window=10\n",
        "PrologFlags=Contain ClusterName=x\n",
        "JobSubmitPlugins=throttle\nJobSubmitPlugins=lua2\n",
    ],
)
def test_lines_that_are_not_plain_are_left_to_a_person(conf: str) -> None:
    theirs, _, by_hand = merged(conf)
    assert restored(theirs) == conf
    assert "#federator#" not in theirs
    assert by_hand.startswith("set in slurm.conf: ")


def test_other_included_files_are_pointed_at() -> None:
    _, _, by_hand = merged("Include /etc/slurm/nodes.conf\n")
    assert "/etc/slurm/nodes.conf" in by_hand


_KEYS = st.sampled_from(
    [
        "PrologFlags",
        "prologflags",
        "Prolog",
        "Epilog",
        "JobSubmitPlugins",
        "SchedulerParameters",
        "ClusterName",
        "KillWait",
    ]
)
_VALUES = st.sampled_from(
    ["lua", "Alloc", "Contain,Serial", "/x/y", "/x/y.d/*", "bf_interval=2", "", "a  # why", "a \\"]
)
_LINES = st.one_of(
    st.builds("{}={}".format, _KEYS, _VALUES),
    st.sampled_from(
        [
            "",
            "# a comment",
            "NodeName=n[1-2] CPUs=2",
            "PartitionName=batch Nodes=n1",
            "PartitionName=fed Nodes=n1",
        ]
    ),
)


@given(st.lists(_LINES, max_size=12))
@settings(max_examples=60, deadline=None)
def test_law_leaving_gives_back_what_was_and_joining_twice_is_joining(
    lines: list[str],
) -> None:
    conf = "".join(f"{line}\n" for line in lines)
    theirs, ours, _ = merged(conf)
    assert restored(theirs) == conf
    assert merged(theirs)[:2] == (theirs, ours)
    # No key that the site set once is set twice afterwards: Slurm would complain at every command.
    once = Counter(key.lower() for key in KEY.findall(conf))
    both = Counter(key.lower() for key in KEY.findall(theirs + ours))
    lists = {"partitionname", "nodename"}
    assert all(both[key] == max(once[key], 1) for key in both.keys() - lists)


@pytest.mark.parametrize("generation", SUPPORTED_SLURM)
def test_preemption_is_spelt_as_the_generation_knows_it_and_only_recommended(
    generation: str,
) -> None:
    text = snippet(generation, ["fed"], "g1")
    assert ("#PreemptParameters=" in text) == (generation != "22.05")  # breaks 22.05 altogether
    assert not value(text, "PreemptParameters|SlurmctldParameters|KillWait|PreemptMode")
    assert value(text, "PrologFlags") == ["Alloc,DeferBatch"]


def test_without_nodes_the_partition_is_for_the_site_to_write() -> None:
    text = snippet("24.11", ["fed", "fed2"], None)
    assert not value(text, "PartitionName")
    assert len(value(text, "#PartitionName")) == 2


def test_three_lines_take_in_the_module_and_can_be_taken_out() -> None:
    own = (
        "-- ours\nfunction slurm_job_submit(desc, parts, uid)\n  return slurm.SUCCESS\nend\n"
        "function slurm_job_modify(desc, rec, parts, uid)\n  return slurm.SUCCESS\nend\n"
    )
    argv = ["awk", "-vmark=-- federator", "-vmodule=/m.lua", "-f", str(SHELL / "job-submit.awk")]
    put_in = subprocess.run(argv, input=own, text=True, capture_output=True, check=True).stdout
    lines = put_in.splitlines()
    assert lines[0] == 'local _, federator = pcall(dofile, "/m.lua") -- federator'
    guard = 'if type(federator) == "table" then local v = federator.'
    assert lines[3].startswith(f"{guard}job_submit(desc, parts, uid) ")
    assert lines[7].startswith(f"{guard}job_modify(desc, rec, parts, uid) ")
    assert "".join(f"{line}\n" for line in lines if not line.endswith("-- federator")) == own
