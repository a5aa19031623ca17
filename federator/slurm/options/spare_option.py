"""Reads ``--fed-spare``: how many nodes a gang has beside those that it trains on.

The job then asks for its ``--nodes`` and the spares, all alike, and says everything else per node:
what it runs on is said again at each start (``federator/checkpoint/fed-spare.sh``), and a total of
tasks or GPUs would be spread over the spares as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

from federator.errors import InvalidRequest
from federator.model.workload import Job
from federator.slurm.options import own_values

_NAME: Final = "fed-spare"
_SAID: Final = "--fed-spare (or SBATCH_FED_SPARE)"
_TOTALS: Final = {
    "ntasks": "--ntasks-per-node",
    "gpus": "--gpus-per-node",
    "gpus-per-task": "--gpus-per-node",
    "ntasks-per-gpu": "--ntasks-per-node",
    "ntasks-per-socket": "--ntasks-per-node",
    "ntasks-per-core": "--ntasks-per-node",
}


class _Given(Protocol):
    """The options of one component by name."""

    def text(self, name: str) -> str | None:
        """Return the value; None when the option is absent."""

    def __contains__(self, name: str) -> bool: ...


def spare_of(given: Sequence[_Given], jobs: Sequence[Job], *, is_array: bool) -> int:
    """How many spare nodes a job asks for; 0: none.

    Args:
        given: the options of each component.
        jobs: as they are read from them, without spares.
        is_array: whether it is a job array.

    Raises:
        InvalidRequest: it is no number, or nothing could make use of a spare node.
    """
    texts = [text for each in given if (text := each.text(_NAME)) is not None]
    if not texts:
        return 0
    spare, first = own_values.parallel(texts[0], _NAME), given[0]
    if len(given) > 1:
        raise InvalidRequest(f"{_SAID} is for a job of one component, not a het job")
    if is_array:
        raise InvalidRequest(f"{_SAID} is not for a job array")
    if "fed-elastic" in first:
        raise InvalidRequest(
            "--fed-spare and --fed-elastic contradict each other: an elastic job goes on with the "
            "nodes that are left; leave one of them out"
        )
    if first.text("no-kill") is not None:
        raise InvalidRequest(
            f"--fed-spare={spare} goes on when a node dies, which --no-kill="
            f"{first.text('no-kill')} forbids; leave one of them out"
        )
    _check_totals(spare, first)
    _check_size(spare, jobs[0])
    return spare


def with_spares(job: Job, spare: int) -> Job:
    """The job with its spare nodes among its nodes."""
    return replace(job, nodes=(job.nodes or 0) + spare)


def _check_totals(spare: int, first: _Given) -> None:
    for total, per_node in _TOTALS.items():
        if total in first:
            raise InvalidRequest(
                f"--fed-spare={spare} and --{total} contradict each other: a total would count the "
                f"spare nodes as well; say {per_node}"
            )


def _check_size(spare: int, job: Job) -> None:
    nodes, replica = job.nodes, job.tensor_parallel * job.pipeline_stages
    if nodes is None or nodes < 2:
        raise InvalidRequest(
            f"--fed-spare={spare} is for a job of two nodes or more (--nodes): one whose only node "
            "dies ends, and starts again elsewhere"
        )
    if spare > nodes:
        raise InvalidRequest(
            f"--fed-spare={spare} asks for more spare nodes than the {nodes} of --nodes; at most "
            f"{nodes} are possible"
        )
    if spare * job.gpus_per_node % replica:
        raise InvalidRequest(
            f"--fed-spare={spare} is no whole number of replicas of {job.tensor_parallel} x "
            f"{job.pipeline_stages} GPUs (--fed-tp x --fed-pp) on nodes of {job.gpus_per_node}; "
            "ask for a spare replica, or leave out --fed-pp"
        )
