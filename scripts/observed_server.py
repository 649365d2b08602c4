"""A server with a load, for the scripts that observe it. Standard library only."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time

# Keys of the load.
KEYS = 5000
# Commands of one write to the socket.
PIPELINE = 16
# Writes to the socket for each command that fails.
ERROR_PERIOD = 20


def command(*arguments):
    """Returns a command as bytes of the Redis protocol."""
    parts = [a if isinstance(a, bytes) else str(a).encode() for a in arguments]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Client:
    """A connection that reads one line of each reply, which is enough for its commands."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=30)
        self.file = self.socket.makefile("rb")

    def run(self, *arguments):
        self.socket.sendall(command(*arguments))
        return self.reply()

    def run_all(self, *commands):
        """Sends commands in one write, and returns their replies."""
        self.socket.sendall(b"".join(command(*arguments) for arguments in commands))
        return [self.reply() for _ in commands]

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        if line[:1] == b"$" and line != b"$-1\r\n":
            return self.file.read(int(line[1:]) + 2)[:-2]
        if line[:1] == b"*":
            return [self.reply() for _ in range(int(line[1:]))]
        return line.strip()


class Server:
    """A server over a new store. The store is kept over kills, until `remove`."""

    def __init__(self, program, *flags):
        self.program = os.path.abspath(program)
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.directory = tempfile.TemporaryDirectory(prefix="lodestore-observed-", dir=parent)
        self.flags = list(flags)
        self.port, self.metrics_port = 0, 0
        self.start()

    def start(self):
        """Starts the server, and waits until it serves. A restart keeps the ports."""
        words = [self.program, "serve", "store", "--create", "--size", "256M", "--log-format", "json"]
        # The scripts make slow commands by DEBUG SLEEP.
        words += ["--enable-debug-command", "local"]
        words += ["--listen", f"127.0.0.1:{self.port}", "--metrics", f"127.0.0.1:{self.metrics_port}", *self.flags]
        log = open(os.path.join(self.directory.name, "log"), "ab")
        self.process = subprocess.Popen(words, cwd=self.directory.name, stdout=subprocess.PIPE, stderr=log)
        line = self.process.stdout.readline()
        if not line:
            with open(log.name, encoding="utf-8") as lines:
                raise SystemExit(f"the server did not start: {lines.read()}")
        banner = json.loads(line)
        self.address = ("127.0.0.1", int(banner["listening"].rsplit(":", 1)[1]))
        self.page = banner["status_page"]
        self.port, self.metrics_port = self.address[1], int(self.page.rstrip("/").rsplit(":", 1)[1])

    def client(self):
        return Client(self.address)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def remove(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        self.directory.cleanup()


class Load:
    """Commands of several kinds on a thread, until `stop`."""

    def __init__(self, server, pause=0.002):
        self.server, self.pause, self.is_stopping = server, pause, False
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        try:
            self.send_all(self.server.client())
        except OSError:
            # The server was killed.
            pass

    def send_all(self, client):
        number = 0
        while not self.is_stopping:
            batch = []
            for _ in range(PIPELINE):
                number += 1
                key = f"key:{number * 7919 % KEYS}"
                batch += [
                    ("SET", key, "x" * (number % 400), "PX", 60_000 if number % 3 else 50),
                    ("GET", f"key:{number * 104729 % (KEYS * 2)}"),
                    ("MGET", key, "key:1", "absent"),
                    ("HSET", f"hash:{number % 500}", f"field{number % 20}", number),
                    ("INCR", "counter"),
                ]
            if number % (PIPELINE * ERROR_PERIOD) == 0:
                batch.append(("INCR", "hash:1"))
            client.socket.sendall(b"".join(command(*words) for words in batch))
            for _ in batch:
                client.reply()
            time.sleep(self.pause)

    def stop(self):
        self.is_stopping = True
        self.thread.join()


def wait_for(condition, what, seconds=20):
    """Waits until a condition holds. Returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise SystemExit(f"not seen after {seconds} s: {what}")
        time.sleep(0.1)
