"""Record what three real slurmdbd say of jobs that are over: writes accounts/<release>.txt anew.

    python -m tests.contract.record_accounts [22.05 24.11 26.05]

Needs the testbed, idle, and ``apt-get install slurmdbd mariadb-server slurm-wlm-mysql-plugin`` in
each site's container: the testbed keeps no accounts. It is left as it was, but for these packages;
bring it down afterwards. About a minute.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

from federator.slurm.parse_accounts import SACCT_FIELDS
from federator.slurm.runner import Completed
from tests.contract.live import HOOKS, RULES, SITES, LiveHands
from tests.contract.runners import DockerRunner

ACCOUNTS: Final = Path(__file__).parent / "accounts"
SEPARATOR: Final = "<0123456789abcdef>"
HOSTILE: Final = "fed:4294974309:1 \n1<x>vision1<x>COMPLETED<x>0:0\n2|root|\x1f"
USER: Final = ("runuser", "-u", "vision1", "--", "env", "-C", "/tmp", "sbatch", "--parsable")

_START = """
mkdir -p /run/mysqld && chown mysql /run/mysqld
mariadbd-safe --skip-networking >/tmp/mariadb.log 2>&1 &
for turn in $(seq 100); do mariadb -e 'select 1' >/dev/null 2>&1 && break; sleep 0.2; done
mariadb -e "create user if not exists slurm@localhost identified by 'x';
  grant all on slurm_acct_db.* to slurm@localhost"
cat >/etc/slurm/slurmdbd.conf <<'CONF'
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageUser=slurm
StoragePass=x
LogFile=/tmp/slurmdbd.log
PidFile=/tmp/slurmdbd.pid
CONF
chown slurm /etc/slurm/slurmdbd.conf; chmod 600 /etc/slurm/slurmdbd.conf
[ ! -e /tmp/libmariadb.so.3 ] || export LD_PRELOAD=/tmp/libmariadb.so.3
slurmdbd; unset LD_PRELOAD
for turn in $(seq 100); do sacctmgr -n show cluster >/dev/null 2>&1 && break; sleep 0.2; done
state=/var/lib/slurm/slurmctld; mv $state/clustername /tmp/clustername  # it has another number
cp -p /etc/slurm/slurm.conf /etc/slurm/slurm.conf.aside
echo AccountingStorageType=accounting_storage/slurmdbd >>/etc/slurm/slurm.conf
echo AccountingStorageHost=localhost >>/etc/slurm/slurm.conf
sacctmgr -i add cluster "$1" >/dev/null 2>&1
sacctmgr -i add account research >/dev/null 2>&1
sacctmgr -i add user vision1 account=research >/dev/null 2>&1
"""
_STOP = """
mv /etc/slurm/slurm.conf.aside /etc/slurm/slurm.conf
mv /tmp/clustername /var/lib/slurm/slurmctld/clustername
kill $(cat /tmp/slurmdbd.pid); mariadb-admin shutdown
"""
_JOBS: Final = {  # options and script, by name
    "done": (("--comment=fed:4294974301:1 ticket=0f site words",), "#!/bin/sh\nexit 0\n"),
    "failed": (("--comment=fed:4294974302:1",), "#!/bin/sh\nexit 3\n"),
    "killed": (("--comment=fed:4294974303:1",), "#!/bin/sh\nkill -9 $$\n"),
    "timeout": (("--comment=fed:4294974304:2", "--time=1"), "#!/bin/sh\nsleep 150\n"),
    "running": (("--comment=fed:4294974305:1",), "#!/bin/sh\nsleep 900\n"),
    "cancelled": (("--comment=fed:4294974306:1", "--begin=now+900"), "#!/bin/sh\nsleep 900\n"),
    "het": (
        ("--comment=fed:4294974307:1", ":", "--comment=fed:4294974307:1"),
        "#!/bin/sh\nexit 0\n",
    ),
    "array": (("--comment=fed:4294974308:1", "--array=7"), "#!/bin/sh\nexit 0\n"),
    "hostile": ((f"--comment={HOSTILE}", f"--job-name={HOSTILE}"), "#!/bin/sh\nexit 0\n"),
    "requeued": (
        ("--comment=fed:4294974310:1", "--requeue"),
        '#!/bin/sh\n[ "$SLURM_RESTART_COUNT" ] || sleep 900\n',
    ),
}


async def record(release: str) -> None:
    """Play the jobs at one site and write what sacct says of them."""
    hands = LiveHands(SITES[release])

    async def root(*argv: str, stdin: bytes = b"") -> Completed:
        runner = DockerRunner(hands.container, user="root")
        return await runner.run(argv, stdin=stdin, timeout_s=120, env={"SLURM_TIME_FORMAT": "%s"})

    await hands.prepare()
    try:
        await hands.stop_controller()
        await root("bash", "-c", _START, "start", SITES[release])
        await hands.start_controller()
        ids = {}
        for name, (options, script) in _JOBS.items():
            done = await root(*USER, "--partition=local", *options, stdin=script.encode())
            ids[name] = int(done.stdout.split(b";")[0])
        await asyncio.sleep(6)
        await root("scancel", str(ids["cancelled"]))
        await root("scontrol", "requeue", str(ids["requeued"]))
        await asyncio.sleep(100)
        fields = ",".join(SACCT_FIELDS)
        told = await root(
            "sacct",
            "-n",
            "-P",
            "-X",
            "-D",
            f"--delimiter={SEPARATOR}",
            "-u",
            "vision1",
            "-S",
            "now-10minutes",
            "-o",
            fields,
        )
        ACCOUNTS.mkdir(exist_ok=True)
        (ACCOUNTS / f"{release}.txt").write_bytes(told.stdout)
        (ACCOUNTS / f"{release}.json").write_text(json.dumps(ids) + "\n", encoding="ascii")
        print(f"{release}: {len(told.stdout)} bytes; {told.stderr.decode()}")
    finally:
        await root("scancel", "-u", "vision1")
        await hands.stop_controller()
        await root("bash", "-c", _STOP)
        for path in (RULES, HOOKS):
            await root("mv", f"{path}.aside", path)
        await hands.start_controller()


async def main(releases: list[str]) -> None:
    """Record all releases at the same time."""
    await asyncio.gather(*(record(release) for release in releases or list(SITES)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
