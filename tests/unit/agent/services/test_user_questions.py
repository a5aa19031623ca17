"""An agent lists its nodes, and sends signals, for users."""

from __future__ import annotations

import asyncio

from federator.agent.services.user_questions import NODES_FRESH_S, node_rows
from federator.model.site import Node, NodeState
from federator.wire.agent_protocol import (
    LimitAsk,
    LimitDone,
    NodesAsk,
    NodesTaken,
    SignalAsk,
    SignalDone,
    SignalTo,
)
from federator.wire.node_rows import unpacked_nodes
from tests.fakes.agent import Daemon, daemon
from tests.fakes.build import attempt, plan_on

__all__ = ["daemon"]
ASK = NodesAsk(ask_id=3, partitions=("gpu",))


def test_it_lists_the_nodes_of_the_federations_partitions(daemon: Daemon) -> None:
    async def script() -> None:
        daemon.tell(ASK)
        await daemon.wait_for(NodesTaken)
        daemon.tell(NodesAsk(ask_id=4, partitions=("other",)))
        await daemon.wait_for(NodesTaken, 2)

    daemon.serve(script)
    told, none = daemon.heard(NodesTaken)
    listed = unpacked_nodes(told.nodes)
    assert (told.ask_id, told.detail) == (3, "")
    assert [node.name for node in listed.nodes] == ["a1", "a2", "a3", "a4"]
    assert (listed.nodes[0].state, listed.nodes[0].gpus) == ("idle", 8)
    assert [(p.name, p.up) for p in listed.partitions] == [("gpu", True)]
    assert unpacked_nodes(none.nodes).nodes == ()


def test_one_look_is_the_answer_for_everybody_for_a_while(daemon: Daemon) -> None:
    looks: list[float] = []
    nodes = daemon.site.nodes

    async def counted() -> object:
        looks.append(daemon.clock())
        return await nodes()

    daemon.site.nodes = counted  # type: ignore[method-assign,assignment]

    async def script() -> None:
        for k in range(3):
            daemon.tell(NodesAsk(ask_id=k, partitions=("gpu",)))
        await daemon.wait_for(NodesTaken, 3)
        assert len(looks) == 1
        await asyncio.sleep(NODES_FRESH_S + 1)  # virtual
        daemon.tell(ASK)
        await daemon.wait_for(NodesTaken, 4)
        assert len(looks) == 2

    daemon.serve(script)


def test_a_job_gets_its_signal_and_what_does_not_run_gets_none(daemon: Daemon) -> None:
    job = daemon.slurm.submit(attempt(), "ada", plan_on("a1"))

    async def script() -> None:
        one = SignalAsk(ask_id=1, user="ada", site_job_id=job, signal="USR1", to=SignalTo.BATCH)
        daemon.tell(one)
        await daemon.wait_for(SignalDone)
        daemon.tell(SignalAsk(ask_id=2, user="ada", site_job_id=9, signal="USR1", to=SignalTo.ALL))
        await daemon.wait_for(SignalDone, 2)

    daemon.serve(script)
    assert daemon.heard(SignalDone) == [
        SignalDone(ask_id=1),
        SignalDone(ask_id=2, detail="job 9 does not run"),
    ]
    assert daemon.site.signals == [(attempt(), "USR1", SignalTo.BATCH)]


def test_a_job_gets_its_lower_limit_and_what_is_not_there_gets_none(daemon: Daemon) -> None:
    job = daemon.slurm.submit(attempt(), "ada", plan_on("a1"))

    async def script() -> None:
        daemon.tell(LimitAsk(ask_id=1, user="ada", site_job_id=job, minutes=90))
        await daemon.wait_for(LimitDone)
        daemon.tell(LimitAsk(ask_id=2, user="ada", site_job_id=9, minutes=90))
        await daemon.wait_for(LimitDone, 2)

    daemon.serve(script)
    assert daemon.heard(LimitDone) == [
        LimitDone(ask_id=1),
        LimitDone(ask_id=2, detail="job 9 is not there any more"),
    ]
    assert daemon.site.limits == {attempt(): 90}


def test_a_node_shows_only_partitions_that_are_the_federations() -> None:
    nodes = (
        Node(name="a", partitions=("gpu", "private"), closed_partitions=("night",)),
        Node(name="b", partitions=("private",)),
        Node(name="c", partitions=("gpu",), state=NodeState.DRAINED, drain_reason="fan"),
    )
    rows = node_rows(nodes, ("gpu", "night"))
    assert [(row.name, row.partitions, row.reason) for row in rows] == [
        ("a", ("gpu", "night"), ""),
        ("c", ("gpu",), "fan"),
    ]


def test_a_node_shows_what_its_site_keeps_it_for() -> None:
    drained = NodeState.DRAINED
    nodes = (
        Node(name="a", partitions=("gpu",), state=drained, reserved=True, maintenance=True),
        Node(name="b", partitions=("gpu",), state=drained, maintenance=True),
    )
    rows = node_rows(nodes, ("gpu",))
    assert [(row.state, row.reserved, row.maintenance) for row in rows] == [
        ("drained", True, True),
        ("drained", False, True),
    ]
