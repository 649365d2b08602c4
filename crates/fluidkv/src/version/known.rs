//! The newest known version of a key, from a log entry or from an item of a table.

use crate::sst::{Item, ItemKind};
use crate::wal::entry::{Entry, POINTER_BYTES, Payload};

/// The newest known version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known<'a> {
    /// The value, and when it expires.
    Value(&'a [u8], Option<u64>),
    /// The location of a large value, and when it expires.
    Pointer(&'a [u8; POINTER_BYTES], Option<u64>),
    Deleted,
}

impl<'a> Known<'a> {
    pub(crate) fn of_entry(entry: &Entry<'a>) -> Self {
        match entry.payload() {
            Payload::Value(value) => Self::Value(value, entry.expiry().map(|expiry| expiry.millis())),
            Payload::Pointer(pointer) => Self::Pointer(pointer, entry.expiry().map(|expiry| expiry.millis())),
            Payload::Tombstone => Self::Deleted,
        }
    }

    pub(crate) fn of_item(item: &Item<'a>) -> Self {
        match item.kind {
            ItemKind::Value => Self::Value(item.value, item.expiry),
            // A pointer of another length is damage. This one leads nowhere, which its read
            // reports.
            ItemKind::Pointer => Self::Pointer(item.value.try_into().unwrap_or(&[0xff; POINTER_BYTES]), item.expiry),
            ItemKind::Tombstone => Self::Deleted,
        }
    }

    /// Returns whether it is neither deleted nor expired.
    #[inline]
    pub(crate) fn is_live(self) -> bool {
        match self {
            Self::Value(_, None) | Self::Pointer(_, None) => true,
            Self::Value(_, Some(expiry)) | Self::Pointer(_, Some(expiry)) => {
                !lodestore_contract::Expiry::at_millis(expiry).is_past()
            }
            Self::Deleted => false,
        }
    }

    pub(crate) fn expiry(self) -> Option<u64> {
        match self {
            Self::Value(_, expiry) | Self::Pointer(_, expiry) => expiry,
            Self::Deleted => None,
        }
    }
}
