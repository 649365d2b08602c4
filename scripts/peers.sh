#!/bin/sh
# Installs what the bench's peers need (Debian or Ubuntu, as root), or with --check only says whether it is here.
# The bench itself is then built with:  cargo build --release -p lodestore-cli --features peers
set -eu

packages="libleveldb1d libdb5.3 librocksdb7.8"
libraries="libleveldb.so.1d libdb-5.3.so librocksdb.so.7.8"

missing() {
    for library in $libraries; do
        if ! { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | grep -q "[[:space:]]$library "; then
            echo "$library"
        fi
    done
}

case "${1:-}" in
    --check) ;;
    "")
        if [ -n "$(missing)" ]; then
            apt-get update
            # shellcheck disable=SC2086
            apt-get install --yes --no-install-recommends $packages
        fi
        ;;
    *)
        echo "usage: scripts/peers.sh [--check]" >&2
        exit 2
        ;;
esac

left=$(missing)
if [ -n "$left" ]; then
    echo "missing:" $left "(packages: $packages)" >&2
    exit 1
fi
echo "the peers' libraries are here:" $libraries
