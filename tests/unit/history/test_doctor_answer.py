"""``federator doctor`` judges what the history holds, as far as the asker may see it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine, text

from federator.errors import HistoryError, InvalidRequest, NotAllowed
from federator.history import doctor_query, schema
from federator.history.database import open_reader, open_writer, put_rows, transaction
from federator.history.doctor_answer import answer, cut
from federator.history.usage_sums import count_some, counted_anew
from federator.model.viewer import Viewer
from federator.usage.report import Quota
from federator.wire.accounting_rows import AccountingAttempt, AccountingRow
from federator.wire.usage_messages import DoctorCall, DoctorReply
from tests.fakes.usage_rows import attempt_use, attempt_values

NOW_S = 1_764_072_000.0
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
CALL = DoctorCall(start_s=NOW_S - 100 * HOUR_S, end_s=NOW_S)


SWINGS = {
    "gpu_looks": 700.0,
    "gpu_spread_frac": 0.45,
    "gpu_low_frac": 0.4,
    "gpu_high_frac": 0.5,
    "gpu_falls": 200.0,
    "gpu_longest_low_frac": 0.01,
}


def idle_rows() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Attempts and their use: of each of four users two whose GPUs did nothing."""
    rows = []
    for number in range(1, 9):
        use = attempt_use(number, NOW_S - number * HOUR_S)
        user = f"user{number % 4}"
        use = replace(use, tenant=f"tenant{number % 2}", user=user, family="train-#", gpus=8)
        measured = {"id": number, "attempt": 1, "gpu_util_frac": 0.01, "alloc_cpus": 256.0}
        rows.append((attempt_values(number, use), measured))
    return rows


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    url = f"sqlite:///{tmp_path}/history.db"
    with transaction(open_writer(url)) as connection:
        schema.prepare(connection)
        rows = idle_rows()
        put_rows(connection, schema.attempts, (row for row, _ in rows), replace=False)
        put_rows(connection, schema.measured, (use for _, use in rows), replace=False)
        runs = AccountingRow(
            id=50,
            name="train-7",
            user="user1",
            tenant="tenant1",
            submitted_at_s=NOW_S - 9 * HOUR_S,
            state="RUNNING",
            time_limit_s=HOUR_S,
            last=AccountingAttempt(attempt=1, gpus=8, started_at_s=NOW_S - 5 * HOUR_S),
        )
        waits = AccountingRow(
            id=51, name="wait", user="user1", tenant="tenant1", submitted_at_s=NOW_S
        )
        packed = ({"id": row.id, "row": msgspec.msgpack.encode(row)} for row in (runs, waits))
        put_rows(connection, schema.live, packed, replace=False)
        connection.execute(
            schema.log_place.insert().values(
                one=1, first=0, next=1, crc=0, within_snapshot=False, at_s=NOW_S
            )
        )
    return open_reader(url)


def asked(engine: Engine, call: DoctorCall = CALL, viewer: Viewer | None = None) -> DoctorReply:
    return answer(engine, call, viewer, "demo")


def test_all_that_ended_in_the_time_and_all_that_runs_is_judged(engine: Engine) -> None:
    reply = asked(engine)
    assert (reply.federation, reply.at_s, reply.is_whole) == ("demo", NOW_S, True)
    assert (reply.attempts, reply.measured) == (9, 8)
    assert reply.findings[0].kind == "zombie"
    users = sorted(made.user for made in reply.findings if made.kind == "idle")
    assert users == ["user0", "user1", "user2", "user3"]
    zombie = reply.findings[0]
    assert (zombie.jobs, zombie.evidence["beyond_end_s"]) == ((50,), 4 * HOUR_S)
    none = asked(engine, DoctorCall(start_s=0.0, end_s=NOW_S - 100 * HOUR_S))
    assert (none.attempts, [made.kind for made in none.findings]) == (1, ["zombie"])


def test_a_user_sees_the_own_jobs_and_those_of_the_own_tenants_alone(engine: Engine) -> None:
    own = asked(engine, viewer=Viewer(user="user2"))
    assert {made.user for made in own.findings} == {"user2"}
    tenant = asked(engine, viewer=Viewer(user="eve", tenants=frozenset({"tenant1"})))
    assert {made.user for made in tenant.findings} == {"user1", "user3"}
    assert asked(engine, viewer=Viewer(user="eve")).findings == ()


def test_tenants_and_users_can_be_named(engine: Engine) -> None:
    named = DoctorCall(start_s=CALL.start_s, end_s=NOW_S, tenants=("tenant1",), users=("user3",))
    assert {made.user for made in asked(engine, named).findings} == {"user3"}


def test_all_is_found_and_one_answer_holds_the_first(engine: Engine) -> None:
    whole = asked(engine)
    assert (len(whole.findings), whole.left_off) == (5, 0)
    part = cut(whole, 2)
    assert (part.findings, part.left_off) == (whole.findings[:2], 3)
    assert cut(whole) == whole, "2,000 fit"


def test_of_more_than_one_answer_judges_the_latest_are_taken(engine: Engine) -> None:
    question = doctor_query.DoctorQuestion(start_s=0.0, end_s=NOW_S)
    found = doctor_query.attempts(engine, question, most=3)
    assert not found.is_whole
    assert [each.id for each in found.records] == [1, 2, 3, 50]


def test_what_cannot_be_asked_is_refused(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="after end time"):
        asked(engine, DoctorCall(start_s=2.0, end_s=1.0))
    with pytest.raises(HistoryError):
        asked(open_reader(f"sqlite:///{tmp_path}/none.db"))


def test_a_review_of_quotas_reads_days_and_waits(engine: Engine) -> None:
    quotas = [Quota("tenant1", 1e6, frozenset({"tenant1"}))]
    call = DoctorCall(start_s=NOW_S - 28 * 24 * HOUR_S, end_s=NOW_S, quotas=True)
    with transaction(engine_to_write(engine)) as connection:
        early = [attempt_values(90, attempt_use(90, NOW_S - 100 * HOUR_S)) | {"counted": 0}]
        put_rows(connection, schema.attempts, iter(early), replace=True)
    assert not count_some(engine_to_write(engine))
    reply = answer(engine, call, None, "demo", quotas)
    assert (reply.days, reply.attempts) == (4, 0)
    assert [(made.kind, made.tenant) for made in reply.findings] == [("unused-quota", "tenant1")]
    other = DoctorCall(start_s=call.start_s, end_s=NOW_S, quotas=True, tenants=("tenant0",))
    assert answer(engine, other, None, "demo", quotas).findings == ()


def test_a_fall_of_use_and_of_power_is_read_from_what_attempts_used(engine: Engine) -> None:
    """Of nine days on which a tenant held eight GPUs, the last is unlike the rest."""
    midnight_s = NOW_S // DAY_S * DAY_S
    attempts, measured = [], []
    for back in range(9):
        use = attempt_use(100 + back, midnight_s - back * DAY_S)
        started_s = use.times.ended_at_s - DAY_S + HOUR_S
        times = replace(use.times, awarded_at_s=started_s, started_at_s=started_s)
        use = replace(use, tenant="rest", gpus=8, gpu_types="a100=8", times=times)
        attempts.append(attempt_values(100 + back, use) | {"counted": 1})
        told = {"gpu_util_frac": 0.9 if back else 0.3, "gpu_power_frac": 0.7 if back else 0.2}
        measured.append({"id": 100 + back, "attempt": 1, **told})
    ids = [row["id"] for row in attempts]
    with transaction(engine_to_write(engine)) as connection, counted_anew(connection, ids):
        put_rows(connection, schema.attempts, iter(attempts), replace=True)
        put_rows(connection, schema.measured, iter(measured), replace=True)
    call = DoctorCall(start_s=NOW_S - 28 * DAY_S, end_s=NOW_S, quotas=True, tenants=("rest",))
    made = {each.kind: each.evidence for each in asked(engine, call).findings}
    assert set(made) == {"busy-fall", "power-fall"}
    assert (made["busy-fall"]["busy_frac"], made["busy-fall"]["norm_frac"]) == (0.3, 0.9)
    assert (made["power-fall"]["power_frac"], made["power-fall"]["busy_frac"]) == (0.2, 0.3)
    assert len(doctor_query.power_times(engine, 0.0, NOW_S, most=9) or []) == 9
    assert doctor_query.power_times(engine, 0.0, NOW_S, most=8) is None
    assert doctor_query.power_times(engine, NOW_S, NOW_S + DAY_S) == []


def test_a_review_of_quotas_is_an_operators(engine: Engine) -> None:
    call = DoctorCall(start_s=0.0, end_s=NOW_S, quotas=True)
    with pytest.raises(NotAllowed, match="operator"):
        asked(engine, call, Viewer(user="user1", tenants=frozenset({"tenant1"})))


def test_waits_are_those_for_a_first_start(engine: Engine) -> None:
    with transaction(engine_to_write(engine)) as connection:
        rows = []
        for id_, attempt in ((70, 1), (71, 2), (72, 0)):
            row = AccountingRow(
                id=id_, name="a", user="u", tenant="t", submitted_at_s=NOW_S, asked_gpus=4
            )
            made = AccountingAttempt(attempt=attempt, started_at_s=NOW_S + 5 if attempt else 0.0)
            values = msgspec.structs.asdict(made) | msgspec.structs.asdict(row)
            values |= {"eligible_at_s": NOW_S, "over_at_s": NOW_S + 9}
            rows.append({c.name: values[c.name] for c in schema.workloads.columns})
        put_rows(connection, schema.workloads, iter(rows), replace=False)
    found = doctor_query.queue(engine, 0.0, NOW_S + 100) or []
    waited = sorted((each.gpus, each.waited_s(0, NOW_S + 100)) for each in found)
    assert [each for each in waited if each[0] == 4] == [(4, 5.0), (4, 9.0)]
    assert doctor_query.queue(engine, 0.0, NOW_S + 100, most=1) is None


def engine_to_write(engine: Engine) -> Engine:
    """A writer of the same database."""
    with engine.connect() as connection:
        (_, _, path) = connection.exec_driver_sql("PRAGMA database_list").one()
    return open_writer(f"sqlite:///{path}")


def test_what_nodes_and_ranks_told_is_judged_and_an_older_history_gets_room_for_it(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/older.db"
    ranks = {"ranks": 8.0, "step_s": 2.0, "own_least_s": 0.5, "own_most_s": 1.0, "slow_rank": 3.0}
    with transaction(open_writer(url)) as connection:
        schema.prepare(connection)
        for name in (*SWINGS, *ranks, "load_s", "gpu_total_mib", "gpu_power_frac"):
            connection.execute(text(f"ALTER TABLE measured DROP COLUMN {name}"))
        connection.execute(schema.history_version.update().values(version=7))
    with transaction(open_writer(url)) as connection:
        schema.prepare(connection)
        use = replace(attempt_use(1, NOW_S - HOUR_S), tenant="t", user="ada", gpus=64)
        put_rows(connection, schema.attempts, iter([attempt_values(1, use)]), replace=False)
        told = {"id": 1, "attempt": 1, **SWINGS, **ranks}
        put_rows(connection, schema.measured, iter([told]), replace=False)
    found = answer(open_reader(url), CALL, None, "demo", ())
    assert [each.kind for each in found.findings] == ["starved", "communication", "straggler"]
    assert found.findings[2].evidence["slow_rank"] == 3.0
    assert found.measured == 1
