#!/bin/sh
# In a container: make a package of each folder in /build/in, which has a spec and SOURCES/.
#
# Packages and what rpmlint says of them come to lie in /build/out. Of a package that sites build
# anew, with a condition in its spec, the source package does, too.
set -eu

export SOURCE_DATE_EPOCH="$1"
export LC_ALL=C.UTF-8
mkdir -p /build/out

for folder in /build/in/*/; do
    date '+%T' # of the log of a build
    spec=$(echo "$folder"*.spec)
    kind=-bb
    ! grep -q '^%bcond_' "$spec" || kind=-ba
    rpmbuild "$kind" --quiet --define "_topdir ${folder%/}" --define '_buildhost reproducible' \
        --define 'use_source_date_epoch_as_buildtime 1' \
        --define 'clamp_mtime_to_source_date_epoch 1' "$spec"
    find "$folder/RPMS" "$folder/SRPMS" -name '*.rpm' -exec mv {} /build/out/ \;
done
cd /build/out
rpmlint --config /build/in/rpmlint.toml ./*.noarch.rpm ./*."$(uname -m)".rpm > lint 2>&1 || true
