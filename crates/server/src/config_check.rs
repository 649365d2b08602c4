//! The check of a configuration before a server starts.
//!
//! The check reads the certificates of TLS and the users, so this module is above their modules.

use crate::acl::Acl;
use crate::config::{BULK_BYTES_MAX, BULK_BYTES_MIN, CLIENTS_MAX, Config, ConfigError, DATABASES_MAX, THREADS_MAX};
use crate::keyspace_events::parse_flags;
use crate::net::tls::TlsAcceptor;

impl Config {
    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with advice.
    pub fn check(&self) -> Result<(), ConfigError> {
        let has_tls = self.tls.as_ref().is_some_and(|tls| !tls.listen.is_empty());
        if self.listen.is_empty() && self.unix.is_none() && !has_tls {
            return Err(ConfigError::NoListener);
        }
        if let Some(address) = self.metrics.address
            && !address.ip().is_loopback()
            && !self.metrics.allows_remote
        {
            return Err(ConfigError::MetricsOpenToOthers(address));
        }
        if let Some(tls) = self.tls.as_ref().filter(|_| has_tls) {
            TlsAcceptor::new(tls).map_err(ConfigError::Tls)?;
        }
        let letters = &self.notify_keyspace_events;
        if parse_flags(letters.as_bytes()).is_none() {
            return Err(ConfigError::NotifyEvents(letters.clone()));
        }
        let ranges = [
            ("databases", self.databases, 1, DATABASES_MAX),
            ("threads", self.threads, 0, THREADS_MAX),
            ("maxclients", self.clients_max, 1, CLIENTS_MAX),
            ("proto-max-bulk-len", self.bulk_bytes_max, BULK_BYTES_MIN, BULK_BYTES_MAX),
        ];
        match ranges.into_iter().find(|(_, value, min, max)| !(min..=max).contains(&value)) {
            Some((option, _, min, max)) => Err(ConfigError::OutOfRange { option, min, max }),
            None => Acl::new(self).map(drop),
        }
    }
}
