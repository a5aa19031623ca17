"""The running testbed is what the rest of the project takes it for."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from federator.testbed import cluster, inside
from federator.testbed import state as state_dir
from federator.testbed.layout import (
    CPU_NODES,
    GPU_NODES,
    HELPER,
    LOCAL_USER,
    NETWORK,
    NODES_PER_SITE,
    SITES,
    SiteLayout,
    StateDir,
)
from tests.slurm.federation import within

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("running")]
each_site = pytest.mark.parametrize("site", SITES, ids=lambda site: site.name)

GPU_JOB = """\
#!/bin/bash
#SBATCH --partition=local --nodes=2 --gres=gpu:8 --output={out}
srun bash -c 'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"'
"""


@pytest.fixture(scope="module")
def state() -> StateDir:
    return StateDir.default()


@pytest.fixture(scope="module")
def running(state: StateDir) -> list[cluster.SiteStatus]:
    """Bring the testbed up; nothing happens to sites that are up."""
    return cluster.up(state, SITES, lambda _site, _doing: None)


def said(site: SiteLayout, *command: str, user: str | None = None, stdin: str = "") -> str:
    """Return what a command that must succeed printed."""
    done = inside.execute(site, command, user=user, stdin=stdin)
    assert done.exit_status == 0, done
    return done.stdout


def ssh(
    state: StateDir,
    site: SiteLayout,
    *more: str,
    user: str = "federator",
    key_of: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ssh as the daemon would: the site's key, its pinned host key, nothing of ours."""
    options = {
        "UserKnownHostsFile": str(state.known_hosts),
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
        "ConnectTimeout": "15",
    }
    argv = ["ssh", "-F", "none", "-i", str(state.client_key(key_of or site.name))]
    argv += ["-p", str(state_dir.site_ports(state)[site.name])]
    for name, setting in options.items():
        argv += ["-o", f"{name}={setting}"]
    argv += [*more[:-1], f"{user}@127.0.0.1", *more[-1:]]
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=80, check=False
    )


@each_site
def test_each_site_runs_its_own_slurm_generation(site: SiteLayout) -> None:
    assert said(site, "sinfo", "--version").startswith(f"slurm-wlm {site.slurm}.")


@each_site
def test_every_node_is_up_in_both_partitions(site: SiteLayout) -> None:
    def all_idle() -> str:
        text = said(site, "sinfo", "--noheader", "--Node", "--format=%P %T")
        return text if text.split().count("idle") == 2 * NODES_PER_SITE else ""

    rows = within(60, all_idle).splitlines()
    assert rows.count("fed idle") == NODES_PER_SITE
    assert rows.count("local* idle") == NODES_PER_SITE


@each_site
def test_nodes_have_their_gpus_racks_and_features(site: SiteLayout) -> None:
    text = said(site, "sinfo", "--noheader", "--Node", "--partition=fed", "--format=%N|%G|%f|%c|%m")
    rows = {line.split("|")[0]: line.split("|")[1:] for line in text.split()}
    for name in GPU_NODES.names(site.name):
        gres, features, cpus, memory = rows[name]
        assert gres.startswith(f"gpu:{site.gpu_type}:8")
        assert features == f"nvlink,{site.gpu_type}"
        assert (cpus, memory) == ("64", "512000")
    for name in CPU_NODES.names(site.name):
        assert rows[name] == ["(null)", "(null)", "64", "256000"]
    topology = said(site, "scontrol", "show", "topology")
    (rack2,) = [line for line in topology.splitlines() if "SwitchName=rack2" in line]
    assert f"{site.name}-g[5-8]" in rack2


def test_users_have_another_uid_at_every_site() -> None:
    uids = {site.name: said(site, "id", "-u", "vision1").strip() for site in SITES}
    assert len(set(uids.values())) == len(SITES), uids


def test_sites_have_different_munge_keys() -> None:
    sums = {said(site, "sha256sum", "/etc/munge/munge.key") for site in SITES}
    assert len(sums) == len(SITES)
    credential = said(SITES[0], "munge", "--no-input")
    refused = inside.execute(SITES[1], ["unmunge"], stdin=credential)
    assert refused.exit_status != 0


@each_site
def test_plain_sbatch_over_two_nodes_sees_all_gpus(site: SiteLayout) -> None:
    out = f"gpus-{time.time_ns()}.out"
    script = GPU_JOB.format(out=out)
    job = said(site, "sbatch", "--parsable", user="vision1", stdin=script).strip()

    def ended() -> str:
        text = said(site, "scontrol", "--oneliner", "show", "job", job)
        return text if "JobState=COMPLETED" in text else ""

    within(60, ended)
    lines = said(site, "cat", out, user="vision1").splitlines()
    said(site, "rm", out, user="vision1")
    assert len(lines) == 2
    for line in lines:
        node, devices = line.split()
        assert node.startswith(f"{site.name}-g")
        assert devices == "0,1,2,3,4,5,6,7"


def test_sites_of_a_region_share_a_folder_and_others_do_not() -> None:
    alpine, boreal, cedar = SITES
    name = f"note-{time.time_ns()}"
    said(alpine, "tee", f"/shared/west/nlp1/{name}", user="nlp1", stdin="hello")
    assert said(boreal, "cat", f"/shared/west/nlp1/{name}", user="nlp1") == "hello"
    said(alpine, "rm", f"/shared/west/nlp1/{name}", user="nlp1")
    assert inside.execute(cedar, ["ls", "/shared/west"]).exit_status != 0


@each_site
def test_ssh_gives_the_forced_command_and_no_shell(state: StateDir, site: SiteLayout) -> None:
    done = ssh(state, site, "echo shell-$((40 + 2))")
    assert "shell-42" not in done.stdout
    assert "Host key verification failed" not in done.stderr
    assert done.returncode != 255, done.stderr  # 255 would be ssh's own failure to log in


@each_site
def test_ssh_forwards_no_ports(state: StateDir, site: SiteLayout) -> None:
    done = ssh(state, site, "-W", "127.0.0.1:6817", "true")
    assert done.returncode != 0
    done = ssh(state, site, "-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:22", "true")
    assert done.returncode == 255
    assert "forwarding failed" in done.stderr


@each_site
@pytest.mark.parametrize("user", ["root", "vision1"])
def test_ssh_lets_nobody_else_in(state: StateDir, site: SiteLayout, user: str) -> None:
    done = ssh(state, site, "true", user=user)
    assert done.returncode == 255
    assert "Permission denied" in done.stderr


def test_the_key_of_one_site_opens_no_other(state: StateDir) -> None:
    done = ssh(state, SITES[0], "true", key_of=SITES[1].name)
    assert done.returncode == 255
    assert "Permission denied" in done.stderr


@each_site
def test_sudo_allows_the_helper_as_federated_users_only(site: SiteLayout) -> None:
    rules = said(site, "sudo", "--non-interactive", "--list", user="federator")
    _, _, allowed = rules.partition("may run the following commands")
    assert allowed.splitlines()[1:] == [f'    (%fedusers) NOPASSWD: {HELPER} ""']
    for target, command in (
        ("vision1", [HELPER, "argument"]),
        ("vision1", ["/bin/true"]),
        (LOCAL_USER, [HELPER]),
        ("root", [HELPER]),
    ):
        argv = ["sudo", "--non-interactive", "--user", target, "--", *command]
        refused = inside.execute(site, argv, user="federator")
        assert refused.exit_status == 1, (target, command)
        assert "a password is required" in refused.stderr, (target, command)
    argv = ["sudo", "--non-interactive", "--user", "vision1", "--", HELPER]
    assert "password" not in inside.execute(site, argv, user="federator").stderr


@each_site
def test_the_helper_and_the_account_are_out_of_the_accounts_reach(site: SiteLayout) -> None:
    paths = [HELPER, "/opt/federator/lib/federator", "/home/federator/.ssh/authorized_keys"]
    for line in said(site, "stat", "--format=%U %a", *paths).splitlines():
        owner, mode = line.split()
        assert owner == "root"
        assert int(mode, 8) & 0o022 == 0
    assert said(site, "stat", "--format=%U %a", "/run/federator").split() == ["federator", "755"]
    state_mode = said(site, "stat", "--format=%U %a", "/var/lib/federator").split()
    assert state_mode == ["federator", "700"]


def test_exec_passes_stdin_and_exit_status_through() -> None:
    argv = [sys.executable, "-m", "federator.cli.testbed", "exec", "--user", "nlp1", "cedar", "--"]
    done = subprocess.run(
        [*argv, "sh", "-c", "cat; exit 7"],
        input="over\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "over\n")


def test_a_second_up_changes_nothing_and_takes_seconds(state: StateDir) -> None:
    argv = [sys.executable, "-m", "federator.cli.testbed", "up", "--json"]
    before = state.federation.read_text()
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert [site["ready"] for site in report["sites"]] == [True, True, True]
    assert report["elapsed_s"] < 30
    assert state.federation.read_text() == before


def test_a_site_cut_off_from_the_network_goes_on(state: StateDir) -> None:
    site = SITES[1]
    with cluster.connect() as client:
        network = client.networks.get(NETWORK)
        network.disconnect(site.container)
        try:
            assert ssh(state, site, "true").returncode == 255
            wait = ("sbatch", "--wait", "--output=/dev/null", "--wrap=srun true")
            said(site, *wait, user="bio1")
        finally:
            network.connect(site.container)
    within(40, lambda: "back" if ssh(state, site, "true").returncode != 255 else "")
