"""A client that sends bytes as they are, and reads replies as far as a case needs them."""

import socket

# Longest wait for a reply in seconds.
REPLY_SECONDS_MAX = 120


def encode(*arguments):
    """Returns a command in the array form."""
    parts = [b"*%d\r\n" % len(arguments)]
    for argument in arguments:
        data = argument if isinstance(argument, bytes) else str(argument).encode()
        parts.append(b"$%d\r\n" % len(data))
        parts.append(data)
        parts.append(b"\r\n")
    return b"".join(parts)


class Client:
    """A connection over the unix socket, or over loopback TCP."""

    def __init__(self, server, is_tcp=False):
        if is_tcp:
            self.socket = socket.create_connection(("127.0.0.1", server.port))
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(server.unix)
        self.socket.settimeout(REPLY_SECONDS_MAX)
        self.buffer = bytearray()

    def send(self, data):
        self.socket.sendall(data)

    def send_until_refused(self, data, seconds):
        """Sends until the server accepts no more for `seconds`. Returns the number of bytes."""
        self.socket.settimeout(seconds)
        view, sent = memoryview(data), 0
        try:
            while sent < len(view):
                sent += self.socket.send(view[sent : sent + (1 << 20)])
        except OSError:
            pass
        self.socket.settimeout(REPLY_SECONDS_MAX)
        return sent

    def fill(self):
        """Reads more bytes. Returns whether there were any."""
        try:
            data = self.socket.recv(1 << 20)
        except (ConnectionResetError, BrokenPipeError):
            return False
        self.buffer += data
        return bool(data)

    def line(self):
        """Reads a line, or the bytes before the end of the connection. `None` is the end."""
        while True:
            end = self.buffer.find(b"\r\n")
            if end >= 0:
                line = bytes(self.buffer[:end])
                del self.buffer[: end + 2]
                return line
            if not self.fill():
                return None

    def skip(self, count):
        """Reads `count` bytes and forgets them. Returns whether all of them came."""
        while count > 0:
            if not self.buffer and not self.fill():
                return False
            step = min(count, len(self.buffer))
            del self.buffer[:step]
            count -= step
        return True

    def reply(self):
        """Reads a reply. Returns its first line, and the content of a short string."""
        line = self.line()
        if line is None:
            return None
        if line[:1] == b"$" and line != b"$-1":
            length = int(line[1:])
            if length > 1 << 16:
                return line if self.skip(length + 2) else None
            while len(self.buffer) < length + 2:
                if not self.fill():
                    return None
            content = bytes(self.buffer[:length])
            del self.buffer[: length + 2]
            return content
        if line[:1] in b"*>" and line not in (b"*-1", b"*0"):
            replies = [self.reply() for _ in range(int(line[1:]))]
            return replies if len(replies) < 8 else line
        return line

    def run(self, *arguments):
        self.send(encode(*arguments))
        return self.reply()

    def is_closed(self, seconds=2):
        """Whether the server closes the connection, after any bytes that are left."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(1 << 20):
                pass
            return True
        except TimeoutError:
            return False
        except OSError:
            return True
        finally:
            self.socket.settimeout(REPLY_SECONDS_MAX)

    def close(self):
        self.socket.close()
