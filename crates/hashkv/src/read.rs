//! Reading: from what the LSM holds to the value.

use std::collections::VecDeque;

use lodestore_contract::{Entry, Error, Result, Store, Visit};
use lodestore_fluidkv::FluidKv;

use crate::layout::{Pointer, Stored};
use crate::values::Values;

/// How often a value that moves is looked for.
const TRIES: usize = 64;

fn lost(pointer: Pointer) -> Error {
    Error::corrupt(
        format!("values.0000, segment {} at {}", pointer.segment, pointer.at),
        "what stands there is not the value that the index names",
    )
}

impl Values {
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
        stored.clear();
        Ok((!self.read(pointer, key, stored)?).then_some(pointer))
    }

    /// As [`Self::resolve`], where the pointer cannot be of the past: by a holder of its moment, or of the key's stripe.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub(crate) fn value(&self, key: &[u8], stored: &mut Vec<u8>) -> Result<()> {
        self.resolve(key, stored)?.map_or(Ok(()), |pointer| Err(lost(pointer)))
    }

    /// The value of a key; whether there is one.
    ///
    /// # Errors
    /// As the contract's.
    pub(crate) fn get_into(&self, index: &FluidKv, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let mut before = None;
        for _ in 0..TRIES {
            if !index.get_into(key, value)? {
                return Ok(false);
            }
            match self.resolve(key, value)? {
                None => return Ok(true),
                // The same as before: nobody has moved it.
                Some(pointer) if before == Some(pointer) => {
                    value.clear();
                    return Err(lost(pointer));
                }
                now => before = now,
            }
        }
        value.clear();
        Err(Error::corrupt("values.0000", "a value is moved faster than it is read"))
    }
}

/// A pair of a walk, until its window is full.
pub(crate) struct Pending {
    key: Vec<u8>,
    stored: Vec<u8>,
    outcome: Result<()>,
}

/// Pairs of a walk whose values are read together, by place in the file, and shown in the walk's order.
pub(crate) struct Window<'v> {
    values: &'v Values,
    pairs: Vec<Pending>,
    /// Pairs at which it is read.
    size: usize,
}

/// Pairs of a window at first, and at most.
const WINDOW: (usize, usize) = (16, 256);

impl<'v> Window<'v> {
    pub(crate) fn new(values: &'v Values) -> Self {
        Self { values, pairs: Vec::new(), size: WINDOW.0 }
    }

    pub(crate) fn add(&mut self, key: &[u8], stored: &[u8]) {
        self.pairs.push(Pending { key: key.to_vec(), stored: stored.to_vec(), outcome: Ok(()) });
    }

    pub(crate) fn is_full(&self) -> bool {
        self.pairs.len() >= self.size
    }

    /// Reads what is there, and leaves the window empty and larger.
    fn read(&mut self) -> Vec<Pending> {
        let mut pairs = std::mem::take(&mut self.pairs);
        self.size = (self.size * 2).min(WINDOW.1);
        let mut order: Vec<(u64, usize)> = Vec::with_capacity(pairs.len());
        for (number, pair) in pairs.iter().enumerate() {
            let place = match Stored::read(&pair.stored) {
                Ok(Stored::Pointer(pointer)) => self.values.offset(pointer.segment) + u64::from(pointer.at),
                _ => 0,
            };
            order.push((place, number));
        }
        order.sort_unstable();
        for (_, number) in order {
            let pair = &mut pairs[number];
            pair.outcome = self.values.value(&pair.key, &mut pair.stored);
        }
        pairs
    }

    /// Shows what is there to `visit`, in order, until that says stop; `failed` says what becomes of the walk where a value cannot be read. Whether to go on, and how many were visited.
    ///
    /// # Errors
    /// What `failed` answers.
    pub(crate) fn show(
        &mut self,
        failed: &mut dyn FnMut(Error) -> Result<()>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> Visit,
    ) -> Result<(bool, usize)> {
        let mut visited = 0;
        for pair in self.read() {
            match pair.outcome {
                Ok(()) => {
                    visited += 1;
                    if visit(&pair.key, &pair.stored) == Visit::Stop {
                        return Ok((false, visited));
                    }
                }
                Err(error) => failed(error)?,
            }
        }
        Ok((true, visited))
    }

    /// What is there, as entries, up to the first error.
    pub(crate) fn entries(&mut self) -> VecDeque<Result<Entry>> {
        let mut entries = VecDeque::new();
        for pair in self.read() {
            let failed = pair.outcome.is_err();
            entries.push_back(pair.outcome.map(|()| Entry { key: pair.key, value: pair.stored }));
            if failed {
                break;
            }
        }
        entries
    }
}
