#!/bin/sh
# Prints how many records of 1,011 bytes fit into a default store of each engine on a small tmpfs.
# Usage: sh scripts/small-media.sh [MIB...]. The script builds the program, and leaves no files.
# Needs `unshare` (util-linux) and a kernel that gives a user a mount namespace.
set -eu
cd "$(dirname "$0")/.."
cargo build --locked --release --quiet -p lodestore-cli
program=$PWD/target/release/lodestore
if [ $# -eq 0 ]; then set -- 32 64 96 128; fi
directory=$(mktemp -d)
trap 'rm -r "$directory"' EXIT
export program directory
mkdir "$directory/medium"
awk 'BEGIN { value = sprintf("%1000s", ""); gsub(/ /, "v", value)
    for (i = 0; i < 140000; i++) printf "key%08d\t%s\n", i, value }' >"$directory/records.tsv"
unshare --user --map-root-user --mount sh -eu -s "$@" <<'INNER'
printf '| engine | medium | records | part of the medium |\n|---|---|---|---|\n'
for mib in "$@"; do
    for engine in hikv nvht fluidkv hashkv; do
        mount -t tmpfs -o "size=${mib}M" tmpfs "$directory/medium"
        if said=$("$program" create "$directory/medium/store" --engine "$engine" 2>&1); then
            # The import ends when the store is full.
            "$program" import "$directory/medium/store" "$directory/records.tsv" >/dev/null 2>&1 || true
            records=$("$program" count "$directory/medium/store")
            part=$((records * 1011 * 100 / (mib * 1048576)))
            printf '| %s | %s MB | %s | %s %% |\n' "$engine" "$mib" "$records" "$part"
        else
            printf '| %s | %s MB | refused: %s | |\n' "$engine" "$mib" "${said##*/store }"
        fi
        umount "$directory/medium"
    done
done
INNER
