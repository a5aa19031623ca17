"""Removals are ordered from sites that mount the domain, while another good replica is left."""

from __future__ import annotations

from typing import Any

from federator.daemon.data_mover import FIRST_RETRY_S, STEP_S
from federator.daemon.data_remover import AT_ONCE, DUE_LOOKS_S, LOOKS_S, DataRemover
from federator.model.dataset import CopyPhase, DataRemoval, DataReplica, DataSet, ReplicaState
from federator.model.event import DataSetKept
from federator.model.message import CopySeen
from federator.model.workload import SiteName, TenantName
from federator.sched.state.catalogue import Catalogue
from federator.wire.agent_protocol import CopyOrder, CopyStatus
from tests.unit.daemon.test_data_mover import BAKER, CEDAR, DIGEST, config

DROPPED, FAILED = CopyPhase.DROPPED, CopyPhase.FAILED


class Rig:
    """A remover, and the catalogue that it reads."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self.catalogue.domains = {n: each.domain for n, each in config().storage.items()}
        self.able = {BAKER, CEDAR}
        self.remover = DataRemover(self.catalogue, self.able.__contains__)
        self.now_s = 1000.0

    def retires(self, name: str = "a", other: str = DIGEST, **of: Any) -> None:
        fields: dict[str, Any] = {"by": "ada", "due_at_s": 1.0, "begun": True} | of
        gone = DataReplica(
            domain="east",
            path="copies/" + name,
            state=ReplicaState.RETIRED,
            digest=DIGEST,
            removal=DataRemoval(**fields),
        )
        kept = DataSet(
            name=name,
            version="1",
            owner="ada",
            tenant=TenantName("vision"),
            size_bytes=5,
            digest=DIGEST,
            replicas=(DataReplica(domain="west", path="sets/" + name, digest=other), gone),
        )
        self.catalogue.apply(DataSetKept(at_s=1.0, kept=kept))

    def orders(self, after_s: float = STEP_S) -> list[tuple[SiteName, CopyOrder]]:
        self.now_s += after_s
        return list(self.remover.due(self.now_s))

    def tell(
        self, phase: CopyPhase, site: SiteName = BAKER, digest: str = DIGEST
    ) -> CopySeen | None:
        said = CopyStatus(name="a", version="1", domain="east", digest=digest, phase=phase)
        return self.remover.taken(site, said, self.now_s)


def test_an_order_names_the_place_and_what_must_be_there() -> None:
    rig = Rig()
    rig.retires()
    ((site, order),) = rig.orders()
    assert site == BAKER
    assert (order.user, order.root, order.path) == ("ada", "/e", "copies/a")
    assert (order.digest, order.remove, order.drop) == (DIGEST, True, False)


def test_what_has_not_begun_and_the_last_good_replica_are_not_ordered() -> None:
    rig = Rig()
    rig.retires("a", begun=False)
    rig.retires("b", other="")
    assert rig.orders() == []


def test_it_is_ordered_again_until_the_site_says_that_it_is_gone() -> None:
    rig = Rig()
    rig.retires()
    assert len(rig.orders()) == len(rig.orders()) == 1
    assert rig.tell(CopyPhase.CHECKING) is None
    seen = rig.tell(DROPPED)
    assert seen is not None
    assert seen.phase is DROPPED


def test_only_the_site_that_was_asked_is_believed_and_only_of_that_content() -> None:
    rig = Rig()
    rig.retires()
    assert rig.tell(DROPPED) is None
    rig.orders()
    assert rig.tell(DROPPED, CEDAR) is None
    assert rig.tell(DROPPED, digest=DIGEST.replace("0f", "0e")) is None
    assert rig.tell(CopyPhase.DONE) is None


def test_the_site_that_began_goes_on_and_another_does_where_it_is_away() -> None:
    rig = Rig()
    rig.able = {CEDAR}
    rig.remover = DataRemover(rig.catalogue, lambda site: site in rig.able)
    rig.retires()
    assert [site for site, _ in rig.orders()] == [CEDAR]
    rig.able = {BAKER, CEDAR}
    assert [site for site, _ in rig.orders()] == [CEDAR]
    rig.able = {BAKER}
    assert [site for site, _ in rig.orders()] == [BAKER]
    rig.able = set()
    assert rig.orders() == []


def test_two_of_a_domain_go_at_a_time() -> None:
    rig = Rig()
    for name in "abcd":
        rig.retires(name)
    assert len(rig.orders()) == AT_ONCE


def test_one_that_failed_waits_longer_each_time() -> None:
    rig = Rig()
    rig.retires(tries=2, told_at_s=rig.now_s)
    assert rig.orders(FIRST_RETRY_S) == []
    assert len(rig.orders(FIRST_RETRY_S)) == 1


def test_the_core_looks_when_a_grace_is_over_and_else_each_hour() -> None:
    rig = Rig()
    assert rig.remover.is_look_due(0.0)
    assert not rig.remover.is_look_due(LOOKS_S - 1)
    assert rig.remover.next_s() == LOOKS_S
    rig.retires(begun=False, due_at_s=500.0)
    assert rig.remover.next_s() == 500.0
    assert not rig.remover.is_look_due(499.0)
    assert rig.remover.is_look_due(500.0)
    assert not rig.remover.is_look_due(501.0)
    assert rig.remover.next_s() == 500.0 + DUE_LOOKS_S
