#!/usr/bin/env bash
# Build the RPM packages into dist/el: packaging/build-rpm.sh [DIR]
set -euo pipefail
cd "$(dirname "$0")/.."
. containers/setup.sh
make_venv dev
start_dockerd
PYTHONPATH=packaging/build exec .venv/bin/python -m fedbuild.rpms "${1:-dist}"
