//! Valgrind's callgrind: runs this program under it, and reads its profiles.
//!
//! The counts are the instructions in user space of the thread in
//! [`counted`](crate::paths::counted), including callees. The cost of the C library's allocator
//! depends on the state of its heap, which depends on the timing of other threads' allocations.
//! Each call of it therefore counts as [`ALLOCATION_COUNT`] instructions, whatever its real cost.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Result;
use crate::paths::Subject;

/// The function whose instructions count, as valgrind prints its name.
const COUNTED: &str = "instructions::paths::counted";
/// Instructions counted for a call of the allocator.
const ALLOCATION_COUNT: u64 = 100;
/// The allocator's functions.
const ALLOCATOR: [&str; 6] = ["malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc"];

/// Returns whether valgrind is installed.
pub(crate) fn is_installed() -> bool {
    let asked = Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Returns the paths of one engine with their instructions per operation. The store is in
/// `directory`, which must not exist.
///
/// # Errors
/// If valgrind, or this program under it, fails; if a profile is missing or empty.
pub(crate) fn measure(subject: &Subject, directory: &Path) -> Result<Vec<(String, u64)>> {
    fs::create_dir(directory)?;
    let measured = measure_in(subject, directory);
    fs::remove_dir_all(directory)?;
    measured
}

fn measure_in(subject: &Subject, directory: &Path) -> Result<Vec<(String, u64)>> {
    let profile = directory.join("profile");
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind"])
        .arg("--separate-threads=yes")
        .arg(format!("--dump-before={COUNTED}"))
        .arg(format!("--dump-after={COUNTED}"))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe()?)
        .args(["--serve", subject.engine])
        .arg(directory.join("store"))
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{} under valgrind: {}", subject.engine, output.status).into());
    }
    let told = String::from_utf8(output.stdout)?;
    let mut paths = Vec::new();
    for (index, line) in told.lines().enumerate() {
        let (name, count) = line.split_once(' ').ok_or_else(|| format!("no path and count: {line}"))?;
        let count: u64 = count.parse()?;
        // Profiles of this thread are numbered from 1. Each path has two: one of the code before
        // it, and its own. (If nothing was collected before the path, valgrind would attribute
        // earlier calls to the path.)
        let part = profile.with_extension(format!("{}-01", 2 * index + 2));
        let text = fs::read_to_string(&part).map_err(|error| format!("valgrind has not seen {COUNTED}: {error}"))?;
        paths.push((name.into(), (instructions(&text)? + count / 2) / count));
    }
    Ok(paths)
}

/// The names in a profile. A line has `(12)`, or `(12) name` at the first use of the number.
struct Names(HashMap<String, String>);

impl Names {
    fn name(&mut self, text: &str) -> String {
        let (number, name) = text.split_once(' ').unwrap_or((text, ""));
        if name.is_empty() {
            return self.0.get(number).cloned().unwrap_or_default();
        }
        self.0.insert(number.into(), name.into());
        name.into()
    }
}

/// Returns the instructions of a profile in callgrind's format.
///
/// # Errors
/// If the profile has another format.
fn instructions(profile: &str) -> Result<u64> {
    let mut names = Names(HashMap::new());
    let (mut caller, mut callee) = (String::new(), String::new());
    // Calls of the allocator, whose cost is in the next line of numbers.
    let mut calls = None;
    let mut all = 0_u64;
    for line in profile.lines() {
        if let Some(text) = line.strip_prefix("fn=") {
            caller = names.name(text);
        } else if let Some(text) = line.strip_prefix("cfn=") {
            callee = names.name(text);
        } else if let Some(text) = line.strip_prefix("calls=") {
            let number: u64 = text.split(' ').next().unwrap_or_default().parse()?;
            calls = Some(if is_allocator(&callee) && !is_allocator(&caller) { number } else { 0 });
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost: u64 = line.rsplit(' ').next().unwrap_or_default().parse()?;
            match calls.take() {
                None => all = all.wrapping_add(cost),
                Some(0) => {}
                // The allocator's own lines are in the sum too, earlier or later, so the sum may go
                // below zero.
                Some(calls) => all = all.wrapping_add(calls * ALLOCATION_COUNT).wrapping_sub(cost),
            }
        }
    }
    Ok(all)
}

/// Returns whether this is a function of the allocator. A name may have a suffix for its recursion
/// depth.
fn is_allocator(name: &str) -> bool {
    ALLOCATOR.contains(&name.split('\'').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In valgrind's format: names are given once, and the costs of a call follow its line.
    const PROFILE: &str = "\
# callgrind format
version: 1
part: 1
desc: Timerange: Basic block 0 - 12
positions: line
events: Ir

fl=(1) paths.rs
ob=(1) program
fn=(1) instructions::paths::counted
0 10
cob=(2) libc
cfn=(2) malloc
calls=3 0
* 600
cfn=(3) store::get
calls=2 0
+4 57

fn=(3)
0 17
cfi=(2)
cob=(2)
cfn=(4) memcpy
calls=2 0
0 40

ob=(2)
fn=(2)
0 250
cfn=(5) _int_malloc
calls=3 0
0 350

fn=(5)
0 350

fn=(4)
0 40

totals: 667
";

    #[test]
    fn what_a_thread_does_counts_once_and_calls_of_the_allocator_at_their_price() {
        // 10 and 17 of its own, 40 of memcpy, three allocations.
        assert_eq!(instructions(PROFILE).unwrap(), 10 + 17 + 40 + 3 * ALLOCATION_COUNT);
    }

    #[test]
    fn what_the_allocator_calls_of_itself_is_part_of_the_call() {
        let profile = "fn=(1) get\n0 5\ncfn=(2) realloc\ncalls=1 0\n0 90\n\nfn=(2)\n0 20\ncfn=(3) malloc\ncalls=1 0\n0 70\n\nfn=(3)\n0 70\n";
        assert_eq!(instructions(profile).unwrap(), 5 + ALLOCATION_COUNT);
    }

    #[test]
    fn a_profile_of_nothing_has_no_instructions() {
        assert_eq!(instructions("# callgrind format\nevents: Ir\n\ntotals: 0\n").unwrap(), 0);
        assert!(instructions("fn=(1) get\n0 many\n").is_err());
    }
}
