"""A plan of partitions, carried out by its script on three generations: a rack dies, sizes stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from federator.cli.capacity import capacity
from federator.model.site import Snapshot
from federator.model.workload import SiteName
from federator.slurm.parse_nodes import parse_nodes, parse_topology
from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.federation import at, within

pytestmark = pytest.mark.slurm
SITES = tuple(site.name for site in layout.SITES)
PARTITIONS = {"train": (1, 2, 3), "eval": (4, 5), "burst": (6, 7, 8)}
WANTS = """\
partitions:
  train: {gpus: 16, survives: [rack]}
  eval: {gpus: 8, survives: [rack]}
spare: [burst]
"""


@pytest.fixture(params=SITES)
def site(testbed: StateDir, request: pytest.FixtureRequest) -> Iterator[str]:
    """With partitions of its eight nodes with GPUs, four in each rack; without them afterwards."""
    name = str(request.param)
    for partition, numbers in PARTITIONS.items():
        nodes = f"{name}-g[{','.join(map(str, numbers))}]"
        at(name, "scontrol", "create", f"PartitionName={partition}", f"Nodes={nodes}")
    try:
        yield name
    finally:
        back = f"scontrol update NodeName={name}-g[1-8] State=RESUME || true"  # or none was down
        at(name, "sh", "-c", back)
        all_back(name)
        for partition in PARTITIONS:
            at(name, "scontrol", "delete", f"PartitionName={partition}")


def snapshot(site: str) -> Snapshot:
    switches = parse_topology(at(site, "scontrol", "show", "topology"))
    nodes = parse_nodes(at(site, "scontrol", "-d", "show", "nodes", "-o"), switches).records
    return Snapshot(site=SiteName(site), now_s=1.0, nodes=nodes)


def all_back(site: str) -> None:
    """A node that was resumed has not answered for a moment."""
    within(60, lambda: all(node.state.takes_jobs for node in snapshot(site).nodes))


def gpus_of(taken: Snapshot, partition: str) -> int:
    """Those that take jobs."""
    return sum(
        node.gpus for node in taken.nodes if partition in node.partitions and node.state.takes_jobs
    )


def test_after_the_script_every_partition_keeps_its_size_whichever_rack_dies(
    site: str, tmp_path: Path
) -> None:
    (tmp_path / "wants.yaml").write_text(WANTS)
    taken = snapshot(site)
    (tmp_path / "snapshot.json").write_bytes(msgspec.json.encode(taken))
    argv = ["plan", "--wants", "wants.yaml", "--snapshot", "snapshot.json", "--out", "."]
    argv = [word if "." not in word else str(tmp_path / word) for word in argv]
    planned = CliRunner().invoke(capacity, argv, catch_exceptions=False)
    assert "2 moves, 0 of them out of a partition" in planned.output
    script = (tmp_path / f"{site}.sh").read_text()
    at(site, "sh", "-s", stdin=script)
    assert snapshot(site).nodes == taken.nodes  # it has only printed
    at(site, "sh", "-s", "--", "--apply", stdin=script)
    all_back(site)
    racks = {node.switch for node in taken.nodes}
    assert len(racks) == 2
    for rack in racks:
        nodes = "NodeName=" + ",".join(n.name for n in taken.nodes if n.gpus and n.switch == rack)
        at(site, "scontrol", "update", nodes, "State=DOWN", "Reason=its rack died")
        left = snapshot(site)
        assert gpus_of(left, "train") >= 16
        assert gpus_of(left, "eval") >= 8
        at(site, "scontrol", "update", nodes, "State=RESUME")
        all_back(site)
