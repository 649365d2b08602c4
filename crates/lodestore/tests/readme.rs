//! The program in the README is the example `hello`. `scripts/examples.sh` runs it twice, kills it,
//! and runs it again.

use std::path::Path;

#[test]
fn the_readme_shows_the_example() {
    let read = |path: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let example = read("examples/hello.rs");
    let program = example.lines().skip_while(|line| line.starts_with("//!") || line.is_empty());
    let program: String = program.map(|line| format!("{line}\n")).collect();
    assert!(read("../../README.md").contains(&program), "{program}");
}
