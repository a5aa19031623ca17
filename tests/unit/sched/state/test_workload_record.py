"""What the records of many workloads share."""

from __future__ import annotations

from federator.model.workload import SiteName, WorkloadId
from federator.sched.state.workload_record import WorkloadRecord
from tests.fakes.build import workload


def test_records_share_what_they_have_not_used_until_one_of_them_sets_it() -> None:
    one, other = WorkloadRecord(workload()), WorkloadRecord(workload())
    one.exit_code = 0  # as it is
    assert one.rare is other.rare
    one.preemptions += 1
    one.promised_to = WorkloadId(7)
    one.avoid_until_s = {**one.avoid_until_s, SiteName("alpine"): 5.0}
    assert (one.preemptions, one.promised_to, dict(one.avoid_until_s)) == (1, 7, {"alpine": 5.0})
    assert (other.preemptions, other.promised_to, dict(other.avoid_until_s)) == (0, None, {})
