//! The sockets of HTTP: many requests on one thread, so that a slow client delays no other.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};

use super::request::{Exchange, Responder, State};

/// Maximum open requests. A further one replaces the oldest, which has had the most time.
const REQUESTS_MAX: usize = 64;

/// Maximum connections that one event accepts, so that requests are served meanwhile.
const ACCEPTS_MAX: usize = 64;

/// Longest wait for events. Late requests end after it, and a failed accept is tried again.
const POLL_TIMEOUT: Duration = Duration::from_millis(100);

const LISTENER: Token = Token(usize::MAX);
const WAKER: Token = Token(usize::MAX - 1);

/// The listener and the open requests.
#[derive(Debug)]
pub(super) struct Service {
    poll: Poll,
    listener: TcpListener,
    /// By the order in which they were accepted.
    requests: BTreeMap<usize, Exchange>,
    next: usize,
}

impl Service {
    /// Watches a listener.
    ///
    /// # Errors
    ///
    /// If the system refuses an event queue.
    pub(super) fn new(mut listener: TcpListener) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self { poll, listener, requests: BTreeMap::new(), next: 0 })
    }

    /// Returns the waker of the wait for events.
    ///
    /// # Errors
    ///
    /// If the system refuses it.
    pub(super) fn waker(&self) -> io::Result<Waker> {
        Waker::new(self.poll.registry(), WAKER)
    }

    /// Answers requests until `is_stopping`.
    pub(super) fn run(&mut self, is_stopping: &AtomicBool, responder: Responder<'_>) {
        let mut events = Events::with_capacity(2 * REQUESTS_MAX);
        // Connections may wait that no further event announces.
        let mut accepts = false;
        while !is_stopping.load(Ordering::SeqCst) {
            let timeout = if accepts { Duration::ZERO } else { POLL_TIMEOUT };
            if self.poll.poll(&mut events, Some(timeout)).is_err() {
                std::thread::sleep(POLL_TIMEOUT);
            }
            accepts = events.is_empty() || accepts || events.iter().any(|event| event.token() == LISTENER);
            for event in &events {
                self.advance(event.token().0, responder);
            }
            if accepts {
                accepts = self.accept(responder);
            }
            self.requests.retain(|_, request| !request.is_late());
        }
    }

    fn advance(&mut self, number: usize, responder: Responder<'_>) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        if request.advance(responder) == State::Done {
            self.requests.remove(&number);
        }
    }

    /// Accepts waiting connections. Returns whether more may wait.
    fn accept(&mut self, responder: Responder<'_>) -> bool {
        for _ in 0..ACCEPTS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => self.add(Exchange::new(stream), responder),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Without descriptors, the next wait comes first.
                Err(_) => return false,
            }
        }
        true
    }

    fn add(&mut self, mut request: Exchange, responder: Responder<'_>) {
        // A request that arrived whole needs no event and no entry.
        if request.advance(responder) == State::Done {
            return;
        }
        if self.requests.len() >= REQUESTS_MAX {
            self.requests.pop_first();
        }
        let number = self.next;
        // The tokens of the listener and of the waker are never reached.
        self.next = (number + 1) % (usize::MAX - 1);
        let interest = Interest::READABLE | Interest::WRITABLE;
        if self.poll.registry().register(&mut request.stream, Token(number), interest).is_ok() {
            self.requests.insert(number, request);
        }
    }
}
