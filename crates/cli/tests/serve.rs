//! `serve` and `config`: a server that is killed, stopped and refused, and its options.
#![cfg(feature = "serve")]

#[expect(dead_code, reason = "the tests of the server use a part of it")]
mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{Sandbox, failed, is_ignored, text};

/// Longest wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// A byte of the root area that the seal covers and `hikv` does not use (docs/format).
const UNUSED_OF_ROOT_AREA: usize = 8192 + 4000;

/// Flags of a server that listens on the unix socket `socket` only.
const UNIX_ONLY: [&str; 6] = ["--unix", "socket", "--port", "0", "--threads", "2"];

/// Arguments of a server of a small store named `store`.
fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["serve", "store", "--create", "--size", "64M"];
    args.extend(UNIX_ONLY);
    args.extend(more);
    args
}

/// Runs a server that must not start, and returns its output. A server that starts is ended.
fn run_to_end(sandbox: &Sandbox, args: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    let path = sandbox.path("");
    command.arg("60").arg(env!("CARGO_BIN_EXE_lodestore")).args(args).current_dir(path).stdin(Stdio::null());
    command.output().expect("the program starts")
}

/// Checks that a server refuses to start.
fn refuses(sandbox: &Sandbox, args: &[&str], code: i32, says: &str) {
    failed(&run_to_end(sandbox, args), code, says, args);
}

/// A running server. A drop kills it.
struct Served {
    child: Child,
    banner: String,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Served {
    /// Starts a server, and waits until it serves.
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut banner = String::new();
        while !banner.contains("serving") || !banner.contains("after") {
            if stdout.read_line(&mut banner).expect("a line") == 0 {
                let output = child.wait_with_output().expect("the program ends");
                panic!("no server: {banner} {}", text(&output.stderr));
            }
        }
        Self { child, banner, stdout }
    }

    fn kill(mut self) {
        self.child.kill().and_then(|()| self.child.wait().map(drop)).expect("the program dies");
    }

    /// Reads standard error up to a line with a text.
    fn wait_for_log(&mut self, says: &str) {
        let stderr = self.child.stderr.as_mut().expect("a pipe");
        let (mut line, mut byte) = (Vec::new(), [0]);
        while stderr.read(&mut byte).expect("a text") > 0 {
            match byte {
                [b'\n'] if String::from_utf8_lossy(&line).contains(says) => return,
                [b'\n'] => line.clear(),
                [byte] => line.push(byte),
            }
        }
        panic!("the program ended without the text {says:?}");
    }

    /// Prepares a signal, which needs no new process when it is sent.
    fn prepare_signal(&self, name: &str) -> Child {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("read line; kill -{name} {}", self.child.id())).stdin(Stdio::piped());
        command.spawn().expect("sh starts")
    }

    /// Sends a signal by its name.
    fn signal(&self, name: &str) {
        let sent = Command::new("sh").arg("-c").arg(format!("kill -{name} {}", self.child.id())).status();
        assert!(sent.expect("sh starts").success());
    }

    /// Waits for the end of the program.
    fn end(mut self) -> Output {
        let mut stderr = Vec::new();
        self.child.stderr.take().expect("a pipe").read_to_end(&mut stderr).expect("a text");
        let mut stdout = Vec::new();
        self.stdout.read_to_end(&mut stdout).expect("a text");
        let status = self.child.wait().expect("the program ends");
        Output { status, stdout, stderr }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The program may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A client on a unix socket.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("a connection");
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a timeout");
        Self(BufReader::new(stream))
    }

    fn send(&mut self, commands: &str) {
        self.0.get_mut().write_all(commands.as_bytes()).expect("a write");
    }

    /// Returns the next line, without its end; an empty text at the end of the connection.
    fn line(&mut self) -> String {
        let mut line = String::new();
        // A reset is an end too.
        drop(self.0.read_line(&mut line));
        line.trim_end().to_owned()
    }

    /// Runs an inline command, and returns its reply: a line, or the text of a string.
    fn run(&mut self, command: &str) -> String {
        self.send(&format!("{command}\r\n"));
        let line = self.line();
        if line.starts_with('$') && line != "$-1" { self.line() } else { line }
    }
}

/// Returns a client whose event loop is running `commands`.
///
/// The event loops accept clients in turn. A second client, which another loop serves, therefore
/// receives a message while the loop of the first client is busy.
fn busy_client(sandbox: &Sandbox, commands: &str) -> Client {
    let mut busy = Client::connect(&sandbox.path("socket"));
    assert_eq!(busy.run("PING"), "+PONG");
    let mut other = Client::connect(&sandbox.path("socket"));
    assert_eq!(other.run("SUBSCRIBE begun"), "*3");
    let words: Vec<String> = (0..5).map(|_| other.line()).collect();
    assert_eq!(words, ["$9", "subscribe", "$5", "begun", ":1"]);
    busy.send(&format!("PUBLISH begun 1\r\n{commands}"));
    assert_eq!(other.line(), "*3");
    busy
}

#[test]
fn an_acknowledged_write_survives_kill_9() {
    let sandbox = Sandbox::new();
    let server = Served::start(sandbox.command(&small(&[])));
    assert!(server.banner.contains("a write survives  kill -9"), "{}", server.banner);
    let mut client = Client::connect(&sandbox.path("socket"));
    for number in 0..1000 {
        assert_eq!(client.run(&format!("SET key{number} value{number}")), "+OK");
    }
    assert_eq!(client.run("SET gone 1"), "+OK");
    assert_eq!(client.run("DEL gone"), ":1");
    server.kill();
    let server = Served::start(sandbox.command(&small(&[])));
    let mut client = Client::connect(&sandbox.path("socket"));
    for number in 0..1000 {
        assert_eq!(client.run(&format!("GET key{number}")), format!("value{number}"));
    }
    assert_eq!(client.run("GET gone"), "$-1");
    server.kill();
}

#[test]
fn signals_and_shutdown_close_the_store() {
    let sandbox = Sandbox::new();
    let mut stops = vec!["TERM", "INT", "HUP"];
    stops.retain(|signal| !is_ignored(signal));
    stops.push("SHUTDOWN");
    for (round, stop) in stops.into_iter().enumerate() {
        let server = Served::start(sandbox.command(&small(&[])));
        let mut client = Client::connect(&sandbox.path("socket"));
        assert_eq!(client.run("INCR counter"), format!(":{}", round + 1));
        if stop == "SHUTDOWN" {
            client.send("SHUTDOWN\r\n")
        } else {
            server.signal(stop)
        }
        assert_eq!(client.line(), "");
        let ended = server.end();
        assert_eq!(ended.status.code(), Some(0), "{stop}: {}", text(&ended.stderr));
        assert!(text(&ended.stderr).contains("the store is closed"), "{}", text(&ended.stderr));
        assert!(sandbox.ok(&["info", "store"]).contains("clean stop"), "{stop}");
        assert!(!sandbox.path("socket").exists(), "{stop}");
    }
}

#[test]
fn commands_that_were_read_are_answered_after_a_signal() {
    let sandbox = Sandbox::new();
    let server = Served::start(sandbox.command(&small(&["--enable-debug-command", "local"])));
    let mut client = busy_client(&sandbox, "DEBUG SLEEP 0.5\r\nSET a 1\r\nGET a\r\n");
    server.signal("TERM");
    let lines: Vec<String> = (0..5).map(|_| client.line()).collect();
    assert_eq!(lines, [":1", "+OK", "+OK", "$1", "1"]);
    assert_eq!(server.end().status.code(), Some(0));
}

#[test]
fn a_second_signal_ends_the_program_at_once() {
    let sandbox = Sandbox::new();
    let mut server = Served::start(sandbox.command(&small(&["--enable-debug-command", "local"])));
    // The sleep of the event loop keeps the first signal from ending the program.
    let _client = busy_client(&sandbox, "DEBUG SLEEP 10\r\n");
    let mut second = server.prepare_signal("TERM");
    server.signal("TERM");
    server.wait_for_log("a signal stops the server");
    second.stdin.take().expect("a pipe").write_all(b"\n").expect("a write");
    assert!(second.wait().expect("sh ends").success());
    assert_eq!(server.end().status.code(), Some(143));
}

#[test]
fn a_stop_that_takes_too_long_ends_the_program() {
    let sandbox = Sandbox::new();
    let server = Served::start(sandbox.command(&small(&["--enable-debug-command", "local"])));
    assert_eq!(Client::connect(&sandbox.path("socket")).run("SET a 1"), "+OK");
    let _client = busy_client(&sandbox, "DEBUG SLEEP 10\r\n");
    server.signal("TERM");
    let ended = server.end();
    assert_eq!(ended.status.code(), Some(0));
    assert!(text(&ended.stderr).contains("was not closed within 2 s"), "{}", text(&ended.stderr));
    let server = Served::start(sandbox.command(&small(&[])));
    assert_eq!(Client::connect(&sandbox.path("socket")).run("GET a"), "1");
    server.kill();
}

#[test]
fn stores_and_addresses_that_cannot_be_served_are_refused() {
    let sandbox = Sandbox::new();
    refuses(&sandbox, &["serve", "nothing", "--port", "0", "--unix", "s"], 3, "nothing");
    let create = "no store at nothing: create one with `lodestore create`, or add --create";
    refuses(&sandbox, &["serve", "nothing", "--port", "0", "--unix", "s"], 3, create);
    assert!(!sandbox.path("nothing").exists() && !sandbox.path("s").exists());
    let server = Served::start(sandbox.command(&small(&[])));
    let in_use = run_to_end(&sandbox, &["serve", "store", "--port", "0", "--unix", "other"]);
    failed(&in_use, 5, "store", &["serve"]);
    let same_socket =
        run_to_end(&sandbox, &["serve", "second", "--create", "--size", "64M", "--port", "0", "--unix", "socket"]);
    assert_eq!(same_socket.status.code(), Some(8));
    assert!(text(&same_socket.stderr).contains("socket is in use"), "{}", text(&same_socket.stderr));
    assert!(!sandbox.path("second").exists());
    server.kill();
    let open = ["serve", "third", "--create", "--listen", "0.0.0.0:0"];
    refuses(&sandbox, &open, 2, "set a password (option password, or");
    assert!(!sandbox.path("third").exists());
    refuses(&sandbox, &["serve", "third", "--port", "0"], 2, "has no address to listen on");
    refuses(&sandbox, &["serve", "store", "--engine", "hashkv", "--port", "0", "--unix", "s"], 4, "hashkv");
}

#[test]
fn an_address_in_use_is_refused_before_the_store_is_created() {
    let sandbox = Sandbox::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = taken.local_addr().expect("an address").to_string();
    let serve = |more: &[&str]| {
        let args = [&["serve", "store", "--create", "--size", "64M"], more].concat();
        refuses(&sandbox, &args, 8, &format!("{address} is in use"));
        assert!(!sandbox.path("store").exists(), "{more:?}");
    };
    serve(&["--listen", &address]);
    serve(&["--listen", "none", "--unix", "socket", "--metrics", &address]);
    assert!(!sandbox.path("socket").exists());
    let missing = ["serve", "store", "--create", "--listen", "none", "--unix", "none/socket"];
    refuses(&sandbox, &missing, 8, "none/socket: No such file or directory (os error 2); create the directory");
}

#[test]
fn a_damaged_store_is_refused_with_advice_to_salvage_it() {
    let sandbox = Sandbox::new();
    let server = Served::start(sandbox.command(&small(&["--engine", "hikv"])));
    assert_eq!(Client::connect(&sandbox.path("socket")).run("SET a 1"), "+OK");
    server.signal("TERM");
    server.end();
    let pool = sandbox.path("store").join("pool.0000");
    let mut bytes = std::fs::read(&pool).expect("the file of the store");
    bytes[UNUSED_OF_ROOT_AREA] ^= 1;
    std::fs::write(&pool, bytes).expect("a damaged file");
    refuses(&sandbox, &small(&[]), 7, "`lodestore export --salvage");
}

#[test]
fn flags_override_the_environment_and_the_file() {
    let sandbox = Sandbox::new();
    sandbox.write("a.toml", "maxclients = 1\ntimeout = 2\nio-threads = 3\nrequirepass = \"secret\"\nsize = \"64M\"\n");
    let mut command = sandbox.command(&["config", "show", "--config", "a.toml", "--maxclients", "7"]);
    command.envs([
        ("LODESTORE_MAXCLIENTS", "5"),
        ("LODESTORE_TIMEOUT", "6"),
        ("LODESTORE_LISTEN", "127.0.0.1:1,[::1]:2"),
    ]);
    let shown = text(&command.output().expect("the program starts").stdout);
    let lines: Vec<(&str, &str)> = shown.lines().filter_map(|line| line.split_once("  #")).collect();
    for (line, origin) in [
        ("maxclients = 7", "--maxclients"),
        ("timeout = 6", "LODESTORE_TIMEOUT"),
        ("threads = 3", "a.toml, line 3, io-threads"),
        ("listen = [\"127.0.0.1:1\", \"[::1]:2\"]", "LODESTORE_LISTEN"),
        ("databases = 16", "default"),
        ("# password = \"(hidden)\"", "a.toml, line 4, requirepass"),
    ] {
        let found = lines.iter().find(|(known, _)| known.trim_end() == line);
        assert_eq!(found.map(|(_, origin)| origin.trim()), Some(origin), "{line}\n{shown}");
    }
    assert!(!shown.contains("secret"));
    // The output is a valid file. Secrets are comments in it.
    sandbox.write("b.toml", &shown);
    assert!(sandbox.ok(&["config", "check", "--config", "b.toml"]).contains("valid"));
}

/// Returns the lines of `config show`, with their origins.
fn shown(sandbox: &Sandbox, args: &[&str], variables: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut command = sandbox.command(&[&["config", "show"], args].concat());
    let output = command.envs(variables.iter().copied()).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    let pairs = lines.lines().filter_map(|line| line.split_once("  #"));
    pairs.map(|(line, origin)| (line.trim_end().to_owned(), origin.trim().to_owned())).collect()
}

fn assert_shown(shown: &[(String, String)], line: &str, origin: &str) {
    assert!(shown.contains(&(line.to_owned(), origin.to_owned())), "{line} # {origin}\n{shown:#?}");
}

#[test]
fn names_of_redis_work_as_flags_and_variables() {
    let sandbox = Sandbox::new();
    let names = [
        ("unixsocket", "s", "unix = \"s\""),
        ("unixsocketperm", "770", "unix-permissions = 770"),
        ("io-threads", "3", "threads = 3"),
        ("requirepass", "secret", "# password = \"(hidden)\""),
        ("aclfile", "users", "acl-file = \"users\""),
        ("dir", "backups", "backup-dir = \"backups\""),
        ("loglevel", "notice", "log-level = \"info\""),
    ];
    for (name, value, line) in names {
        let flag = format!("--{name}");
        assert_shown(&shown(&sandbox, &[&flag, value], &[]), line, &flag);
        let variable = format!("LODESTORE_{}", name.to_ascii_uppercase().replace('-', "_"));
        assert_shown(&shown(&sandbox, &[], &[(&variable, value)]), line, &variable);
    }
    let twice = ["config", "check", "--password", "a", "--requirepass", "b"];
    sandbox.fails(&twice, 2, "--requirepass: the option is set twice; the other setting is --password");
    // Parameters of Redis with one value.
    sandbox.ok(&["config", "check", "--appendonly", "no", "--save", ""]);
    sandbox.fails(&["config", "check", "--appendonly", "yes"], 2, "--appendonly: the only value is \"no\"");
}

#[test]
fn the_password_of_a_redis_variable_is_used() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&small(&[]));
    command.env("LODESTORE_REQUIREPASS", "secret");
    let server = Served::start(command);
    let mut client = Client::connect(&sandbox.path("socket"));
    assert_eq!(client.run("PING"), "-NOAUTH Authentication required.");
    assert_eq!(client.run("AUTH secret"), "+OK");
    server.kill();
}

#[test]
fn unknown_variables_are_refused_with_the_nearest_name() {
    use std::os::unix::ffi::OsStrExt as _;
    let sandbox = Sandbox::new();
    let check = |name: &str, value: &std::ffi::OsStr| {
        let mut command = sandbox.command(&["config", "check"]);
        command.env(format!("LODESTORE_{name}"), value).output().expect("the program starts")
    };
    for (name, nearest) in [("MAXCLINTS", "MAXCLIENTS"), ("REQUIREPAS", "REQUIREPASS"), ("CONFG", "CONFIG")] {
        let says = format!("LODESTORE_{name}: there is no such option; did you mean LODESTORE_{nearest}?");
        failed(&check(name, "secret".as_ref()), 2, &says, &["config"]);
        assert!(!text(&check(name, "secret".as_ref()).stderr).contains("secret"));
    }
    let bytes = std::ffi::OsStr::from_bytes(b"\xff");
    failed(&check("PASSWORD", bytes), 2, "LODESTORE_PASSWORD: the value is not UTF-8", &["config"]);
    // Variables of tests, and those that Kubernetes sets for a service.
    for (name, value) in [
        ("SEED", "1"),
        ("TEST_ANYTHING", "1"),
        ("SERVICE_HOST", "10.0.0.1"),
        ("SERVICE_PORT_REDIS", "6379"),
        ("PORT", "tcp://10.0.0.1:6379"),
        ("PORT_6379_TCP_ADDR", "10.0.0.1"),
    ] {
        let output = check(name, value.as_ref());
        assert_eq!(text(&output.stdout), "the configuration is valid\n", "{name}: {}", text(&output.stderr));
    }
}

#[test]
fn the_origin_of_addresses_is_that_of_their_parts() {
    let sandbox = Sandbox::new();
    sandbox.write("a.toml", "\nbind = \"127.0.0.2\"\nport = 7000\n");
    let file = ["--config", "a.toml"];
    let listen = |address: &str| format!("listen = [\"{address}\"]");
    let lines = shown(&sandbox, &file, &[]);
    assert_shown(&lines, &listen("127.0.0.2:7000"), "a.toml, line 2, bind; a.toml, line 3, port");
    let lines = shown(&sandbox, &[&file[..], &["--port", "1"]].concat(), &[]);
    assert_shown(&lines, &listen("127.0.0.2:1"), "a.toml, line 2, bind; --port");
    let lines = shown(&sandbox, &["--port", "1"], &[("LODESTORE_LISTEN", "127.0.0.3:2")]);
    assert_shown(&lines, &listen("127.0.0.3:1"), "LODESTORE_LISTEN; --port");
    let lines = shown(&sandbox, &[&file[..], &["--listen", "127.0.0.1:1"]].concat(), &[]);
    assert_shown(&lines, &listen("127.0.0.1:1"), "--listen");
    assert_shown(&shown(&sandbox, &["here"], &[]), "store = \"here\"", "STORE");
}

#[test]
fn refused_options_name_their_source() {
    let sandbox = Sandbox::new();
    sandbox.write("a.toml", "\nmaxclients = 0\n");
    sandbox.write("b.toml", "\n\nmax-clients = 1\n");
    sandbox.write("c.toml", "listen = [\n");
    let check = |file: &str, code, says: &str| sandbox.fails(&["config", "check", "--config", file], code, says);
    sandbox.write("e.toml", "\n[server]\ntimeout = 1\n");
    check("a.toml", 2, "a.toml, line 2, maxclients: \"0\" is not a whole number from 1 to 1048576");
    check("b.toml", 2, "b.toml, line 3, max-clients: there is no such option; did you mean maxclients?");
    check("c.toml", 2, "c.toml, line 1");
    check("d.toml", 2, "cannot read the configuration d.toml");
    check("e.toml", 2, "e.toml, line 2, server: the file has no tables: write each option as NAME = VALUE");
    let refused = |args: &[&str], says: &str| drop(sandbox.fails(&[&["config", "check"], args].concat(), 2, says));
    refused(&["--timeout", "soon"], "--timeout: \"soon\" is not a whole number from 0 to 2147483647");
    refused(
        &["--maxmemory", "much"],
        "--maxmemory: \"much\" is not a size: use a number, optionally with K, M, G or T",
    );
    refused(&["--proto-max-bulk-len", "1"], "--proto-max-bulk-len: \"1\" is not a size from 1M to 512M");
    refused(&["--metrics-remote=maybe"], "--metrics-remote: \"maybe\" is neither yes nor no");
    refused(&["--slowlog-max-len", "-1"], "--slowlog-max-len: \"-1\" is not a whole number from 0 to ");
    refused(&["--log-format", "xml"], "--log-format: \"xml\" is not one of text, json");
    refused(&["--listen", "0.0.0.0:1"], "set a password (option password, or");
    refused(&["--metrics", "0.0.0.0:1"], "metrics-remote");
    refused(&["--tls-port", "1"], "TLS: set tls-cert-file to the file with the certificate of the server");
    refused(&["--tls-port", "1", "--tls-cert-file", "a.toml"], "TLS: set tls-key-file to the file with the key");
    let mut command = sandbox.command(&["config", "check"]);
    let output = command.env("LODESTORE_DURABILITY", "much").output().expect("the program starts");
    failed(&output, 2, "LODESTORE_DURABILITY: use process, power or interval:MS", &["config"]);
}

#[test]
fn the_service_manager_learns_of_start_and_stop() {
    let sandbox = Sandbox::new();
    let socket = UnixDatagram::bind(sandbox.path("notify")).expect("a socket");
    socket.set_read_timeout(Some(REPLY_TIMEOUT)).expect("a timeout");
    let mut bytes = [0; 256];
    let mut receive = || {
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let mut command = sandbox.command(&small(&[]));
    command.env("NOTIFY_SOCKET", sandbox.path("notify"));
    let server = Served::start(command);
    assert_eq!(receive(), "READY=1\nSTATUS=Serving store");
    server.signal("TERM");
    assert_eq!(receive(), "STOPPING=1");
    assert_eq!(server.end().status.code(), Some(0));
}

#[test]
fn the_metrics_have_the_start_of_the_program_and_its_expired_keys() {
    let sandbox = Sandbox::new();
    let more = ["--engine", "hikv", "--set", "sweep-ms=10", "--metrics", "127.0.0.1:0"];
    let server = Served::start(sandbox.command(&small(&more)));
    let page = server.banner.lines().find_map(|line| line.strip_prefix("status page")).expect("a page").trim();
    let address = page.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let mut client = Client::connect(&sandbox.path("socket"));
    assert_eq!(client.run("SET a 1 PX 1"), "+OK");
    assert_eq!(client.run("SET b 1 PX 1"), "+OK");
    let mut metrics = String::new();
    for _ in 0..1000 {
        let mut stream = std::net::TcpStream::connect(&address).expect("a connection");
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("a write");
        metrics.clear();
        stream.read_to_string(&mut metrics).expect("an answer");
        if metrics.contains("lodestore_server_expired_keys_total 2\n") {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(metrics.contains("lodestore_server_expired_keys_total 2\n"), "{metrics}");
    assert!(metrics.contains("\nlodestore_server_start_seconds "), "{metrics}");
    client.send("INFO stats\r\n");
    assert!((0..60).any(|_| client.line() == "expired_keys:2"));
    server.kill();
}

#[test]
fn logs_and_the_banner_may_be_json() {
    let sandbox = Sandbox::new();
    let server = Served::start(sandbox.command(&small(&["--log-format", "json"])));
    let banner: serde_json::Value = serde_json::from_str(&server.banner).expect("JSON");
    assert_eq!(banner["store"], "store");
    server.signal("TERM");
    let ended = server.end();
    for line in text(&ended.stderr).lines() {
        let message: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(message["message"].is_string() && message["level"].is_string(), "{line}");
    }
    assert!(text(&ended.stderr).contains("a signal stops the server"));
}

#[test]
fn the_banner_names_addresses_of_tls() {
    // The port is free on other loopback addresses.
    let reserved = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let port = reserved.local_addr().expect("an address").port().to_string();
    let certificates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/certificates/first");
    let file = |name: &str| certificates.join(name).display().to_string();
    let (cert, key) = (file("cert.pem"), file("key.pem"));
    let mut args = vec!["serve", "store", "--create", "--size", "64M", "--bind", "127.0.0.3", "--port", "0"];
    args.extend(["--tls-port", &port, "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-auth-clients", "no"]);
    let sandbox = Sandbox::new();
    let server = Served::start(sandbox.command(&args));
    let row = server.banner.lines().find_map(|line| line.strip_prefix("tls ")).map(str::trim);
    assert_eq!(row, Some(format!("127.0.0.3:{port}").as_str()), "{}", server.banner);
    assert!(!server.banner.contains("listening"), "{}", server.banner);
    server.kill();
    let server = Served::start(sandbox.command(&[&args[..], &["--log-format", "json", "--unix", "s"]].concat()));
    let banner: serde_json::Value = serde_json::from_str(&server.banner).expect("JSON");
    assert_eq!((&banner["tls"], &banner["listening"]), (&format!("127.0.0.3:{port}").into(), &"s".into()));
    server.kill();
}

#[test]
fn clients_wait_for_descriptors_and_are_served_when_there_are_some() {
    let sandbox = Sandbox::new();
    let program = env!("CARGO_BIN_EXE_lodestore");
    let mut command = Command::new("sh");
    let line = format!("ulimit -n 80; exec {program} {}", small(&[]).join(" "));
    command.args(["-c", &line]).current_dir(sandbox.path("")).stdin(Stdio::null());
    let server = Served::start(command);
    let mut clients: Vec<Client> = (0..100).map(|_| Client::connect(&sandbox.path("socket"))).collect();
    assert_eq!(clients[0].run("SET a 1"), "+OK");
    let mut last = clients.pop().expect("a client");
    last.send("GET a\r\n");
    drop(clients);
    assert_eq!([last.line(), last.line()], ["$1", "1"]);
    server.kill();
}

#[test]
fn a_store_of_the_environment_is_created() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["serve", "--size", "64M", "--unix", "socket", "--listen", "none"]);
    command.env("LODESTORE_STORE", sandbox.path("state/store"));
    let server = Served::start(command);
    assert_eq!(Client::connect(&sandbox.path("socket")).run("PING"), "+PONG");
    server.kill();
    assert!(sandbox.path("state/store").is_dir());
}
