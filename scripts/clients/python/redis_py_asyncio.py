"""redis-py's asyncio client against the server, RESP2 and RESP3."""

import asyncio

import redis
import redis.asyncio as aio

from common import BINARY, HASH_FIELDS, HOST, LARGE, PORT, SOCKET, expect, expect_true, fields, phase, scan_keys


async def write(client, prefix):
    """Runs the commands, and leaves the keys that `check` reads back."""
    expect("SET EX", await client.set(f"{prefix}:hour", "text", ex=3600), True)
    expect("SET PX", await client.set(f"{prefix}:brief", "text", px=20), True)
    expect("MSET", await client.mset({f"{prefix}:a": "1", f"{prefix}:b": "2"}), True)
    expect("MGET", await client.mget(f"{prefix}:a", f"{prefix}:none", f"{prefix}:b"), [b"1", None, b"2"])
    counts = await asyncio.gather(*(client.incr(f"{prefix}:counter") for _ in range(100)))
    expect("INCR of 100 tasks", sorted(counts), list(range(1, 101)))
    expect("SET of bytes", await client.set(prefix.encode() + BINARY, BINARY), True)
    expect("SET of 1 MiB", await client.set(f"{prefix}:large", LARGE), True)
    expect("HSET", await client.hset(f"{prefix}:hash", mapping={"name": "Ada", "visits": 1}), 2)
    expect("HINCRBY", await client.hincrby(f"{prefix}:hash", "visits", 2), 3)
    expect("HSET of 10,000 fields", await client.hset(f"{prefix}:fields", mapping=fields()), HASH_FIELDS)
    async with client.pipeline(transaction=False) as pipeline:
        for key in scan_keys(prefix):
            pipeline.set(key, key)
        expect("pipeline", await pipeline.execute(), [True] * len(scan_keys(prefix)))
    await write_transactions(client, prefix)
    try:
        await client.incr(f"{prefix}:hash")
        expect_true("INCR of a hash fails", False)
    except redis.ResponseError as error:
        expect_true("error text", str(error).startswith("WRONGTYPE Operation against a key"))
    await asyncio.sleep(0.05)
    expect("GET after expiry", await client.get(f"{prefix}:brief"), None)


async def write_transactions(client, prefix):
    """Commits a transaction, and loses one to a write of another connection."""
    key = f"{prefix}:watched"
    async with client.pipeline(transaction=True) as lost:
        await lost.watch(key)
        expect("SET by another connection", await client.set(key, 10), True)
        lost.multi()
        lost.set(key, 1)
        try:
            await lost.execute()
            expect_true("EXEC after a write to a watched key fails", False)
        except redis.WatchError:
            pass
    async with client.pipeline(transaction=True) as pipeline:
        pipeline.incr(key).hset(f"{prefix}:joined", "watched", 11)
        expect("EXEC", await pipeline.execute(), [11, 1])


async def check(client, prefix):
    """Reads back what `write` left."""
    expect_true("TTL", 0 < await client.ttl(f"{prefix}:hour") <= 3600)
    expect("MGET", await client.mget(f"{prefix}:a", f"{prefix}:none", f"{prefix}:b"), [b"1", None, b"2"])
    expect("GET of a counter", await client.get(f"{prefix}:counter"), b"100")
    expect("GET of bytes", await client.get(prefix.encode() + BINARY), BINARY)
    expect("GET of 1 MiB", await client.get(f"{prefix}:large"), LARGE)
    expect("HGETALL", await client.hgetall(f"{prefix}:hash"), {b"name": b"Ada", b"visits": b"3"})
    expect("HGETALL of 10,000 fields", await client.hgetall(f"{prefix}:fields"), fields())
    found = {key async for key in client.scan_iter(f"{prefix}:scan:*", count=100)}
    expect("SCAN", found, scan_keys(prefix))
    expect("GET of a watched key", await client.get(f"{prefix}:watched"), b"11")
    expect("HGET of the transaction", await client.hget(f"{prefix}:joined", "watched"), b"11")


async def receive_messages(client, prefix):
    """Receives a message of a channel."""
    async with client.pubsub(ignore_subscribe_messages=True) as messages:
        await messages.subscribe(f"{prefix}:news")
        await messages.get_message(timeout=5)
        expect("PUBLISH", await client.publish(f"{prefix}:news", BINARY), 1)
        message = await messages.get_message(ignore_subscribe_messages=True, timeout=5)
        expect("message", message["data"], BINARY)


async def main():
    now = phase()
    clients = {
        "aio:tcp2": aio.Redis(host=HOST, port=PORT, protocol=2),
        "aio:tcp3": aio.Redis(host=HOST, port=PORT, protocol=3),
        "aio:unix3": aio.Redis(unix_socket_path=SOCKET, protocol=3),
    }
    for prefix, client in clients.items():
        if now == "write":
            await write(client, prefix)
            await receive_messages(client, prefix)
        else:
            await check(client, prefix)
        await client.aclose()
    print(f"redis-py {redis.__version__}, asyncio: {', '.join(clients)}")


asyncio.run(main())
