"""fed-gate: shows an admin the node as the gate sees it, and records what is right for it.

usage: fed-gate check [--json]    make every check, of all GPUs (exit codes of Nagios)
       fed-gate list              the checks, their thresholds and what follows
       fed-gate record            write down this node, which is well, as what is expected of it;
                                  exit status 1 if the checks say that it is not
       fed-gate clear             Xid reports so far are seen to; the node takes all jobs again
"""

import json
import os
import sys
import time
from typing import Any, Dict, List, Tuple

from fednode import config, findings, infiniband, kernel, manifests, records, scene, smi
from fednode.findings import Finding
from fednode.gate import SCHEMA, seen_us
from fednode.orders import Orders
from fednode.smi import Smi

_OK, _WARNING, _CRITICAL, _UNKNOWN = 0, 1, 2, 3  # as Nagios has them
_USAGE = 64
_CHECKS_S = 30.0
_NO_GPUS = "No devices were found"  # nvidia-smi, where the driver is loaded and sees none


def main(argv: "List[str]", environ: "Dict[str, str]", file: str = config.PATH) -> int:
    """Run the command; the exit status."""
    commands = {"check": _check, "list": _list, "record": _record, "clear": _clear}
    words = [word for word in argv if word != "--json"]
    if words in (["--help"], ["-h"]):
        print(__doc__)
        return _OK
    if len(words) != 1 or words[0] not in commands:
        print(__doc__, file=sys.stderr)
        return _USAGE
    shared, own, problems = config.load("gate", SCHEMA, file)
    for problem in problems:
        print(f"fed-gate: {problem}", file=sys.stderr)
    try:
        node = records.node_name(environ)
        return commands[words[0]](config.of_node(shared, node), own, node, "--json" in argv)
    except (OSError, ValueError) as error:
        print(f"fed-gate: {error}", file=sys.stderr)
        return _UNKNOWN


def _scene(shared: "Dict[str, Any]", own: "Dict[str, Any]", node: str) -> scene.Scene:
    expected, problems = scene.read_expected(_expected_file(own, node))
    for problem in problems:
        print(f"fed-gate: {problem}", file=sys.stderr)
    asked = Smi(shared["nvidia_smi"], _CHECKS_S, {"SLURMD_NODENAME": node})
    seen = seen_us(shared["state_dir"], node)
    in_use = {gpu for job in records.of_node(node, shared["state_dir"]) for gpu in job.gpus}
    view = scene.View(node, None, True, frozenset(in_use))
    return scene.Scene(asked, shared, view, expected, seen)


def _expected_file(own: "Dict[str, Any]", node: str) -> str:
    file: str = own["expected"].replace("%n", node)
    return file


def _manifests(own: "Dict[str, Any]") -> "List[manifests.Manifest]":
    found, problems = manifests.load(own["shipped_checks_dir"], own["checks_dir"])
    for problem in problems:
        print(f"fed-gate: {problem}", file=sys.stderr)
    return found


def _check(shared: "Dict[str, Any]", own: "Dict[str, Any]", node: str, as_json: bool) -> int:
    here = _scene(shared, own, node)
    trouble = here.answer("gpus").trouble
    none = not os.path.exists(shared["nvidia_smi"]) or _NO_GPUS in trouble
    if none and not here.expected.gpus:
        here.allotted = ()
    found = findings.look(_manifests(own), here, time.monotonic() + _CHECKS_S)
    status = _nagios(found)
    if as_json:
        rows = [
            {
                "check": f.manifest.id,
                "verdict": f.verdict,
                "action": f.manifest.action,
                "detail": f.detail,
            }
            for f in found
        ]
        print(json.dumps({"node": node, "status": status, "checks": rows}))
        return status
    word = {_OK: "OK", _WARNING: "WARNING", _CRITICAL: "CRITICAL"}[status]
    print(f"{word}: {node}, {len(found)} checks")
    for finding in found:
        print(f"{finding.verdict:<8} {finding.manifest.id:<16} {finding.detail}".rstrip())
    return status


def _nagios(found: "List[Finding]") -> int:
    """A fault of a check that would only warn is a warning, and so is what cannot be told."""
    if any(f.verdict == findings.FAULT and f.manifest.action != manifests.WARN for f in found):
        return _CRITICAL
    return _OK if all(f.verdict == findings.OK for f in found) else _WARNING


def _list(shared: "Dict[str, Any]", own: "Dict[str, Any]", node: str, as_json: bool) -> int:
    found = _manifests(own)
    if as_json:
        print(json.dumps([manifest._asdict() for manifest in found]))
        return _OK
    for one in found:
        print(f"{one.id:<16} {one.action:<26} gpus {one.gpus}, {one.when}: {one.what}")
        limits = ", ".join(f"{name}={value}" for name, value in sorted(one.thresholds.items()))
        print(f"{'':<16} {limits or 'no thresholds'}")
    return _OK


def _record(shared: "Dict[str, Any]", own: "Dict[str, Any]", node: str, as_json: bool) -> int:
    here = _scene(shared, own, node)
    here.expected = scene.Expected()  # the node is held against itself, not what it was before
    here.smi.fetch(["gpus", "topology", "links"])
    trouble = here.answer("gpus").trouble
    if trouble and os.path.exists(shared["nvidia_smi"]):
        raise ValueError(f"nothing is recorded: {trouble}")
    chosen = [manifest for manifest in _manifests(own) if not manifest.command]
    sick = [
        finding
        for finding in findings.look(chosen, here, time.monotonic() + _CHECKS_S)
        if finding.verdict == findings.FAULT
    ]
    for finding in sick:
        print(
            f"fed-gate: is this node well? {finding.manifest.id}: {finding.detail}", file=sys.stderr
        )
    document = json.dumps(seen_now(here)._asdict(), indent=1, sort_keys=True)
    file = _expected_file(own, node)
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(file + ".new", "w", encoding="utf-8") as stream:
        stream.write(document + "\n")
    os.chmod(file + ".new", 0o644)
    os.rename(file + ".new", file)
    print(f"{file}:\n{document}")
    return _WARNING if sick else _OK


def seen_now(here: scene.Scene) -> scene.Expected:
    """Return what is there now in the form of what is expected."""
    gpus = here.gpus()
    links = smi.parse_links(here.answer("links").text)
    speeds = {gpu: [s for s in by.values() if s is not None] for gpu, by in links.items()}
    widths = {str(gpu.id): gpu.number("pcie.link.width.current") for gpu in gpus}
    names = {gpu.fields.get("name", "") for gpu in gpus}
    matrix = smi.parse_matrix(here.answer("topology").text)
    active = {
        name: port.rate_gbps
        for name, port in infiniband.ports(here.shared["sysfs"]).items()
        if port.state == "ACTIVE"
    }
    return scene.Expected(
        gpus=len(gpus),
        gpu_name=names.pop() if len(names) == 1 else "",
        pcie_width={gpu: width for gpu, width in widths.items() if width},
        links={str(gpu): len(up) for gpu, up in speeds.items()},
        link_gbps=min((speed for up in speeds.values() for speed in up), default=None),
        matrix={" ".join(pair): cell for pair, cell in matrix.items() if cell.startswith("NV")},
        ports=active,
    )


def _clear(shared: "Dict[str, Any]", own: "Dict[str, Any]", node: str, as_json: bool) -> int:
    with open("/proc/uptime", encoding="ascii") as stream:
        uptime_us = int(float(stream.read().split()[0]) * 1e6)
    kernel.note_seen(kernel.seen_file(shared["state_dir"], node), records.boot_id(), uptime_us)
    print(f"{node}: Xid reports until now have been seen to")
    orders = Orders(shared)
    if not orders.mark(node, single=False):
        print("fed-gate: " + "; ".join(orders.troubles), file=sys.stderr)
        return _UNKNOWN
    print(f"{node}: takes jobs of several nodes again")
    return _OK


__all__: "Tuple[str, ...]" = ("main", "seen_now")
