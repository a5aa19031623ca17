"""The catalogue says at which sites a job finds its data sets, and where there."""

from __future__ import annotations

from federator.model.data_use import DataUse
from federator.model.dataset import DataReplica, DataSet, ReplicaState, StorageDomain
from federator.model.event import DataSetDropped, DataSetKept
from federator.model.workload import SiteName, TenantName
from federator.sched.state.catalogue import Catalogue

ALPINE, BIRCH, CEDAR = map(SiteName, ("alpine", "birch", "cedar"))


def catalogue(*sets: DataSet) -> Catalogue:
    """West is mounted by alpine and birch, east by cedar and birch."""
    found = Catalogue()
    found.domains = {
        "west": StorageDomain(mounts={ALPINE: "/w", BIRCH: "/mnt/w"}),
        "east": StorageDomain(mounts={CEDAR: "/e", BIRCH: "/mnt/e"}),
    }
    for each in sets:
        found.apply(DataSetKept(at_s=1.0, kept=each))
    return found


def data_set(name: str, *replicas: DataReplica, version: str = "1", owner: str = "ada") -> DataSet:
    return DataSet(
        name=name,
        version=version,
        owner=owner,
        tenant=TenantName("lab"),
        size_bytes=10,
        replicas=replicas,
    )


def at(domain: str, state: ReplicaState = ReplicaState.READY) -> DataReplica:
    return DataReplica(domain=domain, path="sets/x", state=state)


def use(name: str, version: str = "1", owner: str = "ada") -> DataUse:
    return DataUse(name=name, version=version, owner=owner)


def test_a_site_has_what_lies_ready_in_a_domain_that_it_mounts() -> None:
    known = catalogue(data_set("a", at("west")), data_set("b", at("east")))
    assert known.sites_of((use("a"),)) == {ALPINE, BIRCH}
    assert known.sites_of((use("a"), use("b"))) == {BIRCH}
    assert known.lacking((use("a"), use("b")), ALPINE) == [use("b")]


def test_a_replica_that_is_not_ready_is_of_no_use() -> None:
    known = catalogue(
        data_set("a", at("west", ReplicaState.COPYING), at("east", ReplicaState.LOST))
    )
    assert known.sites_of((use("a"),)) == frozenset()
    assert known.lacking((use("a"),)) == [use("a")]


def test_of_two_domains_at_a_site_the_one_configured_first_is_taken() -> None:
    known = catalogue(data_set("a", at("east"), at("west")))
    paths = known.paths((use("a"),), BIRCH)
    assert paths is not None
    assert [(p.domain, p.absolute) for p in paths] == [("west", "/mnt/w/sets/x")]
    assert known.paths((use("a"),), SiteName("elsewhere")) is None


def test_what_another_user_has_put_in_its_place_is_not_what_was_asked_for() -> None:
    known = catalogue(data_set("a", at("west"), owner="mallory"))
    assert known.sites_of((use("a"),)) == frozenset()


def test_without_a_version_the_one_that_was_added_last_is_meant() -> None:
    known = catalogue(data_set("a", version="10"), data_set("a", version="9"))
    found = known.find("a")
    assert found is not None
    assert found.version == "9"
    assert known.find("a", "8") is None
    assert known.find("b") is None


def test_answers_follow_every_change_and_another_configuration() -> None:
    known = catalogue(data_set("a", at("west")))
    assert known.sites_of((use("a"),)) == {ALPINE, BIRCH}
    known.apply(DataSetKept(at_s=2.0, kept=data_set("a", at("east"))))
    assert known.sites_of((use("a"),)) == {BIRCH, CEDAR}
    known.domains = {"east": StorageDomain(mounts={CEDAR: "/e"})}
    assert known.sites_of((use("a"),)) == {CEDAR}
    known.apply(DataSetDropped(at_s=3.0, name="a", version="1"))
    assert known.sites_of((use("a"),)) == frozenset()
    assert len(known) == 0


def test_the_use_of_a_domain_is_that_of_the_data_sets_in_it() -> None:
    known = catalogue(data_set("a", at("west")), data_set("b", at("west"), at("east")))
    lab = TenantName("lab")
    assert (known.usage["west"][lab].sets, known.usage["west"][lab].size_bytes) == (2, 20)
    known.apply(DataSetKept(at_s=2.0, kept=data_set("b", at("east"))))
    known.apply(DataSetDropped(at_s=3.0, name="a", version="1"))
    assert known.usage["west"][lab].sets == 0
    assert known.usage["east"][lab].size_bytes == 10


def test_what_each_owner_has_follows_changes_and_a_new_owner() -> None:
    known = catalogue(data_set("a"), data_set("a", version="2"), data_set("b", owner="eve"))
    assert (dict(known.owned), len(known)) == ({"ada": 2, "eve": 1}, 3)
    known.apply(DataSetKept(at_s=2.0, kept=data_set("b", at("west"))))
    assert (dict(known.owned), len(known)) == ({"ada": 3}, 3)
    known.apply(DataSetDropped(at_s=3.0, name="a", version="1"))
    known.apply(DataSetDropped(at_s=3.0, name="none", version="1"))
    assert (dict(known.owned), len(known)) == ({"ada": 2}, 2)
    later = Catalogue()
    later.restore(known)
    assert later.owned == known.owned
