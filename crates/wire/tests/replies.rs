//! Replies: what is written is read again, in both versions of the protocol.

use lodestore_wire::{DecodeError, Limits, Protocol, Reply, ReplyWriter, decode_reply};
use proptest::prelude::*;

fn write(protocol: Protocol, write: impl FnOnce(&mut ReplyWriter<'_>)) -> Vec<u8> {
    let mut output = Vec::new();
    write(&mut ReplyWriter::new(&mut output, protocol));
    output
}

fn decode(bytes: &[u8]) -> Result<Option<(Reply, usize)>, DecodeError> {
    decode_reply(bytes, &Limits::default())
}

#[test]
fn each_type_has_its_form_in_both_versions() {
    type Case = (fn(&mut ReplyWriter<'_>), &'static str, &'static str);
    let cases: [Case; 14] = [
        (|reply| reply.write_ok(), "+OK\r\n", "+OK\r\n"),
        (|reply| reply.write_error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
        (|reply| reply.write_integer(-12), ":-12\r\n", ":-12\r\n"),
        (|reply| reply.write_bulk(b"ab"), "$2\r\nab\r\n", "$2\r\nab\r\n"),
        (|reply| reply.write_bulk_integer(70), "$2\r\n70\r\n", "$2\r\n70\r\n"),
        (|reply| reply.write_null(), "$-1\r\n", "_\r\n"),
        (|reply| reply.write_null_array(), "*-1\r\n", "_\r\n"),
        (|reply| reply.write_array(3), "*3\r\n", "*3\r\n"),
        (|reply| reply.write_map(2), "*4\r\n", "%2\r\n"),
        (|reply| reply.write_set(2), "*2\r\n", "~2\r\n"),
        (|reply| reply.write_push(2), "*2\r\n", ">2\r\n"),
        (|reply| reply.write_boolean(true), ":1\r\n", "#t\r\n"),
        (|reply| reply.write_double("1.5"), "$3\r\n1.5\r\n", ",1.5\r\n"),
        (|reply| reply.write_verbatim(b"ab"), "$2\r\nab\r\n", "=6\r\ntxt:ab\r\n"),
    ];
    for (call, resp2, resp3) in cases {
        assert_eq!(String::from_utf8(write(Protocol::Resp2, call)).unwrap(), resp2);
        assert_eq!(String::from_utf8(write(Protocol::Resp3, call)).unwrap(), resp3);
    }
}

#[test]
fn a_reply_without_its_end_is_incomplete() {
    let bytes = b"%1\r\n+a\r\n*3\r\n:1\r\n$2\r\nab\r\n~1\r\n#t\r\n";
    for length in 0..bytes.len() {
        assert_eq!(decode(&bytes[..length]), Ok(None), "{length}");
    }
    let list = vec![Reply::Integer(1), Reply::Bulk(b"ab".to_vec()), Reply::Set(vec![Reply::Boolean(true)])];
    let map = Reply::Map(vec![(Reply::Simple(b"a".to_vec()), Reply::Array(list))]);
    assert_eq!(decode(bytes), Ok(Some((map, bytes.len()))));
}

#[test]
fn replies_that_are_invalid_or_hostile_are_refused() {
    let nested = b"*1\r\n".repeat(40);
    let cases: [(&[u8], DecodeError); 6] = [
        (b"?x\r\n", DecodeError::UnknownType(b'?')),
        (b":1x\r\n", DecodeError::InvalidNumber),
        (b"$-2\r\n", DecodeError::InvalidNumber),
        (b"*99999999999\r\n", DecodeError::InvalidNumber),
        (b"$1\r\nabc", DecodeError::ExpectedLineEnd),
        (&nested, DecodeError::TooDeep),
    ];
    for (bytes, error) in cases {
        assert_eq!(decode(bytes), Err(error), "{}", String::from_utf8_lossy(bytes));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        if let Ok(Some((_, length))) = decode(&bytes) {
            prop_assert!(length <= bytes.len());
        }
    }

    #[test]
    fn written_values_are_read_again(values in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..5)) {
        let bytes = write(Protocol::Resp3, |reply| {
            reply.write_array(values.len());
            values.iter().for_each(|value| reply.write_bulk(value));
        });
        let expected = Reply::Array(values.into_iter().map(Reply::Bulk).collect());
        prop_assert_eq!(decode(&bytes), Ok(Some((expected, bytes.len()))));
    }
}

#[test]
fn a_reply_that_exceeds_its_bound_is_reported_and_costs_no_memory() {
    let mut output = Vec::new();
    let mut writer = ReplyWriter::new(&mut output, Protocol::Resp2);
    writer.set_output_max(1000);
    writer.write_array(500);
    for _ in 0..250 {
        writer.write_bulk(&[b'x'; 900]);
        writer.write_bulk(b"");
    }
    assert!(writer.is_cut());
    assert!(writer.output_bytes() < 1000);
    writer.truncate(0);
    assert!(!writer.is_cut(), "the error that replaces the reply is written");
    writer.write_bulk(b"short");
    assert_eq!(output, b"$5\r\nshort\r\n");
}
