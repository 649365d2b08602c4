"""redis-py against the server: synchronous, over TCP and a unix socket, RESP2 and RESP3."""

import threading
import time

import redis
from redis.cache import CacheConfig

from common import BINARY, HASH_FIELDS, HOST, LARGE, PORT, SOCKET, expect, expect_true, fields, phase, scan_keys


def write(client, prefix):
    """Runs the commands, and leaves the keys that `check` reads back."""
    expect("PING", client.ping(), True)
    expect("SET", client.set(f"{prefix}:string", "text"), True)
    expect("SET EX", client.set(f"{prefix}:hour", "text", ex=3600), True)
    expect("SET PX", client.set(f"{prefix}:brief", "text", px=20), True)
    expect("SET NX", client.set(f"{prefix}:string", "other", nx=True), None)
    expect("MSET", client.mset({f"{prefix}:a": "1", f"{prefix}:b": "2"}), True)
    expect("MGET", client.mget(f"{prefix}:a", f"{prefix}:none", f"{prefix}:b"), [b"1", None, b"2"])
    expect("INCRBY", client.incr(f"{prefix}:counter", 41), 41)
    expect("INCR", client.incr(f"{prefix}:counter"), 42)
    expect("SET of bytes", client.set(prefix.encode() + BINARY, BINARY), True)
    expect("SET of 1 MiB", client.set(f"{prefix}:large", LARGE), True)
    write_hashes(client, prefix)
    write_pipelines(client, prefix)
    write_transactions(client, prefix)
    fail_with_wrong_type(client, prefix)
    time.sleep(0.05)
    expect("GET after expiry", client.get(f"{prefix}:brief"), None)


def write_hashes(client, prefix):
    """Writes a small hash and a large one."""
    expect("HSET", client.hset(f"{prefix}:hash", mapping={"name": "Ada", "visits": 1}), 2)
    expect("HINCRBY", client.hincrby(f"{prefix}:hash", "visits", 2), 3)
    expect("HSET of 10,000 fields", client.hset(f"{prefix}:fields", mapping=fields()), HASH_FIELDS)


def write_pipelines(client, prefix):
    """Writes the keys of the scan, and mixes replies of several types."""
    pipeline = client.pipeline(transaction=False)
    for key in scan_keys(prefix):
        pipeline.set(key, key)
    expect("pipeline", pipeline.execute(), [True] * len(scan_keys(prefix)))
    mixed = client.pipeline(transaction=False)
    mixed.get(f"{prefix}:a").hlen(f"{prefix}:hash").hget(f"{prefix}:a", "field").exists(f"{prefix}:none")
    replies = mixed.execute(raise_on_error=False)
    expect("pipeline with an error", [replies[0], replies[1], replies[3]], [b"1", 2, 0])
    expect_true("error within a pipeline", str(replies[2]).startswith("WRONGTYPE"))


def write_transactions(client, prefix):
    """Commits a transaction, and loses one to a write of another connection."""
    key = f"{prefix}:watched"
    expect("SET", client.set(key, 1), True)
    with client.pipeline() as lost:
        lost.watch(key)
        read = int(lost.get(key))
        expect("SET by another connection", client.set(key, 10), True)
        lost.multi()
        lost.set(key, read + 1)
        try:
            lost.execute()
            expect_true("EXEC after a write to a watched key fails", False)
        except redis.WatchError:
            pass

    def add(pipeline):
        read = int(pipeline.get(key))
        pipeline.multi()
        pipeline.set(key, read + 1).hset(f"{prefix}:joined", "watched", read + 1)

    expect("transaction", client.transaction(add, key), [True, 1])


def fail_with_wrong_type(client, prefix):
    """Expects Redis' error for a command on a key of another type."""
    try:
        client.incr(f"{prefix}:hash")
        expect_true("INCR of a hash fails", False)
    except redis.ResponseError as error:
        expect_true("error text", str(error).startswith("WRONGTYPE Operation against a key"))


def check(client, prefix):
    """Reads back what `write` left."""
    expect("GET", client.get(f"{prefix}:string"), b"text")
    expect_true("TTL", 0 < client.ttl(f"{prefix}:hour") <= 3600)
    expect("MGET", client.mget(f"{prefix}:a", f"{prefix}:none", f"{prefix}:b"), [b"1", None, b"2"])
    expect("GET of a counter", client.get(f"{prefix}:counter"), b"42")
    expect("GET of bytes", client.get(prefix.encode() + BINARY), BINARY)
    expect("GET of 1 MiB", client.get(f"{prefix}:large"), LARGE)
    expect("HGETALL", client.hgetall(f"{prefix}:hash"), {b"name": b"Ada", b"visits": b"3"})
    expect("HGETALL of 10,000 fields", client.hgetall(f"{prefix}:fields"), fields())
    expect("HSCAN of 10,000 fields", dict(client.hscan_iter(f"{prefix}:fields", count=500)), fields())
    expect("SCAN", set(client.scan_iter(f"{prefix}:scan:*", count=100)), scan_keys(prefix))
    expect("GET of a watched key", client.get(f"{prefix}:watched"), b"11")
    expect("HGET of the transaction", client.hget(f"{prefix}:joined", "watched"), b"11")


def receive_messages(client, prefix):
    """Receives messages of a channel and of a pattern."""
    with client.pubsub(ignore_subscribe_messages=False) as messages:
        messages.subscribe(f"{prefix}:news")
        messages.psubscribe(f"{prefix}:n?ws")
        expect("subscribed", [messages.get_message(timeout=5)["type"] for _ in range(2)], ["subscribe", "psubscribe"])
        expect("PUBLISH", client.publish(f"{prefix}:news", BINARY), 2)
        received = [messages.get_message(timeout=5) for _ in range(2)]
        expect("messages", sorted((m["type"], m["data"]) for m in received), [("message", BINARY), ("pmessage", BINARY)])


def count_gets(client):
    """Returns the number of GET commands that the server has run."""
    return client.info("commandstats")["cmdstat_get"]["calls"]


def use_client_side_cache():
    """Reads a key from the client's cache until another connection changes the key."""
    cached = redis.Redis(host=HOST, port=PORT, protocol=3, cache_config=CacheConfig())
    other = redis.Redis(host=HOST, port=PORT, protocol=3)
    expect("SET", other.set("py:cached", "old"), True)
    expect("GET", cached.get("py:cached"), b"old")
    expect("keys of the client's cache", cached.get_cache().size, 1)
    calls = count_gets(other)
    expect("GET from the cache", cached.get("py:cached"), b"old")
    expect("GET commands of a cached key", count_gets(other), calls)
    expect("SET", other.set("py:cached", "new"), True)
    deadline = time.monotonic() + 5
    while cached.get("py:cached") != b"new":
        expect_true("the invalidation arrives within 5 seconds", time.monotonic() < deadline)
    cached.close()
    other.close()


def count_from_threads(client, prefix):
    """Increments one counter from threads that share a pool of connections."""

    def count():
        for _ in range(100):
            client.incr(f"{prefix}:shared")

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect("INCR from 8 threads", client.get(f"{prefix}:shared"), b"800")


def main():
    now = phase()
    clients = {
        "py:tcp2": redis.Redis(host=HOST, port=PORT, protocol=2),
        "py:tcp3": redis.Redis(host=HOST, port=PORT, protocol=3, client_name="redis-py"),
        "py:unix2": redis.Redis(unix_socket_path=SOCKET, protocol=2),
        "py:unix3": redis.Redis(unix_socket_path=SOCKET, protocol=3, db=9),
    }
    for prefix, client in clients.items():
        if now == "write":
            write(client, prefix)
            receive_messages(client, prefix)
            count_from_threads(client, prefix)
        else:
            check(client, prefix)
            expect("GET of a shared counter", client.get(f"{prefix}:shared"), b"800")
        client.close()
    if now == "write":
        use_client_side_cache()
    print(f"redis-py {redis.__version__}: {', '.join(clients)}")


main()
