//! The end of other clients: `CLIENT KILL`, and the commands that change users.
//!
//! A killed client changes no key after the reply of the command that kills it:
//!
//! 1. The command sets the client's flag, and then locks each stripe once.
//! 2. A command that changes keys reads the flag of its client after it has locked its stripes.
//!    Either it sees the flag, or it commits before the killing command gets the stripe.
//!
//! The killed client's event loop is woken, and closes the connection without further replies.

use std::sync::Arc;

use super::arguments::is_word;
use super::context::Context;
use crate::client::PublicState;

/// Ends clients. The connection of the calling client is closed after its reply.
pub(super) fn kill_clients(context: &mut Context<'_, '_>, clients: &[Arc<PublicState>]) {
    let own = context.session.public.id;
    for client in clients {
        if client.id == own {
            context.session.closes = true;
        } else {
            context.shared.hub.post().kill(client);
        }
    }
    // `EXEC` holds all stripes already: see `may_kill`.
    if !clients.is_empty() && !context.access.holds_stripes() {
        context.shared.stripes.wait_for_holders();
    }
}

/// Whether a command may kill clients. A transaction with such a command holds all stripes.
pub(super) fn may_kill(arguments: &[&[u8]]) -> bool {
    let [name, subcommand, ..] = arguments else { return false };
    let kills: &[&str] = match () {
        () if is_word(name, "client") => &["kill"],
        () if is_word(name, "acl") => &["setuser", "deluser", "load"],
        () => &[],
    };
    kills.iter().any(|word| is_word(subcommand, word))
}
