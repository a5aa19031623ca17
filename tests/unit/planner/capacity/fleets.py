"""Fleets for tests of machine assignment."""

from __future__ import annotations

from federator.planner.capacity.fleet import CapacityNode, FailureDomain, Want


def rack(name: str, partitions: str, gpu_type: str = "h100", power: str = "") -> list[CapacityNode]:
    """Nodes of 8 GPUs, a letter each: its partition, - for none, ! for one of none that is down."""
    return [
        CapacityNode(
            site="alpine",
            name=f"{name}-{number}",
            gpu_type=gpu_type,
            gpus=8,
            rack=f"alpine:{name}",
            power=power,
            partition="" if letter in "-!" else letter,
            usable=letter != "!",
        )
        for number, letter in enumerate(partitions)
    ]


def any_rack(name: str, size: int) -> Want:
    """So many GPUs, whichever rack is lost."""
    return Want(name=name, size=size, survives=(FailureDomain.RACK,))
