#!/bin/sh
# Builds a Debian package of the program, with the unit of its server.
# Usage: sh scripts/deb.sh [DIR]. The package is written to DIR (target/debian); needs dpkg-deb.
# LODESTORE_PROGRAM names a program that is built already.
set -eu
cd "$(dirname "$0")/.."
directory=${1:-target/debian}
program=${LODESTORE_PROGRAM:-}
if [ -z "$program" ]; then
    cargo build --locked --release --quiet -p lodestore-cli
    program=target/release/lodestore
fi
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
architecture=$(dpkg --print-architecture)
tree=$(mktemp -d)
trap 'rm -r "$tree"' EXIT
chmod 755 "$tree"

install -D -m 755 "$program" "$tree/usr/bin/lodestore"
strip "$tree/usr/bin/lodestore"
install -D -m 644 packaging/lodestore.service "$tree/usr/lib/systemd/system/lodestore.service"
install -D -m 640 packaging/lodestore.toml "$tree/etc/lodestore/lodestore.toml"
install -d "$tree/usr/share/doc/lodestore" "$tree/usr/share/man/man1" "$tree/usr/share/bash-completion/completions"
cat LICENSE-MIT LICENSE-APACHE >"$tree/usr/share/doc/lodestore/copyright"
"$program" man --dir "$tree/usr/share/man/man1" >/dev/null
gzip -9n "$tree"/usr/share/man/man1/*
"$program" completions bash >"$tree/usr/share/bash-completion/completions/lodestore"

# The program needs the C library it was linked with, or a newer one.
libc=$(objdump -T "$tree/usr/bin/lodestore" | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1 | cut -d _ -f 2)
install -d "$tree/DEBIAN"
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@DEPENDS@/libc6 (>= $libc), libgcc-s1/" \
    packaging/debian/control >"$tree/DEBIAN/control"
install -m 644 packaging/debian/conffiles "$tree/DEBIAN/conffiles"
for script in postinst prerm postrm; do
    install -m 755 "packaging/debian/$script" "$tree/DEBIAN/$script"
done
mkdir -p "$directory"
dpkg-deb --root-owner-group --build "$tree" "$directory/lodestore_${version}_$architecture.deb"
