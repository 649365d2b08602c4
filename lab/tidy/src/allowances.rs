//! Permitted numbers of findings, which only shrink.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::map::FOLDERS;
use crate::{Finding, Rule};

/// Permitted numbers by rule and path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allowances {
    counts: BTreeMap<(Rule, String), usize>,
}

impl Allowances {
    /// Parses lines of `rule path count`. Empty lines and lines that begin with `#` are comments.
    ///
    /// # Errors
    /// The text of the first line that is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut counts = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let parts: Vec<&str> = line.split_whitespace().collect();
            let &[rule, path, count] = &parts[..] else { return Err(line.to_owned()) };
            let rule = Rule::ALL.into_iter().find(|known| known.name() == rule).ok_or(line)?;
            let count: usize = count.parse().ok().filter(|count| *count > 0).ok_or(line)?;
            if counts.insert((rule, path.to_owned()), count).is_some() {
                return Err(line.to_owned());
            }
        }
        Ok(Self { counts })
    }

    /// Counts findings by rule and group of paths.
    pub fn count(findings: &[Finding]) -> Self {
        let mut counts = BTreeMap::new();
        for finding in findings {
            *counts.entry((finding.rule, group_of(finding))).or_insert(0) += 1;
        }
        Self { counts }
    }

    /// Returns the lines of the file.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for ((rule, path), count) in &self.counts {
            let _ = writeln!(text, "{} {path} {count}", rule.name());
        }
        text
    }

    /// Compares findings with the permitted numbers. Returns a report if they differ.
    pub fn compare(&self, findings: &[Finding]) -> Option<String> {
        let found = Self::count(findings);
        let mut report = String::new();
        for (key, count) in &found.counts {
            let permitted = self.counts.get(key).copied().unwrap_or(0);
            if *count > permitted {
                let _ = writeln!(report, "{} {}: {count} findings, {permitted} permitted:", key.0.name(), key.1);
                for finding in findings.iter().filter(|finding| (finding.rule, group_of(finding)) == *key) {
                    let _ = writeln!(report, "  {finding}");
                }
            }
        }
        for (key, permitted) in &self.counts {
            let count = found.counts.get(key).copied().unwrap_or(0);
            if count < *permitted {
                let _ = writeln!(
                    report,
                    "{} {}: {count} findings, {permitted} permitted: lower the number in allowances.txt, or \
                     remove the line",
                    key.0.name(),
                    key.1
                );
            }
        }
        (!report.is_empty()).then_some(report)
    }
}

/// Returns the path under which a finding is counted: its crate or top folder, and its own file
/// for the rules about one place.
fn group_of(finding: &Finding) -> String {
    match finding.rule {
        Rule::FileLength | Rule::FunctionLength | Rule::UnsafeCode => finding.path.clone(),
        _ => {
            let mut parts = finding.path.split('/');
            match (parts.next(), parts.next()) {
                (Some(folder), Some(name)) if FOLDERS.contains(&folder) => format!("{folder}/{name}"),
                (Some(first), _) => first.to_owned(),
                (None, _) => finding.path.clone(),
            }
        }
    }
}
