//! TLS: certificates, half-closed connections, and handshakes that are slow or hostile.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lodestore::db::Engine;
use lodestore_server::{Config, TlsClients, TlsConfig};
use lodestore_wire::{Limits, Reply, decode_reply};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::common::{TestServer, encode, show};

/// An authority, and a certificate and key that it signed, in files that `certificates/make.sh`
/// makes.
struct Certificates {
    dir: PathBuf,
}

impl Certificates {
    fn new() -> Self {
        Self::of("first")
    }

    fn of(set: &str) -> Self {
        Self { dir: PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(set) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn config(&self, clients: TlsClients) -> TlsConfig {
        TlsConfig {
            listen: vec![([127, 0, 0, 1], 0).into()],
            cert_file: self.path("cert.pem"),
            key_file: self.path("key.pem"),
            ca_cert_file: Some(self.path("ca.pem")),
            clients,
            handshake_timeout: TlsConfig::HANDSHAKE_TIMEOUT,
        }
    }

    /// Starts a server with TLS.
    fn serve(&self, change: impl FnOnce(&mut TlsConfig)) -> TestServer {
        let mut tls = self.config(TlsClients::WithoutCertificate);
        change(&mut tls);
        TestServer::start_with(Engine::fluidkv(), |config| config.tls = Some(tls))
    }

    /// Returns a client's configuration that trusts the authority.
    fn client_config(&self, own: Option<&Self>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("ca.pem")).expect("a certificate")).expect("a root");
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls_graviola::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let chain = vec![CertificateDer::from_pem_file(own.path("cert.pem")).expect("a certificate")];
                let key = PrivateKeyDer::from_pem_file(own.path("key.pem")).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("a pair")
            }
        })
    }
}

/// A socket that sends each byte alone.
struct Dripping(TcpStream);

impl Read for Dripping {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Dripping {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        std::thread::yield_now();
        self.0.write(&bytes[..bytes.len().min(1)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn socket(server: &TestServer) -> TcpStream {
    let socket = TcpStream::connect(server.tls_address()).expect("a connection");
    socket.set_nodelay(true).expect("an option");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    socket
}

/// A client of TLS.
struct Client<S: Read + Write> {
    stream: StreamOwned<ClientConnection, S>,
    buffer: Vec<u8>,
}

impl<S: Read + Write> Client<S> {
    fn new(socket: S, config: Arc<ClientConfig>) -> Self {
        let session = ClientConnection::new(config, "localhost".try_into().expect("a name")).expect("a session");
        Self { stream: StreamOwned::new(session, socket), buffer: Vec::new() }
    }

    fn try_receive(&mut self) -> io::Result<Option<Reply>> {
        loop {
            if let Some((reply, length)) = decode_reply(&self.buffer, &Limits::default()).expect("a valid reply") {
                self.buffer.drain(..length);
                return Ok(Some(reply));
            }
            let mut chunk = vec![0; 64 << 10];
            match self.stream.read(&mut chunk)? {
                0 => return Ok(None),
                bytes => self.buffer.extend_from_slice(&chunk[..bytes]),
            }
        }
    }

    fn try_run(&mut self, command: &str) -> io::Result<String> {
        let arguments: Vec<&str> = command.split(' ').collect();
        self.stream.write_all(&encode(&arguments))?;
        self.stream.flush()?;
        self.try_receive().map(|reply| reply.map_or("closed".into(), |reply| show(&reply)))
    }
}

#[test]
fn commands_and_large_values_pass_over_tls() {
    let certificates = Certificates::new();
    let server = certificates.serve(|_| {});
    let mut client = Client::new(socket(&server), certificates.client_config(None));
    assert_eq!(client.try_run("SET a 1").expect("a reply"), "+OK");
    assert_eq!(client.try_run("GET a").expect("a reply"), "1");
    assert!(client.try_run("CLIENT LIST").expect("a reply").contains("addr=127.0.0.1:"));
    let value = "x".repeat(3 << 20);
    client.stream.write_all(&encode(&["SET", "large", &value])).expect("a write");
    client.stream.write_all(&encode(&["GET", "large"]).repeat(10)).expect("a write");
    client.stream.flush().expect("a flush");
    assert_eq!(client.try_receive().expect("a reply"), Some(Reply::Simple(b"OK".to_vec())));
    for _ in 0..10 {
        assert_eq!(client.try_receive().expect("a reply"), Some(Reply::Bulk(value.clone().into_bytes())));
    }
    let pipeline: Vec<u8> =
        (0..5000).flat_map(|number| [encode(&["ECHO", &number.to_string()]), encode(&["GET", "a"])].concat()).collect();
    client.stream.write_all(&pipeline).expect("a write");
    client.stream.flush().expect("a flush");
    for number in 0..5000 {
        assert_eq!(show(&client.try_receive().expect("a reply").expect("no end")), number.to_string());
        assert_eq!(show(&client.try_receive().expect("a reply").expect("no end")), "1");
    }
    for _ in 0..20 {
        // Two records that arrive together. No event follows the first one.
        let half = "y".repeat(5000);
        client.stream.conn.writer().write_all(&encode(&["ECHO", &half])).expect("a write");
        client.stream.conn.writer().write_all(&encode(&["ECHO", &half])).expect("a write");
        client.stream.flush().expect("a flush");
        for _ in 0..2 {
            assert_eq!(client.try_receive().expect("a reply"), Some(Reply::Bulk(half.clone().into_bytes())));
        }
    }
    // Both ways lead to the same store.
    assert_eq!(server.client().run("GET a"), "1");
}

#[test]
fn certificates_of_clients_are_required_optional_or_not_asked_for() {
    let (certificates, others) = (Certificates::new(), Certificates::of("second"));
    let is_accepted = |server: &TestServer, own: Option<&Certificates>| {
        let mut client = Client::new(socket(server), certificates.client_config(own));
        client.try_run("PING").is_ok_and(|reply| reply == "+PONG")
    };
    for (clients, without, with_own, with_other) in [
        (TlsClients::WithCertificate, false, true, false),
        (TlsClients::MayHaveCertificate, true, true, false),
        (TlsClients::WithoutCertificate, true, true, true),
    ] {
        let server = certificates.serve(|tls| tls.clients = clients);
        assert_eq!(is_accepted(&server, None), without, "{clients:?}");
        assert_eq!(is_accepted(&server, Some(&certificates)), with_own, "{clients:?}");
        assert_eq!(is_accepted(&server, Some(&others)), with_other, "{clients:?}");
    }
}

#[test]
fn a_client_of_tls_that_closes_its_end_gets_all_replies_and_a_clean_end() {
    let certificates = Certificates::new();
    let server = certificates.serve(|_| {});
    let mut client = Client::new(socket(&server), certificates.client_config(None));
    let bytes: Vec<u8> = (0..20_000).flat_map(|number| encode(&["ECHO", &number.to_string()])).collect();
    client.stream.write_all(&bytes).expect("a write");
    // More replies than the socket holds, which the client reads later.
    let large = "z".repeat(32 << 10);
    client.stream.write_all(&encode(&["ECHO", &large]).repeat(400)).expect("a write");
    client.stream.conn.send_close_notify();
    client.stream.flush().expect("a flush");
    client.stream.sock.shutdown(Shutdown::Write).expect("a half-closed connection");
    for number in 0..20_000 {
        assert_eq!(show(&client.try_receive().expect("a reply").expect("no end")), number.to_string());
    }
    for _ in 0..400 {
        assert_eq!(client.try_receive().expect("a reply"), Some(Reply::Bulk(large.clone().into_bytes())));
    }
    // An end without the message of TLS would be an error here.
    assert_eq!(client.try_receive().expect("a clean end"), None);
}

#[test]
fn a_slow_handshake_succeeds_and_delays_no_other_client() {
    let certificates = Certificates::new();
    let server = certificates.serve(|_| {});
    let mut slow = Client::new(Dripping(socket(&server)), certificates.client_config(None));
    assert_eq!(slow.try_run("PING").expect("a reply"), "+PONG");
    let _idle: Vec<TcpStream> = (0..100).map(|_| socket(&server)).collect();
    let mut client = Client::new(socket(&server), certificates.client_config(None));
    assert_eq!(client.try_run("PING").expect("a reply"), "+PONG");
}

#[test]
fn a_handshake_that_never_ends_is_closed() {
    let certificates = Certificates::new();
    let server = certificates.serve(|tls| tls.handshake_timeout = Duration::from_millis(50));
    let mut silent = socket(&server);
    assert!(matches!(silent.read(&mut [0; 16]), Ok(0) | Err(_)));
    let mut half = socket(&server);
    // The head of a record of 512 bytes, and a part of it.
    half.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252]).expect("a write");
    let mut rest = Vec::new();
    drop(half.read_to_end(&mut rest));
    assert!(server.client().run("CLIENT LIST").lines().count() == 1, "a client of a handshake is left");
}

#[test]
fn bytes_that_are_no_handshake_close_the_connection() {
    let certificates = Certificates::new();
    let server = certificates.serve(|_| {});
    let requests: [Vec<u8>; 3] = [encode(&["PING"]), vec![0; 100_000], [22, 3, 1, 64, 0].repeat(50_000)];
    for request in requests {
        let mut socket = socket(&server);
        // The server may close while the client writes.
        drop(socket.write_all(&request));
        drop(socket.shutdown(Shutdown::Write));
        let mut reply = Vec::new();
        drop(socket.read_to_end(&mut reply));
        assert!(!reply.starts_with(b"+") && !reply.starts_with(b"-"), "{reply:?}");
    }
    assert_eq!(server.client().run("PING"), "+PONG");
}

#[test]
fn a_password_and_permissions_apply_over_tls() {
    let certificates = Certificates::new();
    let tls = certificates.config(TlsClients::WithoutCertificate);
    let server = TestServer::start_with(Engine::fluidkv(), |config| {
        config.tls = Some(tls);
        config.password = Some("pw".into());
        config.users = vec!["reader on >pw +get ~a*".into()];
    });
    let mut client = Client::new(socket(&server), certificates.client_config(None));
    assert_eq!(client.try_run("GET a").expect("a reply"), "-NOAUTH Authentication required.");
    assert_eq!(client.try_run("AUTH reader pw").expect("a reply"), "+OK");
    assert_eq!(client.try_run("GET a").expect("a reply"), "(nil)");
    assert!(client.try_run("GET b").expect("a reply").starts_with("-NOPERM"));
}

#[test]
fn a_refused_configuration_of_tls_names_the_file_or_option() {
    let (certificates, others) = (Certificates::new(), Certificates::of("second"));
    let refusal = |change: &dyn Fn(&mut TlsConfig)| {
        let mut tls = certificates.config(TlsClients::WithCertificate);
        change(&mut tls);
        let config = Config { listen: Vec::new(), tls: Some(tls), ..Config::default() };
        config.check().expect_err("a refused configuration").to_string()
    };
    let missing = Path::new("/nonexistent/x.pem");
    assert!(refusal(&|tls| tls.cert_file = missing.into()).contains("/nonexistent/x.pem (tls-cert-file)"));
    assert!(refusal(&|tls| tls.key_file = missing.into()).contains("/nonexistent/x.pem (tls-key-file)"));
    assert!(refusal(&|tls| tls.ca_cert_file = Some(missing.into())).contains("/nonexistent/x.pem (tls-ca-cert-file)"));
    assert!(refusal(&|tls| tls.ca_cert_file = None).contains("set tls-auth-clients to no"));
    assert!(refusal(&|tls| tls.cert_file = tls.key_file.clone()).contains("has no certificate in PEM form"));
    assert!(refusal(&|tls| tls.key_file = others.path("key.pem")).contains("key.pem"));
    assert!(refusal(&|tls| tls.listen = vec![([0, 0, 0, 0], 0).into()]).contains("set a password"));
    assert!(refusal(&|tls| tls.listen.clear()).contains("no address to listen on"));
}

#[test]
fn redis_cli_connects_over_tls() {
    let certificates = Certificates::new();
    let server = certificates.serve(|tls| tls.clients = TlsClients::WithCertificate);
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new("redis-cli");
        command.args(["--tls", "--sni", "localhost", "-h", "127.0.0.1", "-p"]);
        command.arg(server.tls_address().port().to_string());
        command.arg("--cacert").arg(certificates.path("ca.pem"));
        command.arg("--cert").arg(certificates.path("cert.pem")).arg("--key").arg(certificates.path("key.pem"));
        command.args(words).output()
    };
    let Ok(output) = run(&["SET", "a", "1"]) else {
        println!("skipped: there is no redis-cli");
        return;
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    if text.contains("Unrecognized option") {
        println!("skipped: redis-cli has no TLS");
        return;
    }
    assert_eq!(text.trim(), "OK");
    assert_eq!(String::from_utf8_lossy(&run(&["GET", "a"]).expect("a run").stdout).trim(), "1");
}
