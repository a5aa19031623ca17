"""The last acts of each kind stay in memory, also after a restart."""

from __future__ import annotations

from pathlib import Path

from federator.audit.chain import AuditAct
from federator.audit.file import AuditFile
from federator.audit.latest import MOST_KINDS, MOST_WORDS, OF_KIND, LatestActs

DRAIN = AuditAct(at_s=1.0, act="drain", by="eve", on="alpine", why={"reason": "a fan"})


def award(k: int) -> AuditAct:
    return AuditAct(at_s=float(k), act="award", on=f"fed:{k}:1", why={"offers": {"alpine": 3.5}})


def test_many_awards_drive_out_no_act_of_an_operator() -> None:
    latest = LatestActs()
    latest.add(1, DRAIN)
    for k in range(2, 1_000):
        latest.add(k, award(k))
    rows = latest.rows()
    assert len(rows) == OF_KIND + 1
    assert [row.n for row in rows] == [*range(999, 999 - OF_KIND, -1), 1]
    assert (rows[-1].by, rows[-1].why) == ("eve", "reason='a fan'")
    assert rows[0].why == 'offers={"alpine":3.5}'


def test_many_acts_of_a_user_drive_out_no_act_or_refusal_of_another_kind() -> None:
    latest = LatestActs()
    latest.add(1, DRAIN)
    latest.add(2, AuditAct(at_s=1.0, act="reload", by="mallory", refused="not yours"))
    for n in range(3, 1_000):
        latest.add(n, AuditAct(at_s=1.0, act=("cancel_asked", "reload")[n % 2], by="bob"))
    assert {1, 2} < {row.n for row in latest.rows()}
    assert len(latest.rows()) == 2 * OF_KIND + 2


def test_only_so_many_are_kept_and_each_says_only_so_much() -> None:
    latest = LatestActs()
    for n in range(1, OF_KIND + 50):
        one = AuditAct(at_s=1.0, act="amend", on="7 " * 1_000, effect={"name": "x" * 10_000})
        latest.add(n, one)
    rows = latest.rows()
    assert len(rows) == OF_KIND
    assert {(len(row.on), len(row.effect)) for row in rows} == {(MOST_WORDS, MOST_WORDS)}
    for n in range(1_000, 1_000 + 5 * MOST_KINDS):
        latest.add(n, AuditAct(at_s=1.0, act=f"word{n}"))
    assert len(latest.rows()) <= (MOST_KINDS + 1) * OF_KIND
    assert len({row.act for row in latest.rows() if row.n >= 1_000}) < MOST_KINDS + OF_KIND


def test_after_a_restart_the_last_acts_are_those_of_the_file(tmp_path: Path) -> None:
    first = AuditFile(tmp_path)
    first.open(1.0)
    first.append([DRAIN, award(2)], None)
    first.append([award(3)], None)
    first.close()
    again = AuditFile(tmp_path)
    again.open(2.0)
    again.append([AuditAct(at_s=4.0, act="reload", by="eve")], None)
    again.close()
    assert [row.act for row in first.latest.rows()] == ["award", "award", "drain"]
    assert [(row.n, row.act) for row in again.latest.rows()] == [
        (4, "reload"),
        (3, "award"),
        (2, "award"),
        (1, "drain"),
    ]
