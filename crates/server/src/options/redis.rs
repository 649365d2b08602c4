//! Parameters of Redis that have one value here.
//!
//! Clients and tools read them at their start. Setting one to the value that it has is accepted.

/// Name and value of each.
const CONSTANTS: [(&str, &str); 7] = [
    ("appendfsync", "no"),
    ("appendonly", "no"),
    ("cluster-enabled", "no"),
    ("daemonize", "no"),
    ("maxmemory-policy", "noeviction"),
    ("protected-mode", "yes"),
    ("save", ""),
];

/// Returns names and values of the parameters of Redis that have one value here.
pub fn constants() -> &'static [(&'static str, &'static str)] {
    &CONSTANTS
}
