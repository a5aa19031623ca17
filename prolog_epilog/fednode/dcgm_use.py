"""Reads how busy GPUs were from the dcgm-exporter of this node, where there is one.

Its figure is a mean over its own interval (30 s), nvidia-smi's one of the last moments. It speaks
Prometheus text, one line for each GPU and metric, with the GPU's UUID as a label (NVIDIA's
dcgm-exporter, internal/pkg/rendermetrics/render_metrics.go). Anyone can listen on a port that is
free: one whose listener is a user's is not believed.
"""

import contextlib
import http.client
import re
from itertools import islice
from typing import Dict, Iterable, Iterator, NamedTuple, Optional, Sequence, Set

from fednode.gpu_use import Gpu, number
from fednode.watching import Reading

AUTO, NVIDIA_SMI, DCGM = "auto", "nvidia-smi", "dcgm"
MAX_BYTES = 4 << 20  # of an answer; eight GPUs take about 100 KiB
MOST_UID = 999  # of a system account
_HOST = "127.0.0.1"
_ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"  # 0 to 1
_UTIL = "DCGM_FI_DEV_GPU_UTIL"  # percent; nvidia-smi's figure
_POWER = "DCGM_FI_DEV_POWER_USAGE"  # W
# Beyond is DCGM's "not known": a number near 2**47 or 2**63.
_MOST = {_ENGINE: 1.0, _UTIL: 100.0, _POWER: 1e5}
_LINE = re.compile(r"(DCGM_FI_[A-Z_]{1,64})\{(.*)\} ([^ ]{1,32})(?: -?[0-9]{1,20})?")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]{0,63})="((?:[^"\\]|\\.)*)"')
_MOST_LINE = 8192
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_MOST_SOCKETS = 100_000
_LISTENS = "0A"


class Seen(NamedTuple):
    """One GPU by DCGM; None: it does not say."""

    engine_frac: "Optional[float]" = None  # 0 to 1: of its interval some engine was active
    util_frac: "Optional[float]" = None  # 0 to 1: as nvidia-smi's
    power_w: "Optional[float]" = None


class Exporter:
    """Asks the dcgm-exporter on ``port`` of this node.

    Args:
        timeout_s: until it connects, and of each pause in its answer.
        most_uid: whose listener is believed.
    """

    def __init__(self, port: int, timeout_s: float, most_uid: int = MOST_UID) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._most_uid = most_uid
        self.trouble = ""  # why the last question had no answer

    def gpus(self) -> "Optional[Dict[str, Seen]]":
        """Return the GPUs by UUID; None where there is no answer that tells of any."""
        self.trouble = self._mistrust()
        if self.trouble:
            return None
        try:
            found = parse_metrics(self._fetched())
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.trouble = f"port {self._port}: {str(error) or type(error).__name__}"[:200]
            return None
        if not found:
            self.trouble = f"port {self._port}: tells of no GPU that is not in MIG mode"
        return found or None

    def _mistrust(self) -> str:
        uids = {uid for file in _TABLES for uid in _listeners(_lines(file), self._port)}
        if not uids:
            return f"port {self._port}: nothing listens"
        if max(uids) > self._most_uid:
            return f"port {self._port}: its listener is of uid {max(uids)}, no system account"
        return ""

    def _fetched(self) -> str:
        connection = http.client.HTTPConnection(_HOST, self._port, timeout=self._timeout_s)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics", headers={"Accept": "text/plain"})
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise ValueError(f"answers {answer.status}")
            data = answer.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"answers more than {MAX_BYTES} bytes")
        return data.decode("utf-8", "replace")


def _lines(file: str) -> "Iterator[str]":
    with contextlib.suppress(OSError), open(file, encoding="ascii", errors="replace") as stream:
        yield from islice(stream, _MOST_SOCKETS)


def _listeners(lines: "Iterable[str]", port: int) -> "Iterator[int]":
    """Tell the uids of who listens on a port, by the kernel's table of sockets (proc(5))."""
    for words in map(str.split, lines):
        listens = len(words) > 7 and words[3] == _LISTENS and words[7].isdigit()
        if listens and words[1].rpartition(":")[2] == f"{port:04X}":
            yield int(words[7])


def parse_metrics(text: str) -> "Dict[str, Seen]":
    """Read what dcgm-exporter says, by UUID; what makes no sense is passed over.

    A job that shares a GPU repeats its line: the most counts. A GPU of which instances are told is
    left out: its figures are not those of one job.
    """
    found: "Dict[str, Dict[str, float]]" = {}
    in_mig: "Set[str]" = set()
    for line in text.splitlines():
        match = _LINE.fullmatch(line) if len(line) <= _MOST_LINE else None
        if match is None or match.group(1) not in _MOST:
            continue
        labels = dict(_LABEL.findall(match.group(2)))
        uuid = labels.get("UUID") or labels.get("uuid", "")
        if "GPU_I_ID" in labels:
            in_mig.add(uuid)
        value, most = number(match.group(3)), _MOST[match.group(1)]
        if uuid and value is not None and value <= most:
            of_gpu = found.setdefault(uuid, {})
            of_gpu[match.group(1)] = max(value, of_gpu.get(match.group(1), 0.0))
    return {uuid: _seen(of_gpu) for uuid, of_gpu in found.items() if uuid not in in_mig}


def _seen(of_gpu: "Dict[str, float]") -> Seen:
    util = of_gpu.get(_UTIL)
    util_frac = None if util is None else util / 100
    return Seen(of_gpu.get(_ENGINE), util_frac, of_gpu.get(_POWER))


def with_seen(
    readings: "Dict[int, Reading]",
    looks: "Sequence[Dict[int, Gpu]]",
    seen: "Optional[Dict[str, Seen]]",
    source: str,
) -> "Dict[int, Reading]":
    """Return the readings with what DCGM has seen. Pure.

    Args:
        readings: of nvidia-smi, by GPU index. Where it tells no use (MIG), none is told.
        looks: of which they are the most.
        seen: by UUID; None: DCGM had no answer.
        source: ``AUTO``: what DCGM does not say stays nvidia-smi's. ``DCGM``: its use alone counts.
    """
    if source == NVIDIA_SMI:
        return readings
    named = {index: gpu for gpus in looks for index, gpu in gpus.items()}
    return {
        index: _with(reading, named[index], (seen or {}).get(named[index].uuid, Seen()), source)
        for index, reading in readings.items()
    }


def _with(reading: Reading, gpu: Gpu, seen: Seen, source: str) -> Reading:
    if reading.busy_frac is None:
        return reading
    use = seen.engine_frac
    if source == DCGM:
        use = seen.util_frac if use is None else use
        reading = reading._replace(busy_frac=use)
    if use is None:
        return reading
    power_frac = reading.power_frac
    if seen.power_w is not None and gpu.limit_w:
        power_frac = seen.power_w / gpu.limit_w
    return reading._replace(engine_frac=use, power_frac=power_frac)
