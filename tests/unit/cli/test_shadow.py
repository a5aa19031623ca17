"""``federator shadow report`` tells how sites' own jobs went, and would have gone."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from federator.cli.shadow import shadow
from federator.cli.shadow_record import report_of
from federator.config import load_config
from federator.errors import InvalidRequest
from federator.history import schema
from federator.history.database import open_writer, transaction
from federator.history.local_jobs import LocalBatch, note_watched, put
from federator.model.workload import SiteName
from federator.sim.report.local_report import LocalReport
from tests.fakes.local_jobs import T0_S, capacity, stay

CONFIG = """\
federation: demo
store: "memory:"
history: {{url: "sqlite:///{folder}/history.db"}}
regions: {{west: {{shared: /shared}}}}
sites:
  alpine: {{region: west, partitions: [gpu], mode: shadow, command: ["true"]}}
  birch: {{region: west, partitions: [gpu], mode: shadow, command: ["true"]}}
  cedar: {{region: west, partitions: [gpu], command: ["true"]}}
tenants: {{bio: {{quota: {{gpus: 8}}}}}}
"""
ALPINE, BIRCH = SiteName("alpine"), SiteName("birch")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of a federation two of whose sites were watched for an hour and two minutes."""
    path = tmp_path / "federation.yaml"
    path.write_text(CONFIG.format(folder=tmp_path))
    writer = open_writer(f"sqlite://{tmp_path / 'history.db'}")
    with transaction(writer) as connection:
        schema.prepare(connection)
    ran = stay(1, started_at_s=1.0, ended_at_s=1800.0, submitted_at_s=1.0)
    waited = stay(2, started_at_s=1800.0, ended_at_s=3600.0, submitted_at_s=2.0)
    put(writer, [LocalBatch(ALPINE, T0_S + 3600, (ran, waited), complete=True)])
    sites = {ALPINE: capacity("alpine", 1), BIRCH: capacity("birch", 1)}
    for at_s in range(0, 3721, 60):
        note_watched(writer, sites, T0_S + at_s)
    return path


def test_a_site_watched_for_less_time_cuts_nothing_off_from_another_that_is_asked_about(
    config: Path,
) -> None:
    writer = open_writer(f"sqlite://{config.parent / 'history.db'}")
    late_s = T0_S + 3 * 86_400
    with transaction(writer) as connection:
        connection.execute(schema.local_watch.delete().where(schema.local_watch.c.site == "birch"))
    note_watched(writer, {ALPINE: None, BIRCH: capacity("birch", 1)}, late_s)
    note_watched(writer, {ALPINE: None, BIRCH: None}, late_s + 60)
    loaded = load_config(config)
    assert report_of(loaded, [], T0_S - 60, inf).in_all.jobs == 0
    found = report_of(loaded, [], T0_S - 60, inf, about=ALPINE)
    assert ([site.site for site in found.sites], found.in_all.jobs) == (["alpine"], 2)


SINCE = "--since=2026-11-18"


def printed(*words: str) -> str:
    done = CliRunner().invoke(shadow, words, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_the_report_for_programs(config: Path) -> None:
    out = printed("report", "--config", str(config), SINCE, "--json")
    report = msgspec.json.decode(out, type=LocalReport)
    assert (report.begin_s - T0_S, report.end_s - T0_S) == (0.0, 3720.0)
    assert report.in_all.real is not None
    assert report.in_all.federated is not None
    assert (report.in_all.real.mean_s, report.in_all.federated.mean_s) == (899.0, 0.0)
    assert [(each.name, each.jobs) for each in report.sizes] == [("8", 2)]
    assert [(site.site, site.jobs, site.response_error_frac) for site in report.sites] == [
        ("alpine", 2, 0.0),
        ("birch", 0, None),
    ]


def test_the_report_for_people_has_its_assumptions_and_what_was_not_seen(config: Path) -> None:
    out = printed("report", "--config", str(config), SINCE)
    (in_all,) = (line.split() for line in out.splitlines() if line.startswith("ALL "))
    assert in_all[:5] == ["ALL", "2", "00:14:59", ">", "00:00:00"]
    assert "stranded (free while a job waited that asked for no more): 24.2% > 0.0%" in out
    assert "simulator: 0.0% off in the mean time to the end" in out
    assert "FAILS: watched (for advisory): 0.0 days; needed: 14 days or more" in out
    assert "a job runs as long under the federation as it did, at whatever site" in out
    assert "divergences (another site, or 60 s sooner or later): 1 of 2 jobs" in out
    assert "1  OTHER_SITE: the federation would have started it at another site" in out
    whose = "account bio: 1 of 1 have a reason, 100.0% (5.0% to 100.0%): 1 OTHER_SITE"
    assert whose in out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--site", "cedar"], "cedar: not watched since"),
        (["--site", "dune"], "--site: unknown site dune; expected one of alpine, birch, cedar"),
        (["--since", "2027-11-19"], "no site: not watched since 2027-11-19"),
        (["--since", "2026-11-20", "--until", "2026-11-19"], "--since is not before --until"),
    ],
)
def test_what_cannot_be_answered_is_said_in_a_line(
    config: Path, more: list[str], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        printed("report", "--config", str(config), SINCE, *more)
