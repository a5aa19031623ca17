"""Sites that keep accounts: what fsacct, fseff and usage tell beside what each sacct does.

The last test is a week in fast motion: seconds stand for hours.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from federator.testbed import inside, layout
from federator.testbed.layout import StateDir
from tests.fakes.shown_blocks import shown_commands
from tests.slurm.accounts import accounts_at
from tests.slurm.conftest import lasting
from tests.slurm.federation import LONG_S, Row, Running, at, within
from tests.slurm.guests import NODE, TENANTS, preemption, saver, steps_of

pytestmark = pytest.mark.slurm
SITES: Final = tuple(site.name for site in layout.SITES)
USER: Final = "vision1"
WORKS: Final = """#!/bin/sh
exec python3 -c '
import time
held = bytearray(200 << 20)
for k in range(0, len(held), 4096):
    held[k] = 1
while time.process_time() < 2:
    pass
time.sleep(3)
'
"""
SCRIPTS: Final = {  # each holds its GPU for a second at least: what holds none is no usage
    "works": WORKS,
    "fails": "#!/bin/sh\nsleep 2\nexit 3\n",
    "killed": "#!/bin/sh\nsleep 2\nkill -9 $$\n",
    "cancelled": "#!/bin/sh\nsleep 600\n",
    "gang": "#!/bin/sh\nsleep 2\n",
}
ENDS: Final = {
    "works": "COMPLETED",
    "fails": "FAILED",
    "killed": "FAILED",
    "cancelled": "CANCELLED",
    "gang": "COMPLETED",
}
GANG: Final = ("-N2", "-n2", "--mem=768M")  # 1.50G on both
SAME: Final = "State,ExitCode,NNodes,AllocCPUS,NodeList,Partition,Account,QOS,ReqMem"


def setup(site: str) -> str:
    """What sacctmgr of a site is told: the tenants, and QOS of which not all may be used."""
    lines = ["sacctmgr -iQ add qos fast,barred"]
    lines += [f"sacctmgr -iQ add qos only-{site}"]
    for tenant in layout.TENANTS:
        lines.append(f"sacctmgr -iQ add account {tenant.name}")
        lines.append(f"sacctmgr -iQ add user {','.join(tenant.users)} account={tenant.name}")
        lines.append(f"sacctmgr -iQ modify account {tenant.name} set qos=normal,fast,only-{site}")
    lines.append("sacctmgr -iQ add account local")
    lines.append(f"sacctmgr -iQ add user {layout.LOCAL_USER} account=local")
    return "\n".join(lines)


@pytest.fixture(scope="module", autouse=True)
def accounts(testbed: StateDir) -> Iterator[None]:
    with accounts_at(SITES, setup):
        yield


@pytest.fixture(scope="module")
def shared(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """``bio`` has no quota here: what it runs may be evicted."""
    folder, settings = tmp_path_factory.mktemp("shared"), preemption(budget_window_s=10.0)
    yield from lasting(Running(folder, tenants=TENANTS, pass_interval_s=10.0, preemption=settings))


class Ended(NamedTuple):
    """A job of each kind at each site, ended; by kind and site."""

    federation: Running
    rows: dict[tuple[str, str], Row]


@pytest.fixture(scope="module")
def ended(accounts: None, shared: Running) -> Ended:
    ids = {}
    for kind, script in SCRIPTS.items():
        for site in SITES:
            nodes, size = ("g[1-2]", GANG) if kind == "gang" else ("g1", ("-n1", "--mem=400M"))
            place = (f"--nodelist={site}:{site}-{nodes}", f"--job-name={kind}")
            options = (*size, "--gres=gpu:1", "-t5", *place)
            ids[kind, site] = shared.submit(script, *options, "--qos=fast")
    for site in SITES:
        shared.await_state(ids["cancelled", site], "RUNNING")
    done = shared.run("fscancel", *(str(ids["cancelled", site]) for site in SITES))
    assert done.returncode == 0, done.stderr
    shared.await_end(*ids.values())
    return Ended(shared, {key: shared.row(id_) for key, id_ in ids.items()})


def shell(site: str, command: str) -> inside.Executed:
    return inside.execute(layout.site(site), ("bash", "-c", command), user=USER)


def sacct(site: str, job_id: int, fields: str, *options: str) -> list[list[str]]:
    """The rows of a site's own sacct, once slurmdbd has heard of the end, and of the start.

    Of a short job it may hear of the end first; then it does not know the QOS.
    """
    command = f"sacct -nP -j {job_id} -o End,QOS,{fields} {' '.join(options)}"

    def look() -> list[list[str]]:
        rows = [line.split("|") for line in shell(site, command).stdout.splitlines()]
        return [] if any("Unknown" in row[:2] for row in rows) else rows

    return [row[2:] for row in within(60, look, 0.5)]


def measured(federation: Running, id_: int) -> dict[str, Any]:
    """An attempt of fsacct, once its site has told what it used."""

    def look() -> dict[str, Any] | None:
        told = json.loads(federation.run("fsacct", "-j", str(id_), "--json").stdout)
        (attempt,) = told["jobs"][0]["attempts"]
        return attempt if attempt["use"] else None

    found = within(90, look, 1.0)
    assert found is not None
    return found


def test_states_exit_codes_and_amounts_are_those_of_each_sacct(ended: Ended) -> None:
    uid = re.compile(r"(?<=CANCELLED by )\S+")  # differs from site to site
    ours, theirs = {}, {}
    for (kind, site), row in ended.rows.items():
        ((*words, elapsed),) = sacct(site, row["site_job_id"], f"{SAME},ElapsedRaw", "-X")
        theirs[kind, site] = [uid.sub("", word) for word in words]
        assert words[0].split()[0] == ENDS[kind]
        asked = ("-nPX", "-j", str(row["id"]), "-o", f"{SAME},ElapsedRaw")
        *words, lasted = ended.federation.run("fsacct", *asked).stdout.strip().split("|")
        ours[kind, site] = [uid.sub("", word) for word in words]
        assert abs(int(lasted) - int(elapsed)) <= 1, (kind, site)
    assert ours == theirs


@pytest.mark.parametrize("site", SITES)
def test_wrong_values_have_saccts_words_and_status(shared: Running, site: str) -> None:
    for words in (
        "-u nosuch",
        f"-u {USER},nosuch",
        "-u 99999",
        "-s nonsense",
        "-s R,nonsense",
        "-j x",
        "-j 1,x",
        "-S nonsense",
        "-E nonsense",
        "-S 2026-11-20 -E 2026-11-10",
        "-o JobID,nosuch",
        "--units=X",
        "-A nosuch",
        "-N nosuch-g1",
        "-r nosuch",
        "--name=nosuch",
        "-j 999999",
    ):
        theirs, ours = shell(site, f"sacct {words}"), shell(site, f"fsacct {words}")
        assert first_words(ours.stderr) == first_words(theirs.stderr), words
        assert (ours.exit_status, ours.stdout) == (theirs.exit_status, theirs.stdout), words


def first_words(stderr: str) -> str:
    """The first line, without the program and the weight of its message."""
    return re.sub(r"^f?sacct: (error|fatal): ", "", (stderr.splitlines() or [""])[0])


@pytest.mark.parametrize("site", SITES)
def test_cpu_time_and_memory_are_joined_from_the_sites_sacct(ended: Ended, site: str) -> None:
    row = ended.rows["works", site]
    use = measured(ended.federation, row["id"])["use"]
    assert 200 <= use["task_mem_mib"] <= 300, "what it has held"
    assert 2 <= use["cpu_s"] <= 10
    words = ("-nPX", "-j", str(row["id"]), "-o", "TotalCPU,MaxRSS,AllocCPUS")
    total, rss, cpus = ended.federation.run("fsacct", *words).stdout.strip().split("|")
    rows = sacct(site, row["site_job_id"], "TotalCPU,MaxRSS,AllocCPUS")
    assert (total, cpus) == (rows[0][0], rows[0][2])
    assert rss in [each[1] for each in rows]
    said = ended.federation.run("fseff", str(row["id"])).stdout
    elapsed_s = int(sacct(site, row["site_job_id"], "ElapsedRaw", "-X")[0][0])
    assert f"CPU Utilized: 00:00:{round(use['cpu_s']):02}" in said
    assert re.search(r"Memory Efficiency: [5-7][0-9]\.[0-9]+% of 400\.00 MB", said), said
    (shown,) = re.findall(r"CPU Efficiency: ([0-9.]+)% of", said)
    assert float(shown) == pytest.approx(100 * use["cpu_s"] / elapsed_s, rel=0.3)


def test_the_simulator_reads_the_dumps_that_its_page_asks_for(ended: Ended, tmp_path: Path) -> None:
    """``sacct`` is called as docs/simulator.md says, at each site, and the jobs are all there."""
    ids = {site: [row for (_, at), row in ended.rows.items() if at == site] for site in SITES}
    for site in SITES:
        for command in shown_commands("docs/simulator.md", "SLURM_TIME_FORMAT=%s sacct"):
            asked = re.sub(r"-S \S+", "-S now-1days", command)
            done = shell(site, asked)
            assert done.exit_status == 0, done.stderr
            dump = tmp_path / f"{site}.dump"
            dump.write_text(done.stdout)
            wanted = {str(row["site_job_id"]) for row in ids[site]}
            assert wanted <= set(re.findall(r"^\d+(?=[|])|(?<=\"job_id\": )\d+", done.stdout, re.M))


def test_fseff_knows_seconds_after_the_end_and_says_what_never_comes(ended: Ended) -> None:
    """With a GPU and without; no node of these sites has hooks that tell of GPUs."""
    federation, ids, said = ended.federation, dict[str, int](), dict[str, str]()
    for kind, gpus in (("gpu", ("--gres=gpu:1",)), ("cpu", ())):
        ids[kind] = federation.submit(WORKS, "-n1", "--mem=400M", "-t5", "--qos=fast", *gpus)
        federation.await_end(ids[kind])

        def look(id_: str = str(ids[kind])) -> str:
            told = federation.run("fseff", id_).stdout
            return told if "CPU Efficiency" in told else ""

        said[kind] = within(20, look, 0.5)
    assert "GPU" not in said["cpu"]
    never = "GPU Efficiency: not measured: no node of"
    told = within(60, lambda: never in federation.run("fseff", str(ids["gpu"])).stdout, 1.0)
    assert told, said["gpu"]


def test_usage_sums_are_those_of_each_sacct(ended: Ended) -> None:
    wanted: dict[str, list[tuple[int, int, int]]] = {site: [] for site in SITES}
    for (_, site), row in ended.rows.items():
        (found,) = sacct(site, row["site_job_id"], "ElapsedRaw,AllocCPUS,AllocTRES", "-X")
        (gpus,) = re.findall(r"gres/gpu=(\d+)", found[2])
        wanted[site].append((int(found[0]), int(found[1]), int(gpus)))
    words = ("--by", "site,family", "--start", "now-1days", "--json")
    attempts = sum(row["attempt"] for row in ended.rows.values())  # one that never began holds none

    def look() -> list[dict[str, Any]] | None:
        told = json.loads(ended.federation.run("federator", "usage", *words).stdout)
        rows = [row for row in told["rows"] if row["key"]["family"] in SCRIPTS]
        return rows if sum(row["attempts"] for row in rows) == attempts else None

    rows = within(90, look, 1.0)
    assert rows is not None
    for site in SITES:
        mine = [row for row in rows if row["key"]["site"] == site]
        gpu_s = sum(elapsed_s * gpus for elapsed_s, _, gpus in wanted[site])
        cpu_s = sum(elapsed_s * cpus for elapsed_s, cpus, _ in wanted[site])
        gpus = sum(gpus for *_, gpus in wanted[site])
        assert abs(sum(row["held_gpu_s"] for row in mine) - gpu_s) <= gpus, site
        cpus = sum(cpus for _, cpus, _ in wanted[site])
        assert abs(sum(row["cpu_s"] for row in mine) - cpu_s) <= cpus, site


def test_a_qos_goes_where_sacctmgr_knows_it_and_one_that_none_knows_is_refused(
    ended: Ended,
) -> None:
    federation = ended.federation
    ids = {site: federation.submit("#!/bin/sh\n", f"--qos=only-{site}", "-n1") for site in SITES}
    for site, id_ in ids.items():
        (row,) = federation.await_end(id_)
        assert (row["state"], row["site"]) == ("COMPLETED", site)
        assert sacct(site, row["site_job_id"], "QOS", "-X") == [[f"only-{site}"]]
    done = federation.run("fsbatch", f"--uid={USER}", "--qos=unheard-of", "--wrap=true")
    assert done.returncode == 1
    assert "Invalid qos specification" in done.stderr


def test_a_qos_that_no_site_lets_the_user_have_is_told_in_the_sites_words(ended: Ended) -> None:
    id_ = ended.federation.submit("#!/bin/sh\n", "--qos=barred", "-n1")
    row = ended.federation.await_state(id_, "HELD", timeout_s=120)
    said = ended.federation.run("federator", "explain", str(id_)).stdout
    assert "Invalid qos specification" in said, row
    assert at(SITES[0], "squeue", "-h", "-t", "all", "-o", "%q").count("barred") == 0


def test_users_and_accounts_of_the_shim_are_those_of_the_sites(
    ended: Ended, tmp_path: Path
) -> None:
    where = "show association format=account,user where account=vision,nlp,bio"
    shims = tmp_path / "shims"
    assert ended.federation.run("federator", "shims", str(shims)).returncode == 0
    ours = ended.federation.run(str(shims / "sacctmgr"), "-nP", *where.split()).stdout
    for site in SITES:
        theirs = shell(site, f"sacctmgr -nP {where}").stdout
        assert sorted(set(ours.splitlines())) == sorted(set(theirs.splitlines())), site


# ---- a week in fast motion ----

TURNS: Final = int(os.environ.get("FEDERATOR_WEEK_TURNS", "1"))
OUT_OF_USE: Final = ("nodename=alpine-g[7-8]", "nodename=cedar-g8")
FAILS_FIRST: Final = f"#!/bin/sh\n[ $FED_ATTEMPT -gt 1 ] || sleep {LONG_S}\nsleep 2\n"


def operate(federation: Running, *words: str) -> None:
    done = federation.run(*words)
    assert done.returncode == 0, done.stderr


def again(federation: Running, id_: int) -> Row:
    """The row of a saver that runs once more."""
    before = federation.row(id_)["attempt"]

    def look() -> Row | None:
        row = federation.row(id_)
        return row if row["attempt"] > before and row["state"] == "RUNNING" else None

    found = within(120, look)
    assert found is not None
    return found


def preempted_and_requeued(federation: Running) -> None:
    """A guest leaves for another tenant's job, goes on, and is requeued; local jobs have the rest.

    It saves when it is told to leave.
    """
    with federation.one_node_free_at("cedar"):
        guest = federation.submit(saver(), *NODE, "-t5", user="bio1")
        federation.await_state(guest, "RUNNING")
        within(60, lambda: len(steps_of(guest)) > 1)
        host = federation.submit("#!/bin/sh\nsleep 3\n", *NODE, "-t5", "--qos=fast")
        federation.await_end(host)
        federation.await_state(guest, "RUNNING")
        within(60, lambda: steps_of(guest)[-1][1] == 2)
        operate(federation, "fscontrol", "requeue", str(guest))
        assert again(federation, guest)["attempt"] == 3
    operate(federation, "fscancel", str(guest))
    federation.await_end(guest)


def moved(federation: Running) -> None:
    """A site is drained: its run saves, and goes on at another."""
    for site in ("boreal", "cedar"):
        operate(federation, "federator", "cordon", site)
    run = federation.submit(saver(), "--gres=gpu:8", "-t5", user="bio1")
    assert federation.await_state(run, "RUNNING")["site"] == "alpine"
    within(60, lambda: len(steps_of(run, "west")) > 1)
    operate(federation, "federator", "resume", "boreal")
    operate(federation, "federator", "drain", "alpine", "--migrate", "--reason", "new switch")
    assert again(federation, run)["site"] == "boreal"
    for site in ("alpine", "cedar"):
        operate(federation, "federator", "resume", site)
    operate(federation, "fscancel", str(run))
    federation.await_end(run)


def failed_over(federation: Running) -> None:
    """A node dies under a gang. One that is not drained, too, may come back by itself."""
    gang = federation.submit(FAILS_FIRST, "-N2", "--gres=gpu:8", "-t5", "--qos=fast")
    row = federation.await_state(gang, "RUNNING")
    site, node = row["site"], f"nodename={row['node_names'][1]}"
    try:
        for state in ("drain", "down"):
            at(site, "scontrol", "update", node, f"state={state}", "reason=power")
        (row,) = federation.await_end(gang)
    finally:
        at(site, "scontrol", "update", node, "state=resume")
    assert (row["state"], row["attempt"] > 1) == ("COMPLETED", True)


def sacct_gpu_s(federation: Running) -> tuple[dict[str, int], dict[str, int]]:
    """By site: GPU-seconds of the federation's jobs by its sacct; and GPUs of all attempts."""
    asked = ("fsacct", "--json", "-a", "--starttime", "now-1days")
    jobs = json.loads(federation.run(*asked).stdout)["jobs"]
    ids = defaultdict[str, set[str]](set)
    for attempt in (each for job in jobs for each in job["attempts"]):
        if attempt["site_job_id"]:
            ids[attempt["site"]].add(str(attempt["site_job_id"]))
    held, slack = dict[str, int](), dict[str, int]()
    for site in SITES:
        command = f"sacct -nXDPa -j {','.join(ids[site])} -o End,Start,ElapsedRaw,AllocTRES"

        def look(command: str = command, site: str = site) -> list[list[str]]:
            rows = [line.split("|") for line in at(site, "sh", "-c", command).splitlines()]
            return [] if any(row[0] == "Unknown" != row[1] for row in rows) else rows

        held[site] = slack[site] = 0
        for _, _, elapsed_s, tres in within(60, look, 0.5):
            gpus = sum(map(int, re.findall(r"gres/gpu=(\d+)", tres)))
            held[site] += int(elapsed_s) * gpus
            slack[site] += gpus
    return held, slack


@contextmanager
def out_of_use() -> Iterator[None]:
    """Some nodes take no jobs."""
    for nodes in OUT_OF_USE:
        site = nodes.partition("=")[2].partition("-")[0]
        at(site, "scontrol", "update", nodes, "state=drain", "reason=a fan")
    try:
        yield
    finally:
        for nodes in OUT_OF_USE:
            site = nodes.partition("=")[2].partition("-")[0]
            at(site, "sh", "-c", f"scontrol update {nodes} state=resume || true")


def test_every_gpu_second_of_a_week_is_in_one_class_and_they_sum_to_the_supply(
    ended: Ended,
) -> None:
    federation = ended.federation
    for _ in range(TURNS):
        preempted_and_requeued(federation)
        with out_of_use():
            moved(federation)
            failed_over(federation)
            within(90, lambda: drained(federation) == {"alpine", "cedar"}, 5.0)
    held, slack = sacct_gpu_s(federation)

    def look() -> dict[str, Any] | None:
        """Once sites have told when what they requeued was over."""
        told = usage_by_site(federation)
        ours = {row["key"]["site"]: row["held_gpu_s"] for row in told["rows"]}
        return told if all(abs(ours[at] - held[at]) <= slack[at] for at in SITES) else None

    told = within(60, look, 2.0)
    assert told is not None
    with closing(sqlite3.connect(federation.folder / "queue-history.db", timeout=60)) as history:
        asked = "SELECT site, min(since_s), max(gpus) FROM supply WHERE gpus > 0 GROUP BY site"
        since = {site: (since_s, gpus) for site, since_s, gpus in history.execute(asked)}
    for row in told["rows"]:
        site, classes = row["key"]["site"], row["gpu_s"]
        assert sum(classes.values()) == pytest.approx(row["supply_gpu_s"], abs=1e-3)
        since_s, gpus = since[site]
        assert row["supply_gpu_s"] == pytest.approx((told["end_s"] - since_s) * gpus, abs=1.0)
        assert row["beyond_supply_gpu_s"] == 0
        assert not any(row["flags"].values()), row
    assert sorted(row["key"]["site"] for row in told["rows"]) == sorted(SITES)
    seen = told["total"]["gpu_s"]
    kinds = ("unknown", "failed", "lost_failure", "launching", "drained", "idle")  # at least
    assert [kind for kind in kinds if seen[kind] <= 0] == []
    print("a week:", json.dumps({"classes": seen, "sacct": held, "rows": told["rows"]}))


def usage_by_site(federation: Running) -> dict[str, Any]:
    words = ("--by", "site", "--start", "now-1days", "--json")
    done = federation.run("federator", "usage", *words)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def drained(federation: Running) -> set[str]:
    """Sites with GPU time that is known to be drained.

    Supply is looked at once a minute, and a report goes up to the log's last record.
    """
    federation.await_end(federation.submit("#!/bin/sh\n", "-n1", "-t5", "--qos=fast"))
    rows = usage_by_site(federation)["rows"]
    return {row["key"]["site"] for row in rows if row["gpu_s"].get("drained")}
