"""The built-in checks of a node: each says in a few words why it is not fit for the job.

A check returns a list of faults; an empty list is well. A fault names the GPU or port, what was
measured, and what was expected. What nvidia-smi does not say ("[N/A]", an old driver, an answer
that cannot be read) is no fault. Thresholds are those of the check's manifest; their sources are
named in docs/health-gate.md.
"""

import re
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from fednode import infiniband, kernel, smi
from fednode.scene import Scene

Thresholds = Dict[str, Any]
_DETOURS = ("PIX", "PXB", "PHB", "NODE", "SYS")  # between GPUs that have no NVLink


class NotKnown(Exception):
    """What was asked cannot be told from what the node says; that is no fault of the node."""


class Builtin(NamedTuple):
    """One check: what it asks nvidia-smi, and its thresholds with their defaults."""

    run: "Callable[[Scene, str, Thresholds], List[str]]"  # scene, "allotted" or "all", thresholds
    questions: "Tuple[str, ...]"
    thresholds: Thresholds
    for_gpus: bool = True

    def well(self, name: str, value: Any) -> bool:
        """Tell whether ``value`` can be the threshold ``name``."""
        default = self.thresholds[name]
        if isinstance(default, bool):
            return isinstance(value, bool)
        if isinstance(default, list):
            return isinstance(value, list) and all(_is_count(part) for part in value)
        if name in ("name",):
            return value is None or isinstance(value, str)
        if name in ("ports",):
            return value is None or isinstance(value, dict)
        return value is None or _is_count(value) or (isinstance(value, float) and value >= 0)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def gpus_present(scene: Scene, which: str, limits: Thresholds) -> "List[str]":
    """As many GPUs as expected, of the expected model, the job's own among them, none lost."""
    answer, found = scene.answer("gpus"), scene.gpus()
    if answer.trouble:
        if answer.plain:
            return [answer.trouble]
        raise NotKnown(answer.trouble)
    odd = smi.odd_lines(answer.text)
    faults = [line for line in odd if smi.says_gone(line)]
    for gpu in found:
        if smi.says_gone(" ".join(gpu.fields.values())):
            faults.append(f"GPU {gpu.id} does not answer (lost or in need of a reset)")
    if not faults and (odd or not found):
        raise NotKnown(f"nvidia-smi says what cannot be read: {odd[0] if odd else 'nothing'}")
    return faults + _missing(scene, which, limits, found) + _of_other_models(scene, limits, found)


def _missing(
    scene: Scene, which: str, limits: Thresholds, found: "List[smi.GpuFacts]"
) -> "List[str]":
    there = {gpu.id for gpu in found}
    if not there:
        return []
    wanted = _first(limits["count"], scene.expected.gpus)
    faults = [f"{len(there)} GPUs, expected {wanted:g}"] if len(there) < wanted else []
    # Parts of GPUs (MIG) have numbers of their own, which are not those of nvidia-smi.
    own = set() if any(map(_is_mig, found)) else scene.wanted(which) or set()
    gone = [f"GPU {n} is not there, only {len(there)} are" for n in sorted(own - there)]
    return faults + gone


def _is_mig(gpu: "smi.GpuFacts") -> bool:
    return gpu.fields.get("mig.mode.current", "").lower() == "enabled"


def _of_other_models(scene: Scene, limits: Thresholds, found: "List[smi.GpuFacts]") -> "List[str]":
    expected = limits["name"] or scene.expected.gpu_name
    names = [(gpu.id, gpu.fields.get("name", "")) for gpu in found]
    return [
        f"GPU {index} is a {name}, expected {expected}"
        for index, name in names
        if expected and name and not name.startswith("[") and _model(name) != _model(expected)
    ]


def _model(name: str) -> str:
    """Return a GPU's name without what differs between drivers: the maker's name, and case."""
    plain = " ".join(name.lower().split())
    return plain[len("nvidia ") :] if plain.startswith("nvidia ") else plain


def gpus_idle(scene: Scene, which: str, limits: Thresholds) -> "List[str]":
    """Nobody else has memory of the GPUs.

    Not judged: GPUs in MIG mode, GPUs that another job has as well, and those that a server of
    NVIDIA's MPS has, which outlives the job that it was started for.
    """
    faults = []
    for gpu in scene.gpus(which):
        uuid = gpu.fields.get("uuid", "")
        holders = [app for app in scene.apps() if uuid and app.uuid == uuid]
        if _is_mig(gpu) or gpu.id in scene.shared_gpus or any(_is_mps(app.pid) for app in holders):
            continue
        used = gpu.number("memory.used")
        if holders and limits["processes"]:
            app = holders[0]
            held = "" if app.memory_mib is None else f" with {app.memory_mib:.0f} MiB"
            faults.append(f"GPU {gpu.id} is held by process {app.pid}{held}")
        elif _above(used, limits["max_used_mib"]):
            most = limits["max_used_mib"]
            faults.append(f"GPU {gpu.id} has {used:.0f} MiB in use, expected at most {most:g}")
    return faults


def _is_mps(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as stream:
            return stream.read(64).startswith("nvidia-cuda-mps")
    except OSError:
        return False


def nvlink_matrix(scene: Scene, which: str, limits: Thresholds) -> "List[str]":
    """Pairs that had NVLink between them when the node was recorded have as much now."""
    if not scene.expected.matrix:
        return []
    found = smi.parse_matrix(scene.answer("topology").text)
    wanted = scene.wanted(which)
    faults = []
    for pair, link in sorted(scene.expected.matrix.items()):
        names = pair.split()
        if not link.startswith("NV") or len(names) != 2:
            continue
        cell = found.get((names[0], names[1]))
        inside = wanted is None or all(_index(name) in wanted for name in names)
        if inside and cell is not None and _is_less(cell, link):
            faults.append(f"{names[0]}-{names[1]} is {cell}, expected {link}")
    return faults


def _is_less(cell: str, link: str) -> bool:
    """Tell whether ``cell`` is plainly less than the NVLinks ``link``; an unknown word is not."""
    if cell in _DETOURS:
        return True
    now, then = (re.fullmatch("NV([0-9]{1,3})", text) for text in (cell, link))
    return now is not None and then is not None and int(now.group(1)) < int(then.group(1))


def _index(name: str) -> int:
    return int(name[3:]) if name[3:].isdigit() else -1


def nvlink_links(scene: Scene, which: str, limits: Thresholds) -> "List[str]":
    """No GPU has NVLinks plainly inactive that are expected to be up, nor slow ones.

    Expected is the manifest's, else the record's. Without either, a GPU of which some links are up
    and some are not is held against the best of this node (one without any may have no bridge),
    and its links' speed against its own fastest.
    """
    found = smi.parse_links(scene.answer("links").text)
    speeds = {gpu: [s for s in links.values() if s is not None] for gpu, links in found.items()}
    most = max((len(up) for up in speeds.values()), default=0)
    faults = []
    for gpu, links in _chosen(scene, which, found):
        up = speeds[gpu]
        wanted = _first(limits["links"], scene.expected.links.get(str(gpu)), most if up else 0)
        gbps = _first(limits["min_gbps"], scene.expected.link_gbps, max(up, default=0.0))
        down = [link for link in sorted(links) if links[link] is None]
        slow = [(link, s) for link, s in sorted(links.items()) if s is not None and s < gbps * 0.99]
        if down and len(up) < wanted:
            faults.append(
                f"GPU {gpu} has {len(up)} active NVLinks, expected {wanted:g},"
                f" link {down[0]} is inactive"
            )
        if slow:
            link, speed = slow[0]
            faults.append(f"GPU {gpu} link {link} runs at {speed:g} GB/s, expected {gbps:g}")
    return faults


def _first(*values: Any) -> Any:
    """Return the first that is given; 0 is."""
    return next((value for value in values if value is not None), None)


def nvlink_errors(scene: Scene, which: str, limits: Thresholds) -> "List[str]":
    """No NVLink has more errors than is usual since the driver was loaded."""
    found = smi.parse_link_errors(scene.answer("link_errors").text)
    return [
        f"GPU {gpu} link {link} has {count} {name} errors, expected at most {limits[name]:g}"
        for gpu, links in _chosen(scene, which, found)
        for link, counters in sorted(links.items())
        for name, count in sorted(counters.items())
        if _above(count, limits.get(name))
    ]


def _chosen(scene: Scene, which: str, found: "Dict[int, Any]") -> "Iterator[Tuple[int, Any]]":
    wanted = scene.wanted(which)
    for gpu in sorted(found):
        if wanted is None or gpu in wanted:
            yield gpu, found[gpu]


def _above(value: Any, most: Any) -> bool:
    return value is not None and most is not None and value > most


def ecc(scene: Scene, which: str, limits: Thresholds) -> "List[str]":
    """No uncorrected memory errors: since the driver was loaded (volatile), or ever (aggregate)."""
    return [
        f"GPU {gpu.id} has {count:.0f} {kind} uncorrected ECC errors, "
        f"expected at most {limits[kind]:g}"
        for gpu in scene.gpus(which)
        for kind in ("volatile", "aggregate")
        for count in [gpu.number(f"ecc.errors.uncorrected.{kind}.total")]
        if count is not None and _above(count, limits[kind])
    ]


def remapped_rows(scene: Scene, which: str, limits: Thresholds) -> "List[str]":
    """No row of memory waits to be remapped or could not be (A100 and later)."""
    rows = smi.parse_rows(scene.answer("rows").text)
    faults = []
    for gpu in scene.gpus(which):
        row = rows.get(gpu.fields.get("uuid", ""), {})
        for word in ("failure", "pending"):
            if row.get(f"remapped_rows.{word}", "").lower() in ("yes", "1") and limits[word] == 0:
                faults.append(f"GPU {gpu.id} row remap {word}: yes, expected no")
        count = smi.number(row.get("remapped_rows.uncorrectable", ""))
        if _above(count, limits["uncorrectable"]):
            most = limits["uncorrectable"]
            faults.append(f"GPU {gpu.id} has {count:.0f} remapped rows, expected at most {most:g}")
    return faults


def retired_pages(scene: Scene, which: str, limits: Thresholds) -> "List[str]":
    """No page of memory waits to be retired, and not too many are (before A100)."""
    faults = []
    for gpu in scene.gpus(which):
        if gpu.is_yes("retired_pages.pending") and limits["pending"] == 0:
            faults.append(f"GPU {gpu.id} retired pages pending: yes, expected no")
        count = gpu.number("retired_pages.double_bit.count")
        if _above(count, limits["double_bit"]):
            most = limits["double_bit"]
            faults.append(f"GPU {gpu.id} has {count:.0f} retired pages, expected at most {most:g}")
    return faults


def xid(scene: Scene, which: str, limits: Thresholds) -> "List[str]":
    """The driver has reported none of the errors that need a reset or a repair."""
    log = kernel.read_log(scene.shared["kmsg"])
    reports = [] if log is None else kernel.parse_xids(log)
    ours: "Dict[str, int]" = {}
    if any(report.code in limits["fatal"] for report in reports):
        pairs = ((smi.pci_key(g.fields.get("pci.bus_id", "")), g.id) for g in scene.gpus())
        ours = {key: index for key, index in pairs if key}
    wanted = scene.wanted(which)
    faults: "Dict[str, None]" = {}
    for report in reports:
        fresh = report.at_us > scene.seen_us or not report.at_us
        gpu = ours.get(smi.pci_key(report.pci))
        if report.code not in limits["fatal"] or not fresh:
            continue
        if wanted is None or gpu is None or gpu in wanted:
            where = f"PCI {report.pci}" if gpu is None else f"GPU {gpu}"
            faults[f"{where} reported Xid {report.code} since boot, expected none"] = None
    return list(faults)


def pcie(scene: Scene, which: str, limits: Thresholds) -> "List[str]":
    """The PCIe link is as wide as it was recorded, or can be; its generation, if that is set."""
    faults = []
    for gpu in scene.gpus(which):
        wide, widest = gpu.number("pcie.link.width.current"), gpu.number("pcie.link.width.max")
        wanted = _first(limits["width"], scene.expected.pcie_width.get(str(gpu.id)), widest)
        if wide and wanted and wide < wanted:
            faults.append(f"GPU {gpu.id} PCIe width x{wide:.0f}, expected x{wanted:.0f}")
        gen = gpu.number("pcie.link.gen.current")
        if gen and limits["gen"] and gen < limits["gen"]:
            faults.append(f"GPU {gpu.id} PCIe generation {gen:.0f}, expected {limits['gen']:g}")
    return faults


def infiniband_ports(scene: Scene, which: str, limits: Thresholds) -> "List[str]":
    """Every port that is expected is active, up, and at its rate."""
    wanted = _first(limits["ports"], scene.expected.ports)
    found = infiniband.ports(scene.shared["sysfs"])
    faults = []
    for name, rate in sorted(wanted.items()):
        port = found.get(name)
        if port is None:
            faults.append(f"port {name} is not there")
        elif port.state and port.state != "ACTIVE":
            faults.append(f"port {name} is {port.state} ({port.phys_state}), expected ACTIVE")
        elif port.rate_gbps and smi.number(str(rate)) and port.rate_gbps < float(rate):
            faults.append(f"port {name} runs at {port.rate_gbps:g} Gb/s, expected {float(rate):g}")
    return faults


def p2p(scene: Scene, which: str, limits: Thresholds) -> "List[str]":
    """Every pair of the GPUs can read each other's memory."""
    wanted = scene.wanted(which)
    return [
        f"{one}-{other} cannot reach each other's memory ({cell}), expected OK"
        for (one, other), cell in sorted(smi.parse_matrix(scene.answer("p2p").text).items())
        if cell in ("CNS", "GNS", "TNS", "NS")
        and (wanted is None or {_index(one), _index(other)} <= wanted)
    ]


# Errors after which the GPU needs a reset, the node a restart, or the hardware a repair; sources
# in docs/health-gate.md. Those of programs (13, 31, 43, 45) and contained ones (94) are not among
# them.
_FATAL_XIDS = [46, 48, 62, 64, 74, 79, 95, 119, 120, 140]

BUILTIN: "Dict[str, Builtin]" = {
    "gpus-present": Builtin(gpus_present, ("gpus",), {"count": None, "name": None}),
    "gpus-idle": Builtin(gpus_idle, ("gpus", "apps"), {"max_used_mib": 1024, "processes": True}),
    "nvlink-matrix": Builtin(nvlink_matrix, ("topology",), {}),
    "nvlink-links": Builtin(nvlink_links, ("links",), {"links": None, "min_gbps": None}),
    "nvlink-errors": Builtin(
        nvlink_errors, ("link_errors",), {"replay": 1000, "recovery": 0, "crc": 1000}
    ),
    "ecc": Builtin(ecc, ("gpus",), {"volatile": 0, "aggregate": None}),
    "remapped-rows": Builtin(
        remapped_rows, ("gpus", "rows"), {"pending": 0, "failure": 0, "uncorrectable": None}
    ),
    "retired-pages": Builtin(retired_pages, ("gpus",), {"pending": 0, "double_bit": 60}),
    "xid": Builtin(xid, (), {"fatal": _FATAL_XIDS}),
    "pcie": Builtin(pcie, ("gpus",), {"width": None, "gen": None}),
    "infiniband": Builtin(infiniband_ports, (), {"ports": None}, for_gpus=False),
    "p2p": Builtin(p2p, ("p2p",), {}),
}
