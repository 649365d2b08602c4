//! The commands of the server, by group. The documentation is generated from this table.

mod acl;
mod connection;
mod generic;
mod hashes;
mod operation;
mod pubsub;
mod server;
mod strings;
mod transactions;

use std::sync::LazyLock;

use super::spec::CommandSpec;

/// All commands, in the order of their names.
pub(crate) static COMMANDS: LazyLock<Vec<&'static CommandSpec>> = LazyLock::new(|| {
    let groups = [
        acl::COMMANDS,
        strings::COMMANDS,
        generic::COMMANDS,
        hashes::COMMANDS,
        connection::COMMANDS,
        server::COMMANDS,
        transactions::COMMANDS,
        pubsub::COMMANDS,
        operation::COMMANDS,
    ];
    let mut commands: Vec<&CommandSpec> = groups.into_iter().flatten().collect();
    commands.sort_by_key(|spec| spec.name);
    commands
});
