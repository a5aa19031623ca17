"""Jobs that say how nodes must be built (``--tmp``, ``-B``) get such nodes, or are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federator.cli.text import reason_text
from federator.model.node_shape import NodeShape
from federator.model.reason import Reason, ReasonCode
from federator.model.workload import Job
from federator.sched.bid.free_capacity import FreeCapacity
from federator.sched.bid.negative_cache import NOBODY, NegativeCache
from federator.sched.bid.placement import Placed, place_job
from federator.sched.bid.workload_plan import never_fits
from tests.fakes.build import gang, rack

SMALL, LARGE = NodeShape(0, 2, 32, 1), NodeShape(900_000, 4, 16, 2)
NODES = (
    *(replace(n, shape=SMALL) for n in rack("a", 2)),
    *(replace(n, shape=LARGE) for n in rack("b", 2)),
)


def on(shape: NodeShape, nodes: int = 1) -> Job:
    return replace(gang(nodes), shape=shape)


def place(job: Job) -> set[str] | Reason:
    found = place_job(job, FreeCapacity(NODES), ("gpu",))
    return set(found.plan.nodes) if isinstance(found, Placed) else found[0]


def test_nodes_have_all_that_is_asked_for() -> None:
    assert place(on(NodeShape(tmp_mib=1), 2)) == {"b1", "b2"}
    assert place(on(NodeShape(sockets=2, cores_per_socket=17), 2)) == {"a1", "a2"}
    assert place(on(NodeShape(threads_per_core=2), 2)) == {"b1", "b2"}
    assert isinstance(place(on(NodeShape(tmp_mib=1), 3)), Reason)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (NodeShape(tmp_mib=9 * 2**20), "needs 9437184 MiB of TmpDisk on one node, the largest has"),
        (NodeShape(sockets=9), "needs 9 sockets on one node, the largest has 4"),
        (NodeShape(cores_per_socket=33), "needs 33 cores per socket on one node"),
        (NodeShape(threads_per_core=9), "needs 9 threads per core on one node"),
    ],
)
def test_what_no_node_has_is_refused_for_good(shape: NodeShape, words: str) -> None:
    refusal = never_fits([on(shape)], FreeCapacity(NODES), ("gpu",))
    assert refusal is not None
    (reason,) = refusal.reasons
    assert reason.code is ReasonCode.NODE_TOO_SMALL
    assert words in reason_text(reason)


def test_nodes_of_an_older_agent_are_left_to_sbatch() -> None:
    job = on(NodeShape(tmp_mib=9 * 2**20))
    assert never_fits([job], FreeCapacity(rack("a", 2)), ("gpu",)) is None


def test_a_failure_says_nothing_of_jobs_that_ask_for_less() -> None:
    cache: NegativeCache[int] = NegativeCache()
    cache.add((on(NodeShape(tmp_mib=100)),), NOBODY, 1)
    assert cache.find((on(NodeShape(tmp_mib=200)),), NOBODY) is not None
    for less in (NodeShape(tmp_mib=99), NodeShape(sockets=4)):
        assert cache.find((on(less),), NOBODY) is None
