//! Replaces `devices.rs` in a build without the engine `mkvs`.

use lodestore_contract::Options;

/// Returns false: no engine of this build has devices.
pub(crate) fn is_device_option(_name: &str) -> bool {
    false
}

/// Returns false: no engine of this build has devices.
pub(crate) fn keeps_order(_set: &Options) -> bool {
    false
}
