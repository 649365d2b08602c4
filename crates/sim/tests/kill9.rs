//! A short run of the `kill9` program; the long ones are started by hand.

use std::path::{Path, PathBuf};
use std::process::Command;

fn run(name: &str, arguments: &[&str]) {
    let shm = Path::new("/dev/shm");
    let base: PathBuf = if shm.is_dir() { shm.into() } else { std::env::temp_dir() };
    let dir = base.join(format!("lodestore-test-{}-{name}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_kill9"))
        .arg("--dir")
        .arg(&dir)
        .args(arguments)
        .output()
        .expect("the program runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{out}{err}");
    assert!(output.status.success(), "{err}");
    assert!(!dir.exists(), "the directory is removed");
}

#[test]
fn two_writers_lose_nothing() {
    run("process", &["--rounds", "12", "--threads", "2", "--keys", "500", "--life-ms", "150", "--seed", "1"]);
}

#[test]
fn one_writer_loses_nothing_where_every_flush_is_executed() {
    let flushed = ["--durability", "power", "--emulate-dax"];
    run(
        "dax",
        &[&["--rounds", "6", "--threads", "1", "--keys", "200", "--life-ms", "100", "--seed", "2"], &flushed[..]]
            .concat(),
    );
}
