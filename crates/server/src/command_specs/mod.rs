//! The specifications of the commands: names, arities, keys, categories and texts.
//!
//! The handlers that run the commands are in `command`, which is above users, sessions and
//! statistics. All of them use the specifications.
//!
//! * `spec`: the specification of a command. `table`: the commands.
//! * `lookup`: commands by name. `subcommands`: the subcommands of commands that have some.
//! * `categories`: categories of commands.

pub(crate) mod categories;
pub(crate) mod lookup;
pub(crate) mod spec;
pub(crate) mod subcommands;
pub(crate) mod table;
