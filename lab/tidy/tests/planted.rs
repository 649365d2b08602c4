//! Each rule finds a violation that is planted for it, and nothing in the same text without it.

use lodestore_tidy::allowances::Allowances;
use lodestore_tidy::tree::File;
use lodestore_tidy::{Rule, check_files};

/// A violation: the rule, the path of the file, its text, and the same text without the violation.
struct Planted {
    rule: Rule,
    path: &'static str,
    bad: String,
    good: String,
}

const HEAD: &str = "//! A crate.\n//!\n//! # Guarantees\n//! None.\n//!\n//! # Modules\n//! None.\n";

fn planted(rule: Rule, path: &'static str, bad: impl Into<String>, good: impl Into<String>) -> Planted {
    Planted { rule, path, bad: bad.into(), good: good.into() }
}

fn violations() -> Vec<Planted> {
    let words = |count: usize| format!("// The log has\n{}// more.\n", "// has words\n".repeat(count / 2));
    let function = |lines: usize| format!("fn long() {{\n{}}}\n", "    work();\n".repeat(lines - 2));
    let source = "crates/a/src/b.rs";
    vec![
        planted(Rule::CommentWidth, source, format!("// {}\n", "a".repeat(98)), format!("// {}\n", "a".repeat(97))),
        planted(Rule::CommentWidth, "run.sh", format!("# {}\n", "a".repeat(99)), format!("# {}\n", "a".repeat(98))),
        planted(Rule::BannedPhrase, source, "// A thread frees work\n// behind it.\n", "// A thread frees it.\n"),
        planted(Rule::BannedPhrase, "docs/a.md", "The table is made anew.\n", "The table is made again: `anew`.\n"),
        planted(
            Rule::SentenceStart,
            source,
            "/// Frees it. It is\n/// called once.\n",
            "/// Frees it. Callers call it once.\n",
        ),
        planted(Rule::SentenceStart, "docs/a.md", "* What is free is used.\n", "* Free space is used.\n"),
        planted(Rule::SentenceLength, source, words(32), words(26)),
        planted(Rule::SentenceLength, "docs/a.md", words(32).replace("// ", ""), words(26).replace("// ", "")),
        planted(
            Rule::CodeFence,
            source,
            "//! ```text\n//! a\n//! ``` The log.\n",
            "//! ```text\n//! a\n//! ```\n//! The log.\n",
        ),
        planted(Rule::ConstantName, source, "pub(crate) const LOOK: u64 = 4;\n", "const LOOK_MILLIS: u64 = 4;\n"),
        planted(Rule::FileLength, source, "\n".repeat(501), "\n".repeat(500)),
        planted(Rule::FunctionLength, source, function(71), function(70)),
        planted(Rule::UnsafeCode, source, "fn a() { unsafe { b() } }\n", "fn a() { b(\"unsafe\") } // unsafe\n"),
        planted(
            Rule::PlantedFault,
            source,
            "trait A {\n    fn b(&self, (c, d): (u8, u8), fault: Option<PlantedFault>);\n}\n",
            "fn has_fault(fault: PlantedFault) -> bool { planted(fault) }\n",
        ),
        planted(
            Rule::PlantedFault,
            source,
            "use lodestore_b::{C, planted};\n",
            "use crate::planted;\nuse lodestore_b::C;\n",
        ),
        planted(Rule::SourcePath, source, "// `a/b.rs` has it.\n", "// `src/b.rs` has it, as `b.rs`.\n"),
        planted(Rule::CrateHead, "crates/a/src/lib.rs", HEAD.replace("# Modules", "# Files"), HEAD),
    ]
}

fn file(path: &str, text: &str) -> File {
    File { path: path.into(), text: text.into() }
}

#[test]
fn each_rule_finds_its_planted_violation_once_and_nothing_without_it() {
    for Planted { rule, path, bad, good } in violations() {
        let found: Vec<Rule> = check_files(&[file(path, &bad)]).into_iter().map(|finding| finding.rule).collect();
        assert_eq!(found, [rule], "{path}: {bad}");
        assert_eq!(check_files(&[file(path, &good)]), [], "{path}: {good}");
    }
}

#[test]
fn an_import_cycle_is_found_through_groups_super_and_re_exports() {
    let root = format!("{HEAD}mod a;\nmod b;\nmod c;\nmod d;\npub use b::Thing;\n");
    let files = |last: &str| {
        [
            file("crates/x/src/lib.rs", &root),
            file("crates/x/src/a.rs", "use crate::{d::Other, Thing};\n"),
            file("crates/x/src/b/mod.rs", "use super::c::{self, Lower};\n"),
            file("crates/x/src/c/inner.rs", last),
            file("crates/x/src/d.rs", "#[cfg(test)]\nmod tests {\n    use crate::a::Upper;\n}\n"),
        ]
    };
    let cycle = check_files(&files("use super::super::a::Upper;\n"));
    let modules: Vec<&str> = cycle.iter().map(|finding| &finding.message[..3]).collect();
    assert_eq!(modules, ["`a`", "`b`", "`c`"], "{cycle:?}");
    assert!(cycle.iter().all(|finding| finding.rule == Rule::ImportCycle && finding.path == "crates/x"));
    assert_eq!(check_files(&files("use super::super::d::Other;\n")), []);
}

#[test]
fn the_map_of_the_crates_names_each_folder_once_and_no_other() {
    let of = |rows: &str| {
        let page = format!("## Crates and layers\n\n| layer | crate |\n|---|---|\n{rows}\n## Next\n\n| 1 | `x` |\n");
        let files = [
            file("ARCHITECTURE.md", &page),
            file("crates/a/Cargo.toml", ""),
            file("lab/b/Cargo.toml", ""),
            file("lab/b/more/Cargo.toml", ""),
            file("fuzz/Cargo.toml", ""),
        ];
        check_files(&files)
    };
    assert_eq!(of("| 0 | `crates/a`, `lab/b` |\n"), []);
    for (rows, line, message) in [
        ("| 0 | `crates/a` |\n", 1, "the map does not name `lab/b`"),
        ("| 0 | `crates/a`, `lab/b` |\n| 1 | `crates/a` |\n", 6, "the map names `crates/a` again"),
        ("| 0 | `crates/a`, `lab/b`, `lab/c` |\n", 5, "`lab/c` is no crate"),
    ] {
        let found = of(rows);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].rule, found[0].line, found[0].message.as_str()), (Rule::CrateMap, line, message));
    }
    let unmapped = check_files(&[file("crates/a/Cargo.toml", "")]);
    assert!(unmapped.len() == 1 && unmapped[0].rule == Rule::CrateMap, "the page is missing: {unmapped:?}");
}

#[test]
fn a_path_of_a_source_file_is_relative_to_its_crate_and_in_a_page_to_any_folder() {
    let found = |path: &str, text: &str| {
        let files = [file("crates/a/src/b/c.rs", ""), file("crates/d/src/e.rs", ""), file(path, text)];
        check_files(&files).into_iter().map(|finding| (finding.rule, finding.line)).collect::<Vec<_>>()
    };
    let source = "crates/a/src/x.rs";
    for text in ["`b/c.rs`", "`c.rs`", "`src/b/c.rs`", "`crates/d/src/e.rs`", "`*.rs`", "`e` has .rs `e`", "e.rs"] {
        assert_eq!(found(source, &format!("// {text}\n")), [], "{text}");
    }
    for text in ["`d/c.rs`", "`e.rs`", "`/b/c.rs`", "ends` and `e.rs`"] {
        assert_eq!(found(source, &format!("\n// {text}\n")), [(Rule::SourcePath, 2)], "{text}");
    }
    assert_eq!(found("docs/format/a.md", "`e.rs`, `b/c.rs` and\n`d/e.rs`\n"), [(Rule::SourcePath, 2)]);
    assert_eq!(found("crates/a/README.md", "`d/e.rs`\n"), []);
}

#[test]
fn every_rule_has_a_planted_violation() {
    let mut rules: Vec<Rule> = violations().iter().map(|violation| violation.rule).collect();
    // The cycle and the map need several files.
    rules.extend([Rule::ImportCycle, Rule::CrateMap]);
    assert!(Rule::ALL.iter().all(|rule| rules.contains(rule)), "{rules:?}");
}

#[test]
fn permitted_numbers_fail_if_there_are_more_findings_or_fewer() {
    let findings = check_files(&[file("crates/a/src/b.rs", "// Made anew.\n// Made anew.\n")]);
    let allowances = |text| Allowances::parse(text).expect("understood");
    assert_eq!(allowances("# a comment\nbanned-phrase crates/a 2\n").compare(&findings), None);
    assert!(
        allowances("banned-phrase crates/a 1\n")
            .compare(&findings)
            .is_some_and(|report| report.contains("1 permitted"))
    );
    assert!(allowances("banned-phrase crates/a 3\n").compare(&findings).is_some_and(|report| report.contains("lower")));
    for wrong in
        ["banned-phrase crates/a", "banned crates/a 1", "banned-phrase crates/a 0", "crate-head a 1\ncrate-head a 1"]
    {
        assert!(Allowances::parse(wrong).is_err(), "{wrong}");
    }
}
