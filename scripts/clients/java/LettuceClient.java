import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.KeyScanCursor;
import io.lettuce.core.KeyValue;
import io.lettuce.core.LettuceVersion;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;

/** Lettuce against the server: synchronous, asynchronous and reactive, RESP2 and RESP3. */
public final class LettuceClient {
    private final RedisClient client;
    private final StatefulRedisConnection<String, String> connection;
    private final RedisCommands<String, String> commands;
    private final RedisCommands<byte[], byte[]> bytes;
    private final String prefix;

    private LettuceClient(RedisClient client, String prefix) {
        this.client = client;
        this.connection = client.connect();
        this.commands = connection.sync();
        this.bytes = client.connect(ByteArrayCodec.INSTANCE).sync();
        this.prefix = prefix;
    }

    public static void main(String[] arguments) throws Exception {
        boolean writes = Common.isWritePhase(arguments);
        for (ProtocolVersion protocol : ProtocolVersion.values()) {
            RedisURI address = RedisURI.builder().withHost(Common.HOST).withPort(Common.PORT)
                    .withClientName("lettuce").withTimeout(Duration.ofSeconds(30)).build();
            RedisClient client = RedisClient.create(address);
            client.setOptions(ClientOptions.builder().protocolVersion(protocol).autoReconnect(false).build());
            LettuceClient session = new LettuceClient(client, "lettuce:" + protocol);
            if (writes) {
                session.write();
            } else {
                session.check();
            }
            if (writes && protocol == ProtocolVersion.RESP3) {
                session.useClientSideCache();
            }
            client.shutdown(0, 5, TimeUnit.SECONDS);
        }
        System.out.println("lettuce " + LettuceVersion.getVersion() + ": RESP2, RESP3");
    }

    private String key(String name) {
        return prefix + ":" + name;
    }

    /** Runs the commands, and leaves the keys that `check` reads back. */
    private void write() throws Exception {
        Common.expect("PING", commands.ping(), "PONG");
        Common.expect("SET", commands.set(key("string"), "text"), "OK");
        Common.expect("SET EX", commands.set(key("hour"), "text", SetArgs.Builder.ex(3600)), "OK");
        Common.expect("SET PX", commands.set(key("brief"), "text", SetArgs.Builder.px(20)), "OK");
        Common.expect("SET NX", commands.set(key("string"), "other", SetArgs.Builder.nx()), null);
        Common.expect("MSET", commands.mset(Map.of(key("a"), "1", key("b"), "2")), "OK");
        Common.expect("INCRBY", commands.incrby(key("counter"), 41), 41L);
        Common.expect("reactive INCR", connection.reactive().incr(key("counter")).block(), 42L);
        Common.expect("SET of bytes", bytes.set(Common.binaryKey(prefix), Common.BINARY), "OK");
        Common.expect("SET of 1 MiB", bytes.set(key("large").getBytes(), Common.LARGE), "OK");
        Common.expect("HSET", commands.hset(key("hash"), Map.of("name", "Ada", "visits", "1")), 2L);
        Common.expect("HINCRBY", commands.hincrby(key("hash"), "visits", 2), 3L);
        Common.expect("HSET of 10,000 fields", commands.hset(key("fields"), Common.fields()), (long) Common.HASH_FIELDS);
        writePipeline();
        writeTransactions();
        receiveMessages();
        Common.expectWrongType(() -> commands.incr(key("hash")));
        Thread.sleep(50);
        Common.expect("GET after expiry", commands.get(key("brief")), null);
    }

    private void writePipeline() throws Exception {
        RedisAsyncCommands<String, String> pipeline = connection.async();
        connection.setAutoFlushCommands(false);
        List<RedisFuture<String>> replies = new ArrayList<>();
        for (String key : Common.scanKeys(prefix)) {
            replies.add(pipeline.set(key, key));
        }
        connection.flushCommands();
        for (RedisFuture<String> reply : replies) {
            Common.expect("pipeline", reply.get(30, TimeUnit.SECONDS), "OK");
        }
        connection.setAutoFlushCommands(true);
    }

    /** Commits a transaction, and loses one to a write of another connection. */
    private void writeTransactions() {
        RedisCommands<String, String> other = client.connect().sync();
        commands.watch(key("watched"));
        Common.expect("SET by another connection", other.set(key("watched"), "10"), "OK");
        commands.multi();
        commands.set(key("watched"), "1");
        Common.expect("EXEC after a write to a watched key", commands.exec().wasDiscarded(), true);
        commands.multi();
        commands.incr(key("watched"));
        commands.hset(key("joined"), "watched", "11");
        TransactionResult replies = commands.exec();
        Common.expect("EXEC", List.of(replies.<Object>get(0), replies.<Object>get(1)), List.of(11L, true));
    }

    private void receiveMessages() throws Exception {
        CompletableFuture<byte[]> received = new CompletableFuture<>();
        StatefulRedisPubSubConnection<byte[], byte[]> messages = client.connectPubSub(ByteArrayCodec.INSTANCE);
        messages.addListener(new RedisPubSubAdapter<>() {
            @Override
            public void message(byte[] channel, byte[] message) {
                received.complete(message);
            }
        });
        messages.sync().subscribe(key("news").getBytes());
        Common.expect("PUBLISH", bytes.publish(key("news").getBytes(), Common.BINARY), 1L);
        Common.expect("message", received.get(10, TimeUnit.SECONDS), Common.BINARY);
        messages.close();
    }

    /** Reads a key from the client's cache until another connection changes the key. */
    private void useClientSideCache() throws Exception {
        Map<String, String> cached = new ConcurrentHashMap<>();
        CacheFrontend<String, String> cache = ClientSideCaching.enable(
                CacheAccessor.forMap(cached), client.connect(), TrackingArgs.Builder.enabled());
        commands.set(key("cached"), "old");
        Common.expect("GET", cache.get(key("cached")), "old");
        Common.expect("keys of the client's cache", cached, Map.of(key("cached"), "old"));
        commands.set(key("cached"), "new");
        for (int tries = 0; !"new".equals(cache.get(key("cached"))); tries++) {
            Common.expect("the invalidation arrives", tries < 500, true);
            Thread.sleep(10);
        }
    }

    /** Reads back what `write` left. */
    private void check() {
        Common.expect("GET", commands.get(key("string")), "text");
        long seconds = commands.ttl(key("hour"));
        Common.expect("TTL", seconds > 0 && seconds <= 3600, true);
        List<KeyValue<String, String>> values = commands.mget(key("a"), key("none"), key("b"));
        Common.expect("MGET", values, List.of(
                KeyValue.just(key("a"), "1"), KeyValue.empty(key("none")), KeyValue.just(key("b"), "2")));
        Common.expect("GET of a counter", commands.get(key("counter")), "42");
        Common.expect("GET of bytes", bytes.get(Common.binaryKey(prefix)), Common.BINARY);
        Common.expect("GET of 1 MiB", bytes.get(key("large").getBytes()), Common.LARGE);
        Common.expect("HGETALL", commands.hgetall(key("hash")), Map.of("name", "Ada", "visits", "3"));
        Common.expect("HGETALL of 10,000 fields", commands.hgetall(key("fields")), Common.fields());
        Set<String> found = new HashSet<>();
        ScanArgs arguments = ScanArgs.Builder.matches(key("scan:*")).limit(100);
        KeyScanCursor<String> page = commands.scan(arguments);
        found.addAll(page.getKeys());
        while (!page.isFinished()) {
            page = commands.scan(page, arguments);
            found.addAll(page.getKeys());
        }
        Common.expect("SCAN", found, Common.scanKeys(prefix));
        Common.expect("GET of a watched key", commands.get(key("watched")), "11");
        Common.expect("HGET of the transaction", commands.hget(key("joined"), "watched"), "11");
    }
}
