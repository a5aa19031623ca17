"""Every GPU-second is in one class: over any history, in any order, however often it is told."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from federator.usage.classes import (
    CLOCKS_DIFFER_MS,
    HELD,
    AttemptTimes,
    RecordFlag,
    TimeClass,
    amounts,
    milliseconds,
    split_all,
)
from federator.usage.days import (
    DAY_MS,
    HELD_AT,
    MEASURES,
    AttemptUse,
    Evictor,
    Sums,
    add_up,
    difference,
    gpus_by_type,
)
from federator.usage.supply import CellKey, Supplied, SupplyRow, free_time, supplied

T0_S = 1_760_000_000.0
_STATES = (
    "COMPLETED",
    "FAILED",
    "OUT_OF_MEMORY",
    "TIMEOUT",
    "CANCELLED",
    "NODE_FAIL",
    "PREEMPTED",
    "REQUEUED",
    "",
)
_TIMES = st.one_of(
    st.just(0.0),
    st.integers(0, 4 * 86_400_000).map(lambda ms: T0_S + ms / 1000.0),
)
_WILD = st.one_of(_TIMES, st.floats(-1e13, 1e13), st.sampled_from([float("nan"), float("inf")]))


@st.composite
def attempt_times(draw: st.DrawFn) -> AttemptTimes:
    """Any record, sound or not: clocks that step, ends before starts, times that are missing."""
    times = _WILD if draw(st.integers(0, 9)) == 0 else _TIMES
    return AttemptTimes(
        attempt=draw(st.integers(1, 5)),
        awarded_at_s=draw(times),
        started_at_s=draw(times),
        ended_at_s=draw(times),
        known_at_s=draw(times),
        state=draw(st.sampled_from(_STATES)),
        evicted=draw(st.booleans()),
        told_at_s=draw(times),
        saved_at_s=draw(times),
        ready_s=draw(st.one_of(st.none(), st.floats(0, 1e5))),
        save_s=draw(st.one_of(st.none(), st.floats(0, 1e5))),
    )


@st.composite
def attempt_uses(draw: st.DrawFn) -> AttemptUse:
    gpus = draw(st.integers(0, 64))
    return AttemptUse(
        times=draw(attempt_times()),
        site=draw(st.sampled_from(["alpine", "birch"])),
        gpus=gpus,
        gpu_types=draw(st.sampled_from(["", f"a100={gpus}", "a100=2,h100=3", "h100=999", "x"])),
        cpus=draw(st.integers(0, 64)),
        mem_mib=draw(st.integers(0, 10**6)),
        tenant=draw(st.sampled_from(["vision", "nlp"])),
        over_quota=draw(st.booleans()),
        evictor=draw(st.sampled_from([Evictor(), Evictor("bio", "bo", "", "train-#")])),
        busy_frac=draw(st.one_of(st.none(), st.floats(-1, 2))),
    )


_WORKLOADS = st.lists(st.lists(attempt_uses(), min_size=1, max_size=6), max_size=5)


def total(sums: Sums, *names: str) -> int:
    at = [MEASURES.index(name) for name in names]
    return sum(values[k] for values in sums.values() for k in at)


def summed(workloads: list[list[AttemptUse]], *window: int) -> Sums:
    sums: Sums = {}
    for uses in workloads:
        add_up(sums, uses, *window)
    return sums


@given(st.lists(attempt_times(), max_size=6))
def test_the_spans_of_a_workload_follow_each_other_and_none_lies_in_two_classes(
    attempts: list[AttemptTimes],
) -> None:
    held_until_ms = 0
    for found in split_all(attempts):
        for before, after in pairwise(found.spans):
            assert before.end_ms <= after.start_ms
        for span in found.spans:
            assert span.start_ms < span.end_ms
            assert 0 <= span.save_ms <= span.end_ms - span.start_ms
            if span.kind in HELD:
                assert span.start_ms >= held_until_ms, "a workload runs once at a time"
                held_until_ms = span.end_ms


@given(attempt_times())
def test_the_classes_of_a_sound_attempt_sum_to_its_elapsed_time(times: AttemptTimes) -> None:
    start_ms, end_ms = milliseconds(times.started_at_s), milliseconds(times.ended_at_s)
    (found,) = split_all([times])
    if RecordFlag.CLOCK in found.flags:
        return
    held = amounts(found.spans, 0, 1 << 62)
    held.pop(TimeClass.LAUNCHING, None)
    assert sum(held.values()) == (end_ms - start_ms if start_ms else 0)


@given(attempt_times())
def test_a_clock_that_steps_is_flagged_and_never_counts_backwards(times: AttemptTimes) -> None:
    start_ms, end_ms = milliseconds(times.started_at_s), milliseconds(times.ended_at_s)
    known_ms = milliseconds(times.known_at_s)
    (found,) = split_all([times])
    assert all(ms >= 0 for ms in amounts(found.spans, 0, 1 << 62).values())
    late = known_ms and end_ms > known_ms + CLOCKS_DIFFER_MS
    early = start_ms and start_ms < milliseconds(times.awarded_at_s) - CLOCKS_DIFFER_MS
    if late or early or (start_ms and end_ms < start_ms):
        assert RecordFlag.CLOCK in found.flags


@given(attempt_times())
def test_nothing_counts_from_before_its_award_nor_once_it_was_known_to_be_over(
    times: AttemptTimes,
) -> None:
    (found,) = split_all([times])
    for span in found.spans:
        assert span.start_ms >= milliseconds(times.awarded_at_s) - CLOCKS_DIFFER_MS
        if times.known_at_s > 0 and milliseconds(times.known_at_s):
            assert span.end_ms <= milliseconds(times.known_at_s) + CLOCKS_DIFFER_MS


@given(_WORKLOADS, st.randoms(use_true_random=False))
def test_order_and_repetition_of_records_change_no_sum(
    workloads: list[list[AttemptUse]], chance: random.Random
) -> None:
    told = [list({use.times.attempt: use for use in uses}.values()) for uses in workloads]
    again = [uses + chance.sample(uses, chance.randint(0, len(uses))) for uses in told]
    for uses in again:
        chance.shuffle(uses)
    chance.shuffle(again)
    assert summed(again) == summed(told)


@given(_WORKLOADS, st.lists(st.integers(0, 5 * DAY_MS), max_size=3))
def test_windows_that_follow_each_other_sum_to_the_whole(
    workloads: list[list[AttemptUse]], cuts: list[int]
) -> None:
    edges = [0, *sorted(int(T0_S * 1000) - DAY_MS + cut for cut in cuts), 1 << 62]
    parts: dict[str, int] = {}
    for a, b in pairwise(edges):
        found = summed(workloads, a, b)
        for name in MEASURES:
            parts[name] = parts.get(name, 0) + total(found, name)
    whole = summed(workloads)
    rounded = {"mem_mib_s": len(edges) * 30, "busy_gpu_ms": len(edges) * 90}
    for name, value in parts.items():
        assert abs(value - total(whole, name)) <= rounded.get(name, 0), name


@given(_WORKLOADS, _WORKLOADS)
def test_taking_off_the_old_and_adding_the_new_is_as_counting_anew(
    before: list[list[AttemptUse]], after: list[list[AttemptUse]]
) -> None:
    kept = summed(before)
    for key, values in difference(summed(after), summed(before)).items():
        mine = kept.setdefault(key, [0] * len(MEASURES))
        for k, value in enumerate(values):
            mine[k] += value
    plain = {key: values for key, values in kept.items() if any(values)}
    assert plain == {key: values for key, values in summed(after).items() if any(values)}


@given(_WORKLOADS)
def test_tax_paid_is_tax_caused_and_is_for_nothing(workloads: list[list[AttemptUse]]) -> None:
    sums = summed(workloads)
    paid = total(sums, "tax_paid_gpu_ms")
    assert paid == total(sums, "tax_caused_gpu_ms")
    lost = total(sums, "lost_preemption_gpu_ms", "save_gpu_ms")
    assert paid <= lost


@given(_WORKLOADS, st.lists(st.tuples(st.integers(0, 4 * DAY_MS), st.integers(0, 80)), max_size=5))
def test_classes_sum_to_the_supply_exactly_once(
    workloads: list[list[AttemptUse]], rows: list[tuple[int, int]]
) -> None:
    """Of each site, GPU type and day; what attempts hold beyond the supply is told, not hidden."""
    start_ms, end_ms = int(T0_S * 1000), int(T0_S * 1000) + 4 * DAY_MS
    sums = summed(workloads, start_ms, end_ms)
    supply = [
        SupplyRow("alpine", "a100", T0_S + at_ms / 1000, n % 2, 1, n, 1, 1, n // 5, n // 3, n // 2)
        for at_ms, n in rows
    ]
    there = supplied(supply, start_ms, end_ms)
    cells = set(there) | {CellKey(k.day, k.site, k.gpu_type) for k in sums}
    for cell in cells:
        of_cell = [v for k, v in sums.items() if (k.day, k.site, k.gpu_type) == cell]
        held = sum(values[k] for values in of_cell for k in HELD_AT)
        launching = sum(v[MEASURES.index("launching_gpu_ms")] for v in of_cell)
        has = there.get(cell, Supplied())
        free = free_time(has, held, launching)
        assert min(free.by_class.values()) >= 0
        assert held + sum(free.by_class.values()) - free.beyond_gpu_ms == has.gpu_ms
        assert not (free.beyond_gpu_ms and any(free.by_class.values()))


@given(st.integers(0, 100), st.text("a1=,h0", max_size=12))
def test_gpus_by_type_sum_to_the_gpus(gpus: int, types: str) -> None:
    assert sum(gpus_by_type(gpus, types).values()) == gpus


@given(attempt_uses())
def test_what_is_held_does_not_depend_on_what_became_of_it(use: AttemptUse) -> None:
    def held(times: AttemptTimes) -> int:
        sums: Sums = {}
        add_up(sums, [replace(use, times=times)])
        return sum(values[k] for values in sums.values() for k in HELD_AT)

    plain = replace(use.times, state="", told_at_s=0.0, saved_at_s=0.0, ready_s=None)
    assert held(use.times) == held(plain)
