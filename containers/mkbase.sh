#!/bin/sh
# Make the Debian base image TAG of release SUITE, unless it exists: pulled, or else bootstrapped.
#
# usage: mkbase.sh SUITE TAG        e.g.  mkbase.sh bookworm federator-base:bookworm
#
# Bootstrapping needs debootstrap, and root or sudo; it uses debootstrap's own default archive.
# Both give what SUITE is today; the site's Dockerfile checks what matters of it.
set -eu
PATH=$PATH:/usr/sbin:/sbin

# Docker itself soon gives up on a registry that does not answer; a slow one may take its time.
PULL_TIMEOUT_S=900
SCRIPTS=/usr/share/debootstrap/scripts

as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }

[ $# -eq 2 ] || { echo "usage: $0 SUITE TAG" >&2; exit 64; }
suite=$1
tag=$2

if docker image inspect "$tag" >/dev/null 2>&1; then
    echo "$tag exists"
    exit 0
fi

if timeout "$PULL_TIMEOUT_S" docker pull -q "debian:$suite-slim"; then
    docker tag "debian:$suite-slim" "$tag"
    echo "$tag pulled"
    exit 0
fi

command -v debootstrap >/dev/null || {
    echo "debian:$suite-slim cannot be pulled (see above), and debootstrap is missing:" \
        "apt-get install debootstrap" >&2
    exit 69
}

rootfs=$(mktemp -d "${TMPDIR:-/var/tmp}/mkbase.XXXXXX")
trap 'as_root rm -rf "$rootfs"' EXIT
trap 'exit 130' INT TERM
chmod 0755 "$rootfs"

# A release younger than this debootstrap has no script of its own; all recent ones are alike.
script=
[ -e "$SCRIPTS/$suite" ] || script=$SCRIPTS/sid
as_root debootstrap --variant=minbase --include=ca-certificates "$suite" "$rootfs" "" \
    ${script:+"$script"}

# Globs are for root to expand: bootstrapping may leave folders that others cannot read.
as_root sh -c 'cd "$1" && rm -rf var/cache/apt/archives/*.deb var/lib/apt/lists/* \
    var/log/bootstrap.log usr/share/doc/* usr/share/man/* usr/share/locale/*' - "$rootfs"
as_root tar -C "$rootfs" --numeric-owner -c . |
    docker import --change 'CMD ["bash"]' - "$tag" >/dev/null
echo "$tag bootstrapped"
