//! The rules on the tracked files of this workspace.

use lodestore_tidy::allowances::Allowances;
use lodestore_tidy::check_files;
use lodestore_tidy::tree::{read_files, workspace_root};

/// Permitted numbers of findings. `LODESTORE_TIDY_UPDATE=1` writes the numbers of today.
const ALLOWANCES: &str = "lab/tidy/allowances.txt";
const ALLOWANCES_HEAD: &str = "\
# Permitted findings of the tidy test: rule, path, number. The numbers only shrink: a change that
# lowers one updates its line. This command writes the file:
# LODESTORE_TIDY_UPDATE=1 cargo test -p lodestore-tidy
";

#[test]
fn the_tree_keeps_the_rules() {
    let root = workspace_root();
    let files = read_files(&root).expect("the tree can be read");
    assert!(files.iter().any(|file| file.path == "lab/tidy/src/lib.rs"), "{} files, without this crate", files.len());
    let findings = check_files(&files);
    let path = root.join(ALLOWANCES);
    if std::env::var_os("LODESTORE_TIDY_UPDATE").is_some() {
        let text = format!("{ALLOWANCES_HEAD}{}", Allowances::count(&findings).to_text());
        std::fs::write(&path, text).expect("the file can be written");
    }
    let text = std::fs::read_to_string(&path).expect("the permitted numbers can be read");
    let allowances = Allowances::parse(&text).unwrap_or_else(|line| panic!("{ALLOWANCES}: not understood: {line}"));
    if let Some(report) = allowances.compare(&findings) {
        panic!("{report}");
    }
}
