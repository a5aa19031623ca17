"""What sites say of shapes: a brief table gives each workload the reason of the full one."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from msgspec import structs

from federator.daemon.views import queue_rows
from federator.model.eligibility import Hold
from federator.model.reason import Reason, ReasonCode, Refusal
from federator.model.workload import Job, SiteName
from federator.sched.passes.known_refusals import KnownRefusals
from federator.wire.client_protocol import QueueCall
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback


def waiting() -> Loopback:
    """Three shapes in the queue, each of workloads whose jobs have names of their own."""
    f = Loopback({site: rack(site, 8) for site in ("alpine", "boreal")})
    for _ in range(2):
        f.submit(draft(gang(8, 8)))
    f.run_for(5.0)
    for k in range(4):
        train = gang(4, 8)
        het = (replace(train, name=f"lead-{k}"), replace(train, name=f"help-{k}"))
        for jobs in ((replace(train, name=f"train-{k}"),), (replace(train, cpus_per_node=2),), het):
            f.submit(replace(draft(train), jobs=jobs))
    f.run_for(5.0)
    return f


def test_a_brief_row_has_the_reason_of_the_full_one() -> None:
    f = waiting()
    full, _ = queue_rows(f.federation, QueueCall(), 100)
    brief, _ = queue_rows(f.federation, QueueCall(brief=True), 100)
    assert [row.reason for row in brief] == [row.reason for row in full]
    said = [row.reason for row in brief if row.reason is not None]
    assert {reason.code for reason in said} == {ReasonCode.RESOURCES}
    assert {"train-0", "train-1", "train-2", "train-3"} <= {reason.job for reason in said}


def test_a_row_of_codes_has_the_code_of_the_full_reason_and_no_more() -> None:
    f = waiting()
    full, _ = queue_rows(f.federation, QueueCall(), 100)
    rows, _ = queue_rows(f.federation, QueueCall(brief=True, codes=True), 100)
    said = [None if row.reason is None else Reason(code=row.reason.code) for row in full]
    assert [row.reason for row in rows] == said
    assert any(said)


def test_a_brief_row_is_the_full_one_without_what_sites_said_of_it() -> None:
    f = waiting()
    f.submit(replace(draft(gang(4, 8)), array_indices=(2, 5)))
    f.submit(replace(draft(gang(4, 8)), project="p", datasets=("d",)))
    f.submit(replace(draft(gang(4, 8)), hold=Hold.USER))
    full, _ = queue_rows(f.federation, QueueCall(), 100)
    brief, _ = queue_rows(f.federation, QueueCall(brief=True), 100)
    bare: dict[str, Any] = {"refusals": {}, "offers": {}, "lending": None, "preemption": None}
    assert list(brief) == [structs.replace(row, **bare) for row in full]


def test_a_reason_names_no_job_of_another() -> None:
    """A het job's refusal that follows from that of one job is in no words of its owner."""
    f = Loopback({site: rack(site, 8) for site in ("alpine", "boreal")})
    for _ in range(2):  # without a time limit: nobody can say when they end
        f.submit(replace(draft(gang(8, 8)), time_limit_s=inf))
    f.run_for(5.0)
    train = gang(4, 8)
    for names in (("ada-0",), ("lead", "help"), ("bob-1",)):
        f.submit(replace(draft(train), jobs=tuple(replace(train, name=name) for name in names)))
        f.run_for(5.0)
    for call in (QueueCall(), QueueCall(brief=True)):
        *_, first, het, last = queue_rows(f.federation, call, 100)[0]
        said = [row.reason.job for row in (first, het, last) if row.reason is not None]
        assert said == ["ada-0", "", "bob-1"]


def test_a_brief_answer_looks_each_shape_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    f = waiting()
    asked: list[int] = []
    refusal = KnownRefusals.refusal

    def counted(
        self: KnownRefusals, site: SiteName, number: int, jobs: tuple[Job, ...], now_s: float
    ) -> Refusal | None:
        asked.append(number)
        return refusal(self, site, number, jobs, now_s)

    monkeypatch.setattr(KnownRefusals, "refusal", counted)
    queue_rows(f.federation, QueueCall(brief=True), 100)
    assert len(asked) == 3 * 2  # shapes, sites
