"""What the federation mails of jobs on real Slurm, and what it notes of their course."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml

from federator.testbed import layout
from federator.testbed.layout import AGENT_CONFIG, LIB_DIR, StateDir
from tests.fakes.mail_server import SmtpServer
from tests.slurm.conftest import lasting
from tests.slurm.federation import Row, Running, at, slurm_job, until, within

pytestmark = pytest.mark.slurm
SITES = tuple(site.name for site in layout.SITES)
OTEL = (
    *("opentelemetry-api", "opentelemetry-sdk", "opentelemetry-semantic-conventions"),
    "typing-extensions",
)
AT_SITE = "/tmp/agent-traces.jsonl"
Span = dict[str, Any]
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

    def spans(self, id_: int) -> dict[str, Span]:
        """Those of one workload, by name; of several of a name, one."""
        return spans_in(self.traces.read_text() if self.traces.exists() else "", id_)


def spans_in(text: str, id_: int) -> dict[str, Span]:
    found = dict[str, Span]()
    for line in text.rpartition("\n")[0].splitlines():  # the last may be in the writing
        for resource in json.loads(line)["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                found |= {s["name"]: s for s in scope["spans"] if str(id_) in json.dumps(s)}
    return found


@pytest.fixture
def traced_sites(testbed: StateDir) -> Iterator[None]:
    """OpenTelemetry is beside the agents' own libraries, and their agent.yaml says where to."""
    kept = {site.name: at(site.name, "cat", AGENT_CONFIG) for site in layout.SITES}
    files = [file for name in OTEL for file in distribution(name).files or ()]
    files = [file for file in files if file.suffix != ".pyc"]
    try:
        for site in layout.SITES:
            folder = testbed.shared(site.region) / "otel"
            for file in files:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file.locate(), folder / file)
            at(site.name, "cp", "-r", f"/shared/{site.region}/otel/.", LIB_DIR)
            settings = yaml.safe_load(kept[site.name]) | {"traces": {"file": AT_SITE}}
            at(site.name, "sh", "-c", f"cat >{AGENT_CONFIG}", stdin=yaml.safe_dump(settings))
        yield
    finally:
        places = " ".join({f"{LIB_DIR}/{file.parts[0]}" for file in files})
        for site in layout.SITES:
            at(site.name, "sh", "-c", f"cat >{AGENT_CONFIG}", stdin=kept[site.name])
            at(site.name, "sh", "-c", f"rm -rf {places} {AT_SITE}")
            shutil.rmtree(testbed.shared(site.region) / "otel", ignore_errors=True)


@pytest.fixture
def mailing(testbed: StateDir, traced_sites: None, tmp_path: Path) -> Iterator[Mailing]:
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


def agents_spans(row: Row) -> dict[str, Span]:
    """Those of the agent that launched a job."""
    text = at(row["site"], "sh", "-c", f"cat {AT_SITE} 2>/dev/null || true")
    return spans_in(text, row["id"])


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
    for row in rows:
        within(30, lambda: mailing.spans(row["id"]).keys() >= SPANS)  # noqa: B023
        daemons = mailing.spans(row["id"])
        within(30, lambda: agents_spans(row).keys() == {"intent", "sbatch"})  # noqa: B023
        for span in agents_spans(row).values():  # neither has told the other of the trace
            assert span["traceId"] == daemons["workload"]["traceId"]
            assert span["parentSpanId"] == daemons["launch"]["spanId"]
        said = {each["key"]: each["value"] for each in agents_spans(row)["sbatch"]["attributes"]}
        assert said["slurm.job_id"] == {"intValue": str(row["site_job_id"])}
