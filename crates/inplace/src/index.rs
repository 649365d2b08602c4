//! How an engine finds keys.

use lodestore_contract::{Error, Pair, Result, Visit};
use lodestore_media::NvPtr;

use crate::engine::Engine;
use crate::record::{OwnField, Record};
use crate::stripe::{StripeIndex, Stripes};

/// Positions of a partition in a walk.
pub const WALK_POSITION_COUNT: u64 = 1 << 32;

/// A key and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target<'k, H> {
    /// The hash.
    pub hash: H,
    /// The key.
    pub key: &'k [u8],
}

/// An entry of the index that names a record of the requested key.
#[derive(Clone, Copy)]
pub struct Found<'a, W, O> {
    /// Position of the entry.
    pub at: NvPtr,
    /// Content of the entry.
    pub entry: W,
    /// Position of the record, with a tag if the entry has one.
    pub record_at: NvPtr,
    /// The record.
    pub record: Record<'a, O>,
    /// The entry vouches for the record. Only such a record may be returned.
    pub is_bound: bool,
}

/// A key of an engine `E`, and its hash.
pub type TargetOf<'k, E> = Target<'k, <E as Index>::Hash>;
/// An entry in the index of an engine `E`.
pub type FoundIn<'a, E> = Found<'a, <E as Index>::Entry, <E as Index>::Own>;

/// An engine's index. The errors of all methods are the contract's.
pub trait Index: Engine {
    /// The engine's own field of a record.
    type Own: OwnField;
    /// The hash of a key, with everything that is derived from it. Batches apply their operations
    /// in the order of hashes.
    type Hash: Copy + Ord;
    /// The content of an entry.
    type Entry: Copy;
    /// The content of a stripe.
    type Stripe: Copy + From<u64> + Into<u64>;

    /// Hashes a key.
    fn hash_key(&self, key: &[u8]) -> Self::Hash;

    /// Returns the stripe of a key.
    fn stripe_of(hash: Self::Hash) -> StripeIndex;

    /// Returns the writer locks.
    fn stripes(&self) -> &Stripes<Self::Stripe>;

    /// Returns whether reads compare the checksums of their records.
    fn verifies_reads(&self) -> bool;

    /// Finds the entry of a key whose stripe the caller holds, expired or not. Reports damage.
    fn find_held(&self, target: TargetOf<'_, Self>) -> Result<Option<FoundIn<'_, Self>>>;

    /// Calls `visit` for every live pair of a piece of a walk over `partition`, under its own
    /// guard. The piece begins at `from`. Stores the first damage in `wrong`; checksums are
    /// compared at least if `verifies`. Returns the start of the next piece, after the last piece
    /// [`WALK_POSITION_COUNT`]; `None` if the visitor wants no more.
    fn visit_piece(
        &self,
        partition: usize,
        from: u64,
        verifies: bool,
        wrong: &mut Option<Error>,
        visit: &mut dyn FnMut(Pair<'_>) -> Visit,
    ) -> Result<Option<u64>>;

    /// Refuses an answer about all keys if some may be missing.
    fn check_complete(&self) -> Result<()>;

    /// Returns a key with its hash.
    #[inline]
    fn target<'k>(&self, key: &'k [u8]) -> TargetOf<'k, Self> {
        Target { hash: self.hash_key(key), key }
    }

    /// Finds the live record of a key whose stripe the caller holds. Reports damage.
    fn find_live(&self, target: TargetOf<'_, Self>, verifies: bool) -> Result<Option<Record<'_, Self::Own>>> {
        let found = self.find_held(target)?;
        match found {
            Some(found) if found.is_live()? => {
                if verifies {
                    found.record.check(found.record_at).inspect_err(|error| self.report_corruption(error))?;
                }
                Ok(Some(found.record))
            }
            _ => Ok(None),
        }
    }
}

impl<W, O: OwnField> Found<'_, W, O> {
    /// Returns whether a reader finds the key: its record has not expired.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[inline]
    pub fn is_live(&self) -> Result<bool> {
        if !self.is_bound {
            return Err(unvouched(self.record_at));
        }
        self.record.is_expired(self.record_at).map(|expired| !expired)
    }
}

/// Returns the error of an entry that does not vouch for the record at `record`.
#[cold]
pub fn unvouched(record: NvPtr) -> Error {
    Error::corrupt(format!("slot of record {record:?}"), "the slot names the record of another key, or an older record")
}
