#!/bin/sh
# Checks the status page of the server in headless Chromium, with a load.
# sh scripts/status-page.sh [PROGRAM [SCREENSHOTS]]: PROGRAM is the debug build by default. With a
# directory SCREENSHOTS the check needs two minutes, and stores pictures of the page there.
# CHROMIUM names the browser. `--check` returns by its exit code whether the tools are installed.
set -eu
cd "$(dirname "$0")/.."

browser=${CHROMIUM:-}
for name in chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v "$name" || true)
done
if [ -z "$browser" ] || ! command -v python3 >/dev/null 2>&1; then
    echo "status-page.sh: install python3 and chromium, or set CHROMIUM" >&2
    exit 1
fi
[ "${1:-}" != --check ] || exit 0

program=${1:-${CARGO_TARGET_DIR:-target}/debug/lodestore}
[ -x "$program" ] || cargo build --locked -p lodestore-cli
exec python3 -B scripts/status_page.py "$program" "$browser" ${2:+"$2"}
