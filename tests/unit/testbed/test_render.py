"""The testbed's files say what the sites need, and no more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from federator.site_installer import templates
from federator.testbed import render
from federator.testbed.layout import (
    LOCAL_USER,
    NODES_PER_SITE,
    SITES,
    TENANTS,
    SiteLayout,
    StateDir,
)

KEYS = render.SiteKeys(
    client_public="ssh-ed25519 AAAAclient comment\n",
    host_private="-----BEGIN OPENSSH PRIVATE KEY-----\n",
    host_public="ssh-ed25519 AAAAhost host\n",
    hosts={"federator-alpine": "ssh-ed25519 AAAA host alpine\n"},
)

each_site = pytest.mark.parametrize("site", SITES, ids=lambda site: site.name)


@each_site
def test_every_node_has_its_own_slurmd_port(site: SiteLayout) -> None:
    ranges = re.findall(r"Port=\[(\d+)-(\d+)\]", render.slurm_conf(site))
    ports = [port for first, last in ranges for port in range(int(first), int(last) + 1)]
    assert len(ports) == len(set(ports)) == NODES_PER_SITE


@each_site
def test_both_partitions_hold_all_nodes_and_only_local_is_default(site: SiteLayout) -> None:
    lines = [line for line in render.slurm_conf(site).splitlines() if "PartitionName" in line]
    fed, local = sorted(lines)
    assert fed.startswith("PartitionName=fed Default=NO")
    assert local.startswith("PartitionName=local Default=YES")
    for line in lines:
        assert f"Nodes={site.name}-g[1-8],{site.name}-c[1-2] " in line
        assert "PriorityTier=1" in line


@each_site
def test_slurm_conf_avoids_what_one_of_the_generations_rejects(site: SiteLayout) -> None:
    keys = {line.partition("=")[0] for line in render.slurm_conf(site).splitlines()}
    assert "PreemptParameters" not in keys  # breaks every command of 22.05
    assert "AccountingStorageTRES" not in keys  # fatal from 24.11 on without slurmdbd


@each_site
def test_gpu_type_is_the_same_word_in_slurm_conf_and_gres_conf(site: SiteLayout) -> None:
    assert f"Gres=gpu:{site.gpu_type}:8 Feature=nvlink,{site.gpu_type}" in render.slurm_conf(site)
    assert f"Type={site.gpu_type} File=/dev/fakegpu[0-7]" in render.gres_conf(site)


def test_a_cpu_node_has_no_gpus() -> None:
    (line,) = [
        line for line in render.slurm_conf(SITES[0]).splitlines() if "NodeName=alpine-c" in line
    ]
    assert "Gres" not in line


def test_topology_puts_each_rack_under_the_spine() -> None:
    assert render.topology_conf(SITES[0]) == (
        "SwitchName=rack1 Nodes=alpine-g[1-4],alpine-c1\n"
        "SwitchName=rack2 Nodes=alpine-g[5-8],alpine-c2\n"
        "SwitchName=spine Switches=rack1,rack2\n"
    )


def test_the_key_may_run_the_agent_only() -> None:
    assert templates.authorized_keys(KEYS.client_public) == (
        'restrict,command="/opt/federator/bin/federator agent'
        ' --config /etc/federator/agent.yaml" ssh-ed25519 AAAAclient comment\n'
    )


@each_site
def test_sshd_takes_keys_alone_and_of_the_agents_account_no_more_than_its_command(
    site: SiteLayout,
) -> None:
    everyone, _, of_the_account = render.sshd_config(site).partition("Match User federator\n")
    assert set(everyone.splitlines()) >= {
        f"AllowUsers federator {' '.join(site.federated_users)}",
        "PermitRootLogin no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
    }
    assert LOCAL_USER not in everyone
    assert set(of_the_account.splitlines()) >= {
        "AuthenticationMethods publickey",
        "DisableForwarding yes",
        "PermitTTY no",
        "ClientAliveInterval 5",
        "ClientAliveCountMax 3",
    }


@each_site
def test_users_know_every_login_node_by_its_pinned_key(site: SiteLayout) -> None:
    (file,) = [f for f in render.site_files(site, KEYS) if f.path == "/etc/ssh/ssh_known_hosts"]
    assert file.text == "federator-alpine ssh-ed25519 AAAA\n"


def test_an_sshd_that_does_not_know_a_key_is_not_given_it() -> None:
    knows = {site.name: "PerSourcePenalties no" in render.sshd_config(site) for site in SITES}
    assert knows == {"alpine": False, "boreal": True, "cedar": True}


def test_sudo_allows_one_helper_without_arguments_as_federated_users() -> None:
    rules = [line for line in templates.sudoers().splitlines() if not line.startswith("Defaults")]
    assert rules == [
        'federator ALL=(%fedusers) NOPASSWD: /opt/federator/libexec/fed-site-exec ""',
    ]


def test_sudo_keeps_nothing_of_the_callers_environment() -> None:
    text = templates.sudoers()
    assert "env_reset" in text
    assert "!setenv" in text
    assert "!env_keep" in text


def test_no_user_has_the_same_uid_at_two_sites() -> None:
    for user in ("vision1", "vision2", "nlp1", "bio1", LOCAL_USER):
        uids = {dict(site.uids)[user] for site in SITES}
        assert len(uids) == len(SITES), user


@each_site
def test_local_user_is_outside_the_federated_group(site: SiteLayout) -> None:
    groups = {row.split()[0]: row.split()[3] for row in render.accounts(site).splitlines()}
    assert groups.pop("federator") == "-"
    assert groups.pop(LOCAL_USER) == "-"
    assert set(groups.values()) == {"fedusers"}
    assert set(groups) == {user for tenant in TENANTS for user in tenant.users}


@each_site
def test_private_and_sudo_files_are_not_readable_by_all(site: SiteLayout) -> None:
    modes = {file.path: file.mode for file in render.site_files(site, KEYS)}
    assert modes["/etc/ssh/ssh_host_ed25519_key"] == 0o600
    assert modes["/etc/sudoers.d/federator"] == 0o440


@each_site
def test_nodes_table_names_each_node_once(site: SiteLayout) -> None:
    names = render.node_names(site).split()
    assert len(names) == len(set(names)) == NODES_PER_SITE
    assert names[0] == f"{site.name}-g1"
    assert names[-1] == f"{site.name}-c2"


def test_agent_yaml_has_the_agreed_keys() -> None:
    assert yaml.safe_load(templates.agent_yaml(SITES[0].name, "/var/spool/federator")) == {
        "site": "alpine",
        "socket": "/run/federator/agent.sock",
        "state_dir": "/var/lib/federator",
        "spool_dir": "/var/spool/federator",
    }


def test_known_hosts_pins_port_and_key_without_the_comment() -> None:
    text = render.known_hosts({2200: "ssh-ed25519 AAAAhost a comment\n"})
    assert text == "[127.0.0.1]:2200 ssh-ed25519 AAAAhost\n"


def test_federation_yaml_lists_the_given_sites_with_their_ports() -> None:
    state = StateDir(root=Path("/tb"))
    text = render.federation_yaml(state, [(SITES[0], 2200), (SITES[2], 2201)])
    document = yaml.safe_load(text)
    assert document["store"] == "sqlite:////tb/queue.db"
    assert document["socket"] == "/tb/daemon.sock"
    assert document["policy"]["name"] == "mast"
    assert document["policy"]["preemption"]["budget_frac"] * 192 >= 16  # two nodes may be evicted
    assert list(document["sites"]) == ["alpine", "cedar"]
    assert document["sites"]["cedar"] == {
        "region": "east",
        "ssh": {
            "host": "127.0.0.1",
            "port": 2201,
            "user": "federator",
            "key": "keys/cedar",
            "known_hosts": "keys/known_hosts",
        },
        "login": SITES[2].container,
        "partitions": ["fed"],
        "poll_interval_s": 0.5,
    }
    assert document["tenants"]["vision"]["users"] == ["vision1", "vision2"]
    assert {name: t["priority"] for name, t in document["tenants"].items()} == {
        "vision": 2,
        "nlp": 3,
        "bio": 4,
    }
