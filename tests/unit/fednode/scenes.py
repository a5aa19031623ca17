"""A node as the gate sees it, from the answers in tests/data/nvidia_smi."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fednode import checks, config, smi
from fednode.findings import Finding
from fednode.manifests import Manifest, load
from fednode.run import Ran
from fednode.scene import Expected, Scene, View

from federator.testbed.layout import REPOSITORY

NVIDIA_SMI = str(REPOSITORY / "containers" / "fake" / "nvidia-smi")
SHIPPED = str(REPOSITORY / "prolog_epilog" / "checks.d")
CASES = REPOSITORY / "tests" / "data" / "nvidia_smi"


def shared(**differing: object) -> dict[str, Any]:
    return {name: key.default for name, key in config.COMMON.items()} | differing


def asking(case: str, timeout_s: float = 10) -> smi.Smi:
    return smi.Smi(NVIDIA_SMI, timeout_s, {"FAKE_NVIDIA_SMI_CASE": case})


def saying(text: str, status: int | None = 0, trouble: str = "") -> smi.Smi:
    """An nvidia-smi that answers ``text`` to every question."""

    def ask(argv: Sequence[str], timeout_s: float, extra: object = None) -> Ran:
        return Ran(status, text, "", trouble)

    return smi.Smi("/nvidia-smi", 1, ask=ask)


def scene_of(
    case: str,
    allotted: tuple[int, ...] | None = (0, 1, 2, 3),
    *,
    multi_node: bool = False,
    expected: Expected = Expected(),  # noqa: B008 - a constant
    **settings: object,
) -> Scene:
    settings.setdefault("kmsg", str(CASES / case / "kmsg.txt"))
    return Scene(asking(case), shared(**settings), View("n1", allotted, multi_node), expected)


def faults(check: str, where: Scene, which: str = "allotted", **limits: object) -> list[str]:
    """What a check has against a node; nothing where it cannot tell."""
    builtin = checks.BUILTIN[check]
    try:
        return builtin.run(where, which, {**builtin.thresholds, **limits})
    except checks.NotKnown:
        return []


def shipped() -> list[Manifest]:
    manifests, problems = load(SHIPPED, "/nonexistent")
    assert problems == []
    return manifests


def verdicts(found: Sequence[Finding]) -> dict[str, str]:
    return {one.manifest.id: one.verdict for one in found if one.verdict != "ok"}


def ports(sysfs: Path, **states: tuple[str, str, str]) -> str:
    """Make a tree like sysfs: device to state, phys_state and rate of its one port."""
    for device, words in states.items():
        folder = sysfs / "class" / "infiniband" / device / "ports" / "1"
        folder.mkdir(parents=True)
        for name, word in zip(("state", "phys_state", "rate"), words, strict=True):
            (folder / name).write_text(word + "\n")
    return str(sysfs)


def json_file(path: Path, document: object) -> str:
    path.write_text(json.dumps(document))
    path.chmod(0o644)
    return str(path)
