"""Each turn does what is due, and the daemon wakes for what comes due later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from federator.daemon.admission import EVERY_S, AdmissionUpdates
from federator.daemon.checkpoint_cleanup import CheckpointCleanup
from federator.daemon.checkpoint_mover import CheckpointMover
from federator.daemon.data_mover import DataMover
from federator.daemon.data_remover import DataRemover
from federator.daemon.inbox import Inbox
from federator.daemon.interactive_jobs import InteractiveJobs, Unheard
from federator.daemon.output_mover import OutputMover
from federator.daemon.site_links import SiteLinks
from federator.daemon.turn_chores import ChoreSources, TurnChores
from federator.model.message import CancelAsked, DataTidied
from federator.model.tagged import Message
from federator.model.workload import SiteName, WorkloadId
from federator.sched.state.ledger import Ledger
from federator.wire.agent_protocol import Admission, Ping

SITE = SiteName("alpine")
CANCEL = CancelAsked(client=0, ids=(WorkloadId(2**32),), by="ada")


class Wakeful(Inbox):
    """Notes the wakes that are asked of it."""

    def __init__(self, wakes: list[float]) -> None:
        super().__init__(lambda: 0.0)
        self._asked = wakes

    def wake(self, at_s: float) -> None:
        self._asked.append(at_s)


class Stand:
    """A link, and sources of which each has one thing to do."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.told: list[Admission] = []
        self.wakes: list[float] = []
        self.by_site = {SITE: self}
        self.inbox = Wakeful(self.wakes)
        sources = ChoreSources(
            AdmissionUpdates(Ledger()),
            cast(InteractiveJobs, self),
            cast(CheckpointCleanup, self),
            cast(DataMover, self),
            cast(CheckpointMover, self),
            cast(OutputMover, self),
            cast(DataRemover, self),
        )
        self.chores = TurnChores(sources, cast(SiteLinks, self), self.inbox)

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def send_admission(self, news: Admission) -> None:
        self.told.append(news)

    def unheard(self, now_s: float) -> Unheard:
        return Unheard(cancels=(CANCEL,), look_at_s=now_s + 5.0)

    def due(self, _now_s: float) -> Iterator[tuple[SiteName, Message]]:
        yield SITE, Ping()

    def next_s(self) -> float:
        return 103.0

    def is_look_due(self, now_s: float) -> bool:
        return now_s > 101.0


def test_what_is_due_goes_to_its_site() -> None:
    stand = Stand()
    stand.chores.do(100.0)
    assert stand.sent == [Ping()] * 5  # of the clean-up, the movers, removals and outputs
    assert len(stand.told) == 1
    assert stand.inbox.take_all() == [CANCEL]


def test_the_daemon_wakes_for_the_rest_once() -> None:
    stand = Stand()
    stand.chores.do(100.0)
    assert stand.wakes == [105.0, 103.0, 103.0]  # sessions, copies, outputs
    stand.chores.do(101.0)  # figures were told a moment ago, and may change
    assert stand.wakes[3:] == [100.0 + EVERY_S, 106.0]


def test_the_core_is_had_look_what_is_to_be_removed() -> None:
    stand = Stand()
    stand.chores.do(102.0)
    assert stand.inbox.take_all() == [CANCEL, DataTidied()]
