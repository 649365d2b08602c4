//! The medium of a damaged store whose process is killed: every executed store persists.

use lodestore_media::sim::{Event, SimImage, VALUES, What};

/// The bytes of the files of a running store. Unlike a line model, it knows no pending stores.
pub struct Medium {
    image: SimImage,
}

impl Medium {
    /// Holds a copy of `image`.
    pub fn new(image: &SimImage) -> Self {
        Self { image: image.clone() }
    }

    /// Returns the image after a kill.
    pub fn image(&self) -> &SimImage {
        &self.image
    }

    /// Applies the next step of a trace.
    ///
    /// # Panics
    ///
    /// On a store outside a file: the pool that made the trace is wrong.
    pub fn apply(&mut self, event: &Event) {
        match event.what {
            What::Word { region, offset, value, mask, .. } => self.store(region, offset, value, mask),
            What::Region { region, len } => {
                let index = usize::from(region);
                assert!(index <= self.image.regions.len(), "regions are added in order");
                let zeros = vec![0; len as usize];
                match self.image.regions.get_mut(index) {
                    Some(bytes) => *bytes = zeros,
                    None => self.image.regions.push(zeros),
                }
            }
            What::Size { len } => self.image.values.resize(len as usize, 0),
            What::Flush { .. } | What::Fence { .. } | What::FailedFence { .. } | What::Sync { .. } | What::Mark(_) => {}
        }
    }

    fn store(&mut self, region: u16, offset: u64, value: u64, mask: u8) {
        let bytes =
            if region == VALUES { &mut self.image.values } else { &mut self.image.regions[usize::from(region)] };
        let word = &mut bytes[offset as usize..offset as usize + 8];
        for (index, (byte, new)) in word.iter_mut().zip(value.to_le_bytes()).enumerate() {
            if mask >> index & 1 == 1 {
                *byte = new;
            }
        }
    }
}
