//! The format of a timeline's file.

use std::path::Path;

use lodestore_contract::{Error, Result};

/// The format of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Csv,
    Svg,
}

impl Form {
    /// Returns the format of a file, by its extension.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] for another extension.
    pub(crate) fn of(file: &Path) -> Result<Self> {
        match file.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(Self::Csv),
            Some("svg") => Ok(Self::Svg),
            _ => Err(Error::InvalidOption {
                name: "timeline".into(),
                value: file.display().to_string(),
                why: "give a file that ends in .csv or .svg".into(),
            }),
        }
    }
}
