"""Renders the testbed's files: pure functions from layout to text.

Nothing here reads a file or talks to docker. ``site_files`` is the whole of one site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import yaml

from federator.site_installer import slurm_conf as ours
from federator.site_installer import templates
from federator.site_installer.templates import File
from federator.testbed.layout import (
    ACCOUNT,
    AGENT_CONFIG,
    CPU_NODES,
    GPU_NODES,
    LOCAL_USER,
    LOGIN_KNOWN_HOSTS,
    NIC_NODES,
    NICS,
    NODE_GROUPS,
    RACKS,
    SPOOL_DIR,
    TENANTS,
    USERS_GROUP,
    NodeGroup,
    SiteLayout,
    StateDir,
)

# Partitions that only the federation's agent may submit to, with tickets.
CLOSED_PARTITIONS: Final = ("fed",)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteKeys:
    """The SSH keys one site is set up with, in OpenSSH's text forms."""

    client_public: str
    host_private: str
    host_public: str
    hosts: Mapping[str, str]  # the public host key of every site's container


_SLURM_CONF_HEAD = """\
# The cluster lives on loopback, so that it goes on when its network is taken away; IPv6 is allowed
# because the C library refuses to look up IPv4 alone on a host with no other address.
ClusterName={name}
SlurmctldHost={name}(127.0.0.1)
SlurmUser=slurm
CommunicationParameters=EnableIPv6
AuthType=auth/munge
AuthInfo=cred_expire=5
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=10
KillWait=5
MinJobAge=300
MailProg=/bin/true

{prolog}
{prolog_flags}
{epilog}
{send_signal}
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
DefMemPerCPU=1000
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
GresTypes=gpu,nic
Licenses={licenses}
TopologyPlugin=topology/tree
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2,bf_interval=2,\
{no_hold}
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{job_submit}

JobCompType=jobcomp/filetxt
JobCompLoc=/var/log/slurm/jobcomp.log
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd/%n
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd-%n.log
"""


def slurm_conf(site: SiteLayout) -> str:
    """Return slurm.conf; the same text serves all three Slurm generations."""
    head = _SLURM_CONF_HEAD.format(
        name=site.name,
        licenses=site.licenses,
        prolog=ours.PROLOG,
        epilog=ours.EPILOG,
        job_submit=ours.JOB_SUBMIT,
        prolog_flags=ours.PROLOG_FLAGS,
        send_signal=ours.SEND_SIGNAL,
        no_hold=ours.NO_HOLD,
    )
    lines = [head]
    without_nics = GPU_NODES.count - len(NIC_NODES)
    lines += [
        _node_line(site, GPU_NODES, 1, without_nics, nics=0),
        _node_line(site, GPU_NODES, NIC_NODES[0], NIC_NODES[-1], nics=NICS),
        _node_line(site, CPU_NODES, 1, CPU_NODES.count, nics=0),
    ]
    nodes = ",".join(group.hostlist(site.name) for group in NODE_GROUPS)
    lines.append(ours.partition_line("fed", nodes, " GraceTime=20"))
    common = f"Nodes={nodes} MaxTime=INFINITE State=UP PriorityTier=1"
    lines.append(f"PartitionName=local Default=YES {common}")
    return "\n".join(lines) + "\n"


def _node_line(site: SiteLayout, group: NodeGroup, first: int, last: int, nics: int) -> str:
    """The nodes of a group from one number to another."""
    gres = [f"gpu:{site.gpu_type}:{group.gpus}"] if group.gpus else []
    gres += [f"nic:{nics}"] if nics else []
    of_gres = f" Gres={','.join(gres)}" if gres else ""
    features = f" Feature=nvlink,{site.gpu_type}" if group.gpus else ""
    return (
        f"NodeName={site.name}-{group.letter}[{first}-{last}] NodeAddr=127.0.0.1"
        f" Port=[{group.first_port + first - 1}-{group.first_port + last - 1}]"
        f" Sockets=2 CoresPerSocket={group.cpus // 2} ThreadsPerCore=1"
        f" RealMemory={group.mem_mib}{of_gres}{features}"
        " State=UNKNOWN"
    )


def gres_conf(site: SiteLayout) -> str:
    """Return gres.conf; character devices made by the entrypoint stand in for GPUs."""
    return (
        "AutoDetect=off\n"
        f"NodeName={GPU_NODES.hostlist(site.name)} Name=gpu Type={site.gpu_type}"
        f" File=/dev/fakegpu[0-{GPU_NODES.gpus - 1}]\n"
        f"NodeName={site.name}-g[{NIC_NODES[0]}-{NIC_NODES[-1]}] Name=nic Count={NICS}\n"
    )


def topology_conf(site: SiteLayout) -> str:
    """Return topology.conf: one leaf switch per rack under one spine."""
    leaves = [
        f"SwitchName={rack.name} Nodes={','.join(f'{site.name}-{part}' for part in rack.members)}\n"
        for rack in RACKS
    ]
    return "".join(leaves) + f"SwitchName=spine Switches={','.join(r.name for r in RACKS)}\n"


def sshd_config(site: SiteLayout) -> str:
    """Return sshd_config: keys only; of the agent's account nothing but the forced command."""
    lines = [
        "HostKey /etc/ssh/ssh_host_ed25519_key",
        f"AllowUsers {ACCOUNT} {' '.join(site.federated_users)}",
        "PermitRootLogin no",
        "PubkeyAuthentication yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "AuthorizedKeysFile .ssh/authorized_keys",
        "UsePAM no",
        "PermitUserEnvironment no",
        "MaxStartups 100",
        "UseDNS no",
        "PrintMotd no",
        "PidFile /run/sshd.pid",
    ]
    if site.penalties:  # every client of a published port has the same address
        lines.append("PerSourcePenalties no")
    lines += [f"Match User {ACCOUNT}", *templates.SSHD_SETTINGS]
    return "\n".join(lines) + "\n"


def admission_lua() -> str:
    """Return the rules of job_submit: the closed partitions, and advice for local users."""
    return templates.admission_lua(
        CLOSED_PARTITIONS, SPOOL_DIR, 'advice = { partitions = { "local" } }'
    )


def accounts(site: SiteLayout) -> str:
    """Return the table the entrypoint makes accounts from: name, UID, shell, group or ``-``."""
    rows = [f"{ACCOUNT} {site.account_uid} /bin/sh -"]
    for user, uid in site.uids:
        rows.append(f"{user} {uid} /bin/bash {'-' if user == LOCAL_USER else USERS_GROUP}")
    return "\n".join(rows) + "\n"


def node_names(site: SiteLayout) -> str:
    """Return the table of nodes the entrypoint starts a slurmd for, one per line."""
    return "".join(f"{name}\n" for group in NODE_GROUPS for name in group.names(site.name))


def node_json() -> str:
    """Return the configuration of the nodes' hooks; "%n" stands for a node's name."""
    return templates.node_json(
        ["fed"],
        SPOOL_DIR,
        expected="/etc/federator/testbed/expected/%n",
        nvidia_smi="/opt/federator/testbed/bin/nvidia-smi",
        sysfs="/etc/federator/testbed/sysfs/%n",
        kmsg="/etc/federator/testbed/kmsg/%n",
    )


def gpu_cases(site: SiteLayout) -> tuple[File, ...]:
    """Return the files that say which machine each node's nvidia-smi stands for: all are well."""
    folder = "/etc/federator/testbed/gpus"
    without = [name for group in NODE_GROUPS if not group.gpus for name in group.names(site.name)]
    return (
        File(path=f"{folder}/default", text=f"{site.gpu_type}-nvswitch\n"),
        *(File(path=f"{folder}/{name}", text="no-gpu\n") for name in without),
    )


def site_files(site: SiteLayout, keys: SiteKeys) -> tuple[File, ...]:
    """Return every file that makes the generic image into this site."""
    login = f"/home/{ACCOUNT}/.ssh/authorized_keys"
    return (
        File(path="/etc/slurm/slurm.conf", text=slurm_conf(site)),
        File(path="/etc/slurm/gres.conf", text=gres_conf(site)),
        File(path="/etc/slurm/topology.conf", text=topology_conf(site)),
        File(path="/etc/slurm/plugstack.conf", text=templates.plugstack_conf()),
        File(path="/etc/ssh/sshd_config", text=sshd_config(site)),
        File(path="/etc/ssh/ssh_host_ed25519_key", text=keys.host_private, mode=0o600),
        File(path="/etc/ssh/ssh_host_ed25519_key.pub", text=keys.host_public),
        File(path=LOGIN_KNOWN_HOSTS, text=login_known_hosts(keys.hosts)),
        File(path="/etc/sudoers.d/federator", text=templates.sudoers(), mode=0o440),
        File(path=AGENT_CONFIG, text=templates.agent_yaml(site.name, SPOOL_DIR)),
        File(path="/etc/federator/admission.lua", text=admission_lua()),
        File(path=login, text=templates.authorized_keys(keys.client_public)),
        # Where a pattern of Prolog= matches no file, Slurm drains the node.
        File(path="/etc/slurm/prolog.d/00-site", text="#!/bin/sh\nexit 0\n", mode=0o755),
        File(path="/etc/slurm/epilog.d/00-site", text="#!/bin/sh\nexit 0\n", mode=0o755),
        File(path="/etc/federator/node.json", text=node_json()),
        *gpu_cases(site),
        File(path="/etc/federator/testbed/accounts", text=accounts(site)),
        File(path="/etc/federator/testbed/nodes", text=node_names(site)),
    )


def known_hosts(entries: Mapping[int, str]) -> str:
    """Return known_hosts for published ports of loopback, port to public host key."""
    lines = [
        f"[127.0.0.1]:{port} {' '.join(public.split()[:2])}\n"
        for port, public in sorted(entries.items())
    ]
    return "".join(lines)


def login_known_hosts(hosts: Mapping[str, str]) -> str:
    """Return the known_hosts of users on login nodes: host name to public host key."""
    lines = [f"{name} {' '.join(key.split()[:2])}\n" for name, key in sorted(hosts.items())]
    return "".join(lines)


def federation_yaml(state: StateDir, ports: Sequence[tuple[SiteLayout, int]]) -> str:
    """Return the federation.yaml of a daemon that runs on the host.

    Args:
        state: where its store, socket and keys are.
        ports: the sites to list, each with its published SSH port.
    """
    document = {
        "federation": "testbed",
        "store": f"sqlite:///{state.root}/queue.db",
        "socket": f"{state.root}/daemon.sock",
        "policy": {
            "name": "mast",
            "pass_interval_s": 30,
            "launch_lease_s": 20,
            # So small a fleet could evict one node at a time with the usual 5 %.
            "preemption": {"grace_s": 30, "cooldown_s": 60, "budget_frac": 0.25},
        },
        "regions": {s.region: {"shared": f"/shared/{s.region}"} for s, _ in ports},
        "gpus": {
            "a100": {"mem_gib": 80, "nvlink": True, "weight": 1.0},
            "h100": {"mem_gib": 80, "nvlink": True, "weight": 2.0},
        },
        "storage": {region: {"mounts": mounts} for region, mounts in _mounts(ports).items()},
        "sites": {site.name: _site_entry(site, port) for site, port in ports},
        "tenants": {
            tenant.name: {
                "priority": tenant.priority,
                "quota": {"gpus": tenant.quota_gpus, "cpus": tenant.quota_cpus},
                "users": list(tenant.users),
            }
            for tenant in TENANTS
        },
    }
    return "# Written by `federator testbed up`; edits are lost at the next one.\n" + _yaml(
        document
    )


def _mounts(ports: Sequence[tuple[SiteLayout, int]]) -> dict[str, dict[str, str]]:
    """Each region's shared folder as a storage domain of its name: the path at each site."""
    mounts: dict[str, dict[str, str]] = {}
    for site, _ in ports:
        mounts.setdefault(site.region, {})[site.name] = f"/shared/{site.region}"
    return mounts


def _site_entry(site: SiteLayout, port: int) -> dict[str, object]:
    return {
        "region": site.region,
        "ssh": {
            "host": "127.0.0.1",
            "port": port,
            "user": ACCOUNT,
            "key": f"keys/{site.name}",
            "known_hosts": "keys/known_hosts",
        },
        "login": site.container,
        "partitions": ["fed"],
        "poll_interval_s": 0.5,
    }


def _yaml(document: object) -> str:
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None)
