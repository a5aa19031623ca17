"""Jobs that say where they run, and with what: on the three real clusters, or refused with why."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from federator.testbed import layout
from tests.slurm.federation import Row, Running, at, slurm_job, until, within

pytestmark = pytest.mark.slurm
SITES = tuple(site.name for site in layout.SITES)
QUICK = "#!/bin/sh\ntrue\n"
WAITS = f"#!/bin/sh\n{until()}"
GPUS = {"alpine": "a100", "boreal": "a100", "cedar": "h100"}
QUIET = ("-o", "/dev/null", "-t", "5")


@pytest.fixture
def reserved(testbed: object, request: pytest.FixtureRequest) -> Iterator[str]:
    """At each site a reservation of node g8 for vision1; its name, another for each test.

    An agent hears of reservations some seconds late: one of the same name as that of the test
    before would be known at first, and then be gone.
    """
    name = f"fed-wishes-{request.node.callspec.params['site']}"
    for site in SITES:
        at(
            site,
            "scontrol",
            "create",
            "reservation",
            f"reservationname={name}",
            "users=vision1",
            "starttime=now",
            "duration=60",
            f"nodes={site}-g8",
        )
    yield name
    for site in SITES:
        at(site, "scontrol", "delete", f"reservationname={name}")


def ran(running: Running, *options: str) -> Row:
    """The row of a job that has completed."""
    (row,) = running.await_end(running.submit(QUICK, *QUIET, *options))
    assert row["state"] == "COMPLETED", row
    return row


def refused(running: Running, *options: str, user: str = "vision1") -> str:
    done = running.run("fsbatch", f"--uid={user}", *QUIET, *options, stdin=QUICK)
    assert done.returncode != 0, done.stdout
    return done.stderr


def all_nodes(*sites: str) -> str:
    return ",".join(f"{site}:{site}-{part}" for site in sites for part in ("g[1-8]", "c[1-2]"))


def others(site: str) -> str:
    return all_nodes(*(name for name in SITES if name != site))


def control(running: Running, *words: str) -> None:
    done = running.run("fscontrol", *words)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("site", SITES)
def test_jobs_run_on_the_nodes_that_they_name(federation: Running, site: str) -> None:
    for name in (f"{site}-g3", f"{site}:{site}-g4"):
        row = ran(federation, "-w", name, "--gres=gpu:1")
        assert (row["site"], row["node_names"]) == (site, [name.rpartition(":")[2]])
    row = ran(federation, "-N3", "-w", f"{site}-g[5-6]", "--gres=gpu:8")
    assert set(row["node_names"]) >= {f"{site}-g5", f"{site}-g6"}
    assert len(row["node_names"]) == 3


@pytest.mark.parametrize("site", SITES)
def test_jobs_run_on_none_of_the_nodes_that_they_exclude(federation: Running, site: str) -> None:
    row = ran(federation, "-x", f"{others(site)},{site}-g[1-7]", "--gres=gpu:1")
    assert (row["site"], row["node_names"]) == (site, [f"{site}-g8"])


@pytest.mark.parametrize("site", SITES)
def test_constraints_hold_on_the_nodes_of_every_release(federation: Running, site: str) -> None:
    gpu, elsewhere = GPUS[site], ("-x", others(site))
    assert ran(federation, "-C", f"nvlink&{gpu}", *elsewhere)["site"] == site
    assert ran(federation, "-C", f"nosuch|{gpu}", *elsewhere)["site"] == site
    row = ran(federation, "-N3", "-C", f"[{gpu}*2]", "-w", f"{site}-c1", *elsewhere)
    kinds = [name.removeprefix(f"{site}-")[0] for name in row["node_names"]]
    assert sorted(kinds)[-2:] == ["g", "g"]
    row = ran(federation, "-N2", "-C", f"[{gpu}*1&nvlink*1]", *elsewhere)
    assert len(row["node_names"]) == 2


def test_what_no_site_can_do_is_refused_with_why(federation: Running) -> None:
    assert "Invalid node name specified" in refused(federation, "-w", "nosuch-g1")
    assert "Invalid node name specified" in refused(federation, "-x", "alpine:cedar-g1")
    assert "invalid number of nodes (-N 2-1)" in refused(federation, "-N1", "-w", "cedar-g[1-2]")
    assert "no node has the features: nosuch" in refused(federation, "-C", "nosuch")
    assert "Invalid license specification" in refused(federation, "-L", "nosuch:1")
    assert "Invalid license specification" in refused(federation, "-L", "matlab:5")
    assert "Requested reservation is invalid" in refused(federation, "--reservation=nosuch")
    assert "needs 9437184 MiB of TmpDisk" in refused(federation, "--tmp=9T")
    assert "needs 9 sockets on one node, the largest has 2" in refused(federation, "-B", "9:9:9")
    said = refused(federation, "--deadline=now+1minute")
    assert "Requested time limit is invalid" in said


@pytest.mark.parametrize(
    ("site", "wanted"), [("alpine", "matlab:4"), ("boreal", "fluent=2"), ("cedar", "abaqus:2")]
)
def test_licences_are_counted_as_each_slurm_counts_them(
    federation: Running, go: object, site: str, wanted: str
) -> None:
    name = wanted.partition(":")[0].partition("=")[0]
    elsewhere = ("-x", others(site))
    first = federation.submit(WAITS, *QUIET, "-L", wanted, *elsewhere)
    row = federation.await_state(first, "RUNNING")
    assert row["site"] == site
    shown = at(site, "scontrol", "-o", "show", "licenses")
    line = next(text for text in shown.splitlines() if f"LicenseName={name} " in text)
    assert "Free=0" in line.split()
    assert slurm_job(site, row["site_job_id"])["Licenses"].startswith(name)
    second = federation.submit(QUICK, *QUIET, "-L", f"{name}:1", *elsewhere)
    why = f"needs 1 licence {name}, 0 free"
    within(30, lambda: why in reasons(federation, second, site))
    assert callable(go)
    go(site)
    (row,) = federation.await_end(second)
    assert (row["state"], row["site"]) == ("COMPLETED", site)


def reasons(running: Running, id_: int, site: str) -> str:
    """A site's words for why a job waits; "" while there are none."""
    said = running.run("fsqueue", "--why", str(id_)).stdout
    return next((line for line in said.splitlines() if site in line and ":" in line), "")


@pytest.mark.parametrize("site", SITES)
def test_jobs_run_in_the_reservation_that_they_name(
    federation: Running, reserved: str, site: str
) -> None:
    wanted = f"--reservation={site}:{reserved}"

    def known() -> bool:
        done = federation.run("fsbatch", "--uid=vision1", "--test-only", wanted, stdin=QUICK)
        return done.returncode == 0

    within(30, known)
    row = ran(federation, wanted, "--gres=gpu:1")
    assert (row["site"], row["node_names"]) == (site, [f"{site}-g8"])
    job = slurm_job(site, row["site_job_id"])
    assert job["Reservation"] == reserved
    denied = refused(federation, wanted, user="nlp1")
    assert "Access denied to requested reservation" in denied
    row = ran(federation, "-x", f"{others(site)},{site}-g[1-6],{site}-c[1-2]")
    assert row["node_names"] == [f"{site}-g7"], "nobody else has a reserved node"


@pytest.mark.parametrize("site", SITES)
def test_jobs_hold_out_for_few_switches(federation: Running, site: str) -> None:
    elsewhere = ("-x", others(site), "--gres=gpu:8")
    row = ran(federation, "-N4", "--switches=1@UNLIMITED", *elsewhere)
    numbers = sorted(int(name[-1]) for name in row["node_names"])
    assert numbers in ([1, 2, 3, 4], [5, 6, 7, 8])
    waits = federation.submit(QUICK, *QUIET, "-N5", "--switches=1@UNLIMITED", *elsewhere)
    within(30, lambda: "1 leaf switch" in reasons(federation, waits, site))
    federation.run("fscancel", str(waits))
    row = ran(federation, "-N5", "--switches=1@0:03", *elsewhere)
    assert len(row["node_names"]) == 5


@pytest.mark.parametrize("site", SITES)
def test_jobs_have_nodes_that_follow_each_other(federation: Running, site: str) -> None:
    elsewhere = ("-x", f"{others(site)},{site}-g[2,6]", "--gres=gpu:1")
    row = ran(federation, "-N3", "--contiguous", *elsewhere)
    assert sorted(row["node_names"]) == [f"{site}-g{k}" for k in (3, 4, 5)]


@pytest.mark.parametrize("site", SITES)
def test_deadlines_are_slurms_too_and_end_what_waits(
    federation: Running, go: object, site: str
) -> None:
    """Slurm of all releases reads the time as the federation writes it."""
    at_s = int(time.time()) + 900
    id_ = federation.submit(WAITS, *QUIET, f"--deadline=uts{at_s}", "-x", others(site))
    row = federation.await_state(id_, "RUNNING")
    deadline = slurm_job(site, row["site_job_id"])["Deadline"]
    shown = at(site, "date", "-d", f"@{at_s}", "+%Y-%m-%dT%H:%M:%S").strip()
    assert deadline == shown
    late = federation.submit(QUICK, "-o", "/dev/null", "-t1", "-H", "--deadline=now+65seconds")
    row = federation.await_state(late, "FAILED", timeout_s=30)
    shown = federation.run("fsqueue", "-h", "-t", "all", "-j", str(late), "-o", "%t %r").stdout
    assert shown.split() == ["DL", "DeadLine"]


def test_a_pending_job_goes_where_it_is_changed_to(federation: Running) -> None:
    id_ = federation.submit(QUICK, *QUIET, "-H", "-w", "alpine:alpine-g1", "--gres=gpu:1")
    update = ("update", f"JobId={id_}")
    control(federation, *update, "ReqNodeList=boreal-g2")
    control(federation, "release", str(id_))
    (row,) = federation.await_end(id_)
    assert row["node_names"] == ["boreal-g2"]

    id_ = federation.submit(QUICK, *QUIET, "-H", "-x", all_nodes(*SITES[1:]))
    control(federation, "update", f"JobId={id_}", f"ExcNodeList={others('cedar')},cedar-c[1-2]")
    control(federation, "update", f"JobId={id_}", "Features=h100&nvlink")
    control(federation, "release", str(id_))
    (row,) = federation.await_end(id_)
    assert (row["site"], row["node_names"][0][:7]) == ("cedar", "cedar-g")

    id_ = federation.submit(QUICK, *QUIET, "-H", "-C", "a100")
    done = federation.run("fscontrol", "update", f"JobId={id_}", "Features=a100|")
    assert "Invalid feature specification" in done.stderr
    done = federation.run("fscontrol", "update", f"JobId={id_}", "ReqNodeList=nosuch")
    assert done.returncode != 0
    control(federation, "update", f"JobId={id_}", "Features=h100")
    control(federation, "release", str(id_))
    (row,) = federation.await_end(id_)
    assert row["site"] == "cedar"
