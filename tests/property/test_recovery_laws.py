"""However a log is lost, replaced or built anew, no id that was ever given out comes again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from federator.config import FederationConfig
from federator.daemon.effects import checkpoint_dir
from federator.daemon.own_config import new_federation
from federator.daemon.recover import rebuild
from federator.faults.world import config_of
from federator.model.event import encode_event
from federator.model.message import Record, SubmitAsked
from federator.model.workload import TERM_S, SiteName, WorkloadId
from federator.sched.passes.federation import Federation
from federator.sched.state.snapshot import taken
from federator.store.replaying import replay_log
from tests.fakes.build import draft, gang

BEGAN_S: Final = 1_795_000_000.0
SITE: Final = SiteName("alpine")

Term = tuple[str, int, tuple[int, ...], float]  # how the log came about, which copy, tasks, seconds


@dataclass
class Leader:
    """Daemons that lead one after the other; their log does not always survive."""

    config: FederationConfig
    now_s: float = BEGAN_S
    log: list[bytes] = field(default_factory=list)
    copies: list[list[bytes]] = field(default_factory=list)
    given: list[WorkloadId] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    keys: int = 0

    def lead(self, how: str, at: int, arrays: tuple[int, ...], lasts_s: float) -> None:
        """One term: begin from what is left of the log, and take arrays of so many tasks."""
        self.copies.append(self.log)
        federation = self._begun(how, self.copies[at % len(self.copies)])
        for tasks in arrays:
            self._submit(federation, tasks)
            self.now_s += lasts_s / len(arrays)
        if how == "compacted":
            self.log = [encode_event(e) for e in taken(federation.ledger, self.now_s)]

    def _begun(self, how: str, older: list[bytes]) -> Federation:
        if how == "lost":
            self.log = []
        elif how == "older copy":
            self.log = older
        elif how == "recovered":
            self.log = list(rebuild(self.config, [], {}, self.now_s, 0).records)
        elif how == "recovered from an older copy":
            self.log = list(rebuild(self.config, older, {}, self.now_s, 0).records)
        if how.startswith("recovered"):
            self.now_s += TERM_S  # it is a term of its own
        self.now_s += TERM_S  # no daemon starts sooner
        federation = new_federation(self.config)
        replay_log(federation, self.log)
        self._keep(federation.begin_epoch(self.now_s))
        return federation

    def _submit(self, federation: Federation, tasks: int) -> None:
        self.keys += 1
        wanted = replace(draft(gang(1), tenant="lab"), array_indices=tuple(range(tasks)))
        known = set(federation.ledger.entries)
        asked = SubmitAsked(client=1, key=f"bob:key-{self.keys:05d}", draft=wanted)
        self._keep(federation.handle(asked, self.now_s))
        for id_ in federation.ledger.entries.keys() - known:
            self.given.append(id_)
            workload = federation.ledger.entries[id_].workload
            self.folders.append(checkpoint_dir("/shared", workload))

    def _keep(self, commands: Sequence[object]) -> None:
        self.log = [*self.log, *(encode_event(c.event) for c in commands if isinstance(c, Record))]
        self.copies.append(self.log)


HOW: Final = (
    "whole",
    "compacted",
    "lost",
    "older copy",
    "recovered",
    "recovered from an older copy",
)
TERMS: Final = st.tuples(
    st.sampled_from(HOW),
    st.integers(0, 50),
    st.lists(st.sampled_from((0, 1, 3, 200)), min_size=1, max_size=4).map(tuple),
    st.floats(0.0, 100.0),
)


@settings(max_examples=60, deadline=None)
@given(history=st.lists(TERMS, min_size=2, max_size=5))
@example(history=[("whole", 0, (200,) * 4, 1.0), ("lost", 0, (200,), 1.0)])
@example(
    history=[
        ("whole", 0, (0,), 0.0),
        ("recovered from an older copy", 1, (0,), 0.0),
        ("lost", 0, (0,), 0.0),
    ]
)
@example(history=[("whole", 0, (3, 200), 9.0), ("recovered from an older copy", 2, (3,), 1.0)])
def test_no_id_and_no_checkpoint_folder_ever_comes_again(history: list[Term]) -> None:
    leader = Leader(config_of([SITE]))
    for how, at, arrays, lasts_s in history:
        leader.lead(how, at, arrays, lasts_s)
    assert len(set(leader.given)) == len(leader.given)
    assert len(set(leader.folders)) == len(leader.folders)


def test_an_array_as_large_as_may_be_queued_at_every_moment_uses_no_later_id() -> None:
    """Ten arrays of 10,000 tasks within a second: no daemon is that quick."""
    leader = Leader(config_of([SITE]))
    for how in ("whole", "recovered"):
        leader.lead(how, 0, (10_000,) * 10, 0.0)
    assert len(set(leader.given)) == 200_000


@pytest.mark.parametrize("how", HOW)
def test_ids_grow_from_term_to_term(how: str) -> None:
    leader = Leader(config_of([SITE]))
    leader.lead("whole", 0, (3,), 10.0)
    newest = max(leader.given)
    leader.lead(how, 1, (1,), 10.0)
    assert leader.given[-1] > newest
