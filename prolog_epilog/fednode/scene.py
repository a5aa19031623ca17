"""The scene of a check: one job on one node, its GPUs, and the node's expected equipment.

``Expected`` is what ``fed-gate record`` wrote down when the node was well
(/etc/federator/expected.json). What it lacks is not judged by it.
"""

import json
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

from fednode import config, smi
from fednode.smi import Answer, AppFacts, GpuFacts, Smi

EXPECTED = "/etc/federator/expected.json"


class Expected(NamedTuple):
    """The node when it was well; None, 0 and {} stand for "not known".

    ``links`` (active NVLinks) and ``pcie_width`` are of each GPU, by its index: they may differ.
    """

    gpus: int = 0
    gpu_name: str = ""
    pcie_width: "Dict[str, float]" = {}
    links: "Dict[str, float]" = {}
    link_gbps: "Optional[float]" = None  # of the slowest NVLink
    matrix: "Dict[str, str]" = {}  # "GPU0 GPU1" to "NV12"
    ports: "Dict[str, float]" = {}  # "mlx5_0/1" to Gb/s


def read_expected(file: str = EXPECTED) -> "Tuple[Expected, List[str]]":
    """Return what was recorded, and what is wrong with the file; absent is well."""
    try:
        found = json.loads(config.read_trusted(file))
    except FileNotFoundError:
        return Expected(), []
    except (OSError, ValueError, RecursionError) as error:
        return Expected(), [f"{file}: {error}; nothing is expected"]
    if not isinstance(found, dict):
        return Expected(), [f"{file}: is no JSON object; nothing is expected"]
    known, problems = {}, []  # type: Dict[str, Any], List[str]
    for name, default in Expected()._asdict().items():
        if name not in found:
            continue
        if _is_like(name, found[name], default):
            known[name] = found[name]
        else:
            problems.append(f"{file}: {name} is of another kind and is not used")
    return Expected(**known), problems


def _is_like(name: str, value: Any, default: Any) -> bool:
    if isinstance(default, dict):
        of_texts = name == "matrix"
        return isinstance(value, dict) and all(
            isinstance(v, str) if of_texts else _is_number(v) for v in value.values()
        )
    if default is None:
        return value is None or _is_number(value)
    return _is_number(value) if isinstance(default, (int, float)) else isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


class View(NamedTuple):
    """From where the node is looked at."""

    node: str
    allotted: "Optional[Tuple[int, ...]]"  # the job's GPUs; None stands for all of the node's
    multi_node: bool  # whether the job has several nodes
    shared_gpus: "FrozenSet[int]" = frozenset()  # other jobs have them too (MPS, shards)


class Scene:
    """Everything a check may ask for; each is asked of the node once.

    Args:
        smi: whom to ask about GPUs.
        shared: node.json's settings for all hooks.
        seen_us: Xid reports until then have been seen to, microseconds since boot.
    """

    def __init__(
        self,
        smi: Smi,
        shared: "Dict[str, Any]",
        view: View,
        expected: Expected,
        seen_us: int = 0,
    ) -> None:
        self.smi = smi
        self.shared = shared
        self.node, self.allotted, self.multi_node, self.shared_gpus = view
        self.expected = expected
        self.seen_us = seen_us

    def answer(self, question: str) -> Answer:
        """Return nvidia-smi's answer."""
        return self.smi.answer(question)

    def gpus(self, which: str = "all") -> "List[GpuFacts]":
        """Return the node's GPUs, or of these the ``allotted``."""
        found = smi.parse_gpus(self.answer("gpus").text)
        wanted = self.wanted(which)
        return [gpu for gpu in found if wanted is None or gpu.id in wanted]

    def wanted(self, which: str) -> "Optional[Set[int]]":
        """Return the indices that a check is about; None for all."""
        return None if which == "all" or self.allotted is None else set(self.allotted)

    def apps(self) -> "List[AppFacts]":
        """Return the processes on the node's GPUs."""
        return smi.parse_apps(self.answer("apps").text)
