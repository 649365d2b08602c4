//! Checks whether a user may run a command.

use super::key_access::{self, KeyUse};
use super::selector::Selector;
use super::user::User;
use crate::command_specs::categories;
use crate::command_specs::lookup::{self, Entry, PermissionId};
use crate::command_specs::spec::{CommandSpec, flag};
use crate::command_specs::subcommands::SubcommandSpec;
use crate::glob;
use crate::messaging::channels::Kind;

/// A command that a client wants to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) spec: &'static CommandSpec,
    pub(crate) subcommand: Option<&'static SubcommandSpec>,
    pub(crate) id: PermissionId,
}

/// A denied access of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The command or subcommand with this name.
    Command(&'static str),
    /// A key.
    Key(Vec<u8>),
    /// A channel.
    Channel(Vec<u8>),
}

impl Denial {
    /// Returns the text of the error, without its code.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Command(name) => format!("this user has no permissions to run the '{name}' command"),
            Self::Key(_) => "this user has no permissions to access one of the keys used as arguments".into(),
            Self::Channel(_) => "this user has no permissions to access one of the channels used as arguments".into(),
        }
    }

    /// Returns the text that `ACL DRYRUN` answers.
    pub(crate) fn dry_run_text(&self) -> String {
        match self {
            Self::Command(name) => format!("This user has no permissions to run the '{name}' command"),
            Self::Key(key) => {
                format!("This user has no permissions to access the '{}' key", String::from_utf8_lossy(key))
            }
            Self::Channel(channel) => {
                format!("This user has no permissions to access the '{}' channel", String::from_utf8_lossy(channel))
            }
        }
    }

    /// Returns the reason that an error of `EXEC` gives.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Command(_) => "no permission to execute the command or subcommand",
            Self::Key(_) => "no permission to touch the specified keys",
            Self::Channel(_) => "no permission to access one of the channels used as arguments",
        }
    }

    /// Returns the order of denials: a user with selectors gets the greatest one.
    fn rank(&self) -> u8 {
        match self {
            Self::Command(_) => 0,
            Self::Key(_) => 1,
            Self::Channel(_) => 2,
        }
    }
}

impl Call {
    /// Returns the command that the arguments name. An unknown subcommand counts as none.
    pub(crate) fn new(entry: Entry, arguments: &[&[u8]]) -> Self {
        let name = arguments.get(1).filter(|_| !entry.subcommands.is_empty());
        let index = name
            .and_then(|name| entry.subcommands.iter().position(|sub| name.eq_ignore_ascii_case(sub.name().as_bytes())));
        match index {
            Some(index) => Self {
                spec: entry.spec,
                subcommand: Some(&entry.subcommands[index]),
                id: entry.first_subcommand + index,
            },
            None => Self { spec: entry.spec, subcommand: None, id: entry.id },
        }
    }

    /// Returns the name of the command, with the subcommand.
    pub(crate) fn name(&self) -> &'static str {
        lookup::name_of(self.id)
    }

    /// Whether the command or the subcommand is for administrators.
    pub(crate) fn is_for_administrators(&self) -> bool {
        match self.subcommand {
            Some(subcommand) => subcommand.categories & categories::bit::ADMIN != 0,
            None => self.spec.has(flag::ADMIN),
        }
    }

    /// Whether the command accepts this number of arguments, its name included.
    pub(crate) fn accepts(&self, arguments: usize) -> bool {
        match self.subcommand {
            Some(subcommand) => subcommand.accepts(arguments),
            None => self.spec.accepts(arguments),
        }
    }
}

/// Checks whether a user may run a command with these arguments.
///
/// # Errors
///
/// [`Denial`] with the denied part.
pub(crate) fn check_call(user: &User, call: &Call, arguments: &[&[u8]]) -> Result<(), Denial> {
    if user.is_unrestricted() {
        return Ok(());
    }
    any_selector(user, |selector| check_selector(selector, call, arguments))
}

/// Whether a user may have a subscription, by any of its selectors.
pub(crate) fn permits_subscription(user: &User, kind: Kind, name: &[u8]) -> bool {
    let channels = Channels { names: &[name], are_patterns: kind == Kind::Pattern };
    user.all_selectors().any(|selector| check_channels(selector, &channels).is_ok())
}

/// Returns success if one of the selectors permits everything, else the most relevant denial.
fn any_selector(user: &User, mut check: impl FnMut(&Selector) -> Result<(), Denial>) -> Result<(), Denial> {
    let mut worst: Option<Denial> = None;
    for selector in user.all_selectors() {
        match check(selector) {
            Ok(()) => return Ok(()),
            Err(denial) if worst.as_ref().is_none_or(|worst| denial.rank() > worst.rank()) => worst = Some(denial),
            Err(_) => {}
        }
    }
    worst.map_or(Ok(()), Err)
}

fn check_selector(selector: &Selector, call: &Call, arguments: &[&[u8]]) -> Result<(), Denial> {
    let is_permitted = selector.permits(call.id)
        || call.spec.has(flag::NO_AUTH)
        || selector.permits_first_argument(call.id, arguments.get(1));
    if !is_permitted {
        return Err(Denial::Command(call.name()));
    }
    if !selector.has_all_keys {
        if key_access::needs_all_keys(call) {
            return Err(Denial::Key(arguments.get(1).map(|key| key.to_vec()).unwrap_or_default()));
        }
        let mut keys = key_access::keys_of(call, arguments).chain(key_access::described_key(call, arguments));
        if let Some(denied) = keys.find(|key| !permits_key(selector, *key)) {
            return Err(Denial::Key(denied.key.to_vec()));
        }
    }
    check_channels(selector, &channels_of(call.spec.name, arguments))
}

/// The channels of a command.
#[derive(Debug, Clone, Copy)]
struct Channels<'a> {
    names: &'a [&'a [u8]],
    /// Whether the names are patterns. A pattern must equal a permitted one.
    are_patterns: bool,
}

/// Returns the channels of a command by its name. Most commands have none.
fn channels_of<'a>(command: &str, arguments: &'a [&'a [u8]]) -> Channels<'a> {
    let names = match command {
        "publish" | "spublish" => arguments.get(1..2),
        "subscribe" | "ssubscribe" | "psubscribe" => arguments.get(1..),
        _ => None,
    };
    Channels { names: names.unwrap_or_default(), are_patterns: command == "psubscribe" }
}

fn check_channels(selector: &Selector, channels: &Channels<'_>) -> Result<(), Denial> {
    if selector.has_all_channels {
        return Ok(());
    }
    let is_permitted = |channel: &[u8]| {
        let is_match = |pattern: &Vec<u8>| {
            if channels.are_patterns { pattern == channel } else { glob::matches(pattern, channel) }
        };
        selector.channels.iter().any(is_match)
    };
    match channels.names.iter().find(|channel| !is_permitted(channel)) {
        Some(channel) => Err(Denial::Channel(channel.to_vec())),
        None => Ok(()),
    }
}

fn permits_key(selector: &Selector, used: KeyUse<'_>) -> bool {
    selector
        .keys
        .iter()
        .any(|known| known.access & used.access == used.access && glob::matches(&known.pattern, used.key))
}

#[cfg(test)]
mod tests {
    use super::super::rules::apply_rules;
    use super::*;

    fn user(rules: &[&str]) -> User {
        let rules: Vec<&[u8]> = rules.iter().map(|rule| rule.as_bytes()).collect();
        apply_rules(&User::new("u", 1), &rules).expect("valid rules")
    }

    #[test]
    fn a_channel_is_permitted_by_a_pattern_and_a_pattern_by_itself() {
        let user = user(&["&news.*"]);
        let check = |words: &[&[u8]]| {
            let command = String::from_utf8_lossy(words[0]);
            check_channels(&user.root, &channels_of(&command, words))
        };
        assert_eq!(check(&[b"subscribe", b"news.a"]), Ok(()));
        assert_eq!(check(&[b"subscribe", b"news.a", b"x"]), Err(Denial::Channel(b"x".to_vec())));
        assert_eq!(check(&[b"publish", b"news.a", b"x"]), Ok(()));
        assert_eq!(check(&[b"publish", b"x", b"news.a"]), Err(Denial::Channel(b"x".to_vec())));
        assert_eq!(check(&[b"psubscribe", b"news.*"]), Ok(()));
        assert_eq!(check(&[b"psubscribe", b"news.a*"]), Err(Denial::Channel(b"news.a*".to_vec())));
        assert_eq!(check(&[b"unsubscribe", b"x"]), Ok(()));
        assert_eq!(check(&[b"get", b"x"]), Ok(()));
    }

    #[test]
    fn one_selector_must_permit_command_and_keys_together() {
        let user = user(&["+get", "~a", "(+set ~b)"]);
        let check = |words: &[&[u8]]| {
            let entry = lookup::find_entry(words[0]).expect("a command");
            check_call(&user, &Call::new(entry, words), words)
        };
        assert_eq!(check(&[b"get", b"a"]), Ok(()));
        assert_eq!(check(&[b"set", b"b", b"1"]), Ok(()));
        assert_eq!(check(&[b"set", b"a", b"1"]), Err(Denial::Key(b"a".to_vec())));
        assert_eq!(check(&[b"get", b"b"]), Err(Denial::Key(b"b".to_vec())));
        assert_eq!(check(&[b"del", b"b"]), Err(Denial::Command("del")));
    }
}
