//! The processes of cells: their start, their standard error, and their end.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ChildStdout, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lodestore_contract::{Error, Result};

use crate::run::cell::{Cell, broken};
use crate::run::scratch::Scratch;

/// Names the cell that a process must run. The parent process sets it; users never do.
pub(crate) const CELL: &str = "LODESTORE_BENCH_CELL";
/// Number of lines of a process's standard error that are printed: its last. A peer may write a
/// line for each call.
const PRINTED_LINES: usize = 20;
/// Maximum time for a killed server to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);

/// The standard error of a process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    last: VecDeque<String>,
    left_out: u64,
}

impl Said {
    /// Reads everything, and keeps the last lines.
    fn read(from: impl Read) -> Self {
        let mut said = Self::default();
        // Unreadable output is not reported; the process is judged by its exit status.
        for line in BufReader::new(from).split(b'\n').map_while(io::Result::ok) {
            if said.last.len() == PRINTED_LINES {
                said.last.pop_front();
                said.left_out += 1;
            }
            said.last.push_back(String::from_utf8_lossy(&line).into_owned());
        }
        said
    }

    /// Returns its lines, preceded by a line with the number of dropped lines.
    pub(crate) fn lines(&self, target: &str) -> Vec<String> {
        let before = (self.left_out > 0).then(|| format!("{target} said {} lines more before these:", self.left_out));
        before.into_iter().chain(self.last.iter().cloned()).collect()
    }
}

/// Starts the process of `cell`: this program with the same arguments, and the cell in its
/// environment. `scratch` holds the process. Returns its process id, its output, and its standard
/// error.
///
/// # Errors
/// [`Error::Io`] if it cannot be started.
pub(crate) fn start(scratch: &Scratch, cell: &Cell) -> Result<(u32, ChildStdout, JoinHandle<Said>)> {
    let text = serde_json::to_string(cell).map_err(|error| broken("writing a cell", error.to_string()))?;
    let program = std::env::current_exe().map_err(|source| Error::io("finding this program", "", source))?;
    let mut child = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .env(CELL, text)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| Error::io("starting", &program, source))?;
    let (id, pipes) = (child.id(), child.stdout.take().zip(child.stderr.take()));
    scratch.hold_child(child);
    let (output, errors) = pipes.ok_or_else(|| broken("starting a process of the bench", "it has no output"))?;
    Ok((id, output, thread::spawn(move || Said::read(errors))))
}

/// Returns the error of a process that ended before it had reported everything. A successful
/// process has none.
pub(crate) fn ended(target: &str, status: Option<ExitStatus>) -> Result<()> {
    let how = match status {
        Some(status) if status.success() => return Ok(()),
        Some(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("one without a name");
                format!("its process was ended by signal {signal} ({name})")
            }
            (None, code) => format!("its process ended early, with exit code {}", code.unwrap_or(0)),
        },
        None => "its process ended early".into(),
    };
    Err(Error::io("measuring", target, io::Error::other(how)))
}

/// Kills a store's server, which is not a child of this process, with SIGKILL.
///
/// # Errors
/// [`Error::Io`] if there is none.
pub(crate) fn kill_server(id: u32) -> Result<()> {
    let killed = Command::new("sh").args(["-c", "kill -s KILL \"$1\"", "sh", &id.to_string()]).status();
    match killed.map_err(|source| Error::io("killing a server", "sh", source))?.success() {
        true => Ok(()),
        false => Err(broken("killing a server", format!("there is no process {id}"))),
    }
}

/// Waits until a killed server has ended, so that its files and its socket can be reused.
///
/// # Errors
/// [`Error::Io`] if it does not end.
pub(crate) fn wait_ended(id: u32) -> Result<()> {
    let begun = Instant::now();
    while Path::new(&format!("/proc/{id}")).exists() {
        if begun.elapsed() > KILL_TIMEOUT {
            return Err(broken("killing a server", format!("process {id} does not end")));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_process_says_the_last_lines_are_kept() {
        assert!(Said::read(&b""[..]).lines("x").is_empty());
        assert_eq!(Said::read(&b"a\n\xff\nb"[..]).lines("x"), ["a", "\u{fffd}", "b"]);
        let many: String = (0..100_000).map(|line| format!("BDB0137 {line}\n")).collect();
        let lines = Said::read(many.as_bytes()).lines("bdb-hash");
        assert_eq!(lines.len(), PRINTED_LINES + 1);
        assert_eq!(lines[0], "bdb-hash said 99980 lines more before these:");
        assert_eq!((lines[1].as_str(), lines[20].as_str()), ("BDB0137 99980", "BDB0137 99999"));
    }

    #[test]
    fn a_process_that_a_signal_ended_is_told_of_with_the_signals_name() {
        let told = |status: ExitStatus| ended("lmdb", Some(status)).err().map(|error| error.to_string());
        let text = told(ExitStatus::from_raw(7)).expect("it did not end well");
        assert!(text.contains("lmdb") && text.contains("SIGBUS") && !text.contains("try again; try again"), "{text}");
        assert!(told(ExitStatus::from_raw(3 << 8)).is_some_and(|text| text.contains("exit code 3")));
        assert_eq!(told(ExitStatus::from_raw(0)), None);
    }
}
