//! The limits of every store. Each has a test, and a typed error for values beyond it.

pub use crate::bounds::{BATCH_OPS_MAX, KEY_MAX, KEY_MIN, VALUE_MAX};
use crate::condition::{Condition, RangeCondition};
use crate::error::{Error, Result};
use crate::store::{Batch, BatchOp};

/// Refuses a key outside its limits.
///
/// # Errors
/// [`Error::KeyLength`].
#[inline]
pub fn check_key(key: &[u8]) -> Result<()> {
    let is_within = (KEY_MIN..=KEY_MAX).contains(&key.len());
    if is_within { Ok(()) } else { Err(Error::KeyLength { len: key.len(), max: KEY_MAX }) }
}

/// Refuses a value outside its limits.
///
/// # Errors
/// [`Error::ValueLength`].
#[inline]
pub fn check_value(value: &[u8]) -> Result<()> {
    if value.len() <= VALUE_MAX { Ok(()) } else { Err(Error::ValueLength { len: value.len() }) }
}

/// Refuses a batch of too many operations, or with a key or a value outside its limits.
///
/// # Errors
/// [`Error::BatchLength`], [`Error::KeyLength`], [`Error::ValueLength`].
pub fn check_batch(batch: &Batch) -> Result<()> {
    if batch.ops.len() > BATCH_OPS_MAX {
        return Err(Error::BatchLength { ops: batch.ops.len() });
    }
    batch.ops.iter().try_for_each(|op| match op {
        BatchOp::Put { key, value, .. } => check_key(key).and_then(|()| check_value(value)),
        BatchOp::Delete { key } => check_key(key),
    })
}

/// Refuses too many conditions, or a condition with a key outside its limits. An expected value may
/// have any length; a value longer than a store accepts is never met.
///
/// # Errors
/// [`Error::BatchLength`], [`Error::KeyLength`].
pub fn check_conditions(conditions: &[Condition]) -> Result<()> {
    if conditions.len() > BATCH_OPS_MAX {
        return Err(Error::BatchLength { ops: conditions.len() });
    }
    conditions.iter().try_for_each(|condition| check_key(&condition.key))
}

/// Refuses conditions that no engine accepts: a key out of limits, more conditions on keys than a
/// batch may have operations, or more ranges and keys of ranges together.
///
/// # Errors
/// [`Error::BatchLength`], [`Error::KeyLength`].
pub fn check_range_conditions(conditions: &[Condition], ranges: &[RangeCondition]) -> Result<()> {
    check_conditions(conditions)?;
    let keys: usize = ranges.iter().map(|range| 1 + range.keys.len()).sum();
    if keys > BATCH_OPS_MAX {
        return Err(Error::BatchLength { ops: keys });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_1_byte_to_64_kib_pass_and_no_others() {
        for len in [1, 2, KEY_MAX - 1, KEY_MAX] {
            check_key(&vec![0; len]).expect("within the limits");
        }
        for len in [0, KEY_MAX + 1, 2 * KEY_MAX] {
            let refused = check_key(&vec![0; len]);
            assert!(
                matches!(refused, Err(Error::KeyLength { len: reported, max: KEY_MAX }) if reported == len),
                "{len}: {refused:?}"
            );
        }
    }

    #[test]
    fn values_of_0_bytes_to_1_gib_pass_and_no_others() {
        // Untouched zeroed memory uses no pages.
        let zeros = vec![0; VALUE_MAX + 1];
        for len in [0, 1, VALUE_MAX - 1, VALUE_MAX] {
            check_value(&zeros[..len]).expect("within the limits");
        }
        let refused = check_value(&zeros);
        assert!(matches!(refused, Err(Error::ValueLength { len }) if len == VALUE_MAX + 1), "{refused:?}");
    }

    #[test]
    fn batches_of_up_to_65536_valid_operations_pass_and_no_others() {
        let delete = |key: &[u8]| BatchOp::Delete { key: key.to_vec() };
        for len in [0, 1, BATCH_OPS_MAX] {
            check_batch(&Batch { ops: vec![delete(b"k"); len] }).expect("within the limits");
        }
        let refused = check_batch(&Batch { ops: vec![delete(b"k"); BATCH_OPS_MAX + 1] });
        assert!(matches!(refused, Err(Error::BatchLength { ops }) if ops == BATCH_OPS_MAX + 1), "{refused:?}");
        let refused = check_batch(&Batch { ops: vec![delete(b"k"), delete(b""), delete(b"k")] });
        assert!(matches!(refused, Err(Error::KeyLength { len: 0, .. })), "{refused:?}");
        let long = BatchOp::Put { key: b"k".to_vec(), value: vec![0; VALUE_MAX + 1], expiry: None };
        let refused = check_batch(&Batch { ops: vec![long] });
        assert!(matches!(refused, Err(Error::ValueLength { .. })), "{refused:?}");
    }

    #[test]
    fn the_limits_have_their_documented_values() {
        assert_eq!((KEY_MIN, KEY_MAX, VALUE_MAX), (1, 65_536, 1_073_741_824));
        assert_eq!(BATCH_OPS_MAX, 65_536);
        // Formats store the key length minus 1 in 16 bits and the value length in 32.
        assert!(u16::try_from(KEY_MAX - 1).is_ok() && u32::try_from(VALUE_MAX).is_ok());
    }
}
