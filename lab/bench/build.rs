//! Passes version and commit to the program, for the records of `lodestore-bench evaluate`.

use std::process::Command;

/// Returns git's output in this directory, or `None` if there is no git, or no checkout.
fn git(words: &[&str]) -> Option<String> {
    let said = Command::new("git").args(words).output().ok().filter(|said| said.status.success())?;
    Some(String::from_utf8_lossy(&said.stdout).trim().to_string())
}

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    // A commit that differs from the sources is marked.
    let program = match git(&["describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=, changed since"]) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_string(),
    };
    println!("cargo::rustc-env=LODESTORE_PROGRAM={program}");
    // Inputs: the sources, the locked versions, and the file that every commit and checkout
    // changes.
    println!("cargo::rerun-if-changed=../../crates");
    println!("cargo::rerun-if-changed=../../lab");
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
}
