//! The file of counts: its format, and the comparison with measured counts.

use std::fmt;

use crate::Result;

/// Percent by which a path may grow. The head of the file explains the number.
pub(crate) const TOLERANCE_PERCENT: u64 = 5;

/// The text above the numbers.
const HEAD: &str = "\
# Instructions an operation of each engine's hot paths, by valgrind's callgrind, in a release build: 20000 records of 16 and 256 bytes on tmpfs.
# Only the calling thread's count, in user space. A call of the C library's allocator counts as 100, since what it takes follows from the state of its heap.
# `bash .ci/run` fails where a path grows by more than 5 %. Why 5: the last column has what runs of the same program differed by, in hundredths; the
# rest is for the C library of another machine, whose copies and comparisons are up to a tenth of a path. Other compilers and targets than these make other code: there
# the guard tells, and does not fail.
# To accept new figures: cargo run --release -p lodestore-bench --example instructions -- --bless
";

/// A path of an engine.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    /// The engine's name.
    pub(crate) engine: String,
    /// The path's name.
    pub(crate) path: String,
    /// Instructions per operation: the minimum of several runs.
    pub(crate) instructions: u64,
    /// Percent by which the maximum exceeds the minimum.
    pub(crate) spread: f64,
}

/// Counts, and the compiler and target to which they apply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Counts {
    /// The compiler's version text.
    pub(crate) rustc: String,
    /// Processor, system and C library of the compilation.
    pub(crate) target: String,
    /// The paths.
    pub(crate) lines: Vec<Line>,
}

impl Counts {
    /// Parses counts in the format of [`Display`](fmt::Display).
    ///
    /// # Errors
    /// If a line has another format, or compiler or target is missing.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (mut rustc, mut target, mut lines) = (None, None, Vec::new());
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            if line.starts_with("rustc ") {
                rustc = Some(line.into());
            } else if let Some(text) = line.strip_prefix("target ") {
                target = Some(text.into());
            } else {
                let words: Vec<_> = line.split_whitespace().collect();
                let [engine, path, instructions, spread] = words[..] else {
                    return Err(format!("no engine, path, instructions and spread: {line}").into());
                };
                let (engine, path) = (engine.into(), path.into());
                lines.push(Line { engine, path, instructions: instructions.parse()?, spread: spread.parse()? });
            }
        }
        let missing = |what: &str| format!("no line says which {what} the counts are of");
        Ok(Self {
            rustc: rustc.ok_or_else(|| missing("rustc"))?,
            target: target.ok_or_else(|| missing("target"))?,
            lines,
        })
    }

    /// Returns the counts of this path.
    fn line(&self, engine: &str, path: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.engine == engine && line.path == path)
    }

    /// Returns the differences of `new` from these counts, for the engines in `new`.
    pub(crate) fn compare(&self, new: &Self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for line in &new.lines {
            let old = self.line(&line.engine, &line.path).map(|old| old.instructions);
            let now = line.instructions;
            let kind = match old {
                None => Kind::Unknown,
                Some(old) if now * 100 > old * (100 + TOLERANCE_PERCENT) => Kind::Grown,
                Some(old) if now * 100 < old * (100 - TOLERANCE_PERCENT) => Kind::Fallen,
                Some(_) => continue,
            };
            findings.push(Finding { kind, name: format!("{} {}", line.engine, line.path), old: old.unwrap_or(0), now });
        }
        let is_measured = |engine: &str| new.lines.iter().any(|line| line.engine == engine);
        for line in self.lines.iter().filter(|line| is_measured(&line.engine)) {
            if new.line(&line.engine, &line.path).is_none() {
                let name = format!("{} {}", line.engine, line.path);
                findings.push(Finding { kind: Kind::Gone, name, old: line.instructions, now: 0 });
            }
        }
        findings
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HEAD}{}\ntarget {}\n", self.rustc, self.target)?;
        for Line { engine, path, instructions, spread } in &self.lines {
            writeln!(f, "{engine:<8} {path:<12} {instructions:>8} {spread:>6.2}")?;
        }
        Ok(())
    }
}

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The path needs more instructions than allowed.
    Grown,
    /// The path needs so few instructions that the recorded count no longer guards it.
    Fallen,
    /// The file has no count for the path.
    Unknown,
    /// The path was not measured, but the file has a count.
    Gone,
}

/// A path that differs from the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The kind of the difference.
    pub(crate) kind: Kind,
    name: String,
    old: u64,
    now: u64,
}

impl Finding {
    /// Returns whether the guard fails because of this.
    pub(crate) fn is_failure(&self) -> bool {
        self.kind != Kind::Fallen
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, old, now } = self;
        let percent = (*now as f64 / *old as f64 - 1.0) * 100.0;
        match kind {
            Kind::Grown => write!(f, "{name} grew by {percent:.1} %: from {old} to {now} instructions an operation"),
            Kind::Fallen => {
                write!(f, "{name} fell by {:.1} %: from {old} to {now} instructions an operation", -percent)
            }
            Kind::Unknown => write!(f, "{name} has no figure yet: {now} instructions an operation"),
            Kind::Gone => write!(f, "{name} was not measured, but has a figure: {old} instructions an operation"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(lines: &[(&str, &str, u64)]) -> Counts {
        let line = |&(engine, path, instructions): &(&str, &str, u64)| Line {
            engine: engine.into(),
            path: path.into(),
            instructions,
            spread: 0.25,
        };
        Counts {
            rustc: "rustc 1.95.0 (59807616e 2026-04-14)".into(),
            target: "x86_64-linux-gnu".into(),
            lines: lines.iter().map(line).collect(),
        }
    }

    fn kinds(old: &[(&str, &str, u64)], new: &[(&str, &str, u64)]) -> Vec<Kind> {
        counts(old).compare(&counts(new)).iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let written = counts(&[("hikv", "get", 976), ("mkvs", "scan_50", 505_263)]);
        assert_eq!(Counts::parse(&written.to_string()).unwrap(), written);
    }

    #[test]
    fn lines_of_another_form_are_refused() {
        let whole = counts(&[("hikv", "get", 976)]).to_string();
        assert!(Counts::parse(&whole.replace("976", "many")).is_err());
        assert!(Counts::parse(&whole.replace("976", "")).is_err());
        assert!(Counts::parse(&whole.replace("rustc 1", "# 1")).is_err());
        assert!(Counts::parse(&whole.replace("target x", "# x")).is_err());
    }

    #[test]
    fn the_tolerance_is_allowed_and_no_more() {
        let old = [("hikv", "get", 1000)];
        assert_eq!(kinds(&old, &[("hikv", "get", 1050)]), []);
        assert_eq!(kinds(&old, &[("hikv", "get", 1051)]), [Kind::Grown]);
        assert_eq!(kinds(&old, &[("hikv", "get", 950)]), []);
        assert_eq!(kinds(&old, &[("hikv", "get", 949)]), [Kind::Fallen]);
    }

    #[test]
    fn paths_that_only_one_side_has_are_told_of_engines_that_were_measured() {
        let old = [("hikv", "get", 10), ("hikv", "delete", 10), ("nvht", "get", 10)];
        assert_eq!(kinds(&old, &[("hikv", "get", 10), ("hikv", "put_new", 10)]), [Kind::Unknown, Kind::Gone]);
    }

    #[test]
    fn a_finding_names_the_path_and_by_how_much_it_grew() {
        let found = counts(&[("nvht", "get", 1000)]).compare(&counts(&[("nvht", "get", 1104)]));
        assert_eq!(found[0].to_string(), "nvht get grew by 10.4 %: from 1000 to 1104 instructions an operation");
        assert!(found[0].is_failure());
    }
}
