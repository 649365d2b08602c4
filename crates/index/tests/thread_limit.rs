//! A bulk load while the system refuses to start threads. The test runs itself again in a process
//! whose threads would need a stack larger than the address space.

#![expect(clippy::big_endian_bytes, reason = "keys sort as their numbers do")]

use std::env;
use std::process::Command;

use lodestore_index::{BPlusTree, KeyResolver};

const CHILD: &str = "LODESTORE_TEST_WITHOUT_THREADS";
const KEYS: u64 = 100_000;
const STACK_BYTES: u64 = 1 << 50;

/// Payloads that are their own keys.
struct Own;

impl KeyResolver for Own {
    fn with_key<T>(&self, payload: u64, f: impl FnOnce(&[u8]) -> T) -> T {
        f(&payload.to_be_bytes())
    }

    fn prefetch(&self, _payload: u64) {}
}

fn load() {
    let refused = std::thread::Builder::new().spawn(|| ());
    assert!(refused.is_err(), "the process can start a thread");
    let tree = BPlusTree::new();
    let sorted: Vec<u64> = (0..KEYS).collect();
    tree.bulk_load(&Own, &sorted, 4).expect("sorted");
    for payload in 0..KEYS {
        assert_eq!(tree.get(&Own, &payload.to_be_bytes()), Some(payload));
    }
}

#[test]
fn a_bulk_load_without_threads_is_done_by_its_caller() {
    if env::var_os(CHILD).is_some() {
        return load();
    }
    let child = Command::new(env::current_exe().expect("this test"))
        .args(["--exact", "a_bulk_load_without_threads_is_done_by_its_caller", "--nocapture"])
        .env(CHILD, "1")
        .env("RUST_MIN_STACK", STACK_BYTES.to_string())
        .output()
        .expect("a child");
    let text = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{}: {text}", child.status);
    assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"), "the child ran the test");
}
