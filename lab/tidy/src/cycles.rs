//! Import cycles between the top-level modules of a crate.
//!
//! A top-level module is a file or folder directly in `src`. Folders are layers, so files of one
//! folder may import each other. The root (`lib.rs` or `main.rs`) imports every module by its
//! nature and is left out; a name that it re-exports belongs to the module that it comes from.
//! Test code is left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::mask::{Masked, identifiers};
use crate::tree::File;
use crate::{Finding, Rule};

/// Imports between top-level modules: the importing module, and what it imports.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// Returns one finding for each module that is part of a cycle, at the path of its crate.
pub fn check_crates(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (crate_path, imports) in imports_by_crate(files) {
        for cycle in find_cycles(&imports) {
            let all = cycle.join(", ");
            for module in &cycle {
                let message = format!("`{module}` is in a cycle of {} modules: {all}", cycle.len());
                findings.push(Finding { rule: Rule::ImportCycle, path: crate_path.clone(), line: 1, message });
            }
        }
    }
    findings
}

/// Returns the imports of each crate, by the crate's path.
pub fn imports_by_crate(files: &[File]) -> BTreeMap<String, Imports> {
    let mut crates: BTreeMap<String, Vec<(&str, &File)>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if let Some((crate_path, inner)) = file.path.split_once("/src/")
            && !inner.starts_with("bin/")
        {
            crates.entry(crate_path.to_owned()).or_default().push((inner, file));
        }
    }
    crates.into_iter().map(|(path, sources)| (path, imports_of(&sources))).collect()
}

/// Returns the imports of one crate from its files, named relative to `src`.
fn imports_of(sources: &[(&str, &File)]) -> Imports {
    let modules: BTreeSet<String> =
        sources.iter().filter_map(|(inner, _)| module_path(inner).into_iter().next()).collect();
    let roots: Vec<String> = sources
        .iter()
        .filter(|(inner, _)| module_path(inner).is_empty())
        .map(|(_, file)| Masked::new(&file.text).code)
        .collect();
    let exported = re_exports(&roots, &modules);
    let mut imports = Imports::new();
    for (inner, file) in sources {
        let path = module_path(inner);
        let Some(module) = path.first() else { continue };
        if path.iter().any(|part| part == "tests" || part == "testing") {
            continue;
        }
        let code = without_tests(&Masked::new(&file.text).code);
        let targets = imports.entry(module.clone()).or_default();
        for name in names_at_root(&code, path.len()) {
            let target = if modules.contains(&name) { Some(&name) } else { exported.get(&name) };
            targets.extend(target.filter(|target| *target != module).cloned());
        }
    }
    imports
}

/// Returns the module path of a file in `src`: empty for the root.
fn module_path(inner: &str) -> Vec<String> {
    let inner = inner.strip_suffix(".rs").unwrap_or(inner);
    let mut parts: Vec<String> = inner.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| last == "mod" || (parts.len() == 1 && (last == "lib" || last == "main"))) {
        parts.pop();
    }
    parts
}

/// Returns names that the root re-exports, with the module of each.
fn re_exports(roots: &[String], modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut exported = BTreeMap::new();
    for code in roots {
        for (at, _) in code.match_indices("use ") {
            let statement = code[at + 4..].split(';').next().unwrap_or_default().trim();
            let statement = statement.strip_prefix("crate::").unwrap_or(statement);
            let statement = statement.strip_prefix("self::").unwrap_or(statement);
            let Some((module, names)) = statement.split_once("::") else { continue };
            if modules.contains(module) {
                for name in identifiers(names) {
                    exported.insert(name.to_owned(), module.to_owned());
                }
            }
        }
    }
    exported
}

/// Returns the code without modules under `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let mut out = String::new();
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let end = item_end(after);
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

/// Returns where the item ends that an attribute begins: after its braces, or its semicolon.
fn item_end(text: &str) -> usize {
    let mut braces = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => braces += 1,
            b'}' if braces == 1 => return at + 1,
            b'}' => braces = braces.saturating_sub(1),
            b';' if braces == 0 => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the first path segment of each import from the crate's root. `depth` is the depth of the
/// importing file's module.
fn names_at_root(code: &str, depth: usize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let root = "super::".repeat(depth);
    for prefix in ["crate::", root.as_str()] {
        for (at, _) in code.match_indices(prefix) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':' || letter == '$')
            {
                continue;
            }
            names.extend(first_segments(&code[at + prefix.len()..]));
        }
    }
    names
}

/// Returns the first segment of a path, or of each path of a group in braces.
fn first_segments(text: &str) -> Vec<String> {
    let Some(group) = text.strip_prefix('{') else {
        return identifiers(text).next().filter(|name| text.starts_with(name)).map(str::to_owned).into_iter().collect();
    };
    let mut names = Vec::new();
    let mut depth = 0_usize;
    let mut expects_name = true;
    let mut at = 0;
    while let Some(letter) = group[at..].chars().next() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expects_name = true,
            _ if expects_name && (letter.is_alphabetic() || letter == '_') => {
                names.extend(identifiers(&group[at..]).next().map(str::to_owned));
                expects_name = false;
            }
            _ => {}
        }
        at += letter.len_utf8();
    }
    names
}

/// Returns the cycles: sets of modules that import each other, directly or through others.
pub fn find_cycles(imports: &Imports) -> Vec<Vec<String>> {
    let reachable: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|module| (module, reach(imports, module))).collect();
    let mut cycles = Vec::new();
    let mut seen = BTreeSet::new();
    for (module, targets) in &reachable {
        if !targets.contains(*module) || !seen.insert(*module) {
            continue;
        }
        let mut cycle = vec![(*module).clone()];
        for other in targets.iter().filter(|other| *other != module) {
            if reachable.get(*other).is_some_and(|back| back.contains(*module)) {
                seen.insert(*other);
                cycle.push((*other).clone());
            }
        }
        cycles.push(cycle);
    }
    cycles
}

/// Returns the modules that a module imports, directly or through others.
fn reach<'i>(imports: &'i Imports, from: &String) -> BTreeSet<&'i String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&String> = imports.get(from).into_iter().flatten().collect();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(imports.get(module).into_iter().flatten());
        }
    }
    reached
}
