#!/bin/sh
# Installs the dependencies of the bench's peers (Debian 12, as root). With --check it only reports
# whether they are installed.
# The bench itself is then built with:  cargo build --release -p lodestore-bench --features peers
set -eu

packages="libleveldb1d libdb5.3 librocksdb7.8 liblmdb0 redis-server libhiredis0.14 memcached libmemcached11"
libraries="libleveldb.so.1d libdb-5.3.so librocksdb.so.7.8 liblmdb.so.0 libhiredis.so.0.14 libmemcached.so.11"
servers="redis-server memcached"

missing() {
    for library in $libraries; do
        if ! { ldconfig -p 2>/dev/null || /sbin/ldconfig -p; } | grep -q "[[:space:]]$library "; then
            echo "$library"
        fi
    done
    for server in $servers; do
        command -v "$server" >/dev/null || echo "$server"
    done
}

case "${1:-}" in
    --check) ;;
    "")
        if [ -n "$(missing)" ]; then
            if ! command -v apt-get >/dev/null; then
                echo "scripts/peers.sh: there is no apt-get here; have your system's packages give you:" $(missing) >&2
                exit 1
            fi
            if [ "$(id -u)" != 0 ]; then
                echo "scripts/peers.sh: packages are installed as root: sudo sh scripts/peers.sh" >&2
                exit 1
            fi
            apt-get update
            # The bench starts servers of its own: with this run level no service is started.
            for package in $packages; do
                RUNLEVEL=1 apt-get install --yes --no-install-recommends "$package" || echo "scripts/peers.sh: $package cannot be had here" >&2
            done
        fi
        ;;
    *)
        echo "usage: scripts/peers.sh [--check]" >&2
        exit 2
        ;;
esac

left=$(missing)
if [ -n "$left" ]; then
    echo "missing:" $left "(of Debian 12's packages $packages); the bench runs without those, and says so" >&2
    exit 1
fi
echo "the peers' libraries and servers are here:" $libraries $servers
