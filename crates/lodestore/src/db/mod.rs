//! The handle of a store, with all operations as its own methods.
//!
//! ```
//! # fn main() -> lodestore::Result<()> {
//! # let dir = lodestore_contract::testing::Scratch::on_disk();
//! # let path = dir.path().join("state");
//! use lodestore::Db;
//!
//! let db = Db::builder(&path).capacity(64 << 20).open()?; // opens the store, or creates it
//! # if db.engine() == "nvht" {
//! #     return Ok(());
//! # }
//! db.put("user:17", "Ada")?;
//! if let Some(name) = db.get("user:17")? {
//!     assert_eq!(name, "Ada");
//! }
//! for pair in db.prefix("user:")? {
//!     let (key, value) = pair?;
//!     println!("{key:?} {value:?}");
//! }
//! # Ok(())
//! # }
//! ```

// Each of the first modules has a block of methods. Their order is the order of the blocks on the
// page of `Db` in the documentation. The empty lines keep rustfmt from sorting them.
mod open;

mod single_keys;

mod ranges;

mod names;

mod commits;

mod upkeep;

mod backup;

mod keyspace;

mod as_store;

mod batch;
mod builder;
mod engine;
mod iter;
mod page;
mod read_only;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;
mod transaction;
mod value;
mod view;
mod walk;

use std::fmt;
use std::sync::Arc;

use lodestore_contract::Store;

pub use batch::{Map, WriteBatch};
pub use builder::Builder;
pub use engine::Engine;
pub use iter::{Keys, Pairs};
pub use keyspace::Keyspace;
use keyspace::reclaim::Keyspaces;
pub use page::{Cursor, Page, ParseCursorError};
pub use transaction::Transaction;
pub use value::Value;
pub use view::View;

pub use crate::choice::Choice;
use crate::trace;

/// An open store. Clones share it, and may be used from any number of threads.
///
/// The last clone that is dropped closes the store cleanly. [`Db::close`] does the same and
/// reports errors. A process that is killed loses nothing that was acknowledged.
///
/// The operations on keys are those of the default keyspace, which has no name. Other keyspaces
/// ([`Db::keyspace`]) have keys of their own.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = lodestore_contract::testing::Scratch::on_disk();
/// # let path = dir.path().join("state");
/// use lodestore::Db;
///
/// let db = Db::open(&path)?; // opens the store, or creates it
/// let runs = match db.get("runs")? {
///     Some(text) => text.as_str()?.parse::<u64>()? + 1,
///     None => 1,
/// };
/// db.put("runs", runs.to_string())?; // survives `kill -9` from here on
///
/// let users = db.keyspace("users")?; // a map of its own in the same store
/// users.put("17", "Ada")?;
/// assert_eq!(db.get("17")?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Db {
    default: Keyspace,
}

/// The state of an open store, shared by all handles.
struct Shared {
    store: Arc<dyn Store>,
    choice: Choice,
    keyspaces: Arc<Keyspaces>,
    is_read_only: bool,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.keyspaces.stop();
        if !self.keyspaces.closes_store() {
            return;
        }
        // A drop cannot report an error. A store that cannot be closed stays as after a kill.
        let _ = trace::close(&*self.store, || self.store.close());
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("engine", &self.engine()).finish_non_exhaustive()
    }
}
