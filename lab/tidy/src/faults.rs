//! Planted faults in product code: a crate names its own faults only, and only the functions that
//! ask for a fault have one as a parameter.

use crate::mask::{Masked, identifiers};
use crate::tree::File;
use crate::{Finding, Rule};

/// Types of planted faults.
pub const FAULT_TYPES: [&str; 2] = ["PlantedFault", "Mutant"];
/// Names of the functions that ask whether a fault is planted.
pub const QUERIES: [&str; 2] = ["has_fault", "mutant"];
/// Module of a crate with the names of its faults.
const LIST: &str = "planted";

/// Returns the findings of the product's sources, without tests and lists of faults.
pub fn check_source(file: &File, masked: &Masked) -> Vec<Finding> {
    let is_test = ["/tests/", "/tests.rs", "/sim/"].iter().any(|part| file.path.contains(part));
    if !(file.path.starts_with("crates/") && file.path.contains("/src/")) || is_test {
        return Vec::new();
    }
    let finding =
        |line: usize, message: String| Finding { rule: Rule::PlantedFault, path: file.path.clone(), line, message };
    let mut findings = Vec::new();
    for (at, name, parameters) in functions(&masked.code) {
        let has_fault = identifiers(parameters).any(|word| FAULT_TYPES.contains(&word));
        if has_fault && !QUERIES.contains(&name) && !file.path.ends_with("/planted.rs") {
            let line = masked.code[..at].matches('\n').count() + 1;
            findings.push(finding(line, format!("`{name}` has a planted fault as a parameter")));
        }
    }
    for (index, line) in masked.code.lines().enumerate() {
        let is_of_other_crate = identifiers(line).any(|word| word.starts_with("lodestore_"));
        if is_of_other_crate && identifiers(line).any(|word| word == LIST) {
            findings.push(finding(index + 1, "the planted faults of another crate are named".into()));
        }
    }
    findings
}

/// Returns the position, the name and the parameters of each function, with or without a body.
fn functions(code: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    code.match_indices("fn ").filter_map(|(at, _)| {
        let rest = &code[at + 3..];
        let name = identifiers(rest).next().filter(|name| rest.starts_with(name))?;
        let open = rest.find('(')?;
        let mut depth = 0_usize;
        let close = rest[open..].find(|letter| {
            depth = match letter {
                '(' => depth + 1,
                ')' => depth - 1,
                _ => depth,
            };
            depth == 0
        })?;
        Some((at, name, &rest[open..open + close]))
    })
}
