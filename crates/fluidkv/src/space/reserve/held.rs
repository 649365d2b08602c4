//! The extents that the reserve holds, and the bytes that they count.

use lodestore_media::NvPtr;

/// Share of a shorter piece that does not count.
const SHORT_PIECE_DIVISOR: u64 = 8;

/// The extents that the reserve holds.
#[derive(Default)]
pub(super) struct Held {
    /// Pieces with their bytes. The shortest piece that is long enough is used, else the newest.
    /// The newest piece is mostly adjacent to the piece before it, so the rest can be joined with
    /// that.
    pub(super) pieces: Vec<(NvPtr, u64)>,
    /// The extent for the value log, with its bytes.
    pub(super) values: Option<(NvPtr, u64)>,
}

impl Held {
    /// Returns the counted bytes of all pieces, where a whole piece has `piece` bytes.
    pub(super) fn counted_bytes(&self, piece: u64) -> u64 {
        self.pieces.iter().map(|(_, bytes)| counted_bytes(*bytes, piece)).sum()
    }

    pub(super) fn value_bytes(&self) -> u64 {
        self.values.map_or(0, |(_, bytes)| bytes)
    }

    /// Returns the bytes of the pieces of at least `long` bytes.
    pub(super) fn longer(&self, long: u64) -> u64 {
        self.pieces.iter().map(|(_, bytes)| *bytes).filter(|bytes| *bytes >= long).sum()
    }

    /// Removes the piece that fits an extent of `bytes` best.
    pub(super) fn pop(&mut self, bytes: u64) -> Option<NvPtr> {
        let long = self.pieces.iter().enumerate().filter(|(_, piece)| piece.1 >= bytes);
        let best = long.min_by_key(|(_, piece)| piece.1).map_or(self.pieces.len().checked_sub(1)?, |(index, _)| index);
        Some(self.pieces.remove(best).0)
    }
}

/// Returns the counted bytes of one piece, where a whole piece has `piece` bytes.
pub(super) fn counted_bytes(bytes: u64, piece: u64) -> u64 {
    if bytes < piece { bytes - bytes / SHORT_PIECE_DIVISOR } else { bytes }
}
