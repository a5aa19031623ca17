"""Three sites name an account, a QOS, a user, a partition, a GPU type and a feature otherwise.

Each keeps accounts meanwhile: its Slurm refuses an account, a QOS or a user that it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.accounts import accounts_at
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at, within

pytestmark = pytest.mark.slurm

SITES = tuple(site.name for site in layout.SITES)
ACCOUNTS = {"alpine": "vision", "boreal": "vis-grp", "cedar": "proj007"}
QOS = {"alpine": "urgent", "boreal": "high", "cedar": "q7"}  # all "urgent" to the federation
SWAPPED = {"vision1": "vision2", "vision2": "vision1"}  # each has an account of the other's name
TYPE = "big"  # as the federation calls it
FEATURE = "fast"  # so too; the testbed's nodes have the site's name of their type as a feature
OPTIONS = ("-A", "vision", "-p", "train", "--qos=urgent", "-N1")
SLEEPS = "#!/bin/sh\nsleep 300\n"


def setup(site: str) -> str:
    """What sacctmgr of a site is told: its own names, and of users vision2 alone.

    vision1 of the federation is vision2 at each site; the site's vision1 may submit nothing.
    """
    account = ACCOUNTS[site]
    return f"""
sacctmgr -iQ add qos {QOS[site]}
sacctmgr -iQ add account {account}
sacctmgr -iQ modify account {account} set qos=normal,{QOS[site]}
sacctmgr -iQ add user vision2 account={account}
"""


@pytest.fixture(scope="module")
def accounts(testbed: StateDir) -> Iterator[None]:
    with accounts_at(SITES, setup):
        yield


@pytest.fixture(scope="module")
def running(accounts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    made = Running(Path(tmp_path_factory.mktemp("names")))
    settings = yaml.safe_load(made.config.read_text())
    settings["gpus"] = {TYPE: settings["gpus"]["a100"]}
    for name, account in ACCOUNTS.items():
        site = settings["sites"][name]
        site["partitions"] = ["train"]
        site["names"] = {
            "partitions": {"train": "fed"},
            "gpu_types": {TYPE: layout.site(name).gpu_type},
            "accounts": {"vision": account},
            "features": {FEATURE: layout.site(name).gpu_type},
            "qos": {"urgent": QOS[name]},
            "users": SWAPPED,
        }
    made.config.write_text(yaml.safe_dump(settings))
    yield from lasting(made)


def test_one_submission_runs_wherever_all_that_it_names_is_called_otherwise(
    running: Running,
) -> None:
    options = (*OPTIONS, f"--gres=gpu:{TYPE}:2", "-C", FEATURE)
    ids = {site: running.submit(SLEEPS, *options, "-w", f"{site}:{site}-g1") for site in ACCOUNTS}
    for site, id_ in ids.items():
        row = running.await_state(id_, "RUNNING")
        assert (row["site"], row["tenant"], row["user"]) == (site, "vision", "vision1")
        job = str(row["site_job_id"])
        line = at(site, "squeue", "--noheader", f"--jobs={job}", "--format=%a %q %u %P %f %b")
        shown = line.split()
        gpu = layout.site(site).gpu_type
        assert shown[:5] == [ACCOUNTS[site], QOS[site], "vision2", "fed", gpu]
        assert gpu in shown[5]
    running.cancel_all()


def test_a_qos_is_found_in_any_case_and_one_that_no_site_has_is_refused(running: Running) -> None:
    id_ = running.submit("#!/bin/sh\n", "-A", "vision", "-p", "train", "--qos=URGENT", "-n1")
    assert running.await_end(id_)[0]["state"] == "COMPLETED"
    done = running.run("fsbatch", "--uid=vision1", "-Avision", "--qos=unheard-of", "--wrap=true")
    assert done.returncode == 1
    assert "Invalid qos specification" in done.stderr


@pytest.mark.parametrize("site", SITES)
def test_verify_tells_whether_a_site_has_the_names(running: Running, site: str) -> None:
    assert names_at(running, site, running.config) == [
        "ok",
        "Slurm knows the names that federation.yaml gives it",
    ]


def names_at(running: Running, site: str, config: Path) -> list[str]:
    """What ``federator site verify`` says of a site's names: a word, and the rest of the line."""
    done = running.run("federator", "site", "verify", site, f"--config={config}")
    lines = [line.split(None, 2)[1:] for line in done.stdout.splitlines() if line[:6] == "names "]
    return lines[0] if lines else ["", done.stdout + done.stderr]  # its agent may be away


@pytest.mark.parametrize("site", SITES)
def test_users_see_one_partition_by_one_name(running: Running, site: str) -> None:
    done = running.run("fsinfo", "--noheader", "-N", "-o", "%P %N")
    partitions = {line.split()[0] for line in done.stdout.splitlines() if site in line}
    assert {name.rstrip("*") for name in partitions} == {"train"}


@pytest.mark.parametrize("site", SITES)
def test_a_user_submits_asks_and_cancels_by_the_name_that_the_site_has(
    running: Running, site: str
) -> None:
    """vision1 is called vision2 at each site; the job runs at the next one."""
    there = SITES[SITES.index(site) - 1]
    options = (*OPTIONS, "--gres=gpu:1", f"--nodelist={there}:{there}-g1", "--parsable")
    done = at(site, "fsbatch", *options, stdin=SLEEPS, user="vision2")
    id_ = int(done.split(";")[0])
    row = running.await_state(id_, "RUNNING")
    assert (row["site"], row["user"]) == (there, "vision1")
    job = str(row["site_job_id"])
    shown = at(there, "squeue", "--noheader", f"--jobs={job}", "--format=%u %a %q")
    assert shown.split() == ["vision2", ACCOUNTS[there], QOS[there]]
    mine = at(site, "fsqueue", "--me", "--noheader", "--format=%i %u", user="vision2")
    assert f"{id_} vision1" in mine.splitlines()
    at(site, "fscancel", str(id_), user="vision2")
    running.await_state(id_, "CANCELLED")


def test_names_that_a_site_lacks_are_told_by_line_after_a_reload(running: Running) -> None:
    text = running.config.read_text()
    text = text.replace("urgent: q7", "urgent: q8").replace("vision: proj007", "vision: proj008")
    running.config.write_text(text)
    assert running.run("federator", "reload").returncode == 0

    def told() -> str:
        verdict, said = names_at(running, "cedar", running.config)
        return said if verdict == "fail" else ""

    said = within(60, told, 1.0)
    for what in ("urgent: q8", "vision: proj008"):
        (line,) = [k for k, each in enumerate(text.splitlines(), 1) if each.strip() == what]
        assert f"federation.yaml:{line}: " in said, said
        assert f"no {what.split()[1]} there" in said
    checked = running.run("federator", "check", "--sites", f"--config={running.config}")
    assert "no q8 there" in checked.stdout + checked.stderr
