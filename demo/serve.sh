#!/bin/sh
# A server that is killed: `lodestore serve`, writes by redis-cli, kill -9, and the store again.
# The demo ends with an error if an acknowledged write is missing. The demo needs redis-cli
# (Debian: redis-tools), and takes a program that is built as its argument, or builds one.
set -eu
export LC_ALL=C

cd "$(dirname "$0")/.."
command -v redis-cli >/dev/null 2>&1 || { echo "demo: install redis-cli first (Debian: redis-tools)" >&2; exit 1; }
program=${1:-}
if [ -z "$program" ]; then
    echo '$ cargo build --release -p lodestore-cli'
    program=$(cargo build --locked --release -p lodestore-cli --message-format=json-render-diagnostics |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
fi
[ -x "$program" ] || { echo "demo: there is no program $program" >&2; exit 1; }
program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")
PATH=$(dirname "$program"):$PATH

base=${TMPDIR:-/tmp}
if [ -d /dev/shm ] && [ -w /dev/shm ]; then base=/dev/shm; fi
work=$(mktemp -d "$base/lodestore-serve.XXXXXX")
server=
clean() {
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' HUP INT TERM
cd "$work"

fail() {
    echo "demo: FAILED: $*" >&2
    cat log >&2 || true
    exit 1
}
# Starts the server and shows what it prints until it serves.
serve() {
    printf '$ lodestore serve %s &\n' "$*"
    lodestore serve "$@" >log 2>errors &
    server=$!
    tries=0
    until redis-cli -s socket ping >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || fail "the server does not answer"
        sleep 0.1
    done
    cat log
}
# Runs redis-cli, and compares its output with the first argument.
cli() {
    want=$1
    shift
    printf '$ redis-cli -s socket'
    for word in "$@"; do
        case $word in *' '*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '\n'
    got=$(redis-cli -s socket "$@")
    echo "$got"
    [ "$got" = "$want" ] || fail "expected: $want"
}

serve store --create --unix socket --port 0
cli OK set session:4711 'cart of Ada' ex 86400
cli 3 hset user:1 name Ada city London visits 1
cli 1 incr orders
echo '$ redis-benchmark -s socket -t set -n 200000 -r 100000 -P 16 -q'
redis-benchmark -s socket -t set -n 200000 -r 100000 -P 16 -q | tr '\r' '\n' | grep 'per second' | tail -n 1
keys=$(redis-cli -s socket dbsize)
echo "\$ redis-cli -s socket dbsize"
echo "$keys"
echo "\$ kill -9 $server"
kill -9 "$server"
wait "$server" 2>/dev/null || true

serve store --unix socket --port 0
cli 'cart of Ada' get session:4711
cli 2 hincrby user:1 visits 1
cli 2 incr orders
cli "$keys" dbsize
echo "\$ kill -TERM $server"
kill -TERM "$server"
wait "$server" || fail "the server ended with exit code $?"
server=
cat errors >&2
echo '# Done: nothing acknowledged was lost.'
