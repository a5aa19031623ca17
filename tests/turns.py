"""Who runs which file next, where several processes share a run: what suits the others.

One worker takes what computes, while the others take what waits, mostly for Slurm. Three of the
latter leave about one of two cores idle: by themselves they would be the longest part of a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

_TIERS = ("unit", "property", "packages", "contract", "slurm", "bench")
_COMPUTE = ("unit", "property")  # tiers that need a processor; the others wait
_COMPUTES = "gw1"  # the worker that takes those first
# Of each tier the longest files, longest first: none of them is begun when all else is over.
_LONG = (
    *("test_debs", "test_slurm_client", "test_venus_trace", "test_federation_laws"),
    *("test_clients", "test_site_preemption", "test_alerts", "test_checkpoint_training"),
    *("test_node_failures", "test_het", "test_eviction_budget", "test_faults", "test_gate"),
    *("test_wishes", "test_commands", "test_files", "test_interactive", "test_preemption"),
    *("test_continue", "test_spank", "test_same_awards", "test_refused_launches"),
    *("test_predicted_starts", "test_reload", "test_windows", "test_drain"),
)
_LAST = ("test_weather", "test_weather_of_two")  # they take all that the machine has
# One worker is at these for half a run: no tier comes before them.
_FIRST = ("test_fault_histories", "test_more_fault_histories", "test_planted_bugs")


def turn_of(file: Path) -> tuple[int, int]:
    """What a file of tests is sorted by."""
    if file.stem in _FIRST:
        return -1, _FIRST.index(file.stem)
    tier = file.relative_to(Path(__file__).parent).parts[0]
    when = _LONG.index(file.stem) if file.stem in _LONG else len(_LONG) + (file.stem in _LAST)
    return _TIERS.index(tier) if tier in _TIERS else 0, when


def next_file(worker: str, waiting: Iterable[str]) -> str:
    """The file that a worker takes next: the first of its kind, or of any if there is none.

    Args:
        worker: its name, e.g. ``gw1``.
        waiting: the paths of files that nobody has taken, at least one, in the order in which
            they are to be taken.
    """
    files = list(waiting)
    suits = [(file.split("/")[1] in _COMPUTE) == (worker == _COMPUTES) for file in files]
    return files[suits.index(True) if True in suits else 0]


def suiting(config: pytest.Config, log: Any) -> Any:
    """The scheduler of pytest-xdist that deals out whole files, by ``next_file``."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - not in each process

    class Suiting(LoadFileScheduling):  # type: ignore[misc] # it has no types
        def _assign_work_unit(self, node: Any) -> None:
            file = next_file(node.gateway.id, self.workqueue)
            self.workqueue.move_to_end(file, last=False)
            super()._assign_work_unit(node)

    return Suiting(config, log)
