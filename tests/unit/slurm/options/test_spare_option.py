"""Which jobs can have spare nodes, and what they ask for then."""

from __future__ import annotations

import pytest

from federator.errors import InvalidRequest
from tests.unit.slurm.options.test_interpret import read

GANG = "-N4 --gres=gpu:8 --ntasks-per-node=1"


def test_spare_nodes_are_as_the_others_and_are_asked_for_with_them() -> None:
    found, without = read(f"{GANG} --fed-spare=2"), read(GANG)
    assert (found.spare, without.spare) == (2, 0)
    (job,), (rigid,) = found.jobs, without.jobs
    assert (job.nodes, job.total_gpus, job.gpus_per_node) == (6, 48, 8)
    assert (job.cpus_per_node, job.mem_mib_per_node) == (rigid.cpus_per_node, 0)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (f"{GANG} --fed-spare=0", 'Invalid --fed-spare value "0", must be between 1 and 4096'),
        (f"{GANG} --fed-spare=one", 'Invalid --fed-spare value "one"'),
        (f"{GANG} --fed-spare=5", "more spare nodes than the 4 of --nodes"),
        ("-N1 --gres=gpu:8 --fed-spare=1", "two nodes or more"),
        ("--gpus=16 --fed-spare=1", "--gpus contradict each other"),
        ("-n8 -c4 --fed-spare=1", "--ntasks contradict each other.*--ntasks-per-node"),
        ("-N2 --gpus-per-task=1 --fed-spare=1", "--gpus-per-task contradict each other"),
        (f"{GANG} --fed-spare=1 --fed-elastic=2-4", "goes on with the nodes that are left"),
        (f"{GANG} --fed-spare=1 : -N1", "not a het job"),
        (f"-N1 : {GANG} --fed-spare=1", "not a het job"),
        (f"{GANG} --fed-spare=1 --array=1-2", "not for a job array"),
        (f"{GANG} --fed-spare=1 --no-kill=off", "--no-kill=off forbids"),
        (f"{GANG} --fed-tp=8 --fed-pp=2 --fed-spare=1", "no whole number of replicas of 8 x 2"),
    ],
)
def test_where_nothing_could_use_a_spare_node_it_is_refused(words: str, complaint: str) -> None:
    with pytest.raises(InvalidRequest, match=complaint):
        read(words)


def test_no_kill_and_whole_replicas_are_taken() -> None:
    assert read(f"{GANG} --no-kill --fed-spare=1").spare == 1
    assert read(f"{GANG} --fed-tp=8 --fed-pp=2 --fed-spare=2").jobs[0].nodes == 6
