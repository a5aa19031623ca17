"""Slurm's texts become values, and nothing else passes for one."""

from __future__ import annotations

from math import inf

import pytest

from federator.model.node_shape import NodeShape
from federator.model.site import NodeShare, NodeState, SiteJobState
from federator.slurm.parse_base import (
    count_ids,
    expand_hosts,
    gpus_in_parts,
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
from tests.unit.slurm.texts import job_line, node_line, squeue_record


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("(null)", ()),
        ("g1", ("g1",)),
        ("g[1-3],c1", ("c1", "g1", "g2", "g3")),
        ("g[08-10]", ("g08", "g09", "g10")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("a,b,a", ("a", "b")),
    ],
)
def test_host_lists_expand(text: str, names: tuple[str, ...]) -> None:
    assert set(expand_hosts(text)) == set(names)
    assert len(expand_hosts(text)) == len(names)


@pytest.mark.parametrize(
    "text", ["g[1-", "g]1[", "@group", "g 1", "g[1-999999999]", "a[1-400]b[1-400]", "g[b-a]", "*"]
)
def test_what_is_no_host_list_is_refused_before_it_eats_memory(text: str) -> None:
    with pytest.raises(ValueError, match=r"host|range"):
        expand_hosts(text)


def test_folding_undoes_expanding() -> None:
    assert fold(expand_hosts("g[1-20,37]")) == "g[1-20,37]"


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", {}),
        ("", {}),
        ("N/A", {}),
        ("gpu:0", {"": 0}),
        ("gpu:8", {"": 8}),
        ("gpu", {"": 1}),
        ("gpu:a100:8(S:0-1)", {"a100": 8}),
        ("gpu:a100:4(IDX:0-3)", {"a100": 4}),
        ("gpu:a100:0(IDX:N/A)", {"a100": 0}),
        ("gpu:a100:2(IDX:0,5),gpu:v100:1(IDX:7),shard:8,mps:100", {"a100": 2, "v100": 1}),
        ("gpu:a100:no_consume:4", {"a100": 4}),
        ("gres:gpu:a100:4", {"a100": 4}),
        ("shard:a100:16(8/16)", {}),
        ("gpu:(null):8(S:0-1)", {"": 8}),  # untyped: configured, in use, of a job
        ("gpu:(null):0(IDX:N/A)", {"": 0}),
        ("gpu:(null):3(IDX:0-2),nic:(null):1", {"": 3}),
        ("gpu:(null)(CNT:2)", {"": 2}),
        ("nic:(null):1,gpu:a100:4(IDX:0-3)", {"a100": 4}),
    ],
)
def test_every_dialect_of_gres_counts_gpus(gres: str, gpus: dict[str, int]) -> None:
    assert parse_gpus(gres) == gpus


def test_a_count_of_gpus_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="no number"):
        parse_gpus("gpu:a100:many")


@pytest.mark.parametrize(
    ("gres", "others"),
    [
        ("(null)", {}),
        ("gpu:a100:8(S:0-1),nic:2", {"nic": 2}),
        ("gpu:a100:2(IDX:0-1),nic(CNT:1)", {"nic": 1}),
        ("nic:mlx5(CNT:2)", {"nic": 2, "nic:mlx5": 2}),
        ("nic:mlx5:2,nic:efa:1", {"nic": 3, "nic:mlx5": 2, "nic:efa": 1}),
        ("bw:lustre:no_consume:4K", {"bw": 4096, "bw:lustre": 4096}),
        ("gpu:a100:8,bw:lustre:4k", {"bw": 4096, "bw:lustre": 4096}),
        ("nic:4k,tape:2m", {"nic": 4096, "tape": 2 * 2**20}),
        ("gpu:h100:0(IDX:N/A),nic:mlx5:0,bw:lustre:0", {}),
        ("gpu:a100:8,shard:a100:2(2/4,0/4),mps:100", {}),
        ("gpu:(null):8,nic:(null):2", {"nic": 2}),
        ("gpu:(null):0(IDX:N/A),nic:(null):0", {}),
        ("nic:(null):1(IDX:0),gpu:(null):1(IDX:3)", {"nic": 1}),
        ("gpu:(null):2(IDX:0-1),nic:(null)(CNT:1)", {"nic": 1}),
    ],
)
def test_other_gres_are_counted_by_name_and_by_type(gres: str, others: dict[str, int]) -> None:
    found = parse_other_gres(gres)
    assert (dict(found.known), found.unread) == (others, {})


def test_a_gres_that_cannot_be_read_is_left_out_by_name_and_the_others_stay() -> None:
    found = parse_other_gres("gpu:8,foo:bar:baz,nic:2,foo:4")
    assert dict(found.known) == {"nic": 2}
    assert list(found.unread) == ["foo"]


@pytest.mark.parametrize(
    ("gres", "used"), [("foo:bar:baz", "foo:0"), ("foo:9", "foo:bar:baz")], ids=["has", "uses"]
)
def test_a_node_stays_without_the_gres_that_cannot_be_read(gres: str, used: str) -> None:
    lines = [
        node_line(name, gres=f"gpu:8,{gres},nic:4k", used=f"gpu:1,{used},nic:1") for name in "ab"
    ]
    reading = parse_nodes("\n".join(lines))
    assert reading.complete
    for node in reading.records:
        assert (node.gpus, node.gpus_alloc) == (8, 1)
        assert (node.gres, node.gres_alloc) == ((("nic", 4096),), (("nic", 1),))
    (said,) = reading.problems
    assert said.startswith("cannot read gres 'foo': GRES count 'baz' is no number")


@pytest.mark.parametrize(
    ("used", "gpus"),
    [
        ("gpu:a100:7(IDX:1-7),nic:0,shard:a100:1(IDX:0),mps:0,bw:0", 1),  # 22.05
        ("gpu:a100:0(IDX:N/A),shard:a100:0(IDX:N/A)", 0),
        ("gpu:a100:7(IDX:1-7),shard:a100:2(2/4,0/4,0/4,0/4,0/4,0/4,0/4,0/4)", 1),  # 24.11
        ("gpu:h100:7(IDX:1-7),shard:h100:2(2/4,-/4,-/4,-/4,-/4,-/4,-/4,-/4)", 1),  # 26.05
        ("gpu:h100:0,shard:h100:6(4/4,2/4)", 2),
        ("gpu:8,mps:3", 3),  # not said which: each may be on another
        ("(null)", 0),
    ],
)
def test_gpus_that_parts_are_taken_of_are_counted(used: str, gpus: int) -> None:
    assert gpus_in_parts(used) == gpus


def test_a_node_tells_its_other_gres_and_counts_gpus_in_parts_as_used() -> None:
    line = node_line(
        "n1",
        gres="gpu:a100:8,nic:mlx5:2,shard:a100:32",
        used="gpu:a100:3(IDX:0-2),nic:mlx5:1,shard:a100:5(-/4,-/4,-/4,4/4,1/4)",
    )
    (node,) = parse_nodes(line).records
    assert (node.gpus, node.gpus_alloc) == (8, 5)
    assert (dict(node.gres), dict(node.gres_alloc)) == (
        {"nic": 2, "nic:mlx5": 2},
        {"nic": 1, "nic:mlx5": 1},
    )


@pytest.mark.parametrize(("in_use", "gpus", "nics"), [("0(IDX:N/A)", 0, 0), ("3(IDX:0-2)", 3, 1)])
def test_what_is_in_use_of_untyped_gres_is_counted(in_use: str, gpus: int, nics: int) -> None:
    line = node_line("n1", gres="gpu:8,nic:2", used=f"gpu:(null):{in_use},nic:(null):{nics}")
    (node,) = parse_nodes(line).records
    assert (node.gpu_type, node.gpus, node.gpus_alloc) == ("", 8, gpus)
    assert dict(node.gres_alloc).get("nic", 0) == nics


def test_a_node_tells_which_of_its_gres_are_not_consumed() -> None:
    gres = "gpu:a100:8(S:0-1),bw:lustre:no_consume:4K,nic:2"
    (node,) = parse_nodes(node_line("n1", gres=gres, used="gpu:a100:0,bw:0,nic:0")).records
    assert node.gres_shared == ("bw",)
    assert dict(node.gres) == {"bw": 4096, "bw:lustre": 4096, "nic": 2}


def test_a_job_tells_what_else_it_holds() -> None:
    held = "Nodes=n1 CPU_IDs=1 Mem=0 GRES=gpu:a100:2(IDX:0-1),nic(CNT:1)"
    assert parse_layout(job_line(5, held), 5) == {
        "n1": NodeShare(gpus=2, cpus=1, gres=(("nic", 1),))
    }


@pytest.mark.parametrize(
    ("text", "code", "signal"),
    [("3:0", 3, 0), ("0:15", 0, 15), ("768", 3, 0), ("15", 0, 15), ("137", 0, 9)],
)
def test_exit_codes_of_all_releases_are_read(text: str, code: int, signal: int) -> None:
    assert parse_exit(text) == (code, signal)


def test_times_are_unix_times_or_absent() -> None:
    assert parse_time_s("1795210722") == 1795210722.0
    assert parse_time_s("N/A") == parse_time_s("Unknown") == 0.0
    with pytest.raises(ValueError, match="no number"):
        parse_time_s("2026-11-20T21:38:42")


def test_durations_are_seconds_or_unlimited() -> None:
    assert parse_duration_s("1-02:03:04") == 93784.0
    assert parse_duration_s("00:20:00") == 1200.0
    assert parse_duration_s("UNLIMITED") == inf


def test_cpu_ids_are_counted() -> None:
    assert (count_ids("0-31"), count_ids("0,2-3"), count_ids("")) == (32, 3, 0)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("IDLE", NodeState.IDLE),
        ("MIXED", NodeState.MIXED),
        ("ALLOCATED", NodeState.ALLOCATED),
        ("IDLE+PLANNED", NodeState.IDLE),
        ("MIXED-", NodeState.MIXED),
        ("IDLE+CLOUD", NodeState.IDLE),
        ("ALLOCATED+COMPLETING", NodeState.ALLOCATED),
        ("IDLE+DRAIN", NodeState.DRAINED),
        ("MIXED+DRAIN", NodeState.DRAINED),
        ("IDLE+MAINTENANCE+RESERVED", NodeState.DRAINED),
        ("IDLE+RESERVED", NodeState.DRAINED),
        ("IDLE+FAIL", NodeState.DRAINED),
        ("IDLE+REBOOT_REQUESTED", NodeState.DRAINED),
        ("IDLE@", NodeState.DRAINED),
        ("DOWN", NodeState.DOWN),
        ("DOWN+DRAIN", NodeState.DOWN),
        ("DOWN*+CLOUD", NodeState.DOWN),
        ("MIXED*", NodeState.DOWN),
        ("IDLE+NOT_RESPONDING", NodeState.DOWN),
        ("DOWN+NOT_RESPONDING", NodeState.DOWN),
        ("IDLE+CLOUD+POWERED_DOWN", NodeState.DOWN),
        ("IDLE+POWERING_UP", NodeState.DOWN),
        ("IDLE~", NodeState.DOWN),
        ("DOWN^", NodeState.DOWN),
        ("IDLE+DRAIN+INVALID_REG", NodeState.DOWN),
        ("UNKNOWN", NodeState.DOWN),
        ("FUTURE", NodeState.DOWN),
    ],
)
def test_node_states_reduce_to_what_a_placement_needs(text: str, state: NodeState) -> None:
    assert parse_state(text) is state


@pytest.mark.parametrize(
    ("text", "reserved", "maintenance"),
    [
        ("IDLE", False, False),
        ("IDLE+RESERVED", True, False),
        ("IDLE+MAINTENANCE+RESERVED", True, True),
        ("MIXED+MAINTENANCE+RESERVED", True, True),
        ("MIXED$", True, True),
        ("IDLE+MAINT", True, True),
        ("IDLE+DRAIN+MAINTENANCE+RESERVED", False, True),  # it would take no job anyhow
        ("DOWN*+MAINTENANCE", False, True),
    ],
)
def test_a_node_tells_what_its_site_keeps_it_for(
    text: str, reserved: bool, maintenance: bool
) -> None:
    (node,) = parse_nodes(node_line("n1", state=text)).records
    assert (node.reserved, node.maintenance) == (reserved, maintenance)


def test_a_node_of_unknown_state_takes_no_job_and_is_reported() -> None:
    reading = parse_nodes(node_line("n1", state="IDLE+FROZEN"))
    assert [node.state for node in reading.records] == [NodeState.DRAINED]
    assert "FROZEN" in reading.problems[0]
    assert reading.complete


def test_one_odd_node_does_not_hide_the_others() -> None:
    odd = node_line("n2").replace("CPUAlloc=0", "CPUAlloc=some")
    reading = parse_nodes("\n".join([node_line("n1"), odd, node_line("n3")]) + "\n")
    assert [node.name for node in reading.records] == ["n1", "n3"]
    assert len(reading.problems) == 1
    assert "NodeName=n2" in reading.problems[0]
    assert not reading.complete


def test_words_in_a_reason_are_no_fields() -> None:
    line = node_line("n1", end=" Reason=State=IDLE GresUsed=gpu:a100:8 Partitions=x [root@now]")
    (node,) = parse_nodes(line).records
    assert (node.state, node.gpus_alloc, node.partitions) == (NodeState.MIXED, 3, ("fed", "local"))


def test_a_node_without_gpus_may_lack_gres_used() -> None:
    line = node_line("c1", gres="(null)", used=None, end=" Reason=GresUsed=gpu:a100:8")
    (node,) = parse_nodes(line).records
    assert (node.gpu_type, node.gpus, node.gpus_alloc) == ("", 0, 0)


def test_a_node_shows_what_it_is_built_of() -> None:
    line = node_line("n1", end=" Comment=CoresPerSocket=1 Sockets=9 ThreadsPerCore=9 TmpDisk=9 ")
    (node,) = parse_nodes(line).records
    assert node.shape == NodeShape(0, sockets=2, cores_per_socket=32, threads_per_core=1)
    assert node.weight == 1
    assert parse_nodes(line.replace(" Weight=1", "")).records[0].weight is None
    (node,) = parse_nodes(line.replace("TmpDisk=0", "TmpDisk=900000")).records
    assert node.shape is not None
    assert node.shape.tmp_mib == 900_000


def test_of_several_gpu_types_the_most_numerous_counts() -> None:
    line = node_line("n1", gres="gpu:t4:2,gpu:a100:6", used="gpu:t4:1(IDX:0),gpu:a100:5(IDX:2-6)")
    (node,) = parse_nodes(line).records
    assert (node.gpu_type, node.gpus, node.gpus_alloc) == ("a100", 6, 5)


def test_a_node_in_no_partition_and_without_features_is_read() -> None:
    (node,) = parse_nodes(node_line("n1", partitions=None, features="(null)")).records
    assert (node.partitions, node.features) == ((), ())


def test_leaf_switches_and_blocks_are_both_racks() -> None:
    switches = (
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
        "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-2] Switches=s1\n"
        "SwitchName=odd Level=0 LinkSpeed=1 Nodes=n[3\n"
    )
    assert parse_topology(switches) == {"n1": "s1", "n2": "s1"}
    blocks = "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nAggregatedBlock=x Nodes=n[1-2]\n"
    assert parse_topology(blocks) == {"n1": "b1", "n2": "b1"}
    assert parse_topology("") == {}


def test_the_switch_above_each_switch_is_read_in_any_depth() -> None:
    """As 22.05 writes lists, and as 26.05 folds them."""
    text = (
        "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
        "SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
        "SwitchName=pod1 Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=s[1-2]\n"
        "SwitchName=core Level=2 LinkSpeed=1 Nodes=n[1-4] Switches=pod1,pod2\n"
        "SwitchName=odd Level=2 LinkSpeed=1 Nodes=n[1-4] Switches=pod[3\n"
    )
    assert parse_switches(text) == {"s1": "pod1", "s2": "pod1", "pod1": "core", "pod2": "core"}
    assert parse_switches("") == {}


def test_a_block_lies_in_the_smallest_aggregated_block_that_has_its_nodes() -> None:
    text = (
        "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\n"
        "BlockName=b2 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n"
        "AggregatedBlock=b[1-4] BlockIndex=3 Nodes=n[1-8] BlockSize=8\n"
        "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n"
    )
    assert parse_switches(text) == {"b1": "b[1-2]", "b2": "b[1-2]", "b[1-2]": "b[1-4]"}


def test_a_version_is_read_whatever_the_packager_calls_slurm() -> None:
    assert parse_version("slurm-wlm 22.05.8\n") == "22.05.8"
    assert parse_version("slurm 24.11.5") == "24.11.5"
    with pytest.raises(ValueError, match="scontrol --version"):
        parse_version("bash: scontrol: command not found")


def test_settings_fall_back_to_slurms_defaults() -> None:
    config = parse_config("ClusterName = c\nSLURM_VERSION = 24.11.5\nPrivateData = jobs,nodes\n")
    assert (config.message_timeout_s, config.private_data) == (10.0, ("jobs", "nodes"))
    with pytest.raises(ValueError, match="ClusterName"):
        parse_config("slurm_load_ctl_conf error")


def test_a_partition_that_is_down_or_odd_is_told_apart() -> None:
    text = "PartitionName=a State=DOWN Nodes=n1 MaxTime=1-00:00:00\nPartitionName=b Nodes=n1\n"
    reading = parse_partitions(text)
    assert [(p.name, p.up, p.max_time_s) for p in reading.records] == [("a", False, 86400.0)]
    assert len(reading.problems) == 1


def test_completing_counts_as_running_and_holds_its_nodes() -> None:
    (job,) = parse_jobs(squeue_record(State="COMPLETING", NodeList="n[1-2]")).records
    assert job.state is SiteJobState.RUNNING
    assert set(job.nodes) == {"n1", "n2"}


def test_restarts_and_the_sites_own_preemption_are_read() -> None:
    (job,) = parse_jobs(squeue_record(RestartCnt="2", PreemptTime="1795210900")).records
    assert (job.restarts, job.preempted_at_s) == (2, 1795210900.0)
    (job,) = parse_jobs(squeue_record()).records
    assert (job.restarts, job.preempted_at_s) == (0, 0.0)


def test_a_requeued_jobs_estimated_start_is_no_start() -> None:
    (job,) = parse_jobs(squeue_record(State="PENDING", NodeList="", StartTime="99")).records
    assert (job.started_at_s, job.nodes) == (0.0, {})


def test_a_job_of_unknown_state_is_taken_to_run_and_reported() -> None:
    reading = parse_jobs(squeue_record(State="HOVERING"))
    assert [job.state for job in reading.records] == [SiteJobState.RUNNING]
    assert "HOVERING" in reading.problems[0]
    assert reading.complete


def test_one_odd_job_does_not_hide_the_others() -> None:
    output = squeue_record(JobID="1") + squeue_record(JobID="x") + squeue_record(JobID="3")
    reading = parse_jobs(output)
    assert [job.job_id for job in reading.records] == [1, 3]
    assert len(reading.problems) == 1
    assert not reading.complete


def test_output_that_breaks_off_is_refused_as_a_whole() -> None:
    with pytest.raises(ValueError, match="no record"):
        parse_jobs(squeue_record() + squeue_record()[:-20])


def test_bytes_that_are_no_unicode_cost_no_framing() -> None:
    output = squeue_record(JobID="1", Name=b"\xff\xfe" * 32) + squeue_record(JobID="2")
    assert [job.job_id for job in parse_jobs(output).records] == [1, 2]


def test_a_layout_gives_each_group_of_nodes_its_share() -> None:
    text = job_line(
        5,
        "Nodes=n1 CPU_IDs=0-3 Mem=100 GRES=gpu:a100:2(IDX:0-1)",
        "Nodes=n[2-3] CPU_IDs=0,2 Mem=0 GRES=",
    )
    small = NodeShare(cpus=2)
    expected = {"n1": NodeShare(gpus=2, cpus=4, mem_mib=100), "n2": small, "n3": small}
    assert parse_layout(text, 5) == expected
    assert parse_layouts(text) == ({5: expected}, {})


def test_a_record_that_says_twice_what_it_holds_is_refused() -> None:
    fake = "x JOB_GRES=gpu:8 Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:8 MinCPUsNode=1"
    layouts, refused = parse_layouts(job_line(5, name=fake) + job_line(6))
    assert set(layouts) == {6}
    assert set(refused) == {5}


def test_a_record_forged_in_a_name_discredits_only_the_id_it_claims() -> None:
    forged = "x\n" + job_line(6).rstrip("\n")
    layouts, refused = parse_layouts(job_line(5, name=forged) + job_line(6) + job_line(7))
    assert set(layouts) == {7}
    assert set(refused) == {5, 6}


def test_line_breaks_do_not_hide_the_layout_of_a_job_asked_for_singly() -> None:
    text = job_line(5, name="a\nJobId=77\nb")
    assert parse_layout(text, 5) == {"n1": NodeShare(gpus=1, cpus=1)}


def test_a_job_without_record_has_no_layout() -> None:
    with pytest.raises(ValueError, match="no record"):
        parse_layout("", 5)


@pytest.mark.parametrize("gap", [" ", "  "])
def test_a_drained_nodes_reason_is_read_and_one_that_is_back_has_none(gap: str) -> None:
    """24.11 keeps the reason of a node that was resumed."""
    line = (
        "NodeName=n1 CPUAlloc=0 CPUEfctv=64 CPUTot=64 ActiveFeatures=(null) Gres=gpu:8 "
        "RealMemory=1 AllocMem=0 State={} Partitions=fed  BootTime=1"
        f" AllocTRES={gap}Reason=fed-gate: GPU 3 \x1b[31m[ok] [root@1795317338] Comment=x"
    )
    (node,) = parse_nodes(line.format("IDLE+DRAIN")).records
    assert node.drain_reason == "fed-gate: GPU 3 ?[31m[ok]"
    assert (node.drained_by, node.drained_at_s) == ("root", 1795317338)
    (node,) = parse_nodes(line.format("IDLE")).records
    assert (node.drain_reason, node.drained_by, node.drained_at_s) == ("", "", 0)
