//! The specification of a command.

/// The positions of a command's keys among its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// The command has no keys.
    None,
    /// One key, as argument 1.
    One,
    /// Two keys, as arguments 1 and 2.
    Two,
    /// All arguments are keys.
    All,
    /// Keys and values alternate.
    Pairs,
    /// The command may touch any key of any database.
    Everything,
}

impl Keys {
    /// Returns the first key, the last key (negative: from the end) and the step, as `COMMAND`
    /// reports them.
    pub(crate) fn positions(self) -> (i64, i64, i64) {
        match self {
            Self::None | Self::Everything => (0, 0, 0),
            Self::One => (1, 1, 1),
            Self::Two => (1, 2, 1),
            Self::All => (1, -1, 1),
            Self::Pairs => (1, -1, 2),
        }
    }

    /// Iterates over the keys of a command.
    pub(crate) fn of<'a>(self, arguments: &'a [&'a [u8]]) -> impl Iterator<Item = &'a [u8]> + Clone {
        let (end, step) = match self {
            Self::None | Self::Everything => (1, 1),
            Self::One => (2, 1),
            Self::Two => (3, 1),
            Self::All => (arguments.len(), 1),
            Self::Pairs => (arguments.len(), 2),
        };
        let end = end.min(arguments.len());
        arguments[1.min(end)..end].iter().step_by(step).copied()
    }
}

/// The effect of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandKind {
    /// Reads keys.
    Read,
    /// Changes keys. The command holds their stripes.
    Write,
    /// Touches no key.
    Other,
}

/// Properties of a command, as bits.
pub(crate) mod flag {
    /// The command may need more space.
    pub(crate) const DENY_OOM: u16 = 1;
    /// The command has constant time.
    pub(crate) const FAST: u16 = 1 << 1;
    /// The command is for administrators.
    pub(crate) const ADMIN: u16 = 1 << 2;
    /// The command cannot be queued by `MULTI`.
    pub(crate) const NO_MULTI: u16 = 1 << 3;
    /// The command runs before the client has authenticated.
    pub(crate) const NO_AUTH: u16 = 1 << 4;
    /// `MULTI` does not queue the command but runs it.
    pub(crate) const CONTROLS_TRANSACTION: u16 = 1 << 5;
    /// The command changes several keys as one step.
    pub(crate) const SEVERAL_WRITES: u16 = 1 << 6;
}

/// Whether a number of arguments, with the name, fits an arity.
pub(crate) fn is_arity_met(arity: i32, arguments: usize) -> bool {
    match usize::try_from(arity) {
        Ok(exact) => arguments == exact,
        Err(_) => arguments >= arity.unsigned_abs() as usize,
    }
}

/// The specification of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandSpec {
    /// Name in lower case.
    pub(crate) name: &'static str,
    /// Number of arguments with the name. A negative number is a minimum.
    pub(crate) arity: i32,
    pub(crate) kind: CommandKind,
    /// Bits of [`flag`].
    pub(crate) flags: u16,
    pub(crate) keys: Keys,
    /// Group of the command in the documentation.
    pub(crate) group: &'static str,
    /// First version of Redis with the command.
    pub(crate) since: &'static str,
    /// Arguments, in words.
    pub(crate) syntax: &'static str,
    /// A summary of one sentence.
    pub(crate) summary: &'static str,
}

impl CommandSpec {
    /// Whether a command accepts this number of arguments, its name included.
    pub(crate) fn accepts(&self, arguments: usize) -> bool {
        is_arity_met(self.arity, arguments)
    }

    /// Whether the command has a property.
    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}
