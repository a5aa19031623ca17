"""The resources that quotas and limits count, and amounts of them as vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Final

from federator.errors import InvalidRequest
from federator.model.workload import Job

Amounts = tuple[int, ...]
"""One number for each of the resources of a tenancy."""

Bound = tuple[float, ...]
"""The most of each of these resources; ``inf``: no bound."""

PLAIN: Final = ("gpus", "cpus")


class Resources:
    """GPUs, CPUs, and GPUs of each type that some quota or limit names.

    Args:
        gpu_types: these types, in any order.
        gpu_weights: what an hour of a GPU of each type counts in usage; 1 for types not named.
        cpu_weight: what an hour of a CPU counts, where that is more; 0: none does.
        mem_gib_weight: what an hour of a GiB of memory counts, likewise.

    Attributes:
        names: of the resources, in the order of all amounts.

    Raises:
        InvalidRequest: a weight that is negative or no number.
    """

    def __init__(
        self,
        gpu_types: Iterable[str],
        gpu_weights: Mapping[str, float],
        cpu_weight: float = 0.0,
        mem_gib_weight: float = 0.0,
    ) -> None:
        self._types = sorted(set(gpu_types))
        self.names: tuple[str, ...] = (*PLAIN, *self._types)
        self.gpu_weights = dict(gpu_weights)
        self._cpu_weight, self._mem_gib_weight = cpu_weight, mem_gib_weight
        for name, weight in self.gpu_weights.items():
            if not 0 <= weight < inf:  # NaN fails too
                raise InvalidRequest(
                    f"GPU type {name[:64]!r}: weight {weight}; expected a number of at least 0"
                )
        for name, weight in (("cpu_weight", cpu_weight), ("mem_gib_weight", mem_gib_weight)):
            if not 0 <= weight < inf:
                raise InvalidRequest(f"{name}: {weight}; expected a number of at least 0")

    def __len__(self) -> int:
        return len(self.names)

    def unit(self, resource: int) -> str:
        """The unit that a resource is counted in, e.g. "GPUs", "CPUs", "h100 GPUs"."""
        units = ("GPUs", "CPUs", *(f"{name} GPUs" for name in self._types))
        return units[resource]

    def request(self, jobs: Sequence[Job]) -> Amounts:
        """The amounts that a workload asks for, as far as they are known before it is placed.

        A job that accepts several GPU types counts against no one type's quota until it has been
        placed on one. CPUs of a job that leaves the number of nodes open count as for one node.
        """
        typed = dict.fromkeys(self._types, 0)
        gpus = cpus = 0
        for job in jobs:
            gpus += job.total_gpus
            cpus += max(job.cpus, max(1, job.cpus_per_node) * (job.nodes or 1))
            if len(job.gpu_types) == 1 and job.gpu_types[0] in typed:
                typed[job.gpu_types[0]] += job.total_gpus
        return (gpus, cpus, *typed.values())

    def amounts(self, gpus: int, cpus: int, gpu_types: Mapping[str, int]) -> Amounts:
        """The amounts that a placed workload holds."""
        return (gpus, cpus, *(gpu_types.get(name, 0) for name in self._types))

    def bound(self, gpus: float, cpus: float, gpu_types: Mapping[str, float]) -> Bound:
        """An allowance as a vector; a type that it does not name has no bound of its own."""
        return (gpus, cpus, *(gpu_types.get(name, inf) for name in self._types))

    def weighted_gpus(
        self, gpus: int, gpu_types: Mapping[str, int], cpus: int = 0, mem_mib: int = 0
    ) -> float:
        """GPUs as usage counts them; those of no known type count 1 each.

        CPUs or memory count in their place where they weigh more: the dominant resource.

        Source:
            Ghodsi et al., Dominant Resource Fairness (NSDI'11) sec. 4: a user's share is that of
            the resource of which it has most. The maximum is taken of each workload here, as
            Slurm's ``PriorityFlags=MAX_TRES`` does of each job, and not of a tenant's sums.
        """
        typed = sum(n * self.gpu_weights.get(name, 1.0) for name, n in gpu_types.items())
        weighted = typed + gpus - sum(gpu_types.values())
        return max(weighted, cpus * self._cpu_weight, mem_mib / 1024 * self._mem_gib_weight)
