#!/bin/sh
# The main job on real input, and two kills. The demo builds the program with few optimizations
# (profile "demo" in Cargo.toml) and without unused engines, since cargo needs most of the time: its
# rates are below a release's. The demo writes the names of all Unicode characters to a file,
# imports them, kills the program with kill -9 while the store is open, and then reads everything
# back. The demo ends with an error if anything differs from the input. Needs cargo and the usual
# small tools (coreutils, sed, grep). Leaves no files.
set -eu
export LC_ALL=C

cd "$(dirname "$0")/.."
# The default engine of a new store: hikv in memory, and fluidkv on a disk.
base=${TMPDIR:-/tmp} engines=hikv,fluidkv
if [ -d /dev/shm ] && [ -w /dev/shm ]; then base=/dev/shm engines=hikv; fi
set -- --profile demo -p lodestore-cli --no-default-features --features "$engines"
echo "\$ cargo build $*"
program=$(cargo build --locked "$@" --message-format=json-render-diagnostics |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
[ -x "$program" ] || { echo "demo: the program was not built" >&2; exit 1; }
echo "# This program has the engines that the demo uses: $engines. A release has all five."
PATH=$(dirname "$program"):$PATH

work=$(mktemp -d "$base/lodestore-demo.XXXXXX")
importer=
clean() {
    [ -z "$importer" ] || kill -9 "$importer" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' HUP INT TERM
cd "$work"

fail() {
    echo "demo: FAILED: $*" >&2
    exit 1
}
say() { printf '\n# %s\n' "$*"; }
# Shows a command and runs it.
run() {
    printf '$'
    for word in "$@"; do
        case $word in *' '*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
    done
    printf '\n'
    "$@"
}
# Shows a command and runs it. Its output must equal the first argument.
expect() {
    want=$1
    shift
    run "$@" >shown || fail "exit code $? of: $*"
    cat shown
    sed 1d shown >got
    printf '%s' "$want" >want
    # A value is written without a newline, a list with one.
    [ "$(cat got)" = "$(cat want)" ] || fail "the output of \"$*\" is not what was imported"
    [ -z "$(tail -c 1 got)" ] || echo
}
# Starts an import whose acknowledgements arrive in the pipe "acks", on descriptor 4.
begin() {
    printf '$ lodestore import %s --acks &\n' "$*"
    lodestore import "$@" --acks >acks &
    importer=$!
    exec 4<acks
}
# Reads acknowledgements until at least this many records are acknowledged.
await() {
    acked=0
    while [ "$acked" -lt "$1" ]; do
        read -r word acked <&4 || fail "the import ended too early"
        [ "$word" = acknowledged ] || fail "the import wrote: $word $acked"
    done
    echo "acknowledged $acked"
}
kill_importer() {
    kill -9 "$importer"
    echo "\$ kill -9 $importer"
    wait "$importer" 2>/dev/null || true
    importer=
    exec 4<&-
}

say "A data set: the name of every Unicode character, and what it is."
run lodestore sample names.tsv
records=$(wc -l <names.tsv | tr -d ' ')
[ "$records" -ge 100000 ] || fail "only $records records"
sort names.tsv >sorted.tsv
sed -n '/^GREEK SMALL LETTER ALPHA	/p;/^SNOWMAN	/p' names.tsv

say "Import all of it from a pipe that stays open, and kill the program when the last record is acknowledged."
run lodestore create store
mkfifo feed acks
begin store feed --format tsv
exec 3>feed
cat names.tsv >&3
await "$records"
kill_importer
exec 3>&-

say "Everything that was acknowledged is there."
for key in 'GREEK SMALL LETTER ALPHA' SNOWMAN 'LATIN CAPITAL LETTER A'; do
    expect "$(sed -n "s/^$key	//p" names.tsv)" lodestore get store "$key"
done
expect "$(sed -n '/^CAT FACE/p' sorted.tsv)" lodestore scan store --prefix 'CAT FACE'
expect "$(sed -n '/^GREEK SMALL LETTER/p' sorted.tsv | sort -r | sed 3q)" \
    lodestore scan store --prefix 'GREEK SMALL LETTER' --reverse --limit 3
expect "$records" lodestore count store
run lodestore stats store
run lodestore verify store || fail "verify found something"
echo '$ lodestore export store --format tsv | cmp - sorted.tsv'
lodestore export store --format tsv | cmp - sorted.tsv || fail "the export differs from the import"

say "Kill another import in its middle: what it acknowledged is there, and it can be run again."
run lodestore create second
begin second names.tsv
await 50000
kill_importer
echo '$ lodestore count second'
count=$(lodestore count second)
echo "$count"
[ "$count" -ge "$acked" ] || fail "$acked were acknowledged and $count are there"
echo "\$ head -n $acked names.tsv | sort | comm -23 - export-of-second.tsv | wc -l"
lodestore export second --format tsv >export-of-second.tsv
missing=$(head -n "$acked" names.tsv | sort | comm -23 - export-of-second.tsv | wc -l | tr -d ' ')
echo "$missing"
[ "$missing" = 0 ] || fail "$missing acknowledged records are missing"
comm -13 sorted.tsv export-of-second.tsv | grep -q . && fail "the store has records that were never imported"
run lodestore import second names.tsv
expect "$records" lodestore count second
run lodestore verify second || fail "verify found something"

say "Done: nothing acknowledged was lost."
