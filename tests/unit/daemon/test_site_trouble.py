"""What is wrong at a site is logged once, until it is over or is something else."""

from __future__ import annotations

from structlog.testing import capture_logs

from federator.daemon.site_trouble import SiteTrouble
from federator.model.site_message import Report
from federator.model.workload import SiteName
from federator.wire.agent_protocol import Trouble


def test_trouble_is_new_once_until_a_report_or_another_agent_comes() -> None:
    trouble, said = SiteTrouble(SiteName("alpine")), Trouble(detail="slurmctld does not answer")
    assert [trouble.begin(said), trouble.begin(said)] == [True, False]
    assert [trouble.end(Report(attempts=())), trouble.end(Report(attempts=()))] == [True, False]
    assert trouble.begin(said)
    trouble.forget()
    assert trouble.begin(said)


def test_records_that_cannot_be_read_are_logged_when_they_change() -> None:
    trouble = SiteTrouble(SiteName("alpine"))
    with capture_logs() as logged:
        for problems in ((), ("node n1",), ("node n1",), ()):
            trouble.end(Report(attempts=(), problems=problems))
    assert [line["problems"] for line in logged] == [["node n1"], []]
