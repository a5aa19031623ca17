"""Copies are asked for, go on, end and are made for jobs that wait: the whole federation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from federator.model.dataset import (
    CopyPhase,
    DataCopy,
    DataGiven,
    DataPlace,
    DataRefusalCode,
    DataReplica,
    DataVerb,
    ReplicaState,
    StorageDomain,
)
from federator.model.draft import Draft
from federator.model.event import DataSetKept
from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerData, AnswerDataRefused, CopySeen, DataAsked
from federator.model.workload import WorkloadId
from federator.sched.passes.data_copies import source_of
from federator.sched.state.rules import Rules, Staging
from tests.fakes.build import draft, gang, rack
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_data_places import BAKER, STORAGE, use

DIGEST = "sha256tree:" + "0f" * 32
GIB = 2**30
RULES = Rules(storage=STORAGE)
AUTO = replace(RULES, staging=Staging(auto=True))
READY, COPYING, LOST = ReplicaState.READY, ReplicaState.COPYING, ReplicaState.LOST


def fleet(rules: Rules = RULES, alpine: int = 2, baker: int = 2) -> Loopback:
    return Loopback({"alpine": rack("a", alpine), "baker": rack("b", baker)}, rules)


def ask(f: Loopback, verb: DataVerb, **given: Any) -> AnswerData | AnswerDataRefused:
    fields: dict[str, Any] = {"name": "a", "version": "1"} | given
    of = DataGiven(**fields)
    f.observe(DataAsked(client=-7, verb=verb, sets=(of,), by="ada"))
    f.run_for(2.0)
    answer = f.answers.pop(-7)
    assert isinstance(answer, AnswerData | AnswerDataRefused)
    return answer


def add(f: Loopback, **given: Any) -> None:
    at = (DataPlace(domain="west", path="sets/a"),)
    base: dict[str, Any] = {"at": at, "digest": DIGEST, "size_bytes": GIB}
    assert isinstance(ask(f, DataVerb.ADD, **(base | given)), AnswerData)


def copy(
    f: Loopback, to: str = "east", path: str = "", name: str = "a"
) -> AnswerData | AnswerDataRefused:
    return ask(f, DataVerb.COPY, name=name, at=(DataPlace(domain=to, path=path),))


def tell(f: Loopback, phase: CopyPhase, copied: int = 0, **more: Any) -> None:
    of = {"name": "a", "version": "1", "domain": "east", "digest": DIGEST}
    seen: dict[str, Any] = of | more
    f.observe(CopySeen(phase=phase, copied_bytes=copied, **seen))
    f.run_for(2.0)


def replica(f: Loopback, domain: str = "east") -> DataReplica | None:
    of = f.federation.ledger.catalogue.find("a", "1")
    return None if of is None else of.replica_in(domain)


def under_way(f: Loopback) -> DataCopy:
    found = replica(f)
    assert found is not None
    assert found.copy is not None
    return found.copy


def state(f: Loopback) -> ReplicaState | None:
    found = replica(f)
    return None if found is None else found.state


def code(answer: AnswerData | AnswerDataRefused) -> DataRefusalCode | None:
    return None if isinstance(answer, AnswerData) else answer.refusal.code


def submit(f: Loopback, **more: Any) -> WorkloadId:
    wanted: Draft = replace(draft(gang(1)), data=(use("a"),), **more)
    id_ = f.submit(wanted)
    f.run_for(2.0)
    return id_


# ---- asked for ----


def test_a_copy_is_asked_for_at_the_path_that_it_has_elsewhere() -> None:
    f = fleet()
    add(f)
    copy(f)
    found = replica(f)
    assert found is not None
    assert (found.path, found.state, under_way(f).by) == ("sets/a", COPYING, "ada")


def test_what_is_there_or_on_its_way_is_not_asked_for_twice() -> None:
    f = fleet()
    add(f)
    copy(f)
    before = f.federation.ledger.catalogue.find("a", "1")
    copy(f)
    assert f.federation.ledger.catalogue.find("a", "1") == before
    assert isinstance(copy(f, "west"), AnswerData)
    assert replica(f, "west") == DataReplica(domain="west", path="sets/a")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"digest": None}, DataRefusalCode.UNSEALED),
        ({"digest": "md5:" + "0f" * 16}, DataRefusalCode.UNSEALED),
        ({"at": ()}, DataRefusalCode.NO_SOURCE),
        ({"size_bytes": 2 * 2**40}, DataRefusalCode.NO_ROOM),
    ],
)
def test_what_cannot_be_copied_is_refused(given: Any, expected: DataRefusalCode) -> None:
    small = {**STORAGE, "east": StorageDomain(mounts={BAKER: "/e"}, capacity_bytes=2**40)}
    f = fleet(Rules(storage=small))
    add(f, **given)
    assert code(copy(f)) is expected
    assert replica(f) is None


def test_nothing_is_copied_to_what_no_site_mounts_and_from_there_only_what_is_nowhere_else() -> (
    None
):
    stored = {**STORAGE, "archive": StorageDomain(mounts={}, rclone="s3:sets")}
    f = fleet(Rules(storage=stored))
    add(f, at=(DataPlace(domain="archive", path="a"), DataPlace(domain="west", path="sets/a")))
    add(f, name="b")
    assert code(copy(f, "archive", name="b")) is DataRefusalCode.NOT_MOUNTED
    of = f.federation.ledger.catalogue.find("a", "1")
    assert of is not None
    source = source_of(of, "east", stored)
    assert source is not None
    assert source.domain == "west"


def test_copies_count_in_the_use_of_a_domain_from_the_start() -> None:
    small = {**STORAGE, "east": StorageDomain(mounts={BAKER: "/e"}, capacity_bytes=GIB)}
    f = fleet(Rules(storage=small))
    add(f)
    copy(f)
    add(f, name="b")
    asked = ask(f, DataVerb.COPY, name="b", at=(DataPlace(domain="east"),))
    assert code(asked) is DataRefusalCode.NO_ROOM


# ---- how far it is ----


def test_a_copy_counts_once_it_is_whole_and_is_sealed() -> None:
    f = fleet(alpine=1)
    add(f)
    copy(f)
    f.submit(draft(gang(1)))
    f.run_for(2.0)
    id_ = submit(f)
    tell(f, CopyPhase.COPYING, GIB // 2)
    assert f.entry(id_).state is WorkloadState.PENDING
    tell(f, CopyPhase.DONE, GIB)
    found = replica(f)
    assert found is not None
    assert (found.state, found.digest, found.copy) == (READY, DIGEST, None)
    f.run_for(5.0)
    assert (f.entry(id_).state, f.entry(id_).site) == (WorkloadState.RUNNING, BAKER)


def test_its_progress_outlives_a_restart_and_is_recorded_in_steps() -> None:
    f = fleet()
    add(f)
    copy(f)
    tell(f, CopyPhase.COPYING, GIB // 4)
    records = sum(isinstance(r, DataSetKept) for r in f.log)
    tell(f, CopyPhase.COPYING, GIB // 4 + 1)
    assert sum(isinstance(r, DataSetKept) for r in f.log) == records
    f.restart()
    assert under_way(f).copied_bytes == GIB // 4
    assert [r.domain for _, r in f.federation.ledger.catalogue.copies()] == ["east"]


def test_how_long_it_takes_is_told_from_its_speed() -> None:
    copied = DataCopy(by="", asked_at_s=0.0, began_at_s=10.0, told_at_s=20.0, copied_bytes=100)
    assert copied.eta_s(400) == 50.0
    assert DataCopy(by="", asked_at_s=0.0).eta_s(400) == 0.0


def test_a_failure_is_kept_with_its_words_and_a_new_request_begins_anew() -> None:
    f = fleet()
    add(f)
    copy(f)
    tell(f, CopyPhase.FAILED, detail="no room")
    assert (under_way(f).tries, under_way(f).detail) == (1, "no room")
    copy(f)
    assert (under_way(f).tries, under_way(f).phase) == (0, CopyPhase.NONE)


@pytest.mark.parametrize("more", [{"name": "b"}, {"domain": "west"}, {"digest": "sha256tree:00"}])
def test_news_of_another_copy_count_for_nothing(more: Any) -> None:
    f = fleet()
    add(f)
    copy(f)
    tell(f, CopyPhase.DONE, GIB, **more)
    assert state(f) is COPYING


def test_news_of_a_copy_that_was_taken_out_count_for_nothing() -> None:
    f = fleet()
    add(f)
    copy(f)
    ask(f, DataVerb.REMOVE, at=(DataPlace(domain="east"),))
    tell(f, CopyPhase.DONE, GIB)
    assert replica(f) is None


def test_a_lost_replica_is_made_anew_from_a_good_one() -> None:
    f = fleet()
    add(f)
    copy(f)
    tell(f, CopyPhase.DONE, GIB)
    ask(f, DataVerb.LOSE, at=(DataPlace(domain="east"),))
    copy(f)
    assert state(f) is LOST
    tell(f, CopyPhase.DONE, GIB)
    assert state(f) is READY


# ---- nothing is overwritten ----


@pytest.mark.parametrize("other", ["sets", "sets/a", "sets/a/part"])
def test_no_copy_is_made_over_another_data_set(other: str) -> None:
    f = fleet()
    add(f)
    add(f, name="b", at=(DataPlace(domain="east", path=other),))
    assert code(copy(f)) is DataRefusalCode.OCCUPIED
    assert replica(f) is None
    assert isinstance(copy(f, path="a2"), AnswerData)


def test_a_lost_replica_is_not_made_anew_while_jobs_use_it() -> None:
    f = fleet()
    add(f)
    add(f, at=(DataPlace(domain="east", path="sets/a"),))
    submit(f)
    f.run_for(5.0)
    ask(f, DataVerb.LOSE, at=(DataPlace(domain="east", path=""),))
    assert state(f) is LOST
    assert code(copy(f)) is DataRefusalCode.RUNNING
