//! An event loop: one thread that reads sockets, runs commands and writes replies.
//!
//! A command runs on the thread that read its bytes. The first loop accepts connections and hands
//! them to all loops in turn.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lodestore::Durability;
use mio::{Events, Poll, Token};

use super::buffers::{Input, Output, ReadEnd};
use super::group::GroupSize;
use super::held::HeldClients;
use super::inbox::Inbox;
use super::limits::Backlog;
use super::stream::{Listener, Stream};
use super::tick::{Tick, tick_deadline};
use crate::command::dispatch::ViewCache;
use crate::session::Session;
use crate::shared::Shared;
use crate::statistics::commands::LoopCounters;

/// Events that one poll returns.
const EVENTS_MAX: usize = 1024;

/// Longest wait for events. Idle clients, kills and the stop of the server are checked after it.
const POLL_TIMEOUT: Duration = Duration::from_millis(100);

/// Time without commands after which a client's empty buffers are freed, as in Redis.
const BUFFER_IDLE_TIME: Duration = Duration::from_secs(2);

/// Most connections that one event accepts, so that all connections get their turn.
const ACCEPTS_MAX: usize = 256;
/// Most connections whose handshakes continue in one tick, because a step may compute for a
/// millisecond.
const TICK_HANDSHAKES_MAX: usize = 8;

/// Token of the mailbox.
pub(crate) const MAILBOX: Token = Token(usize::MAX);

/// Tokens of listeners count down from here.
const LISTENER_TOKEN_MAX: usize = usize::MAX - 1;

/// A connection of the loop.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) session: Session,
    /// The unread bytes of the client.
    pub(super) backlog: Backlog,
    /// Bytes that `ClientMemory` counts for the connection.
    pub(super) counted_bytes: usize,
    /// Whether the socket may have bytes to read.
    is_readable: bool,
    /// Whether the system has reported that the client closed its end. No later event follows, so
    /// the socket is read until its end.
    pub(super) is_closing: bool,
    /// Whether all bytes of a client that closed its end were read.
    is_ended: bool,
    /// Whether the input has complete commands. Then the socket is not read, which bounds the
    /// input.
    pub(super) has_commands: bool,
    /// Whether the connection is in the list of the ready ones.
    pub(super) is_listed: bool,
    /// Whether the loop waits until the socket accepts bytes.
    awaits_writable: bool,
}

impl Connection {
    pub(super) fn new(stream: Stream, session: Session) -> Self {
        Self {
            stream,
            session,
            backlog: Backlog::default(),
            counted_bytes: 0,
            is_readable: true,
            is_closing: false,
            is_ended: false,
            has_commands: false,
            is_listed: true,
            awaits_writable: false,
        }
    }
}

/// An event loop.
#[derive(Debug)]
pub(crate) struct EventLoop {
    pub(crate) shared: Arc<Shared>,
    poll: Poll,
    pub(super) inboxes: Vec<Arc<Inbox>>,
    pub(super) own: usize,
    pub(super) listeners: Vec<Listener>,
    /// When to accept connections that wait, and that no event will announce.
    accepts_at: Option<Instant>,
    /// The loop that gets the next connection.
    next_loop: usize,
    pub(super) connections: Vec<Option<Connection>>,
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: Vec<Output>,
    free: Vec<usize>,
    /// Connections with bytes to read or commands to run.
    pub(super) ready: Vec<usize>,
    last_check: Instant,
    group_size: GroupSize,
    /// When the current tick began.
    tick_begun: Instant,
    pub(super) held: HeldClients,
    /// The counters of the commands that the loop runs.
    counters: Arc<LoopCounters>,
}

/// The arguments of a new loop.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) shared: Arc<Shared>,
    pub(crate) poll: Poll,
    /// The inboxes of all loops.
    pub(crate) inboxes: Vec<Arc<Inbox>>,
    /// The index of this loop's inbox.
    pub(crate) own: usize,
    /// The sockets that this loop accepts from.
    pub(crate) listeners: Vec<Listener>,
}

impl EventLoop {
    /// Creates a loop.
    ///
    /// # Errors
    ///
    /// If the system refuses to watch a listener.
    pub(crate) fn new(start: Start) -> io::Result<Self> {
        let Start { shared, poll, inboxes, own, mut listeners } = start;
        for (index, listener) in listeners.iter_mut().enumerate() {
            listener.register(poll.registry(), Token(LISTENER_TOKEN_MAX - index))?;
        }
        let counters = shared.statistics.add_loop();
        Ok(Self {
            shared,
            poll,
            inboxes,
            own,
            listeners,
            accepts_at: None,
            next_loop: 0,
            connections: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            last_check: Instant::now(),
            group_size: GroupSize::default(),
            tick_begun: Instant::now(),
            held: HeldClients::default(),
            counters,
        })
    }

    /// Runs until the server stops.
    ///
    /// # Errors
    ///
    /// If the system refuses to report events.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        let mut view = ViewCache::new(&self.shared);
        self.inboxes[self.own].mailbox.claim();
        while !self.shared.is_stopping() {
            let timeout = if self.is_busy() { Duration::ZERO } else { self.time_to_release().min(POLL_TIMEOUT) };
            self.step(&mut events, &mut view, timeout)?;
        }
        self.finish(&mut view);
        Ok(())
    }

    /// Whether the server stops.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Whether the loop has work that no event announces.
    pub(crate) fn is_busy(&self) -> bool {
        !self.ready.is_empty() || self.is_accept_due() || self.inboxes[self.own].mailbox.has_messages()
    }

    /// Waits for events and runs a tick.
    ///
    /// # Errors
    ///
    /// If the system refuses to report events.
    pub(crate) fn step(&mut self, events: &mut Events, view: &mut ViewCache, timeout: Duration) -> io::Result<()> {
        match self.poll.poll(events, Some(timeout)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        for event in &*events {
            match event.token() {
                MAILBOX => self.adopt_all(),
                Token(token) if token > LISTENER_TOKEN_MAX - self.listeners.len() => {
                    self.accept_all(LISTENER_TOKEN_MAX - token);
                }
                Token(index) => self.note_event(index, event.is_readable(), event.is_read_closed()),
            }
        }
        if self.is_accept_due() {
            self.accepts_at = None;
            (0..self.listeners.len()).for_each(|listener| self.accept_all(listener));
        }
        self.release_held();
        self.run_tick(view);
        if self.last_check.elapsed() >= POLL_TIMEOUT {
            self.last_check = Instant::now();
            self.check_clients();
            if self.own == 0 {
                self.shared.sweep_expiries();
            }
        }
        Ok(())
    }

    fn note_event(&mut self, index: usize, is_readable: bool, is_closed: bool) {
        if let Some(Some(connection)) = self.connections.get_mut(index) {
            connection.is_readable |= is_readable || is_closed;
            connection.is_closing |= is_closed;
            if !connection.is_listed {
                connection.is_listed = true;
                self.ready.push(index);
            }
        }
    }

    /// Accepts the waiting connections of a listener.
    ///
    /// The system announces a waiting connection once. The loop therefore tries again after
    /// [`ACCEPTS_MAX`] connections, and some time after an error that may pass.
    fn accept_all(&mut self, listener: usize) {
        for _ in 0..ACCEPTS_MAX {
            match self.listeners[listener].accept() {
                Ok(stream) => {
                    let target = self.next_loop;
                    self.next_loop = (target + 1) % self.inboxes.len();
                    if target == self.own { self.adopt(stream) } else { self.inboxes[target].send(stream) }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if is_of_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    self.accepts_at = Some(Instant::now() + POLL_TIMEOUT);
                    return;
                }
            }
        }
        self.accepts_at.get_or_insert_with(Instant::now);
    }

    fn is_accept_due(&self) -> bool {
        self.accepts_at.is_some_and(|at| Instant::now() >= at)
    }

    fn adopt_all(&mut self) {
        let streams = self.inboxes[self.own].take_streams();
        streams.into_iter().for_each(|stream| self.adopt(stream));
    }

    /// Takes a new connection into the loop.
    pub(crate) fn adopt(&mut self, mut stream: Stream) {
        use std::io::Write as _;
        let addresses = stream.addresses();
        let Some(public) = self.shared.add_client(addresses.peer, addresses.local) else {
            // The client may have disconnected. A client of TLS must shake hands before it can
            // receive the error.
            drop(stream.write_all(b"-ERR max number of clients reached\r\n"));
            return;
        };
        let id = public.id;
        let index = self.free.pop().unwrap_or(self.connections.len());
        // A connection without probes is better than none.
        drop(stream.set_keepalive(self.shared.runtime.keepalive()));
        let is_ready = stream.disable_delay().is_ok() && stream.register(self.poll.registry(), Token(index)).is_ok();
        if !is_ready {
            self.shared.remove_client(id);
            self.free.push(index);
            return;
        }
        public.route.set(self.own, index);
        let session = Session::new(public, &self.shared.acl, Arc::clone(&self.counters));
        let connection = Connection::new(stream, session);
        if index == self.connections.len() {
            self.connections.push(None);
            self.inputs.push(Input::default());
            self.outputs.push(Output::default());
        }
        self.connections[index] = Some(connection);
        self.inputs[index] = Input::default();
        self.outputs[index] = Output::default();
        self.ready.push(index);
    }

    /// Reads all ready connections, runs their commands, and sends the replies.
    fn run_tick(&mut self, view: &mut ViewCache) {
        self.tick_begun = Instant::now();
        let mut ready = std::mem::take(&mut self.ready);
        self.serve_held(&mut ready);
        let mut handshakes = 0;
        for index in &ready {
            let is_handshaking =
                self.connections[*index].as_ref().is_some_and(|connection| connection.stream.is_handshaking());
            handshakes += usize::from(is_handshaking);
            // The connection stays ready, and its turn comes in a later tick.
            if !is_handshaking || handshakes <= TICK_HANDSHAKES_MAX {
                self.read(*index);
            }
        }
        let (ordered, _) = self.run_commands(&ready, view);
        let touched = self.append_messages();
        for index in &ordered {
            self.connections[*index].iter_mut().for_each(|connection| connection.is_listed = false);
        }
        for index in ordered {
            self.write(index);
            let Some(connection) = &mut self.connections[index] else { continue };
            if connection.is_held() {
                self.keep_held(index);
                continue;
            }
            // A paused connection continues when its socket accepts bytes again.
            let is_paused = self.outputs[index].pending_bytes() > self.shared.runtime.output_bytes_pause();
            if !is_paused && (connection.is_readable || connection.has_commands) {
                connection.is_listed = true;
                self.ready.push(index);
            }
        }
        touched.into_iter().for_each(|index| self.write(index));
        self.close_largest();
    }

    /// Runs the commands of connections for the time of a tick. Returns the connections in the
    /// order of the next tick, and whether complete commands are left.
    pub(super) fn run_commands(&mut self, indexes: &[usize], view: &mut ViewCache) -> (Vec<usize>, bool) {
        let tick = Tick {
            shared: &self.shared,
            view,
            connections: &mut self.connections,
            inputs: &mut self.inputs,
            outputs: &mut self.outputs,
            groups_writes: self.shared.db().durability() == Durability::Power,
            group_size: &mut self.group_size,
            deadline: tick_deadline(),
            appended_bytes: 0,
        };
        let mut ordered = tick.run(indexes);
        let are_commands_left = !ordered.is_empty();
        for (indexes, has_commands) in [(indexes, false), (&ordered, true)] {
            for index in indexes {
                self.connections[*index].iter_mut().for_each(|connection| connection.has_commands = has_commands);
            }
        }
        let has_commands = |index: usize| self.connections[index].as_ref().is_some_and(|open| open.has_commands);
        ordered.extend(indexes.iter().copied().filter(|index| !has_commands(*index)));
        (ordered, are_commands_left)
    }

    fn read(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else { return };
        let is_paused = self.outputs[index].pending_bytes() > self.shared.runtime.output_bytes_pause();
        if !connection.is_readable || connection.has_commands || is_paused {
            return;
        }
        let (bytes, end) = self.inputs[index].read_from(&mut connection.stream);
        self.shared.counters.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
        connection.is_readable = end == ReadEnd::More || (connection.is_closing && end != ReadEnd::Closed);
        connection.is_ended |= end == ReadEnd::Closed;
        if bytes > 0 {
            connection.session.public.note_activity(self.tick_begun);
        }
        self.close_if_too_large(index);
    }

    /// Sends as much as the socket accepts, and closes a connection that is done.
    pub(super) fn write(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else { return };
        if connection.session.public.is_killed() {
            self.close(index);
            return;
        }
        let output = &mut self.outputs[index];
        let sent = output.write_to(&mut connection.stream);
        let is_failed = sent.is_err();
        let sent_bytes = sent.unwrap_or(0);
        self.shared.counters.bytes_written.fetch_add(sent_bytes as u64, Ordering::Relaxed);
        if sent_bytes > 0 {
            // A client that reads a long reply slowly is not idle.
            connection.session.public.note_activity(self.tick_begun);
        }
        self.inputs[index].free_large_empty();
        let pending = output.pending_bytes();
        let is_sent = pending == 0 && !connection.stream.has_unsent();
        connection.session.public.route.set_output_bytes(pending);
        let is_over_limit = pending > 0 && connection.backlog.is_over_limit(&connection.session, pending, &self.shared);
        if pending == 0 {
            connection.backlog.clear();
        }
        if connection.awaits_writable == is_sent {
            connection.awaits_writable = !is_sent;
            let changed = connection.stream.change_interest(self.poll.registry(), Token(index), !is_sent);
            if changed.is_err() {
                self.close(index);
                return;
            }
        }
        let is_done = connection.is_ended && !connection.has_commands;
        if is_failed || is_over_limit || ((is_done || connection.session.closes) && is_sent) {
            self.close(index);
            return;
        }
        // The commands of the tick may have made the state of the client too large.
        self.close_if_too_large(index);
    }

    pub(super) fn close(&mut self, index: usize) {
        if let Some(mut connection) = self.connections[index].take() {
            self.forget_memory(connection.counted_bytes);
            connection.session.public.figures.set_held(&self.shared.pause, false);
            if connection.is_listed {
                // The next connection with this index is listed by itself.
                self.ready.retain(|listed| *listed != index);
            }
            connection.session.unwatch(&self.shared.stripes);
            connection.stream.announce_end();
            connection.session.leave_hub(&self.shared.hub, &self.shared.runtime);
            // The descriptor is closed next, which ends the registration too.
            drop(connection.stream.deregister(self.poll.registry()));
            self.shared.remove_client(connection.session.public.id);
            self.inputs[index] = Input::default();
            self.outputs[index] = Output::default();
            self.free.push(index);
        }
    }

    /// Closes the connections that were killed or that were idle for too long.
    fn check_clients(&mut self) {
        if self.own == 0 && self.shared.runtime.memory_max() != 0 {
            self.shared.memory.refresh(&self.shared.runtime, self.shared.db());
        }
        let timeout = self.shared.runtime.idle_timeout();
        for index in 0..self.connections.len() {
            let pending = self.outputs[index].pending_bytes();
            let is_paused = pending > self.shared.runtime.output_bytes_pause();
            let must_close = self.connections[index].as_mut().is_some_and(|connection| {
                let public = &connection.session.public;
                let is_late = connection.stream.is_late();
                let messaging = &connection.session.messaging;
                let is_receiver = messaging.is_subscriber() || messaging.is_monitor;
                let has_timeout = !timeout.is_zero() && !is_receiver && !connection.awaits_loop(is_paused);
                is_late
                    || public.is_killed()
                    || (has_timeout && public.idle() > timeout)
                    || (pending > 0 && connection.backlog.is_over_limit(&connection.session, pending, &self.shared))
            });
            if must_close {
                self.close(index);
            } else {
                self.free_idle_buffers(index);
            }
        }
        self.check_memory();
    }

    /// Frees the empty buffers of a client that has sent nothing for some time.
    fn free_idle_buffers(&mut self, index: usize) {
        let Some(connection) = &self.connections[index] else { return };
        let is_allocated = self.inputs[index].allocated_bytes() + self.outputs[index].allocated_bytes() > 0;
        if is_allocated && connection.session.public.idle() > BUFFER_IDLE_TIME {
            self.inputs[index].free_empty(0);
            self.outputs[index].free_empty();
            self.count_memory(index);
        }
    }
}

/// Whether an error of an accept is that of one waiting connection, so that the next one may be
/// accepted.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted
            | ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::PermissionDenied
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::NetworkDown
            | ErrorKind::TimedOut
    )
}
