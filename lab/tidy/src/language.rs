//! Plain English in comments and Markdown.

use crate::mask::Masked;
use crate::{Finding, Rule};

/// Maximum columns of a comment line, with its indentation.
pub const COMMENT_COLUMNS_MAX: usize = 100;
/// Maximum words of a sentence. A colon or a semicolon ends a sentence too.
pub const SENTENCE_WORDS_MAX: usize = 30;
/// Phrases with a plain replacement, in lower case.
pub const BANNED_PHRASES: [(&str, &str); 25] = [
    ("beside", "next to, concurrently with, compared with"),
    ("anew", "again, rebuilt"),
    ("whom", "name the noun"),
    ("so many of", "N (name it)"),
    ("as many as may", "at most X_MAX"),
    ("hundredths", "percent"),
    ("is told", "receives"),
    ("was told", "received"),
    ("tells of", "reports"),
    ("lets go", "frees, releases"),
    ("let go of", "freed, released"),
    ("given back", "freed"),
    ("gives back", "frees"),
    ("work behind", "background work"),
    ("thread behind", "background thread"),
    ("threads behind", "background threads"),
    ("to be had", "available"),
    ("mend", "repair"),
    ("mends", "repairs"),
    ("mended", "repaired"),
    ("of which those", "name the noun"),
    ("those of which", "name the noun"),
    ("what is what", "name the noun"),
    ("that it is of", "name the noun"),
    ("is none of", "name the noun"),
];
/// First words of a sentence that hide its subject, if one of `VERBS_AFTER_START` follows.
pub const BANNED_STARTS: [&str; 6] = ["It", "That", "Those", "What", "Who", "One"];
/// Verbs that make a banned first word a subject.
const VERBS_AFTER_START: [&str; 19] = [
    "is", "are", "was", "were", "has", "have", "take", "takes", "tell", "tells", "stand", "stands", "goes", "come",
    "comes", "must", "may", "can", "does",
];

/// A run of prose: lines that belong to one paragraph.
struct Paragraph {
    line: usize,
    text: String,
}

/// Returns the findings of the whole-line comments of a Rust file.
pub fn check_comments(path: &str, masked: &Masked) -> Vec<Finding> {
    let mut findings = Vec::new();
    for comment in &masked.comments {
        findings.extend(check_width(path, comment.line, comment.columns, &comment.text));
    }
    let mut lines = Vec::new();
    let mut last: Option<(usize, &str)> = None;
    for comment in &masked.comments {
        if last != Some((comment.line - 1, comment.marker)) {
            lines.push((comment.line, ""));
        }
        lines.push((comment.line, comment.text.as_str()));
        last = Some((comment.line, comment.marker));
    }
    findings.extend(check_fences(path, &lines));
    check_paragraphs(path, &paragraphs(&lines), &mut findings);
    findings
}

/// Returns the findings of a Markdown page.
pub fn check_markdown(path: &str, text: &str) -> Vec<Finding> {
    let lines: Vec<(usize, &str)> = text.lines().enumerate().map(|(index, line)| (index + 1, line)).collect();
    let mut findings = check_fences(path, &lines);
    check_paragraphs(path, &paragraphs(&lines), &mut findings);
    findings
}

/// Returns the findings of the comments of a script or a TOML file, which begin with `#`.
pub fn check_hash_comments(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix('#') else {
            lines.push((index + 1, ""));
            continue;
        };
        findings.extend(check_width(path, index + 1, line.chars().count(), line));
        lines.push((index + 1, comment.strip_prefix(' ').unwrap_or(comment)));
    }
    check_paragraphs(path, &paragraphs(&lines), &mut findings);
    findings
}

/// Returns a finding if a comment line is too wide. A line with an address may be.
fn check_width(path: &str, line: usize, columns: usize, text: &str) -> Option<Finding> {
    let message = format!("{columns} columns, at most {COMMENT_COLUMNS_MAX}");
    let finding = Finding { rule: Rule::CommentWidth, path: path.into(), line, message };
    (columns > COMMENT_COLUMNS_MAX && !text.contains("http")).then_some(finding)
}

/// Returns a finding for each fence that should end a block of code and does not, because text
/// follows it on its line.
fn check_fences(path: &str, lines: &[(usize, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_code = false;
    for (line, text) in lines {
        let Some(rest) = text.trim_start().strip_prefix("```") else { continue };
        if in_code && !rest.trim().is_empty() {
            let message = "text follows the fence, so the block of code goes on".to_owned();
            findings.push(Finding { rule: Rule::CodeFence, path: path.into(), line: *line, message });
        }
        in_code = !in_code;
    }
    findings
}

/// Joins lines to paragraphs. Leaves out code blocks, tables and headings. A list item is a
/// paragraph of its own.
fn paragraphs(lines: &[(usize, &str)]) -> Vec<Paragraph> {
    let mut all: Vec<Paragraph> = Vec::new();
    let mut is_open = false;
    let mut in_code = false;
    for (line, text) in lines {
        let trimmed = text.trim_start();
        if trimmed.starts_with("```") {
            in_code = !in_code;
            is_open = false;
            continue;
        }
        let is_indented_code = text.starts_with("    ") && !is_open;
        let is_structure = trimmed.starts_with('|') || trimmed.starts_with('#') || trimmed.starts_with('<');
        if in_code || trimmed.is_empty() || is_structure || is_indented_code {
            is_open = false;
            continue;
        }
        let (begins_item, body) = strip_list_mark(trimmed);
        match all.last_mut() {
            Some(paragraph) if is_open && !begins_item => {
                paragraph.text.push(' ');
                paragraph.text.push_str(body);
            }
            _ => all.push(Paragraph { line: *line, text: body.to_owned() }),
        }
        is_open = true;
    }
    all
}

/// Returns whether a line begins an item of a list, and its text without the mark.
fn strip_list_mark(line: &str) -> (bool, &str) {
    for mark in ["* ", "- ", "> "] {
        if let Some(rest) = line.strip_prefix(mark) {
            return (true, rest);
        }
    }
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    match line[digits..].strip_prefix(". ") {
        Some(rest) if digits > 0 => (true, rest),
        _ => (false, line),
    }
}

fn check_paragraphs(path: &str, paragraphs: &[Paragraph], findings: &mut Vec<Finding>) {
    for paragraph in paragraphs {
        let prose = without_code_spans(&paragraph.text);
        let mut find = |rule, message| {
            findings.push(Finding { rule, path: path.into(), line: paragraph.line, message });
        };
        let lower = prose.to_lowercase();
        for (phrase, instead) in BANNED_PHRASES {
            for _ in 0..count_phrase(&lower, phrase) {
                find(Rule::BannedPhrase, format!("{phrase:?}: write {instead}"));
            }
        }
        for sentence in sentences(&prose) {
            let words: Vec<&str> = sentence.split_whitespace().collect();
            if words.len() > SENTENCE_WORDS_MAX {
                let first = words[..5].join(" ");
                let message = format!("{} words, at most {SENTENCE_WORDS_MAX}: {first:?} ...", words.len());
                find(Rule::SentenceLength, message);
            }
            if let [first, second, ..] = words[..]
                && BANNED_STARTS.contains(&first)
                && VERBS_AFTER_START.contains(&second)
            {
                find(Rule::SentenceStart, format!("\"{first} {second}\": name the subject"));
            }
        }
    }
}

/// Replaces code spans by one word, so that their content is no prose.
fn without_code_spans(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in text.split('`').enumerate() {
        if index % 2 == 0 { out.push_str(part) } else { out.push_str("code") }
    }
    out
}

/// Splits a paragraph after `.`, `;`, `:`, `!` and `?` that white space follows.
fn sentences(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut from = 0;
    let bytes = text.as_bytes();
    for index in 1..bytes.len() {
        if bytes[index].is_ascii_whitespace() && b".;:!?".contains(&bytes[index - 1]) {
            all.push(&text[from..index]);
            from = index + 1;
        }
    }
    all.push(&text[from..]);
    all
}

/// Counts a phrase between word boundaries. Text and phrase are in lower case.
fn count_phrase(text: &str, phrase: &str) -> usize {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    text.match_indices(phrase)
        .filter(|(at, _)| {
            let before = at.checked_sub(1).and_then(|before| text.as_bytes().get(before));
            !is_word(before) && !is_word(text.as_bytes().get(at + phrase.len()))
        })
        .count()
}
