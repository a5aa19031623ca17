#!/usr/bin/env bash
# Build the Debian packages into dist/SUITE: packaging/build-deb.sh [--suite SUITE]… [--output DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
. containers/setup.sh
make_venv dev
start_dockerd
exec .venv/bin/federator testbed debs "$@"
