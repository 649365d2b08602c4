//! Sessions of a web service (axum) in fjall, which outlive the process that serves them.
//!
//! `cargo run --release -p lodestore-peers --features fjall --example fjall_session_cache -- DIR`
//!
//! The program starts the service in a separate process and signs in. Then it kills the service
//! with `kill -9` and restarts it; the session is still valid. An expired session is missing. At
//! the end the program stops the service with SIGTERM. `fjall_session_cache DIR serve` runs only
//! the service.

use std::error::Error;
use std::future::poll_fn;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use fjall::compaction::filter::{CompactionFilter, CompactionFilterResult, Context, Factory, ItemAccessor, Verdict};
use fjall::{KeyspaceCreateOptions, PersistMode, SingleWriterTxDatabase, SingleWriterTxKeyspace};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

type AnyResult<T> = Result<T, Box<dyn Error>>;

/// A stored session: its expiry in little-endian bytes, and its user.
fn encode(expiry: u64, user: &str) -> Vec<u8> {
    [&expiry.to_le_bytes(), user.as_bytes()].concat()
}

/// Returns the expiry and the user of a stored session, unless the session has expired.
fn decode_unexpired(stored: &[u8]) -> Option<(u64, &[u8])> {
    let (expiry, user) = stored.split_first_chunk()?;
    Some((u64::from_le_bytes(*expiry), user)).filter(|(expiry, _)| *expiry > now())
}

/// Removes expired sessions whenever fjall compacts their tables.
struct RemoveExpired;

impl CompactionFilter for RemoveExpired {
    fn filter_item(&mut self, item: ItemAccessor<'_>, _: &Context) -> CompactionFilterResult {
        Ok(if decode_unexpired(&item.value()?).is_some() { Verdict::Keep } else { Verdict::Remove })
    }
}

impl Factory for RemoveExpired {
    fn name(&self) -> &str {
        "expired sessions"
    }

    fn make_filter(&self, _: &Context) -> Box<dyn CompactionFilter> {
        Box::new(Self)
    }
}

/// Signs a user in for some seconds, and returns the session.
async fn sign_in(
    State(sessions): State<SingleWriterTxKeyspace>,
    Path((user, seconds)): Path<(String, u64)>,
) -> Result<String, StatusCode> {
    let session = random_name().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let expiry = now().saturating_add(seconds.saturating_mul(1000));
    sessions.insert(&session, encode(expiry, &user)).map_err(status_of)?;
    Ok(session)
}

/// Returns the user of a session.
async fn show(
    State(sessions): State<SingleWriterTxKeyspace>,
    Path(session): Path<String>,
) -> Result<String, StatusCode> {
    let stored = sessions.get(session).map_err(status_of)?;
    let (_, user) = stored.as_deref().and_then(decode_unexpired).ok_or(StatusCode::UNAUTHORIZED)?;
    Ok(String::from_utf8_lossy(user).into_owned())
}

/// Renames the user of a session. The session keeps its expiry.
async fn rename(
    State(sessions): State<SingleWriterTxKeyspace>,
    Path((session, user)): Path<(String, String)>,
) -> Result<(), StatusCode> {
    let stored = sessions.update_fetch(session, |stored| {
        let (expiry, _) = decode_unexpired(stored?)?;
        Some(encode(expiry, &user).into())
    });
    if stored.map_err(status_of)?.is_some() { Ok(()) } else { Err(StatusCode::UNAUTHORIZED) }
}

async fn sign_out(
    State(sessions): State<SingleWriterTxKeyspace>,
    Path(session): Path<String>,
) -> Result<(), StatusCode> {
    sessions.remove(session).map_err(status_of)
}

fn status_of(error: fjall::Error) -> StatusCode {
    eprintln!("{error}");
    StatusCode::INTERNAL_SERVER_ERROR
}

/// Returns the time in milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

fn random_name() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.map(|byte| format!("{byte:02x}")).concat())
}

/// Serves until SIGINT or SIGTERM, which service managers send. The calls of fjall return once the
/// system has the data, so the handlers call fjall directly. A store larger than memory belongs on
/// `tokio::task::spawn_blocking`.
fn serve(dir: &str) -> AnyResult<()> {
    let db = SingleWriterTxDatabase::builder(dir)
        .with_compaction_filter_factories(Arc::new(|_| Some(Arc::new(RemoveExpired))))
        .open()?;
    let app = Router::new()
        .route("/sign-in/{user}/{seconds}", post(sign_in))
        .route("/session/{session}", get(show).delete(sign_out))
        .route("/session/{session}/{user}", post(rename))
        .with_state(db.keyspace("sessions", KeyspaceCreateOptions::default)?);
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let stopped = poll_fn(move |context| {
            let is_stopped = interrupted.poll_recv(context).is_ready() || terminated.poll_recv(context).is_ready();
            if is_stopped { Poll::Ready(()) } else { Poll::Pending }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        axum::serve(listener, app).with_graceful_shutdown(stopped).await
    })?;
    Ok(db.persist(PersistMode::SyncAll)?)
}

/// The service in a separate process.
struct Service {
    process: Child,
    address: String,
}

impl Service {
    fn start(dir: &str) -> AnyResult<Self> {
        let program = std::env::current_exe()?;
        let mut process = Command::new(program).args([dir, "serve"]).stdout(Stdio::piped()).spawn()?;
        let mut address = String::new();
        BufReader::new(process.stdout.take().ok_or("no output")?).read_line(&mut address)?;
        Ok(Self { process, address: address.trim().into() })
    }

    /// Returns the status and the body.
    fn ask(&self, method: &str, path: &str) -> AnyResult<(u16, String)> {
        let mut stream = TcpStream::connect(&self.address)?;
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").ok_or("no body")?.1;
        Ok((answer.split(' ').nth(1).ok_or("no status")?.parse()?, body.into()))
    }

    /// Sends a signal, and waits for the end.
    fn end(mut self, signal: &str) -> AnyResult<ExitStatus> {
        Command::new("kill").args([signal, &self.process.id().to_string()]).status()?;
        Ok(self.process.wait()?)
    }
}

fn main() -> AnyResult<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let dir = match &arguments[..] {
        [_, dir] => dir,
        [_, dir, serves] if serves == "serve" => return serve(dir),
        _ => return Err("usage: fjall_session_cache DIR [serve]".into()),
    };
    let service = Service::start(dir)?;
    let (_, session) = service.ask("POST", "/sign-in/Ada/600")?;
    let (_, short) = service.ask("POST", "/sign-in/Bob/1")?;
    service.ask("POST", &format!("/session/{session}/Countess"))?;
    service.end("-KILL")?;

    let service = Service::start(dir)?;
    let found = service.ask("GET", &format!("/session/{session}"))?;
    println!("after kill -9: {found:?}");
    assert_eq!(found, (200, "Countess".into()));
    std::thread::sleep(Duration::from_millis(1100));
    let expired = service.ask("GET", &format!("/session/{short}"))?;
    println!("after its expiry: {expired:?}");
    assert_eq!(expired.0, 401);
    assert_eq!(service.ask("DELETE", &format!("/session/{session}"))?.0, 200);
    assert!(service.end("-TERM")?.success()); // as a service manager does
    Ok(())
}
