//! Clients that would cost a careless server its memory. `scripts/abuse.sh` measures the same
//! cases.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use lodestore::db::Engine;
use lodestore_wire::Reply;

use super::common::{Client, TestServer, encode, show};

/// Longest wait for an answer of HTTP. All half requests one after another would need longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

const KIBIBYTE: usize = 1 << 10;
const MEBIBYTE: usize = 1 << 20;

/// Returns the unsent bytes of a client by its name, as `CLIENT LIST` shows them.
fn unsent_bytes(observer: &mut Client, name: &str) -> usize {
    let list = observer.run("CLIENT LIST");
    let line = list.lines().find(|line| line.contains(&format!(" name={name} "))).expect("the client");
    let field = line.split(' ').find_map(|field| field.strip_prefix("omem=")).expect("a field");
    field.parse().expect("a number")
}

#[test]
fn gets_of_large_values_in_one_write_wait_until_their_replies_are_sent() {
    const COUNT: usize = 60;
    let server = TestServer::start_with(Engine::fluidkv(), |config| config.output_bytes_pause = 64 * KIBIBYTE);
    let mut observer = server.client();
    for (key, byte) in [("a", "a"), ("b", "b")] {
        assert_eq!(observer.run_arguments(&["SET", key, &byte.repeat(2 * MEBIBYTE)]), "+OK");
    }
    let mut client = server.client();
    client.check(&[("CLIENT SETNAME reader", "+OK")]);
    client.send_raw(&[encode(&["GET", "a"]), encode(&["GET", "b"])].concat().repeat(COUNT / 2));
    let most = (0..100).map(|_| unsent_bytes(&mut observer, "reader")).max().unwrap_or(0);
    assert!(most <= 5 * MEBIBYTE, "{most} bytes of replies wait");
    for number in 0..COUNT {
        let byte = if number % 2 == 0 { b'a' } else { b'b' };
        assert_eq!(client.receive(), Reply::Bulk(vec![byte; 2 * MEBIBYTE]));
    }
    client.check(&[("PING", "+PONG")]);
}

#[test]
fn a_reply_that_is_too_long_is_an_error() {
    const ERROR: &str = "-ERR the reply exceeds reply-max-len: request less data at once, or raise the option";
    let server = TestServer::start_with(Engine::fluidkv(), |config| config.reply_bytes_max = 10_000);
    let mut client = server.client();
    let value = "x".repeat(4000);
    assert_eq!(client.run_arguments(&["MSET", "a", &value, "b", &value, "c", &value]), "+OK");
    let two = format!("[{value}, {value}]");
    client.check(&[
        ("MGET a a", &two),
        ("MGET a a a", ERROR),
        ("LODESTORE.RANGE - + LIMIT 2", "[a, b]"),
        ("LODESTORE.RANGE - + WITHVALUES", ERROR),
        ("HSET h f 1", ":1"),
        ("MULTI", "+OK"),
        ("SET d 1", "+QUEUED"),
        ("MGET a a a", "+QUEUED"),
        ("STRLEN a", "+QUEUED"),
        ("EXEC", &format!("[+OK, {ERROR}, :4000]")),
    ]);
    // A change keeps its reply, because the change is made.
    let long = "y".repeat(20_000);
    assert_eq!(client.run_arguments(&["SET", "long", &long]), "+OK");
    client.check(&[("GET long", ERROR)]);
    assert_eq!(client.run("GETDEL long"), long);
}

#[test]
fn a_client_that_exceeds_its_memory_bound_is_closed() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| config.query_bytes_max = 100_000);
    let value = "x".repeat(10_000);
    let names = |word: &str, round: usize| {
        let names = (0..100).map(|name| format!("name-{round}-{name}"));
        std::iter::once(word.to_string()).chain(names).collect::<Vec<String>>()
    };
    let mut queues = server.client();
    queues.check(&[("MULTI", "+OK")]);
    let mut watches = server.client();
    let mut subscribes = server.client();
    for round in 0..20 {
        queues.send_or_stop(&["SET", "queued", &value]);
        watches.send_or_stop(&names("WATCH", round));
        subscribes.send_or_stop(&names("SUBSCRIBE", round));
    }
    let mut long = server.client();
    long.send_raw(format!("*2\r\n$4\r\nECHO\r\n$200000\r\n{}", "x".repeat(150_000)).as_bytes());
    for (name, client) in
        [("MULTI", &mut queues), ("WATCH", &mut watches), ("SUBSCRIBE", &mut subscribes), ("ECHO", &mut long)]
    {
        while let Some(reply) = client.try_receive() {
            assert_ne!(show(&reply), "-ERR", "{name}");
        }
    }
    // A transaction within the bound is not disturbed.
    let mut client = server.client();
    for _ in 0..30 {
        client.check(&[("MULTI", "+OK")]);
        assert_eq!(client.run_arguments(&["SET", "queued", &value]), "+QUEUED");
        client.check(&[("EXEC", "[+OK]")]);
    }
}

#[test]
fn a_client_that_grows_by_its_last_command_is_closed() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| config.query_bytes_max = 100_000);
    for word in ["WATCH", "SUBSCRIBE"] {
        let names = (0..3000).map(|name| format!("name-{name}"));
        let command = encode(&std::iter::once(word.to_string()).chain(names).collect::<Vec<String>>());
        assert!(command.len() < 100_000, "the command alone is within the bound");
        let mut client = server.client();
        client.send_raw(&command);
        while let Some(reply) = client.try_receive() {
            assert!(!matches!(reply, Reply::Error(_)), "{word}: {}", show(&reply));
        }
    }
}

#[test]
fn the_largest_client_is_closed_where_all_clients_use_too_much() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| {
        config.threads = 2;
        config.clients_memory_max = 8 * MEBIBYTE as u64;
    });
    let mut kept = server.client();
    kept.check(&[("CLIENT NO-EVICT ON", "+OK")]);
    let half =
        |bytes: usize| [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9000000\r\n"[..], "x".repeat(bytes).as_bytes()].concat();
    kept.send_raw(&half(3 * MEBIBYTE));
    let (mut large, mut small) = (server.client(), server.client());
    small.send_raw(&half(MEBIBYTE));
    drop(large.try_send_raw(&half(7 * MEBIBYTE)));
    assert_eq!(large.try_receive(), None, "the largest client is closed");
    kept.send_raw("x".repeat(9_000_000 - 3 * MEBIBYTE).as_bytes());
    kept.send_raw(b"\r\n");
    assert_eq!(show(&kept.receive()), "+OK");
    assert_eq!(server.client().run("PING"), "+PONG");
}

#[test]
fn half_requests_of_http_delay_no_other_request() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| {
        config.metrics.address = Some(([127, 0, 0, 1], 0).into());
    });
    let address = server.metrics_address();
    let mut half: Vec<TcpStream> = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(address).expect("a connection");
        // The server may have closed the connection already, in favour of a newer one.
        drop(stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:"));
        half.push(stream);
    }
    let ask = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).expect("a timeout");
        stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").expect("a request");
        let mut answer = String::new();
        drop(stream.read_to_string(&mut answer));
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer:?}");
    };
    // The server has accepted the first connection when it answers the second.
    let first = TcpStream::connect(address).expect("a connection");
    ask(TcpStream::connect(address).expect("a connection"));
    ask(first);
    // All half requests end by themselves.
    for mut stream in half {
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest));
        assert_eq!(rest, b"");
    }
}

#[test]
fn names_and_prefixes_are_bounded() {
    let server = TestServer::start();
    let mut client = server.client();
    let name = "n".repeat(5000);
    assert_eq!(client.run(&format!("CLIENT SETNAME {name}")), "-ERR the text is too long: use at most 4096 bytes");
    assert_eq!(
        client.run(&format!("CLIENT SETINFO LIB-NAME {name}")),
        "-ERR the text is too long: use at most 4096 bytes"
    );
    let prefix = "p".repeat(70_000);
    assert_eq!(
        client.run(&format!("CLIENT TRACKING ON BCAST PREFIX {prefix}")),
        "-ERR a prefix is too long: use at most 65536 bytes"
    );
}

#[test]
fn one_scan_visits_a_bounded_number_of_keys() {
    let server = TestServer::start();
    let mut client = server.client();
    for batch in 0..2 {
        let mut arguments = vec!["MSET".to_string()];
        for number in 0..35_000 {
            arguments.extend([format!("{batch}{number:06}"), "1".into()]);
        }
        assert_eq!(client.run_arguments(&arguments), "+OK");
    }
    let mut cursor = "0".to_string();
    let mut counts = Vec::new();
    loop {
        client.send(&["SCAN", &cursor, "COUNT", "9223372036854775807"]);
        let Reply::Array(parts) = client.receive() else { panic!("no array") };
        let (Reply::Bulk(next), Reply::Array(keys)) = (&parts[0], &parts[1]) else { panic!("{parts:?}") };
        cursor = String::from_utf8_lossy(next).into_owned();
        counts.push(keys.len());
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(counts, [65_536, 4464]);
}

#[test]
fn the_bytes_of_cursors_are_bounded_and_a_flush_of_all_databases_frees_them() {
    /// The server keeps 32 MiB of cursors, which is less than these.
    const CURSORS: usize = 600;
    const KEY_BYTES: usize = 65_001;
    let server = TestServer::start();
    let mut client = server.client();
    for byte in ["a", "b", "c"] {
        assert_eq!(client.run_arguments(&["SET", &byte.repeat(KEY_BYTES), "1"]), "+OK");
    }
    let fields: Vec<String> = (0..3000).flat_map(|field| [format!("f{field}"), "1".into()]).collect();
    assert_eq!(client.run_arguments(&[vec!["HSET".into(), "h".into()], fields].concat()), ":3000");
    let scan = |client: &mut Client, arguments: &[&str]| {
        client.send(arguments);
        let Reply::Array(parts) = client.receive() else { panic!("no array") };
        let Reply::Bulk(next) = &parts[0] else { panic!("{parts:?}") };
        String::from_utf8_lossy(next).into_owned()
    };
    let cursor_bytes = |client: &mut Client| -> usize {
        let info = client.run("INFO memory");
        let field = info.lines().find_map(|line| line.strip_prefix("lodestore_memory_cursors:"));
        field.expect("a field").parse().expect("a number")
    };
    assert_eq!(cursor_bytes(&mut client), 0);
    let first = scan(&mut client, &["SCAN", "0", "COUNT", "1"]);
    assert!(cursor_bytes(&mut client) >= KEY_BYTES);
    let mut last = String::new();
    for _ in 1..CURSORS {
        last = scan(&mut client, &["SCAN", "0", "COUNT", "1"]);
    }
    let bytes = cursor_bytes(&mut client);
    assert!((20 * MEBIBYTE..=32 * MEBIBYTE).contains(&bytes), "{bytes} bytes of cursors");
    assert!(client.run(&format!("SCAN {first}")).starts_with("-ERR invalid cursor"));
    assert_ne!(scan(&mut client, &["SCAN", &last, "COUNT", "1"]), "0");
    let of_hash = scan(&mut client, &["HSCAN", "h", "0", "COUNT", "1"]);
    // No key was there before the flush and after it, so the walk ends without an error.
    client.check(&[("FLUSHALL", "+OK"), ("SET k 1", "+OK"), (&format!("SCAN {last}"), "[0, []]")]);
    client.check(&[(
        "SCAN 12345",
        "-ERR invalid cursor: the cursor is from an earlier run of the server, or too many newer cursors exist. Scan \
         again from 0.",
    )]);
    client.check(&[(&format!("HSCAN h {of_hash}"), "[0, []]")]);
    assert_eq!(cursor_bytes(&mut client), 0);
}
