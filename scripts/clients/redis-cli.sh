#!/bin/sh
# redis-cli against the server: plain commands, and the modes that inspect a server.
# Usage: redis-cli.sh write|check
set -eu
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cli() { redis-cli -p "$SERVER_PORT" "$@"; }

fail() {
    echo "redis-cli: $*"
    exit 1
}

# Compares the output of redis-cli with the first argument.
expect() {
    want=$1
    shift
    got=$(redis-cli -s "$SERVER_SOCKET" "$@")
    [ "$got" = "$want" ] || fail "$*: got '$got', expected '$want'"
}

# Expects a line that matches a pattern in a file.
expect_line() {
    grep -q -e "$2" "$1" || fail "no line '$2' in: $(tail -n 30 "$1")"
}

write_bytes() {
    head -c 1048576 /dev/zero | tr '\0' 'x' >"$work/large"
    cli -x set cli:large <"$work/large" >/dev/null
    printf 'a\0\r\n\377b' >"$work/binary"
    cli -x set cli:binary <"$work/binary" >/dev/null
    expect 6 strlen cli:binary
    [ "$(cli --no-raw get cli:binary)" = '"a\x00\r\n\xffb"' ] || fail "GET of bytes: $(cli --no-raw get cli:binary)"
}

# A stream of raw commands: 1,000 keys and a hash of 10,000 fields.
write_pipe() {
    awk 'BEGIN {
        for (i = 0; i < 1000; i++) printf "SET cli:scan:%04d %d\r\n", i, i
        for (i = 0; i < 10000; i++) printf "*4\r\n$4\r\nHSET\r\n$10\r\ncli:fields\r\n$11\r\nfield:%05d\r\n$5\r\n%05d\r\n", i, i
    }' | cli --pipe >"$work/pipe" || fail "--pipe: $(cat "$work/pipe")"
    expect_line "$work/pipe" 'errors: 0, replies: 11000'
    printf 'INCR cli:hash\r\nPING\r\n' | cli --pipe >"$work/pipe" 2>&1 || true
    expect_line "$work/pipe" 'errors: 1, replies: 2'
}

write_transaction() {
    printf 'MULTI\nSET cli:joined 1\nINCR cli:joined\nEXEC\n' | cli >"$work/exec"
    expect_line "$work/exec" '^2$'
    printf 'WATCH cli:joined\nMULTI\nINCR cli:joined\nDISCARD\n' | cli >"$work/discard"
    expect 2 get cli:joined
}

write() {
    expect OK set cli:string text
    expect OK set cli:hour text ex 3600
    expect OK mset cli:a 1 cli:b 2
    expect 42 incrby cli:counter 42
    expect 2 hset cli:hash name Ada visits 1
    expect 3 hincrby cli:hash visits 2
    expect "WRONGTYPE Operation against a key holding the wrong kind of value" incr cli:hash
    expect PONG -3 ping
    expect 1 -n 9 incr cli:other
    write_bytes
    write_pipe
    write_transaction
}

check() {
    expect text get cli:string
    [ "$(cli ttl cli:hour)" -gt 0 ] || fail "TTL: $(cli ttl cli:hour)"
    expect "$(printf '1\n\n2')" mget cli:a cli:none cli:b
    expect 42 get cli:counter
    expect 2 get cli:joined
    expect 1 -n 9 get cli:other
    expect "$(printf 'name\nAda\nvisits\n3')" hgetall cli:hash
    [ "$(cli --no-raw get cli:binary)" = '"a\x00\r\n\xffb"' ] || fail "GET of bytes"
    [ "$(cli get cli:large | tr -d 'x\n' | wc -c)" -eq 0 ] || fail "GET of 1 MiB"
    expect 1048576 strlen cli:large
    expect 10000 hlen cli:fields
    [ "$(cli hgetall cli:fields | sort -u | wc -l)" -eq 20000 ] || fail "HGETALL of 10,000 fields"
    check_modes
}

# The modes of redis-cli that read statistics or walk the keys.
check_modes() {
    [ "$(cli --scan --pattern 'cli:scan:*' | sort -u | wc -l)" -eq 1000 ] || fail "--scan"
    keys=$(cli dbsize)
    cli --bigkeys >"$work/bigkeys" || fail "--bigkeys: $(cat "$work/bigkeys")"
    expect_line "$work/bigkeys" "Sampled $keys keys in the keyspace"
    expect_line "$work/bigkeys" "Biggest   hash found .*has 10000 fields"
    expect_line "$work/bigkeys" "Biggest string found .*has 1048576 bytes"
    cli --memkeys >"$work/memkeys" || fail "--memkeys: $(cat "$work/memkeys")"
    expect_line "$work/memkeys" "Sampled $keys keys in the keyspace"
    expect_line "$work/memkeys" "Biggest string found .*has [0-9]* bytes"
    cli --latency --raw -i 1 >"$work/latency" || fail "--latency: $(cat "$work/latency")"
    expect_line "$work/latency" '^[0-9]* [0-9]* [0-9.]* [0-9]*$'
    # The mode counts the keys of all databases, and never ends by itself.
    keys=$((keys + $(cli -n 9 dbsize)))
    timeout 2 stdbuf -oL redis-cli -p "$SERVER_PORT" --stat -i 0.2 >"$work/stat" || true
    expect_line "$work/stat" "^$keys  *[0-9.]*[KMG]"
}

"${1:?usage: redis-cli.sh write|check}"
redis-cli --version
