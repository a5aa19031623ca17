"""Templates of a site's small files: pure functions from names to text.

The testbed's sites have the same texts, so every test on real Slurm is a test of these. Names are
expected to be checked (``federator.site_installer.validation``); nothing here quotes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import yaml

from federator.slurm import helper_client

HELPER_PATH: Final = helper_client.HELPER_PATH
ACCOUNT: Final = "federator"  # the unprivileged account the daemon logs in to
USERS_GROUP: Final = "fedusers"  # whom that account may submit for
AGENT_CONFIG: Final = "/etc/federator/agent.yaml"
AGENT_SOCKET: Final = "/run/federator/agent.sock"
STATE_DIR: Final = "/var/lib/federator"
SPOOL_DIR: Final = "/var/spool/federator"
AUTHORIZED_KEYS: Final = "/etc/federator/authorized_keys"
FORCED_COMMAND: Final = f"/opt/federator/bin/federator agent --config {AGENT_CONFIG}"
LUA_MODULE: Final = "/opt/federator/share/job_submit/federator.lua"
SPANK_PLUGIN: Final = "/opt/federator/lib/slurm/spank_federator.so"
PROLOG_DIR: Final = "/etc/slurm/prolog.d"
EPILOG_DIR: Final = "/etc/slurm/epilog.d"


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One text file: where it goes, what is in it, and its permission bits."""

    path: str
    text: str
    mode: int = 0o644


def sudoers(account: str = ACCOUNT, group: str = USERS_GROUP) -> str:
    """Return the sudo rule: the account may run one helper, without arguments, as a user."""
    return (
        f"Defaults:{account} env_reset, !setenv, !lecture, passwd_tries=0\n"
        f"Defaults:{account} !env_keep, !env_check\n"
        f'Defaults:{account} secure_path = "/usr/sbin:/usr/bin:/sbin:/bin"\n'
        f'{account} ALL=(%{group}) NOPASSWD: {HELPER_PATH} ""\n'
    )


def authorized_keys(public_key: str) -> str:
    """Return the account's authorized_keys: the key runs the agent and nothing else."""
    return f'restrict,command="{FORCED_COMMAND}" {public_key.strip()}\n'


# What sshd must hold for the federation's account, wherever it is written.
SSHD_SETTINGS: Final = (
    "AuthenticationMethods publickey",
    "DisableForwarding yes",
    "PermitTTY no",
    "PermitTunnel no",
    "PermitUserRC no",
    "X11Forwarding no",
    "ClientAliveInterval 5",
    "ClientAliveCountMax 3",
)


def sshd_match(account: str = ACCOUNT) -> str:
    """Return the Match block for sshd: keys only, of a file that the account cannot write."""
    settings = (f"AuthorizedKeysFile {AUTHORIZED_KEYS}", *SSHD_SETTINGS)
    return f"Match User {account}\n" + "".join(f"    {line}\n" for line in settings)


def agent_yaml(site: str, spool_dir: str | None = None) -> str:
    """Return the configuration of the site's agent."""
    document = {"site": site, "socket": AGENT_SOCKET, "state_dir": STATE_DIR}
    if spool_dir is not None:
        document["spool_dir"] = spool_dir
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None)


def tmpfiles_conf(account: str = ACCOUNT) -> str:
    """Return the tmpfiles.d entry of the agent's socket, whose folder is lost at each boot."""
    return f"d /run/federator 0755 {account} {account}\n"


def admission_lua(partitions: Sequence[str], spool_dir: str | None, *more: str) -> str:
    """Return the rules of the job_submit plugin: the federation's partitions take tickets only.

    Without a spool there are no tickets, so no partition can be closed.

    Args:
        partitions: to close.
        spool_dir: None where there is none.
        more: rules beside these, each a field of a Lua table.
    """
    closed = ", ".join(f'"{partition}"' for partition in partitions if spool_dir is not None)
    rules = [f"closed = {{{closed}}}", *more]
    if spool_dir is not None:
        rules.insert(0, f'spool_dir = "{spool_dir}"')
    return "return {\n" + "".join(f"    {rule},\n" for rule in rules) + "}\n"


def plugstack_conf() -> str:
    """Return the line that loads our SPANK plugin; without the plugin it means nothing."""
    return f"optional {SPANK_PLUGIN}\n"


def node_json(
    partitions: Sequence[str], spool_dir: str | None, *, expected: str | None = None, **more: str
) -> str:
    """Return the configuration of a compute node's hooks: whom the gate is for, and the spool.

    Args:
        partitions: whose jobs pass through the gate.
        spool_dir: where leases are and reports go; None: there are none.
        expected: what a healthy node looks like, a file; None: where ``fed-gate record`` puts it.
        more: settings of all hooks beside these, such as where nvidia-smi is.
    """
    gate: dict[str, object] = {"partitions": list(partitions)}
    if expected is not None:
        gate["expected"] = expected
    if spool_dir is not None:
        gate["lease"] = {"dir": f"{spool_dir}/leases"}
        more_of_epilog = {"epilog": {"usage_dir": f"{spool_dir}/usage"}}
    else:
        more_of_epilog = {}
    return json.dumps({**more, "gate": gate, **more_of_epilog}, indent=2) + "\n"
