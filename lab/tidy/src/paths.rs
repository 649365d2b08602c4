//! Paths of source files in comments and pages: each names a file that exists.
//!
//! A path is the whole text between two backquotes of a line and ends in `.rs`. In a comment, it
//! is relative to the workspace or to any folder of the same crate. In a page, it is relative to
//! any folder.

use crate::mask::Masked;
use crate::tree::File;
use crate::{Finding, Rule};

/// Pages whose paths are checked, besides those in `docs`.
pub const PAGES: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Returns a finding for each path of a source file that does not exist.
pub fn check_paths(files: &[File]) -> Vec<Finding> {
    let sources: Vec<&str> = files.iter().filter(|file| file.is_rust()).map(|file| file.path.as_str()).collect();
    let mut findings = Vec::new();
    for file in files {
        let mut check = |line: usize, text: &str, folder: &str| {
            for path in source_paths(text).filter(|path| !names_source(&sources, path, folder)) {
                let message = format!("`{path}` is no source file");
                findings.push(Finding { rule: Rule::SourcePath, path: file.path.clone(), line, message });
            }
        };
        if let Some(folder) = crate_folder(file) {
            for comment in &Masked::new(&file.text).comments {
                check(comment.line, &comment.text, folder);
            }
        } else if is_page(&file.path) {
            file.text.lines().enumerate().for_each(|(index, line)| check(index + 1, line, ""));
        }
    }
    findings
}

/// Returns the folder of the crate, with its final slash, if the file is source of a product crate.
fn crate_folder(file: &File) -> Option<&str> {
    let at = file.path.find("/src/").filter(|_| file.is_rust() && file.path.starts_with("crates/"))?;
    Some(&file.path[..=at])
}

/// Returns whether the paths of a page are checked.
fn is_page(path: &str) -> bool {
    PAGES.contains(&path) || (path.starts_with("docs/") && path.ends_with(".md"))
}

/// Returns the paths of source files between two backquotes of a line.
fn source_paths(line: &str) -> impl Iterator<Item = &str> {
    let last = line.matches('`').count();
    let is_path = |text: &str| text.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-./".contains(letter));
    // A code span may begin on the line before, so spans and the text between them are not told
    // apart. Text between spans has spaces.
    let between = line.split('`').enumerate().filter(move |(index, _)| *index > 0 && *index < last);
    between.map(|(_, text)| text).filter(move |text| text.ends_with(".rs") && is_path(text))
}

/// Returns whether a source file has this path, relative to the workspace or to a folder in
/// `folder`.
fn names_source(sources: &[&str], path: &str, folder: &str) -> bool {
    sources.iter().any(|source| {
        *source == path
            || (source.starts_with(folder) && source.strip_suffix(path).is_some_and(|rest| rest.ends_with('/')))
    })
}
