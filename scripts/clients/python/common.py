"""The test data and the checks that the Python clients share."""

import os
import sys

HOST = "127.0.0.1"
PORT = int(os.environ["SERVER_PORT"])
SOCKET = os.environ["SERVER_SOCKET"]

BINARY = bytes(range(256))
LARGE = BINARY * 4096
SCAN_KEYS = 1_000
HASH_FIELDS = 10_000


def expect(name, got, want):
    """Ends the program unless a reply is the expected one."""
    if got != want:
        sys.exit(f"{name}: got {shorten(got)}, expected {shorten(want)}")


def expect_true(name, holds):
    """Ends the program unless a condition holds."""
    if not holds:
        sys.exit(f"{name}: does not hold")


def shorten(value):
    """Returns the text of a value, cut to 200 characters."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


def fields():
    """Returns the fields and values of the large hash."""
    return {b"field:%05d" % i: b"value:%d" % i for i in range(HASH_FIELDS)}


def scan_keys(prefix):
    """Returns the keys that a scan must find."""
    return {f"{prefix}:scan:{i:04}".encode() for i in range(SCAN_KEYS)}


def phase():
    """Returns the phase that the command line names."""
    if len(sys.argv) != 2 or sys.argv[1] not in ("write", "check"):
        sys.exit(f"usage: {sys.argv[0]} write|check")
    return sys.argv[1]
