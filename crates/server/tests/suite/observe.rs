//! `MONITOR`, `SLOWLOG`, `LATENCY`, the statistics of `INFO`, and saves.

use super::common::{Client, TestServer, enable_debug, show};
use lodestore::Db;
use lodestore::db::Engine;

/// Receives a line of `MONITOR` without its time and address.
fn line(monitor: &mut Client) -> String {
    let text = show(&monitor.receive());
    text.split_once("] ").expect("a line of a monitor").1.to_string()
}

#[test]
fn a_monitor_sees_the_commands_of_all_loops_without_secrets() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| {
        config.threads = 3;
        config.password = Some("hidden".into());
    });
    let mut monitor = server.client();
    monitor.check(&[("AUTH hidden", "+OK"), ("MONITOR", "+OK")]);
    monitor.check(&[("GET a", "-ERR Replica can't interact with the keyspace")]);
    for _ in 0..3 {
        let mut client = server.client();
        client.check(&[("AUTH hidden", "+OK")]);
        assert_eq!(line(&mut monitor), r#""AUTH" "(redacted)""#);
        client.check(&[
            ("SET a 1", "+OK"),
            ("GET a", "1"),
            ("FOO", "-ERR unknown command 'FOO', with args beginning with: "),
        ]);
        client.check(&[("MULTI", "+OK"), ("INCR a", "+QUEUED"), ("EXEC", "[:2]")]);
        for expected in [r#""SET" "a" "1""#, r#""GET" "a""#, r#""MULTI""#, r#""INCR" "a""#, r#""EXEC""#] {
            assert_eq!(line(&mut monitor), expected);
        }
        assert!(client.run("HELLO 3 AUTH default hidden").starts_with('{'));
        assert_eq!(line(&mut monitor), r#""HELLO" "3" "AUTH" "(redacted)" "(redacted)""#);
    }
    assert_eq!(monitor.run("RESET"), "+RESET");
}

#[test]
fn a_monitor_does_not_see_commands_of_administrators() {
    let server = TestServer::start();
    let (mut monitor, mut client) = (server.client(), server.client());
    monitor.check(&[("MONITOR", "+OK")]);
    for command in [
        "CONFIG GET port",
        "CONFIG SET timeout 0",
        "ACL LIST",
        "CLIENT LIST",
        "SLOWLOG GET",
        "LATENCY LATEST",
        "ACL LOG",
    ] {
        assert!(!client.run(command).starts_with('-'), "{command}");
    }
    client.check(&[("MULTI", "+OK"), ("CONFIG GET nosuch", "+QUEUED"), ("CLIENT GETNAME", "+QUEUED")]);
    client.check(&[("EXEC", "[[], (nil)]"), ("ACL WHOAMI", "default"), ("MEMORY PURGE", "+OK"), ("PING", "+PONG")]);
    for expected in
        [r#""MULTI""#, r#""CLIENT" "GETNAME""#, r#""EXEC""#, r#""ACL" "WHOAMI""#, r#""MEMORY" "PURGE""#, r#""PING""#]
    {
        assert_eq!(line(&mut monitor), expected);
    }
}

#[test]
fn the_slow_log_has_no_secrets_under_any_name_of_an_option() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[("CONFIG SET slowlog-log-slower-than 0", "+OK")]);
    for name in ["password", "PASSWORD", "requirepass", "user", "masterauth"] {
        assert!(client.run(&format!("CONFIG SET {name} secret-text port 7")).starts_with("-ERR "), "{name}");
    }
    let log = client.run("SLOWLOG GET -1");
    assert!(!log.contains("secret-text"), "{log}");
    assert!(log.contains("[CONFIG, SET, password, (redacted), port, 7]"), "{log}");
}

#[test]
fn slow_commands_are_logged() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[
        ("SLOWLOG LEN", ":0"),
        ("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 3", "+OK"),
        ("CLIENT SETNAME me", "+OK"),
        ("AUTH secret-one", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"),
        ("GET a", "(nil)"),
        ("SLOWLOG LEN", ":3"),
        ("SLOWLOG GET -2", "-ERR count should be greater than or equal to -1"),
        ("SLOWLOG FOO", "-ERR unknown subcommand 'FOO'. Try SLOWLOG HELP."),
    ]);
    client.check(&[
        ("CONFIG SET slowlog-max-len 100", "+OK"),
        ("AUTH x y", "-WRONGPASS invalid username-password pair or user is disabled."),
    ]);
    client.check(&[("GET key", "(nil)")]);
    let log = client.run("SLOWLOG GET -1");
    assert!(
        log.contains("[GET, key]") && log.contains("me]") && log.contains("[AUTH, (redacted), (redacted)]"),
        "{log}"
    );
    assert!(!log.contains("secret-one"));
    client.check(&[("CONFIG SET slowlog-log-slower-than -1", "+OK"), ("SLOWLOG RESET", "+OK"), ("SLOWLOG LEN", ":0")]);
}

#[test]
fn latency_is_recorded_from_its_threshold_on() {
    let server = TestServer::start_with(Engine::fluidkv(), enable_debug);
    let mut client = server.client();
    client.check(&[
        ("DEBUG SLEEP 0.02", "+OK"),
        ("LATENCY LATEST", "[]"),
        ("CONFIG SET latency-monitor-threshold 10", "+OK"),
        ("DEBUG SLEEP 0.02", "+OK"),
        ("LATENCY GRAPH x", "-ERR No samples available for event 'x'"),
        ("LATENCY HISTORY x", "[]"),
    ]);
    assert!(client.run("LATENCY LATEST").starts_with("[[command, :"));
    assert!(client.run("LATENCY HISTORY command").starts_with("[[:"));
    assert!(client.run("LATENCY GRAPH command").starts_with("command - high "));
    assert!(client.run("LATENCY DOCTOR").contains("* command: "));
    client.check(&[("CONFIG SET latency-monitor-threshold 0", "+OK"), ("LATENCY RESET command", ":1")]);
    client.run("LATENCY RESET");
    client.check(&[("LATENCY LATEST", "[]"), ("SET a 1", "+OK")]);
    assert!(client.run("LATENCY HISTOGRAM set get").starts_with("[set, [calls, :1, histogram_usec, [:"));
}

#[test]
fn commands_and_errors_of_all_loops_are_counted() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| config.threads = 4);
    for _ in 0..8 {
        let mut client = server.client();
        client.check(&[
            ("GET a", "(nil)"),
            ("SET a x", "+OK"),
            ("INCR a", "-ERR value is not an integer or out of range"),
        ]);
        client.check(&[("GET", "-ERR wrong number of arguments for 'get' command"), ("DEL a", ":1")]);
        client.check(&[("MULTI", "+OK"), ("GET a", "+QUEUED"), ("EXEC", "[(nil)]")]);
    }
    let mut client = server.client();
    let field =
        |info: &str, name: &str| info.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_string();
    let info = client.run("INFO commandstats");
    assert!(field(&info, "cmdstat_get:").starts_with("cmdstat_get:calls=16,"), "{info}");
    assert!(field(&info, "cmdstat_get:").contains("rejected_calls=8,failed_calls=0"), "{info}");
    assert!(field(&info, "cmdstat_incr:").ends_with("rejected_calls=0,failed_calls=8"), "{info}");
    assert_eq!(field(&client.run("INFO errorstats"), "errorstat_ERR:"), "errorstat_ERR:count=16");
    assert!(field(&client.run("INFO latencystats"), "latency_percentiles_usec_get:").contains("p99.9="));
    assert!(!client.run("INFO").contains("cmdstat_"));
    client.check(&[("CONFIG RESETSTAT", "+OK")]);
    assert!(!client.run("INFO commandstats").contains("cmdstat_get:"));
}

#[test]
fn a_save_is_a_backup_that_can_be_opened() {
    let dir = tempfile::tempdir().unwrap();
    let backups = dir.path().to_path_buf();
    let server = TestServer::start_with(Engine::fluidkv(), |config| config.backup_dir = Some(backups.clone()));
    let mut client = server.client();
    client.check(&[("SET a 1", "+OK"), ("SAVE", "+OK"), ("BGSAVE FOO", "-ERR syntax error")]);
    client.check(&[("SET a 2", "+OK"), ("BGSAVE", "+Background saving started")]);
    let is_saved = (0..6000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        client.run("INFO persistence").contains("rdb_bgsave_in_progress:0")
    });
    assert!(is_saved);
    assert!(client.run("INFO persistence").contains("rdb_last_bgsave_status:ok"));
    let last: u64 = client.run("LASTSAVE").trim_start_matches(':').parse().unwrap();
    assert!(last > 0);
    let mut names: Vec<_> = std::fs::read_dir(&backups).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert_eq!(names.len(), 2);
    for (path, expected) in names.iter().zip([b"\x001", b"\x002"]) {
        let db = Db::open(path).unwrap();
        let keyspace = db.keyspaces().unwrap().into_iter().find(|name| name.ends_with("database-0")).unwrap();
        let value = db.keyspace(keyspace).unwrap().get("a").unwrap().unwrap();
        assert_eq!(value.as_ref(), expected);
    }
}

#[test]
fn commands_that_do_not_apply_are_refused_with_a_reason() {
    let server = TestServer::start();
    let mut client = server.client();
    client.check(&[
        ("ROLE", "[master, :0, []]"),
        ("REPLICAOF NO ONE", "+OK"),
        ("FAILOVER", "-ERR FAILOVER requires connected replicas."),
        ("WAIT 1 0", ":0"),
    ]);
    for command in ["REPLICAOF localhost 1", "PSYNC ? -1", "SYNC", "REPLCONF"] {
        assert!(client.run(command).starts_with("-ERR this server does not replicate"), "{command}");
    }
    assert!(client.run("BGREWRITEAOF").starts_with("-ERR there is no append-only file"));
    assert!(client.run("BGSAVE").starts_with("-ERR no directory for backups is configured"));
    assert!(client.run("LOLWUT").contains("Lodestore ver. "));
}
