//! Targets of the codec: requests and replies, as any bytes and in any pieces.

use lodestore_wire::{CommandParser, DecodeError, Limits, Progress, Protocol, ProtocolError, Reply, ReplyWriter};
use lodestore_wire::{decode_reply, format_integer, parse_integer};

use super::recipe::{Recipe, encode};

/// A command with its arguments, and its length in the stream.
type Command = (Vec<Vec<u8>>, usize);

/// Pieces of a stream of requests, valid and invalid.
const PIECES: [&[u8]; 24] = [
    b"*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"*3\r\n",
    b"$3\r\n",
    b"$0\r\n\r\n",
    b"$-1\r\n",
    b"*2147483647\r\n",
    b"*10000000000000000000\r\n",
    b"$536870913\r\n",
    b"*01\r\n",
    b"\r\n",
    b"\r",
    b"\n",
    b"SET a \"\\x41\\n\"\r\n",
    b"SET 'a\\'b' c\n",
    b"\"a\"b\r\n",
    b"\"",
    b"\\x",
    b" \t ",
    b"*",
    b"$",
    b":1\r\n",
];

/// Small limits, so that short inputs reach them.
fn limits(recipe: &mut Recipe<'_>) -> Limits {
    let choice = recipe.byte();
    if choice & 1 == 0 {
        return Limits { is_stranger: choice & 2 != 0, ..Limits::default() };
    }
    Limits {
        bulk_bytes_max: recipe.below(64),
        arguments_max: recipe.below(8),
        inline_bytes_max: 1 + recipe.below(64),
        depth_max: recipe.below(4),
        is_stranger: choice & 2 != 0,
    }
}

fn stream(recipe: &mut Recipe<'_>, pieces: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !recipe.is_empty() {
        let choice = recipe.byte();
        match choice & 3 {
            0 => bytes.extend_from_slice(recipe.choose(pieces)),
            1 => {
                let count = usize::from(recipe.byte() & 15);
                bytes.extend_from_slice(recipe.bytes(count));
            }
            2 => {
                let count = 1 + usize::from(choice >> 2 & 7);
                let arguments: Vec<Vec<u8>> = (0..count)
                    .map(|_| {
                        let length = usize::from(recipe.byte() & 31);
                        recipe.bytes(length).to_vec()
                    })
                    .collect();
                bytes.extend_from_slice(&encode(&arguments));
            }
            _ => bytes.extend(std::iter::repeat_n(b'x', recipe.below(200))),
        }
    }
    bytes
}

/// Parses a stream; before each call `next` more bytes are known. Checks the guarantees of each
/// call.
fn parse(stream: &[u8], limits: &Limits, mut next: impl FnMut() -> usize) -> (Vec<Command>, Option<ProtocolError>) {
    let mut parser = CommandParser::new();
    let (mut commands, mut start, mut known) = (Vec::new(), 0, 0);
    let mut needed = 0;
    loop {
        let buffer = &stream[start..known];
        let before = parser.is_within_command();
        match parser.parse(buffer, limits) {
            Err(error) => return (commands, Some(error)),
            Ok(Progress::Incomplete { bytes_needed }) => {
                assert!(bytes_needed > buffer.len(), "the parser can go on with the bytes that it has");
                assert!(bytes_needed >= needed || !before, "the parser needs fewer bytes than before");
                needed = bytes_needed;
                if known == stream.len() {
                    return (commands, None);
                }
                known = stream.len().min(known + next().max(1));
            }
            Ok(Progress::Empty { bytes }) => {
                assert!(bytes > 0 && bytes <= buffer.len());
                (start, needed) = (start + bytes, 0);
            }
            Ok(Progress::Complete { bytes }) => {
                assert!(bytes > 0 && bytes <= buffer.len() && bytes >= needed);
                let arguments: Vec<Vec<u8>> = parser.arguments().iter(buffer).map(<[u8]>::to_vec).collect();
                check_limits(&arguments, parser.arguments().spans().1.is_some(), limits);
                for (index, argument) in arguments.iter().enumerate() {
                    assert_eq!(parser.arguments().get(index, buffer), Some(argument.as_slice()));
                }
                commands.push((arguments, bytes));
                (start, needed) = (start + bytes, 0);
            }
        }
    }
}

fn check_limits(arguments: &[Vec<u8>], is_inline: bool, limits: &Limits) {
    assert!(!arguments.is_empty());
    if is_inline {
        assert!(arguments.iter().map(Vec::len).sum::<usize>() < limits.inline_bytes_max);
        return;
    }
    assert!(arguments.len() <= limits.arguments_max);
    assert!(arguments.iter().all(|argument| argument.len() <= limits.bulk_bytes_max));
    if limits.is_stranger {
        assert!(arguments.len() <= 10 && arguments.iter().all(|argument| argument.len() <= 16_384));
    }
}

/// Any bytes in any pieces give the same commands and the same error.
pub fn requests(data: &[u8]) {
    let (head, body) = data.split_at(data.len().min(16));
    let mut recipe = Recipe::new(head);
    let limits = limits(&mut recipe);
    let stream = stream(&mut Recipe::new(body), &PIECES);
    let whole = parse(&stream, &limits, || usize::MAX - stream.len());
    let single = parse(&stream, &limits, || 1);
    assert_eq!(whole, single, "bytes one by one");
    let mut sizes = Recipe::new(data);
    let mixed = parse(&stream, &limits, || match sizes.is_empty() {
        true => 7,
        false => usize::from(sizes.byte() & 31),
    });
    assert_eq!(whole, mixed, "bytes in pieces");
    let (commands, _) = whole;
    let again: Vec<u8> = commands.iter().flat_map(|(arguments, _)| encode(arguments)).collect();
    let wide = Limits { is_stranger: false, ..Limits::default() };
    let (repeated, error) = parse(&again, &wide, || usize::MAX - again.len());
    assert_eq!(error, None);
    assert!(repeated.iter().map(|(arguments, _)| arguments).eq(commands.iter().map(|(arguments, _)| arguments)));
}

/// Pieces of a stream of replies, valid and invalid.
const REPLY_PIECES: [&[u8]; 24] = [
    b"+OK\r\n",
    b"-ERR no\r\n",
    b":-12\r\n",
    b":99999999999999999999\r\n",
    b"$3\r\nabc\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"$5\r\nab",
    b"*-1\r\n",
    b"*2\r\n",
    b"*1\r\n",
    b"%1\r\n",
    b"~2\r\n",
    b">3\r\n",
    b"_\r\n",
    b"#t\r\n",
    b"#f\r\n",
    b",1.5\r\n",
    b"(123456789012345678901234567890\r\n",
    b"=7\r\ntxt:abc\r\n",
    b"=3\r\nabc\r\n",
    b"!5\r\nERR x\r\n",
    b"*1048577\r\n",
    b"?\r\n",
];

/// Any bytes are a reply, the begin of one, or refused. A longer stream never changes the result.
pub fn replies(data: &[u8]) {
    let (head, body) = data.split_at(data.len().min(16));
    let limits = limits(&mut Recipe::new(head));
    let stream = stream(&mut Recipe::new(body), &REPLY_PIECES);
    let mut rest = &stream[..];
    while let Ok(Some((reply, bytes))) = decode_reply(rest, &limits) {
        assert!(bytes > 0 && bytes <= rest.len());
        assert_eq!(decode_reply(&rest[..bytes], &limits), Ok(Some((reply.clone(), bytes))));
        assert!(depth(&reply) <= limits.depth_max);
        check_written(&reply);
        rest = &rest[bytes..];
    }
    let end = decode_reply(rest, &limits);
    for cut in 0..rest.len().min(64) {
        // A prefix of the bytes may be too short for the same error, and is never a reply.
        let found: Result<_, DecodeError> = decode_reply(&rest[..cut], &limits);
        assert!(found == Ok(None) || found == end, "{found:?} after {cut} bytes, {end:?} after all");
    }
}

fn depth(reply: &Reply) -> usize {
    match reply {
        Reply::Array(list) | Reply::Set(list) | Reply::Push(list) => {
            list.iter().map(depth).max().map_or(0, |most| most + 1)
        }
        Reply::Map(pairs) => {
            pairs.iter().flat_map(|(key, value)| [depth(key), depth(value)]).max().map_or(0, |most| most + 1)
        }
        _ => 0,
    }
}

/// A reply that the server can write is read again as the same.
fn check_written(reply: &Reply) {
    let mut bytes = Vec::new();
    let mut writer = ReplyWriter::new(&mut bytes, Protocol::Resp3);
    if write(reply, &mut writer) {
        let wide = Limits { depth_max: 64, ..Limits::default() };
        assert_eq!(decode_reply(&bytes, &wide), Ok(Some((reply.clone(), bytes.len()))));
    }
    if let Reply::Integer(number) = reply {
        assert_eq!(parse_integer(format_integer(*number, &mut [0; 20])), Some(*number));
    }
}

/// Writes a reply. Returns whether the server has all of its parts.
fn write(reply: &Reply, writer: &mut ReplyWriter<'_>) -> bool {
    match reply {
        Reply::Integer(number) => writer.write_integer(*number),
        Reply::Bulk(bytes) => writer.write_bulk(bytes),
        Reply::Null => writer.write_null(),
        Reply::Boolean(is_true) => writer.write_boolean(*is_true),
        Reply::Verbatim(text) => writer.write_verbatim(text),
        Reply::Array(list) => {
            writer.write_array(list.len());
            return list.iter().all(|element| write(element, writer));
        }
        Reply::Set(list) => {
            writer.write_set(list.len());
            return list.iter().all(|element| write(element, writer));
        }
        Reply::Push(list) => {
            writer.write_push(list.len());
            return list.iter().all(|element| write(element, writer));
        }
        Reply::Map(pairs) => {
            writer.write_map(pairs.len());
            return pairs.iter().all(|(key, value)| write(key, writer) && write(value, writer));
        }
        _ => return false,
    }
    true
}
