//! `docs/server-commands.md`: the table of commands, with the cases that compare them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use lodestore_server::command_table;

use super::cases::{CaseFile, read_all};
use super::run::{split_connection, split_words};

/// Cases of one command.
#[derive(Default)]
struct Tested {
    cases: usize,
    reasons: BTreeSet<String>,
}

/// Returns the cases of each command, by its name. A case counts for the command that it is about:
/// the last one that is in the table.
fn count_cases(files: &[CaseFile], names: &BTreeSet<&str>) -> BTreeMap<String, Tested> {
    let mut tested: BTreeMap<String, Tested> = BTreeMap::new();
    for case in files.iter().flat_map(|file| &file.cases) {
        let mut used = BTreeSet::new();
        let commands = case.commands.iter().map(|command| split_connection(command).1);
        for command in commands.filter(|command| !command.starts_with("raw:")) {
            let words = split_words(command);
            let name = words.first().map(|word| String::from_utf8_lossy(word).to_ascii_lowercase());
            used.extend(name.filter(|name| names.contains(name.as_str())));
        }
        for name in &used {
            let entry = tested.entry(name.clone()).or_default();
            entry.cases += 1;
            let is_named = |reason: &String| used.len() == 1 || reason.to_ascii_lowercase().contains(name.as_str());
            entry.reasons.extend(case.reason.iter().filter(|reason| is_named(reason)).cloned());
        }
    }
    tested
}

/// Commands without a case, with the reason.
const WITHOUT_CASES: [(&str, &str); 1] = [("sync", "Redis answers with its data, which is no reply of the protocol.")];

#[test]
fn each_command_has_a_case_or_a_reason() {
    let names: BTreeSet<&str> = command_table().map(|command| command.name).collect();
    let tested = count_cases(&read_all(), &names);
    for name in names {
        let has_reason = WITHOUT_CASES.iter().any(|(excluded, _)| *excluded == name);
        assert!(tested.contains_key(name) != has_reason, "{name}: needs a case, or a reason without one");
    }
}

fn render() -> String {
    let names: BTreeSet<&str> = command_table().map(|command| command.name).collect();
    let files = read_all();
    let tested = count_cases(&files, &names);
    let total: usize = files.iter().map(|file| file.cases.len()).sum();
    let mut text = String::from(
        "# Commands of the server\n\n\
         This page is generated from the table of commands and from the conformance cases:\n\
         `LODESTORE_UPDATE=1 cargo test -p lodestore-server --test conformance`.\n\n",
    );
    writeln!(
        text,
        "{} commands. {total} cases compare replies byte by byte with Redis 7.0. The column *cases* counts the cases \
         that use the command.\n",
        names.len()
    )
    .expect("a string");
    let groups: BTreeSet<&str> = command_table().map(|command| command.group).collect();
    for group in groups {
        writeln!(text, "## {group}\n\n| command | since | what it does | cases |\n|---|---|---|---:|")
            .expect("a string");
        for command in command_table().filter(|command| command.group == group) {
            let syntax = command.syntax.replace('|', "\\|");
            let call = format!("{} {syntax}", command.name.to_ascii_uppercase());
            let cases = tested.get(command.name).map_or(0, |tested| tested.cases);
            let (since, summary) = (command.since, command.summary);
            writeln!(text, "| `{}` | {since} | {summary} | {cases} |", call.trim_end()).expect("a string");
        }
        text.push('\n');
    }
    text.push_str("## Differences from Redis 7.0\n\n");
    let mut reasons: BTreeMap<&String, Vec<&String>> = BTreeMap::new();
    for case in files.iter().flat_map(|file| &file.cases) {
        if let Some(reason) = &case.reason {
            reasons.entry(reason).or_default().push(&case.name);
        }
    }
    for (reason, cases) in reasons {
        writeln!(
            text,
            "* {reason} ({})",
            if cases.len() == 1 { "1 case".into() } else { format!("{} cases", cases.len()) }
        )
        .expect("a string");
    }
    text
}

#[test]
fn the_documented_table_of_commands_is_current() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/server-commands.md");
    let rendered = render();
    if super::is_update() {
        std::fs::write(&path, rendered).expect("a written page");
        return;
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(current == rendered, "docs/server-commands.md is old: run the test with LODESTORE_UPDATE=1");
}
