#!/bin/sh
# Runs the clients of several languages against `lodestore serve`, and kills the server.
# Usage: scripts/clients.sh [PROGRAM [CLIENT...]]
# Each client writes, the server is killed (kill -9) and restarted, and the client reads back all
# that was acknowledged. A client whose packages cannot be fetched is reported as left out.
# LODESTORE_CLIENTS_CACHE names the directory of packages and builds (default: target/clients).
set -eu
export LC_ALL=C PYTHONDONTWRITEBYTECODE=1

FETCH_SECONDS=120
BUILD_SECONDS=600
RUN_SECONDS=120
START_TENTHS=300

cd "$(dirname "$0")/.."
sources=$PWD/scripts/clients
target=${CARGO_TARGET_DIR:-target}
cache=${LODESTORE_CLIENTS_CACHE:-$target/clients}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

program=${1:-}
[ $# -eq 0 ] || shift
wanted=$*
if [ -z "$program" ]; then
    cargo build --locked -p lodestore-cli
    program=$target/debug/lodestore
fi
[ -x "$program" ] || { echo "clients: there is no program $program" >&2; exit 1; }
program=$(cd "$(dirname "$program")" && pwd)/$(basename "$program")

base=${TMPDIR:-/tmp}
if [ -d /dev/shm ] && [ -w /dev/shm ]; then base=/dev/shm; fi
work=$(mktemp -d "$base/lodestore-clients.XXXXXX")
server=
clean() {
    [ -z "$server" ] || kill -9 "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' HUP INT TERM

# The clients read these variables, which are not options of the server.
export SERVER_SOCKET="$work/socket"

# Prints the reason and the files with details, and ends the script.
fail() {
    echo "clients: FAILED: $1" >&2
    shift
    cat "$@" >&2 || true
    exit 1
}

left_out=0
leave_out() {
    left_out=$((left_out + 1))
    echo "left out: $1: $2"
}

# Starts the server on a free port, and waits until it serves.
start_server() {
    : >"$work/log"
    "$program" serve "$work/store" --create --size 2G --unix "$SERVER_SOCKET" \
        --listen 127.0.0.1:0 --backup-dir "$work" >"$work/log" 2>>"$work/errors" &
    server=$!
    tenths=0
    until grep -q '^serving' "$work/log"; do
        tenths=$((tenths + 1))
        [ $tenths -lt $START_TENTHS ] || fail "the server does not serve" "$work/log" "$work/errors"
        kill -0 "$server" 2>/dev/null || fail "the server ended" "$work/log" "$work/errors"
        sleep 0.1
    done
    SERVER_PORT=$(sed -n 's/^listening .*127\.0\.0\.1:\([0-9]*\).*/\1/p' "$work/log")
    export SERVER_PORT
}

kill_server() {
    kill -9 "$server"
    wait "$server" 2>/dev/null || true
    server=
}

# Runs one phase of a client, and fails with the client's output.
run_phase() {
    name=$1
    phase=$2
    shift 2
    code=0
    timeout "$RUN_SECONDS" "$@" "$phase" >"$work/output" 2>&1 </dev/null || code=$?
    [ $code -eq 0 ] || fail "$name: phase $phase: exit code $code" "$work/output" "$work/errors"
}

clients=0
# Runs both phases of a client, with a kill of the server between them.
run_client() {
    name=$1
    shift
    is_wanted "$name" || return 0
    run_phase "$name" write "$@"
    kill_server
    start_server
    run_phase "$name" check "$@"
    clients=$((clients + 1))
    echo "passed: $(tail -n 1 "$work/output")"
}

# Whether the command line names this client, or none.
is_wanted() {
    case " ${wanted:-$1} " in *" $1 "*) return 0 ;; esac
    return 1
}

# Whether the command line names one of these clients, or none.
is_any_wanted() {
    for each in "$@"; do
        if is_wanted "$each"; then return 0; fi
    done
    return 1
}

# Reports all arguments but the first as left out if the command in the first is not installed.
need_command() {
    if command -v "$1" >/dev/null 2>&1; then return 0; fi
    missing=$1
    shift
    for each in "$@"; do leave_out "$each" "$missing is not installed"; done
    return 1
}

# Runs the function FETCH once for the present state of a directory of sources.
# Usage: fetch DIRECTORY FETCH CLIENT...
fetch() {
    directory=$1
    function=$2
    shift 2
    state=$(cd "$sources/$directory" && find . -type f -exec cksum {} + | sort | cksum)
    mkdir -p "$cache/$directory"
    [ "$(cat "$cache/$directory/fetched" 2>/dev/null)" != "$state" ] || return 0
    if (cd "$cache/$directory" && "$function") >"$work/fetch" 2>&1; then
        echo "$state" >"$cache/$directory/fetched"
        return 0
    fi
    reason=$(grep -i -m 1 'error' "$work/fetch" || grep -v '^ *$' "$work/fetch" | tail -n 1)
    reason=$(echo "${reason:-out of time}" | cut -c 1-200)
    for each in "$@"; do leave_out "$each" "cannot be fetched: $reason"; done
    return 1
}

# Runs a command that builds a client. Usage: build CLIENT COMMAND...
build() {
    built=$1
    shift
    # The parentheses keep the command's variables out of the script.
    ("$@") >"$work/build" 2>&1 || fail "$built: the build failed" "$work/build"
}

fetch_python() {
    python3 -m venv --clear environment &&
        timeout "$FETCH_SECONDS" environment/bin/pip install --quiet \
            --requirement "$sources/python/requirements.txt"
}

# Node.js finds modules next to a program, so the programs are copied.
fetch_node() {
    cp "$sources"/node/* . &&
    timeout "$FETCH_SECONDS" npm ci --engine-strict --ignore-scripts --no-audit --no-fund \
        --loglevel=error --cache "$cache/npm"
}

# The Go programs share their modules and the compiled standard library.
set_go_environment() {
    export GOMODCACHE="$cache/go/modules" GOCACHE="$cache/go/build" GOTOOLCHAIN=local CGO_ENABLED=0
}
fetch_go() {
    set_go_environment
    timeout "$FETCH_SECONDS" go -C "$sources/$client" mod download -modcacherw
}
# Without optimizations the standard library compiles in a third of the time.
build_go() {
    set_go_environment
    export GOPROXY=off
    timeout "$BUILD_SECONDS" go -C "$sources/$1" build -modcacherw -mod=readonly \
        '-gcflags=all=-N -l' '-ldflags=-s -w' -o "$cache/$1/program" .
}
fetch_java() {
    timeout "$FETCH_SECONDS" mvn --quiet --batch-mode --file "$sources/java/pom.xml" \
        "-Dmaven.repo.local=$cache/java/repository" dependency:copy-dependencies "-DoutputDirectory=$cache/java/jars"
}
build_java() {
    timeout "$BUILD_SECONDS" javac -d "$cache/java/classes" -cp "$cache/java/jars/*" "$sources"/java/*.java
}

fetch_rust() {
    timeout "$FETCH_SECONDS" cargo fetch --locked --quiet --manifest-path "$sources/rust/Cargo.toml"
}
build_rust() {
    timeout "$BUILD_SECONDS" cargo build --locked --offline --quiet --manifest-path "$sources/rust/Cargo.toml" \
        --target-dir "$cache/rust/target"
}

start_server

if is_any_wanted redis-cli redis-benchmark && need_command redis-cli redis-cli redis-benchmark; then
    run_client redis-cli sh "$sources/redis-cli.sh"
    run_client redis-benchmark sh "$sources/redis-benchmark.sh"
fi

python_clients="redis-py redis-py-asyncio django-redis Flask-Caching"
# shellcheck disable=SC2086 # the list is split into clients
if is_any_wanted $python_clients && need_command python3 $python_clients &&
    fetch python fetch_python $python_clients; then
    python=$cache/python/environment/bin/python
    run_client redis-py "$python" "$sources/python/redis_py.py"
    run_client redis-py-asyncio "$python" "$sources/python/redis_py_asyncio.py"
    run_client django-redis "$python" "$sources/python/django_redis_cache.py"
    run_client Flask-Caching "$python" "$sources/python/flask_caching_cache.py"
fi

if is_any_wanted ioredis node-redis && need_command npm ioredis node-redis &&
    fetch node fetch_node ioredis node-redis; then
    run_client ioredis node "$cache/node/ioredis.js"
    run_client node-redis node "$cache/node/node_redis.js"
fi

for client in go-redis go-ycsb; do
    if is_wanted $client && need_command go $client && fetch $client fetch_go $client; then
        build $client build_go $client
        run_client $client "$cache/$client/program"
    fi
done

if is_any_wanted jedis lettuce && need_command mvn jedis lettuce && need_command javac jedis lettuce &&
    fetch java fetch_java jedis lettuce; then
    build jedis build_java
    classes="$cache/java/classes:$cache/java/jars/*"
    run_client jedis java -cp "$classes" JedisClient
    run_client lettuce java -cp "$classes" LettuceClient
fi

if is_any_wanted redis-rs && need_command cargo redis-rs && fetch rust fetch_rust redis-rs; then
    build redis-rs build_rust
    run_client redis-rs "$cache/rust/target/debug/redis-rs-client"
fi

kill -TERM "$server"
code=0
wait "$server" || code=$?
server=
[ $code -eq 0 ] || fail "the server ended with exit code $code" "$work/errors"
echo "$clients clients passed, $left_out left out"
