#!/bin/sh
# Runs the examples of the library, and the same programs with redb and fjall. Counts their lines.
# Each program runs twice on one directory. Three of them are also killed by kill -9.
# The session cache kills its own service. --count only counts. TMPDIR names the medium.
set -eu
cd "$(dirname "$0")/.."

stores="lodestore redb fjall"
programs="hello session_cache pages job_queue bulk_load secondary_index backup"

# Prints the source file of a program: source_of STORE PROGRAM.
source_of() {
    case $1 in
        lodestore) echo "crates/lodestore/examples/$2.rs" ;;
        *) echo "lab/peers/examples/$1_$2.rs" ;;
    esac
}

# Counts the lines of files that have code. Blank lines and comments are left out.
code_lines() { cat "$@" | grep -cvE '^[[:space:]]*(//|$)'; }

all_lines() { cat "$@" | wc -l; }

# Prints one row of the table: row TITLE PROGRAM...
row() {
    title=$1
    shift
    printf '| %s |' "$title"
    for store in $stores; do
        files=$(for program in "$@"; do source_of "$store" "$program"; done)
        # shellcheck disable=SC2086
        printf ' %s | %s |' "$(code_lines $files)" "$(all_lines $files)"
    done
    echo
}

count() {
    echo "| program | lodestore: code | all | redb: code | all | fjall: code | all |"
    echo "|---|---|---|---|---|---|---|"
    for program in $programs; do row "\`$program\`" "$program"; done
    # shellcheck disable=SC2086
    row "sum" $programs
}

if [ "${1:-}" = --count ]; then
    count
    exit
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cargo build --locked -p lodestore --examples
cargo build --locked -p lodestore-peers --features redb,fjall --examples
examples=$(cd "${CARGO_TARGET_DIR:-target}/debug/examples" && pwd)

# Prints the path of a built program: built STORE PROGRAM.
built() {
    case $1 in
        lodestore) echo "$examples/$2" ;;
        *) echo "$examples/$1_$2" ;;
    esac
}

# Kills hello after each acknowledged run, and compares the next run: kill_hello PROGRAM KILLS.
kill_hello() {
    mkfifo keys
    kills=0
    last=2
    while [ "$kills" -lt "$2" ]; do
        : >line
        "$1" <keys >line &
        exec 3>keys
        until [ -s line ]; do sleep 0.01; done
        kill -9 $!
        wait $! 2>/dev/null || true
        exec 3>&-
        [ "$(cat line)" = "run $((last + 1)): press Enter, or kill -9 this program" ]
        last=$((last + 1))
        kills=$((kills + 1))
    done
    [ "$(echo | "$1")" = "run $((last + 1)): press Enter, or kill -9 this program" ]
    echo "after $kills kills: run $((last + 1)), no acknowledged run is lost"
}

for store in $stores; do
    echo "== $store: hello, killed"
    mkdir "$dir/$store-hello"
    hello=$(built "$store" hello)
    (cd "$dir/$store-hello" && echo | "$hello" && echo | "$hello" && kill_hello "$hello" 10)
done

# Starts hello twice at once in new directories: race PROGRAM TIMES.
race() {
    exec 3<>keys
    both=0
    for turn in $(seq 1 "$2"); do
        mkdir "race$turn"
        cd "race$turn"
        for number in 1 2; do
            "$1" <&3 >"line$number" 2>"error$number" &
            pids="${pids:-} $!"
        done
        sleep 0.3
        for pid in $pids; do kill -9 "$pid" 2>/dev/null || true; done
        wait 2>/dev/null || true
        pids=
        [ -s line1 ] && [ -s line2 ] && both=$((both + 1))
        cat error1 error2 >../error
        cd ..
    done
    exec 3>&-
    echo "two at once, $2 times: both ran $both times, and the other was refused: $(sed 's/pid [0-9]*/pid N/' error)"
}

# Kills hello 0.3 ms, 0.6 ms and so on after its start, in new directories:
# kill_creation PROGRAM TIMES.
kill_creation() {
    exec 3<>keys
    refused=0
    for turn in $(seq 1 "$2"); do
        mkdir "creation$turn"
        cd "creation$turn"
        "$1" <&3 >line 2>error &
        sleep "$(printf '0.%04d' $((turn * 3)))"
        kill -9 $!
        wait $! 2>/dev/null || true
        if ! echo | "$1" >line 2>error; then
            refused=$((refused + 1))
            cp error ..
        fi
        cd ..
    done
    exec 3>&-
    echo "$2 creations killed: $refused of them cannot be opened or created again"
    [ "$refused" = 0 ] || echo "the last error: $(cat error)"
}

for store in $stores; do
    echo "== $store: hello, two at once, and killed while it creates the store"
    hello=$(built "$store" hello)
    (cd "$dir/$store-hello" && race "$hello" 10 && kill_creation "$hello" 200)
done

for program in session_cache pages job_queue secondary_index backup; do
    for store in $stores; do
        echo "== $store: $program"
        "$(built "$store" $program)" "$dir/$store-$program"
        "$(built "$store" $program)" "$dir/$store-$program"
    done
done

for store in $stores; do
    echo "== $store: job_queue, killed"
    program=$(built "$store" job_queue)
    "$program" "$dir/$store-job_queue" >/dev/null &
    sleep 0.05
    kill -9 $! 2>/dev/null || echo "it had ended before"
    wait $! 2>/dev/null || true
    "$program" "$dir/$store-job_queue"
done

records=1000000
for store in $stores; do
    echo "== $store: bulk_load, killed"
    program=$(built "$store" bulk_load)
    "$program" "$dir/$store-bulk_load" $records >/dev/null 2>&1 &
    sleep 0.3
    kill -9 $! 2>/dev/null || echo "it had ended before"
    wait $! 2>/dev/null || true
    echo "what survived:"
    "$program" "$dir/$store-bulk_load" 1
    echo "the rest:"
    "$program" "$dir/$store-bulk_load" $records
    rm -rf "$dir/$store-bulk_load"
done

echo
count
