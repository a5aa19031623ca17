#!/bin/sh
# Start one Slurm cluster: munge, sshd, slurmctld and a slurmd per node; end it on TERM.
#
# Runs again after `docker restart`: accounts and keys are kept, leftovers of /run are cleared,
# and slurmctld recovers its jobs from StateSaveLocation.
set -eu

CONF=/etc/federator/testbed
GPUS_PER_NODE=8

clear_leftovers() {
    rm -rf /run/munge /run/slurmctld
    rm -f /run/*.pid /run/ready /run/federator/agent.sock
}

make_accounts() {
    getent group fedusers >/dev/null || groupadd --gid 1900 fedusers
    # The home of the federation's account exists already and stays root's: its owner could
    # otherwise replace authorized_keys, and with it the forced command.
    while read -r name uid shell group; do
        getent passwd "$name" >/dev/null && continue
        # A password of "*" matches none; "!" would lock the account for sshd as well.
        useradd --uid "$uid" --user-group --shell "$shell" --password '*' \
            --key HOME_MODE=0700 --home-dir "/home/$name" --create-home "$name"
        [ "$group" = - ] || usermod --append --groups "$group" "$name"
    done < "$CONF/accounts"
}

make_devices() {
    gpu=0
    while [ "$gpu" -lt "$GPUS_PER_NODE" ]; do
        # Slurm counts character devices only; /dev/null's numbers need no privilege.
        [ -e "/dev/fakegpu$gpu" ] || mknod --mode 0666 "/dev/fakegpu$gpu" c 1 3
        gpu=$((gpu + 1))
    done
}

make_directories() {
    install -d -o slurm -g slurm -m 0755 /run/slurmctld /var/lib/slurm/slurmctld
    install -d -m 0755 /var/lib/slurm/slurmd /run/sshd
    install -d -o slurm -g slurm -m 0755 /var/log/slurm
    install -d -o federator -g federator -m 0755 /run/federator
    install -d -o federator -g federator -m 0700 /var/lib/federator
    install -d -o federator -g federator -m 0755 /var/spool/federator
    install -d -o munge -g munge -m 0755 /run/munge
    install -d -o munge -g munge -m 0700 /etc/munge /var/lib/munge /var/log/munge
}

start_munge() {
    if [ ! -s /etc/munge/munge.key ]; then
        head -c 128 /dev/urandom > /etc/munge/munge.key
        chown munge:munge /etc/munge/munge.key
        chmod 0400 /etc/munge/munge.key
    fi
    su -s /bin/sh munge -c 'exec munged --force --origin=127.0.0.2'
}

fail_lost_jobs() {
    # Whatever ran here died with the container, and Slurm would take minutes to notice. A node
    # that goes down loses its jobs at once, and returns when its slurmd registers.
    until scontrol ping | grep -q 'is UP'; do sleep 0.1; done
    scontrol update nodename=ALL state=down reason='container restarted'
}

stop() {
    # slurmctld writes its state when told to end; docker would only kill it.
    pid=$(cat /run/slurmctld/slurmctld.pid 2>/dev/null) || exit 0
    kill -TERM "$pid" 2>/dev/null || exit 0
    tries=50
    while [ "$tries" -gt 0 ] && kill -0 "$pid" 2>/dev/null; do
        sleep 0.1
        tries=$((tries - 1))
    done
    exit 0
}

trap stop TERM INT
restarted=no
[ ! -e /var/lib/slurm/slurmctld/node_state ] || restarted=yes
clear_leftovers
make_accounts
make_devices
make_directories
start_munge
/usr/sbin/sshd -E /var/log/sshd.log
slurmctld
[ "$restarted" = no ] || fail_lost_jobs
while read -r node; do
    mkdir -p "/var/lib/slurm/slurmd/$node"
    slurmd -N "$node"
done < "$CONF/nodes"
touch /run/ready

sleep infinity &
wait $!
