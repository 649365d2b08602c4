//! Small collections that a snapshot holds in one string: listpacks, ziplists, zipmaps.
//!
//! Each function returns the items, in their order, and refuses a string whose lengths do not fit.
//! Numbers become their decimal digits.

/// The items of a collection.
type Items = Result<Vec<Vec<u8>>, &'static str>;

/// Maximum items of a collection. Redis packs some hundred, and each item needs memory.
const ITEMS_MAX: usize = 4 << 20;
const ENDS_TOO_EARLY: &str = "the data is truncated";
const HAS_EXTRA_BYTES: &str = "the data has bytes after its end";
/// The byte that ends a collection, in place of an item's first byte.
const END_ID: u8 = 0xff;

/// The unread bytes.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(ENDS_TOO_EARLY)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, &'static str> {
        Ok(self.take(1)?[0])
    }

    /// Reads a number of `len` bytes, at most 8, least significant first.
    fn unsigned(&mut self, len: usize) -> Result<u64, &'static str> {
        Ok(self.take(len)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// As [`Self::unsigned`], with a sign.
    fn signed(&mut self, len: usize) -> Result<Vec<u8>, &'static str> {
        let unused = 64 - 8 * len as u32;
        Ok(digits((self.unsigned(len)? << unused) as i64 >> unused))
    }

    fn text(&mut self, len: usize) -> Result<Vec<u8>, &'static str> {
        Ok(self.take(len)?.to_vec())
    }
}

fn digits(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// Reads the items after the head until the end. `total` is the length in the head.
fn read_items(rest: &mut Rest<'_>, mut read_item: impl FnMut(&mut Rest<'_>) -> Result<Vec<u8>, &'static str>) -> Items {
    let mut items = Vec::new();
    while *rest.0.first().ok_or(ENDS_TOO_EARLY)? != END_ID {
        if items.len() == ITEMS_MAX {
            return Err("the number of items is too large for a packed collection");
        }
        items.push(read_item(rest)?);
    }
    if rest.0.len() == 1 { Ok(items) } else { Err(HAS_EXTRA_BYTES) }
}

/// Checks the length in the head.
fn check_length(total: u64, bytes: &[u8]) -> Result<(), &'static str> {
    if total == bytes.len() as u64 { Ok(()) } else { Err("the length differs from the length in the header") }
}

/// Reads a listpack: total bytes (4), number of items (2), items, FF. Each item ends with its own
/// length, for reading backwards.
pub(super) fn read_listpack(bytes: &[u8]) -> Items {
    let mut rest = Rest(bytes);
    check_length(rest.unsigned(4)?, bytes)?;
    rest.unsigned(2)?;
    read_items(&mut rest, |rest| {
        let before = rest.0.len();
        let item = read_listpack_item(rest)?;
        let len = before - rest.0.len();
        let back_len = match len {
            ..128 => 1,
            128..16_383 => 2,
            16_383..2_097_151 => 3,
            2_097_151..268_435_455 => 4,
            _ => 5,
        };
        // Groups of 7 bits, most significant first; all but the first have the high bit.
        let back = rest.take(back_len)?.iter().fold(0, |len, byte| len << 7 | u64::from(byte & 0x7f));
        if back == len as u64 { Ok(item) } else { Err("the two lengths of an item differ") }
    })
}

fn read_listpack_item(rest: &mut Rest<'_>) -> Result<Vec<u8>, &'static str> {
    let first = rest.byte()?;
    let low = usize::from(first);
    match first {
        0..0x80 => Ok(digits(i64::from(first))),
        0x80..0xc0 => rest.text(low & 0x3f),
        0xc0..0xe0 => {
            let number = (i64::from(first) & 0x1f) << 8 | i64::from(rest.byte()?);
            Ok(digits(number << 51 >> 51))
        }
        0xe0..0xf0 => {
            let len = (low & 0xf) << 8 | usize::from(rest.byte()?);
            rest.text(len)
        }
        0xf0 => {
            let len = rest.unsigned(4)? as usize;
            rest.text(len)
        }
        0xf1 => rest.signed(2),
        0xf2 => rest.signed(3),
        0xf3 => rest.signed(4),
        0xf4 => rest.signed(8),
        _ => Err("an item has an unknown encoding"),
    }
}

/// Reads a ziplist: total bytes (4), offset of the last item (4), number of items (2), items, FF.
/// Each item begins with the length of the one before.
pub(super) fn read_ziplist(bytes: &[u8]) -> Items {
    let mut rest = Rest(bytes);
    check_length(rest.unsigned(4)?, bytes)?;
    rest.take(6)?;
    read_items(&mut rest, |rest| {
        if rest.byte()? == 0xfe {
            rest.take(4)?;
        }
        read_ziplist_item(rest)
    })
}

fn read_ziplist_item(rest: &mut Rest<'_>) -> Result<Vec<u8>, &'static str> {
    let first = rest.byte()?;
    let low = usize::from(first & 0x3f);
    match first {
        0..0x40 => rest.text(low),
        0x40..0x80 => {
            let len = low << 8 | usize::from(rest.byte()?);
            rest.text(len)
        }
        0x80 => {
            let len = rest.take(4)?.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
            rest.text(len)
        }
        0xc0 => rest.signed(2),
        0xd0 => rest.signed(4),
        0xe0 => rest.signed(8),
        0xf0 => rest.signed(3),
        0xfe => rest.signed(1),
        0xf1..=0xfd => Ok(digits(i64::from(first & 0xf) - 1)),
        _ => Err("an item has an unknown encoding"),
    }
}

/// Reads a zipmap: number of pairs (1), keys and values, FF. A value is followed by free bytes.
pub(super) fn read_zipmap(bytes: &[u8]) -> Items {
    let mut rest = Rest(bytes);
    rest.byte()?;
    let mut is_value = false;
    read_items(&mut rest, |rest| {
        let len = match rest.byte()? {
            0xfe => rest.unsigned(4)? as usize,
            len => usize::from(len),
        };
        let free = if is_value { usize::from(rest.byte()?) } else { 0 };
        is_value = !is_value;
        let item = rest.text(len)?;
        rest.take(free)?;
        Ok(item)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listpack of `count` items, each the number 1 in two bytes.
    fn ones(count: usize) -> Vec<u8> {
        let total = (4 + 2 + 2 * count + 1) as u32;
        [&total.to_le_bytes()[..], &[0xff, 0xff], &[1u8, 1].repeat(count), &[END_ID]].concat()
    }

    #[test]
    fn a_collection_of_millions_of_small_items_is_refused() {
        assert_eq!(read_listpack(&ones(1000)), Ok(vec![b"1".to_vec(); 1000]));
        let refused = read_listpack(&ones(ITEMS_MAX + 1)).expect_err("number of items than Redis packs");
        assert!(refused.contains("number of items"), "{refused}");
    }
}
