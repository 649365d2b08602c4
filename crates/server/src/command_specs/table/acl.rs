//! Users and permissions.

use crate::command_specs::spec::{CommandKind, CommandSpec, Keys};

pub(super) static COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "acl",
    arity: -2,
    kind: CommandKind::Other,
    flags: 0,
    keys: Keys::None,
    group: "server",
    since: "6.0.0",
    syntax: "CAT | DELUSER | DRYRUN | GENPASS | GETUSER | LIST | LOAD | LOG | SAVE | SETUSER | USERS | WHOAMI",
    summary: "Reports and changes users and their permissions.",
}];
