"""A real Prometheus scrapes a real daemon; real faults fire its alerts, and they clear.

Faults that do not touch each other happen at once. ``docs/alerts.md`` has a table of them; those
of daemons alone are ``test_daemon_alerts``'s.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
import yaml

from federator.daemon.metrics.catalogue import CATALOGUE, MetricType
from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.alert_causes import open_claims, reconfigure, submit_lanes
from tests.slurm.federation import LONG_S, Running, agents, at, killed_slurmd, within
from tests.slurm.guests import NODE, TENANTS
from tests.slurm.monitored import SCRAPED_S, Watched, at_once, needs_prometheus, watching
from tests.slurm.test_lending import Planner
from tests.slurm.test_node_failures import idle
from tests.slurm.weather import kill_agents, stopped

pytestmark = [pytest.mark.slurm, needs_prometheus]
SITES = [site.name for site in layout.SITES]
TRUE = "#!/bin/sh\ntrue\n"
ONE_GPU = ("-N1", "--gres=gpu:1", "-t2")
AT_BOREAL = (*ONE_GPU, "--nodelist=boreal:boreal-g1")
STAYS = f"#!/bin/sh\nsleep {LONG_S}\n"
SETS = 8  # more than the failures that an alert takes
COPIES = "copies-of-alerts"  # the folder of their replicas, in each domain
IDLE_S = 7200.0
LANES = 1_200
COSTLIER = 3  # times what a scrape costs while none waits; with the lanes it is 20 times and more
USUAL = "quantile_over_time(0.5, (federator_collect_seconds > 0)[60s:1s])"  # a term's first is 0
BUDGET_GPUS_FRAC = 0.06  # of the fleet: one node of eight GPUs in a window
BUDGET_WINDOW_S = 5.0


@pytest.fixture(scope="module")
def lasting_watch(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    evictions = {"grace_s": 5.0, "cooldown_s": 1.0, "budget_window_s": BUDGET_WINDOW_S}
    evictions |= {"budget_frac": BUDGET_GPUS_FRAC}
    running = Running(
        folder, tenants=TENANTS, pass_interval_s=2.0, bid_timeout_s=1.0, preemption=evictions
    )
    settings = yaml.safe_load(running.config.read_text())
    settings["storage"]["east"]["keep_free_gib"] = 0.1
    running.config.write_text(yaml.safe_dump(settings))
    yield from watching(running)


@pytest.fixture
def watched(lasting_watch: Watched) -> Iterator[Watched]:
    """The module's; no job of a test outlives it."""
    yield lasting_watch
    lasting_watch.running.cancel_all()


def test_all_metrics_are_scraped_and_no_alert_fires_while_all_is_well(watched: Watched) -> None:
    prometheus, running = watched.prometheus, watched.running
    within(30, lambda: prometheus.value('up{job="federator"}') == 1)
    done = running.submit(TRUE, *ONE_GPU)
    (row,) = running.await_end(done)
    within(30, lambda: prometheus.value("sum(federator_starts_total)") == 1)
    assert prometheus.value(f'federator_starts_total{{site="{row["site"]}"}}') == 1
    wanted = {m.name for m in CATALOGUE if m.kind is not MetricType.HISTOGRAM}
    wanted |= {f"{m.name}_bucket" for m in CATALOGUE if m.kind is MetricType.HISTOGRAM}
    assert wanted - prometheus.names() == {
        "federator_standby_up_to_date",
        "federator_start_estimates_hit_ratio",  # no estimate was shown and judged yet
        "federator_start_estimates_class_hit_ratio",
        "federator_start_estimates_class_latest",
        "federator_tenant_started_gpus_total",  # of tenants that have a home; here none has
        "federator_site_effective_training_ratio",  # looked up each hour; nothing was trained yet
    }
    gpus = layout.GPU_NODES.gpus * layout.GPU_NODES.count
    for site in SITES:
        assert prometheus.value(f'sum(federator_gpus{{site="{site}"}})') == gpus
    series = prometheus.value('count({__name__=~"federator_.+"})')
    print(f"series of 3 sites: {series:.0f}")

    def quiet() -> bool:
        """Nothing fires for a while; a busy machine is late now and then, and its alerts clear."""
        until_s = time.monotonic() + 10
        while not prometheus.firing():
            if time.monotonic() >= until_s:
                return True
            time.sleep(0.5)
        return False

    within(60, quiet)


# ---- the rules that fire at a site ----


def test_faults_of_three_sites_fire_the_alerts_of_each(watched: Watched) -> None:
    faults = (slurmctld_stops, agent_dies_again_and_again, agent_hangs)
    at_once(watched, *faults)
    within(60, watched.running.all_up)


def slurmctld_stops(watched: Watched) -> None:
    """Its sweep is old, and then its site is down.

    The first lasts only until squeue gives up: on a busy machine that may be sooner than it fires.
    """
    prometheus = watched.prometheus
    alerts = ("FederatorSiteSweepOld", "FederatorSiteDown")
    first = ""
    for _ in range(5):
        with stopped("boreal", "slurmctld"):
            first, *_ = within(
                150,
                lambda: [a for a in alerts if "boreal" in prometheus.firing().get(a, set())],
                0.5,
            )
            prometheus.await_firing("FederatorSiteDown", "boreal")
        prometheus.await_clear("FederatorSiteDown")
        if first == "FederatorSiteSweepOld":
            break
    assert first == "FederatorSiteSweepOld"
    prometheus.await_clear("FederatorSiteSweepOld")


def agent_dies_again_and_again(watched: Watched) -> None:
    """Its site flaps. That clears while other tests run: ``test_what_has_fired_clears``."""

    def dies() -> bool:
        within(30, lambda: agents("alpine"))
        kill_agents("alpine")
        time.sleep(4)
        return "alpine" in watched.prometheus.firing().get("FederatorSiteFlapping", set())

    within(60, dies)


def agent_hangs(watched: Watched) -> None:
    """Its site answers late."""
    ids = list[int]()

    def hangs() -> bool:
        kill_agents("cedar", name="STOP")
        for _ in range(3):
            ids.extend(submit_lanes(watched.running, 1))  # a process would take too long
            time.sleep(1.3)
        kill_agents("cedar", name="CONT")
        time.sleep(3)
        return "cedar" in watched.prometheus.firing().get("FederatorSiteAnswersLate", set())

    within(90, hangs)
    watched.running.await_end(*ids)


# ---- those of the fleet and its queue ----


def test_a_stalled_queue_drained_nodes_and_no_plan_fire(watched: Watched) -> None:
    at_once(watched, fleet_is_cordoned, nodes_are_drained, planner_is_missing)


def fleet_is_cordoned(watched: Watched) -> None:
    """And forgotten: the queue is stalled, and owners wait; so many that a scrape is costly.

    That owners have waited, and the scrapes' cost, clear later: ``test_what_has_fired_clears``.
    """
    running, prometheus = watched.running, watched.prometheus
    for site in SITES:
        assert running.run("federator", "cordon", site, "--reason", "forgotten").returncode == 0
    try:
        waits = [running.submit(TRUE, *ONE_GPU) for _ in range(4)]
        usual_frac = prometheus.value(USUAL) / SCRAPED_S
        prometheus.lower("FederatorScrapeCostly", "> 0.01", f"> {COSTLIER * usual_frac}")
        others = submit_lanes(running, LANES)
        prometheus.await_firing("FederatorScrapeCostly")
        prometheus.await_firing("FederatorQueueStalled")
        running.run("fscancel", *map(str, others))
    finally:
        for site in SITES:
            running.run("federator", "resume", site)
    running.await_end(*waits)
    prometheus.await_clear("FederatorQueueStalled")
    prometheus.await_firing("FederatorOwnersWait")


def nodes_are_drained(watched: Watched) -> None:
    """GPUs are out."""
    nodes = layout.GPU_NODES.hostlist("alpine")
    at("alpine", "scontrol", "update", f"nodename={nodes}", "state=drain", "reason=test")
    try:
        watched.prometheus.await_firing("FederatorGpusOut", "alpine")
    finally:
        at("alpine", "scontrol", "update", f"nodename={nodes}", "state=resume")
    watched.prometheus.await_clear("FederatorGpusOut")


def planner_is_missing(watched: Watched) -> None:
    """Lending is on, and there is no plan until a planner runs."""
    running = watched.running
    _set_lending(running, "on")
    planner = Planner(running)
    try:
        watched.prometheus.await_firing("FederatorLendingPlanMissing")
        planner.start()
        watched.prometheus.await_clear("FederatorLendingPlanMissing")
    finally:
        planner.end()
        _set_lending(running, "off")


def _set_lending(running: Running, mode: str) -> None:
    reconfigure(running, lambda settings: settings["policy"].update(lending=mode))


def test_jobs_that_fail_or_idle_or_wait_and_nodes_and_copies_that_fail_fire(
    watched: Watched,
) -> None:
    at_once(
        watched,
        jobs_are_refused,
        jobs_fail,
        a_node_dies,
        budget_is_cut_while_gangs_wait,
        a_job_idled,
        job_ids_went_back,
        copies_fail,
    )


def jobs_are_refused(watched: Watched) -> None:
    """By every sbatch: launches are declined, and then the workloads are held.

    More come until the alert has seen them: on a busy machine scrapes fail, and with them its wait
    begins anew.
    """
    running, prometheus, ids = watched.running, watched.prometheus, list[int]()

    def declined() -> bool:
        ids.extend(running.submit(TRUE, "--prefer=nosuch") for _ in range(3))
        return "alpine" in prometheus.firing().get("FederatorLaunchesDeclined", set())

    within(90, declined, 3.0)
    prometheus.await_firing("FederatorWorkloadsHeld")
    running.run("fscancel", *map(str, ids))
    prometheus.await_clear("FederatorWorkloadsHeld")
    prometheus.await_clear("FederatorLaunchesDeclined")


def jobs_fail(watched: Watched) -> None:
    """At their site, until more of its jobs end well."""
    running = watched.running
    ids = [running.submit("#!/bin/sh\nexit 3\n", *AT_BOREAL) for _ in range(12)]
    running.await_end(*ids)
    watched.prometheus.await_firing("FederatorWorkloadsFail", "boreal")
    well = [running.submit(TRUE, *AT_BOREAL) for _ in range(len(ids) + 1)]
    running.await_end(*well)
    watched.prometheus.await_clear("FederatorWorkloadsFail")


def a_node_dies(watched: Watched) -> None:
    """SIGKILL of its slurmd, with six jobs. That clears later: ``test_what_has_fired_clears``."""
    running, site, node = watched.running, "boreal", "boreal-g3"
    there = ("-N1", "--gres=gpu:1", f"--nodelist={site}:{node}")
    ids = [running.submit(STAYS, *there) for _ in range(6)]
    for id_ in ids:
        running.await_state(id_, "RUNNING")
    at(site, "sh", "-c", killed_slurmd(node))
    try:
        watched.prometheus.await_firing("FederatorNodesFail")
    finally:
        running.run("fscancel", *map(str, ids))
        at(site, "slurmd", "-N", node)
        within(90, lambda: idle(site, node))


def budget_is_cut_while_gangs_wait(watched: Watched) -> None:
    """Their claims are overdue, and late once the budget is there again; what they evict is lost.

    The latter two clear later: ``test_what_has_fired_clears``.
    """
    running, prometheus = watched.running, watched.prometheus
    guests = [running.submit(STAYS, *NODE, user="bio1") for _ in range(8)]
    for id_ in guests:
        running.await_state(id_, "RUNNING")
    first = running.submit(
        STAYS, "-N2", "--gres=gpu:h100:8", "--array=1-4", "--output=/dev/null", user="nlp1"
    )
    within(30, lambda: open_claims(running) >= 3)  # one that is kept meanwhile changes nothing
    _set_evictions(running, budget_window_s=3600.0)
    try:
        prometheus.await_firing("FederatorClaimsOverdue")
        within(60, lambda: prometheus.value("federator_claims_overdue") >= 3)  # they will be late
    finally:
        _set_evictions(running, budget_window_s=BUDGET_WINDOW_S, budget_frac=1.0)
    within(60, lambda: all(row["state"] == "RUNNING" for row in running.rows(first)))
    prometheus.await_clear("FederatorClaimsOverdue")
    for alert in ("FederatorClaimsMissed", "FederatorWorkLost"):  # perhaps it has cleared again
        within(150, lambda: prometheus.has_fired(alert), 0.5)  # noqa: B023
    running.run("fscancel", *map(str, (*guests, first)))


def _set_evictions(running: Running, **changed: float) -> None:
    reconfigure(running, lambda settings: settings["policy"]["preemption"].update(changed))


def a_job_idled(watched: Watched) -> None:
    """By the history: of one that has ended, it says that its GPU did nothing for hours.

    Nobody can wait for that: its record gets another start and the use of an idle GPU, and then
    what it had. The doctor looks at every reload.
    """
    running = watched.running
    done = running.submit(TRUE, *ONE_GPU)
    running.await_end(done)
    with closing(sqlite3.connect(running.folder / "queue-history.db", timeout=60)) as history:

        def is_answered() -> bool:
            """It is there, and no first answer of its site is on the way."""
            found = history.execute(
                "SELECT 1 FROM attempts WHERE id = ? AND NOT EXISTS"
                " (SELECT 1 FROM unmeasured u WHERE u.id = attempts.id AND u.tries = 0)",
                (done,),
            )
            return found.fetchone() is not None

        def idle_for(span_s: float, busy_frac: str) -> None:
            with history:
                for command in (
                    f"UPDATE attempts SET started_at_s = started_at_s - {span_s} WHERE id = {done}",
                    f"DELETE FROM unmeasured WHERE id = {done}",  # its site says nothing of it
                    f"DELETE FROM measured WHERE id = {done}",
                    "INSERT INTO measured (id, attempt, gpu_util_frac)"
                    f" SELECT id, attempt, {busy_frac} FROM attempts WHERE id = {done}",
                ):
                    history.execute(command)
            assert running.run("federator", "reload").returncode == 0

        within(60, is_answered)
        idle_for(IDLE_S, "0.0")
        watched.prometheus.await_firing("FederatorDoctorFindings")
        idle_for(-IDLE_S, "NULL")
    watched.prometheus.await_clear("FederatorDoctorFindings")


def job_ids_went_back(watched: Watched) -> None:
    """By the history: it says that the site had given a far higher one."""
    running = watched.running
    site = running.row(_done_at_a_site(running))["site"]
    with closing(sqlite3.connect(running.folder / "queue-history.db", timeout=60)) as history:

        def is_there() -> bool:
            asked = "SELECT job_id FROM site_job_ids WHERE site = ?"
            return history.execute(asked, (site,)).fetchone() is not None

        within(60, is_there)
        with history:
            history.execute("UPDATE site_job_ids SET job_id = 60000000 WHERE site = ?", (site,))
        within(60, lambda: running.row(_done_at_a_site(running))["site"] == site)
        watched.prometheus.await_firing("FederatorSiteJobIdsWentBack", site)


def _done_at_a_site(running: Running) -> int:
    done = running.submit(TRUE, "-n1", "-t5")
    running.await_end(done)
    return done


def copies_fail(watched: Watched) -> None:
    """Their owner may not write where they go, until the folder is theirs: then one is made."""
    running, here, there = watched.running, f"/shared/west/{COPIES}", f"/shared/east/{COPIES}"
    at("alpine", "sh", "-c", f"rm -rf {here}; install -d -o vision1 -m 755 {here}")
    at("cedar", "sh", "-c", f"rm -rf {there}; install -d -m 755 {there}")
    names = [f"alerts-{number}" for number in range(SETS)]
    make = f"cd {here}; for name in {' '.join(names)}; do mkdir $name; printf x >$name/file; done"
    at("alpine", "sh", "-c", make, user="vision1")
    lines = f"{hashlib.sha256(b'x').hexdigest()} 1 file\0"
    of_all = {
        "owner": "vision1",
        "size": 1,
        "files": 1,
        "digest": f"sha256tree:{hashlib.sha256(lines.encode()).hexdigest()}",
    }
    sets = [{"name": name, "at": {"west": f"{COPIES}/{name}"}} | of_all for name in names]
    file = running.folder / "sets.yaml"
    file.write_text(yaml.safe_dump({"data_sets": sets}))
    for command in (("import", str(file)), *(("copy", name, "--to", "east") for name in names)):
        done = running.run("federator", "data", *command)
        assert done.returncode == 0, done.stderr
    watched.prometheus.await_firing("FederatorCopiesFail")
    at("cedar", "chown", "vision1", there)
    watched.prometheus.await_clear("FederatorCopiesFail")


def test_what_has_fired_clears(watched: Watched) -> None:
    """Also what looks back for longest."""
    within(240, lambda: watched.prometheus.firing() == {})
