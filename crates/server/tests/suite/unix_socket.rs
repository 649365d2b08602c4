//! The unix socket: a stale one is replaced, and one of another process is kept.

use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;

use lodestore::Db;
use lodestore::db::Engine;
use lodestore_server::{Config, Server};

/// Starts a server on a unix socket alone.
fn start(dir: &Path, socket: &Path) -> Result<Server, String> {
    let builder = Db::builder(dir.join("store")).engine(Engine::fluidkv()).capacity(64 << 20);
    let db = builder.open().expect("a store");
    let config = Config { listen: Vec::new(), unix: Some(socket.into()), threads: 1, ..Config::default() };
    Server::start(db, config).map_err(|error| error.to_string())
}

#[test]
fn a_socket_that_no_process_listens_on_is_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("socket");
    drop(UnixListener::bind(&socket).expect("a listener"));
    assert!(socket.exists());
    let server = start(dir.path(), &socket).expect("a server");
    UnixStream::connect(&socket).expect("a connection");
    drop(server);
    assert!(!socket.exists(), "a stop removes the socket");
}

#[test]
fn a_socket_that_refuses_a_connection_for_another_reason_is_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("socket");
    // A datagram socket is in use, and no stream can connect to it.
    let other = UnixDatagram::bind(&socket).expect("a socket");
    let error = start(dir.path(), &socket).expect_err("a refusal");
    assert!(error.contains("socket is in use"), "{error}");
    let sender = UnixDatagram::unbound().expect("a socket");
    assert_eq!(sender.send_to(b"x", &socket).expect("the socket is kept"), 1);
    drop(other);
}

#[test]
fn a_server_that_ends_keeps_the_socket_of_its_successor() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("socket");
    let server = start(dir.path(), &socket).expect("a server");
    std::fs::remove_file(&socket).expect("the socket is removed");
    let _successor = UnixListener::bind(&socket).expect("a listener");
    drop(server);
    UnixStream::connect(&socket).expect("the socket is kept");
}
