#!/bin/sh
# Runs the examples of the library: each twice on one directory, and the job queue after a kill -9.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

cargo build --locked -p lodestore --examples
examples=${CARGO_TARGET_DIR:-target}/debug/examples

for example in job_queue secondary_index pages; do
    echo "== $example"
    "$examples/$example" "$dir/$example"
    "$examples/$example" "$dir/$example"
done

echo "== job_queue, killed"
"$examples/job_queue" "$dir/job_queue" >/dev/null &
sleep 0.05
kill -9 $! 2>/dev/null || echo "it had ended before"
wait $! 2>/dev/null || true
"$examples/job_queue" "$dir/job_queue"
