//! Reading: from what the LSM holds to the value.

use std::sync::atomic::Ordering;

use lodestore_contract::{Error, Result, Store};
use lodestore_fluidkv::FluidKv;

use crate::layout::{Pointer, RECORD_HEADER, Record, SEGMENT_HEADER, Stored, decode_segment};
use crate::space::is_newer;
use crate::values::Values;

/// How often a value that moves is looked for.
const TRIES: usize = 64;

/// Where a value is lost, and what of it.
pub(crate) fn loss(pointer: Pointer) -> (String, &'static str) {
    let place = format!("values.0000, segment {} at {}", pointer.segment, pointer.at);
    (place, "what stands there is not the value that the index names")
}

pub(crate) fn lost(pointer: Pointer) -> Error {
    let (place, what) = loss(pointer);
    Error::corrupt(place, what)
}

impl Values {
    /// Where in the file the record of a pointer begins; none where there is no place for it.
    pub(crate) fn place_of(&self, pointer: Pointer) -> Option<u64> {
        let end = u64::from(pointer.at) + u64::from(pointer.len);
        let from = self.offset(pointer.segment) + u64::from(pointer.at);
        let is_there = end <= u64::from(self.sizes.segment_bytes) && from + u64::from(pointer.len) <= self.file.len();
        is_there.then_some(from)
    }

    /// Makes `value` the value at `pointer`; false where that is not (any more) the record of this key, and then `value` is empty.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn read(&self, pointer: Pointer, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        // A pointer that damage made long asks for no room.
        value.resize(self.place_of(pointer).map_or(0, |_| pointer.len as usize), 0);
        let found = self.read_record(pointer, key, value);
        match found {
            Ok(Some(len)) => {
                // The record's own bytes, without what stands around the value.
                let from = RECORD_HEADER + key.len();
                value.copy_within(from..from + len, 0);
                value.truncate(len);
            }
            _ => value.clear(),
        }
        found.map(|found| found.is_some())
    }

    /// Makes `record`, which is as long, the record at `pointer`; of how many bytes its value is, behind header and key. None where it is not the record of this key.
    ///
    /// # Errors
    /// [`Error::Io`].
    #[inline]
    pub(crate) fn read_record(&self, pointer: Pointer, key: &[u8], record: &mut [u8]) -> Result<Option<usize>> {
        let Some(from) = self.place_of(pointer) else { return Ok(None) };
        self.file.read(from, record)?;
        let found = Record::read(record, pointer.place(self.seed())).filter(|found| found.key == key);
        Ok(found.map(|found| found.value.len()))
    }

    /// Makes of what the LSM holds for a key its value, in place; false where the record is not there (any more).
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

    /// As [`Self::resolve`], where the pointer cannot be of the past: by a holder of its moment, or of the key's stripe. Whether there is a value.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub(crate) fn value(&self, key: &[u8], stored: &mut Vec<u8>) -> Result<bool> {
        self.resolve(key, stored)?.map_or(Ok(true), |pointer| self.absent(key, pointer))
    }

    /// What a key is whose record is not at its pointer: absent (false) where that is no damage.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    #[cold]
    fn absent(&self, key: &[u8], pointer: Pointer) -> Result<bool> {
        if self.is_gone(key, pointer) { Ok(false) } else { Err(lost(pointer)) }
    }

    /// Whether a record is not at its pointer although nothing is damaged: its key expires, and its
    /// segment had a later use, or gave back its space, when the clock was past that expiry. The
    /// space of an expired record is used again before its entry is dropped, and the entry counts
    /// again if the clock is set back.
    #[cold]
    pub(crate) fn is_gone(&self, key: &[u8], pointer: Pointer) -> bool {
        let Some(Ok(Some(Some(expiry)))) = self.index().map(|index| index.expiry(key)) else { return false };
        expiry.millis() <= self.freed_expiry_max.load(Ordering::Acquire) && self.was_let_go(pointer)
    }

    /// Whether the use of a segment that a pointer names is over.
    fn was_let_go(&self, pointer: Pointer) -> bool {
        let mut header = [0; SEGMENT_HEADER];
        if self.file.read(self.offset(pointer.segment), &mut header).is_err() {
            return false;
        }
        if let Some((_, generation)) = decode_segment(&header, pointer.segment) {
            return is_newer(generation, pointer.generation);
        }
        // Space that was freed is zero.
        let Some(from) = self.place_of(pointer) else { return false };
        let mut record = vec![0; pointer.len as usize];
        header == [0; SEGMENT_HEADER]
            && self.file.read(from, &mut record).is_ok()
            && record.iter().all(|byte| *byte == 0)
    }

    /// The value of a key; whether there is one.
    ///
    /// # Errors
    /// As the contract's.
    pub(crate) fn get_into(&self, index: &FluidKv, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.get_by(key, value, |value| index.get_into(key, value))
    }

    /// As [`Self::get_into`], with what `look` finds in the LSM.
    #[inline]
    pub(crate) fn get_by(
        &self,
        key: &[u8],
        value: &mut Vec<u8>,
        look: impl Fn(&mut Vec<u8>) -> Result<bool>,
    ) -> Result<bool> {
        let mut before = None;
        for _ in 0..TRIES {
            if !look(value)? {
                return Ok(false);
            }
            match self.resolve(key, value)? {
                None => return Ok(true),
                // The same as before: nobody has moved it.
                Some(pointer) if before == Some(pointer) => {
                    value.clear();
                    return self.absent(key, pointer);
                }
                now => before = now,
            }
        }
        value.clear();
        Err(Error::corrupt("values.0000", "a value is moved faster than it is read"))
    }
}
