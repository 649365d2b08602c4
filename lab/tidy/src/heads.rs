//! The head of each crate: the same sections in the same order.

use std::collections::BTreeSet;

use crate::tree::File;
use crate::{Finding, Rule};

/// Sections of a crate's first doc comment.
pub const SECTIONS: [&str; 2] = ["# Guarantees", "# Modules"];

/// Returns a finding for each section that the head of a crate lacks. Clients in `scripts` are not
/// part of the project.
pub fn check_crates(files: &[File]) -> Vec<Finding> {
    let libraries: BTreeSet<&str> = files.iter().filter_map(|file| file.path.strip_suffix("/src/lib.rs")).collect();
    let mut findings = Vec::new();
    for file in files {
        let library = file.path.strip_suffix("/src/lib.rs");
        let program = file.path.strip_suffix("/src/main.rs").filter(|path| !libraries.contains(path));
        let Some(crate_path) = library.or(program).filter(|path| !path.starts_with("scripts/")) else { continue };
        let head: Vec<&str> = file.text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
        let mut from = 0;
        for section in SECTIONS {
            match head[from..].iter().position(|line| *line == section) {
                Some(at) => from += at + 1,
                None => findings.push(Finding {
                    rule: Rule::CrateHead,
                    path: crate_path.to_owned(),
                    line: 1,
                    message: format!("the head has no section {section:?}, or in another order"),
                }),
            }
        }
    }
    findings
}
