//! The README, the guide and the examples agree, and the links of the book of docs/ are valid.
//! `scripts/examples.sh` runs the example `hello` twice, kills it, and runs it again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Returns the root of the project; `None` in a packaged crate, which has neither the README of the
/// project nor its docs.
fn project() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if root.join("docs/SUMMARY.md").exists() {
        return Some(root);
    }
    println!("left out: the files of the project are not part of this package");
    None
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_readme_shows_the_example() {
    let Some(root) = project() else { return };
    let example = read(&root.join("crates/lodestore/examples/hello.rs"));
    let program = example.lines().skip_while(|line| line.starts_with("//!") || line.is_empty());
    let program: String = program.map(|line| format!("{line}\n")).collect();
    assert!(read(&root.join("README.md")).contains(&program), "{program}");
}

/// Returns the lines of Markdown outside of blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns the targets of the links that lead to files, with their anchors.
fn links(text: &str) -> Vec<String> {
    let targets = prose(text).flat_map(|line| line.split("](").skip(1));
    let targets = targets.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned());
    targets.filter(|target| !target.contains("://")).collect()
}

/// Returns the anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    prose(text).filter(|line| line.starts_with('#')).map(|line| anchor(line.trim_start_matches('#'))).collect()
}

/// Returns a path relative to `docs` without its parts `..`; `None` if the path leaves `docs`.
fn within_docs(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::ParentDir => clean.pop().then_some(())?,
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(clean)
}

/// Returns the reason why a link on a page of the book is dead; `None` if the link is not.
fn fault(docs: &Path, pages: &BTreeSet<PathBuf>, page: &Path, link: &str) -> Option<String> {
    let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() { page.into() } else { page.parent()?.join(path) };
    let Some(target) = within_docs(&target) else { return Some("leaves the book".into()) };
    if target.extension().is_some_and(|extension| extension == "md") && !pages.contains(&target) {
        return Some("is no page of docs/SUMMARY.md".into());
    }
    if !docs.join(&target).is_file() {
        return Some("leads to no file".into());
    }
    let is_anchor = fragment.is_empty() || anchors(&read(&docs.join(&target))).contains(fragment);
    (!is_anchor).then(|| format!("leads to no heading of {}", target.display()))
}

#[test]
fn each_link_of_the_book_stays_in_the_book() {
    let Some(root) = project() else { return };
    let docs = root.join("docs");
    let listed = links(&read(&docs.join("SUMMARY.md")));
    let pages: BTreeSet<PathBuf> = listed.iter().map(PathBuf::from).collect();
    assert!(pages.len() > 20 && pages.len() == listed.len(), "{listed:?}");
    let mut faults = Vec::new();
    for page in &pages {
        for link in links(&read(&docs.join(page))) {
            let fault = fault(&docs, &pages, page, &link);
            faults.extend(fault.map(|fault| format!("{}: {link} {fault}", page.display())));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn each_chapter_of_the_guide_is_a_page_of_the_book() {
    let Some(root) = project() else { return };
    let summary = links(&read(&root.join("docs/SUMMARY.md")));
    for chapter in fs::read_dir(root.join("docs/guide/src")).expect("a directory") {
        let name = chapter.expect("an entry").file_name().to_string_lossy().into_owned();
        assert!(summary.contains(&format!("guide/src/{name}")), "{name} is not in docs/SUMMARY.md");
    }
}

/// Returns the lines of a program with code, and all its lines, as two cells of a table.
fn cells(program: &Path) -> String {
    let text = read(program);
    let code = text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("//"));
    format!(" {} | {} |", code.count(), text.lines().count())
}

/// `scripts/compare-examples.sh --count` prints the same table.
#[test]
fn the_guide_counts_the_lines_of_the_same_programs() {
    let Some(root) = project() else { return };
    let table = read(&root.join("docs/guide/src/same-programs.md"));
    let (ours, theirs) = (root.join("crates/lodestore/examples"), root.join("lab/peers/examples"));
    for example in fs::read_dir(&ours).expect("a directory") {
        let file = example.expect("an entry").file_name().to_string_lossy().into_owned();
        let sources = [ours.join(&file), theirs.join(format!("redb_{file}")), theirs.join(format!("fjall_{file}"))];
        let row = format!("| `{}` |{}\n", file.trim_end_matches(".rs"), sources.map(|source| cells(&source)).concat());
        assert!(table.contains(&row), "the guide lacks the row {row}");
    }
}
