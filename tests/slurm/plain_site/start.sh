#!/bin/sh
# Start a small Slurm cluster that knows nothing of any federation, as its own admin set it up.
set -eu
for name in localuser vision1; do
    useradd --user-group --shell /bin/bash --password '*' --create-home "$name"
done
for gpu in 0 1 2 3 4 5 6 7; do mknod --mode 0666 "/dev/fakegpu$gpu" c 1 3; done
install -d -o munge -g munge -m 0755 /run/munge
install -d -o munge -g munge -m 0700 /etc/munge /var/lib/munge /var/log/munge
head -c 128 /dev/urandom >/etc/munge/munge.key
chown munge:munge /etc/munge/munge.key
chmod 0400 /etc/munge/munge.key
su -s /bin/sh munge -c 'exec munged --force --origin=127.0.0.2'
ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
install -d -m 0755 /run/sshd
/usr/sbin/sshd -E /var/log/sshd.log
install -d -o slurm -g slurm -m 0755 /run/slurmctld /var/lib/slurm/slurmctld /var/log/slurm
install -d -m 0755 /var/lib/slurm/slurmd
slurmctld
for node in n1 n2 n3; do
    mkdir -p "/var/lib/slurm/slurmd/$node"
    slurmd -N "$node"
done
