#!/bin/bash
# Record what sacct of three Slurms says of what jobs used: writes <release>/* anew. Needs docker and
# the images of the testbed. About two minutes, all at once. Jobs: afternoon of ../sacct/play.sh.
# usage: record.sh [RELEASE SUITE]
set -eu
cd "$(dirname "$0")"
record() {
    local release=$1 suite=$2 site name=federator-usage-$2 log
    log=$(mktemp)
    site=$(docker images -q --filter "reference=federator-site:$suite-*" | head -1)
    docker build -q --build-arg SITE="$site" -t "federator-sacct:$suite" ../sacct >/dev/null 2>&1
    docker rm -f "$name" >/dev/null 2>&1 || true
    mkdir -p "$release"
    for gather in none linux; do
        docker run --init -e PLAY=usage -e GATHER=$gather -e GATHER_EVERY_S=1 -e CONSUMES=CR_Core_Memory \
            --name "$name" --hostname alpha "federator-sacct:$suite" alpha > "$log" 2>&1 ||
            { tail -n 20 "$log" >&2; return 1; }
        docker cp "$name:/dumps/usage.txt" "$release/$gather.txt"
        docker rm -f "$name" >/dev/null
    done
}
[ $# -gt 0 ] && { record "$@"; exit; }
record 22.05 bookworm &
record 24.11 trixie &
record 26.05 forky &
wait
