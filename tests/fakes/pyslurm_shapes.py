"""Pyslurm's answers, recorded where it is and given again where it is not.

    python3 -I pyslurm_shapes.py record SHAPES CHILD     with the real pyslurm
    python3 -I pyslurm_shapes.py replay SHAPES CHILD     without

Runs the reader's child (CHILD, its file) on them, with the standard library alone: it is copied
into a site. A line of SHAPES is one call and what it returned, of each object what the child reads;
a call that was begun and has no answer ended the process. The same call again gets the next answer,
the last one is given for ever.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

ATTRIBUTES = {
    "Jobs": (
        *("id", "user_id", "state", "exit_code", "exit_code_signal", "heterogeneous_id"),
        *("heterogeneous_offset", "array_id", "array_task_id", "array_tasks_waiting"),
        *("submit_time", "start_time", "end_time", "allocated_nodes", "partition"),
        *("requeue_count", "preempt_time", "account", "state_reason", "name", "comment"),
    ),
    "Nodes": (
        *("name", "allocated_cpus", "effective_cpus", "total_cpus", "cores_per_socket"),
        *("active_features", "real_memory", "allocated_memory", "sockets", "state"),
        *("threads_per_core", "temporary_disk", "partitions", "reason", "reason_time"),
    ),
    "Partitions": (
        *("name", "is_default", "default_time", "preemption_grace_time", "max_nodes"),
        *("max_time", "min_nodes", "nodes", "priority_tier", "preempt_mode", "state"),
    ),
}
NODE_KEYS = ("alloc_cpus", "gres", "gres_used", "reason_uid")
JOB_KEYS = ("end_time", "exit_code")


class Shapes:
    """Calls of pyslurm by ``ask(call, how)``; ``how`` asks the real one."""

    def __init__(self, ask: Callable[[str, Callable[[Any], Any]], Any], version: str) -> None:
        self.__version__ = version
        for name, attributes in ATTRIBUTES.items():
            setattr(self, name, SimpleNamespace(load=_load(ask, name, attributes)))
        self._ask = ask

    def node(self) -> SimpleNamespace:
        def get() -> Any:
            return self._ask(
                "node",
                lambda real: {
                    name: {key: found[key] for key in NODE_KEYS}
                    for name, found in real.node().get().items()
                },
            )

        return SimpleNamespace(get=get)

    def job(self) -> SimpleNamespace:
        def get() -> Any:
            found = self._ask(
                "job",
                lambda real: {
                    number: {key: each[key] for key in JOB_KEYS}
                    for number, each in real.job().get().items()
                },
            )
            return {int(number): each for number, each in found.items()}

        return SimpleNamespace(get=get)


def _load(
    ask: Callable[[str, Callable[[Any], Any]], Any], name: str, attributes: tuple[str, ...]
) -> Callable[[], dict[int, SimpleNamespace]]:
    def load() -> dict[int, SimpleNamespace]:
        found = ask(
            name,
            lambda real: [
                [getattr(each, attribute) for attribute in attributes]
                for each in getattr(real, name).load().values()
            ],
        )
        records = [dict(zip(attributes, values, strict=True)) for values in found]
        return {k: SimpleNamespace(**record) for k, record in enumerate(records)}

    return load


def recording(path: Path) -> tuple[Shapes, Callable[[int], str] | None]:
    """Ask the real pyslurm, and write down what it says."""
    import pyslurm  # noqa: PLC0415  # type: ignore[import-not-found,unused-ignore]

    out = path.open("a", encoding="utf-8")

    def write(**line: object) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    def ask(call: str, how: Callable[[Any], Any]) -> Any:
        write(begins=call)
        found = how(pyslurm)
        write(call=call, found=found)
        return found

    write(version=pyslurm.__version__)
    return Shapes(ask, pyslurm.__version__), None


def replaying(path: Path) -> tuple[Shapes, Callable[[int], str]]:
    """Say again what was written down."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    answers: dict[str, list[Any]] = {}
    begun: str | None = None
    for line in [*lines, {}]:
        if begun is not None and "call" not in line:
            answers.setdefault(begun, []).append(None)
        begun = line.get("begins")
        if "call" in line:
            answers.setdefault(line["call"], []).append(line["found"])
    accounts: dict[str, str] = next((line["accounts"] for line in lines if "accounts" in line), {})
    version = next(line["version"] for line in lines if "version" in line)

    def ask(call: str, _how: Callable[[Any], Any]) -> Any:
        left = answers[call]
        found = left.pop(0) if len(left) > 1 else left[0]
        if found is None:
            os._exit(1)
        return found

    return Shapes(ask, version), lambda uid: str(accounts[str(uid)])


def loaded(path: str) -> ModuleType:
    """The child, without starting it."""
    spec = importlib.util.spec_from_file_location("child", path)
    assert spec is not None
    assert spec.loader is not None
    child = importlib.util.module_from_spec(spec)
    sys.modules["child"] = child
    spec.loader.exec_module(child)
    return child


def main(mode: str, shapes: str, path: str) -> None:
    """Be the child."""
    child = loaded(path)
    slurm, name_of = {"record": recording, "replay": replaying}[mode](Path(shapes))
    if name_of is not None:
        child._account = name_of  # type: ignore[attr-defined]
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    out.write(json.dumps({"pyslurm": slurm.__version__}).encode() + b"\n")
    out.flush()
    child.serve(slurm, sys.stdin.buffer, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
