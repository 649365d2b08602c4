//! A value that a read returned.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::str::Utf8Error;

/// The bytes of a value.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value {
    bytes: Vec<u8>,
}

impl Value {
    /// Returns the value as text.
    ///
    /// # Errors
    /// If the bytes are not UTF-8.
    pub fn as_str(&self) -> Result<&str, Utf8Error> {
        std::str::from_utf8(&self.bytes)
    }

    /// Returns the bytes in a vector.
    pub fn into_vec(self) -> Vec<u8> {
        self.bytes
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.bytes
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Compares a value with the bytes of other types, on either side of the comparison.
macro_rules! compare_with {
    ($($other:ty),*) => {$(
        impl PartialEq<$other> for Value {
            fn eq(&self, other: &$other) -> bool {
                self.bytes == AsRef::<[u8]>::as_ref(other)
            }
        }

        impl PartialEq<Value> for $other {
            fn eq(&self, other: &Value) -> bool {
                other == self
            }
        }
    )*};
}

compare_with!([u8], &[u8], Vec<u8>, str, &str, String);

impl<const N: usize> PartialEq<[u8; N]> for Value {
    fn eq(&self, other: &[u8; N]) -> bool {
        self.bytes == other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        self.bytes == *other
    }
}

impl<const N: usize> PartialEq<Value> for [u8; N] {
    fn eq(&self, other: &Value) -> bool {
        other == self
    }
}

impl<const N: usize> PartialEq<Value> for &[u8; N] {
    fn eq(&self, other: &Value) -> bool {
        other == self
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.bytes.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_compares_with_texts_and_bytes_on_both_sides() {
        let value = Value::from(b"ab".to_vec());
        let (slice, text): (&[u8], &str) = (b"ab", "ab");
        let (vector, string) = (slice.to_vec(), text.to_string());
        assert_eq!(value, *slice);
        assert_eq!(*slice, value);
        assert_eq!(value, slice);
        assert_eq!(slice, value);
        assert_eq!(value, *text);
        assert_eq!(*text, value);
        assert_eq!(value, text);
        assert_eq!(text, value);
        assert_eq!(value, string);
        assert_eq!(string, value);
        assert_eq!(value, vector);
        assert_eq!(vector, value);
        assert_eq!(value, *b"ab");
        assert_eq!(*b"ab", value);
        assert_eq!(value, b"ab");
        assert_eq!(b"ab", value);
        assert_ne!("ac", value);
        assert_ne!(value, [0_u8; 2]);
        assert_ne!(b"a", value);
    }
}
