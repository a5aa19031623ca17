"""A retired replica is given to no job, can be taken back for a time, and then its files go."""

from __future__ import annotations

from dataclasses import replace

from federator.model.dataset import (
    CopyPhase,
    DataPlace,
    DataRefusalCode,
    DataRemoval,
    DataVerb,
    ReplicaState,
    StorageDomain,
)
from federator.model.lifecycle import WorkloadState
from federator.model.message import AnswerData, AnswerDataRefused, CopySeen, DataTidied
from federator.model.workload import WorkloadId
from federator.sched.state.rules import DataMoving
from tests.fakes.build import draft, gang
from tests.fakes.loopback import Loopback
from tests.unit.sched.passes.test_data_copies import (
    AUTO,
    DIGEST,
    GIB,
    RULES,
    add,
    ask,
    code,
    copy,
    fleet,
    replica,
    state,
    submit,
    tell,
)
from tests.unit.sched.passes.test_data_places import use

GRACE_S = 100.0
GOES = replace(RULES, moving=DataMoving(removal_grace_s=GRACE_S))
UNUSED = replace(AUTO, moving=DataMoving(removal_grace_s=GRACE_S, unused_s=1000.0))
READY, LOST, RETIRED = ReplicaState.READY, ReplicaState.LOST, ReplicaState.RETIRED
BOTH = (DataPlace(domain="west", path="sets/a"), DataPlace(domain="east", path="sets/a"))


def sealed() -> Loopback:
    """A data set with a sealed replica in each of two domains."""
    f = fleet(GOES, alpine=1)
    add(f, at=BOTH)
    ask(f, DataVerb.SEAL, at=at("west", "east"), digest=DIGEST)
    return f


def at(*domains: str) -> tuple[DataPlace, ...]:
    return tuple(DataPlace(domain=domain) for domain in domains)


def in_baker(f: Loopback) -> WorkloadId:
    """Submit a job that is too large for alpine, which mounts the other domain."""
    id_ = f.submit(replace(draft(gang(2)), data=(use("a"),)))
    f.run_for(2.0)
    return id_


def retire(f: Loopback, *domains: str) -> AnswerData | AnswerDataRefused:
    return ask(f, DataVerb.RETIRE, at=at(*domains or ("east",)))


def tidy(f: Loopback, after_s: float = 0.0) -> None:
    f.run_for(after_s)
    f.observe(DataTidied())
    f.run_for(1.0)


def removal(f: Loopback) -> DataRemoval:
    found = replica(f)
    assert found is not None
    assert found.removal is not None
    return found.removal


def begun(f: Loopback) -> Loopback:
    retire(f)
    tidy(f, GRACE_S)
    assert removal(f).begun
    return f


# ---- asked for ----


def test_no_job_is_given_a_retired_replica() -> None:
    f = sealed()
    retire(f)
    assert (state(f), removal(f).by) == (RETIRED, "ada")
    id_ = in_baker(f)
    assert f.state(id_) is WorkloadState.PENDING


def test_its_files_go_after_the_grace_and_it_leaves_the_catalogue() -> None:
    f = sealed()
    retire(f)
    tidy(f, GRACE_S / 2)
    assert not removal(f).begun
    tidy(f, GRACE_S)
    assert removal(f).begun
    tell(f, CopyPhase.DROPPED)
    assert replica(f) is None
    assert replica(f, "west") is not None


def test_a_site_that_says_so_before_it_was_asked_is_not_believed() -> None:
    f = sealed()
    retire(f)
    tell(f, CopyPhase.DROPPED)
    assert state(f) is RETIRED


def test_a_removal_that_fails_is_tried_again_and_says_why() -> None:
    f = begun(sealed())
    tell(f, CopyPhase.FAILED, detail="Permission denied")
    assert (removal(f).tries, removal(f).detail) == (1, "Permission denied")
    assert state(f) is RETIRED


# ---- refused ----


def test_the_last_sealed_replica_never_goes() -> None:
    f = sealed()
    assert code(retire(f, "west", "east")) is DataRefusalCode.LAST_COPY
    assert state(f) is READY
    ask(f, DataVerb.LOSE, at=at("west"))
    assert code(retire(f)) is DataRefusalCode.LAST_COPY


def test_one_that_nobody_has_read_proves_nothing_and_is_none_that_is_left() -> None:
    f = fleet(GOES, alpine=1)
    add(f, at=BOTH)
    assert code(retire(f)) is DataRefusalCode.UNSEALED
    ask(f, DataVerb.SEAL, at=at("east"), digest=DIGEST)
    assert code(retire(f)) is DataRefusalCode.LAST_COPY


def test_nothing_is_removed_where_no_site_could_do_it() -> None:
    f = sealed()
    catalogue = f.federation.ledger.catalogue
    catalogue.domains = {**catalogue.domains, "east": StorageDomain(mounts={}, rclone="s3:sets")}
    assert code(retire(f)) is DataRefusalCode.NOT_MOUNTED


def test_what_is_pinned_or_used_by_jobs_at_sites_stays() -> None:
    f = sealed()
    ask(f, DataVerb.PIN, at=at("east"))
    assert code(retire(f)) is DataRefusalCode.PINNED
    ask(f, DataVerb.UNPIN, at=at("east"))
    submit(f)
    refused = retire(f)
    assert code(refused) is DataRefusalCode.RUNNING
    assert isinstance(refused, AnswerDataRefused)
    assert refused.refusal.jobs == 1


def test_a_job_that_began_meanwhile_puts_the_removal_off() -> None:
    f = sealed()
    retire(f)
    submit(f)
    tidy(f, GRACE_S)
    assert not removal(f).begun


# ---- taken back ----


def test_until_its_files_go_it_is_taken_back_by_a_copy_or_a_pin() -> None:
    f = sealed()
    retire(f)
    copy(f)
    assert state(f) is READY
    retire(f)
    ask(f, DataVerb.PIN, at=at("east"))
    assert state(f) is READY


def test_nothing_takes_back_what_is_being_removed() -> None:
    f = begun(sealed())
    assert code(copy(f)) is DataRefusalCode.REMOVING
    assert code(ask(f, DataVerb.PIN, at=at("east"))) is DataRefusalCode.REMOVING
    ask(f, DataVerb.SEAL, at=at("east"), digest=DIGEST)
    ask(f, DataVerb.LOSE, at=at("east"))
    assert state(f) is RETIRED


def test_it_is_taken_back_by_itself_when_no_other_is_left() -> None:
    f = sealed()
    retire(f)
    ask(f, DataVerb.LOSE, at=at("west"))
    assert state(f) is READY
    f = sealed()
    retire(f)
    ask(f, DataVerb.REMOVE, at=at("west"))
    assert state(f) is READY


def test_one_that_is_found_damaged_meanwhile_is_lost() -> None:
    f = sealed()
    retire(f)
    ask(f, DataVerb.LOSE, at=at("east"))
    assert state(f) is LOST


def test_the_grace_survives_a_restart() -> None:
    f = sealed()
    retire(f)
    before = removal(f)
    f.restart()
    assert removal(f) == before
    tidy(f, GRACE_S)
    f.restart()
    assert removal(f).begun


# ---- unused copies ----


def staged(f: Loopback) -> None:
    """A copy in east that a job made and used."""
    add(f)
    ask(f, DataVerb.SEAL, at=at("west"), digest=DIGEST)
    id_ = in_baker(f)
    tell(f, CopyPhase.COPYING, GIB // 2)
    tell(f, CopyPhase.DONE)
    assert f.state(id_) is not WorkloadState.PENDING
    f.cancel(id_)
    f.run_for(5.0)


def test_a_copy_for_jobs_that_none_uses_for_long_is_retired_and_a_job_takes_it_back() -> None:
    f = fleet(UNUSED, alpine=1)
    staged(f)
    tidy(f, 500.0)
    assert state(f) is READY
    tidy(f, 600.0)
    assert (state(f), removal(f).by) == (RETIRED, "")
    id_ = in_baker(f)
    assert state(f) is READY
    f.run_for(5.0)
    assert f.state(id_) is not WorkloadState.PENDING


def test_a_copy_that_a_user_asked_for_stays_unused_as_it_is() -> None:
    f = fleet(UNUSED, alpine=1)
    add(f)
    ask(f, DataVerb.SEAL, at=at("west"), digest=DIGEST)
    copy(f)
    tell(f, CopyPhase.DONE)
    tidy(f, 5000.0)
    assert state(f) is READY


def test_a_removal_says_nothing_of_another_content() -> None:
    f = begun(sealed())
    other = DIGEST.replace("0f", "0e")
    f.observe(CopySeen(name="a", version="1", domain="east", digest=other, phase=CopyPhase.DROPPED))
    f.run_for(1.0)
    assert state(f) is RETIRED


def test_one_that_a_user_takes_back_is_no_copy_for_jobs_any_more() -> None:
    f = fleet(UNUSED, alpine=1)
    staged(f)
    tidy(f, 1100.0)
    assert state(f) is RETIRED
    copy(f)
    assert state(f) is READY
    tidy(f, 5000.0)
    assert state(f) is READY


def test_one_that_a_user_asks_for_while_it_is_there_stays() -> None:
    f = fleet(UNUSED, alpine=1)
    staged(f)
    copy(f)
    tidy(f, 5000.0)
    assert state(f) is READY


def test_the_last_good_one_is_not_taken_out_of_the_catalogue_beside_one_that_goes() -> None:
    f = begun(sealed())
    assert code(ask(f, DataVerb.REMOVE, at=at("west"))) is DataRefusalCode.REMOVING


def test_where_no_other_is_left_one_that_is_found_whole_is_taken_back() -> None:
    f = begun(sealed())
    ask(f, DataVerb.LOSE, at=at("west"))
    ask(f, DataVerb.SEAL, at=at("east"), digest=DIGEST)
    assert state(f) is READY
