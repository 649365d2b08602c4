#!/bin/sh
# Runs the examples of the library: each twice on one directory, and two of them after a kill -9.
# The session cache kills its own service. Takes a directory of built examples, or builds them.
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

examples=${1:-}
if [ -z "$examples" ]; then
    cargo build --locked -p lodestore --examples
    examples=${CARGO_TARGET_DIR:-target}/debug/examples
fi

echo "== hello, the program of the README"
mkdir "$dir/hello"
program=$PWD/$examples/hello
case $examples in /*) program=$examples/hello ;; esac
cd "$dir/hello"
echo | "$program"
echo | "$program"
mkfifo keys
"$program" <keys >line &
exec 3>keys
until [ -s line ]; do sleep 0.01; done
kill -9 $!
wait $! 2>/dev/null || true
exec 3>&-
cat line
[ "$(echo | "$program")" = "run 4: press Enter, or kill -9 this program" ]
cd - >/dev/null

for example in job_queue secondary_index pages session_cache backup; do
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

echo "== bulk_load, killed"
records=200000
"$examples/bulk_load" "$dir/bulk_load" $records >/dev/null 2>&1 &
sleep 0.3
kill -9 $! 2>/dev/null || echo "it had ended before"
wait $! 2>/dev/null || true
"$examples/bulk_load" "$dir/bulk_load" $records

echo "== bulk_load, longer"
more=200100
"$examples/bulk_load" "$dir/bulk_load" $more | grep " has $more keys"
