"""The README.txt beside join.sh: the steps that an admin takes, in their order."""

from __future__ import annotations

from typing import Final

from federator.site_installer.templates import ACCOUNT

_TEXT: Final = """\
{site} joins the federation "{federation}"
{underline}

This folder is the same for all machines of the site. Nothing in it is secret. All as root; every
step may be repeated, and shown beforehand with --dry-run. leave.sh takes back what join.sh did.

1. Choose the nodes. In slurm/*.conf, the file of your Slurm's generation: the line PartitionName,
   unless slurm.conf has the partition already. The federation needs nothing else of slurm.conf than
   what is in that file.

2. The agent's programs (Python 3.11 or later), on a machine that has a network and a checkout of
   the project, then carried along in this folder:
       python3 -m pip wheel --wheel-dir wheels CHECKOUT
   or install the package federator-site; join.sh sees that it is there. Where Python lacks its
   module ensurepip (Debian: python3-venv), put pip's own wheel into the folder as well:
       python3 -m pip download --no-deps --dest wheels pip

3. Optional, --fed options for plain sbatch: on a machine with your Slurm's headers and a compiler
   (Debian: libslurm-dev, gcc), then carried along in this folder:
       make -C slurm_plugins
       install -D -m 0644 slurm_plugins/spank_federator.so \\
           files/opt/federator/lib/slurm/spank_federator.so

4. Compute nodes first (prolog, epilog, watch, what jobs may import): every host with a slurmd, lent
   or not, and the image that nodes are installed from. Then the login node (agent, helper, account,
   sudo rule, key), then the controller (admission, slurm.conf):
       ./join.sh --role compute
       ./join.sh --role login
       ./join.sh --role controller --hooks-on-all-nodes
   Prolog and Epilog are settings of the whole cluster: a node without their folders is drained at
   its next job. Without --hooks-on-all-nodes they are not set; all else works.
   One machine that is the whole site: ./join.sh --role all.
   What join.sh does not do by itself, it lists at its end: lines of slurm.conf, sshd_config and
   job_submit.lua, which are yours. With --apply-includes it changes these too, in lines that are
   marked, after a copy (/etc/federator/before).
   Hooks are optional, each by itself: --without lua,spank,gate,epilog,watch, the same everywhere.

5. Where slurm.conf is not on a file system that all machines share, copy it and federator.conf,
   which lies beside it, as you always do. Then restart slurmctld and the slurmds, or
   scontrol reconfigure; running jobs do not mind.

6. The spool ({spool}) must be one folder for the agent's host, slurmctld's host and the
   compute nodes: mount it at the same path. The agent writes it; the others read it, and the
   compute nodes' root writes into leases/. Mount it before ./join.sh --role login.

7. Send the federation's admin the host key, by a way that both trust:
       cat /etc/ssh/ssh_host_ed25519_key.pub

The federation's admin puts it into known_hosts, the site into federation.yaml, restarts the daemon,
and proves that all is well:
       federator site verify {site} --config federation.yaml --user USER --nodes NODES

Upgrade: render the kit anew with the new release, and run join.sh again. What you changed in
/etc/federator stays.

Leave: on the controller, then login nodes, then compute nodes
       ./leave.sh --apply-includes --cancel-jobs
Where slurm.conf is copied to each host, copy it and run scontrol reconfigure after the controller:
a node whose Slurm still names our folders keeps them, and leave.sh says so.
Local users' jobs run on. In a hurry, this alone ends the federation's say at once:
       rm /etc/federator/authorized_keys /etc/sudoers.d/federator; pkill -KILL -u {account}
"""


def readme(site: str, federation: str, spool_dir: str | None = None, account: str = ACCOUNT) -> str:
    """Return the README of a site's kit."""
    title = f'{site} joins the federation "{federation}"'
    return _TEXT.format(
        site=site,
        federation=federation,
        underline="=" * len(title),
        spool=spool_dir or "if there is one",
        account=account,
    )
