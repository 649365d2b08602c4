import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.BinaryJedisPubSub;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** Jedis against the server, RESP2 and RESP3. */
public final class JedisClient {
    private final RedisClient client;
    private final String prefix;

    private JedisClient(RedisClient client, String prefix) {
        this.client = client;
        this.prefix = prefix;
    }

    public static void main(String[] arguments) throws Exception {
        boolean writes = Common.isWritePhase(arguments);
        for (RedisProtocol protocol : List.of(RedisProtocol.RESP2, RedisProtocol.RESP3)) {
            DefaultJedisClientConfig config =
                    DefaultJedisClientConfig.builder().protocol(protocol).clientName("jedis").build();
            try (RedisClient client =
                    RedisClient.builder().hostAndPort(Common.HOST, Common.PORT).clientConfig(config).build()) {
                JedisClient session = new JedisClient(client, "jedis:" + protocol);
                if (writes) {
                    session.write();
                } else {
                    session.check();
                }
            }
        }
        System.out.println("jedis " + readVersion() + ": RESP2, RESP3");
    }

    private static String readVersion() throws IOException {
        Properties properties = new Properties();
        try (InputStream file =
                RedisClient.class.getResourceAsStream("/META-INF/maven/redis.clients/jedis/pom.properties")) {
            properties.load(file);
        }
        return properties.getProperty("version");
    }

    private String key(String name) {
        return prefix + ":" + name;
    }

    /** Runs the commands, and leaves the keys that `check` reads back. */
    private void write() throws Exception {
        Common.expect("PING", client.ping(), "PONG");
        Common.expect("SET", client.set(key("string"), "text"), "OK");
        Common.expect("SET EX", client.set(key("hour"), "text", SetParams.setParams().ex(3600)), "OK");
        Common.expect("SET PX", client.set(key("brief"), "text", SetParams.setParams().px(20)), "OK");
        Common.expect("SET NX", client.set(key("string"), "other", SetParams.setParams().nx()), null);
        Common.expect("MSET", client.mset(key("a"), "1", key("b"), "2"), "OK");
        Common.expect("INCRBY", client.incrBy(key("counter"), 41), 41L);
        Common.expect("INCR", client.incr(key("counter")), 42L);
        Common.expect("SET of bytes", client.set(Common.binaryKey(prefix), Common.BINARY), "OK");
        Common.expect("SET of 1 MiB", client.set(key("large").getBytes(), Common.LARGE), "OK");
        Common.expect("HSET", client.hset(key("hash"), Map.of("name", "Ada", "visits", "1")), 2L);
        Common.expect("HINCRBY", client.hincrBy(key("hash"), "visits", 2), 3L);
        Common.expect("HSET of 10,000 fields", client.hset(key("fields"), Common.fields()), (long) Common.HASH_FIELDS);
        writePipeline();
        writeTransactions();
        receiveMessages();
        Common.expectWrongType(() -> client.incr(key("hash")));
        Thread.sleep(50);
        Common.expect("GET after expiry", client.get(key("brief")), null);
    }

    private void writePipeline() {
        List<Response<String>> replies = new ArrayList<>();
        try (Pipeline pipeline = client.pipelined()) {
            for (String key : Common.scanKeys(prefix)) {
                replies.add(pipeline.set(key, key));
            }
            pipeline.sync();
        }
        for (Response<String> reply : replies) {
            Common.expect("pipeline", reply.get(), "OK");
        }
    }

    /** Commits a transaction, and loses one to a write of another connection. */
    private void writeTransactions() {
        try (AbstractTransaction lost = client.transaction(false)) {
            lost.watch(key("watched"));
            Common.expect("SET by another connection", client.set(key("watched"), "10"), "OK");
            lost.multi();
            lost.set(key("watched"), "1");
            Common.expect("EXEC after a write to a watched key", lost.exec(), null);
        }
        try (AbstractTransaction transaction = client.multi()) {
            transaction.incr(key("watched"));
            transaction.hset(key("joined"), "watched", "11");
            Common.expect("EXEC", transaction.exec(), List.of(11L, 1L));
        }
    }

    private void receiveMessages() throws Exception {
        CountDownLatch subscribed = new CountDownLatch(1);
        CompletableFuture<byte[]> received = new CompletableFuture<>();
        BinaryJedisPubSub messages = new BinaryJedisPubSub() {
            @Override
            public void onSubscribe(byte[] channel, int channels) {
                subscribed.countDown();
            }

            @Override
            public void onMessage(byte[] channel, byte[] message) {
                received.complete(message);
                unsubscribe();
            }
        };
        Thread thread = new Thread(() -> client.subscribe(messages, key("news").getBytes()));
        thread.start();
        Common.expect("SUBSCRIBE", subscribed.await(10, TimeUnit.SECONDS), true);
        Common.expect("PUBLISH", client.publish(key("news").getBytes(), Common.BINARY), 1L);
        Common.expect("message", received.get(10, TimeUnit.SECONDS), Common.BINARY);
        thread.join(10_000);
    }

    /** Reads back what `write` left. */
    private void check() {
        Common.expect("GET", client.get(key("string")), "text");
        long seconds = client.ttl(key("hour"));
        Common.expect("TTL", seconds > 0 && seconds <= 3600, true);
        Common.expect("MGET", client.mget(key("a"), key("none"), key("b")), Arrays.asList("1", null, "2"));
        Common.expect("GET of a counter", client.get(key("counter")), "42");
        Common.expect("GET of bytes", client.get(Common.binaryKey(prefix)), Common.BINARY);
        Common.expect("GET of 1 MiB", client.get(key("large").getBytes()), Common.LARGE);
        Common.expect("HGETALL", client.hgetAll(key("hash")), Map.of("name", "Ada", "visits", "3"));
        Common.expect("HGETALL of 10,000 fields", client.hgetAll(key("fields")), Common.fields());
        Set<String> found = new HashSet<>();
        ScanParams params = new ScanParams().match(key("scan:*")).count(100);
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> page = client.scan(cursor, params);
            found.addAll(page.getResult());
            cursor = page.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        Common.expect("SCAN", found, Common.scanKeys(prefix));
        Common.expect("GET of a watched key", client.get(key("watched")), "11");
        Common.expect("HGET of the transaction", client.hget(key("joined"), "watched"), "11");
    }
}
