#!/usr/bin/env bash
# Make a release into dist/VERSION: packaging/release.sh --key KEY; see --help and docs/packaging.md.
set -euo pipefail
cd "$(dirname "$0")/.."
. containers/setup.sh
make_venv dev
start_dockerd
PYTHONPATH=packaging/build exec .venv/bin/python -m fedbuild.release "$@"
