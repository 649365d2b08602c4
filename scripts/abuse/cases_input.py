"""Cases of input: half commands, slow writers, many connections, long pipelines, large values."""

import os
import select
import threading
import time

from case import Case, shown
from client import Client, encode

MIB = 1 << 20
VALUE_BYTES_MAX = 512 * MIB
HOLD_SECONDS = 1.0


def hold(clients):
    """Keeps connections open for some time, so that other clients meet them, and closes them."""
    time.sleep(HOLD_SECONDS)
    for client in clients:
        client.close()


def half_commands(server):
    clients = [Client(server) for _ in range(1000)]
    for client in clients:
        client.send(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$1000\r\nhalf a value")
    hold(clients)
    return "none: the commands wait"


def announced_values(server):
    clients = [Client(server) for _ in range(1000)]
    for client in clients:
        client.send(b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$%d\r\n" % VALUE_BYTES_MAX + b"x" * 10_000)
    hold(clients)
    return "none: the commands wait"


def slow_writers(server):
    clients = [Client(server, is_tcp=True) for _ in range(200)]
    command = encode("SET", "slow", "x" * 100)
    for byte in command:
        for client in clients:
            client.send(bytes([byte]))
    replies = {client.reply() for client in clients}
    for client in clients:
        client.close()
    return ", ".join(sorted(shown(reply) for reply in replies))


def idle_connections(server):
    clients = [Client(server) for _ in range(10_000)]
    hold(clients)
    return "none"


def idle_after_ping(server):
    clients = [Client(server) for _ in range(10_000)]
    for client in clients:
        assert client.run("PING") == b"+PONG"
    # Idle buffers are freed after some seconds.
    time.sleep(3)
    hold(clients)
    return "`+PONG`"


def too_many_connections(server):
    clients = [Client(server) for _ in range(1000)]
    time.sleep(HOLD_SECONDS)
    poll = select.poll()
    for client in clients:
        poll.register(client.socket, select.POLLIN)
    readable = {descriptor for descriptor, _ in poll.poll(0)}
    refused = [client for client in clients if client.socket.fileno() in readable]
    replies = {client.line() for client in refused}
    for client in clients:
        client.close()
    texts = ", ".join(sorted(shown(reply) for reply in replies))
    return f"{texts} to {len(refused)} clients"


def one_million_commands(server):
    client = Client(server)
    count = 1_000_000
    data = (encode("SET", "pipeline", "0123456789") + encode("GET", "pipeline")) * (count // 2)
    expected = len(b"+OK\r\n$10\r\n0123456789\r\n") * (count // 2)
    writer = threading.Thread(target=client.send, args=(data,))
    writer.start()
    is_whole = client.skip(expected)
    writer.join()
    client.close()
    return "all replies, in order" if is_whole else "closed"


def one_million_arguments(server):
    client = Client(server)
    pairs = 500_000
    arguments = [text for number in range(pairs) for text in (b"key:%d" % number, b"0123456789")]
    reply = client.run("MSET", *arguments)
    client.close()
    return shown(reply)


def largest_value(server):
    client = Client(server)
    client.send(b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$%d\r\n" % VALUE_BYTES_MAX)
    client.send(b"x" * VALUE_BYTES_MAX)
    client.send(b"\r\n")
    reply = client.reply()
    client.close()
    return shown(reply)


def too_large_value(server):
    client = Client(server)
    client.send(b"*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n$%d\r\n" % (VALUE_BYTES_MAX + 1))
    reply = client.reply()
    end = "closed" if client.is_closed() else "open"
    return f"{shown(reply)}, {end}"


def store_large_value(server):
    largest_value(server)


def largest_value_to_four(server):
    clients = [Client(server) for _ in range(4)]
    for client in clients:
        client.send(encode("GET", "large"))
    time.sleep(2)
    sizes = {client.reply() for client in clients}
    for client in clients:
        client.close()
    return ", ".join(shown(size) for size in sizes)


def many_large_values(server):
    """64 clients send 63 MiB of an argument each, and wait."""
    clients = [Client(server) for _ in range(64)]
    sent = 0
    for client in clients:
        head = b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$%d\r\n" % VALUE_BYTES_MAX
        sent += client.send_until_refused(head + b"x" * (63 * MIB), 1)
    open_count = sum(not client.is_closed(0.01) for client in clients)
    hold(clients)
    return "all clients stay" if open_count == len(clients) else "the largest clients are closed"


def unauthenticated(server):
    client = Client(server)
    client.send(b"*11\r\n")
    replies = [client.reply()]
    client = Client(server)
    client.send(b"*2\r\n$3\r\nGET\r\n$16385\r\n")
    replies.append(client.reply())
    # 1,000 strangers send as much as a stranger may.
    clients = [Client(server) for _ in range(1000)]
    half = b"*10\r\n" + (b"$16384\r\n" + b"x" * 16384 + b"\r\n") * 9 + b"$16384\r\n"
    for client in clients:
        client.send(half)
    hold(clients)
    return ", ".join(map(shown, replies))


def junk(data, is_tcp=True):
    """Returns a case that sends bytes, and tells how the server answers and closes."""

    def run(server):
        client = Client(server, is_tcp)
        client.send_until_refused(data, 2)
        client.socket.settimeout(1)
        try:
            reply = shown(client.reply())
        except TimeoutError:
            reply = "none"
        end = "closed" if client.is_closed(1) else "open"
        return end if reply == end else f"{reply}, {end}"

    return run


# A TLS 1.3 client's first message: 512 bytes of a handshake.
TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\nSET stolen 1\r\n"
HOST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

INPUT_BOUND = "bytes received; `client-query-buffer-limit` for each client"
ARGUMENTS_BOUND = "no memory for an announced count"

CASES = [
    Case("1,000 clients with half a command", INPUT_BOUND, half_commands),
    Case("1,000 clients announce 512 MiB and send 10 KB", INPUT_BOUND, announced_values),
    Case("64 clients send 63 MiB of an argument", INPUT_BOUND, many_large_values),
    Case(
        "64 clients send 63 MiB, `maxmemory-clients 1gb`",
        "`maxmemory-clients`",
        many_large_values,
        {"maxmemory-clients": "1gb"},
    ),
    Case("200 clients send a byte at a time", INPUT_BOUND, slow_writers),
    Case("10,000 connections that send nothing", "`maxclients`", idle_connections, {"maxclients": 10_100}),
    Case("10,000 connections, idle after a PING", "`maxclients`", idle_after_ping, {"maxclients": 10_100}),
    Case("1,000 connections, `maxclients 202`", "`maxclients`", too_many_connections, {"maxclients": 202}),
    Case("1,000,000 commands in one write", "256 KiB read in a tick", one_million_commands),
    Case("MSET of 1,000,000 arguments", "`client-query-buffer-limit`; 65,536 keys of a write", one_million_arguments),
    Case("SET of 512 MiB", "`proto-max-bulk-len`, as input and as record", largest_value),
    Case("SET of 512 MiB and one byte", "`proto-max-bulk-len`", too_large_value),
    Case(
        "GET of 512 MiB by four clients at once",
        "a reply for each client; `maxmemory-clients`",
        largest_value_to_four,
        prepare=store_large_value,
    ),
    Case(
        "strangers: 11 arguments, 16,385 bytes, 1,000 half commands",
        "10 arguments of 16 KiB",
        unauthenticated,
        {"requirepass": "secret"},
    ),
    Case("`*2147483647`", ARGUMENTS_BOUND, junk(b"*2147483647\r\n$3\r\nGET\r\n")),
    Case("`*2147483648`", ARGUMENTS_BOUND, junk(b"*2147483648\r\n")),
    Case("`$99999999999`", "`proto-max-bulk-len`", junk(b"*1\r\n$99999999999\r\n")),
    Case("`*-1`, then PING", ARGUMENTS_BOUND, junk(b"*-1\r\nPING\r\n")),
    Case("`$-1`", "`proto-max-bulk-len`", junk(b"*2\r\n$3\r\nGET\r\n$-1\r\n")),
    Case("an array in an array", "no nesting in commands", junk(b"*1\r\n*1\r\n$4\r\nPING\r\n")),
    Case("1 MiB inline without a line end", "64 KiB", junk(b"x" * MIB)),
    Case("a count of 1 MiB of digits", "64 KiB", junk(b"*" + b"1" * MIB)),
    Case("1 MiB of random bytes", "64 KiB", junk(os.urandom(1) + bytes(range(128, 255)) * 8256)),
    Case("a TLS handshake at the plain port", "64 KiB", junk(TLS_HELLO)),
    Case("HTTP: POST", "the connection ends", junk(POST)),
    Case("HTTP: Host", "the connection ends", junk(HOST)),
]
