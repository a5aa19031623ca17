"""The sums of usage that the history keeps, on each database that it can be kept in."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from math import inf
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine, event, select, text
from structlog.testing import capture_logs

from federator.errors import InvalidRequest
from federator.history import measured, retention, schema, supply
from federator.history.database import put_rows, transaction
from federator.history.follower import HistoryFollower
from federator.history.usage_query import UsageQuestion, find, question_of
from federator.history.usage_sums import MOST_SUM, count_some, counted_anew, uses_of
from federator.model.event import Awarded, LogRecord, encode_event
from federator.model.lifecycle import WorkloadEvent
from federator.model.prices import PriceList, PriceRule, Rates
from federator.model.reason import Reason, ReasonCode
from federator.model.site import Leave, NodeShare
from federator.model.viewer import Viewer
from federator.model.workload import FIRST_WORKLOAD_ID, WorkloadId
from federator.store.memory import MemoryStore
from federator.usage.days import DAY_MS, MEASURES, Key, Sums, add_up
from federator.usage.report import Quota, day_word, report, with_prices
from federator.usage.rows import UsageReport, UsageRow
from federator.usage.supply import SupplyRow
from federator.wire.accounting_rows import MeasuredUse
from federator.wire.usage_messages import UsageCall
from tests.contract.history_log import (
    T0_S,
    Log,
    awarded,
    brought_up_to_date,
    changed,
    contents,
    follow,
    life,
    reader,
    submitted,
    writer,
)
from tests.fakes.long_log import long_log

_H = WorkloadEvent
DAY = int(T0_S * 1000) // DAY_MS
_WAITING = text(
    "SELECT count(*) FROM pg_locks WHERE NOT granted"
    " AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())"
)
H32_MS = 32 * 1000  # GPU-milliseconds of a second of one attempt


def kept(url: str) -> Sums:
    """The sums by day as they are kept."""
    with reader(url).connect() as connection:
        rows = connection.execute(select(schema.usage_days)).all()
    width = len(Key._fields)
    return {Key(*row[:width]): list(row[width:]) for row in rows if any(row[width:])}


def made_anew(url: str) -> Sums:
    """The same, added up from all attempts."""
    sums: Sums = {}
    with reader(url).connect() as connection:
        ids = connection.execute(select(schema.attempts.c.id).distinct()).scalars().all()
        for uses in uses_of(connection, ids).values():
            add_up(sums, uses)
    return {key: values for key, values in sums.items() if any(values)}


def asked(url: str, *by: str, days: int = 1, prices: PriceList | None = None, **more: Any) -> Any:
    """A report of these days."""
    quotas = more.pop("quotas", ())
    question = UsageQuestion(first_day=DAY, end_day=DAY + days, columns=with_prices(by), **more)
    found = find(reader(url), question)
    return report(found, by, prices or PriceList(), quotas, shows_supply="viewer" not in more)


def by_key(found: UsageReport) -> dict[str, UsageRow]:
    return {"/".join(row.key): row for row in found.rows}


def plain(row: UsageRow) -> dict[str, int]:
    return {name: value for name, value in row.sums.items() if value}


def evicted(number: int, winner: int, saved_at_s: float = 0.0) -> list[LogRecord]:
    """An attempt that ran 60 s and left for another; told after 40 s."""
    told = Leave(told_at_s=T0_S + 60, saved_at_s=saved_at_s)
    victims = (WorkloadId(FIRST_WORKLOAD_ID + number),)
    for_it = msgspec.structs.replace(awarded(winner, at_s=T0_S + 59), victims=victims)
    return [
        submitted(winner, T0_S, "wim"),
        *life(number)[:4],
        for_it,
        changed(number, _H.EVICTED, T0_S + 60),
        changed(number, _H.PREEMPTED, T0_S + 81, ended_at_s=T0_S + 80, leave=told),
    ]


def test_the_sums_are_those_of_the_attempts_whatever_the_log_told(url: str) -> None:
    store = MemoryStore()
    store.lead(0)
    store.append([encode_event(each) for each in long_log(1_000)])
    brought_up_to_date(HistoryFollower(store, writer(url)))
    assert kept(url) == made_anew(url)
    assert sum(values[MEASURES.index("attempts")] for values in kept(url).values()) > 500


def test_an_attempt_that_ran_is_held_time_of_its_owner(log: Log, url: str) -> None:
    log.write(*life(1))
    follow(log, url)
    (row,) = asked(url, "tenant", "user", "family", "gpu_type").rows
    assert row.key == ("vision", "ada", "train", "a100")
    assert plain(row) == {
        "unknown_gpu_ms": 60 * H32_MS,
        "launching_gpu_ms": 10 * H32_MS,
        "cpu_ms": 60 * 64 * 1000,
        "mem_mib_s": 60 * 256_000,
        "over_gpu_ms": 60 * H32_MS,
        "attempts": 1,
    }


def test_who_is_evicted_pays_and_whom_it_was_for_has_caused_it(log: Log, url: str) -> None:
    log.write(*evicted(1, 2, saved_at_s=T0_S + 70))
    follow(log, url)
    rows = by_key(asked(url, "user"))
    assert plain(rows["ada"]) == {
        "unknown_gpu_ms": 40 * H32_MS,
        "save_gpu_ms": 10 * H32_MS,
        "lost_preemption_gpu_ms": 10 * H32_MS,
        "launching_gpu_ms": 10 * H32_MS,
        "cpu_ms": 60 * 64 * 1000,
        "mem_mib_s": 60 * 256_000,
        "over_gpu_ms": 60 * H32_MS,
        "tax_paid_gpu_ms": 20 * H32_MS,
        "attempts": 1,
    }
    assert rows["wim"].sums["tax_caused_gpu_ms"] == 20 * H32_MS
    tax = log.ledger.tax.by_victim
    assert sum(tax.values()) == 20 * 32, "as the ledger has it"


def test_one_that_never_saved_has_lost_all(log: Log, url: str) -> None:
    log.write(*evicted(1, 2))
    follow(log, url)
    row = by_key(asked(url, "user"))["ada"]
    assert row.sums["lost_preemption_gpu_ms"] == 60 * H32_MS
    assert sum(log.ledger.tax.by_victim.values()) * 1000 == row.sums["tax_paid_gpu_ms"]


def test_what_runs_counts_up_to_what_the_history_knows(log: Log, url: str) -> None:
    log.write(*life(1)[:4], submitted(9, T0_S + 100))
    follow(log, url)
    (row,) = asked(url, "user").rows
    assert row.held_gpu_ms == 80 * H32_MS
    log.write(changed(1, _H.COMPLETED, T0_S + 131, ended_at_s=T0_S + 130))
    follow(log, url)
    (row,) = asked(url, "user").rows
    assert row.held_gpu_ms == 110 * H32_MS
    assert row.sums["attempts"] == 1


def test_what_waits_is_not_read_for_a_report(log: Log, url: str) -> None:
    """However long the queue is: a row that nobody could decode is not even looked at."""
    log.write(*life(1)[:4], submitted(8, T0_S + 50, "bob"), submitted(9, T0_S + 100))
    follow(log, url)
    live, waits = schema.live, int(FIRST_WORKLOAD_ID) + 8
    with writer(url).begin() as connection:
        change = live.update().where(live.c.id == waits).values(row=b"\xc1" + b"x" * 300)
        assert connection.execute(change).rowcount == 1
    (row,) = asked(url, "user").rows
    assert (row.key, row.held_gpu_ms) == (("ada",), 80 * H32_MS)


def test_a_running_attempt_s_start_to_come_is_launching_until_now(log: Log, url: str) -> None:
    to_come = changed(1, _H.STARTED, T0_S + 21, started_at_s=T0_S + 5000)
    log.write(*life(1)[:3], to_come, submitted(9, T0_S + 100))
    follow(log, url)
    (row,) = asked(url, "user").rows
    assert plain(row) == plain(row) | {"launching_gpu_ms": 90 * H32_MS}
    assert row.held_gpu_ms == 0


def test_an_adopted_attempt_s_start_is_believed(log: Log, url: str) -> None:
    """Its award in the log is when the daemon adopted it."""
    found = msgspec.structs.replace(awarded(1, at_s=T0_S + 5000), adopted=True)
    log.write(submitted(1, T0_S), found)
    log.write(changed(1, _H.ACCEPTED, T0_S + 5000, site_job_id=701))
    began = changed(1, _H.STARTED, T0_S + 5000, started_at_s=T0_S + 20)
    log.write(began, changed(1, _H.COMPLETED, T0_S + 5081, ended_at_s=T0_S + 5080))
    follow(log, url)
    (row,) = asked(url, "user").rows
    assert row.held_gpu_ms == 5060 * H32_MS
    assert row.sums["clock_flags"] == 0


def test_an_attempt_that_ends_while_a_report_reads_counts_once(log: Log, url: str) -> None:
    log.write(*life(1)[:4], submitted(9, T0_S + 100))
    follow(log, url)
    over = [changed(1, _H.COMPLETED, T0_S + 131, ended_at_s=T0_S + 130)]
    engine = reader(url)

    def ends(*of: Any) -> None:
        if over and "FROM attempts LEFT OUTER JOIN measured" in of[2]:
            log.write(over.pop())
            follow(log, url)

    event.listen(engine, "after_cursor_execute", ends)
    question = UsageQuestion(first_day=DAY, end_day=DAY + 1, columns=with_prices(("user",)))
    (values,) = find(engine, question).sums.values()
    assert not over
    assert values[MEASURES.index("unknown_gpu_ms")] == 80 * H32_MS


def test_what_a_node_measured_is_added_once_however_often_it_is_told(log: Log, url: str) -> None:
    log.write(*life(1))
    follow(log, url)
    due = measured.due(writer(url), ["alpine"], T0_S + 1000, 10)
    use = MeasuredUse(gpu_util_frac=0.5, ready_s=15.0, save_s=5.0)
    for _ in range(2):
        measured.put(writer(url), due, [use], T0_S + 1000)
        (row,) = asked(url, "user").rows
        assert row.sums["busy_gpu_ms"] == 30 * H32_MS
        assert (row.sums["start_up_gpu_ms"], row.sums["save_gpu_ms"]) == (15 * H32_MS, 5 * H32_MS)
        assert row.sums["productive_gpu_ms"] == 40 * H32_MS
        assert (row.compute_frac, row.productive_frac) == (0.5, 40 / 60)
    assert kept(url) == made_anew(url)


def test_two_writers_of_one_workload_do_not_undo_each_other(log: Log, url: str) -> None:
    """The second has come as far as the first's lock when that one is done."""
    log.write(*life(1))
    follow(log, url)
    due = measured.due(writer(url), ["alpine"], T0_S + 1000, 10)
    first, second, waits = writer(url), writer(url), threading.Event()
    event.listen(second, "before_cursor_execute", lambda *_: waits.set())
    event.listen(second, "begin", lambda *_: waits.set())
    half, whole = MeasuredUse(gpu_util_frac=0.5, ready_s=5.0), MeasuredUse(gpu_util_frac=1.0)
    id_ = int(due[0].job.attempt.workload)
    row = {"id": id_, "attempt": 1, **msgspec.structs.asdict(half)}
    other = threading.Thread(target=measured.put, args=(second, due, [whole], T0_S + 1000))
    with transaction(first) as connection:
        with counted_anew(connection, {id_}):
            put_rows(connection, schema.measured, iter([row]), replace=True)
        other.start()
        waits.wait(10)
        if first.dialect.name == "postgresql":
            with first.connect() as watch:
                while not watch.execute(_WAITING).scalar_one():
                    watch.rollback()
    other.join()
    assert kept(url) == made_anew(url)
    (found,) = asked(url, "user").rows
    assert found.sums["busy_gpu_ms"] == 60 * H32_MS


def test_what_no_site_can_have_stops_no_others_history(log: Log, url: str) -> None:
    """Amounts beyond all numbers, and words that no index takes, of a log from before they ended
    at the daemon; the others' attempts count."""
    names = random.Random(7).choices("abcdefghijklmnopqrstuvwxyzäöü€", k=6_000)  # do not compress
    long = "".join(names)
    for number, wrong in enumerate(
        (
            {"nodes": {"a1": NodeShare(gpus=8, cpus=16, mem_mib=2**58)}},
            {"nodes": {"a1": NodeShare(gpus=2**53, cpus=2**62, mem_mib=2**62)}},
            {"gpu_types": {long: 32}, "partition": long},
            {"gpu_types": {"x,y=" + 5_000 * "9": 32}},
        )
    ):
        submit, award, *rest = life(number)
        assert isinstance(award, Awarded)
        plan = replace(award.jobs[0], **wrong)  # type: ignore[arg-type]
        log.write(submit, msgspec.structs.replace(award, jobs=(plan,)), *rest)
    log.write(*life(9, user="bob"))
    follow(log, url)
    due = measured.due(writer(url), ["alpine"], T0_S + 1000, 10)
    uses = [MeasuredUse(alloc_cpus=inf, alloc_mem_mib=1e300)] * 3
    uses += [MeasuredUse(alloc_cpus=-inf, ready_s=-inf, save_s=inf), MeasuredUse()]
    measured.put(writer(url), due, uses, T0_S + 1000)
    assert kept(url) == made_anew(url)
    assert by_key(asked(url, "user"))["bob"].held_gpu_ms == 60 * H32_MS


def test_a_sum_that_no_number_holds_stays_at_the_greatest(log: Log, url: str) -> None:
    log.write(*life(1))
    follow(log, url)
    with writer(url).begin() as connection:
        connection.execute(schema.usage_days.update().values(cpu_ms=2**63 - 1))
    log.write(*life(2))
    follow(log, url)
    assert asked(url, "user").total.sums["cpu_ms"] == MOST_SUM


def test_a_report_of_more_sums_than_are_made_is_refused_with_what_to_ask(
    log: Log, url: str
) -> None:
    log.write(*(each for k in range(4) for each in life(k, user=f"user{k}")))
    follow(log, url)
    question = UsageQuestion(first_day=DAY, end_day=DAY + 1, columns=with_prices(("user",)))
    assert len(find(reader(url), question, 4).sums) == 4
    with pytest.raises(InvalidRequest, match="more than 3 sums; ask for fewer days"):
        find(reader(url), question, 3)


def test_cpus_and_memory_are_those_that_slurm_gave_where_its_site_tells(log: Log, url: str) -> None:
    log.write(*life(1))
    follow(log, url)
    due = measured.due(writer(url), ["alpine"], T0_S + 1000, 10)
    use = MeasuredUse(cpu_s=1.0, alloc_cpus=80.0, alloc_mem_mib=300_000.0)
    measured.put(writer(url), due, [use], T0_S + 1000)
    (row,) = asked(url, "user").rows
    assert row.sums["cpu_ms"] == 60 * 80 * 1000
    assert row.sums["mem_mib_s"] == 60 * 300_000


def _as_before_there_were_sums(engine: Engine) -> None:
    fresh = [c.name for c in schema.attempts.columns if c.server_default is not None]
    with engine.begin() as connection:
        for index in ("attempts_by_end", "attempts_uncounted"):
            connection.execute(text(f"DROP INDEX {index}"))
        for name in fresh:
            connection.execute(text(f'ALTER TABLE attempts DROP COLUMN "{name}"'))
        for name in ("ready_s", "save_s"):
            connection.execute(text(f"ALTER TABLE measured DROP COLUMN {name}"))
        for name in ("usage_days", "supply"):
            connection.execute(text(f"DROP TABLE {name}"))
        connection.execute(schema.history_version.update().values(version=3))


def test_a_history_from_before_there_were_sums_gets_them(log: Log, url: str) -> None:
    """In steps; what the log tells meanwhile is counted at once, and nothing twice."""
    log.write(*life(1), *life(2, T0_S + 90_000, user="bob"))
    follow(log, url)
    before = kept(url)
    _as_before_there_were_sums(writer(url))
    log.write(*life(3, T0_S + 200, user="eve"))
    follow(log, url)
    found = asked(url, "user", days=3)
    assert (found.uncounted, list(by_key(found))) == (2, ["eve"])
    engine = writer(url)
    while count_some(engine):
        pass
    assert not count_some(engine)
    over = MEASURES.index("over_gpu_ms")  # it is not known any more how they were awarded
    for values in before.values():
        values[over] = 0
    assert {key: v for key, v in kept(url).items() if key.user != "eve"} == before
    assert kept(url) == made_anew(url)
    assert asked(url, "user", days=3).uncounted == 0


def test_the_same_records_told_again_change_nothing(log: Log, url: str) -> None:
    """The place in the log is lost: all of it is read once more."""
    log.write(*evicted(1, 2, saved_at_s=T0_S + 70), *life(3))
    follow(log, url)
    before = contents(url)["usage_days"]
    with writer(url).begin() as connection:
        connection.execute(schema.log_place.delete())
    follow(log, url)
    assert contents(url)["usage_days"] == before


@pytest.mark.parametrize(
    ("viewer", "seen"),
    [
        (Viewer(user="ada"), {"ada"}),
        (Viewer(user="zed", tenants=frozenset({"vision"})), {"ada", "bob"}),
        (Viewer(user="zed", tenants=frozenset({"nlp"})), set()),
        (Viewer(user=""), set()),
    ],
)
def test_a_member_sees_no_others_and_no_supply(
    log: Log, url: str, viewer: Viewer, seen: set[str]
) -> None:
    log.write(*life(1), *life(2, user="bob")[:4], submitted(9, T0_S + 100))
    follow(log, url)
    supply.SupplyWriter(writer(url)).note(
        [SupplyRow("alpine", "a100", 0.0, 1, 8, 64, 512, 9)], T0_S
    )
    found = asked(url, "user", viewer=viewer)
    assert set(by_key(found)) == seen
    assert (found.total.supply_gpu_ms, found.total.free) == (0, {})
    held = sum(row.held_gpu_ms for row in found.rows)
    assert found.total.held_gpu_ms == held


def test_what_nobody_held_is_told_by_class_and_all_sums_to_the_supply(log: Log, url: str) -> None:
    log.write(*life(1), submitted(9, T0_S + 1000))
    follow(log, url)
    a100 = SupplyRow("alpine", "a100", 0.0, 1, 8, 64, 512, 9)
    notes = supply.SupplyWriter(writer(url))
    for at_s, row in (
        (T0_S, a100),
        (T0_S + 60, a100),  # nothing new
        (T0_S + 500, a100._replace(gpus_down=8, gpus_drained=4)),
        (T0_S + 900, a100._replace(heard=0)),
    ):
        notes.note([row], at_s)
    with reader(url).connect() as connection:
        assert len(connection.execute(select(schema.supply)).all()) == 3
    (row,) = asked(url, "site", "gpu_type").rows
    assert row.supply_gpu_ms == 64 * 1_000_000
    assert row.free == {
        "launching": 10 * H32_MS,
        "local": 0,
        "drained": 4 * 400_000,
        "down": 8 * 400_000,
        "unreachable": 64 * 100_000,
        "idle": 64 * 1_000_000 - 70 * H32_MS - 12 * 400_000 - 64 * 100_000,
    }
    assert row.held_gpu_ms + sum(row.free.values()) - row.beyond_gpu_ms == row.supply_gpu_ms


def test_a_site_that_is_gone_supplies_nothing_any_more(url: str) -> None:
    engine = writer(url)
    with engine.begin() as connection:
        schema.prepare(connection)
    row = SupplyRow("alpine", "a100", 0.0, 1, 8, 64, 512, 9)
    notes = supply.SupplyWriter(engine)
    notes.note([row, row._replace(site="birch")], T0_S)
    notes.note([row], T0_S + 100)
    notes.note([row], T0_S + 160)
    with engine.connect() as connection:
        last = {each.site: each for each in supply.latest(connection)}
    assert (last["birch"].since_s, last["birch"].gpus) == (T0_S + 100, 0)
    assert (last["alpine"].since_s, last["alpine"].gpus) == (T0_S, 64)


def test_supply_that_has_not_changed_asks_the_database_for_nothing(url: str) -> None:
    """Once an hour it looks whether another has written meanwhile."""
    engine, row = writer(url), SupplyRow("alpine", "a100", 0.0, 1, 8, 64, 512, 9)
    with engine.begin() as connection:
        schema.prepare(connection)
    notes, asked_for = supply.SupplyWriter(engine), list[str]()
    notes.note([row], T0_S)
    event.listen(engine, "before_cursor_execute", lambda *of: asked_for.append(of[2]))
    notes.note([row], T0_S + 60)
    assert asked_for == []
    with engine.begin() as connection:
        connection.execute(schema.supply.delete())
    notes.note([row], T0_S + 3600)
    with engine.connect() as connection:
        assert supply.latest(connection) == [row._replace(since_s=T0_S + 3600)]


def test_prices_and_quotas_make_costs_and_what_is_lent(log: Log, url: str) -> None:
    log.write(*life(1), submitted(9, T0_S + 1000))
    follow(log, url)
    supply.SupplyWriter(writer(url)).note(
        [SupplyRow("alpine", "a100", 0.0, 1, 8, 64, 512, 9)], T0_S
    )
    prices = PriceList([PriceRule(gpu_type="a100", rates=Rates(gpu_h=2.0, cpu_h=0.25))], "EUR")
    quotas = [Quota("nlp", 64.0, frozenset({"nlp"})), Quota("bio", 64.0, frozenset({"bio"}))]
    found = asked(url, "tenant", prices=prices, quotas=quotas)
    rows = by_key(found)
    assert found.currency == "EUR"
    assert rows["vision"].cost == pytest.approx(60 * (32 * 2.0 + 64 * 0.25) / 3600)
    assert rows["nlp"].lent_gpu_ms == rows["bio"].lent_gpu_ms == 30 * H32_MS
    (row,) = asked(url, "site", prices=prices).rows
    assert row.idle_cost == pytest.approx((64 * 1000 - 32 * 70) * 2.0 / 3600)


def test_sums_of_days_that_are_over_for_long_are_deleted_with_their_workloads(
    log: Log, url: str
) -> None:
    log.write(*life(1), *life(2, T0_S + 5 * 86_400))
    follow(log, url)
    row = SupplyRow("alpine", "a100", 0.0, 1, 8, 64, 512, 9)
    for at_s in (T0_S - 86_400, T0_S, T0_S + 5 * 86_400):
        supply.SupplyWriter(writer(url)).note([row._replace(gpus=int(at_s) % 97)], at_s)
    retention.delete_some(writer(url), T0_S + 2 * 86_400)
    assert {key.day for key in kept(url)} == {DAY + 5}
    with reader(url).connect() as connection:
        since = connection.execute(select(schema.supply.c.since_s)).scalars().all()
    assert sorted(since) == [T0_S, T0_S + 5 * 86_400], "the last of before says what there was"


def test_a_question_is_about_whole_days() -> None:
    question = question_of(UsageCall(start_s=86_400.0 + 5, end_s=3 * 86_400.0), None)
    assert (question.first_day, question.end_day) == (1, 3)
    now = question_of(UsageCall(start_s=86_400.0, end_s=86_400.0), None)
    assert (now.first_day, now.end_day) == (1, 2)
    with pytest.raises(InvalidRequest, match="after end"):
        question_of(UsageCall(start_s=2.0, end_s=1.0), None)
    with pytest.raises(InvalidRequest, match="column"):
        question_of(UsageCall(start_s=2.0, end_s=3.0, by=("1; DROP",)), None)


@pytest.mark.parametrize("by", ["tenant", "user"])
def test_a_price_that_changes_parts_sums_where_it_does_and_not_by_day(
    log: Log, url: str, by: str
) -> None:
    """Two attempts on each of four days, and one that still runs; the last two days are dearer."""
    ended = [record for k in range(8) for record in life(k + 1, T0_S + k // 2 * 86_400)]
    log.write(*ended, *life(9, T0_S + 3 * 86_400)[:4])
    follow(log, url)
    dear = PriceRule(rates=Rates(gpu_h=3.0), since_day=DAY + 2, until_day=DAY + 4)
    prices = PriceList([dear, PriceRule(rates=Rates(gpu_h=1.0))])
    call = UsageCall(start_s=DAY * 86_400.0, end_s=(DAY + 4) * 86_400.0, by=(by,))
    found = find(reader(url), question_of(call, None, prices), 2)
    at = found.columns.index("day")
    assert sorted(key[at] for key in found.sums) == [DAY, DAY + 2], "a sum for each price"
    (row,) = report(found, (by,), prices).rows
    by_day = msgspec.structs.replace(call, by=(by, "day"))
    days = report(find(reader(url), question_of(by_day, None, prices)), by_day.by, prices)
    assert len(days.rows) == 4
    assert row.cost == pytest.approx(sum(each.cost or 0.0 for each in days.rows))
    assert row.cost == pytest.approx(1.0 * _hours(days, 0, 1) + 3.0 * _hours(days, 2, 3))
    later = msgspec.structs.replace(call, start_s=(DAY + 2) * 86_400.0)
    found = find(reader(url), question_of(later, None, prices), 1)
    assert "day" not in found.columns, "one price holds all the time"
    (row,) = report(found, (by,), prices).rows
    assert row.cost == pytest.approx(3.0 * _hours(days, 2, 3))


def _hours(days: UsageReport, *wanted: int) -> float:
    words = {day_word(DAY + k) for k in wanted}
    return sum(row.held_gpu_ms for row in days.rows if row.key[1] in words) / 3.6e6


def test_what_a_lost_record_leaves_is_flagged(log: Log, url: str) -> None:
    """The history begins with a snapshot that knows the second attempt alone."""
    log.write(*life(1, end=_H.NODE_FAILED))
    log.write(awarded(1, 2, T0_S + 100), changed(1, _H.ACCEPTED, T0_S + 101, site_job_id=9))
    log.compact()
    log.write(changed(1, _H.STARTED, T0_S + 110, started_at_s=T0_S + 110))
    log.write(changed(1, _H.COMPLETED, T0_S + 121, ended_at_s=T0_S + 120))
    follow(log, url)
    (row,) = asked(url, "user").rows
    assert (row.held_gpu_ms, row.sums["missing_flags"]) == (10 * H32_MS, 1)
    assert row.sums["overlap_flags"] == 0


REQUEUES = {  # by the reason: the state, and the class of what was held
    ReasonCode.NODE_FAILED: ("NODE_FAIL", "lost_failure_gpu_ms"),
    ReasonCode.PREEMPTED: ("PREEMPTED", "lost_preemption_gpu_ms"),
    ReasonCode.REQUEUED: ("REQUEUED", "unknown_gpu_ms"),
}


def requeued(code: ReasonCode) -> list[LogRecord]:
    """Its site puts it back 50 s after its start; it is withdrawn there 4 s later."""
    return [
        *life(1)[:4],
        changed(1, _H.SITE_REQUEUED, T0_S + 70, reason=Reason(code=code)),
        changed(1, _H.WITHDRAWN, T0_S + 75, ended_at_s=T0_S + 74, site_state="CANCELLED"),
    ]


@pytest.mark.parametrize("code", REQUEUES)
def test_a_job_that_its_site_put_back_holds_nothing_from_then_on(
    log: Log, url: str, code: ReasonCode
) -> None:
    """By its site's accounts even earlier: the agent saw it 3 s later."""
    state, loss = REQUEUES[code]
    log.write(*requeued(code))
    follow(log, url)
    with reader(url).connect() as connection:
        found = connection.execute(select(schema.attempts.c.state, schema.attempts.c.ended_at_s))
        assert found.all() == [(state, T0_S + 70)]
    (row,) = asked(url, "user").rows
    assert (row.held_gpu_ms, row.sums[loss]) == (50 * H32_MS, 50 * H32_MS)
    due = measured.due(writer(url), ["alpine"], T0_S + 1000, 10)
    for told_at_s, counted_s in ((T0_S + 67, 47), (T0_S + 99, 50), (T0_S, 50), (inf, 50)):
        measured.put(writer(url), due, [MeasuredUse(accounts_end_at_s=told_at_s)], T0_S + 1000)
        (row,) = asked(url, "user").rows
        assert (row.held_gpu_ms, row.sums[loss]) == (counted_s * H32_MS, counted_s * H32_MS)
    assert kept(url) == made_anew(url)


def test_a_job_that_runs_again_at_its_site_before_it_is_withdrawn_goes_on(
    log: Log, url: str
) -> None:
    log.write(
        *requeued(ReasonCode.NODE_FAILED)[:-1],
        changed(1, _H.STARTED, T0_S + 80, started_at_s=T0_S + 79),
        changed(1, _H.COMPLETED, T0_S + 100, ended_at_s=T0_S + 99, site_state="COMPLETED"),
    )
    follow(log, url)
    (row,) = asked(url, "user").rows
    assert row.held_gpu_ms == row.sums["unknown_gpu_ms"] == 20 * H32_MS


@pytest.mark.parametrize(("ran", "held_s"), [(True, 20), (False, 50)])
def test_a_job_that_runs_again_while_it_is_cancelled_has_its_second_run(
    log: Log, url: str, ran: bool, held_s: int
) -> None:
    """Its start is no event then. One that only waited has its end for its start, by Slurm."""
    started = {"started_at_s": T0_S + 79 if ran else T0_S + 99, "ended_at_s": T0_S + 99}
    ended = (_H.COMPLETED, "COMPLETED") if ran else (_H.CANCELLED, "CANCELLED")
    log.write(
        *requeued(ReasonCode.REQUEUED)[:-1],
        changed(1, _H.CANCEL_ASKED, T0_S + 75, by="ada"),
        changed(1, ended[0], T0_S + 100, site_state=ended[1], **started),
    )
    follow(log, url)
    with reader(url).connect() as connection:
        (state,) = connection.execute(select(schema.attempts.c.state)).scalars()
    assert state == ("COMPLETED" if ran else "REQUEUED")
    (row,) = asked(url, "user").rows
    assert row.held_gpu_ms == held_s * H32_MS


def test_a_history_of_the_release_before_goes_on_without_ends_by_accounts(
    log: Log, url: str
) -> None:
    log.write(*life(1))
    follow(log, url)
    with writer(url).begin() as connection:
        connection.execute(text("ALTER TABLE measured DROP COLUMN accounts_end_at_s"))
        connection.execute(schema.history_version.update().values(version=9))
    log.write(*life(2, T0_S + 100))
    follow(log, url)
    assert asked(url, "day").total.sums["attempts"] == 2
    assert kept(url) == made_anew(url)


def test_a_site_restored_from_a_backup_gives_ids_again_and_nothing_counts_twice(
    log: Log, url: str
) -> None:
    """Two workloads were one job id at one site; each has its own time, and its own use."""
    for number, later_s in ((1, 0.0), (2, 1000.0)):
        log.write(
            submitted(number, T0_S + later_s),
            awarded(number, at_s=T0_S + later_s + 5),
            changed(number, _H.ACCEPTED, T0_S + later_s + 8, site_job_id=77),
            changed(number, _H.STARTED, T0_S + later_s + 11, started_at_s=T0_S + later_s + 10),
            changed(number, _H.COMPLETED, T0_S + later_s + 51, ended_at_s=T0_S + later_s + 50),
        )
    follow(log, url)
    due = measured.due(writer(url), ["alpine"], T0_S + 2000, 10)
    assert {each.job.site_job_id for each in due} == {77}
    uses = [MeasuredUse(gpu_util_frac=frac) for frac in (0.25, 0.75)]
    measured.put(writer(url), due, uses, T0_S + 2000)
    (row,) = asked(url, "user").rows
    assert row.held_gpu_ms == 2 * 40 * H32_MS
    assert row.sums["busy_gpu_ms"] == 40 * H32_MS
    assert row.sums["job_id_flags"] == 1
    assert asked(url, "day").flagged == {"alpine": {"job_id": 1}}
    assert row.sums["attempts"] == 2
    assert kept(url) == made_anew(url)


def test_job_ids_that_go_back_are_flagged_once_and_those_of_one_pass_come_in_any_order(
    log: Log, url: str
) -> None:
    """A site's slurmctld is restored after 900: 880 is lower, 881 is its next, 2 another site's."""
    log.write(*(record for k in (1, 2, 3) for record in submitted_and_awarded(k)))
    log.write(*(accepted(number, job_id) for number, job_id in ((1, 900), (2, 899), (3, 890))))
    log.write(*submitted_and_awarded(4), accepted(4, 880))
    with capture_logs() as said:
        follower = follow(log, url)
    assert [each for each in said if each["event"] == "site_job_ids_went_back"] == [
        {
            "event": "site_job_ids_went_back",
            "log_level": "warning",
            "site": "alpine",
            "job_id": 880,
            "last_job_id": 900,
        }
    ]
    assert follower.went_back_at_s == {"alpine": accepted(4, 880).at_s}
    log.write(*submitted_and_awarded(5), accepted(5, 881))
    log.write(*submitted_and_awarded(6, site="cedar"), accepted(6, 2))
    log.write(*over(1, 2, 3, 4, 5, 6))
    brought_up_to_date(follower)
    report = asked(url, "site", "day")
    assert report.flagged == {"alpine": {"job_id": 1}}
    assert report.total.sums["attempts"] == 6
    assert kept(url) == made_anew(url)


def test_a_job_that_was_adopted_may_have_any_id(log: Log, url: str) -> None:
    log.write(*submitted_and_awarded(1), accepted(1, 900), submitted(2))
    log.write(msgspec.structs.replace(awarded(2), adopted=True), accepted(2, 30))
    log.write(*submitted_and_awarded(3), accepted(3, 901), *over(1, 2, 3))
    follow(log, url)
    assert asked(url, "day").flagged == {}


def test_a_history_of_the_release_before_goes_on_without_job_ids(log: Log, url: str) -> None:
    log.write(*life(1))
    follow(log, url)
    with writer(url).begin() as connection:
        schema.site_job_ids.drop(connection)
        connection.execute(text("ALTER TABLE attempts DROP COLUMN last_job_id"))
        connection.execute(text("ALTER TABLE usage_days DROP COLUMN job_id_flags"))
        connection.execute(schema.history_version.update().values(version=8))
    log.write(*life(2, T0_S + 100), *life(3, T0_S + 200))
    follow(log, url)
    report = asked(url, "day")
    assert (report.total.sums["attempts"], report.flagged) == (3, {})
    assert kept(url) == made_anew(url)


def submitted_and_awarded(number: int, site: str = "alpine") -> list[LogRecord]:
    return [submitted(number), awarded(number, at_s=T0_S + 10, site=site)]


def accepted(number: int, job_id: int) -> LogRecord:
    return changed(number, _H.ACCEPTED, T0_S + 11, site_job_id=job_id)


def over(*numbers: int) -> list[LogRecord]:
    return [
        record
        for number in numbers
        for record in (
            changed(number, _H.STARTED, T0_S + 21, started_at_s=T0_S + 20),
            changed(number, _H.COMPLETED, T0_S + 81, ended_at_s=T0_S + 80),
        )
    ]
