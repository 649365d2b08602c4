//! Reads a matrix from an image by the documented formats, without the engine: whether the matrix
//! may refuse an open without a device.

use lodestore_contract::{Error, Result, Store};
use lodestore_media::sim::Recorder;
use lodestore_mkvs::OpenMode;
use lodestore_nvht::Nvht;

use super::{NVHT, SimPlaces};
use crate::nvht;

/// Key of the description in the host's store.
const DESCRIPTION: &[u8] = b"matrix";
/// Key of a device's record in its log's store, and the offset of its flag *partial*.
const DEVICE: &[u8] = b"device";
const PARTIAL_AT: usize = 2;
/// State of an active member.
const ACTIVE_STATE_ID: u8 = 0;

/// Bytes of a record from the first unread one on.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn number(&mut self, bytes: usize) -> Option<u64> {
        let (field, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    fn text(&mut self) -> Option<String> {
        let len = self.number(2)? as usize;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }
}

/// A group in the description.
#[derive(Debug)]
struct Described {
    members: usize,
    /// Directories of the active members.
    active: Vec<String>,
    /// Active members that an open needs, by the table of `docs/mkvs.md`.
    asked: usize,
}

/// Returns the group with this index in a description.
fn described(bytes: &[u8], index: usize) -> Option<Described> {
    let mut fields = Fields(bytes);
    fields.skip(2)?;
    let acks = fields.number(1)?;
    fields.skip(1 + 4 + 5 * 8)?;
    fields.text()?;
    fields.text()?;
    let groups = fields.number(2)? as usize;
    for group in 0..groups {
        fields.skip(8)?;
        fields.text()?;
        let epochs = fields.number(2)? as usize;
        fields.skip(16 * epochs)?;
        let members = fields.number(2)? as usize;
        let mut active = Vec::new();
        for _ in 0..members {
            // The ids of the device and of its store, and its store's opening.
            fields.skip(3 * 8)?;
            let (state, path) = (fields.number(1)? as u8, fields.text()?);
            if state == ACTIVE_STATE_ID {
                active.push(path);
            }
        }
        if group == index {
            let all = active.len();
            let asked = [all, all.saturating_sub(members / 2), 1][acks as usize % 3].max(1);
            return Some(Described { members, active, asked });
        }
    }
    None
}

impl SimPlaces {
    /// Returns a record of a store of the image whose engine is a hash table.
    fn record_of(&self, region: u16, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(image) = &self.image else { return Ok(None) };
        let options = nvht::options(&self.beside(OpenMode::Strict));
        let recorder = Recorder::of_image(image);
        recorder.set_recording(false);
        let (pool, report) = self.pool(recorder.at(region), Some(image), NVHT, options.pool.clone())?;
        Nvht::start(pool, &report, &options)?.get(key)
    }

    /// Whether a group has fewer present and whole members than an open needs.
    ///
    /// # Errors
    ///
    /// Errors of the image's stores; a description that does not match its format.
    pub(super) fn may_refuse(&self, group: usize) -> Result<bool> {
        let bytes = self.record_of(self.host_region(), DESCRIPTION)?.unwrap_or_default();
        let described = described(&bytes, group);
        let Described { members, active, asked } =
            described.ok_or_else(|| Error::corrupt("mkvs", "its description is not as the format says"))?;
        let mut whole = 0;
        for path in active {
            if self.is_lost(path.as_ref()) || members == 1 {
                continue;
            }
            let log = self.region(path.as_ref(), lodestore_mkvs::Part::Log)?;
            let said = self.record_of(log, DEVICE)?.unwrap_or_default();
            whole += usize::from(said.get(PARTIAL_AT) == Some(&0));
        }
        Ok(whole < asked)
    }
}
