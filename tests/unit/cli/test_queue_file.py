"""queue.json is read whole, or refused with one line that names file, place and expectation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federator.cli.queue_file import OfflineQueue, read_queue
from federator.errors import FederatorError, InvalidRequest
from federator.model.tenant import Allowance, Tenancy, Tenant
from federator.model.workload import TenantName

EXAMPLE = """\
{"now_s": 100000, "usage": {"vision": 12.5, "nlp": 40.0},
 "running": [{"id": 1, "tenant": "vision", "jobs": [{"nodes": 2, "gpus_per_node": 8, "cpus_per_node": 64}]}],
 "pending": [{"id": 7, "tenant": "nlp", "submitted_at_s": 90000, "jobs": [{"nodes": 1, "gpus_per_node": 8, "cpus_per_node": 64}]}]}
"""  # noqa: E501  # as the interface has it
REQUESTED = {
    "name": "train",
    "nodes": 2,
    "gpus_per_node": 8,
    "gpu_types": ["a100", "h100"],
    "min_gpu_mem_gib": 40,
    "features": [],
    "cpus_per_node": 8,
    "mem_mib_per_node": 1000,
    "partition": None,
}


def tenancy(*more: str) -> Tenancy:
    names = ("vision", "nlp", *more)
    return Tenancy([Tenant(name=TenantName(n), quota=Allowance(gpus=8)) for n in names])


def read(path: Path, text: str | bytes, of: Tenancy | None = None) -> OfflineQueue:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_queue(path, of or tenancy())


def queue() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(EXAMPLE)
    return document


def test_the_example_is_read(tmp_path: Path) -> None:
    found = read(tmp_path / "q", EXAMPLE)
    assert found.now_s == 100000
    assert found.usage == {"vision": 12.5, "nlp": 40.0}
    (running,), (pending,) = found.running, found.pending
    assert (running.id, running.tenant, running.total_gpus) == (1, "vision", 16)
    assert (pending.id, pending.tenant, pending.submitted_at_s) == (7, "nlp", 90000)
    assert pending.jobs[0].cpus_per_node == 64
    assert (pending.nice, pending.asked_priority) == (0, 1)


def test_a_job_may_be_written_as_for_bid(tmp_path: Path) -> None:
    document = queue()
    document["pending"][0] |= {"jobs": [REQUESTED, {"gpus": 12}], "nice": 5, "priority": 4}
    (pending,) = read(tmp_path / "q", json.dumps(document)).pending
    assert [job.total_gpus for job in pending.jobs] == [16, 12]
    assert pending.jobs[0].gpu_types == ("a100", "h100")
    assert (pending.nice, pending.asked_priority) == (5, 4)


def test_usage_and_running_may_be_left_out(tmp_path: Path) -> None:
    found = read(tmp_path / "q", '{"now_s": 1, "pending": []}')
    assert (found.usage, found.running, found.pending) == ({}, [], [])


def test_waiting_workloads_are_in_order_of_submission_and_share_equal_jobs(tmp_path: Path) -> None:
    document = queue()
    (one,) = document["pending"]
    document["pending"] = [
        one | {"id": id_, "submitted_at_s": at} for id_, at in ((9, 5), (8, 5), (7, 90000), (6, 0))
    ]
    found = read(tmp_path / "q", json.dumps(document)).pending
    assert [workload.id for workload in found] == [6, 8, 9, 7]
    assert len({id(workload.jobs) for workload in found}) == 1


def pending(**fields: object) -> Callable[[dict[str, Any]], object]:
    return lambda q: q["pending"][0].update(fields)


def job(**fields: object) -> Callable[[dict[str, Any]], object]:
    return lambda q: q["pending"][0]["jobs"][0].update(fields)


def twice(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda q: q[name].append(q[name][0])


LONG = "x" * 1_000_000
KNOWN = "the configuration has vision, nlp"
COUNT = 2**53
J = "pending[0].jobs[0]"
JOB_FIELDS = (
    "name, nodes, gpus_per_node, gpus, cpus_per_node, gpu_types, mem_mib_per_node, "
    "min_gpu_mem_gib, features, partition"
)
TOP = "expected now_s, pending, running, usage"
LAB = f"unknown tenant 'lab'; {KNOWN}"
GPUS = f"expected a number of GPUs from 0 to {COUNT}"
MISTAKES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (job(nodes=-2), J + ".nodes: expected a whole number >= 1, found -2"),
    (job(nodes=0), J + ".nodes: expected a whole number >= 1, found 0"),
    (job(nodes=1.5), J + ".nodes: expected a whole number or null, found 1.5"),
    (job(nodes="2"), J + '.nodes: expected a whole number or null, found "2"'),
    (job(gpus_per_node=-1), J + ".gpus_per_node: expected a whole number >= 0, found -1"),
    (job(cpus_per_node=True), J + ".cpus_per_node: expected a whole number, found true"),
    (job(nodes=2, cpus_per_node=COUNT), J + f": {2 * COUNT} CPUs in all; ask for at most {COUNT}"),
    (job(gpus=7), J + ": 7 GPUs in total contradict 8 on each of 1 nodes"),
    (job(gpu_types=["a", 3]), J + ".gpu_types[1]: expected a string, found 3"),
    (job(nodes=None), J + ": expected 'nodes', or 'gpus' in all; found neither"),
    (job(gpu=8), J + ": unknown field 'gpu'; expected " + JOB_FIELDS),
    (job(**{"a\n - at `$.b": 8}), J + ": unknown field 'a\\n - at `$.b'; expected " + JOB_FIELDS),
    (pending(id=-1), "pending[0].id: expected a whole number >= 0, found -1"),
    (pending(id=2**63), f"pending[0].id: expected a whole number <= {2**63 - 1}, found {2**63}"),
    (pending(id=1), "pending[0].id: 1 is the id of running[0], too"),
    (twice("pending"), "pending[1].id: 7 is the id of pending[0], too"),
    (twice("running"), "running[1].id: 1 is the id of running[0], too"),
    (pending(jobs=[]), "pending[0].jobs: expected a list of length >= 1, found []"),
    (pending(jobs={}), "pending[0].jobs: expected a list, found {}"),
    (pending(tenant="lab"), f"pending[0].tenant: {LAB}"),
    (pending(tenant="a\x1b[2J"), f"pending[0].tenant: unknown tenant 'a\\x1b[2J'; {KNOWN}"),
    (pending(tenant=LONG), f"pending[0].tenant: unknown tenant '{'x' * 79}…'; {KNOWN}"),
    (pending(tenant=None), "pending[0].tenant: expected a string, found null"),
    (pending(submitted_at_s=-1), "pending[0].submitted_at_s: expected a number >= 0, found -1"),
    (pending(submitted_at_s="now"), 'pending[0].submitted_at_s: expected a number, found "now"'),
    (
        pending(submitted_at_s=100000.5),
        "pending[0].submitted_at_s: expected a time not after now_s, 100000; found 100000.5",
    ),
    (pending(nice=-1), "pending[0].nice: expected a whole number >= 0, found -1"),
    (pending(priority=0), "pending[0].priority: expected a whole number >= 1, found 0"),
    (pending(priority=8), "pending[0].priority: expected a whole number <= 7, found 8"),
    (lambda q: q["pending"][0].pop("jobs"), "pending[0]: expected a field 'jobs', found none"),
    (
        lambda q: q["running"][0].update(nice=1),
        "running[0]: unknown field 'nice'; expected id, tenant, jobs",
    ),
    (lambda q: q["running"][0].update(tenant="lab"), f"running[0].tenant: {LAB}"),
    (lambda q: q.update(now=1), f"file: unknown field 'now'; {TOP}"),
    (lambda q: q.update({LONG: 1}), f"file: unknown field '{'x' * 79}…'; {TOP}"),
    (lambda q: q.pop("now_s"), "file: expected a field 'now_s', found none"),
    (lambda q: q.update(now_s=10**400), f"now_s: expected a smaller number, found 1{'0' * 78}…"),
    (lambda q: q.update(now_s=10**16), f"now_s: expected a number <= {COUNT}, found {10**16}"),
    (lambda q: q.update(pending=None), "pending: expected a list, found null"),
    (lambda q: q["usage"].update(lab=1), f"usage.lab: {LAB}"),
    (lambda q: q["usage"].update(nlp=-0.5), f"usage.nlp: {GPUS}, found -0.5"),
    (lambda q: q["usage"].update(nlp=LONG), f'usage.nlp: {GPUS}, found "{"x" * 78}…'),
]


@pytest.mark.parametrize(("spoil", "message"), MISTAKES, ids=[m[:60] for _, m in MISTAKES])
def test_a_mistake_is_one_line_with_its_place(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], object], message: str
) -> None:
    document = queue()
    spoil(document)
    with pytest.raises(InvalidRequest) as refused:
        read(tmp_path / "q.json", json.dumps(document))
    said = str(refused.value)
    assert said == f"{tmp_path}/q.json: {message}"
    assert said.isprintable()


NOT_A_NUMBER = "expected a number; NaN and Infinity are none"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: not JSON: it ends too early, or a string has half a surrogate pair"),
        (
            '{"now_s": 1,\n "pend',
            "2:7: not JSON: it ends too early, or a string has half a surrogate pair",
        ),
        ('{"now_s": 1,\n "pending": [], }', "2:17: not JSON: found }"),
        ('{"usage": {"é":\n "é", "é": NaN}}', f"2:12: not JSON: {NOT_A_NUMBER}"),
        ('{"now_s": 1, "usage": {"nlp": NaN}}', f"1:31: not JSON: {NOT_A_NUMBER}"),
        ('{"now_s": -Infinity}', f"1:12: not JSON: {NOT_A_NUMBER}"),
        ('{"now_s": 1, "pending": []} x', "1:29: not JSON: found x"),
        (b'{"now_s": 1, "usage": {"\xff": 1}}', '1:25: not UTF-8: found \ufffd": 1}}'),
        ('{"now_s": 1, "usage": ' + '{"a":' * 100_000, " lists or objects nested too deeply"),
        ("[]", " file: expected an object, found []"),
        ("[" * 100_000, " file: expected an object, found a list"),
        ('{"now_s": 1e999}', " now_s: expected a smaller number"),
        (
            '{"now_s": 1, "pending": [], "usage": {"nlp": 1e999}}',
            f" usage.nlp: expected a number of GPUs from 0 to {COUNT}, found 1e999",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_not_such_json_is_one_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(tmp_path / "q.json", text)
    assert str(refused.value) == f"{tmp_path}/q.json:{message}"


def test_only_ten_known_tenants_are_listed(tmp_path: Path) -> None:
    of = tenancy(*(f"t{k}" for k in range(20)))
    with pytest.raises(InvalidRequest, match=r"vision, nlp, t0, .*, t7, … \(22 in all\)$"):
        read(tmp_path / "q", EXAMPLE.replace("vision", "lab"), of)


@pytest.mark.parametrize("name", ["absent", ".", "a/b\0"])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read: "):
        read_queue(tmp_path / name, tenancy())


NUMBERS = st.integers() | st.floats() | st.sampled_from([0, 1, 7, 2**53, 2**63, 10**400])
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=5)
KEYS = st.sampled_from(
    ["now_s", "usage", "pending", "running", "id", "tenant", "jobs", "nodes", "gpus", "vision"]
) | st.text(max_size=3)
GARBAGE = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=4)
)
JOB = st.fixed_dictionaries(
    {"nodes": st.integers(1, 4) | GARBAGE},
    optional=dict.fromkeys(("gpus", "gpus_per_node", "cpus_per_node"), NUMBERS)
    | {"gpu_types": GARBAGE, "features": GARBAGE, "x": GARBAGE},
)
WORKLOAD = st.fixed_dictionaries(
    {
        "id": st.integers(0, 3) | GARBAGE,
        "tenant": st.sampled_from(["vision", "nlp"]) | GARBAGE,
        "submitted_at_s": st.just(1) | GARBAGE,
        "jobs": st.lists(JOB, max_size=2) | GARBAGE,
    }
)
NEARLY = st.fixed_dictionaries(
    {"now_s": st.just(5) | GARBAGE, "pending": st.lists(WORKLOAD, max_size=3) | GARBAGE},
    optional={"usage": st.dictionaries(KEYS, SCALARS, max_size=2), "running": GARBAGE},
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("queue") / "q.json"


def told(path: Path, data: bytes) -> str:
    """What is wrong with it; "" when nothing is."""
    try:
        read(path, data)
    except FederatorError as error:
        return str(error)
    return ""


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(text=st.one_of(NEARLY, GARBAGE).map(json.dumps) | st.text())
def test_garbage_is_read_or_refused_in_one_line(scratch: Path, text: str) -> None:
    said = told(scratch, text.encode("utf-8", "surrogatepass"))
    assert len(said.splitlines()) <= 1
    assert len(said) < 600


@settings(max_examples=300, deadline=None)
@given(at=st.integers(0, len(EXAMPLE)), put=st.binary(max_size=4), cut=st.integers(0, 4))
def test_a_damaged_example_is_read_or_refused(scratch: Path, at: int, put: bytes, cut: int) -> None:
    data = EXAMPLE.encode()
    assert len(told(scratch, data[:at] + put + data[at + cut :]).splitlines()) <= 1
