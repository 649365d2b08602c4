#!/bin/sh
# Checks the library without engines, with each engine alone, with tracing and with the modes of the
# lab; and the program without the server.
# With --test it runs all tests of each build. Examples in the docs need an engine.
set -eu
cd "$(dirname "$0")/.."

for features in "" hikv nvht fluidkv hashkv mkvs hikv,tracing hikv,hashkv,lab; do
    echo "== lodestore with features: ${features:-none}"
    cargo clippy --locked -p lodestore --no-default-features --features "$features" -- -D warnings
    if [ "${1:-}" = --test ]; then
        cargo test --locked -p lodestore --no-default-features --features "$features" --lib --tests
        if [ -n "$features" ]; then
            cargo test --locked -p lodestore --no-default-features --features "$features" --doc
        fi
    fi
done

echo "== the program without the server"
cargo clippy --locked -p lodestore-cli --no-default-features -- -D warnings

# Refusals of engines and modes that are not compiled in, and events and spans of tracing.
for features in "" fluidkv; do
    cargo test --locked -p lodestore --no-default-features --features "$features" --test not_built
done
cargo test --locked -p lodestore --test lab
cargo test --locked -p lodestore --features tracing --lib trace::
