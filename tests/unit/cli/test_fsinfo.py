"""fsinfo with sinfo's options: nodes in sinfo's rows, limits of partitions, reasons."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from federator.cli import fsinfo, node_table
from federator.cli.node_columns import COLUMNS
from federator.cli.text import clock
from federator.errors import SiteUnavailable
from federator.model.node_shape import NodeShape
from federator.model.partition import PartitionSummary
from federator.model.window import SiteWindow
from federator.wire.client_protocol import (
    Call,
    ErrorReply,
    NodesCall,
    NodesReply,
    QueueCall,
    QueueReply,
    SiteNodesRow,
    SiteRow,
    SitesCall,
    SitesReply,
)
from federator.wire.node_rows import NodeRow, PartitionRow, SiteNodes, packed_nodes
from federator.wire.replies import Reply
from federator.wire.status_rows import DrainRow, LicenseRow
from tests.fakes.json_shape import differences, recorded

AT_S = 1_795_317_338.0


def node(name: str, state: str = "idle", **changes: Any) -> NodeRow:
    base: dict[str, Any] = {
        "name": name,
        "state": state,
        "partitions": ("gpu",),
        "cpus": 64,
        "mem_mib": 512_000,
        "gpu_type": "a100",
        "gpus": 8,
        "features": ("nvlink",),
        "shape": NodeShape(1024, 2, 32, 1),
        "weight": 5,
    }
    return NodeRow(**{**base, **changes})


ALPINE = SiteNodes(
    at_s=0.0,
    nodes=(
        node("a1"),
        node("a2"),
        node("a3", "mixed", cpus_alloc=16, gpus_alloc=2),
        node("a4", "allocated", cpus_alloc=64, gpus_alloc=8),
        node("a5", "drained", reason="fan broken"),
        node("a6", "drained", reason="fan broken", cpus_alloc=8),
        node("a7", "down", reason="gone", reason_by="root", reason_at_s=AT_S),
        node("c1", gpus=0, gpu_type="", features=(), cpus=128, partitions=("cpu",)),
    ),
    partitions=(
        PartitionRow(name="gpu", is_default=True, max_time_s=86_400.0, preempt_mode="REQUEUE"),
        PartitionRow(name="cpu", up=False, max_nodes=4, default_time_s=3600.0),
        PartitionRow(name="bare"),
    ),
)
CEDAR = SiteNodes(
    at_s=0.0,
    nodes=(node("a1", partitions=("gpu",), gpu_type="h100", gres={"nic": 2}),),
    partitions=(PartitionRow(name="gpu", is_default=True, max_time_s=86_400.0),),
)
LISTED = NodesReply(
    sites=(
        SiteNodesRow(
            site="alpine", region="west", slurm_version="22.05.8", nodes=packed_nodes(ALPINE)
        ),
        SiteNodesRow(
            site="cedar", region="east", slurm_version="26.05.5", nodes=packed_nodes(CEDAR)
        ),
    )
)
SUMMED = SitesReply(
    licenses=(LicenseRow(name="flexlm", total=4, used=3),),
    sites=(
        SiteRow(
            name="alpine",
            region="west",
            up=True,
            slurm_version="22.05.8",
            partitions=(
                PartitionSummary(partition="gpu", gpu_type="a100", nodes_idle=2, cpus=128),
                PartitionSummary(partition="cpu", gpu_type="", nodes_idle=1, cpus=128),
            ),
        ),
        SiteRow(name="cedar", region="east", up=False),
    ),
)


class Done(NamedTuple):
    """How a command ended, what it printed, and what it asked for."""

    status: int
    lines: list[str]
    err: str
    asked: list[Call]

    @property
    def words(self) -> list[list[str]]:
        """The words of each line."""
        return [line.split() for line in self.lines]


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run fsinfo against a daemon."""

    def command(words: list[str], listed: Reply = LISTED, name: str = "fsinfo") -> Done:
        asked: list[Call] = []

        def call(message: Call) -> Reply:
            asked.append(message)
            if isinstance(message, QueueCall):
                known = {"alpine", "cedar", "all", "grid"}.issuperset(message.clusters)
                return QueueReply(rows=(), now_s=0.0) if known else ErrorReply(message="No cluster")
            return SUMMED if isinstance(message, SitesCall) else listed

        monkeypatch.setattr(fsinfo, "call", call)
        monkeypatch.setattr(node_table, "call", call)
        monkeypatch.setattr(sys, "argv", [name, *words])
        with pytest.raises(SystemExit) as ended:
            fsinfo.main()
        told = capsys.readouterr()
        return Done(int(ended.value.code or 0), told.out.splitlines(), told.err, asked)

    return command


# ---- the plain table ----


def test_a_site_s_own_reservations_are_shown_with_their_times() -> None:
    one = SiteWindow(
        name="m", starts_at_s=7_200.0, ends_at_s=10_800.0, nodes=("a1", "a2"), maintenance=True
    )
    part = structs.replace(one, name="class", nodes=("a3",), cpus={"a3": 4}, again_s=86_400.0)
    part = structs.replace(part, maintenance=False)
    lines = fsinfo._lines(structs.replace(SUMMED.sites[0], windows=(one, part)))
    begins, ends = (time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(t)) for t in (7_200, 10_800))
    assert lines[-2:] == [
        f"  maintenance m: a[1-2] from {begins} until {ends}",
        f"  reservation class: part of a3 from {begins} until {ends}, and again",
    ]


def test_the_mode_of_a_site_is_shown_below_it_unless_it_is_enforced() -> None:
    for row in SUMMED.sites:
        assert not any("mode" in line for line in fsinfo._lines(row))
        lines = fsinfo._lines(structs.replace(row, mode="shadow"))
        assert lines[-1] == "  mode shadow: no job is started there"


def test_a_drained_site_is_shown_with_who_drained_it_until_when_and_why() -> None:
    drains = (
        DrainRow(reason="new switch", by="root", since_s=1.0, deadline_s=86_401.0, left=2),
        DrainRow(nodes=("a1", "a2"), cordon=True, by="ann", since_s=1.0, left=1),
    )
    row = structs.replace(SUMMED.sites[0], drains=drains)
    lines = fsinfo._lines(row)
    assert [line.split()[2] for line in lines[:2]] == ["drng", "drng"]
    until = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(86_401))
    assert lines[2].endswith(f"by root, empty by {until}; 2 workloads left: new switch")
    assert lines[3].startswith("  a[1-2] cordoned since ")
    assert lines[3].endswith(" by ann; 1 workload left: no reason given")
    empty = structs.replace(row, drains=(structs.replace(drains[0], left=0),))
    assert fsinfo._lines(empty)[0].split()[2] == "drain"
    held = structs.replace(row, drains=(structs.replace(drains[0], cordon=True),))
    assert fsinfo._lines(held)[0].split()[2] == "cord"
    assert fsinfo._lines(structs.replace(row, drains=drains[1:]))[0].split()[2] == "up"
    assert len(fsinfo._lines(structs.replace(row, up=False))) == 3
    lost = DrainRow(reason="fire", by="root", since_s=1.0, left=2, written_off=True)
    lines = fsinfo._lines(structs.replace(row, drains=(lost,)))
    assert lines[0].split()[2] == "gone"
    assert lines[-1].startswith("  written off since ")
    assert lines[-1].endswith(" by root; 2 attempts to be ended there: fire")


def test_slow_nodes_are_shown_with_why_no_gang_starts_there() -> None:
    slow = DrainRow(
        nodes=("a1", "a2"), cordon=True, gangs=True, since_s=1.0, until_s=86_401.0, reason="steps"
    )
    lines = fsinfo._lines(structs.replace(SUMMED.sites[0], drains=(slow,)))
    assert lines[0].split()[2] == "up"
    assert lines[-1].startswith("  a[1-2] limping since ")
    assert lines[-1].endswith(", jobs of several nodes do not start there: steps")


def test_the_plain_table_asks_no_site(run: Run) -> None:
    done = run([])
    assert done.asked == [SitesCall()]
    assert [line[0] for line in done.words] == ["SITE", "alpine", "alpine", "cedar"]
    assert run(["-a", "--local", "--hide", "--noconvert", "-v", "-F"]).lines == done.lines


def test_the_plain_table_can_be_of_some_sites_and_partitions(run: Run) -> None:
    assert [line[4] for line in run(["-h", "-p", "cpu", "-M", "alpine"]).words] == ["cpu"]
    assert len(run(["-h", "-M", "grid"]).lines) == 3
    shown = json.loads(run(["--json", "-M", "alpine", "-p", "gpu"]).lines[0])
    assert shown["licenses"] == [{"name": "flexlm", "total": 4, "used": 3}]  # of no one site
    (site,) = shown["sites"]
    assert [p["partition"] for p in site["partitions"]] == ["gpu"]


# ---- rows ----


def test_partitions_and_states_have_rows_as_with_sinfo(run: Run) -> None:
    done = run(["-l"])
    assert done.words[1] == [
        "PARTITION",
        "CLUSTER",
        "AVAIL",
        "TIMELIMIT",
        "JOB_SIZE",
        "ROOT",
        "OVERSUBS",
        "GROUPS",
        "NODES",
        "STATE",
        "RESERVATION",
        "NODELIST",
    ]
    rows = [(w[0], w[1], w[2], w[3], w[8], w[9], *w[10:]) for w in done.words[2:]]
    assert rows == [
        ("gpu*", "alpine", "up", "1-00:00:00", "1", "draining", "a6"),
        ("gpu*", "alpine", "up", "1-00:00:00", "1", "drained", "a5"),
        ("gpu*", "alpine", "up", "1-00:00:00", "1", "mixed", "a3"),
        ("gpu*", "alpine", "up", "1-00:00:00", "1", "allocated", "a4"),
        ("gpu*", "alpine", "up", "1-00:00:00", "2", "idle", "a[1-2]"),
        ("gpu*", "alpine", "up", "1-00:00:00", "1", "down", "a7"),
        ("cpu", "alpine", "down", "infinite", "1", "idle", "c1"),
        ("bare", "alpine", "up", "infinite", "0", "n/a"),
        ("gpu*", "cedar", "up", "1-00:00:00", "1", "idle", "a1"),
    ]


@pytest.mark.parametrize(
    ("words", "heading"),
    [
        ([], "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST"),
        (["-s"], "PARTITION AVAIL TIMELIMIT NODES(A/I/O/T) NODELIST"),
        (["-N"], "NODELIST NODES PARTITION STATE"),
        (["-R"], "REASON USER TIMESTAMP NODELIST"),
    ],
)
def test_called_as_sinfo_it_has_sinfos_columns_alone(
    run: Run, words: list[str], heading: str
) -> None:
    """Scripts count columns; rows are then of the whole fleet."""
    done = run(words, name="sinfo")
    assert done.words[0] == heading.split()
    assert done.asked == [NodesCall()]


def test_a_summary_has_a_row_for_each_partition(run: Run) -> None:
    done = run(["-s", "-h"])
    assert done.words == [
        ["gpu*", "alpine", "up", "1-00:00:00", "3/2/2/7", "a[1-7]"],
        ["cpu", "alpine", "down", "infinite", "0/1/0/1", "c1"],
        ["bare", "alpine", "up", "infinite", "0/0/0/0"],
        ["gpu*", "cedar", "up", "1-00:00:00", "0/1/0/1", "a1"],
    ]


def test_each_node_can_have_its_row(run: Run) -> None:
    done = run(["-N"])
    assert done.words[0] == ["NODELIST", "NODES", "PARTITION", "CLUSTER", "STATE"]
    assert [(w[0], w[3], w[4]) for w in done.words[1:4]] == [
        ("a1", "alpine", "idle"),
        ("a1", "cedar", "idle"),
        ("a2", "alpine", "idle"),
    ]
    assert len(done.lines) == 10
    long = run(["-N", "-l"]).words[1:]
    assert long[0] == [
        *("NODELIST", "NODES", "PARTITION", "CLUSTER", "STATE", "CPUS", "S:C:T", "MEMORY"),
        *("TMP_DISK", "WEIGHT", "AVAIL_FE", "REASON"),
    ]  # sinfo's, and the site
    assert long[1][4:] == ["idle", "64", "2:32:1", "512000", "1024", "5", "nvlink", "none"]
    assert long[6][-2:] == ["fan", "broken"]


def test_nodes_of_one_row_may_be_built_differently(run: Run) -> None:
    asked = ["-h", "-o", "%z|%X|%Y|%Z|%d|%w"]
    other = node("a2", shape=NodeShape(512, 1, 32, 2), weight=7)
    listed = SiteNodes(at_s=0.0, nodes=(node("a1"), other), partitions=ALPINE.partitions[:1])
    reply = NodesReply(sites=(SiteNodesRow(site="alpine", nodes=packed_nodes(listed)),))
    assert run(asked, reply).lines == ["1+:32:1+|1+|32|1+|512+|5+"]
    exact = run(["-e", *asked], reply).lines
    assert sorted(exact) == ["1:32:2|1|32|2|512|7", "2:32:1|2|32|1|1024|5"]


def test_of_an_agent_a_release_older_it_is_not_known(run: Run) -> None:
    old = structs.replace(
        ALPINE,
        nodes=(node("a1", shape=None, weight=None),),
        partitions=(PartitionRow(name="gpu"),),
    )
    reply = NodesReply(sites=(SiteNodesRow(site="alpine", nodes=packed_nodes(old)),))
    assert run(["-h", "-o", "%z|%X|%d|%w|%r|%h|%g"], reply).lines == ["N/A|N/A|N/A|N/A|N/A|N/A|N/A"]


def test_who_may_use_a_partition_and_how_is_shown(run: Run) -> None:
    limited = PartitionRow(name="gpu", root_only=True, over_subscribe="FORCE:4", groups="a,b")
    usual = PartitionRow(name="cpu", root_only=False, over_subscribe="NO", groups="")
    listed = structs.replace(ALPINE, partitions=(limited, usual))
    reply = NodesReply(sites=(SiteNodesRow(site="alpine", nodes=packed_nodes(listed)),))
    lines = run(["-h", "-o", "%R|%r|%h|%g"], reply).lines
    assert lines == ["gpu|yes|FORCE:4|a,b", "cpu|no|NO|all"]


def test_a_site_that_there_is_not_is_refused(run: Run) -> None:
    done = run(["-M", "nosuch"])
    assert (done.status, done.lines) == (1, [])
    assert done.err == "fsinfo: error: No cluster\n"
    assert done.asked[1:] == [QueueCall(clusters=("nosuch",), states=("none",), brief=True)]
    assert len(run(["-h", "-M", "all"]).lines) == len(run(["-h", "-M", "grid"]).lines) == 3


def test_reasons_are_those_of_nodes_out_of_use(run: Run) -> None:
    done = run(["-R"])
    assert done.words == [
        ["REASON", "USER", "TIMESTAMP", "CLUSTER", "NODELIST"],
        ["fan", "broken", "Unknown", "Unknown", "alpine", "a[5-6]"],
        ["gone", "root", clock(AT_S), "alpine", "a7"],
    ]


def test_a_node_in_two_partitions_counts_once_where_none_is_shown(run: Run) -> None:
    twice = SiteNodes(
        at_s=0.0,
        nodes=(node("a1", partitions=("gpu", "all")),),
        partitions=(PartitionRow(name="gpu"), PartitionRow(name="all")),
    )
    reply = NodesReply(sites=(SiteNodesRow(site="alpine", nodes=packed_nodes(twice)),))
    assert run(["-h", "-o", "%F"], reply).lines == ["0/1/0/1"]
    assert run(["-h", "-o", "%R %F"], reply).lines == ["gpu 0/1/0/1", "all 0/1/0/1"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("%F/%C", ["3/4/2/9/88/368/184/640"]),  # as Open OnDemand asks: the fleet in a row
        ("%P", ["gpu*", "cpu", "bare"]),
        (
            "%R|%l|%L|%s",
            [
                "gpu|1-00:00:00|n/a|1-infinite",
                "cpu|infinite|1:00:00|1-4",
                "bare|infinite|n/a|1-infinite",
            ],
        ),
        ("%G %D", ["gpu:a100:8 7", "(null) 1", "gpu:h100:8,nic:2 1"]),
        ("%f %A", ["nvlink 3/3", "(null) 0/1"]),
        ("%c %m", ["64+ 512000"]),
        ("%V %v", ["alpine 22.05.8", "cedar 26.05.5"]),
        ("%t %D", ["drng 1", "drain 1", "mix 1", "alloc 1", "idle 4", "down 1"]),
        ("%E|%D", ["none|6", "fan broken|2", "gone|1"]),
        ("%5P|%.8R", ["gpu* |     gpu", "cpu  |     cpu", "bare |    bare"]),
    ],
)
def test_columns_by_letter_show_what_sinfo_would(run: Run, text: str, lines: list[str]) -> None:
    assert sorted(run(["-h", "-o", text]).lines) == sorted(lines)


def test_columns_by_name_show_what_sinfo_would(run: Run) -> None:
    asked = "NodeHost:10,Gres:14,GresUsed:14,StateLong:"
    assert run(["-h", "-N", "-n", "a3", "-O", asked]).lines == [
        "a3        gpu:a100:8    gpu:a100:2    mixed"
    ]
    assert run(["-h", "-O", "Region:|,GPUsState:"]).lines == ["west|10/22/24/56", "east|0/8/0/8"]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_every_column_has_a_value_for_every_group(run: Run, column: Any) -> None:
    done = run(["-h", "-O", f"Partition:|,{column.name}:|"])
    assert done.status == 0
    assert all(line.count("|") == 2 for line in done.lines)


def test_amounts_tell_nodes_apart_only_when_asked(run: Run) -> None:
    assert run(["-h", "-o", "%c"]).lines == ["64+"]
    assert sorted(run(["-h", "-e", "-o", "%c"]).lines) == ["128", "64"]


# ---- reservations of a site's Slurm ----

KEPT = SiteNodes(
    at_s=0.0,
    nodes=(
        node("c1", "drained", reserved=True, maintenance=True),
        node("c2", "drained", reserved=True, maintenance=True, cpus_alloc=1),
        node("g1", "drained", maintenance=True, reason="x"),
        node("g2", "drained", reserved=True),
        node("g3"),
    ),
    partitions=(PartitionRow(name="gpu"),),
)
REAL = """\
c1|maint|maint|0/64/0/64|idle+maintenance+reserved
c2|mix$|mixed$|1/63/0/64|mixed+maintenance+reserved
g1|drain$|drained$|0/0/64/64|idle+drain+maintenance+reserved
g2|resv|reserved|0/64/0/64|idle+reserved
g3|idle|idle|0/64/0/64|idle
"""  # sinfo -N of 22.05, 24.11 and 26.05, with reservations of the flag MAINT and without


def kept() -> NodesReply:
    return NodesReply(sites=(SiteNodesRow(site="alpine", region="west", nodes=packed_nodes(KEPT)),))


def test_nodes_in_reservations_are_shown_as_sinfo_shows_them(run: Run) -> None:
    columns = "%n|%t|%T|%C"
    assert run(["-h", "-N", "-o", columns], kept()).lines == [
        line.rpartition("|")[0] for line in REAL.splitlines()
    ]
    complete = run(["-h", "-N", "-O", "StateComplete:40"], kept()).lines
    assert [line.strip() for line in complete] == [
        line.rpartition("|")[2] for line in REAL.splitlines()
    ]
    assert run(["-h", "-o", "%D %t %F"], kept()).lines == [
        *("1 drain$ 0/0/1/1", "1 mix$ 1/0/0/1", "1 maint 0/1/0/1", "1 resv 0/1/0/1"),
        "1 idle 0/1/0/1",
    ]


@pytest.mark.parametrize(
    ("state", "names"),
    [
        ("maint", ["c1", "c2", "g1"]),
        ("resv", ["c1", "c2", "g1", "g2"]),
        ("idle", ["c1", "g1", "g2", "g3"]),
        ("drain", ["g1"]),
        ("mix", ["c2"]),
        ("alloc", ["c2"]),
    ],
)
def test_nodes_in_reservations_are_chosen_as_sinfo_chooses_them(
    run: Run, state: str, names: list[str]
) -> None:
    assert run(["-h", "-N", "-o", "%n", "-t", state], kept()).lines == names


def test_json_of_slurm_has_the_flags_of_nodes_in_reservations(run: Run) -> None:
    answer = json.loads(run(["--json=slurm"], kept()).lines[0])
    found = {frozenset(row["node"]["state"]): row["cpus"]["idle"] for row in answer["sinfo"]}
    assert found[frozenset({"IDLE", "MAINTENANCE", "RESERVED"})] == 64
    assert found[frozenset({"IDLE", "DRAIN", "MAINTENANCE", "RESERVED"})] == 0


# ---- filters and order ----


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["-t", "idle"], ["a1", "a1", "a2", "a5", "c1"]),
        (["-t", "mix"], ["a3", "a6"]),
        (["-t", "alloc"], ["a3", "a4", "a6"]),
        (["-t", "DRAIN"], ["a5", "a6"]),
        (["-t", "drained"], ["a5"]),
        (["-t", "drng"], ["a6"]),
        (["-t", "down"], ["a7"]),
        (["-t", "~down"], ["a1", "a1", "a2", "a3", "a4", "a5", "a6", "c1"]),
        (["-t", "drain&mixed"], ["a6"]),
        (["-t", "maint,resv,powered_down"], []),
        (["-t", "all", "-p", "cpu"], ["c1"]),
        (["-d"], ["a7"]),
        (["-r", "-p", "gpu", "-n", "a[6-7]"], ["a6"]),
        (["-n", "a[1-2],c1"], ["a1", "a1", "a2", "c1"]),
        (["-p", "cpu,none"], ["c1"]),
    ],
)
def test_nodes_are_left_out_as_asked(run: Run, words: list[str], names: list[str]) -> None:
    assert run(["-h", "-N", "-o", "%n", *words]).lines == names


@pytest.mark.parametrize(
    ("sort", "lines"),
    [
        ("n", ["a1", "a2", "a3", "a4", "a5", "a6", "a7"]),
        ("-n", ["a7", "a6", "a5", "a4", "a3", "a2", "a1"]),
        ("t,-n", ["a7", "a2", "a1", "a4", "a3", "a5", "a6"]),
    ],
)
def test_rows_come_in_the_order_that_is_asked_for(run: Run, sort: str, lines: list[str]) -> None:
    words = ["-h", "-N", "-p", "gpu", "-M", "alpine", "-o", "%n %t", "-S", sort]
    reply = NodesReply(sites=LISTED.sites[:1])
    assert [line.split()[0] for line in run(words, reply).lines] == lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-o", "%!"], "Invalid node format specification: !"),
        (["-O", "Colour"], "Invalid job format specification: Colour"),  # so says sinfo
        (["-S", "!"], "Invalid sort specification: !"),
        (["-S", "q"], "Invalid sort specification: q"),
        (["-t", "foo"], 'Bad state string: "foo"; valid states: unknown,down,idle,'),
        (["-n", "n[2-1]"], "'n[2-1]' invalid entry for --nodes"),
        (["-o", "%P", "-l"], "Options -o(--format) and -l(--long) are mutually exclusive"),
        (["-T"], "--reservation cannot be honoured: a reservation belongs to one site"),
        (["--yaml"], "--yaml cannot be honoured: use --json"),
        (["-i", "0"], "invalid entry for --iterate=0"),
        (["--json=xml"], "--json=xml: give no value, or slurm"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_line(
    run: Run, words: list[str], said: str
) -> None:
    done = run(words)
    assert done.status == 1
    assert done.err.startswith(f"fsinfo: error: {said}")
    assert done.err.count("\n") == 1


# ---- again and again ----


@pytest.mark.parametrize(
    ("words", "headed"), [(["-i", "5"], True), (["-i5", "-h"], False), (["-N", "-i", "5"], True)]
)
def test_with_iterate_it_is_shown_again_also_once_the_daemon_is_back(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    headed: bool,
) -> None:
    pauses: list[float] = []

    def call(message: Call) -> Reply:
        if len(pauses) == 1:
            raise SiteUnavailable("no daemon answers")
        return SUMMED if isinstance(message, SitesCall) else LISTED

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(fsinfo, "call", call)
    monkeypatch.setattr(node_table, "call", call)
    monkeypatch.setattr(time, "sleep", pause)
    monkeypatch.setattr(sys, "argv", ["fsinfo", *words])
    with pytest.raises(SystemExit) as ended:
        fsinfo.main()
    told = capsys.readouterr()
    assert (ended.value.code, pauses) == (130, [5.0, 5.0, 5.0])
    assert told.err == "fsinfo: error: no daemon answers\n"
    rows = [line for line in told.out.splitlines() if "alpine" in line]
    assert rows[: len(rows) // 2] == rows[len(rows) // 2 :] != []
    assert told.out.count("NODES") == (2 if headed else 0)


# ---- sites that do not answer ----


def test_a_site_that_lists_nothing_is_said_and_the_others_are_shown(run: Run) -> None:
    away = SiteNodesRow(site="boreal", detail="not con\x1bnected")
    done = run(["-h", "-s"], NodesReply(sites=(*LISTED.sites[1:], away)))
    assert (done.status, len(done.lines)) == (0, 1)
    assert done.err == "fsinfo: the nodes of site boreal are not known: not con?nected\n"
    assert run(["-s"], NodesReply(sites=(away,))).status == 1


def test_what_is_no_list_of_nodes_is_one_line(run: Run) -> None:
    bad = NodesReply(sites=(SiteNodesRow(site="boreal", nodes=b"\xc1"),))
    done = run(["-N"], bad)
    assert (done.status, done.lines) == (1, [])
    assert done.err.startswith("fsinfo: error: the nodes of site boreal cannot be read")
    assert run(["-N"], ErrorReply(message="No cluster 'x'")).err == (
        "fsinfo: error: No cluster 'x'\n"
    )


def test_the_daemon_is_asked_for_the_sites_that_are_meant(run: Run) -> None:
    assert run(["-N", "-M", "alpine,cedar"]).asked == [NodesCall(clusters=("alpine", "cedar"))]


# ---- the environment, JSON, help ----


def test_variables_count_unless_an_option_says_otherwise(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SINFO_FORMAT", "%R")
    assert run(["-h"]).lines == ["gpu", "cpu", "bare"]
    assert run(["-h", "-o", "%a"]).lines == ["up", "down"]
    monkeypatch.setenv("SINFO_PARTITION", "cpu")
    monkeypatch.setenv("SINFO_SORT", "-R")
    assert run(["-h"]).lines == ["cpu"]
    assert run(["-h", "-a"]).lines == ["gpu", "cpu", "bare"]
    assert run(["-h", "-p", "gpu,bare"]).lines == ["gpu", "bare"]
    monkeypatch.setenv("SLURM_CLUSTERS", "cedar")
    assert run(["-h"]).asked == [NodesCall(clusters=("cedar",))]


def test_json_of_slurm_has_data_parsers_shape(run: Run) -> None:
    answer = json.loads(run(["--json=slurm"]).lines[0])
    assert set(answer) == {"sinfo", "meta", "errors", "warnings"}
    rows = {(row["partition"]["name"], *row["node"]["state"]): row for row in answer["sinfo"]}
    idle = rows["gpu", "IDLE"]
    assert idle["cluster"] in ("alpine", "cedar")
    assert rows["gpu", "MIXED", "DRAIN"]["reason"]["description"] == "fan broken"
    assert rows["gpu", "MIXED"]["gres"] == {"total": "gpu:a100:8", "used": "gpu:a100:2"}
    assert rows["gpu", "ALLOCATED"]["nodes"]["total"] == 1
    assert rows["gpu", "ALLOCATED"]["cpus"]["allocated"] == 64
    assert rows["cpu", "IDLE"]["partition"]["partition"]["state"] == ["DOWN"]
    assert rows["cpu", "IDLE"]["partition"]["maximums"]["time"]["infinite"] is True
    assert rows["gpu", "MIXED"]["partition"]["maximums"]["time"]["number"] == 1440


@pytest.mark.parametrize(
    ("release", "gone"), [("24.11", set()), ("26.05", {".sinfo.reason.user is not there"})]
)
def test_every_field_of_it_is_one_of_sinfos_and_of_its_type(
    run: Run, release: str, gone: set[str]
) -> None:
    """data_parser v0.0.45 has the user of a reason elsewhere; ours is v0.0.42."""
    real = recorded("sinfo", release)
    ours = json.loads(run(["--json=slurm"]).lines[0])
    assert ours["sinfo"]
    same = real | {"sinfo": real["sinfo"][:1] * len(ours["sinfo"])}
    assert set(differences(ours, same)) == gone


def test_sinfo_of_the_oldest_generation_has_no_data_parser() -> None:
    """Its ``--json`` lists nodes, in another shape, which nobody is offered."""
    real = recorded("sinfo", "22.05")
    assert "data_parser" not in real["meta"]["plugin"]
    assert "sinfo" not in real


@pytest.mark.parametrize(
    ("word", "line"), [("--helpformat", "%F"), ("--helpFormat", "NodeAIOT"), ("--helpstate", "mix")]
)
def test_what_can_be_asked_for_is_listed(run: Run, word: str, line: str) -> None:
    done = run([word])
    assert (done.status, done.asked) == (0, [])
    assert any(line in each for each in done.lines)


def test_it_shows_the_share_of_free_gpus_that_are_of_no_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = (
        PartitionSummary(
            partition="gpu", gpu_type="a100", gpus=64, gpus_alloc=24, gpus_out=8, gpus_stranded=8.4
        ),
        PartitionSummary(
            partition="full", gpu_type="a100", gpus=8, gpus_alloc=8, gpus_stranded=0.0
        ),
        PartitionSummary(partition="cpu", gpu_type="", gpus_stranded=0.0),
        PartitionSummary(partition="silent", gpu_type="a100", gpus=8),
        PartitionSummary(partition="good", gpu_type="a100", gpus=8, gpus_stranded=0.0),
    )
    site = SiteRow(name="alpine", region="west", up=True, slurm_version="26.05", partitions=rows)
    monkeypatch.setattr(fsinfo, "call", lambda _: SitesReply(sites=(site,)))
    fsinfo.show(header=True, as_json=False)
    header, *lines = capsys.readouterr().out.splitlines()
    at = header.index("STRANDED")
    assert [line[at:] for line in lines] == ["26 %", "-", "-", "-", "0 %"]
    assert header[:at].endswith("GPUS(A/I/T)  ")
