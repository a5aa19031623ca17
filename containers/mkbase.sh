#!/bin/sh
# Make the Debian base image TAG of release SUITE, unless it exists: pulled, or else bootstrapped.
#
# usage: mkbase.sh SUITE TAG        e.g.  mkbase.sh bookworm federator-base:bookworm
#
# Bootstrapping needs root and debootstrap; it uses debootstrap's own default archive.
set -eu

PULL_TIMEOUT_S=15
SCRIPTS=/usr/share/debootstrap/scripts

[ $# -eq 2 ] || { echo "usage: $0 SUITE TAG" >&2; exit 64; }
suite=$1
tag=$2

if docker image inspect "$tag" >/dev/null 2>&1; then
    echo "$tag exists"
    exit 0
fi

if timeout "$PULL_TIMEOUT_S" docker pull -q "debian:$suite-slim" >/dev/null 2>&1; then
    docker tag "debian:$suite-slim" "$tag"
    echo "$tag pulled"
    exit 0
fi

command -v debootstrap >/dev/null || {
    echo "no image registry answers and debootstrap is missing: apt-get install debootstrap" >&2
    exit 69
}
[ "$(id -u)" -eq 0 ] || { echo "debootstrap needs root: run as root or with sudo" >&2; exit 77; }

rootfs=$(mktemp -d "${TMPDIR:-/var/tmp}/mkbase.XXXXXX")
trap 'rm -rf "$rootfs"' EXIT
trap 'exit 130' INT TERM
chmod 0755 "$rootfs"

# A release younger than this debootstrap has no script of its own; all recent ones are alike.
script=
[ -e "$SCRIPTS/$suite" ] || script=$SCRIPTS/sid
debootstrap --variant=minbase --include=ca-certificates "$suite" "$rootfs" "" ${script:+"$script"}

rm -rf "$rootfs"/var/cache/apt/archives/*.deb "$rootfs"/var/lib/apt/lists/* \
    "$rootfs"/var/log/bootstrap.log "$rootfs"/usr/share/doc/* "$rootfs"/usr/share/man/* \
    "$rootfs"/usr/share/locale/*
tar -C "$rootfs" --numeric-owner -c . | docker import --change 'CMD ["bash"]' - "$tag" >/dev/null
echo "$tag bootstrapped"
