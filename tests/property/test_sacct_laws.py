"""No dump of sacct, damaged or made up, does more than be read or be refused; no record is lost."""

from __future__ import annotations

import copy
import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.errors import InvalidRequest
from federator.sim.importers.history import past_jobs
from federator.sim.importers.sacct import SacctRecord, read_records
from tests.unit.sim.importers.test_sacct import DATA

LINES = (DATA / "24.11" / "duplicates.txt").read_text().splitlines()
DOCUMENTS = [
    json.loads(gzip.decompress((DATA / release / "jobs.json.gz").read_bytes()))
    for release in ("22.05", "24.11")
]
for _document in DOCUMENTS:
    _document["jobs"] = [job | {"steps": []} for job in _document["jobs"][:4]]

ODD = st.sampled_from(
    [
        "",
        "Unknown",
        "0",
        "-1",
        "4294967294",
        "9" * 17,
        "9" * 30,
        "²",
        "1e9",
        "nan",
        "UNLIMITED",
        "0001-01-01T00:00:00-23:59",
        "9999-12-31T23:59:59-23:59",
        "2026-11-21T20:00:00+00:00:00.5",
        "gres/gpu=999999999",
        "gres/gpu:=,gres/gpu=1",
        "gres/gpu=²",
        "RUNNING",
        "PREEMPTED",
        "CANCELLED by 0",
        "\x85",
        "\0",
        "7.batch",
        "7_[1-3]",
    ]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | ODD
    | st.sampled_from([2**31, 2**32 - 2, 2**53 + 1, 2**63, 2**64, 10**30, -(2**63)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["set", "number", "infinite", "type", "name", "count"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=4,
)


def read(data: bytes) -> list[SacctRecord]:
    """The records; none where it is refused, which takes one line that begins with the file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dump"
        file.write_bytes(data)
        said, records = "", list[SacctRecord]()
        try:
            records = read_records(file)
        except InvalidRequest as error:
            said = str(error)
        assert not said or (said.startswith(f"{file}:") and said.isprintable())
        return records


def check(records: Sequence[SacctRecord]) -> None:
    """Each record is in one job; a job is told once; what it held does not overlap."""
    jobs = past_jobs(records)
    assert Counter(id(r) for job in jobs for r in job.records) == Counter(map(id, records))
    for job in jobs:
        times = [t for start_s, end_s, _ in job.held for t in (start_s, end_s)]
        assert times == sorted(times)
        assert len({(r.cluster, r.job_id, r.user) for r in job.records}) == 1
        if job.left_out is None:
            assert job.shape.gpus > 0
            assert job.duration_s is None or job.duration_s >= 0


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_text_with_odd_fields_is_read_or_refused(data: st.DataObject) -> None:
    rows = [line.split("|") for line in LINES]
    for _ in range(data.draw(st.integers(1, 4))):
        row = data.draw(st.integers(0, len(rows) - 1))
        column = data.draw(st.integers(0, len(rows[0]) - 1))
        rows[row][column] = data.draw(ODD | st.text(max_size=8))
    text = "\n".join("|".join(row) for row in rows)
    check(read(text.encode("utf-8", "surrogatepass")))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_json_with_odd_values_is_read_or_refused(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from(DOCUMENTS)))
    where: Any = document["jobs"]
    while True:
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        key = data.draw(st.sampled_from(keys))
        if not (isinstance(where[key], dict | list) and where[key] and data.draw(st.booleans())):
            where[key] = data.draw(JSON)
            break
        where = where[key]
    check(read(json.dumps(document).encode()))


@st.composite
def stays(draw: st.DrawFn) -> list[SacctRecord]:
    """Records of few ids, users and states, in any order, some at one instant."""
    few = st.sampled_from
    return [
        SacctRecord(
            line=line,
            job_id=draw(few("789")),
            cluster=draw(few(["", "alpha"])),
            account="",
            user=draw(few(["ann", "bob"])),
            partition="gpu",
            states=(draw(few(["COMPLETED", "REQUEUED", "PREEMPTED", "RESIZING", "PENDING"])),),
            submit_s=draw(st.integers(1, 9) | st.none()),
            eligible_s=None,
            start_s=draw(st.integers(1, 20) | st.none()),
            elapsed_s=draw(st.integers(0, 9) | st.none()),
            limit_s=60.0,
            ran=draw(st.booleans()),
            gpus=draw(st.integers(0, 3)),
            gpu_type="",
            nodes=1,
            cpus=1,
        )
        for line in range(draw(st.integers(0, 12)))
    ]


@given(stays())
def test_every_record_is_in_one_job(records: list[SacctRecord]) -> None:
    check(records)
