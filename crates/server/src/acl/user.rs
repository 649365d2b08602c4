//! A user: passwords and permissions.

use super::password;
use super::selector::Selector;

/// Name of the user of clients that have not authenticated.
pub(crate) const DEFAULT_USER: &str = "default";

/// A user. Users are never changed: a change makes a new version with the same identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    /// Distinguishes a user from an earlier one of the same name.
    pub(crate) identity: u64,
    pub(crate) is_on: bool,
    pub(crate) is_nopass: bool,
    /// The rule on payloads, which Redis lists and this server has no use for.
    pub(crate) payload_rule: Option<&'static str>,
    /// Hashes of the passwords.
    pub(crate) passwords: Vec<String>,
    /// Permissions outside of all selectors.
    pub(crate) root: Selector,
    pub(crate) selectors: Vec<Selector>,
}

impl User {
    /// Returns a user that may do nothing.
    pub(crate) fn new(name: &str, identity: u64) -> Self {
        Self {
            name: name.into(),
            identity,
            is_on: false,
            is_nopass: false,
            payload_rule: None,
            passwords: Vec::new(),
            root: Selector::new(),
            selectors: Vec::new(),
        }
    }

    /// Returns the default user, with all rights and without a password.
    pub(crate) fn new_default() -> Self {
        Self { is_on: true, is_nopass: true, root: Selector::unrestricted(), ..Self::new(DEFAULT_USER, 0) }
    }

    /// Whether clients are this user without a password.
    pub(crate) fn is_open(&self) -> bool {
        self.is_on && self.is_nopass
    }

    /// Whether the user may do everything.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.root.is_unrestricted()
    }

    /// Whether a client with this password becomes the user.
    pub(crate) fn accepts(&self, password: &[u8]) -> bool {
        // The hash is computed for each user, so that the time does not depend on the user.
        let is_known = password::contains(&self.passwords, &password::hash(password));
        self.is_on && (self.is_nopass || is_known)
    }

    /// Iterates over the permissions outside of selectors, then over those of each selector.
    pub(crate) fn all_selectors(&self) -> impl Iterator<Item = &Selector> {
        std::iter::once(&self.root).chain(&self.selectors)
    }

    /// Whether the rules of `before` permit channels that no rule of this user names.
    pub(crate) fn has_lost_channels(&self, before: &Self) -> bool {
        let has_all = |user: &Self| user.all_selectors().any(|selector| selector.has_all_channels);
        let is_kept = |pattern: &Vec<u8>| self.all_selectors().any(|selector| selector.channels.contains(pattern));
        let mut patterns = before.all_selectors().flat_map(|selector| &selector.channels);
        !has_all(self) && (has_all(before) || !patterns.all(is_kept))
    }

    /// Whether both users have the same passwords and permissions.
    pub(crate) fn is_equivalent(&self, other: &Self) -> bool {
        let mut selectors = self.all_selectors().zip(other.all_selectors());
        (&self.name, self.flags(), &self.passwords) == (&other.name, other.flags(), &other.passwords)
            && self.selectors.len() == other.selectors.len()
            && selectors.all(|(own, other)| own.has_same_permissions(other))
    }

    /// Returns the flags, as `ACL GETUSER` shows them.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut flags = vec![if self.is_on { "on" } else { "off" }];
        flags.extend(self.is_nopass.then_some("nopass"));
        flags.extend(self.payload_rule);
        flags
    }

    /// Returns the line of the user in `ACL LIST` and in the file of users.
    pub(crate) fn describe(&self) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = vec![b"user".to_vec(), self.name.clone().into_bytes()];
        parts.extend(self.flags().iter().map(|flag| flag.as_bytes().to_vec()));
        parts.extend(self.passwords.iter().map(|hash| format!("#{hash}").into_bytes()));
        parts.push(self.root.describe());
        parts.extend(self.selectors.iter().map(|selector| [b"(", selector.describe().as_slice(), b")"].concat()));
        parts.join(&b' ')
    }
}
