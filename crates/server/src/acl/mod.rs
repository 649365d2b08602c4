//! Users and permissions (access control lists).
//!
//! A session holds the version of its user at the session's last command. Each change of users
//! raises a generation, which a session compares before each command. A change therefore applies to
//! the next command of every client, and a session whose user has all rights pays one comparison.
//!
//! * `user`: passwords and selectors of one user. `selector`: permitted commands, keys, channels.
//! * `rules`: the rules of `ACL SETUSER`. `file`: the file of users.
//! * `check`: whether a user may run a command. `key_access`: rights on the keys of commands.
//! * `password`: hashes. `log`: denials.

pub(crate) mod check;
mod file;
pub(crate) mod key_access;
pub(crate) mod log;
pub(crate) mod password;
mod rules;
mod selector;
pub(crate) mod user;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::config::{Config, ConfigError};
use rules::apply_rules;
use user::{DEFAULT_USER, User};

/// Users by name.
type Users = BTreeMap<String, Arc<User>>;

/// The users of a server.
#[derive(Debug)]
pub(crate) struct Acl {
    users: RwLock<Users>,
    /// Raised by each change.
    generation: AtomicU64,
    next_identity: AtomicU64,
    pub(crate) log: log::Log,
    file: Option<PathBuf>,
    /// Whether other machines reach the server. Then the default user must have a password.
    is_exposed: bool,
}

impl Acl {
    /// Creates the users of a configuration.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Users`] for a refused rule or file.
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let refused = |text: String| ConfigError::Users(text);
        if config.acl_file.is_some() && !config.users.is_empty() {
            return Err(refused("define users either in the configuration (user) or in a file (aclfile)".into()));
        }
        let acl = Self {
            users: RwLock::default(),
            generation: AtomicU64::new(0),
            next_identity: AtomicU64::new(1),
            log: log::Log::default(),
            file: config.acl_file.clone(),
            is_exposed: false,
        };
        let mut default = User::new_default();
        if let Some(password) = &config.password {
            let rule = [b">", password.as_bytes()].concat();
            default = apply_rules(&default, &[&rule]).map_err(|error| refused(error.text("user default")))?;
        }
        let mut users = match &config.acl_file {
            Some(path) => {
                let text = std::fs::read(path).map_err(|error| {
                    refused(format!("cannot read the users file {}: {error}. Create an empty file.", path.display()))
                })?;
                acl.parse_file(path, &text).map_err(refused)?
            }
            None => acl.parse_lines(&config.users)?,
        };
        users.entry(DEFAULT_USER.into()).or_insert_with(|| Arc::new(default));
        let tls_listen = config.tls.iter().flat_map(|tls| &tls.listen);
        let exposed = config.listen.iter().chain(tls_listen).find(|address| !address.ip().is_loopback());
        match exposed {
            Some(address) if users.get(DEFAULT_USER).is_some_and(|user| user.is_open()) => {
                Err(ConfigError::OpenToOthers(*address))
            }
            _ => Ok(Self { users: RwLock::new(users), is_exposed: exposed.is_some(), ..acl }),
        }
    }

    /// Reads the lines `user NAME RULES` of a configuration, with or without the word `user`.
    fn parse_lines(&self, lines: &[String]) -> Result<Users, ConfigError> {
        let mut users = Users::new();
        for line in lines {
            let line = line.trim();
            let words = line.strip_prefix("user ").unwrap_or(line);
            let user =
                self.parse_user(words.as_bytes()).map_err(|text| ConfigError::Users(format!("{text} ({line})")))?;
            if users.insert(user.name.clone(), Arc::new(user)).is_some() {
                return Err(ConfigError::Users(format!("a user is named twice ({line})")));
            }
        }
        Ok(users)
    }

    /// Reads a name and rules that are separated by spaces.
    fn parse_user(&self, words: &[u8]) -> Result<User, String> {
        let mut words = words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let name = words.next().and_then(|name| std::str::from_utf8(name).ok());
        let name = name.ok_or("a user has no name, or one that is not UTF-8")?;
        let rules: Vec<&[u8]> = words.collect();
        apply_rules(&self.create(name), &rules).map_err(|error| error.text("Error in applying operation"))
    }

    /// Returns a new user without permissions.
    fn create(&self, name: &str) -> User {
        let identity = if name == DEFAULT_USER { 0 } else { self.next_identity.fetch_add(1, Ordering::Relaxed) };
        User::new(name, identity)
    }

    /// Returns the number of changes.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns a user.
    pub(crate) fn user(&self, name: &[u8]) -> Option<Arc<User>> {
        self.read().get(std::str::from_utf8(name).ok()?).cloned()
    }

    /// Returns the user of clients that have not authenticated.
    pub(crate) fn default_user(&self) -> Arc<User> {
        // The default user cannot be deleted.
        self.user(DEFAULT_USER.as_bytes()).unwrap_or_else(|| Arc::new(User::new(DEFAULT_USER, 0)))
    }

    /// Returns all users in the order of their names.
    pub(crate) fn all_users(&self) -> Vec<Arc<User>> {
        self.read().values().cloned().collect()
    }

    /// Creates or changes a user. All rules hold, or none.
    ///
    /// # Errors
    ///
    /// The text of the reply.
    pub(crate) fn set_user(&self, name: &str, rules: &[&[u8]]) -> Result<(), String> {
        let mut users = self.write();
        let present = users.get(name).map_or_else(|| self.create(name), |user| User::clone(user));
        let user = apply_rules(&present, rules).map_err(|error| {
            let text = error.text("Error in ACL SETUSER modifier");
            format!("ERR {text}")
        })?;
        self.check_exposure(&user)?;
        users.insert(name.into(), Arc::new(user));
        self.publish();
        Ok(())
    }

    /// Replaces all passwords of the default user: `requirepass`. Without a password, each client
    /// is this user. Clients that have authenticated stay authenticated, as in Redis.
    ///
    /// # Errors
    ///
    /// The text of the reply.
    pub(crate) fn set_default_password(&self, password: Option<&str>) -> Result<(), String> {
        match password {
            Some(password) => {
                let rule = [b">", password.as_bytes()].concat();
                self.set_user(DEFAULT_USER, &[b"resetpass", &rule])
            }
            None => self.set_user(DEFAULT_USER, &[b"nopass"]),
        }
    }

    /// Checks that no client of another machine becomes the default user without a password.
    fn check_exposure(&self, user: &User) -> Result<(), String> {
        if self.is_exposed && user.name == DEFAULT_USER && user.is_open() {
            return Err("ERR other machines reach this server: the default user must have a password, or be off".into());
        }
        Ok(())
    }

    /// Deletes users. Returns the number.
    pub(crate) fn delete_users(&self, names: &[&[u8]]) -> usize {
        let mut users = self.write();
        let names = names.iter().filter_map(|name| std::str::from_utf8(name).ok());
        let count = names.filter(|name| *name != DEFAULT_USER && users.remove(*name).is_some()).count();
        self.publish();
        count
    }

    /// Shows the users to all sessions. The caller holds the lock.
    fn publish(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    fn read(&self) -> RwLockReadGuard<'_, Users> {
        self.users.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Users> {
        self.users.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
