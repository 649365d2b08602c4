#!/bin/sh
# Measures how much memory a server uses under clients that break the rules of the protocol.
#
#   sh scripts/abuse.sh [PROGRAM] [--only WORD] [--list]
#
# PROGRAM is `lodestore`, by default the one of a debug build. Redis runs the same cases if
# `redis-server` is installed. The table goes to standard output, and progress to standard error.
# The cases need python3, 8 GiB of memory, and 22,000 open files for the case of 10,000 clients.
set -eu
from=$PWD
cd "$(dirname "$0")/.."
case ${1:-} in
'' | --*) program=${CARGO_TARGET_DIR:-target}/debug/lodestore ;;
/*) program=$1 ;;
*) program=$from/$1 ;;
esac
case ${1:-} in
'' | --*) ;;
*) shift ;;
esac
exec python3 -B scripts/abuse/main.py "$program" "$@"
