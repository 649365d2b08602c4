//! Checks of the workspace's own text: plain English, names, sizes, unsafe code, import cycles,
//! the map of the crates, and paths of source files.
//!
//! # Guarantees
//! `cargo test -p lodestore-tidy` fails if a tracked file breaks a [`Rule`] more often than
//! `allowances.txt` permits, or less often. The permitted numbers can therefore only shrink.
//!
//! # Modules
//! * [`mask`]: source text without the content of strings and comments.
//! * [`language`]: width of comments, banned phrases, starts and lengths of sentences.
//! * [`shape`]: lengths of files and functions, names of constants, unsafe code.
//! * [`faults`]: planted faults in product code.
//! * [`cycles`]: import cycles between the top-level modules of a crate.
//! * [`heads`]: the sections at the head of each crate.
//! * [`map`]: the map of the crates in ARCHITECTURE.md.
//! * [`paths`]: paths of source files in comments and pages.
//! * [`allowances`]: comparison of the findings with the permitted numbers.
//! * [`tree`]: the tracked files.

#![forbid(unsafe_code)]

pub mod allowances;
pub mod cycles;
pub mod faults;
pub mod heads;
pub mod language;
pub mod map;
pub mod mask;
pub mod paths;
pub mod shape;
pub mod tree;

use std::fmt;

/// A rule of the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A comment line is wider than [`language::COMMENT_COLUMNS_MAX`].
    CommentWidth,
    /// A phrase of [`language::BANNED_PHRASES`] occurs in prose.
    BannedPhrase,
    /// A sentence begins with a word of [`language::BANNED_STARTS`].
    SentenceStart,
    /// A sentence has more than [`language::SENTENCE_WORDS_MAX`] words.
    SentenceLength,
    /// Text follows the fence that should end a block of code.
    CodeFence,
    /// A numeric constant does not name its unit or role ([`shape::CONSTANT_SUFFIXES`]).
    ConstantName,
    /// A source file has more than [`shape::FILE_LINES_MAX`] lines.
    FileLength,
    /// A function has more than [`shape::FUNCTION_LINES_MAX`] lines.
    FunctionLength,
    /// `unsafe` occurs in a crate that is not in [`shape::UNSAFE_CRATES`].
    UnsafeCode,
    /// A function of the product has a planted fault as a parameter, or a line names one of another
    /// crate.
    PlantedFault,
    /// Top-level modules of a crate import each other in a cycle.
    ImportCycle,
    /// The head of a crate lacks a section of [`heads::SECTIONS`].
    CrateHead,
    /// The map of ARCHITECTURE.md differs from the folders of [`map::FOLDERS`].
    CrateMap,
    /// A path of a source file, in a comment or page, names no file.
    SourcePath,
}

impl Rule {
    /// All rules, in the order of their reports.
    pub const ALL: [Self; 14] = [
        Self::CommentWidth,
        Self::BannedPhrase,
        Self::SentenceStart,
        Self::SentenceLength,
        Self::CodeFence,
        Self::ConstantName,
        Self::FileLength,
        Self::FunctionLength,
        Self::UnsafeCode,
        Self::PlantedFault,
        Self::ImportCycle,
        Self::CrateHead,
        Self::CrateMap,
        Self::SourcePath,
    ];

    /// Returns the name of the rule in `allowances.txt`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CommentWidth => "comment-width",
            Self::BannedPhrase => "banned-phrase",
            Self::SentenceStart => "sentence-start",
            Self::SentenceLength => "sentence-length",
            Self::CodeFence => "code-fence",
            Self::ConstantName => "constant-name",
            Self::FileLength => "file-length",
            Self::FunctionLength => "function-length",
            Self::UnsafeCode => "unsafe-code",
            Self::PlantedFault => "planted-fault",
            Self::ImportCycle => "import-cycle",
            Self::CrateHead => "crate-head",
            Self::CrateMap => "crate-map",
            Self::SourcePath => "source-path",
        }
    }
}

/// One violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The violated rule.
    pub rule: Rule,
    /// Path of the file (or crate) relative to the workspace, with `/`.
    pub path: String,
    /// Line number, starting at 1.
    pub line: usize,
    /// The violation, for a person.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule.name(), self.message)
    }
}

/// Returns the findings of all rules for a set of files: `(path, text)` pairs.
pub fn check_files(files: &[tree::File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        if file.is_rust() {
            let masked = mask::Masked::new(&file.text);
            findings.extend(language::check_comments(&file.path, &masked));
            findings.extend(shape::check_source(&file.path, &masked));
            findings.extend(faults::check_source(file, &masked));
        } else if file.path.ends_with(".md") {
            findings.extend(language::check_markdown(&file.path, &file.text));
        } else {
            findings.extend(language::check_hash_comments(&file.path, &file.text));
        }
    }
    findings.extend(cycles::check_crates(files));
    findings.extend(heads::check_crates(files));
    findings.extend(map::check_map(files));
    findings.extend(paths::check_paths(files));
    findings
}
