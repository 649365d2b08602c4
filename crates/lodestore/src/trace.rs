//! The events of a store as `tracing` events, and its long calls as spans (feature `tracing`).
//!
//! All have the target `lodestore`. Events have the path of the store. Spans have the identity of
//! the store, and so has the span of the open.

use std::error::Error as StdError;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lodestore_contract::{Event, EventSink, Result, Store, VerifyReport};
use tracing::field::Empty;
use tracing::{Level, Span};

use crate::options::{CreateOptions, OpenOptions};

/// The target of all events and spans.
const TARGET: &str = "lodestore";

/// Creates a store in a span, and emits its events.
pub(crate) fn create<T: AsStore>(
    path: &Path,
    options: &CreateOptions,
    make: impl FnOnce(&CreateOptions) -> Result<T>,
) -> Result<T> {
    let store = path.display();
    let span = tracing::span!(
        target: TARGET, Level::INFO, "create", %store, engine = options.engine.as_str(),
        capacity_bytes = options.size, durability = Empty, identity = Empty
    );
    let events = Some(sink(path, options.events.clone()));
    open_in_span(&span, || make(&CreateOptions { events, ..options.clone() }))
}

/// Opens a store in a span, and emits its events.
pub(crate) fn open<T: AsStore>(
    path: &Path,
    options: &OpenOptions,
    load: impl FnOnce(&OpenOptions) -> Result<T>,
) -> Result<T> {
    let store = path.display();
    let span = tracing::span!(
        target: TARGET, Level::INFO, "open", %store, salvage = options.salvage, engine = Empty,
        durability = Empty, identity = Empty
    );
    let events = Some(sink(path, options.events.clone()));
    open_in_span(&span, || load(&OpenOptions { events, ..options.clone() }))
}

/// Closes a store in a span.
pub(crate) fn close(store: &dyn Store, work: impl FnOnce() -> Result<()>) -> Result<()> {
    run_in_span(&tracing::span!(target: TARGET, Level::INFO, "close", identity = store.identity()), work)
}

/// Makes all writes durable in a span.
pub(crate) fn sync(store: &dyn Store, work: impl FnOnce() -> Result<()>) -> Result<()> {
    run_in_span(&tracing::span!(target: TARGET, Level::DEBUG, "sync", identity = store.identity()), work)
}

/// Runs background work in a span.
pub(crate) fn settle(store: &dyn Store, work: impl FnOnce() -> Result<()>) -> Result<()> {
    run_in_span(&tracing::span!(target: TARGET, Level::DEBUG, "settle", identity = store.identity()), work)
}

/// Verifies a store in a span.
pub(crate) fn verify(store: &dyn Store, work: impl FnOnce() -> Result<VerifyReport>) -> Result<VerifyReport> {
    let identity = store.identity();
    let span = tracing::span!(target: TARGET, Level::INFO, "verify", identity, read_bytes = Empty, findings = Empty);
    run_in_span(&span, || {
        let report = work()?;
        span.record("read_bytes", report.bytes);
        span.record("findings", report.findings.len() as u64);
        Ok(report)
    })
}

/// A handle of an open store.
pub(crate) trait AsStore {
    /// Returns the store.
    fn as_store(&self) -> &dyn Store;
}

impl AsStore for crate::handle::Lodestore {
    fn as_store(&self) -> &dyn Store {
        &**self
    }
}

/// Opens or creates a store in a span, and records its identity.
fn open_in_span<T: AsStore>(span: &Span, work: impl FnOnce() -> Result<T>) -> Result<T> {
    run_in_span(span, || {
        let opened = work()?;
        let store = opened.as_store();
        span.record("engine", store.engine());
        span.record("identity", store.identity());
        span.record("durability", tracing::field::display(store.stats().durability));
        Ok(opened)
    })
}

/// Runs `work` in a span, and emits its error.
fn run_in_span<T>(span: &Span, work: impl FnOnce() -> Result<T>) -> Result<T> {
    span.in_scope(|| {
        work().inspect_err(|error| {
            tracing::error!(target: TARGET, error = error as &dyn StdError, "the call failed");
        })
    })
}

/// Returns the sink of a store, which emits each event and forwards it to the owner's sink.
fn sink(path: &Path, owner: Option<EventSink>) -> EventSink {
    let path = path.to_path_buf();
    Arc::new(move |event| {
        emit(&path, event);
        owner.iter().for_each(|owner| owner(event));
    })
}

/// Emits an event with its fields.
fn emit(path: &Path, event: &Event) {
    let (store, name) = (path.display(), event.name());
    macro_rules! event {
        ($level:ident, $($field:tt)*) => {
            tracing::event!(target: TARGET, Level::$level, %store, event = name, $($field)*, "{event}")
        };
    }
    match event {
        Event::Opened { clean, ready_after } => event!(INFO, clean = *clean, ready_after_us = micros(*ready_after)),
        Event::Recovered { keys, corrupt, took } => {
            event!(INFO, keys = *keys, corrupt = *corrupt, took_us = micros(*took));
        }
        Event::Grown { bytes } => event!(DEBUG, bytes = *bytes),
        Event::Corruption { found_by, place, what } => {
            event!(ERROR, found_by = found_by.name(), place = place.as_str(), what = what.as_str());
        }
        Event::Full { needed } => event!(WARN, needed_bytes = *needed),
        Event::Poisoned { reason, cause } => event!(ERROR, reason = reason.name(), cause = cause.as_str()),
        Event::Swept { keys } => event!(DEBUG, keys = *keys),
        Event::DeviceFailed { group, device, is_late, cause } => {
            event!(ERROR, group = *group, device = *device, is_late = *is_late, cause = cause.as_str());
        }
        Event::CopyIncomplete { group, device, pairs } => {
            event!(ERROR, group = *group, device = *device, pairs = *pairs);
        }
        // The test `no_event_is_emitted_without_an_arm_of_its_own` fails for an event without one.
        _ => event!(INFO, has_arm = false),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
