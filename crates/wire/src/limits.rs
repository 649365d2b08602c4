//! Bounds on what one command or reply may claim.

/// Default of [`Limits::bulk_bytes_max`]: Redis' default of `proto-max-bulk-len`.
const BULK_BYTES_MAX: usize = 512 << 20;

/// Default of [`Limits::arguments_max`].
const ARGUMENTS_MAX: usize = 1 << 20;

/// Default of [`Limits::inline_bytes_max`]: the constant `PROTO_INLINE_MAX_SIZE` of Redis.
const INLINE_BYTES_MAX: usize = 64 << 10;

/// Default of [`Limits::depth_max`].
const DEPTH_MAX: usize = 32;

/// Most arguments before a client has authenticated. Redis has the same bound.
const STRANGER_ARGUMENTS_MAX: usize = 10;

/// Longest argument in bytes before a client has authenticated. Redis has the same bound.
const STRANGER_BULK_BYTES_MAX: usize = 16_384;

/// Bounds on the commands of a client and on the replies of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest bulk string in bytes.
    pub bulk_bytes_max: usize,
    /// Most arguments of a command, its name included, and most elements of a reply's aggregate.
    pub arguments_max: usize,
    /// Longest inline command, and longest line with a length, in bytes.
    pub inline_bytes_max: usize,
    /// Deepest nesting of a reply's aggregates.
    pub depth_max: usize,
    /// Whether the client must authenticate first. Commands of such a client are short.
    pub is_stranger: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bulk_bytes_max: BULK_BYTES_MAX,
            arguments_max: ARGUMENTS_MAX,
            inline_bytes_max: INLINE_BYTES_MAX,
            depth_max: DEPTH_MAX,
            is_stranger: false,
        }
    }
}

impl Limits {
    /// Whether a client may send an array of `count` arguments before it has authenticated.
    pub(crate) fn allows_stranger_arguments(&self, count: usize) -> bool {
        !self.is_stranger || count <= STRANGER_ARGUMENTS_MAX
    }

    /// Whether a client may send an argument of `bytes` bytes before it has authenticated.
    pub(crate) fn allows_stranger_bulk(&self, bytes: usize) -> bool {
        !self.is_stranger || bytes <= STRANGER_BULK_BYTES_MAX
    }
}
