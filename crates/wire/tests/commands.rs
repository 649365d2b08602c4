//! Commands: arrays and inline commands, whole and in pieces, valid and not.

use lodestore_wire::{CommandParser, Limits, Progress, ProtocolError};
use proptest::prelude::*;

/// Parses all commands of `bytes`, which arrive in pieces that end at `cuts`. Returns the commands
/// that have arguments, and the error that ended the parsing.
fn parse_pieces(bytes: &[u8], cuts: &[usize], limits: &Limits) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let mut parser = CommandParser::new();
    let mut buffer = Vec::new();
    let mut commands = Vec::new();
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut start = 0;
    for end in ends {
        buffer.extend_from_slice(&bytes[start..end]);
        start = end;
        loop {
            match parser.parse(&buffer, limits) {
                Ok(Progress::Incomplete { bytes_needed }) => {
                    assert!(bytes_needed > buffer.len(), "the parser asks for bytes that it has");
                    break;
                }
                Ok(Progress::Empty { bytes }) => drop(buffer.drain(..bytes)),
                Ok(Progress::Complete { bytes }) => {
                    commands.push(parser.arguments().iter(&buffer).map(<[u8]>::to_vec).collect());
                    buffer.drain(..bytes);
                }
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}

fn parse(bytes: &[u8]) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    parse_pieces(bytes, &[], &Limits::default())
}

fn encode(command: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn texts(command: &[Vec<u8>]) -> Vec<String> {
    command.iter().map(|argument| String::from_utf8_lossy(argument).into_owned()).collect()
}

#[test]
fn commands_of_one_buffer_are_read_in_order() {
    let (commands, error) = parse(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n");
    assert_eq!(error, None);
    let read: Vec<_> = commands.iter().map(|command| texts(command)).collect();
    assert_eq!(read, [vec!["GET", "k"], vec!["PING"], vec!["QUIT"]]);
}

#[test]
fn empty_commands_have_no_arguments() {
    let (commands, error) = parse(b"\r\n\n*0\r\n*-1\r\n   \r\nPING\r\n");
    assert_eq!((commands.len(), error), (1, None));
}

#[test]
fn inline_commands_decode_quotes_and_escapes() {
    let cases: [(&str, &[&str]); 7] = [
        ("SET a b", &["SET", "a", "b"]),
        ("  SET\t a  \"b c\"  ", &["SET", "a", "b c"]),
        (r#"SET a "\x41\n\"\\\q""#, &["SET", "a", "A\n\"\\q"]),
        (r"SET a 'b\'c \n'", &["SET", "a", r"b'c \n"]),
        (r#"SET a """#, &["SET", "a", ""]),
        (r#"a"b c""#, &["ab c"]),
        (r#"SET a "\xzz""#, &["SET", "a", "xzz"]),
    ];
    for (line, arguments) in cases {
        let (commands, error) = parse(format!("{line}\r\n").as_bytes());
        assert_eq!(error, None, "{line}");
        assert_eq!(texts(&commands[0]), arguments, "{line}");
    }
}

#[test]
fn bytes_that_are_no_command_have_the_errors_of_redis() {
    let cases: [(&[u8], &str); 12] = [
        (b"*abc\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*1\r\n:3\r\n", "expected '$', got ':'"),
        (b"*1\r\n\r\n", "expected '$', got '?'"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$1\r\nabc", "expected CR LF after an argument"),
        (b"SET \"a\r\n", "unbalanced quotes in request"),
        (b"SET \"a\"b\r\n", "unbalanced quotes in request"),
        (b"SET 'a\r\n", "unbalanced quotes in request"),
    ];
    for (bytes, text) in cases {
        let (commands, error) = parse(bytes);
        let name = String::from_utf8_lossy(bytes);
        assert!(commands.is_empty(), "{name}");
        assert_eq!(error.map(|error| error.to_string()), Some(format!("Protocol error: {text}")), "{name}");
    }
}

#[test]
fn lines_without_an_end_are_refused() {
    let limits = Limits { inline_bytes_max: 64, ..Limits::default() };
    let long = "1".repeat(64);
    let cases = [
        (format!("*{long}"), "too big mbulk count string"),
        (format!("*1\r\n${long}"), "too big bulk count string"),
        (long.clone(), "too big inline request"),
    ];
    for (bytes, text) in cases {
        let (_, error) = parse_pieces(bytes.as_bytes(), &[], &limits);
        assert_eq!(error.map(|error| error.to_string()), Some(format!("Protocol error: {text}")), "{bytes}");
    }
}

#[test]
fn a_client_that_must_authenticate_sends_short_commands() {
    let limits = Limits { is_stranger: true, ..Limits::default() };
    let auth = encode(&[b"AUTH".to_vec(), vec![b'x'; 16_384]]);
    assert_eq!(parse_pieces(&auth, &[], &limits).0.len(), 1);
    let long = encode(&[b"AUTH".to_vec(), vec![b'x'; 16_385]]);
    assert_eq!(parse_pieces(&long, &[], &limits).1, Some(ProtocolError::UnauthenticatedBulkLength));
    let many = encode(&vec![b"x".to_vec(); 11]);
    assert_eq!(parse_pieces(&many, &[], &limits).1, Some(ProtocolError::UnauthenticatedMultibulkLength));
}

#[test]
fn a_claimed_length_allocates_nothing() {
    // 1,048,576 arguments of 512 MiB are claimed. The parser must ask for the first one only.
    let mut parser = CommandParser::new();
    let progress = parser.parse(b"*1048576\r\n$536870912\r\n", &Limits::default()).unwrap();
    assert_eq!(progress, Progress::Incomplete { bytes_needed: 22 + 536_870_912 + 2 });
    assert!(parser.is_within_command());
}

proptest! {
    /// Where a network cuts a stream of commands changes nothing.
    #[test]
    fn pieces_of_any_lengths_give_the_same_commands(
        commands in prop::collection::vec(prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..5), 1..6),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(command)).collect();
        let (read, error) = parse_pieces(&bytes, &cuts, &Limits::default());
        prop_assert_eq!(error, None);
        prop_assert_eq!(read, commands);
    }

    /// Any bytes are read or refused, in pieces as in one.
    #[test]
    fn any_bytes_give_the_same_result_in_pieces(
        bytes in prop::collection::vec(prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b'"'), any::<u8>()], 0..80),
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let limits = Limits { inline_bytes_max: 16, bulk_bytes_max: 32, ..Limits::default() };
        prop_assert_eq!(parse_pieces(&bytes, &cuts, &limits), parse_pieces(&bytes, &[], &limits));
    }
}
