#!/bin/bash
# Record what sacct of three Slurms says: writes <release>/* anew. Needs docker and the images of
# the testbed (federator testbed up builds them). About three minutes, all at once.
# usage: record.sh [RELEASE SUITE CLUSTER]
set -eu
cd "$(dirname "$0")"
record() {
    local release=$1 suite=$2 cluster=$3 site name=federator-sacct-$3 log
    log=$(mktemp)
    site=$(docker images -q --filter "reference=federator-site:$suite-*" | head -1)
    docker build -q --build-arg SITE="$site" -t "federator-sacct:$suite" . >/dev/null 2>&1
    docker rm -f "$name" >/dev/null 2>&1 || true
    docker run --init --name "$name" --hostname "$cluster" "federator-sacct:$suite" "$cluster" \
        > "$log" 2>&1 || { tail -n 20 "$log" >&2; return 1; }
    rm -rf "${release:?}" && docker cp "$name:/dumps" "$release"
    docker rm -f "$name" >/dev/null
}
[ $# -gt 0 ] && { record "$@"; exit; }
record 22.05 bookworm alpha &
record 24.11 trixie beta &
record 26.05 forky gamma &
wait
