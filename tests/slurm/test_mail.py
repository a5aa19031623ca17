"""What the federation mails of jobs on real Slurm, and what it notes of their course."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.fakes.mail_server import SmtpServer
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at, slurm_job, until, within

pytestmark = pytest.mark.slurm
SITES = tuple(site.name for site in layout.SITES)
# The daemon's; an agent adds its own.
SPANS = {
    *("workload", "submit", "wait", "pass", "bid"),
    *("attempt", "award", "launch", "start", "run"),
}
WRAPPED = ("--wrap=true", "--output=/dev/null")


@dataclass(frozen=True, slots=True)
class Mailing:
    """A daemon, the mail server beside it, and the file of its traces."""

    running: Running
    server: SmtpServer
    traces: Path

    def subjects(self, id_: int) -> list[str]:
        return [str(got["Subject"]) for got in self.server.got if str(id_) in str(got["Subject"])]

    def spans(self, id_: int) -> set[str]:
        """Names of those of one workload."""
        text = self.traces.read_text() if self.traces.exists() else ""
        found = set()
        for line in text.rpartition("\n")[0].splitlines():  # of the last it may write yet
            for resource in json.loads(line)["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    found |= {s["name"] for s in scope["spans"] if str(id_) in json.dumps(s)}
        return found


@pytest.fixture
def mailing(testbed: StateDir, tmp_path: Path) -> Iterator[Mailing]:
    server, running = SmtpServer(), Running(tmp_path)
    traces = tmp_path / "traces.jsonl"
    settings = yaml.safe_load(running.config.read_text())
    settings["mail"] = {"smtp": server.address, "domain": "example.org"}
    settings["traces"] = {"file": str(traces)}
    running.config.write_text(yaml.safe_dump(settings))
    try:
        for _ in lasting(running):
            yield Mailing(running, server, traces)
    finally:
        server.end()


def test_a_job_is_mailed_once_wherever_it_runs_and_its_course_is_traced(
    mailing: Mailing, go: Callable[..., None]
) -> None:
    script = f"#!/bin/sh\n{until()}exit 3\n"
    options = ("--mail-type=ALL", "-N8", "--gres=gpu:8", "-o", "/dev/null")  # one fits at a site
    ids = [mailing.running.submit(script, *options) for _ in SITES]
    for id_ in ids:
        mailing.running.await_state(id_, "RUNNING")
    go()
    rows = mailing.running.await_end(*ids)
    assert sorted(row["site"] for row in rows) == sorted(SITES)
    for id_ in ids:
        within(30, lambda: len(mailing.subjects(id_)) == 2)  # noqa: B023
        began, ended = mailing.subjects(id_)
        assert re.search(f"Slurm Job_id={id_} Name=.* Began", began)
        assert "Failed" in ended
        assert "ExitCode 3" in ended
    assert {str(got["To"]) for got in mailing.server.got} == {"vision1@example.org"}
    for row in rows:  # its site knows of no mail; of the site's own job it does
        assert "MailType" not in slurm_job(row["site"], row["site_job_id"])
        own = ("sbatch", "--parsable", "--partition=local", "--mail-type=END", *WRAPPED)
        job_id = int(at(row["site"], *own, user=layout.LOCAL_USER))
        assert slurm_job(row["site"], job_id)["MailType"] == "END"
    within(30, lambda: mailing.spans(ids[0]) >= SPANS)
