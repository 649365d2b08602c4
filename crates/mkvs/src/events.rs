//! Events of the devices' stores, delivered when nothing of the matrix is locked.
//!
//! A device's store reports events on the thread that executes its commands. This thread holds a
//! stripe and the device's processor. If the owner read the matrix in its callback, the thread
//! would wait for itself. Events are therefore queued, and a separate thread delivers them
//! (`keeper.rs`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use lodestore_contract::{Event, EventSink};

use crate::lock;

/// Maximum number of queued events; further ones are dropped.
const QUEUED_EVENTS_MAX: usize = 4096;

/// Queues events for the owner.
#[derive(Clone)]
pub struct Relay {
    owner: EventSink,
    queued: Arc<Mutex<VecDeque<Event>>>,
}

impl Relay {
    /// Creates a queue for this owner.
    pub fn new(owner: EventSink) -> Self {
        Self { owner, queued: Arc::default() }
    }

    /// Returns the event sink for the devices' stores.
    pub fn sink(&self) -> EventSink {
        let queued = Arc::clone(&self.queued);
        Arc::new(move |event| {
            let mut queued = lock(&queued);
            if queued.len() < QUEUED_EVENTS_MAX {
                queued.push_back(event.clone());
            }
        })
    }

    /// Queues an event of the matrix itself.
    pub(crate) fn push(&self, event: Event) {
        (self.sink())(&event);
    }

    /// Delivers the queued events to the owner. No lock of the matrix is held.
    pub(crate) fn deliver(&self) {
        loop {
            let next = lock(&self.queued).pop_front();
            let Some(event) = next else { return };
            (self.owner)(&event);
        }
    }
}
