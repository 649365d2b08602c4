//! The messages that wait for an event loop.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;

use mio::{Registry, Token, Waker};

use super::delivery::Delivery;

/// Messages that wait for their event loop, and the wake-up of the loop.
#[derive(Debug)]
pub(crate) struct Mailbox {
    messages: Mutex<Vec<Delivery>>,
    has_messages: AtomicBool,
    /// The thread of the loop, which reads its own messages without a wake-up.
    owner: OnceLock<ThreadId>,
    waker: Waker,
}

impl Mailbox {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        Ok(Self {
            messages: Mutex::default(),
            has_messages: AtomicBool::new(false),
            owner: OnceLock::new(),
            waker: Waker::new(registry, token)?,
        })
    }

    /// Names the calling thread as the loop's own.
    pub(crate) fn claim(&self) {
        self.owner.get_or_init(|| std::thread::current().id());
    }

    /// Hands a message to the loop. Messages keep their order.
    pub(crate) fn deliver(&self, message: Delivery) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages.push(message);
        let is_first = messages.len() == 1;
        self.has_messages.store(true, Ordering::Release);
        drop(messages);
        if is_first && self.owner.get() != Some(&std::thread::current().id()) {
            self.wake();
        }
    }

    /// Whether messages wait.
    pub(crate) fn has_messages(&self) -> bool {
        self.has_messages.load(Ordering::Acquire)
    }

    /// Returns all waiting messages.
    pub(crate) fn take_messages(&self) -> Vec<Delivery> {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_messages.store(false, Ordering::Release);
        std::mem::take(&mut *messages)
    }

    /// Makes the loop run a tick. A loop that cannot be woken runs one within its poll timeout.
    pub(crate) fn wake(&self) {
        drop(self.waker.wake());
    }
}
