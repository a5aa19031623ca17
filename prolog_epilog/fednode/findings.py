"""Makes the checks of this node side by side, in time, and collects their findings."""

import os
import threading
import time
from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

from fednode import config
from fednode.checks import BUILTIN, NotKnown
from fednode.manifests import Manifest
from fednode.run import Ran, run
from fednode.scene import Scene

OK, WARNING, FAULT, UNKNOWN = "ok", "warning", "fault", "unknown"
_CHARS = 400


class Finding(NamedTuple):
    """The finding of one check; ``detail`` is "" where all is well."""

    manifest: Manifest
    verdict: str  # ok, fault; warning (a command's exit status 1); unknown: could not be told
    detail: str = ""


def applies(manifest: Manifest, scene: Scene) -> bool:
    """Tell whether a check is made: some are for jobs of several nodes, or with GPUs, only."""
    if manifest.when == "multi-node" and not scene.multi_node:
        return False
    builtin = None if manifest.command else BUILTIN[manifest.id]
    return builtin is None or not builtin.for_gpus or scene.allotted != ()


def look(
    manifests: "Sequence[Manifest]",
    scene: Scene,
    deadline: float,
    hang_is_fault: bool = True,
    ask: "Callable[..., Ran]" = run,
) -> "List[Finding]":
    """Make every check that applies and return what each found, in the same order.

    Args:
        deadline: of the checks that are commands, on the monotonic clock.
        hang_is_fault: whether an nvidia-smi that does not answer in all the time that it has
            counts against the node.
    """
    chosen = [manifest for manifest in manifests if applies(manifest, scene)]
    found: "dict[str, Finding]" = {}
    commands = [
        threading.Thread(target=_run_command, args=(m, scene, deadline, ask, found), daemon=True)
        for m in chosen
        if m.command
    ]
    for thread in commands:
        thread.start()
    builtin = [manifest for manifest in chosen if not manifest.command]
    scene.smi.fetch(sorted({q for m in builtin for q in _questions(m, scene)}))
    for manifest in builtin:
        found[manifest.id] = _judge(manifest, scene, hang_is_fault)
    for thread in commands:
        thread.join(max(0.0, deadline + 0.5 - time.monotonic()))
    late = "did not end in time"
    return [found.get(m.id, Finding(m, UNKNOWN, late)) for m in chosen]


def _questions(manifest: Manifest, scene: Scene) -> "Tuple[str, ...]":
    """Return what the check asks nvidia-smi; the matrix only where there is one to compare with."""
    if manifest.id == "nvlink-matrix" and not scene.expected.matrix:
        return ()
    return BUILTIN[manifest.id].questions


def busy_again(findings: "Sequence[Finding]") -> bool:
    """Tell whether all that is wrong is GPUs in use: the job before may still be leaving."""
    faults = [finding.manifest.id for finding in findings if finding.verdict == FAULT]
    return faults == ["gpus-idle"]


def doubted(findings: "Sequence[Finding]", why: str) -> "List[Finding]":
    """Return the findings with every fault not known instead."""
    return [
        finding._replace(verdict=UNKNOWN, detail=f"{finding.detail}; {why}"[:_CHARS])
        if finding.verdict == FAULT
        else finding
        for finding in findings
    ]


def _judge(manifest: Manifest, scene: Scene, hang_is_fault: bool) -> Finding:
    builtin = BUILTIN[manifest.id]
    for question in _questions(manifest, scene):
        answer = scene.answer(question)
        late = answer.hung and not hang_is_fault
        if answer.trouble and (late or manifest.id != "gpus-present"):
            return Finding(manifest, UNKNOWN, answer.trouble[:_CHARS])
    try:
        faults = builtin.run(scene, manifest.gpus, manifest.thresholds)
    except NotKnown as error:
        return Finding(manifest, UNKNOWN, str(error)[:_CHARS])
    except Exception as error:  # what we did not foresee is our fault, not the node's
        return Finding(manifest, UNKNOWN, f"the check failed: {error!r}"[:_CHARS])
    if not faults:
        return Finding(manifest, OK)
    more = f" (+{len(faults) - 1} more)" if len(faults) > 1 else ""
    return Finding(manifest, FAULT, (faults[0] + more)[:_CHARS])


def _run_command(
    manifest: Manifest,
    scene: Scene,
    deadline: float,
    ask: "Callable[..., Ran]",
    found: "dict[str, Finding]",
) -> None:
    """Run a site's own check: 0 is well, 1 a warning, 2 a fault, anything else not known."""
    trouble = _not_trusted(manifest.command[0])
    if trouble:
        found[manifest.id] = Finding(manifest, UNKNOWN, trouble)
        return
    wanted = scene.wanted(manifest.gpus)
    gpus = "all" if wanted is None else ",".join(map(str, sorted(wanted)))
    extra = {
        "FED_GATE_GPUS": gpus,
        "FED_GATE_MULTI_NODE": str(int(scene.multi_node)),
        "SLURMD_NODENAME": scene.node,
    }
    left_s = max(0.1, min(manifest.timeout_s, deadline - time.monotonic()))
    ran = ask(manifest.command, left_s, extra)
    lines = (ran.out.strip() or ran.err.strip() or ran.trouble).splitlines()
    detail = lines[0][:_CHARS] if lines else f"ended with status {ran.status}"
    verdict = {0: OK, 1: WARNING, 2: FAULT}.get(-1 if ran.status is None else ran.status, UNKNOWN)
    found[manifest.id] = Finding(manifest, verdict, "" if verdict == OK else detail)


def _not_trusted(program: str) -> str:
    try:
        return "" if config.trusted(os.stat(program)) else f"{program} can be written by others"
    except OSError as error:
        return str(error)


def worst(findings: "Sequence[Finding]", actions: "Tuple[str, ...]") -> "Optional[Finding]":
    """Return the first fault whose check has one of ``actions``."""
    for finding in findings:
        if finding.verdict == FAULT and finding.manifest.action in actions:
            return finding
    return None
