//! The commands on one key, and `count`.

use crate::common::{Sandbox, failed};

#[test]
fn a_put_value_is_returned_byte_for_byte() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "größe", "a value\twith\nall\\kinds"]);
    let output = sandbox.run(&["get", "store", "größe"]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"a value\twith\nall\\kinds"[..]));
    assert_eq!(sandbox.ok(&["get", "store", "größe", "--raw"]), "a value\twith\nall\\kinds");
    sandbox.ok(&["put", "store", "größe", ""]);
    assert_eq!(sandbox.ok(&["get", "store", "größe"]), "");
}

#[test]
fn insert_creates_and_never_overwrites() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["insert", "store", "k", "first"]);
    sandbox.fails(&["insert", "store", "k", "second"], 1, "already exists");
    assert_eq!(sandbox.ok(&["get", "store", "k"]), "first");
}

#[test]
fn update_overwrites_and_never_creates() {
    let sandbox = Sandbox::with_store();
    sandbox.fails(&["update", "store", "k", "v"], 1, "no key k");
    sandbox.fails(&["get", "store", "k"], 1, "no key k");
    sandbox.ok(&["put", "store", "k", "first"]);
    sandbox.ok(&["update", "store", "k", "second"]);
    assert_eq!(sandbox.ok(&["get", "store", "k"]), "second");
}

#[test]
fn delete_reports_whether_the_key_existed() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "k", "v"]);
    sandbox.ok(&["delete", "store", "k"]);
    sandbox.fails(&["delete", "store", "k"], 1, "no key k");
    assert_eq!(sandbox.ok(&["count", "store"]), "0\n");
}

#[test]
fn keys_and_values_may_begin_with_a_hyphen() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "-1", "-2"]);
    sandbox.ok(&["put", "store", "--", "-key", "--value"]);
    assert_eq!(sandbox.ok(&["get", "store", "-1"]), "-2");
    assert_eq!(sandbox.ok(&["get", "store", "--", "-key"]), "--value");
}

#[test]
fn hex_and_base64_carry_any_bytes() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "--hex", "00ff0a", "FF00"]);
    assert_eq!(sandbox.ok(&["get", "store", "--hex", "00ff0a"]), "ff00\n");
    assert_eq!(sandbox.ok(&["get", "store", "--base64", "AP8K"]), "/wA=\n");
    assert_eq!(sandbox.run(&["get", "store", "--hex", "00FF0A"]).stdout, b"ff00\n");
    sandbox.ok(&["delete", "store", "--base64", "AP8K"]);
    sandbox.fails(&["get", "store", "--hex", "00ff0a"], 1, "no key \\x00\\xff\\n");
}

#[test]
fn a_value_is_read_from_a_file_or_from_standard_input() {
    let sandbox = Sandbox::with_store();
    let bytes: Vec<u8> = (0..300_000u32).map(|at| (at % 251) as u8).collect();
    sandbox.write("value", &bytes);
    sandbox.ok(&["put", "store", "file", "--value-file", "value"]);
    assert_eq!(sandbox.run(&["get", "store", "file"]).stdout, bytes);
    let output = sandbox.feed(&["put", "store", "stdin", "--value-file", "-"], &bytes[..1000]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(sandbox.run(&["get", "store", "stdin"]).stdout, &bytes[..1000]);
    sandbox.fails(&["put", "store", "k", "--value-file", "absent"], 8, "absent");
}

#[test]
fn an_expired_key_is_absent() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "short", "v", "--ttl", "0.001"]);
    sandbox.ok(&["put", "store", "long", "v", "--ttl", "1000"]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    sandbox.fails(&["get", "store", "short"], 1, "no key short");
    assert!(sandbox.ok(&["get", "store", "long", "--json"]).contains("\"expires_at_ms\":"));
    sandbox.ok(&["insert", "store", "short", "again", "--ttl", "1000"]);
    sandbox.fails(&["insert", "store", "short", "more", "--ttl", "1000"], 1, "already exists");
    sandbox.ok(&["update", "store", "short", "more", "--ttl", "1000"]);
    sandbox.fails(&["update", "store", "never", "v", "--ttl", "1000"], 1, "no key never");
    assert_eq!(sandbox.ok(&["get", "store", "short"]), "more");
}

#[test]
fn update_removes_keeps_or_sets_the_expiry() {
    let sandbox = Sandbox::with_store();
    let expires_at = |sandbox: &Sandbox| {
        let line = sandbox.ok(&["get", "store", "session", "--json"]);
        line.split_once("\"expires_at_ms\":").map(|(_, rest)| rest.trim_end().trim_end_matches('}').to_owned())
    };
    sandbox.ok(&["put", "store", "session", "v", "--ttl", "1000"]);
    let first = expires_at(&sandbox).expect("it expires");
    sandbox.ok(&["update", "store", "session", "w", "--keep-ttl"]);
    assert_eq!(expires_at(&sandbox), Some(first.clone()));
    assert_eq!(sandbox.ok(&["get", "store", "session"]), "w");
    sandbox.ok(&["update", "store", "session", "x", "--ttl", "5000"]);
    assert_ne!(expires_at(&sandbox).expect("it expires"), first);
    sandbox.ok(&["update", "store", "session", "y"]);
    assert_eq!(expires_at(&sandbox), None, "update without an option removes the expiry");
    sandbox.ok(&["update", "store", "session", "z", "--keep-ttl"]);
    assert_eq!(expires_at(&sandbox), None, "there is no expiry to keep");
    sandbox.fails(&["update", "store", "never", "v", "--keep-ttl"], 1, "no key never");
}

#[test]
fn json_output_reports_each_operation() {
    let sandbox = Sandbox::with_store();
    assert_eq!(sandbox.ok(&["put", "store", "k", "v", "--json"]), "{\"op\":\"put\",\"key\":\"k\",\"done\":true}\n");
    assert_eq!(
        sandbox.ok(&["get", "store", "k", "--json"]),
        "{\"op\":\"get\",\"key\":\"k\",\"found\":true,\"value\":\"v\"}\n"
    );
    sandbox.ok(&["put", "store", "--hex", "ff", "fe"]);
    assert_eq!(
        sandbox.ok(&["get", "store", "--hex", "ff", "--json"]),
        "{\"op\":\"get\",\"key_b64\":\"/w==\",\"found\":true,\"value_b64\":\"/g==\"}\n"
    );
    assert_eq!(
        sandbox.fails(&["insert", "store", "k", "w", "--json"], 1, "already exists"),
        "{\"op\":\"insert\",\"key\":\"k\",\"done\":false}\n"
    );
    assert_eq!(
        sandbox.fails(&["get", "store", "x", "--json"], 1, "no key x"),
        "{\"op\":\"get\",\"key\":\"x\",\"found\":false}\n"
    );
    assert_eq!(sandbox.ok(&["delete", "store", "k", "--json"]), "{\"op\":\"delete\",\"key\":\"k\",\"done\":true}\n");
    assert_eq!(sandbox.ok(&["count", "store", "--json"]), "{\"count\":1}\n");
}

#[test]
fn keys_outside_their_limits_are_bad_arguments() {
    let sandbox = Sandbox::with_store();
    sandbox.fails(&["put", "store", "", "v"], 2, "the key has 0 bytes");
    sandbox.fails(&["get", "store", ""], 2, "the key has 0 bytes");
    let longest = "k".repeat(64 << 10);
    sandbox.ok(&["put", "store", &longest, "v"]);
    assert_eq!(sandbox.ok(&["get", "store", &longest]), "v");
    sandbox.fails(&["put", "store", &format!("{longest}k"), "v"], 2, "the key has 65537 bytes");
}

#[test]
fn a_message_never_breaks_its_line() {
    let sandbox = Sandbox::with_store();
    let args = ["get", "store", "two\nlines\x1b[2J"];
    failed(&sandbox.run(&args), 1, "two\\nlines\\x1b", &args);
}

#[test]
fn stats_name_the_segments_written_most() {
    let sandbox = Sandbox::with_store();
    sandbox.ok(&["put", "store", "k", "v"]);
    let table = sandbox.ok(&["stats", "store"]);
    assert!(table.contains("written in total") && table.contains("mean per segment"), "{table}");
    assert!(table.contains("  region 0 segment "), "{table}");
    let stats: serde_json::Value = serde_json::from_str(&sandbox.ok(&["stats", "store", "--json"])).expect("an object");
    let wear = &stats["wear"];
    let hottest = wear["hottest"].as_array().expect("a list");
    let bytes: Vec<u64> = hottest.iter().filter_map(|segment| segment["bytes"].as_u64()).collect();
    assert!(bytes.len() == hottest.len() && bytes.len() <= 16, "{wear}");
    assert!(bytes.is_sorted_by(|a, b| a >= b) && wear["max"] == bytes[0] && bytes[0] > 0, "{wear}");
    assert!(wear["segments"].as_u64() > Some(0) && wear["bytes"].as_u64() >= wear["max"].as_u64(), "{wear}");
}

#[test]
fn stats_are_written_as_open_metrics_with_the_labels_of_the_store() {
    let sandbox = Sandbox::new();
    sandbox.ok(&["create", "store", "--size", "64M", "--engine", "fluidkv"]);
    sandbox.ok(&["put", "store", "key", "value"]);
    let text = sandbox.ok(&["stats", "store", "--openmetrics"]);
    let labels = r#"{engine="fluidkv",store="store"}"#;
    assert!(text.trim_end().ends_with("\n# EOF"), "{text}");
    for line in [
        "# TYPE lodestore_fluidkv_flushed_bytes counter".to_owned(),
        "# UNIT lodestore_fluidkv_flushed_bytes bytes".into(),
        format!("lodestore_keys{labels} 1"),
    ] {
        assert!(text.lines().any(|known| known == line), "{line} is not in {text}");
    }
    sandbox.fails(&["stats", "store", "--openmetrics", "--json"], 2, "cannot be used with");
}
