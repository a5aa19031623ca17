"""A plain site joins with the kit, works, finds its bad node, and leaves no trace when it goes."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncssh
import pytest
import yaml

from federator.site_installer import templates
from federator.testbed import layout
from federator.testbed.archive import ArchivedFile, files_below
from federator.testbed.layout import SiteLayout, StateDir
from tests.slurm import plain
from tests.slurm.federation import Running, within
from tests.slurm.plain import KIT, PlainSite

pytestmark = pytest.mark.slurm

LEAVE_WITHIN_S = 300.0
TICKING = "while :; do date +%s >>$HOME/ticks; sleep 1; done"


class Joined(Running):
    """A daemon whose one site is a plain one."""

    options = ()

    def __init__(self, folder: Path, site: PlainSite) -> None:
        self.folder = folder
        self.process = None
        self.config = folder / "federation.yaml"
        key = asyncssh.generate_private_key("ssh-ed25519", comment="federator")
        (folder / "key").touch(mode=0o600)
        (folder / "key").write_bytes(key.export_private_key())
        (folder / "key.pub").write_bytes(key.export_public_key())
        host = " ".join(site.host_key().split()[:2])
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{site.port} {host}\n")
        ssh = {"host": "127.0.0.1", "port": site.port, "key": "key", "known_hosts": "known_hosts"}
        self.config.write_text(
            yaml.safe_dump(
                {
                    "federation": "testbed",
                    "store": f"sqlite://{folder}/queue.db",
                    "socket": str(folder / "daemon.sock"),
                    "regions": {"here": {"shared": "/shared/here"}},
                    "gpus": {"a100": {"mem_gib": 80, "nvlink": True}},
                    "sites": {
                        site.layout.name: {
                            "region": "here",
                            "ssh": ssh,
                            "partitions": ["fed"],
                            "poll_interval_s": 0.5,
                        }
                    },
                    "tenants": {"vision": {"quota": {"gpus": 6}, "users": ["vision1", "gone"]}},
                }
            )
        )

    def site_command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        verb, *rest = arguments
        return self.run("federator", "site", verb, *rest, "--config", str(self.config))


@pytest.fixture
def state() -> StateDir:
    from federator.testbed import state as state_dir  # noqa: PLC0415

    state = StateDir.default()
    with state_dir.locked(state):
        state_dir.prepare(state)
    return state


@pytest.mark.parametrize("which", [[site.name for site in layout.SITES]], ids="+".join)
def test_a_plain_site_joins_works_and_leaves_no_trace(
    which: list[str], state: StateDir, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(len(which)) as pool:
        told = list(
            pool.map(lambda name: adopt_and_leave(layout.site(name), state, tmp_path / name), which)
        )
    print()
    for name, times in zip(which, told, strict=True):
        print(name, ", ".join(f"{what} {took_s:.1f} s" for what, took_s in times.items()))
    assert all(times["leave"] <= LEAVE_WITHIN_S for times in told)


def adopt_and_leave(layout: SiteLayout, state: StateDir, folder: Path) -> dict[str, float]:
    """All of it at one site; returns how long each step took."""
    folder.mkdir()
    site = plain.start(layout, state)
    try:
        before = site.everything()
        local = start_local_job(site)
        daemon = Joined(folder, site)
        times = {"join": timed(lambda: join(site, daemon))}
        try:
            daemon.start()
            times["verify"] = timed(lambda: all_is_ok(daemon, layout.name))
            a_workload_runs(daemon, site)
            times["bad node"] = timed(lambda: a_bad_node_is_found(daemon, site))
            left = daemon.submit("#!/bin/sh\nsleep 600\n", "--gpus=1")
            daemon.await_state(left, "RUNNING")
        finally:
            daemon.stop()
        times["leave"] = timed(lambda: leave(site))
        queued = ("squeue", "--noheader", "--format=%A")  # also what is just being ended
        within(60, lambda: site.run(*queued).split() == [local])
        assert_ran_all_the_time(site, local)
        after = site.everything()
        assert sorted(set(before) ^ set(after)) == []
    except BaseException:
        for log in ("/var/log/slurm/slurmctld.log", "/var/log/sshd.log"):
            print(site.tried("tail", "-n", "20", log).stdout)
        raise
    finally:
        site.container.remove(force=True, v=True)
    return times


def timed(act: Callable[[], None]) -> float:
    began_s = time.monotonic()
    act()
    return time.monotonic() - began_s


def start_local_job(site: PlainSite) -> str:
    done = site.run("sbatch", "--parsable", "--nodelist=n3", f"--wrap={TICKING}", user="localuser")
    job = done.strip()
    within(60, lambda: "RUNNING" in site.run("scontrol", "show", "job", job))
    return job


def assert_ran_all_the_time(site: PlainSite, job: str) -> None:
    def shown() -> str:
        return site.tried("scontrol", "show", "job", job).stdout

    within(60, lambda: "JobState=" in shown())  # slurmctld starts anew when it reads slurm.conf
    assert "JobState=RUNNING" in shown()
    assert "Restarts=0" in shown()
    ticks = [int(tick) for tick in site.run("cat", "/home/localuser/ticks").split()]
    assert max(later - sooner for sooner, later in itertools.pairwise(ticks)) <= 20
    again = site.run("sbatch", "--wait", "--wrap=true", user="localuser")  # and new ones start
    assert again.startswith("Submitted batch job")


def join(site: PlainSite, daemon: Joined) -> None:
    kit = daemon.folder / "kit"
    done = daemon.site_command(
        "render", site.layout.name, "--nodes", "n[1-2]", "--output", str(kit)
    )
    assert done.returncode == 0, done.stderr
    plain.wheels(site.layout, kit / "wheels")
    site.put(files_below(kit, KIT.lstrip("/")))
    site.run("install", "-D", plain.SPANK, f"{KIT}/files{templates.SPANK_PLUGIN}")
    shown = site.run(f"{KIT}/join.sh", "--role", "all", "--apply-includes", "--dry-run")
    assert "useradd" in shown
    assert "federator" not in site.run("getent", "passwd")
    print(site.run(f"{KIT}/join.sh", "--role", "all", "--apply-includes"))
    again = site.run(f"{KIT}/join.sh", "--role", "all", "--apply-includes")
    assert not [line for line in again.splitlines() if line.startswith("+ useradd")]
    print(again)


def all_is_ok(daemon: Joined, name: str) -> None:
    done = daemon.site_command("verify", name, "--user", "vision1", "--nodes", "n[1-2]")
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout


def a_workload_runs(daemon: Joined, site: PlainSite) -> None:
    id_ = daemon.submit("#!/bin/sh\nhostname\n", "--gpus=1")
    (row,) = daemon.await_end(id_)
    assert row["state"] == "COMPLETED", row


def a_bad_node_is_found(daemon: Joined, site: PlainSite) -> None:
    """A GPU falls off the bus; the proof names node, check and GPU, and jobs run elsewhere."""
    site.put([ArchivedFile(path=f"{plain.GPUS[1:]}/n2", data=b"ecc\n")])
    done = daemon.site_command(
        "verify", site.layout.name, "--user", "vision1", "--nodes", "n[1-2]", "--json"
    )
    assert done.returncode == 1, done.stdout
    failed = [f for f in json.loads(done.stdout)["findings"] if f["verdict"] == "fail"]
    (found,) = failed
    assert "n2" in found["check"] + found["detail"]
    assert "fed-gate: ecc: GPU 0" in found["detail"]
    assert "drain" in site.run("sinfo", "-h", "-n", "n2", "-o", "%T")
    site.run("rm", f"{plain.GPUS}/n2")
    site.run("scontrol", "update", "NodeName=n2", "State=RESUME")


def leave(site: PlainSite) -> None:
    print(site.run(f"{KIT}/leave.sh", "--apply-includes", "--cancel-jobs"))
