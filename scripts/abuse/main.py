"""Runs the cases of abuse against Lodestore and Redis, and prints a table."""

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import cases
from servers import Lodestore, Redis

HERE = os.path.dirname(os.path.abspath(__file__))


class Watcher:
    """The process that watches a server."""

    def __init__(self, server, password):
        arguments = [sys.executable, os.path.join(HERE, "watch.py"), str(server.process.pid), server.unix]
        self.process = subprocess.Popen(
            arguments + ([password] if password else []), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.order("idle")

    def order(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def end(self):
        figures = json.loads(self.order("end"))
        self.process.stdin.close()
        self.process.wait()
        return figures


def measure(kind, program, case):
    """Runs a case against a new server. Returns the figures and the case's note."""
    begin = time.monotonic()
    try:
        server = kind(program, case.options)
    except RuntimeError as error:
        print(f"{kind.name:9} {case.name:45} {error}", file=sys.stderr)
        return None
    try:
        case.prepare(server)
        watcher = Watcher(server, case.options.get("requirepass"))
        try:
            note = case.run(server)
        except (OSError, AssertionError) as error:
            note = f"failed: {error!r}"
        figures = watcher.end()
        figures["note"] = note
        figures["is_running"] = server.is_running()
    finally:
        server.stop()
    above = (figures["peak"] - figures["idle"]) / (1 << 20)
    state = "" if figures["is_running"] else " THE SERVER HAS ENDED"
    print(
        f"{kind.name:9} {case.name:45} {above:9.1f} MiB  longest {figures['longest'] * 1000:8.1f} ms  "
        f"wrong {figures['wrong']}/{figures['requests']}  {time.monotonic() - begin:5.1f} s  {note}{state}",
        file=sys.stderr,
        flush=True,
    )
    return figures


def mebibytes(figures):
    if figures is None:
        return "-"
    above = (figures["peak"] - figures["idle"]) / (1 << 20)
    return f"{above:.1f}" if above < 10 else f"{above:,.0f}"


def milliseconds(figures):
    if figures is None:
        return "-"
    if figures["wrong"]:
        return f"{figures['wrong']} wrong"
    return f"{figures['longest'] * 1000:,.0f}"


def cell(text):
    return text.replace("|", "\\|")


def print_table(rows):
    print("| clients | MiB | Redis | bounded by | other clients: longest wait, ms | Redis | reply |")
    print("|---|---:|---:|---|---:|---:|---|")
    for case, own, redis in rows:
        note = own["note"]
        if redis and redis["note"] != note:
            note += f"; Redis: {redis['note']}"
        memory = f"{mebibytes(own)} | {mebibytes(redis)}"
        waits = f"{milliseconds(own)} | {milliseconds(redis)}"
        print(f"| {cell(case.name)} | {memory} | {cell(case.bound)} | {waits} | {cell(note)} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--only", help="run the cases whose name contains this text")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--no-redis", action="store_true", help="leave out Redis")
    arguments = parser.parse_args()
    chosen = [case for case in cases.ALL if arguments.only is None or arguments.only in case.name]
    if arguments.list:
        print("\n".join(case.name for case in chosen))
        return 0
    raise_file_limit()
    # The servers are stopped too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    redis = None if arguments.no_redis else shutil.which("redis-server")
    rows, is_bad = [], False
    for case in chosen:
        own = measure(Lodestore, os.path.abspath(arguments.program), case)
        other = measure(Redis, redis, case) if redis and case.has_redis else None
        if own is None:
            is_bad = True
            continue
        rows.append((case, own, other))
        is_bad |= bool(own["wrong"]) or not own["is_running"] or own["note"].startswith("failed")
    print_table(rows)
    return 1 if is_bad else 0


def raise_file_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (25_000, hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
            return
        except (ValueError, OSError):
            continue


sys.exit(main())
