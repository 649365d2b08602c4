//! Target of the server: commands of several clients over one event loop.
//!
//! Checked for each client: the replies are valid, each command has exactly one reply, and `ECHO`
//! gets its own text back, so the order is kept. Some clients also send commands that subscribe or
//! close clients. Their replies are not counted, and the form of the replies is checked.

use std::cell::RefCell;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use lodestore_wire::{CommandParser, Limits, Progress, Reply, decode_reply};

use super::loop_server::{BULK_BYTES_MAX, LoopServer, command_table};
use super::recipe::{Recipe, encode};

/// Clients of one input.
const CLIENTS: usize = 3;

/// Maximum parts of one input.
const PARTS_MAX: usize = 200;

/// Inputs after which the databases are flushed.
const INPUTS_OF_FLUSH: u32 = 64;

/// Arguments with a meaning for commands.
const WORDS: [&str; 96] = [
    "a",
    "b",
    "c",
    "h",
    "h2",
    "user:1",
    "user:2",
    "",
    "0",
    "1",
    "-1",
    "2",
    "10",
    "100",
    "3.5",
    "1e3",
    "nan",
    "inf",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "*",
    "u*",
    "[a-c]",
    "NX",
    "XX",
    "GT",
    "LT",
    "EX",
    "PX",
    "EXAT",
    "PXAT",
    "KEEPTTL",
    "PERSIST",
    "GET",
    "IFEQ",
    "MATCH",
    "COUNT",
    "TYPE",
    "string",
    "hash",
    "ASC",
    "LIMIT",
    "REV",
    "WITHVALUES",
    "-",
    "+",
    "(a",
    "AND",
    "OR",
    "XOR",
    "NOT",
    "BIT",
    "BYTE",
    "u8",
    "i64",
    "SET",
    "INCRBY",
    "OVERFLOW",
    "WRAP",
    "SAT",
    "FAIL",
    "LEN",
    "IDX",
    "MINMATCHLEN",
    "WITHMATCHLEN",
    "REPLACE",
    "DB",
    "ASYNC",
    "SYNC",
    "ENCODING",
    "FREQ",
    "IDLETIME",
    "REFCOUNT",
    "HELP",
    "USAGE",
    "SAMPLES",
    "LIST",
    "INFO",
    "ID",
    "SETNAME",
    "GETNAME",
    "NO-EVICT",
    "ON",
    "OFF",
    "CACHING",
    "YES",
    "REDIRECT",
    "PREFIX",
    "BCAST",
    "OPTIN",
    "DOCS",
    "GETKEYS",
    "COPY",
    "DRYRUN",
    "WHOAMI",
];

/// Commands that the target never sends: they stop the server or write files.
const FORBIDDEN: [&str; 3] = ["shutdown", "save", "bgsave"];

/// Commands that the target never sends, because they change the server for later inputs.
const FORBIDDEN_PAIRS: [(&str, &str); 6] =
    [("config", "set"), ("acl", "setuser"), ("acl", "deluser"), ("acl", "load"), ("acl", "save"), ("client", "pause")];

/// Commands after which the replies of a client are not counted: they send messages or drop
/// replies.
const UNCOUNTED: [&str; 8] =
    ["subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe", "monitor", "client"];

/// The answers that the target expects of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// A reply, and this text if it is the reply of `ECHO`.
    Reply,
    /// The error of a broken command, after which the connection ends.
    Error,
}

struct Client {
    stream: UnixStream,
    sent: Vec<u8>,
    /// Bytes at the begin of `sent` that are complete commands.
    complete_bytes: usize,
    /// Whether the client sends only commands with one reply.
    is_plain: bool,
    received: Vec<u8>,
    /// Whether the server has closed its end, and all bytes of it are read.
    is_closed: bool,
    /// Whether the server accepts no more bytes. Its replies are still read.
    is_refused: bool,
}

struct Harness {
    server: LoopServer,
    inputs: u32,
    commands: Vec<(&'static str, i32)>,
}

thread_local! {
    static HARNESS: RefCell<Option<Harness>> = const { RefCell::new(None) };
}

/// Runs an input against the server of the thread. `create` creates the server once.
pub fn dispatch(data: &[u8], create: impl FnOnce() -> LoopServer) {
    HARNESS.with(|harness| {
        let mut harness = harness.borrow_mut();
        let harness = harness.get_or_insert_with(|| {
            let commands = command_table().map(|command| (command.name, command.arity)).collect();
            Harness { server: create(), inputs: 0, commands }
        });
        harness.run(data);
    });
}

impl Harness {
    fn run(&mut self, data: &[u8]) {
        self.inputs += 1;
        let mut recipe = Recipe::new(data);
        let flags = recipe.byte();
        if self.inputs.is_multiple_of(INPUTS_OF_FLUSH) {
            self.flush();
        }
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| self.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.is_plain = flags >> number & 8 == 0;
            if flags >> number & 1 == 1 {
                self.send(client, &encode(&[b"HELLO".to_vec(), b"3".to_vec()]), 0);
            }
        }
        for number in 0..PARTS_MAX {
            if recipe.is_empty() {
                break;
            }
            let choice = recipe.byte();
            let client = &mut clients[usize::from(choice & 3) % CLIENTS];
            let part = self.part(&mut recipe, choice >> 2, number);
            let cut = if choice & 64 == 0 { 0 } else { recipe.below(part.len()) };
            self.send(client, &part, cut);
            if choice & 128 != 0 {
                self.settle(&mut clients);
            }
        }
        self.settle(&mut clients);
        self.check(&clients);
        drop(clients);
        // The server notices the closed sockets.
        self.step();
        self.step();
    }

    fn step(&mut self) {
        self.server.step().expect("events");
        assert!(!self.server.is_stopping(), "an input stopped the server");
    }

    fn connect(&mut self) -> Client {
        let stream = self.server.connect().expect("a pair of sockets");
        Client {
            stream,
            sent: Vec::new(),
            complete_bytes: 0,
            is_plain: false,
            received: Vec::new(),
            is_closed: false,
            is_refused: false,
        }
    }

    /// Removes all keys. A server that refuses this is unusable for further inputs.
    fn flush(&mut self) {
        let mut clients = [self.connect()];
        self.send(&mut clients[0], b"FLUSHALL\r\n", 0);
        self.settle(&mut clients);
        assert_eq!(clients[0].received, b"+OK\r\n");
    }

    /// Returns the bytes of one part: a command of the table, an `ECHO`, or any bytes.
    fn part(&self, recipe: &mut Recipe<'_>, choice: u8, number: usize) -> Vec<u8> {
        match choice & 15 {
            0 => {
                let count = usize::from(recipe.byte() & 63);
                recipe.bytes(count).to_vec()
            }
            1 | 2 => encode(&[b"ECHO".to_vec(), format!("mark-{number}").into_bytes()]),
            3 => {
                let words: Vec<String> = (0..=recipe.below(4)).map(|_| recipe.choose(&WORDS).to_string()).collect();
                let (name, _) = recipe.choose(&self.commands);
                format!("{name} {}\r\n", words.join(" ")).into_bytes()
            }
            4 => encode(&[recipe.choose(&["MULTI", "EXEC", "DISCARD", "WATCH"]).into(), b"a".to_vec()][..1]),
            _ => {
                let (name, arity) = recipe.choose(&self.commands);
                let least = usize::try_from(arity.unsigned_abs()).unwrap_or(1) - 1;
                let more = if arity < 0 || recipe.byte() & 15 == 0 { recipe.below(4) } else { 0 };
                let mut arguments = vec![name.as_bytes().to_vec()];
                arguments.extend((0..least + more).map(|_| argument(recipe)));
                encode(&arguments)
            }
        }
    }

    /// Sends bytes in two pieces, unless they complete a command that the client never sends.
    fn send(&mut self, client: &mut Client, part: &[u8], cut: usize) {
        if client.is_refused {
            return;
        }
        let parsed = Parsed::of(&[&client.sent[client.complete_bytes..], part].concat());
        let is_left_out = |command: &Vec<Vec<u8>>| is_forbidden(command) || (client.is_plain && is_uncounted(command));
        if parsed.commands.iter().any(is_left_out) {
            return;
        }
        client.complete_bytes += parsed.complete_bytes;
        for piece in [&part[..cut], &part[cut..]] {
            let mut rest = piece;
            while !rest.is_empty() && !client.is_refused {
                match client.stream.write(rest) {
                    Ok(bytes) => rest = &rest[bytes..],
                    Err(error) if error.kind() == ErrorKind::WouldBlock => self.turn(client),
                    Err(_) => client.is_refused = true,
                }
            }
            client.sent.extend_from_slice(&piece[..piece.len() - rest.len()]);
            if cut > 0 {
                self.turn(client);
            }
        }
    }

    /// Lets the server work, and reads what it sent to a client.
    fn turn(&mut self, client: &mut Client) {
        self.step();
        client.receive();
    }

    /// Lets the server work until it has nothing more to do.
    fn settle(&mut self, clients: &mut [Client]) {
        let mut idle = 0;
        while idle < 2 {
            self.step();
            let received = clients.iter_mut().map(Client::receive).sum::<usize>();
            idle = if received == 0 && !self.server.is_busy() { idle + 1 } else { 0 };
        }
    }

    fn check(&self, clients: &[Client]) {
        let all: Vec<Parsed> = clients.iter().map(|client| Parsed::of(&client.sent)).collect();
        let is_killed =
            all.iter().flat_map(|parsed| &parsed.commands).any(|command| has_words(command, "client", "kill"));
        for (client, parsed) in clients.iter().zip(all) {
            let replies = replies_of(&client.received, client.is_closed);
            if !is_killed && !parsed.commands.iter().any(|command| is_uncounted(command)) {
                check_replies(&parsed.commands, parsed.is_broken, &replies);
            }
        }
    }
}

impl Client {
    /// Reads what the server sent. Returns the number of bytes.
    fn receive(&mut self) -> usize {
        let mut chunk = [0; 16 << 10];
        let before = self.received.len();
        while !self.is_closed {
            match self.stream.read(&mut chunk) {
                Ok(0) => self.is_closed = true,
                Ok(bytes) => self.received.extend_from_slice(&chunk[..bytes]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_closed = true,
            }
        }
        self.received.len() - before
    }
}

/// Returns an argument: a word, a number, or any bytes.
fn argument(recipe: &mut Recipe<'_>) -> Vec<u8> {
    let choice = recipe.byte();
    match choice & 7 {
        0 => {
            let count = usize::from(choice >> 3);
            recipe.bytes(count).to_vec()
        }
        1 => vec![b'x'; recipe.below(3000)],
        2 => format!("{}", recipe.below(1 << 16)).into_bytes(),
        _ => recipe.choose(&WORDS).as_bytes().to_vec(),
    }
}

fn is_name(arguments: &[Vec<u8>], name: &str) -> bool {
    arguments[0].eq_ignore_ascii_case(name.as_bytes())
}

fn has_words(arguments: &[Vec<u8>], name: &str, subcommand: &str) -> bool {
    is_name(arguments, name) && arguments.get(1).is_some_and(|word| word.eq_ignore_ascii_case(subcommand.as_bytes()))
}

fn is_uncounted(arguments: &[Vec<u8>]) -> bool {
    UNCOUNTED.iter().any(|name| is_name(arguments, name))
}

fn is_forbidden(arguments: &[Vec<u8>]) -> bool {
    FORBIDDEN.iter().any(|name| is_name(arguments, name))
        || FORBIDDEN_PAIRS.iter().any(|(name, subcommand)| has_words(arguments, name, subcommand))
}

/// The commands of a stream.
struct Parsed {
    /// The complete commands.
    commands: Vec<Vec<Vec<u8>>>,
    /// Bytes at the begin of the stream that are complete commands.
    complete_bytes: usize,
    /// Whether the stream breaks the protocol after them.
    is_broken: bool,
}

impl Parsed {
    fn of(stream: &[u8]) -> Self {
        let limits = Limits { bulk_bytes_max: BULK_BYTES_MAX, ..Limits::default() };
        let mut parser = CommandParser::new();
        let mut parsed = Self { commands: Vec::new(), complete_bytes: 0, is_broken: false };
        loop {
            let rest = &stream[parsed.complete_bytes..];
            match parser.parse(rest, &limits) {
                Err(_) => {
                    parsed.is_broken = true;
                    return parsed;
                }
                Ok(Progress::Incomplete { .. }) => return parsed,
                Ok(Progress::Empty { bytes }) => parsed.complete_bytes += bytes,
                Ok(Progress::Complete { bytes }) => {
                    parsed.commands.push(parser.arguments().iter(rest).map(<[u8]>::to_vec).collect());
                    parsed.complete_bytes += bytes;
                }
            }
        }
    }
}

/// Reads all replies. A connection that was closed may end within one.
fn replies_of(received: &[u8], is_closed: bool) -> Vec<Reply> {
    let (mut rest, mut replies) = (received, Vec::new());
    while let Some((reply, bytes)) = decode_reply(rest, &Limits::default()).expect("a valid reply") {
        replies.push(reply);
        rest = &rest[bytes..];
    }
    assert!(is_closed || rest.is_empty(), "half a reply: {:?}", String::from_utf8_lossy(rest));
    replies
}

/// Whether a command ends its connection.
fn ends_connection(arguments: &[Vec<u8>]) -> bool {
    ["quit", "post", "host:"].iter().any(|name| is_name(arguments, name))
}

fn check_replies(commands: &[Vec<Vec<u8>>], is_broken: bool, replies: &[Reply]) {
    let last = commands.iter().position(|command| ends_connection(command));
    let answered = last.map_or(commands, |last| &commands[..=last]);
    let mut expected: Vec<Expected> = answered.iter().map(|_| Expected::Reply).collect();
    if last.is_none() && is_broken {
        expected.push(Expected::Error);
    }
    // A client of RESP3 may hear messages of others.
    let replies: Vec<&Reply> = replies.iter().filter(|reply| !matches!(reply, Reply::Push(_))).collect();
    assert_eq!(replies.len(), expected.len(), "replies {replies:?} to {}", shown(commands));
    for (index, reply) in replies.iter().enumerate() {
        let (command, is_error) = (answered.get(index), matches!(reply, Reply::Error(_)));
        match (expected[index], command) {
            (Expected::Error, _) => assert!(is_error, "{reply:?}"),
            (Expected::Reply, Some(command)) if is_name(command, "echo") && command.len() == 2 => {
                let is_queued = **reply == Reply::Simple(b"QUEUED".to_vec());
                let is_own = **reply == Reply::Bulk(command[1].clone());
                assert!(is_error || is_queued || is_own, "{reply:?} to {command:?} in {}", shown(commands));
            }
            (Expected::Reply, _) => {}
        }
    }
}

fn shown(commands: &[Vec<Vec<u8>>]) -> String {
    let line = |command: &Vec<Vec<u8>>| {
        let words: Vec<String> = command.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        words.join(" ")
    };
    commands.iter().map(line).collect::<Vec<_>>().join(" | ")
}
