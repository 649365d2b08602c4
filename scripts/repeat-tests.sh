#!/bin/sh
# Runs the whole test suite several times: repeat-tests.sh [RUNS] [BUSY-RUNS] [CARGO-TEST-ARGS...]
# Runs it RUNS times (10 by default). In the first BUSY-RUNS of them (5 by default) busy loops keep
# every core busy. Stops at the first run that fails, prints its log, and exits with 1.
# Further arguments go to cargo test, for example: repeat-tests.sh 20 10 --test suite killed_log
set -eu
cd "$(dirname "$0")/.."

runs=${1:-10}
busy_runs=${2:-5}
if [ "$runs" -lt 1 ] || [ "$busy_runs" -lt 0 ] || [ "$busy_runs" -gt "$runs" ]; then
    echo "repeat-tests.sh: give a number of runs, and at most as many busy runs" >&2
    exit 2
fi
shift $(($# < 2 ? $# : 2))

log=$(mktemp)
loops=
stop_loops() {
    # shellcheck disable=SC2086
    [ -z "$loops" ] || kill $loops 2>/dev/null || true
    loops=
}
trap 'stop_loops; rm -f "$log"' EXIT
trap 'exit 130' INT TERM

# One loop for each core. A loop ends with this script, even if the script is killed.
start_loops() {
    for _ in $(seq "$(nproc)"); do
        while kill -0 $$ 2>/dev/null; do :; done &
        loops="$loops $!"
    done
}

# Without the build in the first run's time.
cargo test --locked --workspace --no-run "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
[ "$busy_runs" = 0 ] || start_loops
run=1
while [ "$run" -le "$runs" ]; do
    kind="on an idle machine"
    if [ "$run" -le "$busy_runs" ]; then kind="with every core busy"; else stop_loops; fi
    began=$(date +%s)
    if ! cargo test --locked --workspace "$@" >"$log" 2>&1; then
        cat "$log"
        echo "run $run of $runs, $kind: failed, see the log above" >&2
        exit 1
    fi
    passed=$(awk '/^test result: ok/ { sum += $4 } END { print sum + 0 }' "$log")
    echo "run $run of $runs, $kind: $passed tests passed in $(($(date +%s) - began)) s"
    run=$((run + 1))
done
