"""Checkpoints are looked for where they were saved, and copied from region to region."""

from __future__ import annotations

from msgspec.structs import replace

from federator.daemon.checkpoint_mover import ANSWER_S, CheckpointMover
from federator.daemon.data_mover import MOST_DETAIL, STEP_S
from federator.model.dataset import CopyPhase, DataCopy, DataReplica, DataSet, ReplicaState
from federator.model.lifecycle import WorkloadState
from federator.model.message import CopySeen
from federator.model.workload import SiteName, TenantName, WorkloadId
from federator.sched.passes.checkpoint_moves import (
    CHECKPOINT,
    SEALED,
    CheckpointMove,
    CheckpointMoves,
)
from federator.sched.state.ledger import Ledger
from federator.sched.state.rules import Rules
from federator.wire.agent_protocol import CopyOrder, CopyStatus
from tests.unit.daemon.test_data_mover import ALPINE, BAKER, CEDAR, config

FOLDER = "ada/checkpoints/7"
PATH = f"{FOLDER}/ckpt-00000001-step-5"
DIGEST = SEALED + "0f" * 32
SEVEN = WorkloadId(7)
MOVED = DataSet(
    name=CHECKPOINT,
    version="7",
    owner="ada",
    tenant=TenantName("t"),
    size_bytes=100,
    digest=DIGEST,
    replicas=(
        DataReplica(domain="east", path=PATH, digest=DIGEST),
        DataReplica(
            domain="west",
            path=PATH,
            state=ReplicaState.COPYING,
            copy=DataCopy(by="", asked_at_s=1.0),
        ),
    ),
)


FOUND = CopyStatus(
    name=CHECKPOINT,
    version="7",
    domain="",
    digest=SEALED,
    phase=CopyPhase.FOUND,
    copied_bytes=100,
    detail="ckpt-00000001-step-5 " + DIGEST,
)


class Wishes(CheckpointMoves):
    """One workload that waits with a checkpoint in the east."""

    def __init__(self) -> None:
        super().__init__({}, Rules(), Ledger())
        self.move = CheckpointMove(
            workload=SEVEN,
            attempt=1,
            state=WorkloadState.PENDING,
            user="ada",
            saved_at=BAKER,
            since_s=0.0,
            look_s=0.0,
        )
        self.moved: DataSet | None = None

    def looks(self, now_s: float) -> list[CheckpointMove]:
        return [self.move] if self.move.look_s <= now_s else []

    def copies(self):  # type: ignore[no-untyped-def]
        if self.moved is not None:
            yield self.moved, self.moved.replicas[1]

    def find(self, name: str, version: str = "") -> DataSet | None:  # noqa: ARG002
        return self.moved


class Rig:
    def __init__(self) -> None:
        self.wishes = Wishes()
        self.able: set[SiteName] = {ALPINE, BAKER, CEDAR}
        given = config(baker="gate", cedar="gate2:2222")
        self.mover = CheckpointMover(given, self.wishes, self.is_able)
        self.now_s = 1000.0

    def is_able(self, site: SiteName, what: str) -> bool:
        assert what == "checkpoint"
        return site in self.able

    def due(self, after_s: float = STEP_S) -> list[tuple[SiteName, CopyOrder]]:
        self.now_s += after_s
        return list(self.mover.due(self.now_s))

    def tell(self, site: SiteName, answer: CopyStatus) -> CopySeen | None:
        return self.mover.taken(site, answer, self.now_s)


def test_a_site_of_its_region_is_asked_which_checkpoint_there_is() -> None:
    rig = Rig()
    ((site, order),) = rig.due()
    assert site == BAKER
    assert (order.root, order.path, order.digest) == ("/s/east", FOLDER, SEALED)
    assert (order.user, order.domain) == ("ada", "")


def test_a_site_that_does_not_answer_is_followed_by_another() -> None:
    rig = Rig()
    assert [site for site, _ in rig.due()] == [BAKER]
    assert rig.due() == []
    assert rig.mover.next_s() > rig.now_s
    assert [site for site, _ in rig.due(ANSWER_S)] == [CEDAR]


def test_nobody_is_asked_while_no_site_of_the_region_can_be() -> None:
    rig = Rig()
    rig.able = {ALPINE}
    assert rig.due() == []
    rig.able.add(CEDAR)
    assert [site for site, _ in rig.due()] == [CEDAR]


def test_an_answer_is_passed_on_as_it_is() -> None:
    rig = Rig()
    rig.due()
    seen = rig.tell(BAKER, FOUND)
    assert seen is not None
    assert (seen.phase, seen.copied_bytes, seen.detail) == (
        CopyPhase.FOUND,
        100,
        FOUND.detail,
    )


def test_a_copy_is_ordered_at_the_target_as_its_user_until_it_is_not_wanted() -> None:
    rig = Rig()
    rig.wishes.move.look_s = float("inf")
    rig.wishes.moved = MOVED
    ((site, order),) = rig.due()
    assert (site, order.user, order.root, order.path) == (ALPINE, "ada", "/s/west", PATH)
    assert (order.host, order.source) == ("gate", f"/s/east/{PATH}")
    assert (order.digest, order.size_bytes) == (DIGEST, 100)
    assert order.keep_free_bytes == 10 * 2**30
    rig.wishes.moved = None
    ((site, dropped),) = rig.due()
    assert (site, dropped) == (ALPINE, replace(order, drop=True))
    status = CopyStatus(
        name=CHECKPOINT, version="7", domain="west", digest=DIGEST, phase=CopyPhase.DROPPED
    )
    assert rig.tell(ALPINE, status) is None
    assert rig.due() == []


def test_a_look_failure_is_told_too() -> None:
    rig = Rig()
    rig.due()
    failed = CopyStatus(
        name=CHECKPOINT,
        version="7",
        domain="",
        digest=SEALED,
        phase=CopyPhase.FAILED,
        detail="it is writable to all",
    )
    seen = rig.tell(BAKER, failed)
    assert seen is not None
    assert seen.detail == "it is writable to all"


def test_only_sites_of_its_region_tell_what_its_folder_holds_and_only_if_asked() -> None:
    rig = Rig()
    assert rig.tell(BAKER, FOUND) is None  # nobody has asked yet
    rig.due()
    assert rig.tell(ALPINE, FOUND) is None  # it is of another region
    assert rig.tell(SiteName("taken-out"), FOUND) is None
    for version in ("8", "07", "x", "9" * 5000):
        assert rig.tell(BAKER, replace(FOUND, version=version)) is None
    seen = rig.tell(BAKER, replace(FOUND, detail="x" * 1000))
    assert seen is not None
    assert len(seen.detail) == MOST_DETAIL
    assert rig.tell(BAKER, FOUND) is None  # that was the answer


def test_an_asked_site_that_answers_late_is_heard_if_another_was_asked_since() -> None:
    rig = Rig()
    rig.due()
    assert [site for site, _ in rig.due(ANSWER_S)] == [CEDAR]
    assert rig.tell(BAKER, FOUND) is not None


def test_only_the_site_that_was_to_copy_says_that_it_has() -> None:
    rig = Rig()
    rig.wishes.move.look_s = float("inf")
    rig.wishes.moved = MOVED
    done = CopyStatus(
        name=CHECKPOINT, version="7", domain="west", digest=DIGEST, phase=CopyPhase.DONE
    )
    assert rig.tell(ALPINE, done) is None  # it was not ordered yet
    rig.due()
    assert rig.tell(CEDAR, done) is None
    assert rig.tell(ALPINE, replace(done, digest=SEALED + "ee" * 32)) is None
    assert rig.tell(ALPINE, done) is not None
