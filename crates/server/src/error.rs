//! Errors of commands, with the texts that Redis sends.
//!
//! Clients and tools compare these texts, so the texts are those of Redis 7.0.

use std::borrow::Cow;

use lodestore::Error as StoreError;

/// Why a command failed. The text of the reply begins with the error's code.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The text of the reply.
    Text(Cow<'static, str>),
    /// An error of the store.
    Store(StoreError),
    /// A pause holds the command, which did nothing. No client receives the error: the command runs
    /// again after the pause.
    Held,
}

/// The result of a command. A command that succeeds has written its reply.
pub(crate) type CommandResult<T = ()> = Result<T, CommandError>;

pub(crate) const SYNTAX: CommandError = text("ERR syntax error");
pub(crate) const NOT_AN_INTEGER: CommandError = text("ERR value is not an integer or out of range");
pub(crate) const OUT_OF_RANGE: CommandError = text("ERR value is out of range");
/// The error for the only count whose negation is no count.
pub(crate) const COUNT_OUT_OF_RANGE: CommandError =
    text("ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807");
pub(crate) const NOT_A_FLOAT: CommandError = text("ERR value is not a valid float");
pub(crate) const OVERFLOW: CommandError = text("ERR increment or decrement would overflow");
pub(crate) const NAN_OR_INFINITY: CommandError = text("ERR increment would produce NaN or Infinity");
pub(crate) const WRONG_TYPE: CommandError = text("WRONGTYPE Operation against a key holding the wrong kind of value");
pub(crate) const NO_SUCH_KEY: CommandError = text("ERR no such key");
pub(crate) const STRING_TOO_LONG: CommandError = text("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
pub(crate) const REPLY_TOO_LONG: CommandError =
    text("ERR the reply exceeds reply-max-len: request less data at once, or raise the option");
pub(crate) const DATABASE_OUT_OF_RANGE: CommandError = text("ERR DB index is out of range");
/// The error of a command whose client was killed meanwhile. No client receives it.
pub(crate) const CLIENT_KILLED: CommandError = text("ERR the client was killed");
pub(crate) const SAME_OBJECT: CommandError = text("ERR source and destination objects are the same");

/// The error of `DEBUG` for a client that may not run it.
pub(crate) const DEBUG_REFUSED: CommandError = text(
    "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a \
     local connection, otherwise you need to set this option in the configuration file, and then restart the server.",
);

/// The error of a store that uses more bytes than it may.
pub(crate) const OUT_OF_MEMORY_ERROR: CommandError = text(OUT_OF_MEMORY);

/// Text of an error of a full store. Clients compare it.
const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// Most bytes of a key in the text of an error.
const SHOWN_KEY_BYTES_MAX: usize = 128;

const fn text(text: &'static str) -> CommandError {
    CommandError::Text(Cow::Borrowed(text))
}

impl CommandError {
    /// Returns an error with a text of the caller.
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Text(text.into())
    }

    /// Returns the error for an expiry that is not in the future or out of range.
    pub(crate) fn invalid_expiry(command: &str) -> Self {
        Self::new(format!("ERR invalid expire time in '{command}' command"))
    }

    /// Returns the error for a number of arguments that does not fit the command.
    pub(crate) fn wrong_arity(command: &str) -> Self {
        Self::new(format!("ERR wrong number of arguments for '{command}' command"))
    }

    /// Returns the error for an unknown subcommand.
    pub(crate) fn unknown_subcommand(command: &str, subcommand: &[u8]) -> Self {
        let (command, shown) = (command.to_ascii_uppercase(), String::from_utf8_lossy(subcommand));
        Self::new(format!("ERR unknown subcommand '{shown}'. Try {command} HELP."))
    }

    /// Returns the error for a subcommand with too many arguments, of the few whose number Redis
    /// checks late.
    pub(crate) fn unknown_subcommand_or_arity(command: &str, subcommand: &[u8]) -> Self {
        let (command, shown) = (command.to_ascii_uppercase(), String::from_utf8_lossy(subcommand));
        Self::new(format!("ERR unknown subcommand or wrong number of arguments for '{shown}'. Try {command} HELP."))
    }

    /// Whether a full store refused a write.
    pub(crate) fn is_of_full_store(&self) -> bool {
        matches!(self, Self::Store(error) if is_full(error))
    }

    /// Names the key of a record that cannot be read: the only one of `keys`, or the first one for
    /// which `is_damaged` holds.
    pub(crate) fn name_key<'a>(self, keys: impl Iterator<Item = &'a [u8]>, is_damaged: impl Fn(&[u8]) -> bool) -> Self {
        let Self::Store(StoreError::Corrupt { place, what, .. }) = &self else { return self };
        let keys: Vec<&[u8]> = keys.collect();
        let key = match keys[..] {
            [key] => Some(key),
            _ => keys.into_iter().find(|key| is_damaged(key)),
        };
        let Some(key) = key else { return self };
        let shown = key[..key.len().min(SHOWN_KEY_BYTES_MAX)].escape_ascii();
        Self::new(format!(
            "ERR the record of key '{shown}' is damaged ({place}: {what}): write or delete the key, or restore it from \
             a backup"
        ))
    }

    /// Returns the text of the reply.
    pub(crate) fn reply(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Store(error) => Cow::Owned(reply_of_store(error)),
            Self::Held => Cow::Borrowed("ERR clients are paused"),
        }
    }
}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Whether a write does not fit into the store.
fn is_full(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Full { .. }
            | StoreError::NoRoom { .. }
            | StoreError::IndexFull { .. }
            | StoreError::DramBudget { .. }
    )
}

fn reply_of_store(error: &StoreError) -> String {
    match error {
        error if is_full(error) => OUT_OF_MEMORY.into(),
        StoreError::Closed => "ERR the server is shutting down".into(),
        StoreError::Corrupt { place, what, .. } => format!(
            "ERR damaged data ({place}: {what}): stop the server, and run `lodestore verify` on the store for the \
             whole list"
        ),
        other => format!("ERR {other}"),
    }
}
