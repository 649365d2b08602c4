//! What happens in the devices' stores, told when nothing of the matrix is locked.
//!
//! A device's store tells its events on the thread that does its work, which here holds a stripe and the device's processor: an owner who reads the matrix then would
//! wait for himself. So they are kept, and a thread of its own tells them (`keeper.rs`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use lodestore_contract::{Event, EventSink};

use crate::lock;

/// Most events that wait; those beyond are left out.
const WAITING_MAX: usize = 4096;

/// Keeps events for the owner.
#[derive(Clone)]
pub struct Relay {
    owner: EventSink,
    waiting: Arc<Mutex<VecDeque<Event>>>,
}

impl Relay {
    /// For this owner.
    pub fn new(owner: EventSink) -> Self {
        Self { owner, waiting: Arc::default() }
    }

    /// What the devices' stores are given.
    pub fn sink(&self) -> EventSink {
        let waiting = Arc::clone(&self.waiting);
        Arc::new(move |event| {
            let mut waiting = lock(&waiting);
            if waiting.len() < WAITING_MAX {
                waiting.push_back(event.clone());
            }
        })
    }

    /// Keeps an event of the matrix's own.
    pub(crate) fn keep(&self, event: Event) {
        (self.sink())(&event);
    }

    /// Tells the owner what waits. Nothing of the matrix is locked.
    pub(crate) fn tell(&self) {
        loop {
            let next = lock(&self.waiting).pop_front();
            let Some(event) = next else { return };
            (self.owner)(&event);
        }
    }
}
