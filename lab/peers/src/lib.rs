//! Bindings to stores of other projects, for the bench and for imports.
//!
//! Layer 3. `bench` and the program `lodestore` use this crate, each with its feature `peers`; no
//! default build does. The program uses only [`RocksDbReader`], for `import`.
//!
//! A peer written in C or C++ is loaded at run time from the system's library. A server is started
//! by its own program. Only Rust is compiled here: `redb`, `fjall` and `sled`, each with a feature
//! of its name. A new peer is a module here and rows of [`kinds`].
//!
//! # Guarantees
//! * If a library is missing or unusable, the error names the Debian package.
//! * Every peer has several settings, each with its own name. The plain name is a sane setting, and
//!   `-sync` is the same with every write synced.
//! * `-paper` is the setting of the NVHT paper's authors (their public bench drivers), who sync
//!   every put and use small caches.
//! * [`Survives`] states the failures that an acknowledged write of a setting survives.
//!
//! `unsafe` is allowed here for bindings; each use cites an invariant of SAFETY.md.
//!
//! # Modules
//! * `library`: shared libraries, loaded at first use.
//! * `common`: common parts of the C interfaces of LevelDB and RocksDB.
//! * `server`: processes of servers, reached by a unix socket.
//! * `bdb`, `leveldb`, `lmdb`, `rocksdb`: embedded stores in C or C++.
//! * `fjall`, `redb`, `sled` (features): embedded stores in Rust.
//! * `memcached`, `redis`: servers.
//! * `peer`, `kinds`: the bench's interface to a peer; the peers in their settings.
//! * `testing`: RocksDB databases for tests.

mod bdb;
mod common;
#[cfg(feature = "fjall")]
mod fjall;
mod kinds;
mod leveldb;
mod library;
mod lmdb;
mod memcached;
mod peer;
#[cfg(feature = "redb")]
mod redb;
mod redis;
mod rocksdb;
mod server;
#[cfg(feature = "sled")]
mod sled;

pub use common::{Each, Halt};
pub use kinds::{Kind, kinds};
pub use peer::{About, Account, Asked, Peer, Survives};
pub use rocksdb::reader::RocksDbReader;

/// Databases for tests of the programs that read them.
#[doc(hidden)]
pub mod testing {
    pub use crate::rocksdb::testing::make_rocksdb_family;
}

#[cfg(all(test, any(feature = "fjall", feature = "redb", feature = "sled")))]
mod tests {
    #[test]
    fn the_versions_that_peers_tell_are_those_that_are_compiled_in() {
        let lock = include_str!("../../../Cargo.lock");
        let told = [
            #[cfg(feature = "fjall")]
            crate::fjall::VERSION,
            #[cfg(feature = "redb")]
            crate::redb::VERSION,
            #[cfg(feature = "sled")]
            crate::sled::VERSION,
        ];
        for version in told {
            let (name, number) = version.split_once(' ').expect("a name and a number");
            let locked = format!("name = \"{name}\"\nversion = \"{number}\"\n");
            assert!(lock.contains(&locked), "{version} is not what Cargo.lock has");
        }
    }
}
