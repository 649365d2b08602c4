//! The committed pages are those that this program makes of the committed rows.

use std::fs;
use std::path::Path;

#[test]
fn the_pages_of_the_project_are_made_of_its_rows() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/runs");
    let made = lodestore_plots::pages(&dir).expect("the results of the project");
    assert!(made.len() > 30, "{} pages", made.len());
    for (name, text) in made {
        let page = fs::read_to_string(dir.join(&name)).unwrap_or_default();
        assert!(page == text, "{name} is another one: run `lodestore-plots pages docs/results/runs`");
    }
}
