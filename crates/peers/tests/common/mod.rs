//! What the tests of peers share.

use std::path::Path;

use lodestore_peers::{Asked, Kind, Peer, kinds};

pub fn with_each(test: impl FnMut(&Kind, &dyn Peer)) {
    with_each_asked(&Asked::default(), test);
}

pub fn with_each_asked(asked: &Asked, mut test: impl FnMut(&Kind, &dyn Peer)) {
    for kind in kinds() {
        kind.ready().unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        // In memory where there is such a place: half of them sync every write.
        let shm = Path::new("/dev/shm");
        let dir = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        let dir = dir.expect("a temporary directory");
        let peer = kind.open(dir.path(), asked).unwrap_or_else(|error| panic!("{}: {error}", kind.name));
        test(kind, &*peer);
    }
}

pub fn get(peer: &dyn Peer, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = vec![7; 3];
    peer.get(key, &mut value).expect("an answer").then_some(value)
}

/// A kind of this name, and a directory for it in memory where there is such a place.
pub fn kind_and_dir(name: &str) -> (&'static Kind, tempfile::TempDir) {
    let kind = kinds().iter().find(|kind| kind.name == name).expect("there is one");
    let shm = Path::new("/dev/shm");
    let dir = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    (kind, dir.expect("a temporary directory"))
}
