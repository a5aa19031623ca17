"""The fleet in numbers, of what sites tell."""

from __future__ import annotations

from federator.model.partition import PartitionSummary
from federator.web.fleet import fleet_view, nodes_of, site_of
from federator.web.fleet_feed import SiteSeen
from federator.wire.client_protocol import SiteRow
from federator.wire.holdings_rows import SiteHoldings
from federator.wire.node_rows import NodeRow


class Seen(SiteSeen):
    """One site with one node."""

    def nodes(self) -> tuple[NodeRow, ...]:
        return (NodeRow(name="a1", state="idle", gpus=16, gpu_type="a100", cpus=64),)


def test_stranded_gpus_of_nodes_in_two_partitions_count_once() -> None:
    rows = tuple(
        PartitionSummary(partition=name, gpu_type="a100", gpus=16, gpus_stranded=6.5)
        for name in ("gpu", "all")
    )
    row = SiteRow(name="alpine", region="west", up=True, slurm_version="26.05", partitions=rows)
    site = site_of(row, Seen("alpine"))
    assert [free.stranded for free in site.free_by_type] == [6.5]
    assert [free.stranded for free in fleet_view("f", 2.0, [site, site]).free_by_type] == [13.0]


def test_stranded_gpus_of_partitions_that_share_no_node_add_up() -> None:
    rows = tuple(
        PartitionSummary(partition=name, gpu_type="a100", gpus=8, gpus_stranded=gpus)
        for name, gpus in (("old", 3.0), ("new", 2.0))
    )
    row = SiteRow(name="alpine", region="west", up=True, slurm_version="26.05", partitions=rows)
    (free,) = site_of(row, Seen("alpine")).free_by_type
    assert free.stranded == 5.0


def test_of_sites_that_do_not_tell_none_are_stranded_for_certain() -> None:
    silent = PartitionSummary(partition="gpu", gpu_type="a100", gpus=16)
    tells = PartitionSummary(partition="gpu", gpu_type="a100", gpus=16, gpus_stranded=2.0)
    sites = [
        site_of(
            SiteRow(name=name, region="west", up=True, slurm_version="26.05", partitions=(row,)),
            Seen(name),
        )
        for name, row in (("alpine", silent), ("basalt", tells))
    ]
    assert sites[0].free_by_type[0].stranded is None
    assert fleet_view("f", 2.0, sites[:1]).free_by_type[0].stranded is None
    assert fleet_view("f", 2.0, sites).free_by_type[0].stranded == 2.0


def test_a_node_on_which_trainings_are_slow_limps_and_says_why() -> None:
    node = NodeRow(name="a1", state="idle", gpus=16, gpu_type="a100", cpus=64)
    held = SiteHoldings(site="alpine", limping_nodes={"a1": "steps take 1.34 times as long"})
    (shown,) = nodes_of((node,), held)
    assert (shown.state, shown.limping) == ("idle", True)
    assert shown.reason == "steps take 1.34 times as long"
    (sound,) = nodes_of((node,), SiteHoldings(site="alpine"))
    assert (sound.limping, sound.reason) == (False, "")
