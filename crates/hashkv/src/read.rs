//! Reads: from the LSM's entry to the value.

use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Result, Store};
use lodestore_fluidkv::FluidKv;

use crate::layout::{Pointer, RECORD_HEADER_BYTES, Record, SEGMENT_HEADER_BYTES, Stored, decode_segment};
use crate::space::is_newer;
use crate::values::Values;

/// Maximum lookups of a value that moves meanwhile.
const READ_ATTEMPTS: usize = 64;

/// Returns location and description of a lost value.
pub(crate) fn loss_of(pointer: Pointer) -> (String, &'static str) {
    let place = format!("values.0000, segment {} at {}", pointer.segment, pointer.at);
    (place, "the record is not the value that the index names")
}

pub(crate) fn lost_value(pointer: Pointer) -> Error {
    let (place, what) = loss_of(pointer);
    Error::corrupt(place, what)
}

impl Values {
    /// Returns the file offset of a pointer's record; `None` if it exceeds the segment or the file.
    pub(crate) fn offset_of(&self, pointer: Pointer) -> Option<u64> {
        let end = u64::from(pointer.at) + u64::from(pointer.len);
        let from = self.offset(pointer.segment) + u64::from(pointer.at);
        let is_there = end <= u64::from(self.sizes.segment_bytes) && from + u64::from(pointer.len) <= self.file.len();
        is_there.then_some(from)
    }

    /// Reads the value at `pointer` into `value`. Returns false, with `value` empty, if the record
    /// there is not, or no longer, this key's.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn read(&self, pointer: Pointer, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        // A pointer with a damaged length must not allocate memory.
        value.resize(self.offset_of(pointer).map_or(0, |_| pointer.len as usize), 0);
        let found = self.read_record(pointer, key, value);
        match found {
            Ok(Some(len)) => {
                // Keep the value, without the record's header and key.
                let from = RECORD_HEADER_BYTES + key.len();
                value.copy_within(from..from + len, 0);
                value.truncate(len);
            }
            _ => value.clear(),
        }
        found.map(|found| found.is_some())
    }

    /// Reads the record at `pointer` into `record`, which has its length. Returns the length of the
    /// value, which follows header and key. `None` if the record is not this key's.
    ///
    /// # Errors
    /// [`Error::Io`].
    #[inline]
    pub(crate) fn read_record(&self, pointer: Pointer, key: &[u8], record: &mut [u8]) -> Result<Option<usize>> {
        let Some(from) = self.offset_of(pointer) else { return Ok(None) };
        self.file.read(from, record)?;
        let found = Record::read(record, pointer.location(self.seed())).filter(|found| found.key == key);
        Ok(found.map(|found| found.value.len()))
    }

    /// Replaces a key's LSM entry by its value, in place. Returns the pointer if its record is not,
    /// or no longer, there.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    #[inline]
    pub(crate) fn resolve(&self, key: &[u8], stored: &mut Vec<u8>) -> Result<Option<Pointer>> {
        let pointer = match Stored::read(stored)? {
            Stored::Value(_) => {
                stored.pop();
                return Ok(None);
            }
            Stored::Pointer(pointer) => pointer,
        };
        Ok((!self.read(pointer, key, stored)?).then_some(pointer))
    }

    /// As [`Self::resolve`], for a pointer that must be current: the caller holds its moment, or
    /// the key's stripe. Returns whether there is a value.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub(crate) fn value(&self, key: &[u8], stored: &mut Vec<u8>) -> Result<bool> {
        self.resolve(key, stored)?.map_or(Ok(true), |pointer| self.check_absent(key, pointer))
    }

    /// Judges a key whose record is not at its pointer. Returns false (absent) if nothing is
    /// damaged.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[cold]
    fn check_absent(&self, key: &[u8], pointer: Pointer) -> Result<bool> {
        if self.is_expired_and_freed(key, pointer) { Ok(false) } else { Err(lost_value(pointer)) }
    }

    /// Returns whether the expiry of a record explains that it is missing at its pointer. The space
    /// of an expired record is reused or released before the LSM drops its entry. The entry becomes
    /// live again if the clock is set back.
    #[cold]
    pub(crate) fn is_expired_and_freed(&self, key: &[u8], pointer: Pointer) -> bool {
        let Some(Ok(Some(Some(expiry)))) = self.index().map(|index| index.expiry(key)) else { return false };
        expiry.millis() <= self.freed_expiry_max.load(Ordering::Acquire) && self.is_use_over(pointer)
    }

    /// Returns whether the use of a segment that a pointer names has ended.
    fn is_use_over(&self, pointer: Pointer) -> bool {
        let mut header = [0; SEGMENT_HEADER_BYTES];
        if self.file.read(self.offset(pointer.segment), &mut header).is_err() {
            return false;
        }
        if let Some((_, generation)) = decode_segment(&header, pointer.segment) {
            return is_newer(generation, pointer.generation);
        }
        // Released space reads as zeros.
        let Some(from) = self.offset_of(pointer) else { return false };
        let mut record = vec![0; pointer.len as usize];
        header == [0; SEGMENT_HEADER_BYTES]
            && self.file.read(from, &mut record).is_ok()
            && record.iter().all(|byte| *byte == 0)
    }

    /// Reads the value of a key. Returns whether there is one.
    ///
    /// # Errors
    /// As the contract's.
    pub(crate) fn get_into(&self, index: &FluidKv, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.get_with_lookup(key, value, |value| index.get_into(key, value))
    }

    /// As [`Self::get_into`], with `look_up` for the lookup in the LSM.
    #[inline]
    pub(crate) fn get_with_lookup(
        &self,
        key: &[u8],
        value: &mut Vec<u8>,
        look_up: impl Fn(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<bool> {
        let mut before = None;
        for _ in 0..READ_ATTEMPTS {
            if !look_up(value)? {
                return Ok(false);
            }
            match self.resolve(key, value)? {
                None => return Ok(true),
                // The same pointer as before: the record was not moved.
                Some(pointer) if before == Some(pointer) => {
                    value.clear();
                    return self.check_absent(key, pointer);
                }
                now => before = now,
            }
        }
        value.clear();
        Err(Error::corrupt("values.0000", "a value was moved during each attempt to read it"))
    }
}
