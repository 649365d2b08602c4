//! `serve`: a Redis-protocol server over a store.

mod banner;
mod log;
mod notify;
mod place;
mod stop;

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use lodestore::Db;
use lodestore_server::options::OptionError;
use lodestore_server::{Server, StartError, Stopper, StoreEvents};

use crate::BEGUN;
use crate::args::ServeArgs;
use crate::failure::{Failure, Outcome};

/// Longest time from a stop to the end of the process. A process that ends earlier than its clean
/// close loses nothing: the next open recovers, as after a kill.
const STOP_MAX: Duration = Duration::from_secs(2);

/// Part of [`STOP_MAX`] in which the system ends the process and frees its memory.
const EXIT_TIME: Duration = Duration::from_millis(200);

/// Time between two checks of the main thread for a stop.
const STOP_CHECK_PERIOD: Duration = Duration::from_millis(100);

/// Serves a store until a signal or a client stops the server.
pub fn run(args: &ServeArgs) -> Outcome {
    let resolved = args.options.resolve()?;
    let config = &resolved.config;
    config.check().map_err(OptionError::Config)?;
    log::start(&config.log);
    let location = place::locate(&resolved)?;
    // An address in use is reported before a store is created or recovered.
    let bound = Server::bind(config.clone()).map_err(start_failure)?;
    let events = StoreEvents::default();
    let db = place::open_or_create(&location, &config.store, &events)?;
    let server = match bound.start(db.clone()) {
        Ok(server) => server,
        Err(error) => {
            // The failure of the start is reported instead.
            drop(db.close());
            return Err(start_failure(error));
        }
    };
    server.report_store_events(&events);
    stop::stop_on_signal(&server.stopper())?;
    let ready_after = BEGUN.get().map(Instant::elapsed).unwrap_or_default();
    server.report_served_after(ready_after);
    let banner = banner::Banner::new(&location, &db, &server, config, ready_after);
    // A missing reader of the banner does not end the server.
    drop(banner.print(config.log.is_json));
    notify::send(&format!("READY=1\nSTATUS=Serving {}", location.path.display()));
    wait_and_close(server, db)
}

/// Waits for the end of the server and for the clean close of the store, for a bounded time.
fn wait_and_close(server: Server, db: Db) -> Outcome {
    let stopper = server.stopper();
    let (ended, end) = mpsc::channel();
    let waiting = std::thread::Builder::new().name("stop".into()).spawn(move || {
        let served = server.wait();
        notify::send("STOPPING=1");
        let closed = db.close();
        // After `STOP_MAX` the main thread has left.
        drop(ended.send((served, closed)));
    });
    waiting.map_err(|error| {
        Failure::Other(format!("the system refused to start a thread: {error}; raise the limit of threads (ulimit -u)"))
    })?;
    match wait_for_end(&end, &stopper) {
        None => {
            let limit = STOP_MAX.as_secs();
            tracing::warn!(
                "the store was not closed within {limit} s: no acknowledged write is lost, and the next start \
                 recovers the store"
            );
            Ok(())
        }
        Some((served, closed)) => {
            closed?;
            served.map_err(|error| Failure::Other(format!("the server failed: {error}")))?;
            tracing::info!("stopped, and the store is closed");
            Ok(())
        }
    }
}

/// Returns the message of `end`, or `None` if only [`EXIT_TIME`] is left of a stop.
fn wait_for_end<T>(end: &mpsc::Receiver<T>, stopper: &Stopper) -> Option<T> {
    loop {
        let left = stopper.stopping_since().map(|since| (STOP_MAX - EXIT_TIME).saturating_sub(since.elapsed()));
        if left == Some(Duration::ZERO) {
            return end.try_recv().ok();
        }
        match end.recv_timeout(left.unwrap_or(STOP_CHECK_PERIOD)) {
            Ok(ended) => return Some(ended),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn start_failure(error: StartError) -> Failure {
    match error {
        StartError::Store(error) => Failure::Store(error),
        StartError::Config(error) => OptionError::Config(error).into(),
        other => Failure::Other(other.to_string()),
    }
}
