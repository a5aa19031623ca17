"""In shadow mode a real site's own jobs are recorded, and the helper is never called."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from pathlib import Path

import pytest
import yaml

from federator.cli.shadow_record import report_of
from federator.config import load_config
from federator.errors import HistoryError, InvalidRequest
from federator.sim.report.local_report import LocalReport
from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at, until, within

pytestmark = pytest.mark.slurm

SITES = tuple(site.name for site in layout.SITES)
SUDO_LOG = "/var/log/sudo-of-tests"
LOGGED = "/etc/sudoers.d/zz-tests"
HELPER = "/opt/federator/libexec/fed-site-exec"


@pytest.fixture
def sudo_log(testbed: StateDir) -> Iterator[Callable[[str], str]]:
    """What sudo was called for at a site."""
    rule = f'Defaults logfile="{SUDO_LOG}"'
    for site in SITES:
        at(site, "sh", "-c", f"rm -f {SUDO_LOG}; echo '{rule}' >{LOGGED}; chmod 440 {LOGGED}")
    yield lambda site: at(site, "sh", "-c", f"touch {SUDO_LOG}; cat {SUDO_LOG}")
    for site in SITES:
        at(site, "rm", "-f", LOGGED, SUDO_LOG)


@pytest.fixture
def watching(sudo_log: Callable[[str], str], tmp_path: Path) -> Iterator[Running]:
    """A federation that watches the own partition of every site."""
    running = Running(tmp_path)
    settings = yaml.safe_load(running.config.read_text())
    for site in settings["sites"].values():
        site.update(mode="shadow", partitions=["local"])
    running.config.write_text(yaml.safe_dump(settings))
    yield from lasting(running)


def report(running: Running) -> LocalReport | None:
    try:
        return report_of(load_config(running.config), [], 0.0, inf)
    except (HistoryError, InvalidRequest):  # nothing is written yet
        return None


def submit(site: str, script: str) -> int:
    """A local user's job for all GPUs of one node, always the same."""
    words = ("--parsable", "--partition=local", f"--nodelist={site}-g1", "--gres=gpu:8")
    out = ("--output=/dev/null", f"--wrap={script}")
    return int(at(site, "sbatch", *words, *out, user=layout.LOCAL_USER))


def wait_s(site: str, job_id: int) -> int:
    """How long a job waited, by Slurm's own times."""
    show = ("scontrol", "-o", "show", "job", str(job_id))
    words = at(site, "env", "SLURM_TIME_FORMAT=%s", *show).split()
    fields = dict(word.split("=", 1) for word in words if "=" in word)
    came = max(int(fields["SubmitTime"]), int(fields["EligibleTime"]))
    return int(fields["StartTime"]) - came


def states(site: str, *job_ids: int) -> list[str]:
    listed = f"--jobs={','.join(map(str, job_ids))}"
    return at(site, "squeue", "-h", "--states=all", listed, "-o", "%T").split()


def test_local_jobs_are_counted_with_their_true_waits_and_the_helper_is_never_called(
    watching: Running, sudo_log: Callable[[str], str], go: Callable[..., None]
) -> None:
    within(60, lambda: report(watching))
    jobs = {site: (submit(site, until()), submit(site, "true")) for site in SITES}
    within(60, lambda: all(states(s, first) == ["RUNNING"] for s, (first, _) in jobs.items()))
    assert watching.run("fsbatch", "--test-only", "--uid=vision1", stdin="#!/bin/sh\n").stderr
    go()
    within(60, lambda: all(states(s, *own) == ["COMPLETED"] * 2 for s, own in jobs.items()))

    def counted() -> LocalReport | None:
        found = report(watching)
        return found if found is not None and found.in_all.jobs == 6 else None

    found = within(60, counted)
    assert found is not None
    assert [(each.name, each.jobs) for each in found.sizes] == [("8", 6)]
    for site in found.sites:
        true_waits_s = [wait_s(site.site, job_id) for job_id in jobs[site.site]]
        assert site.real is not None, site
        assert site.real.mean_s == sum(true_waits_s) / 2, site
        assert (site.jobs, site.gpus, site.mode) == (2, 64, "shadow"), site
        assert (site.unseen.unknown_end, site.unseen.unknown_gpus) == (0, 0), site
    asked = ("--config", "federation.yaml", "--since", "now-14days", "--json")
    done = watching.run("federator", "shadow", "report", *asked)
    assert json.loads(done.stdout)["in_all"]["jobs"] == 6, done.stderr
    assert [sudo_log(site) for site in SITES] == ["", "", ""]
    # That it would be seen:
    call = f"sudo -n -u vision1 -- {HELPER} </dev/null || true"
    at(SITES[0], "sh", "-c", call, user="federator")
    assert "fed-site-exec" in sudo_log(SITES[0])


@pytest.fixture
def half(sudo_log: Callable[[str], str], tmp_path: Path) -> Iterator[Running]:
    """A federation whose sites are all in mode enforced, and one of its tenants in shadow."""
    yield from lasting(Running(tmp_path, tenants={"vision": {"mode": "shadow"}}))


def test_a_tenant_in_shadow_beside_one_in_enforced_gets_nothing_done(
    half: Running, sudo_log: Callable[[str], str]
) -> None:
    script = "#!/bin/sh\ntrue\n"
    refused = half.run("fsbatch", "--uid=vision1", stdin=script)
    assert refused.returncode != 0
    assert "tenant vision is in mode shadow: the federation takes none of its" in refused.stderr
    (ended,) = half.await_end(half.submit(script, user="nlp1"))
    assert ended["state"] == "COMPLETED"
    status = half.run("federator", "status", "--json")
    assert json.loads(status.stdout)["tenant_modes"] == [{"tenant": "vision", "mode": "shadow"}], (
        status.stderr
    )
    for site in SITES:
        caps = within(90, partial(at, site, "sh", "-c", f"cat {layout.SPOOL_DIR}/admission.tsv"))
        assert "nlp" in caps, site
        assert "vision" not in caps, site
    logs = "".join(map(sudo_log, SITES))
    assert "USER=nlp1" in logs
    assert "USER=vision1" not in logs

    words = ("step", "vision", "opt-in", "--tenant", "--force", "--config", str(half.config))
    up = half.run("federator", "shadow", *words)
    assert 'tenants.vision.mode: "shadow" -> "opt-in"' in up.stdout, up.stderr
    (ended,) = half.await_end(half.submit(script, user="vision1"))
    assert ended["state"] == "COMPLETED"
    assert "USER=vision1" in "".join(map(sudo_log, SITES))


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Running]:
    """The same, whose partitions are those of local users."""
    running = Running(tmp_path, tenants={"vision": {"mode": "shadow"}})
    settings = yaml.safe_load(running.config.read_text())
    for site in settings["sites"].values():
        site.update(partitions=["local"])
    running.config.write_text(yaml.safe_dump(settings))
    yield from lasting(running)


def test_own_jobs_are_recorded_where_a_tenant_is_in_shadow_and_the_site_is_not(
    recorded: Running,
) -> None:
    within(60, lambda: report(recorded))
    own = ("--parsable", "--partition=local", "--account=vision", "--gres=gpu:1", "--wrap=true")
    at(SITES[0], "sbatch", *own, "--output=/dev/null", user="vision1")

    def counted() -> LocalReport | None:
        found = report(recorded)
        return found if found is not None and found.tenants else None

    found = within(90, counted)
    assert found is not None
    (vision,) = found.tenants
    assert (vision.tenant, vision.mode, vision.jobs) == ("vision", "shadow", 1)
