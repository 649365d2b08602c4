//! Decoded bytes of a field, up to the limit of the field.

use lodestore::store::limits;

/// Decoded bytes with an upper limit.
#[derive(Debug)]
pub struct BoundedBytes {
    name: &'static str,
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl BoundedBytes {
    pub fn new(name: &'static str, bytes_max: usize) -> Self {
        Self { name, bytes: Vec::new(), bytes_max }
    }

    pub fn key() -> Self {
        Self::new("key", limits::KEY_MAX)
    }

    pub fn value() -> Self {
        Self::new("value", limits::VALUE_MAX)
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// The limit that is exceeded, or the memory that is refused.
    pub fn extend(&mut self, more: &[u8]) -> Result<(), String> {
        let (len, needed) = (self.bytes.len(), self.bytes.len() + more.len());
        if needed > self.bytes_max {
            let Self { name, bytes_max, .. } = self;
            return Err(format!(
                "the {name} has more than {bytes_max} bytes: use fewer bytes, or add the missing newline"
            ));
        }
        if needed > self.bytes.capacity() {
            let doubled = needed.max(2 * self.bytes.capacity()).min(self.bytes_max);
            let reserved = self.bytes.try_reserve_exact(doubled - len);
            reserved.or_else(|_| self.bytes.try_reserve_exact(more.len())).map_err(|_| {
                let name = self.name;
                format!(
                    "there is not enough memory for a {name} of more than {len} bytes: free memory, raise the memory \
                     limit (ulimit -v), or split the value over several keys"
                )
            })?;
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
