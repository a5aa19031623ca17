"""Reads ``--fed-elastic`` beside the options that say how large a job is.

The job must have a number of nodes (``--nodes``), which is one of the sizes, and say everything
else per node: a total of tasks or GPUs would mean another job at every size. Each size has to hold
whole replicas of the model (``--fed-tp`` x ``--fed-pp``). Arrays and het jobs have fixed sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from federator.errors import InvalidRequest
from federator.model.sizes import on_grid
from federator.model.submission import NodeRange
from federator.model.workload import Job
from federator.slurm.options import own_values

_TOTALS: Final = {"ntasks": "--ntasks-per-node", "gpus": "--gpus-per-node"}


class _Given(Protocol):
    """The options of one component by name."""

    def text(self, name: str) -> str | None:
        """Return the value; None when the option is absent."""


def elastic_of(given: Sequence[_Given], jobs: Sequence[Job], *, is_array: bool) -> NodeRange | None:
    """The sizes that a job may have; None: it has one.

    Args:
        given: the options of each component.
        jobs: as they are read from them.
        is_array: whether it is a job array.

    Raises:
        InvalidRequest: the sizes contradict something else, or each other.
    """
    texts = [each.text("fed-elastic") for each in given]
    ranges = [own_values.elastic(text) for text in texts if text is not None]
    if not ranges:
        return None
    if len(given) > 1:
        raise InvalidRequest(
            "--fed-elastic (or SBATCH_FED_ELASTIC) is for a job of one component, not a het job"
        )
    if is_array:
        raise InvalidRequest("--fed-elastic (or SBATCH_FED_ELASTIC) is not for a job array")
    (elastic,), job = ranges, jobs[0]
    if job.nodes is None:
        raise InvalidRequest("--fed-elastic needs a number of nodes; say it with --nodes")
    for total, per_node in _TOTALS.items():
        if given[0].text(total) is not None:
            raise InvalidRequest(
                f"--fed-elastic={elastic} and --{total} contradict each other: the total changes "
                f"with the nodes; say {per_node}"
            )
    _check_sizes(elastic, job, job.nodes)
    return replace(elastic, asked=job.nodes)


def _check_sizes(elastic: NodeRange, job: Job, nodes: int) -> None:
    if not on_grid(elastic, nodes):
        raise InvalidRequest(
            f"--fed-elastic={elastic} leaves out the {nodes} nodes asked for (--nodes)"
        )
    if len(job.nodelist) > elastic.least:
        raise InvalidRequest(
            f"--fed-elastic={elastic} allows fewer nodes than the {len(job.nodelist)} of --nodelist"
        )
    replica = job.tensor_parallel * job.pipeline_stages
    for some in (elastic.least, elastic.step if elastic.most > elastic.least else elastic.least):
        if some * job.gpus_per_node % replica:
            raise InvalidRequest(
                f"--fed-elastic={elastic} splits a replica of {job.tensor_parallel} x "
                f"{job.pipeline_stages} GPUs (--fed-tp x --fed-pp): nodes of {job.gpus_per_node} "
                "GPUs hold whole ones only in other steps"
            )
