//! `ACL`: users, permissions and denials.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::arguments::{integer, is_word};
use super::context::Context;
use super::keys::write_help;
use super::kill::kill_clients;
use crate::acl::check::{Call, check_call, permits_subscription};
use crate::acl::log::LogEntry;
use crate::acl::password;
use crate::acl::user::{DEFAULT_USER, User};
use crate::client::ClientId;
use crate::command_specs::categories;
use crate::command_specs::lookup;
use crate::error::{CommandError, CommandResult};

/// Entries that `ACL LOG` shows if the client does not say.
const LOG_COUNT: usize = 10;

/// Bits of a generated password if the client does not say.
const PASSWORD_BITS: i64 = 256;

/// Most bits of a generated password.
const PASSWORD_BITS_MAX: i64 = 4096;

/// Longest name of a user in bytes.
const NAME_BYTES_MAX: usize = 1024;

const HELP: [&str; 13] = [
    "ACL CAT [category]",
    "ACL DELUSER username [username ...]",
    "ACL DRYRUN username command [argument ...]",
    "ACL GENPASS [bits]",
    "ACL GETUSER username",
    "ACL LIST",
    "ACL LOAD",
    "ACL LOG [count | RESET]",
    "ACL SAVE",
    "ACL SETUSER username [rule ...]",
    "ACL USERS",
    "ACL WHOAMI",
    "ACL HELP",
];

/// `ACL subcommand [arguments]`
pub(crate) fn acl(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let rest = &arguments[2..];
    match (arguments[1].to_ascii_lowercase().as_slice(), rest) {
        (b"whoami", []) => context.reply.write_bulk(context.session.user.name.as_bytes()),
        (b"users", []) => {
            let users = context.shared.acl.all_users();
            context.reply.write_array(users.len());
            users.iter().for_each(|user| context.reply.write_bulk(user.name.as_bytes()));
        }
        (b"list", []) => {
            let users = context.shared.acl.all_users();
            context.reply.write_array(users.len());
            users.iter().for_each(|user| context.reply.write_bulk(&user.describe()));
        }
        (b"getuser", [name]) => write_user(context, name),
        (b"setuser", [name, rules @ ..]) => set_user(context, name, rules)?,
        (b"deluser", names) => delete_users(context, names)?,
        (b"cat", []) => {
            context.reply.write_array(categories::NAMES.len());
            categories::NAMES.iter().for_each(|name| context.reply.write_bulk(name.as_bytes()));
        }
        (b"cat", [category]) => write_category(context, category)?,
        (b"genpass", []) => generate_password(context, PASSWORD_BITS)?,
        (b"genpass", [bits]) => {
            let bits = integer(bits)?;
            generate_password(context, bits)?;
        }
        (b"dryrun", [user, command @ ..]) => dry_run(context, user, command)?,
        (b"log", options @ ([] | [_])) => log(context, options.first().copied())?,
        (b"save", []) => {
            context.shared.acl.save().map_err(CommandError::new)?;
            context.reply.write_ok();
        }
        (b"load", []) => {
            let before = context.shared.acl.all_users();
            context.shared.acl.load().map_err(CommandError::new)?;
            close_forbidden_clients(context, &before);
            context.reply.write_ok();
        }
        (b"help", []) => write_help(context, &HELP)?,
        (known, _) if lookup::permission_name(&format!("acl|{}", String::from_utf8_lossy(known))).is_some() => {
            let shown = String::from_utf8_lossy(arguments[1]);
            return Err(CommandError::new(format!(
                "ERR unknown subcommand or wrong number of arguments for '{shown}'. Try ACL HELP."
            )));
        }
        _ => return Err(CommandError::unknown_subcommand("acl", arguments[1])),
    }
    Ok(())
}

fn set_user(context: &mut Context<'_, '_>, name: &[u8], rules: &[&[u8]]) -> CommandResult {
    if name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
        return Err(CommandError::new("ERR Usernames can't contain spaces or null characters"));
    }
    let name = std::str::from_utf8(name).ok().filter(|name| name.len() <= NAME_BYTES_MAX);
    let name = name.ok_or(CommandError::new("ERR a username must be UTF-8 and at most 1024 bytes long"))?;
    let before: Vec<Arc<User>> = context.shared.acl.user(name.as_bytes()).into_iter().collect();
    context.shared.acl.set_user(name, rules).map_err(CommandError::new)?;
    // Most changes forbid no subscription.
    let user = context.shared.acl.user(name.as_bytes());
    if user.is_some_and(|user| before.iter().any(|before| user.has_lost_channels(before))) {
        close_forbidden_clients(context, &before);
    }
    context.reply.write_ok();
    Ok(())
}

fn delete_users(context: &mut Context<'_, '_>, names: &[&[u8]]) -> CommandResult {
    if names.contains(&DEFAULT_USER.as_bytes()) {
        return Err(CommandError::new("ERR The 'default' user cannot be removed"));
    }
    let count = context.shared.acl.delete_users(names);
    close_forbidden_clients(context, &[]);
    context.reply.write_integer(i64::try_from(count).unwrap_or(i64::MAX));
    Ok(())
}

/// Closes the connections whose user no longer exists, and those with a subscription that the rules
/// of their user no longer permit. `before` are the users before the change.
fn close_forbidden_clients(context: &mut Context<'_, '_>, before: &[Arc<User>]) {
    let present: HashMap<String, Arc<User>> =
        context.shared.acl.all_users().into_iter().map(|user| (user.name.clone(), user)).collect();
    let has_lost_channels = |user: &Arc<User>| {
        before.iter().any(|before| before.identity == user.identity && user.has_lost_channels(before))
    };
    let narrowed: HashSet<u64> =
        present.values().filter(|user| has_lost_channels(user)).map(|user| user.identity).collect();
    let mut closed = Vec::new();
    let mut suspects: HashMap<ClientId, &User> = HashMap::new();
    for client in context.shared.all_clients() {
        let (name, identity) = client.with_details(|details| (details.user.clone(), details.user_identity));
        let name = if name.is_empty() { DEFAULT_USER } else { &name };
        match present.get(name).filter(|user| user.identity == identity) {
            Some(user) if narrowed.contains(&identity) => {
                suspects.insert(client.id, user);
            }
            Some(_) => {}
            None => closed.push(client),
        }
    }
    if !suspects.is_empty() {
        closed.extend(context.shared.hub.channels.subscribers(|client, kind, name| {
            suspects.get(&client).is_some_and(|user| !permits_subscription(user, kind, name))
        }));
    }
    kill_clients(context, &closed);
}

fn write_user(context: &mut Context<'_, '_>, name: &[u8]) {
    let Some(user) = context.shared.acl.user(name) else {
        context.reply.write_null();
        return;
    };
    let reply = &mut context.reply;
    reply.write_map(6);
    reply.write_bulk(b"flags");
    let flags = user.flags();
    reply.write_set(flags.len());
    flags.iter().for_each(|flag| reply.write_bulk(flag.as_bytes()));
    reply.write_bulk(b"passwords");
    reply.write_array(user.passwords.len());
    user.passwords.iter().for_each(|hash| reply.write_bulk(hash.as_bytes()));
    write_selector(context, &user, 0);
    context.reply.write_bulk(b"selectors");
    context.reply.write_array(user.selectors.len());
    for index in 1..=user.selectors.len() {
        context.reply.write_map(3);
        write_selector(context, &user, index);
    }
}

/// Writes the three fields of a selector.
fn write_selector(context: &mut Context<'_, '_>, user: &User, index: usize) {
    let Some(selector) = user.all_selectors().nth(index) else { return };
    let fields: [(&[u8], Vec<u8>); 3] = [
        (b"commands", selector.describe_commands().into_bytes()),
        (b"keys", selector.describe_keys()),
        (b"channels", selector.describe_channels()),
    ];
    for (name, value) in fields {
        context.reply.write_bulk(name);
        context.reply.write_bulk(&value);
    }
}

fn write_category(context: &mut Context<'_, '_>, category: &[u8]) -> CommandResult {
    let name = String::from_utf8_lossy(category);
    let category =
        categories::find(&name).ok_or_else(|| CommandError::new(format!("ERR Unknown category '{name}'")))?;
    let ids: Vec<_> = lookup::ids_in_category(category).collect();
    context.reply.write_array(ids.len());
    ids.iter().for_each(|id| context.reply.write_bulk(lookup::name_of(*id).as_bytes()));
    Ok(())
}

fn generate_password(context: &mut Context<'_, '_>, bits: i64) -> CommandResult {
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(CommandError::new(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
        ));
    }
    let password = password::generate(usize::try_from(bits).unwrap_or(0))
        .map_err(|error| CommandError::new(format!("ERR the system returned no random bytes: {error}")))?;
    context.reply.write_bulk(password.as_bytes());
    Ok(())
}

/// Answers whether a user may run a command, without running it.
fn dry_run(context: &mut Context<'_, '_>, user: &[u8], command: &[&[u8]]) -> CommandResult {
    let name = String::from_utf8_lossy(user);
    let user =
        context.shared.acl.user(user).ok_or_else(|| CommandError::new(format!("ERR User '{name}' not found")))?;
    let shown = command.first().map(|name| String::from_utf8_lossy(name)).unwrap_or_default();
    let not_found = || CommandError::new(format!("ERR Command '{shown}' not found"));
    let entry = command.first().and_then(|name| lookup::find_entry(name)).ok_or_else(not_found)?;
    let call = Call::new(entry, command);
    if call.subcommand.is_none() && !entry.subcommands.is_empty() && command.len() > 1 {
        return Err(not_found());
    }
    if !call.accepts(command.len()) {
        return Err(CommandError::wrong_arity(call.name()));
    }
    match check_call(&user, &call, command) {
        Ok(()) => context.reply.write_ok(),
        Err(denial) => context.reply.write_bulk(denial.dry_run_text().as_bytes()),
    }
    Ok(())
}

fn log(context: &mut Context<'_, '_>, option: Option<&[u8]>) -> CommandResult {
    let count = match option {
        Some(word) if is_word(word, "reset") => {
            context.shared.acl.log.clear();
            context.reply.write_ok();
            return Ok(());
        }
        Some(count) => usize::try_from(integer(count)?).unwrap_or(0),
        None => LOG_COUNT,
    };
    let entries = context.shared.acl.log.newest(count);
    context.reply.write_array(entries.len());
    entries.iter().for_each(|entry| write_entry(context, entry));
    Ok(())
}

fn write_entry(context: &mut Context<'_, '_>, entry: &LogEntry) {
    let reply = &mut context.reply;
    reply.write_map(7);
    reply.write_bulk(b"count");
    reply.write_integer(i64::try_from(entry.count).unwrap_or(i64::MAX));
    let fields: [(&str, &[u8]); 4] = [
        ("reason", entry.reason.as_bytes()),
        ("context", entry.context.as_bytes()),
        ("object", &entry.object),
        ("username", &entry.user),
    ];
    for (name, value) in fields {
        reply.write_bulk(name.as_bytes());
        reply.write_bulk(value);
    }
    reply.write_bulk(b"age-seconds");
    reply.write_double(&format!("{:.3}", entry.created.elapsed().as_secs_f64()));
    reply.write_bulk(b"client-info");
    reply.write_bulk(entry.client.as_bytes());
}
