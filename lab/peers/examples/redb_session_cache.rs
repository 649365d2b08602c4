//! Sessions of a web service (axum) in redb, which outlive the process that serves them.
//!
//! `cargo run --release -p lodestore-peers --features redb --example redb_session_cache -- FILE`
//!
//! The program starts the service in a separate process and signs in. Then it kills the service
//! with `kill -9` and restarts it; the session is still valid. An expired session is missing. At
//! the end the program stops the service with SIGTERM. `redb_session_cache FILE serve` runs only
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
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Maps the session to its expiry and its user.
const SESSIONS: TableDefinition<&str, (u64, &str)> = TableDefinition::new("sessions");
/// The expiry and the session, sorted by expiry.
const BY_EXPIRY: TableDefinition<(u64, &str), ()> = TableDefinition::new("sessions by expiry");

type AnyResult<T> = Result<T, Box<dyn Error>>;

/// The response to a failed request.
struct Failure(StatusCode);

impl<E: Into<redb::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        eprintln!("{}", error.into());
        Self(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.0.into_response()
    }
}

/// Signs a user in for some seconds, and returns the session. Removes expired sessions.
async fn sign_in(
    State(db): State<Arc<Database>>,
    Path((user, seconds)): Path<(String, u64)>,
) -> Result<String, Failure> {
    let (session, now) = (random_name()?, now());
    let expiry = now.saturating_add(seconds.saturating_mul(1000));
    let write = db.begin_write()?;
    {
        let (mut sessions, mut by_expiry) = (write.open_table(SESSIONS)?, write.open_table(BY_EXPIRY)?);
        for expired in by_expiry.extract_from_if(..(now, ""), |_, ()| true)? {
            sessions.remove(expired?.0.value().1)?;
        }
        sessions.insert(&*session, (expiry, &*user))?;
        by_expiry.insert((expiry, &*session), ())?;
    }
    write.commit()?;
    Ok(session)
}

/// Returns the user of a session.
async fn show(State(db): State<Arc<Database>>, Path(session): Path<String>) -> Result<String, Failure> {
    let found = db.begin_read()?.open_table(SESSIONS)?.get_owned(&*session)?;
    let found = found.as_ref().map(|found| found.value()).filter(|(expiry, _)| *expiry > now());
    found.map(|(_, user)| user.to_owned()).ok_or(Failure(StatusCode::UNAUTHORIZED))
}

/// Renames the user of a session. The session keeps its expiry.
async fn rename(State(db): State<Arc<Database>>, Path((session, user)): Path<(String, String)>) -> Result<(), Failure> {
    let write = db.begin_write()?;
    {
        let mut sessions = write.open_table(SESSIONS)?;
        let expiry = sessions.get(&*session)?.map(|found| found.value().0).filter(|expiry| *expiry > now());
        let expiry = expiry.ok_or(Failure(StatusCode::UNAUTHORIZED))?;
        sessions.insert(&*session, (expiry, &*user))?;
    }
    Ok(write.commit()?)
}

async fn sign_out(State(db): State<Arc<Database>>, Path(session): Path<String>) -> Result<(), Failure> {
    let write = db.begin_write()?;
    if let Some(found) = write.open_table(SESSIONS)?.remove(&*session)? {
        write.open_table(BY_EXPIRY)?.remove((found.value().0, &*session))?;
    }
    Ok(write.commit()?)
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

/// Serves until SIGINT or SIGTERM, which service managers send. On tmpfs the handlers call redb
/// directly. On a disk the calls belong on `tokio::task::spawn_blocking`, because each commit
/// syncs.
fn serve(file: &str) -> AnyResult<()> {
    let db = Arc::new(Database::create(file)?);
    let write = db.begin_write()?;
    write.open_table(SESSIONS)?; // so that reads find the table
    write.commit()?;
    let app = Router::new()
        .route("/sign-in/{user}/{seconds}", post(sign_in))
        .route("/session/{session}", get(show).delete(sign_out))
        .route("/session/{session}/{user}", post(rename))
        .with_state(db.clone());
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
    Ok(Arc::into_inner(db).map_or(Ok(()), Database::close)?)
}

/// The service in a separate process.
struct Service {
    process: Child,
    address: String,
}

impl Service {
    fn start(file: &str) -> AnyResult<Self> {
        let program = std::env::current_exe()?;
        let mut process = Command::new(program).args([file, "serve"]).stdout(Stdio::piped()).spawn()?;
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
    let file = match &arguments[..] {
        [_, file] => file,
        [_, file, serves] if serves == "serve" => return serve(file),
        _ => return Err("usage: redb_session_cache FILE [serve]".into()),
    };
    let service = Service::start(file)?;
    let (_, session) = service.ask("POST", "/sign-in/Ada/600")?;
    let (_, short) = service.ask("POST", "/sign-in/Bob/1")?;
    service.ask("POST", &format!("/session/{session}/Countess"))?;
    service.end("-KILL")?;

    let service = Service::start(file)?;
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
