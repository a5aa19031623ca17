#!/bin/bash
# Record how three Slurms print reservations: writes <release>.txt anew. Needs a testbed that is up and
# idle; removes the reservations again. Ten seconds a site.
# usage: record.sh [CONTAINER_PREFIX]
set -eu
cd "$(dirname "$0")"
prefix=${1:-federator}
show() {
    echo "# $2"
    docker exec -e LC_ALL=C -e SLURM_TIME_FORMAT=%s "$1" scontrol -a -o show reservations 2>&1
}
record() {
    local release=$1 site=$2 at=$prefix-$2 name
    make() { docker exec "$at" scontrol create reservation "$@" >/dev/null; }
    {
        show "$at" none
        make reservationname=maint starttime=now+1hour duration=2:00:00 users=root flags=maint \
            nodes="$site-g1,$site-g2"
        make reservationname=daily starttime=now+2hours duration=1:00:00 users=root \
            flags=maint,daily,ignore_jobs nodes="$site-g3"
        make reservationname=weekday starttime=now+3hours duration=1:00:00 users=root \
            flags=weekday nodes="$site-g4"
        make reservationname=course starttime=now+1hour duration=infinite accounts=vision \
            nodes="$site-g5"
        make reservationname=half starttime=now+1hour duration=60 users=root corecnt=4 \
            nodes="$site-g6"
        make reservationname=denied starttime=now+4hours duration=60 users=-vision1 nodes="$site-g7"
        make reservationname=float starttime=now+5minutes duration=60 users=root flags=time_float \
            nodes="$site-g8"
        make reservationname=everything starttime=now+1day duration=60 users=root \
            flags=maint,overlap nodes=ALL
        make reservationname=now starttime=now duration=60 users=root flags=maint nodes="$site-c1"
        make reservationname=part starttime=now duration=60 users=root corecnt=2 nodes="$site-c2"
        sleep 2
        show "$at" ten
        echo "# nodes"
        docker exec -e LC_ALL=C -e SLURM_TIME_FORMAT=%s "$at" scontrol -a -d -o show nodes
        for name in maint daily weekday course half denied float everything now part; do
            docker exec "$at" scontrol delete reservationname=$name >/dev/null
        done
    } > "$release.txt"
}
record 22.05 alpine
record 24.11 boreal
record 26.05 cedar
