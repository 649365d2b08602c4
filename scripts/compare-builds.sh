#!/bin/sh
# Compares two builds of the engines: compare-builds.sh REV [ENGINE...]
# Builds lodestore-bench of REV in a temporary git worktree, and of this tree. Then runs YCSB A
# and C with both programs in turn, and prints the ratios of their rates: above 1 is faster.
# Variables: ROUNDS (5), RECORDS (1000000), OPS (RECORDS), DIR (/dev/shm), PROFILE (release).
# docs/bench.md describes the options of the bench.
set -eu
cd "$(dirname "$0")/.."

[ $# -ge 1 ] || { sed -n '2,6s/^# //p' "$0" >&2; exit 2; }
rev=$(git rev-parse --verify "$1^{commit}")
shift
[ $# -ge 1 ] || set -- hikv nvht fluidkv hashkv mkvs
rounds=${ROUNDS:-5}
records=${RECORDS:-1000000}
ops=${OPS:-$records}
profile=${PROFILE:-release}

work=$(mktemp -d)
stores=$(mktemp -d "${DIR:-/dev/shm}/compare-builds.XXXXXX")
remove_all() {
    git worktree remove --force "$work/tree" 2>/dev/null || true
    rm -rf "$work" "$stores"
}
trap remove_all EXIT
trap 'exit 130' INT TERM

# Builds the bench of a tree, and prints the program's path: build TREE TARGET-DIRECTORY.
build() {
    (cd "$1" && cargo build --locked --profile "$profile" -p lodestore-bench --target-dir "$2" >&2)
    case $profile in
        dev) echo "$2/debug/lodestore-bench" ;;
        *) echo "$2/$profile/lodestore-bench" ;;
    esac
}

git worktree add --detach --quiet "$work/tree" "$rev"
old=$(build "$work/tree" "$work/target")
new=$(build . "$(realpath -m "${CARGO_TARGET_DIR:-target}")")

# Runs one build once, and appends "WORKLOAD RATE" lines: measure NAME PROGRAM ENGINE.
measure() {
    "$2" run --dir "$stores" --engine "$3" --peers none --workloads load,a,c --records "$records" \
        --ops "$ops" --rounds 1 --json >"$work/rows"
    sed -n 's/.*"workload":"\([ac]\)".*"ops_per_s":\([0-9.]*\).*/\1 \2/p' "$work/rows" >>"$work/$3-$1"
}

for round in $(seq "$rounds"); do
    for engine in "$@"; do
        # Each build is first in every second round.
        if [ $((round % 2)) = 1 ]; then
            measure old "$old" "$engine"
            measure new "$new" "$engine"
        else
            measure new "$new" "$engine"
            measure old "$old" "$engine"
        fi
    done
    echo "round $round of $rounds is done" >&2
done

echo "new / old, $rounds rounds of $records records and $ops operations; old is $(git rev-parse --short "$rev")"
echo "| engine | workload | median | lowest | highest |"
echo "|---|---|---|---|---|"
for engine in "$@"; do
    for workload in a c; do
        # The rounds of the two files are in the same order.
        paste "$work/$engine-old" "$work/$engine-new" | awk -v w="$workload" '$1 == w { print $4 / $2 }' | sort -n |
            awk -v e="$engine" -v w="$workload" '{ r[NR] = $1 } END { m = (r[int((NR + 1) / 2)] + r[int(NR / 2) + 1]) / 2
                printf "| %s | %s | %.3f | %.3f | %.3f |\n", e, w, m, r[1], r[NR] }'
    done
done
