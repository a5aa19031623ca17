"""A snapshot and what came after it tell all that the whole log tells, in every history."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from federator.errors import StoreError
from federator.model.event import (
    Forgotten,
    LogRecord,
    SnapshotWorkloads,
    decode_event,
    encode_event,
)
from federator.model.lifecycle import TERMINAL
from federator.model.message import Record
from federator.model.tenant import Tenancy
from federator.sched.state import snapshot
from federator.sched.state.ledger import Ledger
from federator.sched.state.snapshot import taken
from federator.sched.state.usage import DecayedAverage, UsageAverage, WindowAverage
from tests.fakes.ledger_dump import dump
from tests.fakes.loopback import Loopback
from tests.property.test_federation_laws import (
    CALM,
    FAULTS,
    Act,
    acts,
    fresh,
    play,
    stop_faults,
)

HISTORIES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
NAMES = (*CALM, *FAULTS, "forget", "compact", "compact")


def play_on(f: Loopback, history: Sequence[Act], compacts: bool) -> None:
    for name, x, y in history:
        if name == "forget":
            f.forget_ended(keep_s=float(x))
        elif name == "compact" and compacts:
            f.compact()
        elif name != "compact":
            play(f, [(name, x, y)])


def commands_of(f: Loopback) -> list[object]:
    """What it did; of the records only that they came, as encoded bytes."""
    return [encode_event(c.event) if isinstance(c, Record) else c for c in f.commands]


@HISTORIES
@given(acts(NAMES), acts(NAMES), st.booleans())
def test_a_daemon_that_started_from_a_snapshot_does_what_it_would_have_done_from_the_whole_log(
    before: list[Act], after: list[Act], evicting: bool
) -> None:
    told, compacted = fresh(evicting), fresh(evicting)
    for f, compacts in ((told, False), (compacted, True)):
        play_on(f, [*before, ("compact", 0, 0), ("restart", 0, 0), *after], compacts)
    assert dump(compacted.replayed()) == dump(told.replayed())
    for f in (told, compacted):
        stop_faults(f)
        f.run_until_all_end()
    assert commands_of(compacted) == commands_of(told)
    event("forgot" if any(isinstance(each, Forgotten) for each in told.log) else "forgot nothing")


def restored(
    f: Loopback, records: Sequence[LogRecord], usage: UsageAverage | None = None
) -> Ledger:
    ledger = Ledger(Tenancy(f.new_ledger().tenancy.tenants), usage)
    for record in records:
        ledger.apply(decode_event(encode_event(record)))
    return ledger


@HISTORIES
@given(acts(CALM + FAULTS), st.booleans(), st.booleans())
def test_a_snapshot_of_what_a_snapshot_told_is_the_same(
    history: list[Act], evicting: bool, decays: bool
) -> None:
    f = fresh(evicting)
    play(f, history)
    usage = [DecayedAverage(50.0) if decays else WindowAverage(50.0) for _ in range(2)]
    whole = restored(f, f.log, usage[0])
    first = list(taken(whole, f.clock.now_s))
    again = restored(f, first, usage[1])
    assert dump(again) == dump(whole)
    assert list(taken(again, f.clock.now_s)) == first


@HISTORIES
@given(acts(NAMES), st.booleans(), st.floats(0, 100))
def test_what_is_forgotten_has_ended_and_nobody_misses_it(
    history: list[Act], evicting: bool, keep_s: float
) -> None:
    f = fresh(evicting)
    play_on(f, history, compacts=False)
    now_s, known = f.clock.now_s, dict(f.federation.ledger.entries)
    f.forget_ended(keep_s)
    ledger = f.federation.ledger
    for id_ in known.keys() - ledger.entries.keys():
        assert known[id_].state in TERMINAL
        assert known[id_].over_at_s <= now_s - keep_s
        assert id_ not in ledger.keys.id_of.values()
    for tasks in ledger.array_tasks.values():
        assert ledger.entries.keys() >= set(tasks.values())
    stop_faults(f)
    f.run_until_all_end()


def test_tasks_of_an_array_share_their_submission_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot, "_TASKS", 2)  # so that it goes over several parts
    f = fresh(evicting=False)
    play(f, [("array", 3, 1)])
    f.compact()
    f.restart()
    workloads = [entry.workload for entry in f.federation.ledger.entries.values()]
    assert len(workloads) == 4
    assert len({id(w.submission) for w in workloads}) == 1
    assert len({id(w.jobs) for w in workloads}) == 1


def test_a_snapshot_that_is_cut_short_or_out_of_place_is_refused() -> None:
    f = fresh(evicting=False)
    play(f, [("submit", 1, 1), ("array", 2, 1), ("wait", 9, 0)])
    whole = f.log
    records = list(taken(f.federation.ledger, 0.0))
    for number in range(1, len(records)):
        with pytest.raises(StoreError, match="cut short"):
            restored(f, [*records[:number], whole[-1]])
    with pytest.raises(StoreError, match="beginning of a log"):
        restored(f, [whole[0], *records])
    with pytest.raises(StoreError, match="beginning of a log"):
        restored(f, records[1:])
    without = [r for r in records if not isinstance(r, SnapshotWorkloads)]
    with pytest.raises(StoreError, match="damaged"):
        restored(f, without)
    with pytest.raises(StoreError, match="damaged"):
        restored(f, [*records[:-1], replace_workloads(records[-1])])


def replace_workloads(done: LogRecord) -> LogRecord:
    decoded = decode_event(encode_event(done))
    fields = {name: getattr(decoded, name) for name in decoded.__struct_fields__}
    return type(decoded)(**{**fields, "workloads": 99})
