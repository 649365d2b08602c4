//! The text of `INFO`, with the fields that tools read.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use super::arguments::is_word;
use super::connection::REDIS_VERSION;
use super::info_statistics;
use crate::process::{ProcessorTime, read_memory, read_processor_time, read_system_memory};
use crate::shared::Shared;

/// A section: its name and its writer.
type Section = (&'static str, fn(&Shared, &mut String));

const SECTIONS: [Section; 12] = [
    ("Server", write_server),
    ("Clients", write_clients),
    ("Memory", write_memory),
    ("Persistence", write_persistence),
    ("Stats", write_stats),
    ("Replication", write_replication),
    ("CPU", write_processor),
    ("Commandstats", info_statistics::write_commands),
    ("Errorstats", info_statistics::write_errors),
    ("Latencystats", info_statistics::write_latency),
    ("Cluster", write_cluster),
    ("Keyspace", write_keyspace),
];

/// Bytes of the unit in `instantaneous_input_kbps`, as in Redis.
const BYTES_PER_KIB: f64 = 1024.0;

/// Returns the text of the sections that `names` names; all sections if there are no names.
pub(crate) fn render(shared: &Shared, names: &[&[u8]]) -> String {
    let is_default = |section: &str| !matches!(section, "Commandstats" | "Latencystats");
    let is_wanted = |section: &str| {
        (names.is_empty() && is_default(section))
            || names.iter().any(|name| {
                is_word(name, section)
                    || (is_word(name, "default") && is_default(section))
                    || is_word(name, "all")
                    || is_word(name, "everything")
            })
    };
    let mut text = String::new();
    for (name, write) in SECTIONS.iter().filter(|(name, _)| is_wanted(name)) {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        field_head(&mut text, name);
        write(shared, &mut text);
    }
    text
}

fn field_head(text: &mut String, name: &str) {
    // Writing to a string does not fail.
    let _ = write!(text, "# {name}\r\n");
}

pub(super) fn field(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(text, "{name}:{value}\r\n");
}

fn write_server(shared: &Shared, text: &mut String) {
    let uptime = shared.started.elapsed().as_secs();
    field(text, "redis_version", REDIS_VERSION);
    field(text, "server_name", "lodestore");
    field(text, "lodestore_version", env!("CARGO_PKG_VERSION"));
    field(text, "redis_mode", "standalone");
    field(text, "os", std::env::consts::OS);
    field(text, "arch_bits", usize::BITS);
    field(text, "process_id", std::process::id());
    field(text, "run_id", &shared.run_id);
    field(text, "tcp_port", shared.port);
    field(text, "server_time_usec", shared.started_unix_seconds.saturating_add(uptime).saturating_mul(1_000_000));
    field(text, "uptime_in_seconds", uptime);
    field(text, "uptime_in_days", uptime / 86_400);
    field(text, "io_threads_active", shared.config.threads);
}

fn write_clients(shared: &Shared, text: &mut String) {
    field(text, "connected_clients", shared.client_count());
    field(text, "maxclients", shared.runtime.clients_max());
    let tracking = shared.hub.tracking.sizes();
    field(text, "blocked_clients", shared.pause.held_clients());
    field(text, "tracking_clients", tracking.clients);
}

/// Writes a number of bytes, and a second field with its text for people.
fn size_field(text: &mut String, name: &str, bytes: u64) {
    field(text, name, bytes);
    field(text, &format!("{name}_human"), lodestore::stats::format_size(bytes));
}

fn write_memory(shared: &Shared, text: &mut String) {
    let stats = shared.db().stats();
    let used = stats.space.live;
    let process = read_memory();
    size_field(text, "used_memory", used);
    size_field(text, "used_memory_rss", process.resident);
    size_field(text, "used_memory_peak", shared.memory.note_used(used));
    // The store has no other bytes than those of records.
    field(text, "used_memory_dataset", used);
    field(text, "lodestore_memory_anonymous", process.anonymous);
    field(text, "lodestore_memory_cursors", shared.cursors.bytes());
    size_field(text, "total_system_memory", read_system_memory());
    let bound = match shared.runtime.memory_max() {
        0 => stats.space.capacity,
        bound => bound,
    };
    size_field(text, "maxmemory", bound);
    field(text, "maxmemory_policy", "noeviction");
    let ratio = if used == 0 { 0.0 } else { process.resident as f64 / used as f64 };
    field(text, "mem_fragmentation_ratio", format!("{ratio:.2}"));
}

fn write_persistence(shared: &Shared, text: &mut String) {
    let stats = shared.db().stats();
    field(text, "loading", 0);
    field(text, "async_loading", 0);
    field(text, "rdb_changes_since_last_save", 0);
    field(text, "rdb_bgsave_in_progress", u8::from(shared.saves.is_running()));
    field(text, "rdb_last_save_time", shared.saves.last_seconds());
    field(text, "rdb_last_bgsave_status", shared.saves.last_status());
    field(text, "rdb_last_bgsave_time_sec", shared.saves.last_duration());
    field(text, "rdb_current_bgsave_time_sec", shared.saves.running_seconds());
    field(text, "aof_enabled", 0);
    field(text, "lodestore_engine", shared.db().engine());
    field(text, "lodestore_medium", &stats.medium);
    field(text, "lodestore_durability", shared.db().durability());
    let recovery = &stats.recovery;
    field(text, "lodestore_recovery_running", u8::from(!recovery.done));
    field(text, "lodestore_recovery_ready_seconds", format!("{:.6}", recovery.ready_after.as_secs_f64()));
    field(text, "lodestore_recovery_seconds", format!("{:.6}", recovery.took.as_secs_f64()));
}

fn write_stats(shared: &Shared, text: &mut String) {
    let counters = &shared.counters;
    let fields = [
        ("total_connections_received", &counters.connections),
        ("total_commands_processed", &counters.commands),
        ("total_net_input_bytes", &counters.bytes_read),
        ("total_net_output_bytes", &counters.bytes_written),
        ("rejected_connections", &counters.refused_connections),
        ("evicted_clients", &counters.evicted_clients),
        ("keyspace_hits", &counters.hits),
        ("keyspace_misses", &counters.misses),
        ("total_error_replies", &counters.errors),
    ];
    for (name, counter) in fields {
        field(text, name, counter.load(Ordering::Relaxed));
    }
    let commands = counters.commands.load(Ordering::Relaxed);
    field(text, "instantaneous_ops_per_sec", shared.statistics.command_rate(commands));
    let rates = shared.statistics.byte_rates(counters);
    for (name, rate) in [("instantaneous_input_kbps", rates.received), ("instantaneous_output_kbps", rates.sent)] {
        field(text, name, format!("{:.2}", rate / BYTES_PER_KIB));
    }
    // An embedding program may keep the events of the store to itself.
    if let Some(events) = shared.store_events.get() {
        field(text, "expired_keys", events.expired_keys());
    }
    field(text, "evicted_keys", 0);
    let tracking = shared.hub.tracking.sizes();
    field(text, "pubsub_channels", shared.hub.channels.channel_count());
    field(text, "pubsub_patterns", shared.hub.channels.pattern_count());
    field(text, "tracking_total_keys", tracking.keys);
    field(text, "tracking_total_items", tracking.registrations);
    field(text, "tracking_total_prefixes", tracking.prefixes);
}

fn write_processor(_: &Shared, text: &mut String) {
    let ProcessorTime { user, system } = read_processor_time();
    field(text, "used_cpu_sys", format!("{system:.6}"));
    field(text, "used_cpu_user", format!("{user:.6}"));
}

fn write_cluster(_: &Shared, text: &mut String) {
    field(text, "cluster_enabled", 0);
}

fn write_replication(_: &Shared, text: &mut String) {
    field(text, "role", "master");
    field(text, "connected_slaves", 0);
    field(text, "master_repl_offset", 0);
}

/// Writes the databases that have keys. See [`Census`](crate::data::census::Census) for the age of
/// the numbers.
fn write_keyspace(shared: &Shared, text: &mut String) {
    for (database, figures) in
        shared.census.figures(&shared.databases, shared.stop_flag()).into_iter().flatten().enumerate()
    {
        if figures.keys > 0 {
            let (keys, expires, ttl) = (figures.keys, figures.expires, figures.average_ttl_ms());
            field(text, &format!("db{database}"), format!("keys={keys},expires={expires},avg_ttl={ttl}"));
        }
    }
}
