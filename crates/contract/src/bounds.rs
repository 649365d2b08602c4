//! Bounds of keys, values and batches. The module `limits` exports them with their checks.

/// Minimum key length, in bytes.
pub const KEY_MIN: usize = 1;
/// Maximum key length, in bytes: 64 KiB.
pub const KEY_MAX: usize = 64 << 10;
/// Maximum value length, in bytes: 1 GiB.
pub const VALUE_MAX: usize = 1 << 30;
/// Maximum number of operations in a batch.
pub const BATCH_OPS_MAX: usize = 65_536;
