//! The context of a command: the server, its client, the keys, and its reply.

use lodestore::Expiry;
use lodestore_wire::ReplyWriter;

use crate::data::access::Access;
use crate::data::value::Stored;
use crate::error::{CommandError, CommandResult, WRONG_TYPE};
use crate::keyspace_events::class;
use crate::session::Session;
use crate::shared::Shared;

/// The context of a command.
#[derive(Debug)]
pub(crate) struct Context<'a, 'b> {
    pub(crate) shared: &'a Shared,
    pub(crate) session: &'b mut Session,
    pub(crate) access: &'b mut Access<'a>,
    pub(crate) reply: ReplyWriter<'b>,
}

impl Context<'_, '_> {
    /// Returns the number of the client's database.
    pub(crate) fn database(&self) -> usize {
        self.session.database
    }

    /// Calls `read` with the string of a key, if the key exists.
    ///
    /// # Errors
    ///
    /// `WRONGTYPE` if the key is no string; those of the store.
    pub(crate) fn read_string<T>(&self, key: &[u8], read: impl FnOnce(Option<&[u8]>) -> T) -> CommandResult<T> {
        self.access.read(self.session.database, key, |stored| Ok(read(string_of(stored)?)))?
    }

    /// Notes an event of a key of the client's database: its class, a bit of
    /// [`crate::keyspace_events::class`], and its name. The server publishes the event after the
    /// commit.
    pub(crate) fn notify(&mut self, class: u32, name: &'static str, key: &[u8]) {
        self.notify_in(self.session.database, class, name, key);
    }

    /// As [`Self::notify`], for a key of another database.
    pub(crate) fn notify_in(&mut self, database: usize, class: u32, name: &'static str, key: &[u8]) {
        self.access.effects.note_event(class, name, database, key);
    }

    /// Notes the event of a read of an absent key.
    pub(crate) fn notify_miss(&mut self, key: &[u8], is_hit: bool) {
        if !is_hit {
            self.notify(class::MISS, "keymiss", key);
        }
    }

    /// Counts a lookup of a key.
    pub(crate) fn count_lookup(&mut self, is_hit: bool) {
        self.count_lookups(u64::from(is_hit), u64::from(!is_hit));
    }

    /// Counts lookups of several keys.
    pub(crate) fn count_lookups(&mut self, hits: u64, misses: u64) {
        let lookups = &mut self.session.lookups;
        lookups.hits += hits;
        lookups.misses += misses;
    }

    /// Writes the string of a key, or its absence.
    ///
    /// # Errors
    ///
    /// As [`Self::read_string`].
    pub(crate) fn write_string_of(&mut self, key: &[u8]) -> CommandResult {
        let database = self.session.database;
        let reply = &mut self.reply;
        let is_hit = self.access.read(database, key, |stored| {
            let string = string_of(stored)?;
            match string {
                Some(string) => reply.write_bulk(string),
                None => reply.write_null(),
            }
            Ok::<_, CommandError>(string.is_some())
        })??;
        self.count_lookup(is_hit);
        self.notify_miss(key, is_hit);
        Ok(())
    }

    /// Returns the expiry of a key. The outer `None` means that there is no key.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn expiry_of(&self, key: &[u8]) -> CommandResult<Option<Option<Expiry>>> {
        Ok(self.access.expiry(self.session.database, key)?)
    }
}

/// Returns the string of a stored value.
///
/// # Errors
///
/// `WRONGTYPE` if the value is no string.
pub(crate) fn string_of(stored: Option<&[u8]>) -> CommandResult<Option<&[u8]>> {
    match stored.map(Stored::parse) {
        None => Ok(None),
        Some(Stored::String(string)) => Ok(Some(string)),
        Some(Stored::Hash(_) | Stored::Unknown) => Err(WRONG_TYPE),
    }
}
