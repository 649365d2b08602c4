//! The operations that write one key: what each stores, decided under the stripe of the key.

use lodestore_contract::{Change, ChangeFn, Expiry, Lifetime, PutWhen, Result, Swap};

use crate::db::open_store::Inner;
use crate::db::read::check_key;
use crate::db::write::{KeyWrite, WritePlan};
use crate::sst::{Slot, hash};
use crate::version::view::View;
use crate::wal::entry::{Op, Payload};

/// Approximate bytes of an entry in addition to key and value.
const ENTRY_OVERHEAD_BYTES: usize = 24;
const EXPIRY_BYTES: usize = 8;
/// Assumed bytes of a value that is not known yet.
const UNKNOWN_VALUE_BYTES: usize = 256;

/// Stores a value if the key is as expected.
struct Put<'a> {
    op: Op<'a>,
    hash: u64,
    when: PutWhen,
    is_stored: bool,
}

impl KeyWrite for Put<'_> {
    #[inline]
    fn decide(&mut self, inner: &Inner, view: &View) -> Result<Option<Op<'_>>> {
        self.is_stored = match self.when {
            PutWhen::Always => true,
            PutWhen::Absent => !inner.is_live(view, self.op.key, self.hash)?,
            PutWhen::Present => inner.is_live(view, self.op.key, self.hash)?,
        };
        Ok(self.is_stored.then_some(self.op))
    }
}

/// Replaces the value of a present key, which keeps its expiry.
struct UpdateKeeping<'a> {
    op: Op<'a>,
    hash: u64,
    is_stored: bool,
}

impl KeyWrite for UpdateKeeping<'_> {
    fn decide(&mut self, inner: &Inner, view: &View) -> Result<Option<Op<'_>>> {
        let slot = Slot::new();
        let known = inner.newest(view, self.op.key, self.hash, &slot)?.filter(|known| known.is_live());
        self.is_stored = known.is_some();
        Ok(known.map(|known| Op { expiry: known.expiry().map(Expiry::at_millis), ..self.op }))
    }
}

/// Deletes a present key.
struct Delete<'a> {
    key: &'a [u8],
    hash: u64,
    is_stored: bool,
}

impl KeyWrite for Delete<'_> {
    fn decide(&mut self, inner: &Inner, view: &View) -> Result<Option<Op<'_>>> {
        self.is_stored = inner.is_live(view, self.key, self.hash)?;
        Ok(self.is_stored.then_some(Op { key: self.key, payload: Payload::Tombstone, expiry: None }))
    }
}

/// Replaces an expected value.
struct CompareAndSwap<'a> {
    key: &'a [u8],
    hash: u64,
    expected: Option<&'a [u8]>,
    new: Option<&'a [u8]>,
    lifetime: Lifetime,
    outcome: Swap,
}

impl KeyWrite for CompareAndSwap<'_> {
    fn decide(&mut self, inner: &Inner, view: &View) -> Result<Option<Op<'_>>> {
        let slot = Slot::new();
        let (now, expiry) = inner.live(view, self.key, self.hash, &slot)?;
        if now != self.expected {
            self.outcome = Swap::Differs(now.map(<[u8]>::to_vec));
            return Ok(None);
        }
        self.outcome = Swap::Done;
        let key = self.key;
        Ok(match (self.new, now) {
            (Some(value), _) => Some(Op { key, payload: Payload::Value(value), expiry: self.lifetime.resolve(expiry) }),
            (None, Some(_)) => Some(Op { key, payload: Payload::Tombstone, expiry: None }),
            (None, None) => None,
        })
    }
}

/// The change that the closure of an `update_with` returned for a value and its expiry.
struct KeptChange {
    value: Option<Vec<u8>>,
    expiry: Option<Expiry>,
    change: Change,
}

/// Stores what a closure returns for the present value. The closure is called once: its answer is
/// kept for a second attempt at the write, unless the value or the expiry changed.
struct UpdateWith<'a, 'c> {
    key: &'a [u8],
    hash: u64,
    change: &'a mut ChangeFn<'c>,
    kept: Option<KeptChange>,
}

impl KeyWrite for UpdateWith<'_, '_> {
    fn decide(&mut self, inner: &Inner, view: &View) -> Result<Option<Op<'_>>> {
        let slot = Slot::new();
        let (now, expiry) = inner.live(view, self.key, self.hash, &slot)?;
        let kept = self.kept.take().filter(|kept| kept.value.as_deref() == now && kept.expiry == expiry);
        let kept = kept.unwrap_or_else(|| {
            let change = (self.change)(now, expiry);
            KeptChange { value: now.map(<[u8]>::to_vec), expiry, change }
        });
        let kept = self.kept.insert(kept);
        let key = self.key;
        Ok(match &kept.change {
            Change::Keep => None,
            Change::Put(value, lifetime) => {
                inner.check_value(value)?;
                Some(Op { key, payload: Payload::Value(value), expiry: lifetime.resolve(expiry) })
            }
            Change::Delete => now.map(|_| Op { key, payload: Payload::Tombstone, expiry: None }),
        })
    }
}

impl Inner {
    pub(crate) fn put(&self, key: &[u8], value: &[u8], expiry: Option<Expiry>, when: PutWhen) -> Result<bool> {
        check_key(key)?;
        self.check_value(value)?;
        let op = Op { key, payload: Payload::Value(value), expiry };
        let mut put = Put { op, hash: hash(key), when, is_stored: false };
        let plan = WritePlan { hash: put.hash, bytes: self.logged_len(&op), is_blind: when == PutWhen::Always };
        self.write_key(plan, &mut put)?;
        Ok(put.is_stored)
    }

    /// Replaces the value of a key that is present. Returns whether it was.
    #[inline]
    pub(crate) fn update(&self, key: &[u8], value: &[u8], lifetime: Lifetime) -> Result<bool> {
        match lifetime {
            Lifetime::Keep => self.update_keeping(key, value),
            Lifetime::Forever | Lifetime::Until(_) => self.put(key, value, lifetime.resolve(None), PutWhen::Present),
        }
    }

    /// Updates a key that keeps its expiry. Not inlined, so that the other lifetimes need no more
    /// instructions.
    #[inline(never)]
    fn update_keeping(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        check_key(key)?;
        self.check_value(value)?;
        let op = Op { key, payload: Payload::Value(value), expiry: None };
        let mut update = UpdateKeeping { op, hash: hash(key), is_stored: false };
        let plan = WritePlan { hash: update.hash, bytes: self.logged_len(&op) + EXPIRY_BYTES, is_blind: false };
        self.write_key(plan, &mut update)?;
        Ok(update.is_stored)
    }

    pub(crate) fn delete(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let mut delete = Delete { key, hash: hash(key), is_stored: false };
        let plan = WritePlan { hash: delete.hash, bytes: key.len() + ENTRY_OVERHEAD_BYTES, is_blind: false };
        self.write_key(plan, &mut delete)?;
        Ok(delete.is_stored)
    }

    /// Replaces the value `expected` by `new`, which gets `lifetime`.
    pub(crate) fn compare_and_swap(
        &self,
        key: &[u8],
        (expected, new): (Option<&[u8]>, Option<&[u8]>),
        lifetime: Lifetime,
    ) -> Result<Swap> {
        check_key(key)?;
        new.map_or(Ok(()), |value| self.check_value(value))?;
        let mut swap = CompareAndSwap { key, hash: hash(key), expected, new, lifetime, outcome: Swap::Done };
        let bytes = key.len() + new.map_or(0, <[u8]>::len) + ENTRY_OVERHEAD_BYTES;
        self.write_key(WritePlan { hash: swap.hash, bytes, is_blind: false }, &mut swap)?;
        Ok(swap.outcome)
    }

    pub(crate) fn update_with(&self, key: &[u8], change: &mut ChangeFn<'_>) -> Result<()> {
        check_key(key)?;
        let mut update = UpdateWith { key, hash: hash(key), change, kept: None };
        let plan = WritePlan { hash: update.hash, bytes: key.len() + UNKNOWN_VALUE_BYTES, is_blind: false };
        self.write_key(plan, &mut update)
    }
}
