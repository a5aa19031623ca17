#!/bin/sh
# In a container of one Debian release: make a package of each folder in /build/in.
#
# A folder has root/ (the files), DEBIAN/ (control and maintainer scripts), links (lines of
# "PATH TARGET") and perhaps spank/ (sources of the plug-in). Packages and what lintian says of each come to lie in /build/out.
set -eu

export SOURCE_DATE_EPOCH="$1"
mkdir -p /build/out

compile_spank() {
    make --quiet -C spank spank_federator.so
    strip --strip-unneeded spank/spank_federator.so
    install -D -m 0644 spank/spank_federator.so root/opt/federator/lib/slurm/spank_federator.so
}

for folder in /build/in/*/; do
    cd "$folder"
    date '+%T' # of the log of a build
    name=$(basename "$folder")
    [ ! -d spank ] || compile_spank
    while read -r path target; do
        mkdir -p "root/$(dirname "$path")"
        ln -s "$target" "root/$path"
    done < links
    mv DEBIAN root/DEBIAN
    (cd root && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z |
        xargs -0 md5sum) > root/DEBIAN/md5sums
    size=$(du --summarize --apparent-size --block-size=1024 --exclude=DEBIAN root | cut -f1)
    sed -i "s/^Architecture:/Installed-Size: $size\nArchitecture:/" root/DEBIAN/control
    find root -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz -z1 --build root "/build/out/$name.deb" > /dev/null
    lintian --allow-root --fail-on none --tag-display-limit 0 "/build/out/$name.deb" \
        > "/build/out/$name.lintian" 2>&1 || true
done
