#!/bin/sh
# Checks the metrics and the Grafana dashboard with a real Prometheus that scrapes servers under
# load.
# sh scripts/metrics.sh [PROGRAM]: PROGRAM is the debug build by default. `--check` returns by its
# exit code whether the tools are installed.
set -eu
cd "$(dirname "$0")/.."

if ! command -v prometheus >/dev/null 2>&1 || ! command -v promtool >/dev/null 2>&1 || ! command -v python3 >/dev/null 2>&1; then
    echo "metrics.sh: install prometheus, with its promtool, and python3" >&2
    exit 1
fi
[ "${1:-}" != --check ] || exit 0

program=${1:-${CARGO_TARGET_DIR:-target}/debug/lodestore}
[ -x "$program" ] || cargo build --locked -p lodestore-cli
exec python3 -B scripts/metrics.py "$program" "$(command -v prometheus)" "$(command -v promtool)"
