//! Why a cell failed, from its process to the bench's own.

use std::path::PathBuf;

use lodestore_contract::Error;
use serde::{Deserialize, Serialize};

/// Why a cell failed, so that the bench can say it as its own refusal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// [`Error::Full`].
    Full { needed: u64, capacity: u64 },
    /// [`Error::NoRoom`].
    NoRoom { path: PathBuf, needed: u64, free: u64 },
    /// [`Error::InvalidOption`].
    InvalidOption { name: String, value: String, why: String },
    /// [`Error::DurabilityRefused`], with the durability as text.
    DurabilityRefused { asked: String, medium: String, instead: String },
    /// [`Error::DramBudget`].
    DramBudget { used: u64, budget: u64 },
    /// Any other, as its text.
    Other(String),
}

impl Refusal {
    /// What is told of this error.
    pub(crate) fn of(error: Error) -> Self {
        match error {
            Error::Full { needed, capacity } => Self::Full { needed, capacity },
            Error::NoRoom { path, needed, free } => Self::NoRoom { path, needed, free },
            Error::InvalidOption { name, value, why } => Self::InvalidOption { name, value, why },
            Error::DurabilityRefused { asked, medium, instead } => {
                Self::DurabilityRefused { asked: asked.to_string(), medium, instead }
            }
            Error::DramBudget { used, budget } => Self::DramBudget { used, budget },
            other => Self::Other(other.to_string()),
        }
    }

    /// The error again, which the store of this name met.
    pub(crate) fn into_error(self, target: &str) -> Error {
        match self {
            Self::Full { needed, capacity } => Error::Full { needed, capacity },
            Self::NoRoom { path, needed, free } => Error::NoRoom { path, needed, free },
            Self::InvalidOption { name, value, why } => Error::InvalidOption { name, value, why },
            Self::DurabilityRefused { asked, medium, instead } => match asked.parse() {
                Ok(asked) => Error::DurabilityRefused { asked, medium, instead },
                Err(refused) => refused,
            },
            Self::DramBudget { used, budget } => Error::DramBudget { used, budget },
            Self::Other(text) => Error::io("measuring", target, std::io::Error::other(text)),
        }
    }
}
