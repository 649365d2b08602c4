//! Stores of others, driven beside ours. A new peer is a file here and a row of [`PEERS`].

mod btreemap;

use std::path::Path;

use lodestore_contract::{Error, Result};

use crate::target::Target;

/// Opens a peer, empty, in this fresh directory.
type Open = fn(&Path) -> Result<Box<dyn Target>>;

/// Every peer that this build has.
const PEERS: &[(&str, Open)] = &[("btreemap", |_| Ok(Box::new(btreemap::BTree::default())))];

/// Whether there is a peer of this name.
pub(crate) fn is_peer(name: &str) -> bool {
    PEERS.iter().any(|(known, _)| *known == name)
}

/// Whether the peer keeps nothing on a medium, and so needs no directory.
pub(crate) fn is_volatile(name: &str) -> bool {
    name == "btreemap"
}

/// The names of all peers.
pub(crate) fn names() -> Vec<&'static str> {
    PEERS.iter().map(|(name, _)| *name).collect()
}

/// Opens the peer `name` in `dir`.
///
/// # Errors
/// [`Error::InvalidOption`] where there is none of this name; what the peer meets.
pub(crate) fn open(name: &str, dir: &Path) -> Result<Box<dyn Target>> {
    let found = PEERS.iter().find(|(known, _)| *known == name);
    found.map_or_else(
        || {
            Err(Error::InvalidOption {
                name: "peers".into(),
                value: name.into(),
                why: format!("give some of {}, or none", names().join(", ")),
            })
        },
        |(_, open)| open(dir),
    )
}
