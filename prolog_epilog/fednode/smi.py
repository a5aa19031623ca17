"""Reads nvidia-smi, and judges whether its answer about this node's GPUs is reliable.

Each question is one run of nvidia-smi with a time limit; questions are asked side by side, since
one takes a tenth of a second to a second on a real machine. An answer that cannot be read is
"not known", never a fault: only what is plainly said counts against a node.
"""

import csv
import re
import threading
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from fednode.run import Ran, run

# Field of --query-gpu to the name in ``GpuFacts.fields``. Order is that of the question.
FIELDS = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "memory.used",
    "mig.mode.current",
    "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.uncorrected.aggregate.total",
    "retired_pages.pending",
    "retired_pages.double_bit.count",
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
)
_APPS = ("gpu_uuid", "pid", "used_memory")
_ROWS = (
    "gpu_uuid",
    "remapped_rows.uncorrectable",
    "remapped_rows.pending",
    "remapped_rows.failure",
)
# Exit statuses of nvidia-smi(1): external power is not attached, no driver, an interrupt problem,
# a GPU fell off the bus. Its 2 is a command line it does not know, as another version may say.
_HARDWARE = (8, 9, 10, 15)
_USAGE = 2
_GONE = (
    "gpu is lost",
    "fallen off the bus",
    "requires reset",
    "reset required",
    "couldn't communicate with the nvidia driver",
    "no devices were found",
    "version mismatch",
)
_BAD_FIELD = re.compile(r"Field \"([a-z0-9_.]+)\" is not a valid field", re.IGNORECASE)
_MOST_REFUSED = 4  # fields that an old driver may refuse before we give up
_GPU_LINE = re.compile(r"GPU ([0-9]{1,3}):.*")
_LINK_LINE = re.compile(r"\s*Link ([0-9]{1,3}): (.*)")
_SPEED = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,6})?) GB/s")
_COUNTER = re.compile(r"(Replay|Recovery|CRC)(?: FLIT)?(?: Errors?)?: ([0-9]{1,18})")
_TOPO_GPU = re.compile(r"GPU[0-9]{1,3}")
_PCI = re.compile(r"([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.[0-7])?$")


class GpuFacts(NamedTuple):
    """One GPU: its number, and what nvidia-smi says of each field (text, "" if not known)."""

    id: int
    fields: "Dict[str, str]"

    def number(self, field: str) -> "Optional[float]":
        """Return a field as a number; None for "[N/A]" and its like."""
        return number(self.fields.get(field, ""))

    def is_yes(self, field: str) -> bool:
        """Tell whether a field plainly says yes."""
        return self.fields.get(field, "").lower() in ("yes", "1")


class AppFacts(NamedTuple):
    """One process that holds memory of a GPU."""

    uuid: str
    pid: int
    memory_mib: "Optional[float]"


class Answer(NamedTuple):
    """What came of a question: its text, or why there is none.

    ``plain``: the trouble is evidence of a fault: a GPU or driver that is gone, said by nvidia-smi
    itself, or no answer in the whole time that one has. Anything else may be trouble of our own.
    """

    text: str
    trouble: str = ""
    plain: bool = False
    hung: bool = False


class Smi:
    """The answers of one nvidia-smi, each asked for once.

    Args:
        program: its path.
        timeout_s: of one question.
        ask: runs a command; for tests.
        whole_time: whether ``timeout_s`` is all the time that a question has by the configuration,
            so that no answer within it is the node's fault.
    """

    def __init__(
        self,
        program: str,
        timeout_s: float,
        extra_env: "Optional[Dict[str, str]]" = None,
        ask: "Callable[..., Ran]" = run,
        whole_time: bool = True,
    ) -> None:
        self._program = program
        self._whole_time = whole_time
        self._timeout_s = timeout_s
        self._env = extra_env
        self._ask = ask
        self._answers: "Dict[str, Answer]" = {}

    def fetch(self, questions: "Sequence[str]") -> None:
        """Ask ``questions`` (names of methods) that were not asked yet, side by side."""
        threads = [
            threading.Thread(target=self._answer, args=(name,), daemon=True)
            for name in questions
            if name not in self._answers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            # Each ends by itself in the time of a question, and a little more for each field
            # refused; that a thread cannot be waited for beyond is the caller's hard limit.
            thread.join()

    def answer(self, question: str) -> Answer:
        """Return the answer to one of ``QUESTIONS``, asking it if that was not done."""
        if question not in self._answers:
            self._answer(question)
        return self._answers[question]

    def _answer(self, question: str) -> None:
        if question == "gpus":
            self._answers[question] = self._query_gpus()
        else:
            ran = self._ask([self._program, *QUESTIONS[question]], self._timeout_s, self._env)
            self._answers[question] = self._judged(ran)

    def _query_gpus(self) -> Answer:
        """``FIELDS`` as CSV; a field that the driver does not know is left out and empty."""
        refused: "set[str]" = set()
        while True:
            asked = [field for field in FIELDS if field not in refused]
            ran = self._ask([self._program, *_csv("gpu", asked)], self._timeout_s, self._env)
            bad = _BAD_FIELD.search(ran.out + ran.err)
            known = bad is not None and bad.group(1) in asked
            if ran.status in (0, None) or not known or len(refused) >= _MOST_REFUSED:
                break
            assert bad is not None
            refused.add(bad.group(1))
        found = self._judged(ran)
        return found._replace(text=",".join(asked) + "\n" + found.text)

    def _judged(self, ran: Ran) -> Answer:
        if ran.status == 0:
            return Answer(ran.out)
        if ran.timed_out:
            late = f"nvidia-smi did not answer within {self._timeout_s:.3g} s"
            return Answer(ran.out, late, self._whole_time, hung=True)
        words = ran.trouble or _last_line(ran.out) or _last_line(ran.err)
        words = words or f"nvidia-smi ended with status {ran.status}"
        ended = ran.status is not None and ran.status > 0 and ran.status != _USAGE
        plain = ended and (ran.status in _HARDWARE or says_gone(ran.out + ran.err))
        return Answer(ran.out, words, plain)


def _csv(what: str, fields: "Sequence[str]") -> "Tuple[str, str]":
    return f"--query-{what}=" + ",".join(fields), "--format=csv,noheader,nounits"


QUESTIONS = {
    "gpus": _csv("gpu", FIELDS),
    "apps": _csv("compute-apps", _APPS),
    "rows": _csv("remapped-rows", _ROWS),
    "topology": ("topo", "-m"),
    "p2p": ("topo", "-p2p", "r"),
    "links": ("nvlink", "-s"),
    "link_errors": ("nvlink", "-e"),
}


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def number(text: str) -> "Optional[float]":
    """Return what is plainly a number that is not negative."""
    return float(text) if re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,9})?", text) else None


def _table(text: str) -> "List[List[str]]":
    try:
        lines = text.replace("\0", "").splitlines()
        return [[part.strip() for part in row] for row in csv.reader(lines)]
    except csv.Error:
        return []


def says_gone(text: str) -> bool:
    """Tell whether nvidia-smi plainly says that a GPU or the driver is gone."""
    return any(words in text.lower() for words in _GONE)


def parse_gpus(text: str) -> "List[GpuFacts]":
    """Read what ``_query_gpus`` returned, first line the fields; odd lines are left out."""
    return _gpus_and_odd(text)[0]


def odd_lines(text: str) -> "List[str]":
    """Return the lines of what ``_query_gpus`` returned that tell of no GPU."""
    return _gpus_and_odd(text)[1]


def _gpus_and_odd(text: str) -> "Tuple[List[GpuFacts], List[str]]":
    rows = _table(text)
    if not rows:
        return [], []
    asked, found, odd = rows[0], {}, []
    for row in rows[1:]:
        fields = dict(zip(asked, row))
        if len(row) == len(asked) and re.fullmatch("[0-9]{1,3}", fields.get("index", "")):
            found[int(fields["index"])] = GpuFacts(int(fields["index"]), fields)
        elif any(row):
            odd.append(", ".join(row))
    return [found[number] for number in sorted(found)], odd


def parse_apps(text: str) -> "List[AppFacts]":
    """Read ``--query-compute-apps``."""
    return [
        AppFacts(row[0], int(row[1]), number(row[2]))
        for row in _table(text)
        if len(row) == len(_APPS) and re.fullmatch("[0-9]{1,9}", row[1])
    ]


def parse_rows(text: str) -> "Dict[str, Dict[str, str]]":
    """Read ``--query-remapped-rows``: GPU UUID to field to text."""
    return {row[0]: dict(zip(_ROWS, row)) for row in _table(text) if len(row) == len(_ROWS)}


def parse_matrix(text: str) -> "Dict[Tuple[str, str], str]":
    """Read ``topo -m`` or ``topo -p2p``: (GPU, GPU) to what is between them, self left out.

    Columns of other devices and affinities follow those of the GPUs and are left out.
    """
    columns: "List[str]" = []
    found: "Dict[Tuple[str, str], str]" = {}
    for line in text.splitlines():
        words = re.sub("\x1b\\[[0-9;]*m", "", line).split()
        if not columns:
            columns = _leading_gpus(words)
        elif words and _TOPO_GPU.fullmatch(words[0]) and len(words) > len(columns):
            for column, cell in zip(columns, words[1:]):
                if column != words[0] and cell != "X":
                    found[words[0], column] = cell
    return found


def _leading_gpus(words: "List[str]") -> "List[str]":
    """Return the GPUs that a heading begins with; a row's second word is no GPU."""
    names: "List[str]" = []
    for word in words:
        if not _TOPO_GPU.fullmatch(word):
            break
        names.append(word)
    alone = len(words) > 1 and len(names) == 1 and words[1] == "X"  # a row, not a heading
    return [] if alone else names


def parse_links(text: str) -> "Dict[int, Dict[int, Optional[float]]]":
    """Read ``nvlink -s``: GPU to link to GB/s, None for a link that is not active.

    A GPU of which any link cannot be read is left out.
    """
    found: "Dict[int, Dict[int, Optional[float]]]" = {}
    odd = set()
    for gpu, link, rest in _links(text):
        speed = _SPEED.fullmatch(rest.strip())
        if speed is not None:
            found.setdefault(gpu, {})[link] = float(speed.group(1))
        elif rest.strip().lower() in ("<inactive>", "inactive"):
            found.setdefault(gpu, {})[link] = None
        else:
            odd.add(gpu)
    return {gpu: links for gpu, links in found.items() if gpu not in odd}


def parse_link_errors(text: str) -> "Dict[int, Dict[int, Dict[str, int]]]":
    """Read ``nvlink -e``: GPU to link to counter ("replay", "recovery", "crc") to its value."""
    found: "Dict[int, Dict[int, Dict[str, int]]]" = {}
    for gpu, link, rest in _links(text):
        for name, value in _COUNTER.findall(rest):
            found.setdefault(gpu, {}).setdefault(link, {})[name.lower()] = int(value)
    return found


def _links(text: str) -> "List[Tuple[int, int, str]]":
    gpu: "Optional[int]" = None
    found: "List[Tuple[int, int, str]]" = []
    for line in text.splitlines():
        heading = _GPU_LINE.match(line)
        if heading is not None:
            gpu = int(heading.group(1))
            continue
        link = _LINK_LINE.match(line)
        if link is not None and gpu is not None:
            found.append((gpu, int(link.group(1)), link.group(2)))
    return found


def pci_key(address: str) -> str:
    """Return bus and device of a PCI address, however its domain is written; "" if it is none."""
    found = _PCI.search(address.strip())
    return ":".join(found.groups()).lower() if found else ""
