//! The map of the crates in ARCHITECTURE.md: each crate is named once, and each name has a folder.
//!
//! The map is the table of one section. The second field of each row has the folders of crates, in
//! backquotes.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::File;
use crate::{Finding, Rule};

/// The page that has the map.
pub const PAGE: &str = "ARCHITECTURE.md";
/// The heading of the section that has the map.
pub const HEADING: &str = "## Crates and layers";
/// The folders of crates: the product, and the programs and tests around it.
pub const FOLDERS: [&str; 2] = ["crates", "lab"];

/// Returns a finding for each crate that the map lacks, names twice, or names without a folder.
pub fn check_map(files: &[File]) -> Vec<Finding> {
    let crates = crate_folders(files);
    let mut lines_by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (line, name) in files.iter().find(|file| file.path == PAGE).into_iter().flat_map(|page| names(&page.text)) {
        lines_by_name.entry(name).or_default().push(line);
    }
    let finding = |line, message| Finding { rule: Rule::CrateMap, path: PAGE.to_owned(), line, message };
    let missing = crates.iter().filter(|name| !lines_by_name.contains_key(*name));
    let mut findings: Vec<Finding> =
        missing.map(|name| finding(1, format!("the map does not name `{name}`"))).collect();
    for (name, lines) in &lines_by_name {
        if !crates.contains(name) {
            findings.push(finding(lines[0], format!("`{name}` is no crate")));
        }
        findings.extend(lines[1..].iter().map(|line| finding(*line, format!("the map names `{name}` again"))));
    }
    findings
}

/// Returns the folders that have a manifest, directly in one of [`FOLDERS`].
fn crate_folders(files: &[File]) -> BTreeSet<&str> {
    let folder = |file: &'_ &File| -> bool {
        let parts: Vec<&str> = file.path.split('/').collect();
        matches!(parts[..], [folder, _, "Cargo.toml"] if FOLDERS.contains(&folder))
    };
    files.iter().filter(folder).filter_map(|file| file.path.strip_suffix("/Cargo.toml")).collect()
}

/// Returns the names of the map, with the line number of each.
fn names(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = page.lines().enumerate().skip_while(|(_, line)| *line != HEADING).skip(1);
    let section = lines.take_while(|(_, line)| !line.starts_with("## "));
    section.flat_map(|(index, line)| {
        let field = line.strip_prefix('|').and_then(|row| row.split('|').nth(1)).unwrap_or_default();
        field.split('`').skip(1).step_by(2).map(move |name| (index + 1, name))
    })
}
