#!/bin/sh
# Checks the library without engines, with each engine alone, and with tracing.
# With --test it also runs the tests of each build. Examples in the docs need an engine.
set -eu
cd "$(dirname "$0")/.."

for features in "" hikv nvht fluidkv hashkv mkvs hikv,tracing; do
    echo "== lodestore with features: ${features:-none}"
    cargo clippy --locked -p lodestore --no-default-features --features "$features" -- -D warnings
    if [ "${1:-}" = --test ]; then
        cargo test --locked -p lodestore --no-default-features --features "$features" --lib --tests
        if [ -n "$features" ]; then
            cargo test --locked -p lodestore --no-default-features --features "$features" --doc
        fi
    fi
done
