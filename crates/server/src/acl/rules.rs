//! The rules of `ACL SETUSER`, and their errors with the texts of Redis 7.0.

use super::password;
use super::selector::Selector;
use super::user::User;

/// Why a rule is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleError {
    Syntax,
    UnknownCommand,
    KeysAfterAll,
    ChannelsAfterAll,
    UnknownPassword,
    InvalidHash,
}

impl RuleError {
    /// Returns the text that Redis sends after the rule.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Syntax => "Syntax error",
            Self::UnknownCommand => "Unknown command or category name in ACL",
            Self::KeysAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
                 effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            Self::ChannelsAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            Self::UnknownPassword => "The password you are trying to remove from the user does not exist",
            Self::InvalidHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
        }
    }
}

/// A list of rules that was refused. No rule of the list holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RulesError {
    /// A rule, and why it is refused.
    Rule { rule: Vec<u8>, error: RuleError },
    /// A selector that begins with this rule has no end.
    Unmatched(Vec<u8>),
}

impl RulesError {
    /// Returns the text, with `subject` before the refused rule.
    pub(crate) fn text(&self, subject: &str) -> String {
        match self {
            Self::Rule { rule, error } => {
                format!("{subject} '{}': {}", String::from_utf8_lossy(rule), error.text())
            }
            Self::Unmatched(rule) => {
                format!("Unmatched parenthesis in acl selector starting at '{}'.", String::from_utf8_lossy(rule))
            }
        }
    }
}

/// Returns the user after the rules, which are applied in order.
///
/// # Errors
///
/// [`RulesError`] for the first refused rule.
pub(crate) fn apply_rules(user: &User, rules: &[&[u8]]) -> Result<User, RulesError> {
    let mut user = user.clone();
    for rule in merge_selectors(rules)? {
        apply_rule(&mut user, &rule).map_err(|error| RulesError::Rule { rule, error })?;
    }
    Ok(user)
}

/// Joins the rules between `(` and `)` to one rule.
fn merge_selectors(rules: &[&[u8]]) -> Result<Vec<Vec<u8>>, RulesError> {
    let mut merged: Vec<Vec<u8>> = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    for rule in rules {
        let mut selector = match open.take() {
            Some(mut selector) => {
                selector.push(b' ');
                selector.extend_from_slice(rule);
                selector
            }
            None if rule.starts_with(b"(") => rule.to_vec(),
            None => {
                merged.push(rule.to_vec());
                continue;
            }
        };
        if rule.ends_with(b")") {
            merged.push(std::mem::take(&mut selector));
        } else {
            open = Some(selector);
        }
    }
    match open {
        Some(_) => {
            let begin = rules.iter().rfind(|rule| rule.starts_with(b"(")).copied().unwrap_or_default();
            Err(RulesError::Unmatched(begin.to_vec()))
        }
        None => Ok(merged),
    }
}

fn apply_rule(user: &mut User, rule: &[u8]) -> Result<(), RuleError> {
    match rule.to_ascii_lowercase().as_slice() {
        b"on" => user.is_on = true,
        b"off" => user.is_on = false,
        b"nopass" => {
            user.is_nopass = true;
            user.passwords.clear();
        }
        b"resetpass" => {
            user.is_nopass = false;
            user.passwords.clear();
        }
        b"sanitize-payload" => user.payload_rule = Some("sanitize-payload"),
        b"skip-sanitize-payload" => user.payload_rule = Some("skip-sanitize-payload"),
        b"clearselectors" => user.selectors.clear(),
        b"reset" => {
            let payload_rule = Some("sanitize-payload");
            *user = User { payload_rule, ..User::new(&user.name, user.identity) };
        }
        _ => return apply_other(user, rule),
    }
    Ok(())
}

fn apply_other(user: &mut User, rule: &[u8]) -> Result<(), RuleError> {
    match rule {
        [b'>', password @ ..] => add_password(user, password::hash(password)),
        [b'#', hash @ ..] => add_password(user, checked_hash(hash)?),
        [b'<', password @ ..] => remove_password(user, &password::hash(password))?,
        [b'!', hash @ ..] => remove_password(user, &checked_hash(hash)?)?,
        [b'(', rules @ .., b')'] => {
            let mut selector = Selector::new();
            for rule in rules.split(|byte| *byte == b' ').filter(|rule| !rule.is_empty()) {
                selector.apply(rule)?;
            }
            user.selectors.push(selector);
        }
        _ => user.root.apply(rule)?,
    }
    Ok(())
}

fn checked_hash(hash: &[u8]) -> Result<String, RuleError> {
    if password::is_hash(hash) { Ok(String::from_utf8_lossy(hash).into_owned()) } else { Err(RuleError::InvalidHash) }
}

fn add_password(user: &mut User, hash: String) {
    if !user.passwords.contains(&hash) {
        user.passwords.push(hash);
    }
    user.is_nopass = false;
}

fn remove_password(user: &mut User, hash: &str) -> Result<(), RuleError> {
    let before = user.passwords.len();
    user.passwords.retain(|known| known != hash);
    if user.passwords.len() == before { Err(RuleError::UnknownPassword) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts of rules, valid and invalid, that random rules are made of.
    const PARTS: [&str; 38] = [
        "on",
        "off",
        "nopass",
        "resetpass",
        "reset",
        "allkeys",
        "resetkeys",
        "allchannels",
        "resetchannels",
        "+@all",
        "-@all",
        "+@read",
        "-@write",
        "+@dangerous",
        "-@admin",
        "+get",
        "-get",
        "+set",
        "+config",
        "-config|get",
        "+config|set",
        "+select|0",
        "+select|1",
        "-select",
        "~a*",
        "%R~b",
        "%W~b",
        "%RW~c",
        "&ch",
        "&*",
        "~*",
        ">pw",
        "<pw",
        "(+get ~x)",
        "(-@all +@read %R~y &z)",
        "clearselectors",
        "(",
        "%Q",
    ];

    /// Random numbers, the same in each run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % bound as u64).expect("a small number")
        }
    }

    #[test]
    fn the_listed_rules_of_a_user_make_the_same_user() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let mut accepted = 0;
        for _ in 0..3000 {
            let count = 1 + random.below(8);
            let rules: Vec<&[u8]> = (0..count).map(|_| PARTS[random.below(PARTS.len())].as_bytes()).collect();
            let Ok(user) = apply_rules(&User::new("u", 1), &rules) else { continue };
            accepted += 1;
            let line = user.describe();
            let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').skip(2).collect();
            let listed = apply_rules(&User::new("u", 1), &words).expect("listed rules are valid");
            assert!(listed.is_equivalent(&user), "{rules:?} lists as {}", String::from_utf8_lossy(&line));
        }
        assert!(accepted > 1000, "{accepted}");
    }

    #[test]
    fn no_bytes_make_a_rule_panic() {
        let alphabet = b"+-@|~%&()<>#!RWag \0\xff*";
        let mut random = Random(7);
        for _ in 0..20_000 {
            let length = random.below(12);
            let rule: Vec<u8> = (0..length).map(|_| alphabet[random.below(alphabet.len())]).collect();
            if let Ok(user) = apply_rules(&User::new("u", 1), &[&rule, b"+get"]) {
                assert!(user.describe().starts_with(b"user u off "));
            }
        }
    }
}
