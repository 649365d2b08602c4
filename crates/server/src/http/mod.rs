//! Metrics, health and the status page over HTTP.
//!
//! Each of a few threads answers one request at a time, so that an idle client delays no probe of
//! the health. The size of a request and the time for it are bounded,
//! and each answer closes its connection. The pages change nothing. They show keys and arguments of
//! slow commands only where the reader could run `SLOWLOG` without a password.

mod command_metrics;
mod exposition;
mod json;
mod metrics;
mod process;
mod request;
mod status;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use exposition::{OPENMETRICS, PROMETHEUS_TEXT, accepts_openmetrics, to_prometheus_text};
use request::{Answer, Request, serve};

use crate::shared::Shared;

/// Threads that answer requests.
const THREADS: usize = 4;

/// Longest time for connecting to the own listener, which ends its wait.
const WAKE_TIMEOUT: Duration = Duration::from_millis(200);

/// Pause after a failed accept, such as one for want of descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The status page.
const PAGE: &str = include_str!("status.html");

const PLAIN: &str = "text/plain; charset=utf-8";

/// The threads that answer requests.
#[derive(Debug)]
pub(crate) struct HttpServer {
    address: SocketAddr,
    is_stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl HttpServer {
    /// Listens, and starts the threads.
    ///
    /// # Errors
    ///
    /// If the system refuses the address or a thread.
    pub(crate) fn start(shared: &Arc<Shared>, address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let mut server = Self { address, is_stopping: Arc::default(), threads: Vec::new() };
        for _ in 0..THREADS {
            let thread = server.start_thread(Arc::clone(shared), listener.try_clone()?)?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    fn start_thread(&self, shared: Arc<Shared>, listener: TcpListener) -> io::Result<JoinHandle<()>> {
        let seen = Arc::clone(&self.is_stopping);
        std::thread::Builder::new().name("http".into()).spawn(move || {
            while !seen.load(Ordering::SeqCst) {
                match listener.accept() {
                    // A client that is gone gets no answer.
                    Ok((stream, _)) => drop(serve(&stream, &seen, |request| answer(&shared, request))),
                    Err(_) => std::thread::sleep(RETRY_PAUSE),
                }
            }
        })
    }

    /// Returns the address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::SeqCst);
        // Each connection ends the wait of a thread. Without it the thread ends with the process.
        let is_woken = |_: &JoinHandle<()>| TcpStream::connect_timeout(&self.address, WAKE_TIMEOUT).is_ok();
        if self.threads.iter().all(is_woken) {
            self.threads.drain(..).for_each(|thread| drop(thread.join()));
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
