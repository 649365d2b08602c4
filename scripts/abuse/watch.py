"""Watches a server from a process of its own: its memory, and how it answers other clients.

    python3 watch.py PID SOCKET

Each line of standard input is an order. `idle` prints the memory of the idle server, and `end`
prints the figures since then as JSON.

Memory is `RssAnon` of /proc/PID/status: the heap and the stacks of the process. The memory of a
store that is mapped is `RssShmem` or `RssFile`, and does not count. Two clients write and read keys
of their own all the time, and compare each reply.
"""

import json
import socket
import sys
import threading
import time

SAMPLE_SECONDS = 0.004
PAUSE_SECONDS = 0.002
VALUE = b"the value of another client"


def anonymous_bytes(pid):
    """Returns `RssAnon` in bytes, or `None` if the process has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) << 10
    except OSError:
        pass
    return None


class Watch:
    def __init__(self, pid, path, password):
        self.pid = pid
        self.peak = 0
        self.requests = 0
        self.wrong = 0
        self.longest = 0.0
        # When each client sent the request that is not answered yet.
        self.begun = [None, None]
        self.is_ending = False
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.sample)]
        for number in range(2):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(path)
            if password:
                connection.sendall(b"AUTH %s\r\n" % password)
                connection.recv(100)
            self.threads.append(threading.Thread(target=self.ask, args=(connection, number)))
        for thread in self.threads:
            thread.daemon = True
            thread.start()

    def sample(self):
        while not self.is_ending:
            used = anonymous_bytes(self.pid)
            self.peak = max(self.peak, used or 0)
            time.sleep(SAMPLE_SECONDS)

    def ask(self, connection, number):
        """Writes and reads a key, and notes the longest wait and wrong answers."""
        key = b"watch-%d" % number
        pairs = [
            (b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(key), key, len(VALUE), VALUE), b"+OK\r\n"),
            (b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key), b"$%d\r\n%s\r\n" % (len(VALUE), VALUE)),
        ]
        while not self.is_ending:
            for command, expected in pairs:
                begin = time.monotonic()
                self.begun[number] = begin
                try:
                    connection.sendall(command)
                    reply = b""
                    while len(reply) < len(expected):
                        data = connection.recv(4096)
                        if not data:
                            break
                        reply += data
                except OSError:
                    reply = b""
                elapsed = time.monotonic() - begin
                with self.lock:
                    self.requests += 1
                    self.wrong += reply != expected
                    self.longest = max(self.longest, elapsed)
                    self.begun[number] = None
                if reply == b"":
                    return
                time.sleep(PAUSE_SECONDS)


    def longest_wait(self):
        """Returns the longest wait, of an answered request or of one that waits."""
        with self.lock:
            waits = [time.monotonic() - begin for begin in self.begun if begin is not None]
            return max([self.longest, *waits])


def main():
    pid, path = int(sys.argv[1]), sys.argv[2]
    password = sys.argv[3].encode() if len(sys.argv) > 3 else b""
    watch = Watch(pid, path, password)
    idle = 0
    for order in sys.stdin:
        if order.strip() == "idle":
            time.sleep(0.2)
            idle = anonymous_bytes(pid) or 0
            with watch.lock:
                watch.peak, watch.requests, watch.wrong, watch.longest = idle, 0, 0, 0.0
            print(idle, flush=True)
        else:
            time.sleep(0.05)
            last = anonymous_bytes(pid)
            longest = watch.longest_wait()
            watch.is_ending = True
            figures = {
                "idle": idle,
                "peak": watch.peak,
                "last": last,
                "requests": watch.requests,
                "wrong": watch.wrong,
                "longest": longest,
            }
            print(json.dumps(figures), flush=True)
            return


main()
