"""Who may change and see which data sets, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from federator.config import FederationConfig
from federator.daemon.callers import Caller
from federator.daemon.data_calls import data_asked, domain_rows
from federator.errors import InvalidRequest
from federator.model.data_use import DataUse
from federator.model.dataset import (
    DataClass,
    DataGiven,
    DataPlace,
    DataSet,
    DataSharing,
    DataVerb,
    ReplicaState,
)
from federator.model.event import DataSetDropped, DataSetKept
from federator.model.lifecycle import WorkloadState
from federator.model.message import DataAsked
from federator.model.workload import Workload
from federator.sched.state.rules import Rules
from federator.wire.client_protocol import ErrorKind, ErrorReply
from federator.wire.data_rows import DataCall, DataReply, DataSetsCall, DataSetsReply
from tests.fakes.build import rack
from tests.fakes.loopback import Loopback
from tests.unit.daemon.test_api import CONFIG, Desk, submit_call

STORAGE = {
    "west": {"capacity_tib": 1, "mounts": {"alpine": "/w"}},
    "east": {"mounts": {"baker": "/e"}},
}
WITH_STORAGE = FederationConfig.model_validate(
    CONFIG.model_dump(mode="json", exclude_unset=True)
    | {"storage": STORAGE}
    | {
        "tenants": {
            "vision": {"users": ["ada", "bob"]},
            "nlp": {"users": ["eve"]},
        }
    }
)
AT_WEST = (DataPlace(domain="west", path="sets/a"),)
DIGEST = "sha256:" + "0f" * 32


@pytest.fixture
def desk() -> Desk:
    rules = Rules(storage=WITH_STORAGE.rules.storage)
    return Desk(Loopback({"alpine": rack("a", 2), "baker": rack("b", 2)}, rules), WITH_STORAGE)


def given(name: str = "a", **more: Any) -> DataGiven:
    return DataGiven(name=name, **({"at": AT_WEST} | more))


def change(
    desk: Desk, verb: DataVerb, *sets: DataGiven, user: str = "ada"
) -> DataReply | ErrorReply:
    reply = desk.ask(DataCall(verb=verb.value, sets=sets), user)
    assert isinstance(reply, DataReply | ErrorReply)
    return reply


def add(desk: Desk, *sets: DataGiven, user: str = "ada") -> tuple[DataSet, ...]:
    reply = change(desk, DataVerb.ADD, *sets, user=user)
    assert isinstance(reply, DataReply), reply
    return reply.sets


def refusal(desk: Desk, verb: DataVerb, *sets: DataGiven, user: str = "ada") -> str:
    reply = change(desk, verb, *sets, user=user)
    assert isinstance(reply, ErrorReply), reply
    return reply.message


def seen(desk: Desk, user: str, **asked: Any) -> list[str]:
    reply = desk.ask(DataSetsCall(**asked), user)
    assert isinstance(reply, DataSetsReply), reply
    return [of.label for of in reply.sets]


# ---- adding ----


def test_a_data_set_belongs_to_who_added_it_and_is_in_the_log(desk: Desk) -> None:
    (of,) = add(desk, given(size_bytes=5, digest=DIGEST))
    assert (of.label, of.owner, of.tenant) == ("a@1", "ada", "vision")
    assert [(r.domain, r.path) for r in of.replicas] == [("west", "sets/a")]
    assert (of.kind, of.sharing) == (DataClass.FRESH, DataSharing.NONE)
    (record,) = (r for r in desk.federation.log if isinstance(r, DataSetKept))
    assert (record.kept, record.by) == (of, "ada")


def test_what_was_added_outlives_a_restart(desk: Desk) -> None:
    add(desk, given(), given("b"))
    desk.federation.restart()
    assert [of.label for of in desk.federation.federation.ledger.catalogue] == ["a@1", "b@1"]


def test_a_data_set_added_again_gains_replicas_and_what_was_not_said(desk: Desk) -> None:
    add(desk, given())
    east = DataPlace(domain="east", path="/e/copies/a")
    (of,) = add(desk, given(at=(east,), size_bytes=7, sharing=DataSharing.ALL))
    assert [(r.domain, r.path) for r in of.replicas] == [("west", "sets/a"), ("east", "copies/a")]
    assert (of.size_bytes, of.sharing) == (7, DataSharing.ALL)
    records = len(desk.federation.log)
    add(desk, given(at=(east,)))
    assert len(desk.federation.log) == records  # nothing new


def test_a_version_is_one_content(desk: Desk) -> None:
    add(desk, given(size_bytes=5))
    assert "another content or place (size 5)" in refusal(desk, DataVerb.ADD, given(size_bytes=6))
    elsewhere = (DataPlace(domain="west", path="b"),)
    assert "(west:sets/a); add another version" in refusal(desk, DataVerb.ADD, given(at=elsewhere))
    assert [of.label for of in add(desk, given(version="2", size_bytes=6))] == ["a@2"]


def test_all_of_a_request_is_done_or_nothing(desk: Desk) -> None:
    add(desk, given(size_bytes=5))
    refusal(desk, DataVerb.ADD, given("b"), given(size_bytes=6))
    assert seen(desk, "ada") == ["a@1"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "../a"}, "is no name of a data set"),
        ({"name": "a\nb"}, "is no name of a data set"),
        ({"version": "a/b"}, "is no version"),
        ({"digest": "0f0f"}, "the digest must be ALGORITHM:HEX"),
        ({"size_bytes": -1}, "size must be"),
        ({"at": (DataPlace(domain="moon", path="a"),)}, "unknown storage domain 'moon'"),
        ({"at": AT_WEST * 2}, "one domain twice"),
        ({"at": (DataPlace(domain="west"),)}, "say where it is in west"),
        ({"at": (DataPlace(domain="west", path="../a"),)}, "has an empty part, . or .."),
        ({"at": (DataPlace(domain="west", path="/w/../etc"),)}, "has an empty part, . or .."),
        ({"at": (DataPlace(domain="west", path="/etc"),)}, "must be below the domain's root"),
        ({"at": (DataPlace(domain="west", path="a\nb"),)}, "holds a newline"),
        ({"tenant": "moon"}, "unknown tenant"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(
    desk: Desk, wrong: dict[str, Any], words: str
) -> None:
    assert words in refusal(desk, DataVerb.ADD, given(**wrong))
    assert not len(desk.federation.federation.ledger.catalogue)


# ---- how many ----


def limited(**policy: int) -> tuple[Desk, FederationConfig]:
    config = FederationConfig.model_validate(
        WITH_STORAGE.model_dump(mode="json", exclude_unset=True) | {"policy": policy}
    )
    rules = Rules(storage=config.rules.storage)
    return Desk(Loopback({"alpine": rack("a", 2)}, rules), config), config


def asked_by_operator(desk: Desk, config: FederationConfig, *sets: DataGiven) -> DataAsked:
    catalogue = desk.federation.federation.ledger.catalogue
    call = DataCall(verb=DataVerb.ADD.value, sets=sets)
    return data_asked(call, Caller(user="root", operator=True), 1, config, catalogue)


def test_a_user_adds_no_more_data_sets_than_the_limit_but_changes_those_there() -> None:
    desk, config = limited(max_data_sets_per_user=2)
    add(desk, given(), given(version="2"))
    words = "ada has 2 data sets, and policy.max_data_sets_per_user lets a user have 2"
    assert words in refusal(desk, DataVerb.ADD, given(version="3"))
    assert "3 more: bob has 0" in refusal(
        desk, DataVerb.ADD, *(given(name) for name in "xyz"), user="bob"
    )  # all of a request counts
    add(desk, given(version="2", sharing=DataSharing.ALL))
    change(desk, DataVerb.REMOVE, DataGiven(name="a", version="1"))
    add(desk, given(version="3"))
    assert words in refusal(desk, DataVerb.ADD, given("b"))
    assert asked_by_operator(desk, config, given("b", owner="ada"))


def test_the_catalogue_has_no_more_than_its_limit_whoever_adds() -> None:
    desk, config = limited(max_data_sets=1)
    add(desk, given())
    words = "1 more: the catalogue has 1 data sets, and policy.max_data_sets lets it have 1"
    assert words in refusal(desk, DataVerb.ADD, given("b"), user="bob")
    with pytest.raises(InvalidRequest, match=words):
        asked_by_operator(desk, config, given("b", owner="bob"))


def test_saying_again_how_a_data_set_is_shared_is_no_record(desk: Desk) -> None:
    add(desk, given(sharing=DataSharing.ALL))
    records = len(desk.federation.log)
    add(desk, given(sharing=DataSharing.ALL))
    add(desk, DataGiven(name="a", sharing=DataSharing.ALL))
    assert len(desk.federation.log) == records


# ---- who may ----


def test_others_do_not_see_a_data_set_until_it_is_shared(desk: Desk) -> None:
    add(desk, given())
    assert (seen(desk, "ada"), seen(desk, "bob"), seen(desk, "eve")) == (["a@1"], [], [])
    reply = desk.ask(DataSetsCall(names=("a",)), "eve")
    assert isinstance(reply, DataSetsReply)
    assert reply.unknown == ("a",)  # as one that does not exist
    add(desk, given(sharing=DataSharing.TENANT))
    assert (seen(desk, "bob"), seen(desk, "eve")) == (["a@1"], [])
    add(desk, given(sharing=DataSharing.ALL))
    assert seen(desk, "eve") == ["a@1"]


def test_only_its_owner_changes_a_data_set_and_strangers_learn_nothing_of_it(desk: Desk) -> None:
    add(desk, given())
    for verb in (DataVerb.PIN, DataVerb.UNPIN, DataVerb.REMOVE):
        assert "no such data set" in refusal(desk, verb, DataGiven(name="a"), user="eve")
    assert "the name is taken" in refusal(desk, DataVerb.ADD, given(), user="eve")
    assert "the name is taken" in refusal(desk, DataVerb.ADD, given(version="2"), user="eve")
    add(desk, given(sharing=DataSharing.ALL))
    reply = change(desk, DataVerb.REMOVE, DataGiven(name="a"), user="eve")
    assert isinstance(reply, ErrorReply)
    assert reply.kind is ErrorKind.DENIED


def test_nobody_adds_in_anothers_name_or_for_a_tenant_of_others(desk: Desk) -> None:
    for wrong in ({"owner": "bob"}, {"tenant": "nlp"}):
        reply = change(desk, DataVerb.ADD, given(**wrong))
        assert isinstance(reply, ErrorReply)
        assert reply.kind is ErrorKind.DENIED
    assert "belongs to no tenant" in refusal(desk, DataVerb.ADD, given(), user="stranger")


# ---- pins, and the end ----


def test_what_is_pinned_is_not_taken_out(desk: Desk) -> None:
    add(desk, given())
    change(desk, DataVerb.PIN, DataGiven(name="a"))
    assert "pinned in west" in refusal(desk, DataVerb.REMOVE, DataGiven(name="a"))
    change(desk, DataVerb.UNPIN, DataGiven(name="a"))
    reply = change(desk, DataVerb.REMOVE, DataGiven(name="a"))
    assert isinstance(reply, DataReply)
    assert reply.dropped == ("a@1",)
    assert any(isinstance(record, DataSetDropped) for record in desk.federation.log)
    assert seen(desk, "ada") == []


def test_one_replica_is_taken_out_and_the_others_stay(desk: Desk) -> None:
    add(desk, given(at=(*AT_WEST, DataPlace(domain="east", path="a"))))
    west = (DataPlace(domain="west"),)
    reply = change(desk, DataVerb.REMOVE, DataGiven(name="a", at=west))
    assert isinstance(reply, DataReply)
    (of,) = reply.sets
    assert [r.domain for r in of.replicas] == ["east"]
    assert "no replica in west" in refusal(desk, DataVerb.PIN, DataGiven(name="a", at=west))


def test_of_several_versions_one_must_be_named(desk: Desk) -> None:
    add(desk, given(version="1"), given(version="2"))
    assert "a has versions 1, 2" in refusal(desk, DataVerb.REMOVE, DataGiven(name="a"))


# ---- seals ----


def test_a_seal_gives_a_data_set_its_digest_which_others_must_have(desk: Desk) -> None:
    add(desk, given(at=(*AT_WEST, DataPlace(domain="east", path="a")), size_bytes=150))
    west, east = ((DataPlace(domain=name),) for name in ("west", "east"))
    reply = change(desk, DataVerb.SEAL, given(at=west, digest=DIGEST, size_bytes=7, files=2))
    assert isinstance(reply, DataReply)
    (of,) = reply.sets
    assert (of.digest, of.size_bytes, of.files) == (DIGEST, 7, 2)
    assert [r.digest for r in of.replicas] == [DIGEST, ""]
    assert of.replicas[0].sealed_at_s == pytest.approx(desk.federation.clock(), abs=2)
    other = given(at=east, digest=DIGEST.replace("0", "1"))
    assert "another content" in refusal(desk, DataVerb.SEAL, other)
    assert "say which replica, and what was read" in refusal(desk, DataVerb.SEAL, given(at=east))
    for verb in (DataVerb.SEAL, DataVerb.LOSE):
        assert "no such data set" in refusal(desk, verb, other, user="eve")


def test_no_job_goes_to_a_replica_that_is_lost_until_it_is_sealed_again(desk: Desk) -> None:
    add(desk, given())
    west = (DataPlace(domain="west"),)
    reply = change(desk, DataVerb.LOSE, given(at=west))
    assert isinstance(reply, DataReply)
    assert reply.sets[0].replicas[0].state is ReplicaState.LOST
    id_ = desk.submit(**{"fed-dataset": "a"})
    assert desk.federation.state(id_) is WorkloadState.PENDING
    change(desk, DataVerb.SEAL, given(at=west, digest=DIGEST))
    desk.federation.run_for(5.0)
    assert desk.federation.state(id_) is WorkloadState.RUNNING


def test_scratch_has_no_seal(desk: Desk) -> None:
    add(desk, given(kind=DataClass.SCRATCH))
    sealed = given(at=(DataPlace(domain="west"),), digest=DIGEST)
    assert "it has no seal" in refusal(desk, DataVerb.SEAL, sealed)


# ---- questions ----


def test_an_answer_says_at_which_site_the_caller_is(desk: Desk) -> None:
    reply = desk.ask(DataSetsCall())
    assert isinstance(reply, DataSetsReply)
    assert reply.site == "alpine"


def test_questions_select_by_owner_tenant_and_domain(desk: Desk) -> None:
    add(desk, given(), given("b", at=(DataPlace(domain="east", path="b"),)))
    add(desk, given("c", sharing=DataSharing.ALL), user="eve")
    assert seen(desk, "ada", domains=("east",)) == ["b@1"]
    assert seen(desk, "ada", users=("eve",)) == ["c@1"]
    assert seen(desk, "ada", tenants=("vision",)) == ["a@1", "b@1"]


def test_a_domain_tells_how_full_it_is_and_of_tenants_only_ones_own(desk: Desk) -> None:
    add(desk, given(size_bytes=2**39))
    reply = desk.ask(DataSetsCall(only_domains=True), "eve")
    assert isinstance(reply, DataSetsReply)
    assert not reply.sets
    west, east = reply.domains
    assert (west.name, west.capacity_bytes, west.used_bytes) == ("west", 2**40, 2**39)
    assert (west.sets, west.by_tenant, east.sets) == (1, {}, 0)
    (west, _) = domain_rows(desk.federation.federation.ledger.catalogue, None)
    assert west.by_tenant == {"vision": 2**39}


def test_what_one_answer_does_not_hold_is_asked_for_in_pages(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federator.daemon.data_calls.MOST_SHOWN", 5)
    add(desk, *(given(f"s{k}", at=(DataPlace(domain="west", path=f"s{k}"),)) for k in range(5)))
    found: list[str] = []
    after = None
    for _ in range(3):
        reply = desk.ask(DataSetsCall(after=after))
        assert isinstance(reply, DataSetsReply)
        found += [of.name for of in reply.sets]
        after = reply.after
    assert (found, after) == (["s0", "s1", "s2", "s3", "s4"], None)


# ---- submissions ----


def submitted(desk: Desk, text: str, user: str = "ada") -> Workload:
    id_ = desk.submit(user, key=f"key-of-{text}-{user}", **{"fed-dataset": text})
    return desk.federation.entry(id_).workload


def not_submitted(desk: Desk, text: str, user: str = "ada") -> str:
    return desk.refusal(submit_call("key-00009", {"fed-dataset": text}), user)


def test_a_submission_keeps_the_version_that_was_the_last_when_it_came(desk: Desk) -> None:
    add(desk, given(version="1"))
    workload = submitted(desk, "a")
    add(desk, given(version="2"))
    assert workload.data == (DataUse(name="a", version="1", owner="ada"),)
    assert workload.datasets == ("a",)
    assert [use.label for use in submitted(desk, "a:ro").data] == ["a@2"]
    assert [use.label for use in submitted(desk, "a@1").data] == ["a@1"]


def test_a_job_is_queued_only_with_names_that_are_there_and_its_users_to_see(desk: Desk) -> None:
    add(desk, given())
    words = "no such data set, or not yours to see"
    assert words in not_submitted(desk, "b")
    assert words in not_submitted(desk, "a@2")
    assert words in not_submitted(desk, "a", user="eve")
    assert not desk.federation.federation.ledger.entries
    add(desk, given(sharing=DataSharing.ALL))
    assert submitted(desk, "a", user="eve").data[0].owner == "ada"


def test_only_the_owner_of_scratch_may_write(desk: Desk) -> None:
    add(desk, given(sharing=DataSharing.ALL), given("s", kind=DataClass.SCRATCH))
    assert "only the owner of a data set of class scratch" in not_submitted(desk, "a:rw")
    assert submitted(desk, "s:rw").data[0].write
    add(desk, given("s", sharing=DataSharing.ALL))
    assert "only the owner" in not_submitted(desk, "s:rw", user="eve")


def test_two_data_sets_with_one_variable_are_refused(desk: Desk) -> None:
    add(desk, given("x/y"), given("x.y"), given(version="1"), given(version="2"))
    assert "would both be FED_DATASET_X_Y" in not_submitted(desk, "x/y,x.y")
    assert "a@1 and a@2 would both be FED_DATASET_A" in not_submitted(desk, "a@1,a@2")
    assert len(submitted(desk, "a,a@2").data) == 1  # the same one, twice


def test_a_trial_refuses_unknown_names_too(desk: Desk) -> None:
    call = submit_call(options={"fed-dataset": "b"}, test_only=True)
    assert "no such data set" in desk.refusal(call)
