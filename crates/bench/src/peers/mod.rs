//! Stores of others, driven beside ours: std's map, and with the feature `peers` those of crate `lodestore-peers`.

mod btreemap;
#[cfg(feature = "peers")]
mod foreign;

use std::path::Path;
use std::sync::LazyLock;

use lodestore_contract::{Error, Result};

use crate::target::Target;

/// Opens a peer, empty, in this directory, which it makes.
type Open = Box<dyn Fn(&Path) -> Result<Box<dyn Target>> + Send + Sync>;

/// One peer.
struct Peer {
    name: &'static str,
    /// It keeps nothing on a medium, and so needs no directory.
    volatile: bool,
    /// Whether it can run here.
    ready: Box<dyn Fn() -> Result<()> + Send + Sync>,
    open: Open,
}

/// Every peer that this build has.
static PEERS: LazyLock<Vec<Peer>> = LazyLock::new(|| {
    let open: Open = Box::new(|_| Ok(Box::new(btreemap::BTree::default())));
    let ceiling = Peer { name: "btreemap", volatile: true, ready: Box::new(|| Ok(())), open };
    #[cfg(feature = "peers")]
    let foreign = foreign::all();
    #[cfg(not(feature = "peers"))]
    let foreign = std::iter::empty();
    std::iter::once(ceiling).chain(foreign).collect()
});

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

/// Whether what is called `name` can run here; so can what is no peer.
///
/// # Errors
/// [`Error::InvalidOption`] naming the package that is missing.
pub(crate) fn ready(name: &str) -> Result<()> {
    find(name).map_or(Ok(()), |peer| (peer.ready)())
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
