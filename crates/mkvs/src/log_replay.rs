//! The replay of a device's own log after a crash.

use std::collections::HashSet;

use lodestore_contract::{Error, Result};

use crate::apply::{apply, is_refusal};
use crate::catchup::log_of;
use crate::device::Device;
use crate::group::read_pair;
use crate::operation::{Mutation, Operation};
use crate::planted;

impl Device {
    /// Replays the log entries after the mark of the store, after a crash. For each key, the last
    /// operation that fits is applied if the store differs. Returns the operations that did not
    /// fit.
    ///
    /// # Errors
    /// Errors of the stores.
    pub(crate) fn replay_log(&self) -> Result<Vec<u64>> {
        let log = log_of(self)?;
        let (first, last) = log.bounds();
        if self.has_fault(planted::OPS_NOT_REDONE) {
            self.set_applied(last);
            return Ok(Vec::new());
        }
        let mut operations = Vec::new();
        let applied = log.mark().unwrap_or(log.record().applied);
        for seq in first.max(applied + 1)..=last {
            let Some(operation) = log.read(seq)? else {
                return Err(Error::corrupt("operation log", format!("operation {seq} is missing")));
            };
            operations.push(operation);
        }
        let (mut seen, mut refused) = (HashSet::new(), Vec::new());
        for operation in operations.iter().rev() {
            if seen.contains(&operation.key) {
                continue;
            }
            if operation.mutation == Mutation::Lacking {
                refused.push(operation.seq);
                continue;
            }
            if !self.has_result_of(operation)? {
                match apply(&**self.store(), &operation.key, &operation.mutation, false) {
                    Ok(_) => {}
                    // The operation before it on this key may be missing as well.
                    Err(error) if is_refusal(&error) => {
                        refused.push(operation.seq);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            seen.insert(&operation.key);
        }
        self.set_applied(refused.iter().min().map_or(last, |first| first - 1));
        if refused.is_empty() {
            match log.set_record(|record| record.applied = last) {
                // The next open replays the entries again.
                Err(error) if is_refusal(&error) => {}
                recorded => recorded?,
            }
        }
        Ok(refused)
    }

    /// Returns whether the store already has the result of `operation`.
    fn has_result_of(&self, operation: &Operation) -> Result<bool> {
        let pair = match read_pair(&**self.store(), &operation.key) {
            // A damaged pair is overwritten.
            Err(Error::Corrupt { .. }) => return Ok(false),
            pair => pair?,
        };
        Ok(match (&operation.mutation, pair) {
            (
                Mutation::Put { value, expiry } | Mutation::Restore { value: Some((value, expiry)), .. },
                Some((found, at)),
            ) => *value == found && *expiry == at,
            (Mutation::Delete | Mutation::Restore { value: None, .. }, None) => true,
            _ => false,
        })
    }
}
