"""Three sites name an account, a partition, a GPU type and a feature otherwise than users do.

The testbed's Slurms have no slurmdbd: they keep any account, and show it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from federator.testbed import layout
from federator.testbed.layout import StateDir
from tests.slurm.conftest import lasting
from tests.slurm.federation import Running, at

pytestmark = pytest.mark.slurm

ACCOUNTS = {"alpine": "vision", "boreal": "vis-grp", "cedar": "proj007"}
OTHERWISE = "cedar"
SWAPPED = {"vision1": "vision2", "vision2": "vision1"}  # each has an account of the other's name
TYPE = "big"  # as the federation calls it
FEATURE = "fast"  # so too; the testbed's nodes have the site's name of their type as a feature


@pytest.fixture(scope="module")
def running(testbed: StateDir, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
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
        }
    settings["sites"][OTHERWISE]["names"]["users"] = SWAPPED
    made.config.write_text(yaml.safe_dump(settings))
    yield from lasting(made)


def test_one_submission_runs_wherever_its_account_partition_type_and_feature_have_other_names(
    running: Running,
) -> None:
    options = ("-A", "vision", "-p", "train", f"--gres=gpu:{TYPE}:2", "-N1", "-C", FEATURE)
    ids = {
        site: running.submit("#!/bin/sh\nsleep 300\n", *options, "-w", f"{site}:{site}-g1")
        for site in ACCOUNTS
    }
    for site, id_ in ids.items():
        row = running.await_state(id_, "RUNNING")
        assert (row["site"], row["tenant"]) == (site, "vision")
        job = str(row["site_job_id"])
        shown = at(site, "squeue", "--noheader", f"--jobs={job}", "--format=%a %P %f %b").split()
        assert shown[:3] == [ACCOUNTS[site], "fed", layout.site(site).gpu_type]
        assert layout.site(site).gpu_type in shown[3]
    running.cancel_all()


def test_verify_tells_whether_a_site_has_the_names(running: Running) -> None:
    done = running.run("federator", "site", "verify", "cedar", f"--config={running.config}")
    (line,) = [line.split(None, 2) for line in done.stdout.splitlines() if line[:6] == "names "]
    assert line[1:] == ["ok", "Slurm knows the names that federation.yaml gives it"]


@pytest.mark.parametrize("site", [site.name for site in layout.SITES])
def test_users_see_one_partition_by_one_name(running: Running, site: str) -> None:
    done = running.run("fsinfo", "--noheader", "-N", "-o", "%P %N")
    partitions = {line.split()[0] for line in done.stdout.splitlines() if site in line}
    assert {name.rstrip("*") for name in partitions} == {"train"}


def test_a_user_runs_and_asks_by_the_name_that_the_site_has(running: Running) -> None:
    """vision1 is called vision2 at cedar."""
    script = "#!/bin/sh\nsleep 300\n"
    node = f"{OTHERWISE}:{OTHERWISE}-g1"
    id_ = running.submit(script, "-A", "vision", "-p", "train", "--gres=gpu:1", "-w", node)
    row = running.await_state(id_, "RUNNING")
    assert (row["site"], row["user"]) == (OTHERWISE, "vision1")
    job = str(row["site_job_id"])
    shown = at(OTHERWISE, "squeue", "--noheader", f"--jobs={job}", "--format=%u")
    assert shown.strip() == "vision2"
    mine = at(OTHERWISE, "fsqueue", "--me", "--noheader", "--format=%i %u", user="vision2")
    assert f"{id_} vision1" in mine.splitlines()
    at(OTHERWISE, "fscancel", str(id_), user="vision2")
    running.await_state(id_, "CANCELLED")
