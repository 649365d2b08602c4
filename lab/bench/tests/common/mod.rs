//! Shared code of the tests of the program `bench`.

use std::fs;
use std::process::{Command, Output, Stdio};

pub use lodestore_contract::testing::Scratch;
use serde_json::Value;

/// Returns whether a directory, which the bench must leave empty, is empty.
pub fn is_empty(dir: &Scratch) -> bool {
    fs::read_dir(dir.path()).expect("the directory is there").next().is_none()
}

/// Runs the program with these words, and with this directory.
pub fn bench(words: &str, dir: Option<&Scratch>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lodestore-bench"));
    command.arg("run");
    command.args(words.split_whitespace()).stdin(Stdio::null());
    if let Some(dir) = dir {
        command.arg("--dir").arg(dir.path());
    }
    command.output().expect("the bench starts")
}

/// Returns the objects that a successful run printed.
pub fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}
