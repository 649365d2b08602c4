#!/bin/sh
# redis-benchmark against the server, over TCP and a unix socket, RESP2 and RESP3.
# Usage: redis-benchmark.sh write|check
set -eu
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "redis-benchmark: $*"
    exit 1
}

# Runs a benchmark, and expects a rate for each of its tests.
run() {
    tests=$1
    shift
    redis-benchmark -q -n 5000 -r 1000 "$@" >"$work/output" 2>&1 || fail "$*: $(tail -n 5 "$work/output")"
    rates=$(tr '\r' '\n' <"$work/output" | grep -c 'requests per second' || true)
    [ "$rates" -eq "$tests" ] || fail "$*: $rates rates, expected $tests: $(tail -n 5 "$work/output")"
    if grep -i 'error' "$work/output"; then fail "$*"; fi
}

write() {
    commands=ping,set,get,incr,hset,mset
    run 7 -p "$SERVER_PORT" -t $commands
    run 7 -p "$SERVER_PORT" -t $commands -3 -P 16 -c 10
    run 7 -s "$SERVER_SOCKET" -t $commands -P 64 -d 1024 --threads 2
    run 1 -s "$SERVER_SOCKET" -c 1 hset bench:hash field:__rand_int__ value
}

check() {
    run 1 -s "$SERVER_SOCKET" -t get
    keys=$(redis-cli -s "$SERVER_SOCKET" --scan --pattern 'key:*' | wc -l)
    [ "$keys" -eq 1000 ] || fail "$keys keys after the restart, expected 1000"
}

"${1:?usage: redis-benchmark.sh write|check}"
redis-benchmark --version
