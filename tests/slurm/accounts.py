"""Gives sites of the testbed accounts for a while: MariaDB and slurmdbd in their containers.

MariaDB's server alone is installed: it needs no client, no tables of rights, and 8 MB of download.
What was installed stays; slurm.conf and the state of slurmctld are put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from federator.testbed import inside, layout
from tests.slurm.federation import within

_INSTALL: Final = """
set -e
command -v slurmdbd mariadbd >/dev/null && exit
version=$(dpkg-query -W -f '${Version}' slurmctld)  # the archive may have a later one by now
apt-get update -q
DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
  mariadb-server-core slurmdbd=$version slurm-wlm-mysql-plugin=$version
"""
_TRY: Final = (
    'tries() { for turn in $(seq 150); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done; }'
)
# Without rights nobody needs a password. The client library of MariaDB 11.8.9 reads no answer on a
# connection that has made its database, so that the database has to be there before slurmdbd.
_START: Final = (
    _TRY
    + r"""
set -e
data=/var/lib/accounts-of-tests; run=/run/mysqld; conf=/etc/slurm/slurm.conf
rm -rf $data; install -d -o slurm $data $run
db() { mariadbd --no-defaults --user=slurm --datadir=$data --skip-networking \
  --innodb-flush-log-at-trx-commit=0 --innodb-log-file-size=8M "$@"; }
{ printf 'create database slurm_acct_db;\ncreate database if not exists mysql;\nuse mysql;\n'
  cat /usr/share/m*/m*_system_tables.sql; } | db --bootstrap >/var/log/slurm/bootstrap.log 2>&1
db --skip-grant-tables --socket=$run/mysqld.sock --pid-file=$run/pid >/var/log/slurm/db.log 2>&1 &
tries test -S $run/mysqld.sock
cat >/etc/slurm/slurmdbd.conf <<'TXT'
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmctld/slurmdbd.pid
TXT
chown slurm /etc/slurm/slurmdbd.conf; chmod 600 /etc/slurm/slurmdbd.conf
cp -p $conf $conf.without
cat >>$conf <<'TXT'
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
TXT
slurmdbd
tries sacctmgr -n show cluster
sacctmgr -iQ add cluster $(sed -n 's/^ClusterName=//p' $conf)
"""
)
_END: Final = (
    _TRY
    + r"""
conf=/etc/slurm/slurm.conf
[ -e $conf.without ] || exit 0
mv $conf.without $conf
kill $(cat /run/slurmctld/slurmdbd.pid); kill $(cat /run/mysqld/pid)
rm -rf /var/lib/accounts-of-tests /etc/slurm/slurmdbd.conf
"""
)
# A cluster that slurmdbd knows has another number in the state.
_RESTART: Final = (
    _TRY
    + r"""
gone() { ! kill -0 $1; }
name=/var/lib/slurm/slurmctld/clustername pid=$(cat /run/slurmctld/slurmctld.pid)
kill $pid; tries gone $pid; rm -f $name
slurmctld
daemons=$(cat /run/slurmd-*.pid)
kill $daemons; for pid in $daemons; do tries gone $pid; done
while read -r node; do slurmd -N $node; done </etc/federator/testbed/nodes
"""
)
_NOT_IDLE: Final = "sinfo -h -N -o '%N %t' | grep -v ' idle$' || true"


@contextmanager
def accounts_at(sites: tuple[str, ...], setup: Callable[[str], str]) -> Iterator[None]:
    """Sites keep accounts meanwhile; ``setup`` is what a site's sacctmgr is told, as a script."""

    def begin(site: str) -> None:
        _run(site, _INSTALL)
        _run(site, _START + setup(site))
        _restart(site)

    def end(site: str) -> None:
        _run(site, _END)
        _restart(site)

    with ThreadPoolExecutor(len(sites)) as pool:
        try:
            list(pool.map(begin, sites))
            yield
        finally:
            list(pool.map(end, sites))


def _restart(site: str) -> None:
    _run(site, _RESTART)
    within(60, lambda: _run(site, "scontrol ping | grep -q 'is UP' && echo up || true"))
    within(60, lambda: not _run(site, _NOT_IDLE))


def _run(site: str, script: str) -> str:
    done = inside.execute(layout.site(site), ("bash", "-c", script), timeout_s=300)
    assert done.exit_status == 0, f"{site}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout
