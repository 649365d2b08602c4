"""Servers under test: a process each, in a directory of its own, and removed at the end."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

START_SECONDS_MAX = 20


def free_port():
    """Returns a port of the loopback address that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A running server. `options` are Redis' names and values, which both servers accept."""

    name = ""

    def __init__(self, program, options):
        self.directory = tempfile.mkdtemp(prefix="abuse-", dir=self.parent())
        self.unix = os.path.join(self.directory, "socket")
        self.port = free_port()
        self.http_port = free_port()
        self.log = open(os.path.join(self.directory, "log"), "wb")
        self.process = subprocess.Popen(
            self.command(program, options), stdout=self.log, stderr=self.log, cwd=self.directory
        )
        self.wait_until_ready()

    @staticmethod
    def parent():
        return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

    def wait_until_ready(self):
        end = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < end:
            try:
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(self.unix)
                    return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.01)
        with open(os.path.join(self.directory, "log"), "rb") as log:
            raise RuntimeError(f"{self.name} did not start: {log.read().decode(errors='replace')}")

    def is_running(self):
        return self.process.poll() is None

    def stop(self):
        """Kills the server and removes its directory."""
        if self.is_running():
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Lodestore(Server):
    name = "Lodestore"

    def command(self, program, options):
        # The file takes the options by Redis' names.
        config = os.path.join(self.directory, "lodestore.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.writelines(f'{name} = "{value}"\n' for name, value in options.items())
        store = os.path.join(self.directory, "store")
        listen = [f"--listen=127.0.0.1:{self.port}", f"--unix={self.unix}", f"--metrics=127.0.0.1:{self.http_port}"]
        return [program, "serve", store, f"--config={config}", "--create", "--size=6G", "--threads=2", *listen]


class Redis(Server):
    name = "Redis"

    def command(self, program, options):
        flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        listen = ["--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", self.unix]
        return [program, "--save", "", "--appendonly", "no", *listen, *flags]
