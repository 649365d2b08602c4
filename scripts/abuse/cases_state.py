"""Cases of state: replies and messages that nobody reads, transactions, subscriptions, users, HTTP."""

import socket
import time

from case import Case, shown
from client import Client, encode

MIB = 1 << 20


def store_mebibyte(server):
    client = Client(server)
    assert client.run("SET", "mebibyte", b"x" * MIB) == b"+OK"
    client.close()


def never_reads(server):
    client = Client(server)
    client.send_until_refused(encode("GET", "mebibyte") * 2000, 1)
    time.sleep(1)
    end = "closed" if client.is_closed(0.2) else "open, and no more commands of it run"
    client.close()
    return end


def store_64_mebibytes(server):
    client = Client(server)
    assert client.run("SET", "large", b"x" * (64 * MIB)) == b"+OK"
    client.close()


def gets_of_one_write(server):
    client = Client(server)
    client.send(encode("GET", "large") * 60)
    time.sleep(3)
    is_whole = all(client.reply() == b"$67108864" for _ in range(60))
    client.close()
    return "all replies, in order" if is_whole else "closed"


def large_message(server):
    readers = [Client(server) for _ in range(20)]
    for reader in readers:
        reader.run("SUBSCRIBE", "news")
    writer = Client(server)
    reply = writer.run("PUBLISH", "news", b"x" * (200 * MIB))
    time.sleep(1)
    closed_count = sum(reader.is_closed(0.5) for reader in readers)
    for reader in readers:
        reader.close()
    return f"{shown(reply)}; {closed_count} subscribers are closed"


def one_large_reply(server):
    client = Client(server)
    client.send(encode("MGET", *["mebibyte"] * 3000))
    time.sleep(3)
    line = client.line()
    client.close()
    return shown(line)


def endless_replies(server):
    """50 clients ask for one large reply each, and read nothing."""
    clients = [Client(server) for _ in range(50)]
    for client in clients:
        client.send(encode("MGET", *["mebibyte"] * 60))
    # Both event loops have run the commands when they answer.
    for client in [Client(server) for _ in range(2)]:
        assert client.run("PING") == b"+PONG"
    time.sleep(1)
    open_count = sum(not client.is_closed(0.01) for client in clients)
    for client in clients:
        client.close()
    return "all clients stay" if open_count == len(clients) else "the largest clients are closed"


def stopped_subscriber(server):
    reader = Client(server)
    reader.run("SUBSCRIBE", "news")
    writer = Client(server)
    message = b"x" * 65536
    receivers = 1
    for _ in range(4000):
        receivers = writer.run("PUBLISH", "news", message)
        if receivers == b":0":
            break
    reader.close()
    return "closed" if receivers == b":0" else "open"


def stopped_monitor(server):
    reader = Client(server)
    assert reader.run("MONITOR") == b"+OK"
    writer = Client(server)
    batch = encode("SET", "monitored", b"x" * 4000) * 1000
    is_closed = False
    for _ in range(80):
        writer.send(batch)
        for _ in range(1000):
            writer.reply()
        monitors = writer.run("CLIENT", "LIST").count(b"flags=O")
        if monitors == 0:
            is_closed = True
            break
    reader.close()
    return "closed" if is_closed else "open"


def stopped_tracker(server):
    reader = Client(server)
    reader.send(encode("HELLO", "3"))
    time.sleep(0.1)
    reader.send(encode("CLIENT", "TRACKING", "ON", "BCAST"))
    time.sleep(0.1)
    writer = Client(server)
    is_closed = False
    for _ in range(100):
        batch = b"".join(encode("SET", b"%d" % number + b"k" * 4000, "v") for number in range(500))
        writer.send(batch)
        for _ in range(500):
            writer.reply()
        if b"tracking_clients:0" in writer.run("INFO", "clients"):
            is_closed = True
            break
    reader.close()
    return "closed" if is_closed else "open"


def large_queue(server):
    client = Client(server)
    client.run("MULTI")
    batch = encode("SET", "queued", "0123456789") * 10_000
    replies = set()
    for _ in range(100):
        client.send(batch)
        for _ in range(10_000):
            replies.add(client.reply())
        if None in replies:
            break
    client.close()
    return ", ".join(sorted(shown(reply) for reply in replies))


def queue_of_large_values(server):
    """A queue of 4 GiB: 1 MiB 4,000 times."""
    client = Client(server)
    client.run("MULTI")
    command = encode("SET", "queued", b"x" * MIB)
    reply = b""
    try:
        for _ in range(4000):
            client.send(command)
            reply = client.reply()
            if reply != b"+QUEUED":
                break
    except OSError:
        reply = None
    client.close()
    return shown(reply)


def many_names(command):
    """Returns a case in which a client names 1,000,000 keys, channels or patterns."""

    def run(server):
        # Redis compares each watched key and each pattern of a client with all others.
        is_slow = command in ("WATCH", "PSUBSCRIBE") and server.name == "Redis"
        batches, names_of_batch = (1, 10_000) if is_slow else (10, 100_000)
        client = Client(server)
        kinds = set()
        for batch in range(batches):
            names = [b"name:%d:%d" % (batch, number) for number in range(names_of_batch)]
            client.send(encode(command, *names))
            lines = 1 if command == "WATCH" else names_of_batch
            for _ in range(lines):
                reply = client.reply()
                kinds.add(reply if isinstance(reply, bytes) else b"subscribed")
                if reply is None or (isinstance(reply, bytes) and reply[:1] == b"-"):
                    break
        time.sleep(0.3)
        client.close()
        return ", ".join(sorted(shown(kind) for kind in kinds))

    return run


def many_prefixes(server):
    count = 10_000 if server.name == "Redis" else 500_000
    client = Client(server)
    words = [word for number in range(count) for word in ("PREFIX", b"%07d" % number)]
    reply = client.run("CLIENT", "TRACKING", "ON", "BCAST", *words)
    client.close()
    return shown(reply)


def many_users(server):
    client = Client(server)
    for number in range(100_000):
        client.send(encode("ACL", "SETUSER", b"user:%d" % number, "on", ">secret", "~*", "+@all"))
        reply = client.reply()
        if reply != b"+OK":
            break
    client.close()
    return shown(reply)


def long_name(server):
    client = Client(server)
    reply = client.run("CLIENT", "SETNAME", b"n" * (256 * MIB))
    client.close()
    return shown(reply)


def store_many_keys(server):
    client = Client(server)
    for batch in range(20):
        arguments = [text for number in range(50_000) for text in (b"key:%d:%d" % (batch, number), b"v")]
        assert client.run("MSET", *arguments) == b"+OK"
    client.close()


def scan_everything(server):
    client = Client(server)
    replies = [client.run("SCAN", "0", "COUNT", 2**63)]
    client.send(encode("SCAN", "0", "COUNT", 2**63 - 1))
    assert client.line() == b"*2"
    client.reply()
    replies.append(client.line())
    time.sleep(0.2)
    client.close()
    return ", ".join(map(shown, replies))


def store_long_keys(server):
    client = Client(server)
    for byte in (b"a", b"b", b"c"):
        assert client.run("SET", byte * 65_001, "1") == b"+OK"
    client.close()


def many_cursors(server):
    """Begins 16,384 walks that all stop at a long key."""
    client = Client(server)
    for _ in range(256):
        client.send(encode("SCAN", "0", "COUNT", "1") * 64)
        for _ in range(64):
            assert client.line() == b"*2"
            client.line()
            cursor = client.line()
            client.reply()
    client.close()
    return "a cursor" if cursor != b"0" else "no cursor"


def slow_http(server):
    clients = []
    for _ in range(1000):
        client = socket.create_connection(("127.0.0.1", server.http_port))
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
        clients.append(client)
    begin = time.monotonic()
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as scraper:
        scraper.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = scraper.recv(100)
    elapsed = time.monotonic() - begin
    for client in clients:
        client.close()
    status = answer.split(b"\r\n")[0].decode()
    return f"a further request: `{status}` after {elapsed * 1000:.0f} ms"


PUSH_BOUND = "`client-output-buffer-limit`"
STATE_BOUND = "`client-query-buffer-limit`"

CASES = [
    Case(
        "2,000 GETs of 1 MiB, no reply read",
        "`output-pause` and two replies",
        never_reads,
        prepare=store_mebibyte,
    ),
    Case(
        "60 GETs of 64 MiB in one write",
        "`output-pause` and two replies",
        gets_of_one_write,
        prepare=store_64_mebibytes,
    ),
    Case("MGET that names 1 MiB 3,000 times", "`reply-max-len`", one_large_reply, prepare=store_mebibyte),
    Case(
        "50 clients with 60 MiB of unread replies, `maxmemory-clients 1gb`",
        "`maxmemory-clients`",
        endless_replies,
        {"maxmemory-clients": "1gb"},
        prepare=store_mebibyte,
    ),
    Case("a subscriber that stops reading", PUSH_BOUND, stopped_subscriber),
    Case("PUBLISH of 200 MiB to 20 subscribers", PUSH_BOUND, large_message),
    Case("MONITOR that stops reading", PUSH_BOUND, stopped_monitor),
    Case("CLIENT TRACKING that stops reading", PUSH_BOUND, stopped_tracker),
    Case("MULTI of 1,000,000 commands", STATE_BOUND, large_queue),
    Case("MULTI of 4 GB", STATE_BOUND, queue_of_large_values),
    Case("WATCH of 1,000,000 keys (Redis: 10,000)", STATE_BOUND, many_names("WATCH")),
    Case("SUBSCRIBE to 1,000,000 channels", STATE_BOUND, many_names("SUBSCRIBE")),
    Case("PSUBSCRIBE to 1,000,000 patterns (Redis: 10,000)", STATE_BOUND, many_names("PSUBSCRIBE")),
    Case("CLIENT TRACKING with 500,000 prefixes (Redis: 10,000)", "1,024 prefixes", many_prefixes),
    Case("CLIENT SETNAME of 256 MiB", "`proto-max-bulk-len`; no name is kept", long_name),
    Case("ACL SETUSER of 100,000 users", "permission of `acl`", many_users),
    Case(
        "SCAN of 1,000,000 keys, COUNT 2^63 and 2^63-1",
        "65,536 keys of a call",
        scan_everything,
        prepare=store_many_keys,
    ),
    Case("16,384 SCANs that stop at a key of 65,001 bytes", "32 MiB of cursors", many_cursors, prepare=store_long_keys),
    Case("1,000 half requests of HTTP", "64 requests of 8 KiB", slow_http, has_redis=False),
]
