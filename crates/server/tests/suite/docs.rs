//! The table of options in `docs/server.md`.
//!
//! `LODESTORE_WRITE_DOCS=1 cargo test -p lodestore-server docs` writes it.

use std::path::Path;

use lodestore_server::options;

const BEGIN: &str = "<!-- options: begin -->\n";
const END: &str = "<!-- options: end -->\n";

#[test]
fn the_page_has_the_table_of_options() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/server.md");
    let Ok(page) = std::fs::read_to_string(&path) else {
        // A package for crates.io has no docs folder.
        assert!(!path.parent().expect("a directory").exists(), "docs/server.md is missing");
        return;
    };
    let (before, rest) = page.split_once(BEGIN).expect("the begin of the table");
    let (_, after) = rest.split_once(END).expect("the end of the table");
    let expected = format!("{before}{BEGIN}{}{END}{after}", options::markdown());
    if std::env::var_os("LODESTORE_WRITE_DOCS").is_some() {
        std::fs::write(&path, expected).expect("the page is written");
        return;
    }
    assert!(page == expected, "write docs/server.md again: see the top of this test");
}
