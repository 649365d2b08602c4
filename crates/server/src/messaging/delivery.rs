//! A message on its way to the event loop of its receiver.

use std::sync::Arc;

use lodestore_wire::{Protocol, ReplyWriter};

use crate::client::ClientId;

/// Channel that carries invalidations to clients of RESP2.
pub(crate) const INVALIDATION_CHANNEL: &[u8] = b"__redis__:invalidate";

/// Bytes that a queued message uses besides its text.
const MESSAGE_OVERHEAD_BYTES: usize = 64;

/// The content of a message. The receiver's event loop writes it in the receiver's protocol.
#[derive(Debug, Clone)]
pub(crate) enum Payload {
    /// A message in the form of RESP2. RESP3 has another first byte.
    Push(Arc<Vec<u8>>),
    /// A line of `MONITOR`, as it is sent.
    Line(Arc<Vec<u8>>),
    /// Keys that changed. `None` means all keys.
    Invalidation(Arc<Option<Vec<Vec<u8>>>>),
    /// The client that receives the invalidations of the receiver has disconnected.
    RedirectBroken(ClientId),
    /// No message: the receiver was killed, and its event loop closes it.
    Kill,
}

/// A message for one client.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) client: ClientId,
    /// Index of the client in its event loop.
    pub(crate) slot: usize,
    /// The subscription that the message follows. A subscription that ended gets no more messages.
    pub(crate) subscription: Option<u64>,
    pub(crate) payload: Payload,
}

impl Payload {
    /// Returns a message of texts in the form of RESP2.
    pub(crate) fn of_texts(texts: &[&[u8]]) -> Self {
        let mut bytes = Vec::with_capacity(texts.iter().map(|text| text.len() + 16).sum());
        let mut writer = ReplyWriter::new(&mut bytes, Protocol::Resp2);
        writer.write_push(texts.len());
        texts.iter().for_each(|text| writer.write_bulk(text));
        Self::Push(Arc::new(bytes))
    }

    /// Returns the bytes that the message counts for its receiver.
    pub(crate) fn queued_bytes(&self) -> usize {
        let bytes = match self {
            Self::Push(bytes) | Self::Line(bytes) => bytes.len(),
            Self::Invalidation(keys) => keys.as_ref().as_ref().map_or(0, |keys| keys.iter().map(Vec::len).sum()),
            Self::RedirectBroken(_) | Self::Kill => 0,
        };
        bytes + MESSAGE_OVERHEAD_BYTES
    }

    /// Appends the message. `receives_invalidations` says whether a client of RESP2 subscribes to
    /// the channel of invalidations.
    pub(crate) fn write(&self, output: &mut Vec<u8>, protocol: Protocol, receives_invalidations: bool) {
        let start = output.len();
        let mut writer = ReplyWriter::new(output, protocol);
        match self {
            Self::Push(bytes) => {
                writer.write_raw(bytes);
                if protocol == Protocol::Resp3 {
                    output[start] = b'>';
                }
            }
            Self::Line(bytes) => writer.write_raw(bytes),
            Self::Invalidation(keys) => {
                match protocol {
                    Protocol::Resp3 => {
                        writer.write_push(2);
                        writer.write_bulk(b"invalidate");
                    }
                    Protocol::Resp2 if receives_invalidations => {
                        writer.write_push(3);
                        writer.write_bulk(b"message");
                        writer.write_bulk(INVALIDATION_CHANNEL);
                    }
                    Protocol::Resp2 => return,
                }
                match keys.as_ref() {
                    Some(keys) => {
                        writer.write_array(keys.len());
                        keys.iter().for_each(|key| writer.write_bulk(key));
                    }
                    None => writer.write_null(),
                }
            }
            Self::RedirectBroken(target) if protocol == Protocol::Resp3 => {
                writer.write_push(2);
                writer.write_bulk(b"tracking-redir-broken");
                writer.write_integer(i64::try_from(*target).unwrap_or(i64::MAX));
            }
            Self::RedirectBroken(_) | Self::Kill => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_form_of_the_receivers_protocol() {
        let payload = Payload::of_texts(&[b"message", b"a", b"b"]);
        let mut output = b"+OK\r\n".to_vec();
        payload.write(&mut output, Protocol::Resp2, false);
        payload.write(&mut output, Protocol::Resp3, false);
        let message = "3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n";
        assert_eq!(String::from_utf8(output), Ok(format!("+OK\r\n*{message}>{message}")));
    }
}
