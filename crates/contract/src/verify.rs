//! What `verify` reports.

/// Progress of long work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Units done.
    pub done: u64,
    /// Units in all.
    pub total: u64,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub place: String,
    /// What.
    pub what: String,
}

/// The whole list of what is wrong, and what was looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Records whose checksum was computed and matched.
    pub records: u64,
    /// Bytes of these records.
    pub bytes: u64,
    /// Everything that is wrong.
    pub findings: Vec<Finding>,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Adds the report of another part of the same store.
    pub fn add(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.findings.extend(other.findings);
    }

    /// Adds a finding.
    pub fn find(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.findings.push(Finding { place: place.into(), what: what.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_clean_until_something_is_found() {
        let mut report = VerifyReport::default();
        assert!(report.is_clean());
        report.find("record 7", "its checksum fails");
        assert!(!report.is_clean());
        assert_eq!(report.findings, [Finding { place: "record 7".into(), what: "its checksum fails".into() }]);
    }
}
