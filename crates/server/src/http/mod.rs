//! Metrics, health and the status page over HTTP.
//!
//! One thread answers all requests. The number of requests, their size and their time are bounded,
//! and each answer closes its connection. The pages change nothing. They show keys and arguments of
//! slow commands only where the reader could run `SLOWLOG` without a password.

mod command_metrics;
mod exposition;
mod json;
mod metrics;
mod request;
mod service;
mod status;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use exposition::{OPENMETRICS, PROMETHEUS_TEXT, accepts_openmetrics, to_prometheus_text};
use mio::Waker;
use mio::net::TcpListener;
use request::{Answer, Request};
use service::Service;

use crate::shared::Shared;

/// The status page.
const PAGE: &str = include_str!("status.html");

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
    /// Starts the thread over a listener with its address.
    ///
    /// # Errors
    ///
    /// If the system refuses an event queue or a thread.
    pub(crate) fn start(shared: &Arc<Shared>, listener: TcpListener, address: SocketAddr) -> io::Result<Self> {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let mut service = Service::new(listener)?;
        let waker = service.waker()?;
        let (seen, shared) = (Arc::clone(&is_stopping), Arc::clone(shared));
        let thread = std::thread::Builder::new().name("http".into()).spawn(move || {
            service.run(&seen, &|request| answer(&shared, request));
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

/// Returns the answer to a request.
fn answer(shared: &Shared, request: Request<'_>) -> Option<Answer> {
    Some(match request.path {
        "/" => Answer::ok("text/html; charset=utf-8", PAGE.to_owned()),
        "/status.json" => Answer::ok("application/json", status::json(shared, shows_keys(shared, request))),
        "/metrics" => match metrics::render(shared) {
            Ok(text) if accepts_openmetrics(request.header("accept")) => Answer::ok(OPENMETRICS, text),
            Ok(text) => Answer::ok(PROMETHEUS_TEXT, to_prometheus_text(&text)),
            Err(_) => Answer::failed("the metrics cannot be written"),
        },
        "/healthz" => Answer::ok(PLAIN, "ok\n".into()),
        "/readyz" if shared.is_stopping() => Answer::unavailable("stopping\n"),
        "/readyz" => Answer::ok(PLAIN, "ready\n".into()),
        _ => return None,
    })
}

/// Whether the client of a request may see keys and arguments of commands. HTTP has no password, so
/// the default user needs none either, and may do everything. The address of HTTP is a loopback
/// address, and the request does not come from a web page of another origin.
fn shows_keys(shared: &Shared, request: Request<'_>) -> bool {
    let user = shared.acl.default_user();
    let is_local = shared.config.metrics.address.is_some_and(|address| address.ip().is_loopback());
    user.is_open() && user.is_unrestricted() && is_local && request.names_address()
}
