//! Notes on standard error of the damage that the open of a store found.
//!
//! An open repairs data with a second copy, and no later command finds this damage again.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use lodestore::events::{Event, EventSink};

use crate::advice::translate;
use crate::failure::note;

/// Maximum findings that are printed.
const PRINTED_FINDINGS_MAX: usize = 3;

/// Damage found by the open and the recovery, and not printed yet.
#[derive(Debug, Clone, Default)]
pub struct OpenDamage {
    found: Arc<Mutex<Vec<String>>>,
}

impl OpenDamage {
    /// Returns the receiver of the events of the store at `path`.
    pub fn sink(&self, path: &Path) -> EventSink {
        let (found, store) = (Arc::clone(&self.found), path.display().to_string());
        Arc::new(move |event: &Event| {
            let text = match event {
                Event::Corruption { place, what, .. } => {
                    format!("recovery found damage: {place}: {}", translate(what, &[]))
                }
                Event::DeviceFailed { .. } | Event::CopyIncomplete { .. } => {
                    translate(&event.to_string(), &[&store]).into_owned()
                }
                _ => return,
            };
            found.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        })
    }

    /// Writes the findings to standard error, and clears them.
    pub fn print(&self) {
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(PoisonError::into_inner));
        for text in found.iter().take(PRINTED_FINDINGS_MAX) {
            note(&format!("note: {text}"));
        }
        if found.len() > PRINTED_FINDINGS_MAX {
            note(&format!("note: recovery found damage in {} more places", found.len() - PRINTED_FINDINGS_MAX));
        }
    }
}
