//! The report of `verify`.

/// Progress of a long operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Units done.
    pub done: u64,
    /// Total units.
    pub total: u64,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The place of the fault.
    pub place: String,
    /// Description of the fault.
    pub what: String,
}

/// All faults, and the amount of data checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Records whose checksum was computed and matched.
    pub records: u64,
    /// Bytes of these records.
    pub bytes: u64,
    /// All faults.
    pub findings: Vec<Finding>,
}

impl VerifyReport {
    /// Returns whether there is no fault.
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
    fn a_report_with_a_finding_is_not_clean() {
        let mut report = VerifyReport::default();
        assert!(report.is_clean());
        report.find("record 7", "the checksum differs");
        assert!(!report.is_clean());
        assert_eq!(report.findings, [Finding { place: "record 7".into(), what: "the checksum differs".into() }]);
    }
}
