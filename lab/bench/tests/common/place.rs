//! A directory in which the program runs.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use lodestore_contract::testing::Scratch;

/// A directory that is removed with its owner, in memory if the machine has tmpfs.
pub struct Place {
    dir: Scratch,
}

impl Place {
    /// Creates an empty directory.
    pub fn new() -> Self {
        Self { dir: Scratch::new() }
    }

    /// Returns a path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the program with these arguments, to be started in the directory.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lodestore-bench"));
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program starts")
    }

    /// Runs the program, which must end with code 0 and print nothing to standard error. Returns
    /// its output.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{args:?}");
        text(&output.stdout)
    }

    /// Runs the program, which must end with this code and print `says` to standard error. Returns
    /// its output.
    pub fn fails(&self, args: &[&str], code: i32, says: &str) -> String {
        let output = self.run(args);
        let told = text(&output.stderr);
        assert!(output.status.code() == Some(code) && told.contains(says), "{args:?}: {:?}: {told}", output.status);
        text(&output.stdout)
    }
}

/// Returns output as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
