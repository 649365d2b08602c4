//! Metrics, health and the status page over HTTP.
//!
//! One thread answers one request at a time. The size of a request and the time for it are bounded,
//! and each answer closes its connection. The pages change nothing and show no keys or values.

mod metrics;
mod request;
mod status;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use request::{Answer, serve};

use crate::shared::Shared;

/// Longest time for connecting to the own listener, which ends its wait.
const WAKE_TIMEOUT: Duration = Duration::from_millis(200);

/// Pause after a failed accept, such as one for want of descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The status page.
const PAGE: &str = include_str!("status.html");

/// Media type of OpenMetrics.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PLAIN: &str = "text/plain; charset=utf-8";

/// A thread that answers requests.
#[derive(Debug)]
pub(crate) struct HttpServer {
    address: SocketAddr,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Listens, and starts the thread.
    ///
    /// # Errors
    ///
    /// If the system refuses the address or a thread.
    pub(crate) fn start(shared: Arc<Shared>, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_stopping);
        let thread = std::thread::Builder::new().name("http".into()).spawn(move || {
            while !seen.load(Ordering::SeqCst) {
                match listener.accept() {
                    // A client that is gone gets no answer.
                    Ok((stream, _)) => drop(serve(&stream, &seen, |path| answer(&shared, path))),
                    Err(_) => std::thread::sleep(RETRY_PAUSE),
                }
            }
        })?;
        Ok(Self { address, is_stopping, thread: Some(thread) })
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        // The connection ends the wait for one. Without it the thread ends with the process.
        let is_woken = TcpStream::connect_timeout(&self.address, WAKE_TIMEOUT).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_woken) {
            drop(thread.join());
        }
    }
}

/// Returns the answer for a path.
fn answer(shared: &Shared, path: &str) -> Option<Answer> {
    Some(match path {
        "/" => Answer::ok("text/html; charset=utf-8", PAGE.to_owned()),
        "/status.json" => Answer::ok("application/json", status::json(shared)),
        "/metrics" => match metrics::render(shared) {
            Ok(text) => Answer::ok(OPENMETRICS, text),
            Err(_) => Answer::failed("the metrics cannot be written"),
        },
        "/healthz" => Answer::ok(PLAIN, "ok\n".into()),
        "/readyz" if shared.is_stopping() => Answer::unavailable("stopping\n"),
        "/readyz" => Answer::ok(PLAIN, "ready\n".into()),
        _ => return None,
    })
}
