//! Metrics, health and the status page over HTTP.
//!
//! One thread answers all requests. The number of requests, their size and their time are bounded,
//! and each answer closes its connection. The pages change nothing and show no keys or values.

mod metrics;
mod request;
mod service;
mod status;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use mio::Waker;
use mio::net::TcpListener;
use request::Answer;
use service::Service;

use crate::shared::Shared;

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
    waker: Waker,
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
        let mut service = Service::new(listener)?;
        let waker = service.waker()?;
        let seen = Arc::clone(&is_stopping);
        let thread = std::thread::Builder::new().name("http".into()).spawn(move || {
            service.run(&seen, &|path| answer(&shared, path));
        })?;
        Ok(Self { address, is_stopping, waker, thread: Some(thread) })
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        // The thread wakes by itself after some time.
        drop(self.waker.wake());
        if let Some(thread) = self.thread.take() {
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
