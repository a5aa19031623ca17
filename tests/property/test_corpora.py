"""Recorded texts, damaged byte by byte: whatever reads them reads on, or refuses as documented.

Each corpus is what a real program printed or wrote (tests/data, tests/contract). docs/security.md
lists the parsers; tests/unit/test_parsers_fuzzed.py keeps that list whole.
"""

from __future__ import annotations

import asyncio
import io
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from fednode import gpu_use, kernel, lease, manifests, records, slurm_jobs, smi
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.agent import node_usage
from federator.agent.base import Missing
from federator.agent.config import AgentConfig
from federator.agent.journal import Journal
from federator.agent.order_archive import OrderArchive
from federator.audit.chain import AuditAct, AuditEnd, opened, sealed
from federator.cli.capacity_wants import read_wants
from federator.cli.client import NoAnswer, _decoded
from federator.cli.data_file import read_data_file
from federator.config import load_config
from federator.errors import (
    ConfigError,
    DamagedAudit,
    InvalidRequest,
    SiteUnavailable,
    StoreError,
)
from federator.model.site import Snapshot
from federator.model.submission import unpack_submission
from federator.model.unreadable import UNREADABLE
from federator.model.workload import FIRST_WORKLOAD_ID, AttemptId, SiteName
from federator.slurm import (
    site_checkpoint,
    site_output,
    site_rclone,
    site_streams,
    site_worker,
)
from federator.slurm.helper_client import _answer
from federator.slurm.options.options import parse_command_line, parse_script
from federator.slurm.parse_accounts import accounted
from federator.slurm.parse_base import expand_hosts, parse_gpus
from federator.slurm.parse_jobs import parse_jobs, parse_layouts, parse_others
from federator.slurm.parse_licenses import parse_licenses
from federator.slurm.parse_nodes import parse_nodes, parse_switches, parse_topology
from federator.slurm.parse_reservations import parse_reservations
from federator.slurm.parse_site import parse_config, parse_partitions, parse_version
from federator.slurm.parse_usage import measured
from federator.slurm.refusals import in_one_line, kind_of_refusal
from federator.slurm.runner import Completed
from federator.store.export import read_export, write_export
from federator.store.redis_url import parse_redis_url
from federator.store.replaying import read_record
from federator.web.fleet_feed import SiteSeen
from federator.wire.agent_protocol import (
    EndedJob,
    from_agent_decoder,
    packed,
    to_agent_decoder,
    unpacked,
)
from federator.wire.client_protocol import QueueCall, QueueReply
from federator.wire.client_socket import call_decoder
from federator.wire.framing import read_frame
from federator.wire.node_rows import NodeRow, SiteNodes, packed_nodes, unpacked_nodes
from federator.wire.replies import reply_decoder
from tests.contract.runners import TRANSCRIPTS, Exchange

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
EXAMPLES = 25  # of each parser
MOST_SEED = 4_000  # bytes of a corpus
WORDS = (
    *(b"\0", b"\n", b"\r\n", b"|", b"=", b" ", b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xe2\x80\xae"),
    *(b"[", b"]", b"{", b"}", b'"', b"'", b"\\", b":", b",", b"-", b"-1", b"0", b"1e999", b"NaN"),
    *(
        b"9" * 25,
        b"4294967296",
        b"18446744073709551616",
        b"(null)",
        b"N/A",
        b"UNLIMITED",
        b"INFINITE",
    ),
    *(
        b"[0-99999999]",
        b"[1-",
        b"2001-99-99",
        b"0x_",
        b"1:99",
        b"&a",
        b"*a",
        b"!!binary x",
        b"<<: 1",
        b"!!bool x",
    ),
    *(
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc1",
        b"\xd9\x05",
        b"\xcb\x7f\xf8" + b"\0" * 6,
    ),
)
DEEP = (b"[" * 5_000, b'{"a":' * 5_000, b"\x91" * 5_000, b"(" * 5_000, b"- " * 2_000)


class Corpus(NamedTuple):
    """One parser, what was recorded for it, and what it may raise."""

    parse: Callable[[bytes], Any]
    seeds: Callable[[], Sequence[bytes]]
    raises: tuple[type[BaseException], ...] = ()


def text(parse: Callable[[str], Any]) -> Callable[[bytes], Any]:
    """A parser of text, given what a pipe brings."""
    return lambda data: parse(data.decode("utf-8", "replace"))


def said(*words: str) -> Callable[[], Sequence[bytes]]:
    """What commands with these words in their names answered, at each release of Slurm."""

    @cache
    def seeds() -> Sequence[bytes]:
        paths = [p for p in sorted(TRANSCRIPTS.glob("*/*.txt")) if any(w in p.name for w in words)]
        done = [Exchange.decode(path.read_bytes()).done for path in paths]
        return [each.stdout or each.stderr for each in done if each.stdout or each.stderr]

    return seeds


def files(pattern: str) -> Callable[[], Sequence[bytes]]:
    """Recorded files."""
    return cache(lambda: [path.read_bytes() for path in sorted(ROOT.glob(pattern))])


def frames(direction: str) -> Callable[[], Sequence[bytes]]:
    """Bodies of recorded frames."""

    @cache
    def seeds() -> Sequence[bytes]:
        lines = (DATA / "wire" / "frames.txt").read_text().splitlines()
        rows = [line.split() for line in lines if not line.startswith("#")]
        return [bytes.fromhex(row[-1]) for row in rows if row[0] == direction]

    return seeds


def a_file(parse: Callable[[Path], Any], name: str = "file") -> Callable[[bytes], Any]:
    """A parser of a file."""

    def parsed(data: bytes) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            return parse(path)

    return parsed


@cache
def log_records() -> Sequence[bytes]:
    """One record of each kind, as releases wrote them."""
    return list(msgspec.msgpack.decode((DATA / "log" / "every_kind.msgpack").read_bytes()))


@cache
def exported() -> Sequence[bytes]:
    out = io.BytesIO()
    write_export(log_records(), out)
    return [out.getvalue()]


@cache
def journals() -> Sequence[bytes]:
    mark = (
        b'{"attempt": "fed:4294967296:1", "step": "job", "at_s": 1e9, "user": "ada", "job_id": 7}\n'
    )
    return [
        mark,
        b'\n{"attempt": "fed:4294967296:1", "step": "intent", "at_s": 1e9, "user": "ada"}\n',
    ]


def submissions() -> Sequence[bytes]:
    packed = []
    for record in log_records():
        found = msgspec.msgpack.decode(record)
        if found["type"] == "submitted":
            packed.append(msgspec.msgpack.encode(found["draft"]["submission"]))
    return packed


def framed(data: bytes) -> Any:
    async def read() -> object:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await read_frame(reader)

    return asyncio.run(read())


def news_of(path: Path) -> Any:
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        return site_worker.read_news()
    finally:
        os.chdir(here)


def listed_of(path: Path) -> int:
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with path.open("rb") as listing:
            return site_streams.deal_out(listing, 3)
    finally:
        os.chdir(here)


def seal_of(path: Path) -> Any:
    (path.parent / "state-0").write_bytes(b"123")
    return site_checkpoint.prove_sealed(os.fsencode(path.parent))


def output_of(path: Path) -> Any:
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        return site_output.sealed_output()
    finally:
        os.chdir(here)


def journal_of(path: Path) -> Any:
    journal = Journal(path.parent, 1e9)
    os.close(journal._file)
    return journal.index.marks()


def nodes_shown(data: bytes) -> Any:
    seen = SiteSeen("alpine")
    seen.take_nodes(data, "")
    return seen.nodes()


def kept_of(folder: Path) -> OrderArchive:
    archive = OrderArchive(folder, 0.0)
    archive.close()
    return archive


def kept_order(path: Path) -> Any:
    return kept_of(path.parent.parent).order(ATTEMPT)


def leased(path: Path) -> Any:
    claim = lease.Claim(attempt=path.name, user="ada", cluster="c", leader="7", node="n1")
    return lease.check(str(path.parent), claim)


def reported(path: Path) -> Any:
    folder = path.parent.parent
    return node_usage.read(folder, [ENDED])


ATTEMPT = AttemptId(workload=FIRST_WORKLOAD_ID, attempt=1)
ENDED = EndedJob(attempt=ATTEMPT, user="ada", site_job_id=1, started_at_s=1e9)
MISSING = Missing(attempt=ATTEMPT, user="vision1", submitted_at_s=0.0, job_id=2)
SEPARATOR = "<0123456789abcdef>"
FEDERATION = (
    b'federation: demo\nstore: "memory:"\nregions: {west: {shared: /shared}}\n'
    b"gpus: {a100: {mem_gib: 80, nvlink: true}}\n"
    b'sites: {alpine: {region: west, command: ["/bin/false"], partitions: [gpu]}}\n'
    b"tenants: {nlp: {priority: 3, quota: {gpus: 8}, users: [ada]}}\n"
)
DATA_SETS = b"data_sets:\n- {name: wiki, version: '2', size: 150G, sharing: all, at: {west: a/b}}\n"
WANTS = b"partitions:\n  gpu: {gpus: 8}\n"
AGENT = b"site: alpine\nsocket: /s\nstate_dir: /d\nspool_dir: /p\nconsume_lease: wrapper\n"
SCRIPT = b"#!/bin/bash\n#SBATCH --job-name=a -N 2\n#SBATCH --gres=gpu:a100:8 # x\nsrun true\n"
LEASE = b'{"user": "ada", "attempt": "fed:4294967296:1", "at_s": 1795210722.5}'
RECORD = b'{"job": 7, "uid": 1000, "user": "ada", "node": "n1", "boot": "x", "gpus": [0, 1]}'
SMI = "tests/data/nvidia_smi/*"

CALL = msgspec.msgpack.encode(QueueCall(ids=("4294967296",)))
REPLY = msgspec.msgpack.encode(QueueReply(rows=(), now_s=1e9))
AUDITED, _ = sealed(AuditAct(at_s=1e9, act="drain", by="root", on="alpine"), AuditEnd())
SNAPSHOT = packed(Snapshot(site=SiteName("alpine"), now_s=1e9, nodes=()))
NODES = packed_nodes(SiteNodes(at_s=1e9, nodes=(NodeRow(name="n1", state="idle"),)))

CORPORA: dict[str, Corpus] = {
    # Slurm
    "squeue": Corpus(parse_jobs, said("squeue"), (ValueError,)),
    "squeue of local jobs": Corpus(parse_others, said("squeue"), (ValueError,)),
    "scontrol show jobs": Corpus(text(parse_layouts), said("show-jobs", "scontrol-job")),
    "scontrol show nodes": Corpus(text(parse_nodes), said("show-nodes")),
    "scontrol show topology": Corpus(text(parse_topology), said("show-topology")),
    "switches": Corpus(text(parse_switches), said("show-topology")),
    "scontrol show partitions": Corpus(text(parse_partitions), said("show-partitions")),
    "scontrol show config": Corpus(text(parse_config), said("show-config"), (ValueError,)),
    "scontrol version": Corpus(text(parse_version), said("scontrol-version"), (ValueError,)),
    "scontrol show licenses": Corpus(text(parse_licenses), said("show-licenses")),
    "scontrol show reservations": Corpus(
        text(parse_reservations), files("tests/data/reservations/*.txt")
    ),
    "host lists": Corpus(
        text(expand_hosts), lambda: [b"g[1-8,12]", b"rack[01-04]n[1-3],x1"], (ValueError,)
    ),
    "gres": Corpus(text(parse_gpus), lambda: [b"gpu:a100:8(IDX:0-7),shard:4"], (ValueError,)),
    "sacct of one job": Corpus(
        lambda data: accounted(data, SEPARATOR, [MISSING]), files("tests/contract/accounts/*.txt")
    ),
    "sacct of usage": Corpus(
        text(lambda t: measured(t, [ENDED])), files("tests/data/usage/*/*.txt")
    ),
    "sbatch's refusals": Corpus(
        text(lambda t: (kind_of_refusal(t), in_one_line(t))), said("sbatch")
    ),
    "the helper's answer": Corpus(
        lambda data: _answer(Completed(exit_status=0, stdout=data, stderr=b""), "ada"),
        lambda: [b'{"exit_status": 0, "stdout": "7\\n", "stderr": ""}'],
        (SiteUnavailable,),
    ),
    "news of a copy": Corpus(
        a_file(news_of, "news"), lambda: [b'{"phase": "copying", "bytes": 7, "detail": ""}']
    ),
    "rclone's log": Corpus(
        lambda data: (site_rclone.read_log_line(data, 7), site_rclone.says_folder(data)),
        lambda: [
            b'{"level": "warning", "msg": "", "stats": {"bytes": 7, "checks": 0}}',
            b'{"level": "error", "msg": "directory not found"}',
            b'{"Path": "", "Size": -1, "IsDir": true}',
        ],
    ),
    "rsync's list of files": Corpus(
        a_file(listed_of),
        lambda: [b"-rw-r--r--  1,000 2026/11/27 10:55:20 books/one\ndrwxr-xr-x 4 a b c\n"],
    ),
    "seals of a checkpoint": Corpus(
        a_file(seal_of, "state-0.seal.json"),
        lambda: [b'{"rank": 0, "ranks": 1, "files": {".": [3, 2286445522]}}'],
    ),
    "notes of an output": Corpus(
        a_file(output_of, "sealed"),
        lambda: [b'{"bytes": 7, "files": 1, "digest": "tree-sha256:00"}'],
        (site_worker.CopyFailed,),
    ),
    # users
    "sbatch scripts": Corpus(text(parse_script), lambda: [SCRIPT], (InvalidRequest,)),
    "command lines": Corpus(
        text(lambda t: parse_command_line(t.split("\0"))),
        lambda: [b"--gres=gpu:8\0-N2\0--wrap=true", b"-J\0a\0:\0--nodes=1-2\0x.sh"],
        (InvalidRequest,),
    ),
    "submissions": Corpus(
        lambda data: unpack_submission(msgspec.Raw(data)), submissions, (StoreError,)
    ),
    # the wire
    "frames": Corpus(framed, lambda: [b"\0\0\0\x05hello", b"\0\0\0\0"], (SiteUnavailable,)),
    "messages of agents": Corpus(from_agent_decoder.decode, frames("from"), UNREADABLE),
    "messages to agents": Corpus(to_agent_decoder.decode, frames("to"), UNREADABLE),
    "calls": Corpus(call_decoder.decode, lambda: [CALL], UNREADABLE),
    "replies": Corpus(reply_decoder.decode, lambda: [REPLY], UNREADABLE),
    "snapshots": Corpus(unpacked, lambda: [SNAPSHOT], (SiteUnavailable,)),
    "nodes of a site": Corpus(unpacked_nodes, lambda: [NODES], (ValueError,)),
    # files
    "federation.yaml": Corpus(a_file(load_config), lambda: [FEDERATION], (ConfigError,)),
    "agent.yaml": Corpus(
        lambda data: msgspec.yaml.decode(data, type=AgentConfig), lambda: [AGENT], UNREADABLE
    ),
    "the audit": Corpus(opened, lambda: [AUDITED], (DamagedAudit,)),
    "wants.yaml": Corpus(a_file(read_wants), lambda: [WANTS], (ConfigError, InvalidRequest)),
    "data sets": Corpus(a_file(read_data_file), lambda: [DATA_SETS], (InvalidRequest,)),
    "answers to commands": Corpus(
        lambda data: _decoded(QueueCall(), data), lambda: [REPLY], (NoAnswer,)
    ),
    "nodes on the page": Corpus(nodes_shown, lambda: [NODES], UNREADABLE),
    "orders that are kept": Corpus(
        a_file(kept_order, f"orders/{FIRST_WORKLOAD_ID}.1"), frames("to")
    ),
    "endings that are kept": Corpus(
        a_file(lambda path: kept_of(path.parent).ends(), "ends"),
        lambda: [b'{"at_s":1e9,"report":{"attempt":{"workload":4294967296,"attempt":1}}}\n'],
    ),
    "log records": Corpus(lambda data: read_record(1, data), log_records, (StoreError,)),
    "exported logs": Corpus(a_file(lambda path: list(read_export(path))), exported, (StoreError,)),
    "URLs of Redis": Corpus(
        text(parse_redis_url),
        lambda: [b"rediss://u@a:1/0?ca=/x", b"redis+sentinel://a:1,b:2/m/0"],
        (ValueError,),
    ),
    "the agent's journal": Corpus(a_file(journal_of, "journal"), journals),
    "reports of nodes": Corpus(
        a_file(reported, f"{node_usage.FOLDER}/1.n1"),
        lambda: [b'{"user":"ada","gpus":8,"at_s":1e9,"usage":{"gpu_busy_mean_frac":0.5}}'],
    ),
    # compute nodes
    "nvidia-smi: GPUs": Corpus(text(smi.parse_gpus), files(f"{SMI}/gpus.csv")),
    "nvidia-smi: processes": Corpus(text(smi.parse_apps), files(f"{SMI}/apps.csv")),
    "nvidia-smi: rows": Corpus(text(smi.parse_rows), files(f"{SMI}/rows.csv")),
    "nvidia-smi: topology": Corpus(text(smi.parse_matrix), files(f"{SMI}/topology.txt")),
    "nvidia-smi: links": Corpus(text(smi.parse_links), files(f"{SMI}/links.txt")),
    "nvidia-smi: errors of links": Corpus(
        text(smi.parse_link_errors), files(f"{SMI}/link_errors.txt")
    ),
    "nvidia-smi: use": Corpus(
        text(lambda t: (gpu_use.parse_gpus(t), gpu_use.parse_apps(t))), files(f"{SMI}/gpus.csv")
    ),
    "the kernel's log": Corpus(text(kernel.parse_xids), files(f"{SMI}/kmsg.txt")),
    "squeue at a node": Corpus(
        text(lambda t: slurm_jobs.parse_job(t, 7)),
        lambda: [b"7|0|N/A|RUNNING|ada|2|1|0|fed:4294967296:1   \n8|0|N/A|RUNNING|eve|1|1|0|x\n"],
    ),
    "leases": Corpus(a_file(leased, "4294967296.1"), lambda: [LEASE]),
    "records of jobs": Corpus(a_file(lambda path: records._read(str(path), "x")), lambda: [RECORD]),
    "checks": Corpus(
        a_file(lambda path: manifests.load(str(path.parent), "/nonexistent"), "c.json"),
        files("prolog_epilog/checks.d/*.json"),
    ),
}
"""Every text from outside that has a record."""


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """A recorded text after some edits: bytes changed, put in, cut out, doubled, another's."""
    found = bytearray(draw(st.sampled_from(list(seeds)))[:MOST_SEED])
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(found)))
        to = min(len(found), at + draw(st.integers(0, 40)))
        edit = draw(st.integers(0, 5))
        if edit == 0:
            found[at:to] = draw(st.binary(max_size=6))
        elif edit == 1:
            found[at:at] = draw(st.sampled_from(WORDS))
        elif edit == 2:
            del found[at:to]
        elif edit == 3:
            found[to:to] = found[at:to]
        elif edit == 4:
            found[at:to] = draw(st.sampled_from(WORDS))
        else:
            other = draw(st.sampled_from(list(seeds)))
            found[at:] = other[draw(st.integers(0, len(other))) :][:MOST_SEED]
    return bytes(found)


@pytest.mark.parametrize("name", CORPORA)
def test_a_damaged_text_is_read_or_refused_as_documented(name: str) -> None:
    corpus = CORPORA[name]
    seeds = corpus.seeds()
    assert seeds, "nothing was recorded"

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(damaged(seeds))
    def each(data: bytes) -> None:
        read(corpus, data)

    each()
    for data in (b"", *DEEP, *(seed[:-1] for seed in seeds[:3])):
        read(corpus, data)


@pytest.mark.parametrize("name", CORPORA)
def test_what_was_recorded_is_read(name: str) -> None:
    """Else damage would only show that everything is refused."""
    corpus = CORPORA[name]
    refused = 0
    for seed in corpus.seeds():
        try:
            corpus.parse(seed)
        except corpus.raises:
            refused += 1
    assert refused < len(corpus.seeds())


def read(corpus: Corpus, data: bytes) -> None:
    try:
        corpus.parse(data)
    except corpus.raises:
        return
