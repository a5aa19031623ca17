"""What a site reports of an attempt reaches the log as something that all can reckon with."""

from __future__ import annotations

from math import inf, nan

import pytest

from federator.model.site import AttemptReport, Leave, SiteJobState
from federator.model.workload import AttemptId, WorkloadId
from federator.sched.passes.reports import with_sound_times

FIELDS = ("started_at_s", "ended_at_s", "saved_at_s")


def report(at_s: float, leave: Leave | None = None) -> AttemptReport:
    return AttemptReport(
        attempt=AttemptId(workload=WorkloadId(7), attempt=1),
        user="ada",
        site_job_id=1,
        state=SiteJobState.RUNNING,
        started_at_s=at_s,
        ended_at_s=at_s,
        saved_at_s=at_s,
        leave=leave,
    )


@pytest.mark.parametrize("at_s", [inf, -inf, nan, -1.0, 1e300])
def test_a_time_that_is_none_is_not_known(at_s: float) -> None:
    leave = Leave(told_at_s=at_s, saved_at_s=at_s)
    found = with_sound_times(report(at_s, leave))
    assert [getattr(found, name) for name in FIELDS] == [0.0, 0.0, 0.0]
    assert found.leave == Leave(told_at_s=0.0, saved_at_s=0.0)


def test_sound_times_stay() -> None:
    told = report(1.8e9, Leave(told_at_s=1.8e9))
    assert with_sound_times(told) is told
