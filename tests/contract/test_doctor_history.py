"""``federator doctor`` by what the follower writes, on each database that it can be kept in."""

from __future__ import annotations

from federator.history import doctor_query
from federator.history.doctor_answer import answer
from federator.model.lifecycle import WorkloadEvent
from federator.model.viewer import Viewer
from federator.usage.report import Quota
from federator.wire.usage_messages import DoctorCall
from tests.contract.history_log import T0_S, Log, follow, life, reader, submitted

FAILED = WorkloadEvent.FAILED
CALL = DoctorCall(start_s=T0_S - 1, end_s=T0_S + 1000)


def test_jobs_are_judged_as_the_log_tells_of_them(log: Log, url: str) -> None:
    ended = [each for k in range(1, 6) for each in life(k, T0_S + 100 * k, FAILED)]
    runs = life(7, T0_S + 700, user="bob")[:4]
    log.write(*ended, *life(6, T0_S, user="bob"), *runs, submitted(8, T0_S + 750))
    follow(log, url)
    reply = answer(reader(url), CALL, None, "demo")
    assert (reply.attempts, reply.is_whole) == (7, True)
    (made,) = reply.findings
    assert (made.kind, made.user, made.evidence["in_a_row"]) == ("failing", "ada", 5.0)
    assert answer(reader(url), CALL, Viewer(user="bob"), "demo").attempts == 2


def test_waits_and_days_are_read_for_a_review(log: Log, url: str) -> None:
    log.write(*life(1), *life(2, T0_S + 4 * 86_400), submitted(9, T0_S + 5 * 86_400))
    follow(log, url)
    waits = doctor_query.queue(reader(url), T0_S - 1, T0_S + 10 * 86_400)
    assert waits is not None
    waited = sorted(round(each.waited_s(0.0, T0_S + 5 * 86_400)) for each in waits)
    assert waited == [0, 20, 20]
    call = DoctorCall(start_s=T0_S, end_s=T0_S + 9 * 86_400, quotas=True)
    reply = answer(reader(url), call, None, "demo", [Quota("vision", 1e4, frozenset({"vision"}))])
    assert reply.days == 5
    assert doctor_query.power_times(reader(url), 0.0, T0_S + 9 * 86_400) == []
    assert [made.kind for made in reply.findings] == ["unused-quota"]
