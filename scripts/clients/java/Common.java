import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** The test data and the checks that the Java clients share. */
final class Common {
    static final String HOST = "127.0.0.1";
    static final int PORT = Integer.parseInt(System.getenv("SERVER_PORT"));
    static final int SCAN_KEYS = 1_000;
    static final int HASH_FIELDS = 10_000;
    static final byte[] BINARY = repeatBytes(1);
    static final byte[] LARGE = repeatBytes(4096);

    private Common() {}

    private static byte[] repeatBytes(int times) {
        byte[] bytes = new byte[256 * times];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) i;
        }
        return bytes;
    }

    /** Throws unless a reply is the expected one. */
    static void expect(String name, Object got, Object want) {
        boolean same = got instanceof byte[] && want instanceof byte[]
                ? Arrays.equals((byte[]) got, (byte[]) want)
                : got == null ? want == null : got.equals(want);
        if (!same) {
            String text = String.valueOf(got);
            throw new AssertionError(name + ": got " + text.substring(0, Math.min(200, text.length())));
        }
    }

    /** Runs a command, and expects Redis' error for a key of another type. */
    static void expectWrongType(Runnable command) {
        try {
            command.run();
        } catch (RuntimeException error) {
            expect("error text", error.getMessage().startsWith("WRONGTYPE Operation against a key"), true);
            return;
        }
        throw new AssertionError("a command on a key of another type does not fail");
    }

    /** Returns the fields and values of the large hash. */
    static Map<String, String> fields() {
        Map<String, String> fields = new HashMap<>();
        for (int i = 0; i < HASH_FIELDS; i++) {
            fields.put(String.format("field:%05d", i), "value:" + i);
        }
        return fields;
    }

    /** Returns the keys that a scan must find. */
    static Set<String> scanKeys(String prefix) {
        return IntStream.range(0, SCAN_KEYS)
                .mapToObj(i -> String.format("%s:scan:%04d", prefix, i))
                .collect(Collectors.toSet());
    }

    /** Returns the prefix and all bytes as a key. */
    static byte[] binaryKey(String prefix) {
        byte[] key = Arrays.copyOf(prefix.getBytes(), prefix.length() + BINARY.length);
        System.arraycopy(BINARY, 0, key, prefix.length(), BINARY.length);
        return key;
    }

    /** Returns whether the command line names the phase that writes. */
    static boolean isWritePhase(String[] arguments) {
        if (arguments.length != 1 || !Set.of("write", "check").contains(arguments[0])) {
            throw new IllegalArgumentException("usage: write|check");
        }
        return arguments[0].equals("write");
    }
}
