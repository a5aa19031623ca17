"""An agent tells of each stay of the site's own jobs when it changes, and none twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec

from federator.agent.base import NOTHING, KnownJobs, Sweep
from federator.agent.local_watch import MOST_AT_ONCE, LocalWatch
from federator.model.local_record import LocalRecord
from federator.model.site_message import Report
from federator.wire.agent_protocol import LocalJobs, from_agent_decoder
from tests.fakes.agent import Daemon


def record(job_id: int, state: str = "RUNNING", **fields: Any) -> LocalRecord:
    values: dict[str, Any] = {"submitted_at_s": 10.0, "shown": str(job_id), **fields}
    return LocalRecord(
        job_id=job_id, user="ada", account="bio", partition="gpu", state=state, **values
    )


def test_the_first_sweep_is_told_whole_and_later_ones_by_what_is_new() -> None:
    watch = LocalWatch()
    first = [record(1), record(2, "PENDING")]
    assert list(watch.news(first, 100.0)) == [
        LocalJobs(at_s=100.0, records=tuple(first), complete=True)
    ]
    assert list(watch.news(first, 101.0)) == []
    changed = [record(1), record(2, started_at_s=101.5), record(3, "PENDING")]
    assert list(watch.news(changed, 102.0)) == [LocalJobs(at_s=102.0, records=tuple(changed[1:]))]


def test_a_word_that_changes_for_the_whole_queue_is_told_with_the_start() -> None:
    watch = LocalWatch()
    many = range(1, 200)
    list(watch.news([record(k, "PENDING", held_by="Priority") for k in many], 100.0))
    for at_s, word in enumerate(("Resources", "Priority", "", "Resources"), 101):
        assert list(watch.news([record(k, "PENDING", held_by=word) for k in many], at_s)) == []
    begun = record(1, started_at_s=105.0)
    (told,) = watch.news([begun, *(record(k, "PENDING") for k in many[1:])], 105.0)
    assert told.records == (msgspec.structs.replace(begun, held_by="Resources"),)


def test_a_word_that_says_more_is_told_at_once_and_stays() -> None:
    watch = LocalWatch()
    list(watch.news([record(1, "PENDING", held_by="Priority")], 100.0))
    limited = record(1, "PENDING", held_by="QOSMaxGRESPerUser")
    (told,) = watch.news([limited], 101.0)
    assert told.records == (limited,)
    for at_s, word in enumerate(("Priority", "QOSMaxGRESPerUser", ""), 102):
        assert list(watch.news([record(1, "PENDING", held_by=word)], at_s)) == []
    (told,) = watch.news([record(1, started_at_s=105.0)], 105.0)
    assert [each.held_by for each in told.records] == ["QOSMaxGRESPerUser"]


def test_the_word_of_what_runs_is_told_once() -> None:
    watch = LocalWatch()
    begun = record(1, started_at_s=99.0, held_by="Resources")  # a task of an array
    list(watch.news([begun], 100.0))
    later = msgspec.structs.replace(begun, held_by="JobArrayTaskLimit")  # for which others wait
    assert list(watch.news([later], 101.0)) == []


def test_a_site_without_jobs_says_so_once() -> None:
    watch = LocalWatch()
    assert list(watch.news([], 100.0)) == [LocalJobs(at_s=100.0, records=(), complete=True)]
    assert list(watch.news([], 101.0)) == []


def test_nothing_is_told_of_a_site_that_is_not_watched() -> None:
    assert list(LocalWatch().news(None, 100.0)) == []


def test_what_ended_between_two_sweeps_did_not_later_than_the_second() -> None:
    watch = LocalWatch()
    ended = record(2, "COMPLETED", ended_at_s=99.0)
    list(watch.news([record(1), ended], 100.0))
    (told,) = watch.news([], 105.0)  # Slurm forgets those that have ended: nothing new
    assert [(r.job_id, r.state, r.ended_at_s) for r in told.records] == [(1, "GONE", 105.0)]


def test_a_job_that_was_put_back_has_a_stay_more() -> None:
    watch = LocalWatch()
    list(watch.news([record(1)], 100.0))
    again = record(1, "PENDING", submitted_at_s=104.0, restarts=1)
    (told,) = watch.news([again], 105.0)
    assert [(r.state, r.restarts) for r in told.records] == [("PENDING", 1), ("REQUEUED", 0)]


def test_many_jobs_are_told_in_parts_of_which_the_last_completes_the_look() -> None:
    many = [record(k) for k in range(MOST_AT_ONCE + 1)]
    parts = list(LocalWatch().news(many, 100.0))
    assert [(len(p.records), p.complete, p.at_s) for p in parts] == [
        (MOST_AT_ONCE, False, 100.0),
        (1, True, 100.0),
    ]


def test_a_record_travels_whole() -> None:
    (told,) = LocalWatch().news([record(1, limit_s=float("inf"), gpus=-1)], 1.5)
    assert from_agent_decoder.decode(msgspec.msgpack.encode(told)) == told


def test_an_agent_whose_driver_watches_the_queue_tells_of_it_with_its_first_sweep(
    tmp_path: Path,
) -> None:
    daemon = Daemon(tmp_path)
    looks = daemon.site.sweep

    async def sweep(own: KnownJobs = NOTHING) -> Sweep:
        return replace(await looks(own), local=(record(1),))

    cast(Any, daemon.site).sweep = sweep

    async def story() -> None:
        await daemon.wait_for(Report)
        (first,) = daemon.heard(LocalJobs)
        assert (first.records, first.complete) == ((record(1),), True)

    daemon.serve(story)
