//! Sizes of files and functions, names of constants, and places of unsafe code.

use crate::mask::{Masked, identifiers};
use crate::{Finding, Rule};

/// Maximum lines of a source file.
pub const FILE_LINES_MAX: usize = 500;
/// Maximum lines of a function, from its name to its closing brace.
pub const FUNCTION_LINES_MAX: usize = 70;
/// Crates whose sources may contain unsafe code; SAFETY.md of each has the invariants.
pub const UNSAFE_CRATES: [&str; 4] = ["crates/media", "crates/index", "lab/peers", "bindings"];
/// Last words of the names of numeric constants: a unit or a role.
pub const CONSTANT_SUFFIXES: [&str; 55] = [
    "BYTES",
    "KIB",
    "MIB",
    "GIB",
    "BITS",
    "WORDS",
    "LINES",
    "COLUMNS",
    "PIXELS",
    "SLOTS",
    "ENTRIES",
    "KEYS",
    "RECORDS",
    "CHUNKS",
    "BLOCKS",
    "PAGES",
    "COUNT",
    "MAX",
    "MIN",
    "DEFAULT",
    "PERCENT",
    "PERMILLE",
    "DIVISOR",
    "FACTOR",
    "RATIO",
    "SHIFT",
    "MASK",
    "FLAG",
    "MILLIS",
    "MICROS",
    "NANOS",
    "SECONDS",
    "TIMEOUT",
    "INTERVAL",
    "PERIOD",
    "PAUSE",
    "DELAY",
    "TIME",
    "AT",
    "OFFSET",
    "INDEX",
    "ID",
    "MAGIC",
    "VERSION",
    "FORMAT",
    "SEED",
    "SALT",
    "MULTIPLIER",
    "POLYNOMIAL",
    "LEVEL",
    "DEPTH",
    "ATTEMPTS",
    "OPS",
    "STRIPES",
    "THREADS",
];
/// Types whose constants are checked.
const NUMERIC_TYPES: [&str; 15] =
    ["usize", "u8", "u16", "u32", "u64", "u128", "isize", "i8", "i16", "i32", "i64", "i128", "f32", "f64", "Duration"];

/// Returns the findings of one Rust file.
pub fn check_source(path: &str, masked: &Masked) -> Vec<Finding> {
    let mut findings = Vec::new();
    if masked.line_count > FILE_LINES_MAX {
        let message = format!("{} lines, at most {FILE_LINES_MAX}", masked.line_count);
        findings.push(Finding { rule: Rule::FileLength, path: path.into(), line: 1, message });
    }
    for function in functions(&masked.code) {
        if function.line_count > FUNCTION_LINES_MAX {
            let message =
                format!("`{}` has {} lines, at most {FUNCTION_LINES_MAX}", function.name, function.line_count);
            findings.push(Finding { rule: Rule::FunctionLength, path: path.into(), line: function.line, message });
        }
    }
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
    for (index, line) in masked.code.lines().enumerate() {
        let line_number = index + 1;
        if let Some(name) = constant_without_unit(line)
            && !is_test
        {
            let message = format!("`{name}` names no unit or role");
            findings.push(Finding { rule: Rule::ConstantName, path: path.into(), line: line_number, message });
        }
        let may_be_unsafe = UNSAFE_CRATES.iter().any(|allowed| path.starts_with(allowed));
        if !may_be_unsafe && identifiers(line).any(|name| name == "unsafe") {
            let message = "unsafe code is allowed in media, index, peers and bindings only".into();
            findings.push(Finding { rule: Rule::UnsafeCode, path: path.into(), line: line_number, message });
        }
    }
    findings
}

/// A function of a file.
struct Function<'t> {
    name: &'t str,
    line: usize,
    line_count: usize,
}

/// Returns the functions with a body.
fn functions(code: &str) -> Vec<Function<'_>> {
    let mut all = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        let is_word_start = at == 0 || !is_word_byte(code.as_bytes()[at - 1]);
        let rest = &code[at + 3..];
        let name = identifiers(rest).next().unwrap_or_default();
        if !is_word_start || name.is_empty() || !rest.starts_with(name) {
            continue;
        }
        if let Some(bytes) = body_bytes(rest) {
            let line = code[..at].matches('\n').count() + 1;
            all.push(Function { name, line, line_count: rest[..bytes].matches('\n').count() + 1 });
        }
    }
    all
}

/// Returns the bytes from a function's name to the closing brace of its body, if it has a body.
fn body_bytes(rest: &str) -> Option<usize> {
    let mut braces = 0_usize;
    let mut brackets = 0_usize;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets = brackets.saturating_sub(1),
            b';' if braces == 0 && brackets == 0 => return None,
            b'{' => braces += 1,
            b'}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the name of a numeric constant that is declared on a line, if its last word is no unit.
fn constant_without_unit(line: &str) -> Option<&str> {
    let declaration = line.trim_start();
    let declaration = declaration.strip_prefix("pub ").unwrap_or(declaration);
    let declaration = match declaration.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => declaration,
    };
    let (name, rest) = declaration.strip_prefix("const ")?.split_once(": ")?;
    let kind = rest.split([' ', '=', ';']).next()?;
    let last = name.rsplit('_').next()?;
    (NUMERIC_TYPES.contains(&kind) && !CONSTANT_SUFFIXES.contains(&last) && name != "_").then_some(name)
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
