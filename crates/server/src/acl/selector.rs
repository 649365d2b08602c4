//! A selector: commands, keys and channels that a user may use together.

use std::collections::BTreeMap;

use super::key_access::{Access, READ, WRITE};
use super::rules::RuleError;
use crate::command_specs::categories;
use crate::command_specs::lookup::{self, PermissionId};

/// A pattern of keys, and the rights on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyPattern {
    pub(crate) pattern: Vec<u8>,
    pub(crate) access: Access,
}

/// A rule on commands, as it was given. The rules are applied in order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CommandRule {
    is_allowed: bool,
    target: Target,
}

/// The target of a rule on commands.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Category(u32),
    /// A command with all of its subcommands, or one subcommand.
    Command(&'static str),
    /// A command with this first argument.
    FirstArgument(&'static str, String),
}

/// Commands, keys and channels that a user may use together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Selector {
    /// Whether all commands are permitted that no rule forbids.
    begins_with_all: bool,
    rules: Vec<CommandRule>,
    /// A bit for each permitted command and subcommand. Derived from the rules.
    permitted: Vec<u64>,
    /// First arguments with which a command is permitted. Derived from the rules.
    first_arguments: BTreeMap<PermissionId, Vec<String>>,
    pub(crate) keys: Vec<KeyPattern>,
    pub(crate) has_all_keys: bool,
    pub(crate) channels: Vec<Vec<u8>>,
    pub(crate) has_all_channels: bool,
}

impl Selector {
    /// Returns a selector that permits nothing.
    pub(crate) fn new() -> Self {
        let mut selector = Self::default();
        selector.derive();
        selector
    }

    /// Returns a selector that permits everything.
    pub(crate) fn unrestricted() -> Self {
        let mut selector = Self { has_all_keys: true, has_all_channels: true, ..Self::default() };
        selector.permit_all(true);
        selector
    }

    /// Whether the selector permits everything.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.begins_with_all && self.rules.is_empty() && self.has_all_keys && self.has_all_channels
    }

    /// Whether both selectors permit the same. Their rules may differ.
    pub(crate) fn has_same_permissions(&self, other: &Self) -> bool {
        let normal = |selector: &Self| Self { begins_with_all: false, rules: Vec::new(), ..selector.clone() };
        normal(self) == normal(other)
    }

    /// Whether the selector permits a command or a subcommand.
    pub(crate) fn permits(&self, id: PermissionId) -> bool {
        self.permitted.get(id / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    /// Whether the selector permits a command with this first argument.
    pub(crate) fn permits_first_argument(&self, id: PermissionId, argument: Option<&&[u8]>) -> bool {
        let Some(argument) = argument else { return false };
        let allowed = self.first_arguments.get(&id);
        allowed.is_some_and(|allowed| allowed.iter().any(|allowed| argument.eq_ignore_ascii_case(allowed.as_bytes())))
    }

    /// Applies a rule on commands, keys or channels.
    ///
    /// # Errors
    ///
    /// [`RuleError`]. The selector may have changed then.
    pub(crate) fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule.to_ascii_lowercase().as_slice() {
            b"allkeys" | b"~*" => {
                self.has_all_keys = true;
                self.keys.clear();
            }
            b"resetkeys" => {
                self.has_all_keys = false;
                self.keys.clear();
            }
            b"allchannels" | b"&*" => {
                self.has_all_channels = true;
                self.channels.clear();
            }
            b"resetchannels" => {
                self.has_all_channels = false;
                self.channels.clear();
            }
            b"allcommands" | b"+@all" => self.permit_all(true),
            b"nocommands" | b"-@all" => self.permit_all(false),
            _ => match rule {
                [b'~', pattern @ ..] => self.add_keys(pattern, READ | WRITE)?,
                [b'%', rest @ ..] => {
                    let (access, pattern) = parse_rights(rest)?;
                    self.add_keys(pattern, access)?;
                }
                [b'&', pattern @ ..] => self.add_channels(pattern)?,
                [sign @ (b'+' | b'-'), name @ ..] => self.add_command_rule(*sign == b'+', name)?,
                _ => return Err(RuleError::Syntax),
            },
        }
        Ok(())
    }

    fn add_keys(&mut self, pattern: &[u8], access: Access) -> Result<(), RuleError> {
        if has_whitespace(pattern) {
            return Err(RuleError::Syntax);
        }
        if self.has_all_keys {
            return Err(RuleError::KeysAfterAll);
        }
        match self.keys.iter_mut().find(|known| known.pattern == pattern) {
            Some(known) => known.access |= access,
            None => self.keys.push(KeyPattern { pattern: pattern.to_vec(), access }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if has_whitespace(pattern) {
            return Err(RuleError::Syntax);
        }
        if self.has_all_channels {
            return Err(RuleError::ChannelsAfterAll);
        }
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    fn permit_all(&mut self, is_allowed: bool) {
        self.begins_with_all = is_allowed;
        self.rules.clear();
        self.derive();
    }

    fn add_command_rule(&mut self, is_allowed: bool, name: &[u8]) -> Result<(), RuleError> {
        let name = std::str::from_utf8(name).map_err(|_| RuleError::UnknownCommand)?;
        let target = parse_target(is_allowed, name)?;
        self.rules.retain(|rule| !target.covers(&rule.target));
        self.derive();
        let without = (self.permitted.clone(), self.first_arguments.clone());
        self.rules.push(CommandRule { is_allowed, target });
        self.derive();
        // A rule that changes nothing is not kept.
        if (&self.permitted, &self.first_arguments) == (&without.0, &without.1) {
            self.rules.pop();
        }
        Ok(())
    }

    /// Computes the permitted commands from the rules.
    fn derive(&mut self) {
        let count = lookup::permission_count();
        let all = if self.begins_with_all { u64::MAX } else { 0 };
        self.permitted = vec![all; count.div_ceil(64)];
        self.first_arguments.clear();
        for rule in &self.rules {
            match &rule.target {
                Target::Category(category) => {
                    for id in lookup::ids_in_category(*category) {
                        set_bit(&mut self.permitted, id, rule.is_allowed);
                        self.first_arguments.remove(&id);
                    }
                }
                Target::Command(name) => {
                    for id in lookup::ids_of(name) {
                        set_bit(&mut self.permitted, id, rule.is_allowed);
                        self.first_arguments.remove(&id);
                    }
                }
                Target::FirstArgument(name, argument) => {
                    for id in lookup::ids_of(name).take(1) {
                        self.first_arguments.entry(id).or_default().push(argument.clone());
                    }
                }
            }
        }
    }

    /// Returns the rules on commands, as `ACL LIST` shows them.
    pub(crate) fn describe_commands(&self) -> String {
        let mut text = String::from(if self.begins_with_all { "+@all" } else { "-@all" });
        for rule in &self.rules {
            text.push_str(if rule.is_allowed { " +" } else { " -" });
            match &rule.target {
                Target::Category(category) => {
                    text.push('@');
                    text.extend(categories::names_of(*category));
                }
                Target::Command(name) => text.push_str(name),
                Target::FirstArgument(name, argument) => {
                    text.push_str(name);
                    text.push('|');
                    text.push_str(argument);
                }
            }
        }
        text
    }

    /// Returns the patterns of keys with their rights, separated by spaces.
    pub(crate) fn describe_keys(&self) -> Vec<u8> {
        if self.has_all_keys {
            return b"~*".to_vec();
        }
        let texts = self.keys.iter().map(|known| {
            let rights: &[u8] = match known.access {
                READ => b"%R~",
                WRITE => b"%W~",
                _ => b"~",
            };
            [rights, &known.pattern].concat()
        });
        texts.collect::<Vec<_>>().join(&b' ')
    }

    /// Returns the patterns of channels, separated by spaces.
    pub(crate) fn describe_channels(&self) -> Vec<u8> {
        if self.has_all_channels {
            return b"&*".to_vec();
        }
        self.channels.iter().map(|pattern| [b"&", pattern.as_slice()].concat()).collect::<Vec<_>>().join(&b' ')
    }

    /// Returns the rules of the selector, as `ACL LIST` shows them.
    pub(crate) fn describe(&self) -> Vec<u8> {
        let mut parts = vec![self.describe_keys()];
        if !self.has_all_channels {
            parts.push(b"resetchannels".to_vec());
        }
        parts.push(self.describe_channels());
        parts.push(self.describe_commands().into_bytes());
        parts.retain(|part| !part.is_empty());
        parts.join(&b' ')
    }
}

impl Target {
    /// Whether a rule on this target replaces an earlier rule on the other.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Command(name), Self::Command(other)) => {
                other.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'))
            }
            (Self::Command(name), Self::FirstArgument(other, _)) => name == other,
            (left, right) => left == right,
        }
    }
}

fn set_bit(words: &mut [u64], id: PermissionId, is_set: bool) {
    if let Some(word) = words.get_mut(id / 64) {
        let bit = 1 << (id % 64);
        if is_set {
            *word |= bit;
        } else {
            *word &= !bit;
        }
    }
}

fn has_whitespace(pattern: &[u8]) -> bool {
    pattern.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0)
}

/// Reads `R`, `W` or both, and the pattern after `~`.
fn parse_rights(text: &[u8]) -> Result<(Access, &[u8]), RuleError> {
    let mut access = 0;
    let mut rest = text;
    loop {
        let right = match rest.first().map(u8::to_ascii_uppercase) {
            Some(b'R') => READ,
            Some(b'W') => WRITE,
            Some(b'~') if access != 0 => return Ok((access, &rest[1..])),
            None if access != 0 => return Ok((access, rest)),
            _ => return Err(RuleError::Syntax),
        };
        if access & right != 0 {
            return Err(RuleError::Syntax);
        }
        access |= right;
        rest = &rest[1..];
    }
}

/// Reads the name of a category, a command, a subcommand, or a command with its first argument.
fn parse_target(is_allowed: bool, name: &str) -> Result<Target, RuleError> {
    if let Some(category) = name.strip_prefix('@') {
        return categories::find(category).map(Target::Category).ok_or(RuleError::UnknownCommand);
    }
    if let Some(known) = lookup::permission_name(name) {
        return Ok(Target::Command(known));
    }
    let (command, argument) = name.split_once('|').ok_or(RuleError::UnknownCommand)?;
    let known = lookup::permission_name(command).ok_or(RuleError::UnknownCommand)?;
    let has_subcommands = lookup::ids_of(known).nth(1).is_some();
    if has_subcommands || !is_allowed || argument.contains('|') {
        return Err(RuleError::UnknownCommand);
    }
    if argument.is_empty() || has_whitespace(argument.as_bytes()) {
        return Err(RuleError::Syntax);
    }
    Ok(Target::FirstArgument(known, argument.to_ascii_lowercase()))
}
