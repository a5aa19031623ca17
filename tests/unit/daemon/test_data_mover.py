"""Each copy is ordered step by step from a site that mounts the domain, until it is there."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from structlog.testing import capture_logs

from federator.config import FederationConfig
from federator.config_names import NamesConfig
from federator.daemon.data_mover import (
    FIRST_RETRY_S,
    MOST_DETAIL,
    SAID_ANEW_S,
    STEP_S,
    DataMover,
)
from federator.model.dataset import (
    CopyPhase,
    DataCopy,
    DataReplica,
    DataSet,
    ReplicaState,
    StorageDomain,
)
from federator.model.event import DataSetDropped, DataSetKept
from federator.model.message import CopySeen
from federator.model.workload import SiteName, TenantName
from federator.sched.passes.data_copies import AT_ONCE
from federator.sched.state.catalogue import Catalogue
from federator.wire.agent_protocol import CopyOrder, CopyStatus

ALPINE, BAKER, CEDAR = map(SiteName, ("alpine", "baker", "cedar"))
DIGEST = "sha256tree:" + "0f" * 32


def config(**logins: str) -> FederationConfig:
    regions = {"alpine": "west", "baker": "east", "cedar": "east"}
    return FederationConfig.model_validate(
        {
            "federation": "demo",
            "store": "memory:",
            "regions": {"west": {"shared": "/s/west"}, "east": {"shared": "/s/east"}},
            "sites": {
                name: {"region": of, "command": ["a"], "partitions": ["p"]}
                | ({"login": logins[name]} if name in logins else {})
                for name, of in regions.items()
            },
            "storage": {
                "west": {"mounts": {"alpine": "/w"}},
                "east": {
                    "mounts": {"baker": "/e", "cedar": "/mnt/e"},
                    "keep_free_gib": 1,
                    "copy_mib_per_s": 0.5,
                    "copy_streams": 4,
                },
            },
        }
    )


class Rig:
    """A mover, and the catalogue that it reads."""

    def __init__(self, **logins: str) -> None:
        given = config(**(logins or {"alpine": "gate:2222"}))
        self.catalogue = Catalogue()
        self.catalogue.domains = {n: each.domain for n, each in given.storage.items()}
        self.able = {BAKER, CEDAR}
        self.read_objects = {CEDAR}
        reads = self.read_objects.__contains__
        self.mover = DataMover(given, self.catalogue, self.able.__contains__, reads)
        self.now_s = 1000.0

    def wants(self, name: str = "a", state: ReplicaState = ReplicaState.COPYING, **of: Any) -> None:
        fields: dict[str, Any] = {"by": "ada", "asked_at_s": 1.0} | of
        copy = DataCopy(**fields)
        replicas = (
            DataReplica(domain="west", path="sets/" + name),
            DataReplica(domain="east", path="copies/" + name, state=state, copy=copy),
        )
        self.keep(name, replicas)

    def keep(self, name: str, replicas: tuple[DataReplica, ...]) -> None:
        of = DataSet(
            name=name,
            version="1",
            owner="ada",
            tenant=TenantName("vision"),
            size_bytes=5,
            digest=DIGEST,
            replicas=replicas,
        )
        self.catalogue.apply(DataSetKept(at_s=1.0, kept=of))

    def orders(self) -> list[tuple[SiteName, CopyOrder]]:
        """Those of the next step."""
        self.now_s += STEP_S
        return list(self.mover.due(self.now_s))

    def tell(
        self, phase: CopyPhase, name: str = "a", site: SiteName = BAKER, detail: str = ""
    ) -> CopySeen | None:
        told = CopyStatus(
            name=name, version="1", domain="east", digest=DIGEST, phase=phase, detail=detail
        )
        return self.mover.taken(site, told, self.now_s)


def test_an_order_is_all_that_the_site_must_know() -> None:
    rig = Rig()
    rig.wants()
    ((site, order),) = rig.orders()
    assert site == BAKER
    assert order == CopyOrder(
        name="a",
        version="1",
        domain="east",
        user="ada",
        host="gate:2222",
        source="/w/sets/a",
        root="/e",
        path="copies/a",
        digest=DIGEST,
        size_bytes=5,
        keep_free_bytes=2**30,
        kib_per_s=512,
        streams=4,
    )


def test_an_object_store_is_read_by_the_site_itself() -> None:
    rig = Rig()
    stored = StorageDomain(mounts={}, rclone="s3:fed/")
    rig.catalogue.domains = {**rig.catalogue.domains, "west": stored}
    rig.wants()
    ((site, order),) = rig.orders()
    assert (site, order.host, order.source) == (CEDAR, "", "rclone:s3:fed/sets/a")
    rig.read_objects.clear()
    assert rig.orders() == []  # of an earlier release


def test_an_owner_logs_in_by_the_name_that_the_source_has_for_them() -> None:
    rig = Rig()
    rig.wants()
    sites = rig.mover.config.sites
    names = NamesConfig(users={"ada": "a.one"})
    there = sites[ALPINE].model_copy(update={"names": names})
    rig.mover.config = rig.mover.config.model_copy(update={"sites": sites | {ALPINE: there}})
    ((_, order),) = rig.orders()
    assert (order.user, order.host) == ("ada", "a.one@gate:2222")


def test_a_lost_replica_may_be_replaced_and_nothing_else() -> None:
    rig = Rig()
    rig.wants(state=ReplicaState.LOST)
    ((_, order),) = rig.orders()
    assert order.replace


def test_a_site_that_mounts_both_copies_without_ssh() -> None:
    rig = Rig()
    rig.catalogue.domains = {
        name: type(domain)(mounts={**domain.mounts, BAKER: f"/{name}"})
        for name, domain in rig.catalogue.domains.items()
    }
    rig.wants()
    ((_, order),) = rig.orders()
    assert (order.host, order.source) == ("", "/west/sets/a")


def test_nothing_is_ordered_where_nobody_can_log_in_or_no_site_copies() -> None:
    rig = Rig(baker="gate")
    rig.wants()
    assert rig.orders() == []
    rig = Rig()
    rig.wants()
    rig.able.clear()
    assert rig.orders() == []


def test_a_copy_is_ordered_again_until_it_is_there() -> None:
    rig = Rig()
    rig.wants()
    assert len(rig.orders()) == len(rig.orders()) == 1
    assert list(rig.mover.due(rig.now_s)) == []  # not twice within a step
    seen = rig.tell(CopyPhase.DONE)
    assert seen is not None
    assert (seen.phase, seen.digest) == (CopyPhase.DONE, DIGEST)
    rig.keep("a", (DataReplica(domain="east", path="copies/a"),))
    assert rig.orders() == []
    assert rig.mover.next_s() == 0.0


def test_the_site_that_has_a_part_of_it_goes_on_while_it_is_there() -> None:
    rig = Rig()
    rig.able.remove(BAKER)
    rig.wants()
    rig.orders()
    rig.able.add(BAKER)
    assert [site for site, _ in rig.orders()] == [CEDAR]
    rig.able.remove(CEDAR)
    assert [site for site, _ in rig.orders()] == [BAKER]


def test_so_many_go_to_one_domain_at_once_those_asked_for_first_before_others() -> None:
    rig = Rig()
    names = [f"s{k}" for k in range(AT_ONCE + 1)]
    for k, name in enumerate(names):
        rig.wants(name, asked_at_s=100.0 - k)
    assert [order.name for _, order in rig.orders()] == names[:0:-1]


def test_a_copy_that_failed_waits_longer_each_time_and_lets_others_go_first() -> None:
    rig = Rig()
    failed: dict[str, Any] = {"phase": CopyPhase.FAILED, "told_at_s": rig.now_s}
    rig.wants("a", tries=1, **failed)
    rig.wants("b", tries=3, **failed)
    assert rig.orders() == []
    rig.now_s += FIRST_RETRY_S
    assert [order.name for _, order in rig.orders()] == ["a"]
    rig.now_s += 4 * FIRST_RETRY_S
    assert [order.name for _, order in rig.orders()] == ["a", "b"]


def test_what_is_not_wanted_any_more_is_dropped_until_its_site_says_so() -> None:
    rig = Rig()
    rig.wants()
    rig.orders()
    rig.catalogue.apply(DataSetDropped(at_s=2.0, name="a", version="1"))
    assert [(site, order.drop) for site, order in rig.orders()] == [(BAKER, True)]
    assert [order.drop for _, order in rig.orders()] == [True]
    assert rig.tell(CopyPhase.DROPPED) is None
    assert rig.orders() == []


def test_only_the_site_that_was_given_an_order_tells_of_its_copy() -> None:
    rig = Rig()
    rig.wants()
    assert rig.tell(CopyPhase.DONE) is None  # nobody has ordered it yet
    rig.orders()
    assert rig.tell(CopyPhase.DONE, site=ALPINE) is None
    assert rig.tell(CopyPhase.DONE, name="b") is None
    assert rig.tell(CopyPhase.DONE) is not None
    assert rig.tell(CopyPhase.DONE) is None


def test_a_site_that_does_not_mount_the_domain_any_more_has_no_copy_there() -> None:
    rig = Rig()
    rig.wants()
    rig.orders()
    east = rig.catalogue.domains["east"]
    domains = {**rig.catalogue.domains, "east": replace(east, mounts={CEDAR: "/mnt/e"})}
    rig.catalogue.domains = domains
    assert rig.tell(CopyPhase.DONE) is None
    assert [site for site, _ in rig.orders()] == [CEDAR]


def test_an_order_that_fails_is_told_of_once_or_when_the_cause_changes() -> None:
    rig = Rig()
    rig.wants()
    rig.orders()
    with capture_logs() as logged:
        seen = rig.tell(CopyPhase.FAILED, detail="x" * 1000)
        assert seen is not None
        assert seen.detail == "x" * MOST_DETAIL
        for detail in ("x" * 1000, "other words"):
            assert rig.tell(CopyPhase.FAILED, detail=detail) is None
        assert [line["detail"] for line in logged] == [seen.detail]
        rig.now_s += SAID_ANEW_S
        assert rig.tell(CopyPhase.FAILED, detail="x" * 1000) is None
        assert rig.tell(CopyPhase.FAILED, detail="no space left") is not None
        rig.orders()  # it is tried again
        assert rig.tell(CopyPhase.FAILED, detail="no space left") is not None
    assert [line["event"] for line in logged] == ["data_not_copied"] * 3


def test_nothing_is_ordered_over_another_data_set() -> None:
    rig = Rig()
    rig.wants(state=ReplicaState.LOST)
    rig.keep("b", (DataReplica(domain="east", path="copies/a/part"),))
    assert rig.orders() == []


def test_a_removal_that_fails_is_not_ordered_for_ever() -> None:
    rig = Rig()
    rig.wants()
    rig.orders()
    rig.catalogue.apply(DataSetDropped(at_s=2.0, name="a", version="1"))
    assert len(rig.orders()) == 1
    rig.tell(CopyPhase.FAILED)
    assert rig.orders() == []
