//! An operation of a group's sequence, and its encoding in a log.

use lodestore_contract::{Expiry, Result};

use crate::codec::{Reader, VERSION, format_error, put_words};

/// Flags of an entry: it has a value; the value has an expiry; the value is a separate record.
const VALUE_FLAG: u8 = 1;
const EXPIRY_FLAG: u8 = 2;
const SEPARATE_VALUE_FLAG: u8 = 4;

/// The effect of an operation on its key, in logs and queues. No effect is conditional: all members
/// reach the same result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// Sets the value of the key.
    Put { value: Vec<u8>, expiry: Option<Expiry> },
    /// Removes the key.
    Delete,
    /// Operation `aborts` did not fit on too many members: restores the key's previous pair.
    Restore { aborts: u64, value: Option<(Vec<u8>, Option<Expiry>)> },
    /// Only in a log: the operation did not fit, and the device has not applied it.
    Lacking,
}

impl Mutation {
    /// Returns the bytes of its value.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Put { value, .. } | Self::Restore { value: Some((value, _)), .. } => value.len(),
            Self::Delete | Self::Restore { value: None, .. } | Self::Lacking => 0,
        }
    }
}

/// An operation of a group's sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) epoch: u64,
    /// 1, 2, 3 and so on, over all epochs.
    pub(crate) seq: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) mutation: Mutation,
}

impl Operation {
    /// Values of at least this many bytes are stored as a separate record, which avoids a copy.
    pub(crate) const SEPARATE_VALUE_BYTES_MIN: usize = 1 << 20;
    const WHAT: &'static str = "an entry of the operation log is invalid";

    /// Returns the entry, and the value if it is stored as a separate record.
    pub(crate) fn encode(&self) -> (Vec<u8>, Option<&[u8]>) {
        let (kind, aborts, value, expiry) = match &self.mutation {
            Mutation::Put { value, expiry } => (0, 0, Some(&value[..]), *expiry),
            Mutation::Delete => (1, 0, None, None),
            Mutation::Restore { aborts, value } => {
                let expiry = value.as_ref().and_then(|(_, expiry)| *expiry);
                (2, *aborts, value.as_ref().map(|(value, _)| &value[..]), expiry)
            }
            Mutation::Lacking => (3, 0, None, None),
        };
        let has = |some: bool, flag: u8| if some { flag } else { 0 };
        let mut bytes = Vec::with_capacity(40 + self.key.len());
        bytes.extend(VERSION.to_le_bytes());
        let separate = value.filter(|value| value.len() >= Self::SEPARATE_VALUE_BYTES_MIN);
        let flags =
            [(value.is_some(), VALUE_FLAG), (expiry.is_some(), EXPIRY_FLAG), (separate.is_some(), SEPARATE_VALUE_FLAG)];
        bytes.extend([kind, flags.into_iter().map(|(some, flag)| has(some, flag)).sum()]);
        bytes.extend((self.key.len() as u32).to_le_bytes());
        put_words(&mut bytes, &[self.epoch, self.seq, aborts, expiry.map_or(0, Expiry::millis)]);
        bytes.extend(&self.key);
        if separate.is_none() {
            bytes.extend(value.unwrap_or_default());
        }
        (bytes, separate)
    }

    /// Returns the operation that this one rolls back.
    pub(crate) fn aborts(&self) -> Option<u64> {
        match self.mutation {
            Mutation::Restore { aborts, .. } => Some(aborts),
            Mutation::Put { .. } | Mutation::Delete | Mutation::Lacking => None,
        }
    }

    /// Returns the sequence number of an entry.
    ///
    /// # Errors
    /// As [`Operation::decode`].
    pub(crate) fn seq_of(bytes: &[u8]) -> Result<u64> {
        let mut reader = Reader::new(bytes, Self::WHAT)?;
        reader.take(14)?;
        reader.u64()
    }

    /// Returns the epoch of an entry.
    ///
    /// # Errors
    /// As [`Operation::decode`].
    pub(crate) fn epoch_of(bytes: &[u8]) -> Result<u64> {
        let mut reader = Reader::new(bytes, Self::WHAT)?;
        reader.take(6)?;
        reader.u64()
    }

    /// Decodes an entry. Calls `separate` for the value if it is a separate record.
    ///
    /// # Errors
    /// [`lodestore_contract::Error::Corrupt`], or an error for another format version; errors of
    /// `separate`.
    pub(crate) fn decode(bytes: &[u8], separate: impl FnOnce() -> Result<Option<Vec<u8>>>) -> Result<Self> {
        let mut reader = Reader::new(bytes, Self::WHAT)?;
        let (kind, flags, key_len) = (reader.u8()?, reader.u8()?, reader.u32()?);
        let (epoch, seq, aborts, millis) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let key = reader.take(key_len as usize)?.to_vec();
        let value = if flags & SEPARATE_VALUE_FLAG == 0 {
            reader.bytes.to_vec()
        } else {
            separate()?.ok_or_else(|| format_error(Self::WHAT))?
        };
        let expiry = (flags & EXPIRY_FLAG != 0).then(|| Expiry::at_millis(millis));
        let value = (flags & VALUE_FLAG != 0).then_some((value, expiry));
        let mutation = match (kind, value) {
            (0, Some((value, expiry))) => Mutation::Put { value, expiry },
            (1, None) => Mutation::Delete,
            (2, value) => Mutation::Restore { aborts, value },
            (3, None) => Mutation::Lacking,
            _ => return Err(format_error(Self::WHAT)),
        };
        Ok(Self { epoch, seq, key, mutation })
    }
}
