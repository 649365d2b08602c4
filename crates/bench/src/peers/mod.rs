//! Stores of others, driven beside ours. A new peer is a file here and a row of [`PEERS`].

mod btreemap;

use std::path::Path;

use lodestore_contract::{Error, Result};

use crate::target::Target;

/// Opens a peer, empty, in this fresh directory.
type Open = fn(&Path) -> Result<Box<dyn Target>>;

/// One peer.
struct Peer {
    name: &'static str,
    /// It keeps nothing on a medium, and so needs no directory.
    volatile: bool,
    open: Open,
}

/// Every peer that this build has.
const PEERS: &[Peer] = &[Peer { name: "btreemap", volatile: true, open: |_| Ok(Box::new(btreemap::BTree::default())) }];

fn find(name: &str) -> Option<&'static Peer> {
    PEERS.iter().find(|peer| peer.name == name)
}

/// Whether there is a peer of this name.
pub(crate) fn is_peer(name: &str) -> bool {
    find(name).is_some()
}

/// Whether the peer keeps nothing on a medium, and so needs no directory.
pub(crate) fn is_volatile(name: &str) -> bool {
    find(name).is_some_and(|peer| peer.volatile)
}

/// The names of all peers.
pub(crate) fn names() -> Vec<&'static str> {
    PEERS.iter().map(|peer| peer.name).collect()
}

/// Opens the peer `name` in `dir`.
///
/// # Errors
/// [`Error::InvalidOption`] where there is none of this name; what the peer meets.
pub(crate) fn open(name: &str, dir: &Path) -> Result<Box<dyn Target>> {
    find(name).map_or_else(
        || {
            Err(Error::InvalidOption {
                name: "peers".into(),
                value: name.into(),
                why: format!("give some of {}, or none", names().join(", ")),
            })
        },
        |peer| (peer.open)(dir),
    )
}
