//! The data of the server: databases, values with types, and isolation between commands.
//!
//! * `value`: a stored value with its type.
//! * `hash`: the records of hashes. `hash_editor`: changes of a hash.
//! * `collections`: the elements of large collections. `transfer`: their copies.
//! * `orphans`: the removal of elements that no key refers to.
//! * `census`: the numbers of keys, for `INFO`.
//! * `databases`: the numbered databases, which are keyspaces of the store.
//! * `stripes`: locks over keys, and the keys that clients watch.
//! * `effects`: changed keys and events, which a commit publishes.
//! * `cursors`: the positions of walks.
//! * `access`: the access of a command to keys, directly or within `EXEC`.

pub(crate) mod access;
pub(crate) mod census;
pub(crate) mod collections;
pub(crate) mod cursors;
pub(crate) mod databases;
pub(crate) mod effects;
pub(crate) mod hash;
pub(crate) mod hash_editor;
pub(crate) mod orphans;
pub(crate) mod stripes;
pub(crate) mod transfer;
pub(crate) mod value;
