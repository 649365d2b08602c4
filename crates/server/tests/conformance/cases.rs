//! The files of cases.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::{Value, json};

/// The cases of one topic.
pub struct CaseFile {
    /// Name of the file without its end.
    pub topic: String,
    /// The password of the servers, which each connection must send itself.
    pub password: Option<String>,
    /// The version of the protocol in which the cases run.
    pub protocol: u64,
    pub cases: Vec<Case>,
}

/// Commands and their replies.
pub struct Case {
    pub name: String,
    /// Words in the syntax of inline commands. `@2 ` and `@3 ` name another connection.
    /// `raw:N:` sends the bytes that follow and reads N replies. `read:N` reads N further replies.
    pub commands: Vec<String>,
    /// Replies of Redis without their last line end, a character for each byte.
    pub replies: Vec<String>,
    pub normalise: Normalisation,
    /// Replies of this server if they differ.
    pub lodestore: Option<Vec<String>>,
    /// Why they differ.
    pub reason: Option<String>,
}

impl Case {
    /// Returns the replies that this server must send.
    pub fn own_replies(&self) -> &[String] {
        self.lodestore.as_ref().unwrap_or(&self.replies)
    }
}

/// The parts that a comparison ignores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalisation {
    None,
    /// Numbers.
    Digits,
    /// Everything but the type of a reply.
    Kind,
    /// The order of elements.
    Order,
}

impl Normalisation {
    const NAMES: [(&str, Self); 3] = [("digits", Self::Digits), ("kind", Self::Kind), ("sorted", Self::Order)];

    /// Returns replies without the ignored parts.
    pub fn apply(self, replies: &[String]) -> Vec<String> {
        replies.iter().map(|reply| self.apply_to(reply)).collect()
    }

    fn apply_to(self, reply: &str) -> String {
        match self {
            Self::None => reply.to_string(),
            Self::Kind => reply.chars().take(1).collect(),
            Self::Digits => {
                let mut text = String::new();
                for character in reply.chars() {
                    match character {
                        '0'..='9' if text.ends_with('N') => {}
                        '0'..='9' => text.push('N'),
                        other => text.push(other),
                    }
                }
                text
            }
            Self::Order => {
                let mut lines: Vec<&str> = reply.split("\r\n").collect();
                lines.sort_unstable();
                lines.join("\r\n")
            }
        }
    }
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

/// Reads all files of cases, in the order of their names.
pub fn read_all() -> Vec<CaseFile> {
    let entries = std::fs::read_dir(directory()).expect("the directory of cases");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

/// Reads the file that `LODESTORE_SERVER_TEST_TOPIC` names; all files if it names none.
pub fn read_selected() -> Vec<CaseFile> {
    let topic = std::env::var("LODESTORE_SERVER_TEST_TOPIC").ok();
    read_all().into_iter().filter(|file| topic.as_ref().is_none_or(|topic| *topic == file.topic)).collect()
}

fn read(path: &std::path::Path) -> CaseFile {
    let text = std::fs::read_to_string(path).expect("a file of cases");
    let file: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let topic = path.file_stem().expect("a name").to_string_lossy().into_owned();
    let cases = file["cases"].as_array().expect("cases").iter().map(parse_case).collect();
    CaseFile {
        topic,
        password: file["password"].as_str().map(str::to_string),
        protocol: file["protocol"].as_u64().unwrap_or(2),
        cases,
    }
}

fn parse_case(case: &Value) -> Case {
    let texts = |list: &Value| -> Option<Vec<String>> {
        list.as_array()?.iter().map(|text| text.as_str().map(str::to_string)).collect()
    };
    let normalise = case["normalise"].as_str().map_or(Normalisation::None, |name| {
        let known = Normalisation::NAMES.iter().find(|(known, _)| *known == name);
        known.unwrap_or_else(|| panic!("unknown normalisation {name}")).1
    });
    Case {
        name: case["name"].as_str().expect("a name").to_string(),
        commands: texts(&case["commands"]).expect("commands"),
        replies: texts(&case["replies"]).expect("replies"),
        normalise,
        lodestore: texts(&case["lodestore"]),
        reason: case["reason"].as_str().map(str::to_string),
    }
}

/// Writes a file, with a line for each case.
pub fn write(file: &CaseFile) {
    let mut text = String::from("{");
    if let Some(password) = &file.password {
        write!(text, "\"password\": {}, ", json!(password)).expect("a string");
    }
    if file.protocol != 2 {
        write!(text, "\"protocol\": {}, ", file.protocol).expect("a string");
    }
    text.push_str("\"cases\": [\n");
    let lines: Vec<String> = file.cases.iter().map(format_case).collect();
    text.push_str(&lines.join(",\n"));
    text.push_str("\n]}\n");
    std::fs::write(directory().join(format!("{}.json", file.topic)), text).expect("a written file");
}

fn format_case(case: &Case) -> String {
    let (name, commands, replies) = (json!(case.name), json!(case.commands), json!(case.replies));
    let mut line = format!("{{\"name\": {name}, \"commands\": {commands}, \"replies\": {replies}");
    if let Some((name, _)) = Normalisation::NAMES.iter().find(|(_, known)| *known == case.normalise) {
        write!(line, ", \"normalise\": \"{name}\"").expect("a string");
    }
    if let Some(own) = &case.lodestore {
        write!(line, ", \"lodestore\": {}", json!(own)).expect("a string");
    }
    if let Some(reason) = &case.reason {
        write!(line, ", \"reason\": {}", json!(reason)).expect("a string");
    }
    line.push('}');
    line
}
