//! The output of `serve` at its start.

use std::time::Duration;

use lodestore::db::Choice;
use lodestore::stats::format_size;
use lodestore::{Db, Durability};
use lodestore_server::{Config, Server};

use super::place::StoreLocation;
use crate::failure::Outcome;
use crate::out::Out;

/// The store, and the addresses of the server.
pub struct Banner {
    rows: Vec<(&'static str, String)>,
}

impl Banner {
    /// Collects the texts.
    pub fn new(location: &StoreLocation, db: &Db, server: &Server, config: &Config, ready_after: Duration) -> Self {
        let stats = db.stats();
        let mut listening: Vec<String> = server.addresses().iter().map(ToString::to_string).collect();
        listening.extend(config.unix.as_ref().map(|path| path.display().to_string()));
        let reason = Choice::recorded(&location.path).map(|choice| choice.reason);
        let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        let mut rows = vec![
            ("store", location.path.display().to_string()),
            ("a write survives", describe_durability(stats.durability, &stats.medium).into_owned()),
            ("engine", format!("{}{reason}", stats.engine)),
            ("medium", stats.medium.clone()),
            ("durability", stats.durability.to_string()),
            ("capacity", format_size(stats.space.capacity)),
        ];
        if !listening.is_empty() {
            rows.push(("listening", listening.join(", ")));
        }
        let tls: Vec<String> = server.tls_addresses().iter().map(ToString::to_string).collect();
        if !tls.is_empty() {
            rows.push(("tls", tls.join(", ")));
        }
        if let Some(address) = server.metrics_address() {
            rows.push(("status page", format!("http://{address}/")));
        }
        rows.push(("serving after", format!("{:.1} ms", ready_after.as_secs_f64() * 1e3)));
        Self { rows }
    }

    /// Prints the texts, as a table or as one JSON object.
    pub fn print(&self, is_json: bool) -> Outcome {
        let mut out = Out::new();
        if is_json {
            let fields = self.rows.iter().map(|(name, value)| (name.replace(' ', "_"), value.as_str().into()));
            out.json(fields.collect())?;
        } else {
            let rows: Vec<_> = self.rows.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            out.line(format!("Lodestore {} serves", env!("CARGO_PKG_VERSION")))?;
            out.table(&rows)?;
        }
        out.flush()
    }
}

/// Returns what an acknowledged write survives, in words.
fn describe_durability(durability: Durability, medium: &str) -> std::borrow::Cow<'static, str> {
    match durability {
        Durability::Power => "kill -9, and a power failure".into(),
        Durability::Interval(window) => {
            format!("kill -9; a power failure loses at most the last {} ms", window.as_millis()).into()
        }
        Durability::Process if medium.starts_with("shm") => {
            "kill -9; a restart of the machine clears this memory".into()
        }
        Durability::Process => "kill -9; after a power failure only a salvage reads the store".into(),
    }
}
