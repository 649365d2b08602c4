//! Shared code of the tests of peers.

use lodestore_contract::testing::Scratch;
use lodestore_peers::{Asked, Kind, Peer, kinds};

pub fn with_each(test: impl FnMut(&Kind, &dyn Peer)) {
    with_each_asked(&Asked::default(), test);
}

pub fn with_each_asked(asked: &Asked, mut test: impl FnMut(&Kind, &dyn Peer)) {
    for kind in kinds() {
        kind.ready().unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        // In memory if possible, because half of the peers sync every write.
        let dir = Scratch::new();
        let peer = kind.open(dir.path(), asked).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        test(kind, &*peer);
    }
}

pub fn get(peer: &dyn Peer, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = vec![7; 3];
    peer.get(key, &mut value).expect("an answer").then_some(value)
}

/// Returns the kind of this name and a temporary directory for its store.
pub fn kind_and_dir(name: &str) -> (&'static Kind, Scratch) {
    let kind = kinds().iter().find(|kind| kind.name == name).expect("there is one");
    (kind, Scratch::new())
}
