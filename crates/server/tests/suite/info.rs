//! The fields of `INFO` on memory, traffic and replication.

use super::common::{Client, TestServer};
use lodestore::db::Engine;

const MEBIBYTE: usize = 1 << 20;

/// Pause between two checks of the used memory, which the store frees in the background.
const LOOK_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

/// Maximum checks of the used memory.
const LOOKS_MAX: usize = 6000;

/// Returns the value of a field in the text of `INFO`.
fn field(info: &str, name: &str) -> String {
    let found = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| panic!("{name}: {info}")).trim_end().to_string()
}

fn number(info: &str, name: &str) -> u64 {
    let value = field(info, name);
    value.parse().unwrap_or_else(|_| panic!("{name}: {value}"))
}

#[test]
fn the_fields_on_memory_agree_with_each_other() {
    let server = TestServer::start_with(Engine::hikv(), |_| {});
    let mut client = server.client();
    client.run_arguments(&[b"SET", &b"large"[..], &vec![b'x'; 8 * MEBIBYTE]]);
    let info = client.run("INFO memory");
    let (used, resident) = (number(&info, "used_memory"), number(&info, "used_memory_rss"));
    assert!(used >= 8 * MEBIBYTE as u64, "{info}");
    assert_eq!(number(&info, "used_memory_dataset"), used);
    assert_eq!(field(&info, "mem_fragmentation_ratio"), format!("{:.2}", resident as f64 / used as f64));
    assert!(number(&info, "total_system_memory") > resident, "{info}");
    for name in ["used_memory_peak_human", "total_system_memory_human"] {
        assert!(!field(&info, name).is_empty(), "{name}");
    }
}

#[test]
fn the_peak_of_the_memory_is_kept_after_a_delete() {
    let server = TestServer::start_with(Engine::hikv(), |_| {});
    let mut client = server.client();
    client.run_arguments(&[b"SET", &b"large"[..], &vec![b'x'; 8 * MEBIBYTE]]);
    let before = client.run("INFO memory");
    assert!(number(&before, "used_memory_peak") >= number(&before, "used_memory"), "{before}");
    client.check(&[("DEL large", ":1")]);
    let is_freed = (0..LOOKS_MAX).any(|_| {
        std::thread::sleep(LOOK_PAUSE);
        number(&client.run("INFO memory"), "used_memory") < number(&before, "used_memory")
    });
    assert!(is_freed, "the store frees a deleted record");
    let after = client.run("INFO memory");
    assert!(number(&after, "used_memory_peak") >= number(&before, "used_memory_peak"), "{after}");
}

/// Sends commands until the server closes the connection.
fn fill(client: &mut Client) {
    let half = [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9000000\r\n"[..], &vec![b'x'; 8 * MEBIBYTE]].concat();
    drop(client.try_send_raw(&half));
    assert!(client.try_receive().is_none());
}

#[test]
fn clients_that_their_memory_closes_are_counted() {
    let server = TestServer::start_with(Engine::fluidkv(), |config| config.clients_memory_max = MEBIBYTE as u64);
    assert_eq!(field(&server.client().run("INFO stats"), "evicted_clients"), "0");
    fill(&mut server.client());
    let mut client = server.client();
    assert_eq!(field(&client.run("INFO stats"), "evicted_clients"), "1");
    client.check(&[("CONFIG RESETSTAT", "+OK")]);
    assert_eq!(field(&client.run("INFO stats"), "evicted_clients"), "0");
}

#[test]
fn the_first_rates_are_zero_and_no_replica_has_an_offset() {
    let server = TestServer::start();
    let mut client = server.client();
    let info = client.run("INFO stats");
    for name in ["instantaneous_input_kbps", "instantaneous_output_kbps"] {
        assert_eq!(field(&info, name), "0.00", "{name}");
    }
    assert_eq!(field(&client.run("INFO replication"), "master_repl_offset"), "0");
}
