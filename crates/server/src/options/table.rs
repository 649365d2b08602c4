//! The table of options.

use std::net::SocketAddr;

use lodestore::Durability;

use super::kinds::{self, shown, shown_boolean, shown_option};
use super::{Change, OptionSpec, messaging, setters, tls};
use crate::config::{BULK_BYTES_MAX, BULK_BYTES_MIN, CLIENTS_MAX, DATABASES_MAX, LogConfig, THREADS_MAX};

/// Words of `log-format`.
const LOG_FORMATS: [&str; 2] = ["text", "json"];

/// An option that changes at a start only and has one value.
const BASE: OptionSpec = OptionSpec {
    name: "",
    redis: None,
    takes: "",
    bounds: "",
    is_list: false,
    is_switch: false,
    is_secret: false,
    part_of: None,
    change: Change::Start,
    help: "",
    get: |_| Vec::new(),
    set: |_, _| Ok(()),
};

/// All options. Options of one source are applied in this order. `bind` and `port` therefore change
/// the addresses that `listen` has set, and `tls-port` uses them before `port` 0 removes them.
pub static OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "store",
        takes: "DIR",
        help: "Directory of the store",
        get: |config| shown_option(config.store.path.as_ref(), |path| path.display().to_string()),
        set: |config, values| kinds::path(values).map(|path| config.store.path = path),
        ..BASE
    },
    OptionSpec {
        name: "create",
        is_switch: true,
        takes: "yes|no",
        help: "Create the store of the argument STORE if it does not exist",
        get: |config| shown_boolean(config.store.creates),
        set: |config, values| kinds::boolean(values).map(|is_set| config.store.creates = is_set),
        ..BASE
    },
    OptionSpec {
        name: "engine",
        takes: "NAME",
        help: "Engine of a new store; by default the medium decides. A store with another engine is refused",
        get: |config| shown_option(config.store.engine.as_ref(), Clone::clone),
        set: |config, values| kinds::text(values).map(|name| config.store.engine = name),
        ..BASE
    },
    OptionSpec {
        name: "size",
        takes: "SIZE",
        help: "Maximum bytes of a new store: a number with K, M, G or T",
        get: |config| shown(config.store.size),
        set: |config, values| kinds::size(values).map(|bytes| config.store.size = bytes),
        ..BASE
    },
    OptionSpec {
        name: "durability",
        takes: "LEVEL",
        bounds: "process, power or interval:MS",
        help: "Failure that an acknowledged write survives; by default the store or the medium decides",
        get: |config| shown_option(config.store.durability.as_ref(), Durability::to_string),
        set: |config, values| setters::set_durability(config, values),
        ..BASE
    },
    OptionSpec {
        name: "set",
        is_list: true,
        takes: "NAME=VALUE",
        help: "Option of the engine; `lodestore engines` lists them",
        get: |config| config.store.set.clone(),
        set: |config, values| {
            config.store.set = values.to_vec();
            Ok(())
        },
        ..BASE
    },
    OptionSpec {
        name: "listen",
        is_list: true,
        takes: "ADDRESS",
        help: "TCP address and port; port 0: the system chooses; none: no TCP",
        get: |config| config.listen.iter().map(SocketAddr::to_string).collect(),
        set: |config, values| kinds::addresses(values).map(|addresses| config.listen = addresses),
        ..BASE
    },
    OptionSpec {
        name: "bind",
        part_of: Some("listen"),
        redis: Some("bind"),
        is_list: true,
        takes: "IP",
        help: "IP addresses that replace those of `listen`, with its first port",
        get: |config| config.listen.iter().map(|address| address.ip().to_string()).collect(),
        set: |config, values| setters::set_bind(config, values),
        ..BASE
    },
    OptionSpec {
        name: "tls-port",
        redis: Some("tls-port"),
        takes: "PORT",
        bounds: "0 to 65535",
        help: "TLS port on the addresses of `listen`; 0: no TLS",
        get: tls::port,
        set: tls::set_port,
        ..BASE
    },
    OptionSpec {
        name: "port",
        part_of: Some("listen"),
        redis: Some("port"),
        takes: "PORT",
        bounds: "0 to 65535",
        help: "TCP port that replaces those of `listen`; 0: no TCP, as in Redis",
        get: |config| shown(config.listen.first().map_or(0, SocketAddr::port)),
        set: |config, values| setters::set_port(config, values),
        ..BASE
    },
    OptionSpec {
        name: "unix",
        redis: Some("unixsocket"),
        takes: "PATH",
        help: "Path of a unix socket",
        get: |config| shown_option(config.unix.as_ref(), |path| path.display().to_string()),
        set: |config, values| kinds::path(values).map(|path| config.unix = path),
        ..BASE
    },
    OptionSpec {
        name: "unix-permissions",
        redis: Some("unixsocketperm"),
        takes: "OCTAL",
        bounds: "0 to 777",
        help: "Permissions of the unix socket; 0: set by the umask",
        get: |config| shown(format!("{:o}", config.unix_permissions.unwrap_or(0))),
        set: |config, values| kinds::permissions(values).map(|bits| config.unix_permissions = bits),
        ..BASE
    },
    OptionSpec {
        name: "threads",
        redis: Some("io-threads"),
        takes: "N",
        bounds: "0 to 64",
        help: "Event loops; 0: one for each processor",
        get: |config| shown(config.threads),
        set: |config, values| kinds::number(values, 0, THREADS_MAX).map(|count| config.threads = count),
        ..BASE
    },
    OptionSpec {
        name: "password",
        redis: Some("requirepass"),
        is_secret: true,
        takes: "TEXT",
        change: Change::Runtime,
        help: "Password of the default user. Other users of the machine can see the flag: use the file or the \
               environment",
        get: |config| shown_option(config.password.as_ref(), Clone::clone),
        set: |config, values| kinds::text(values).map(|password| config.password = password),
        ..BASE
    },
    OptionSpec {
        name: "user",
        redis: Some("user"),
        is_list: true,
        is_secret: true,
        takes: "RULES",
        help: "A user: a name and rules as in `ACL SETUSER`",
        get: |config| config.users.clone(),
        set: |config, values| {
            config.users = values.to_vec();
            Ok(())
        },
        ..BASE
    },
    OptionSpec {
        name: "acl-file",
        redis: Some("aclfile"),
        takes: "FILE",
        help: "Users file for `ACL LOAD` and `ACL SAVE`; it replaces `user`",
        get: |config| shown_option(config.acl_file.as_ref(), |path| path.display().to_string()),
        set: |config, values| kinds::path(values).map(|path| config.acl_file = path),
        ..BASE
    },
    OptionSpec {
        name: "tls-cert-file",
        redis: Some("tls-cert-file"),
        takes: "FILE",
        help: "Certificate of the server and its chain, in PEM form",
        get: |config| tls::path(config, |tls| Some(&tls.cert_file)),
        set: tls::set_cert_file,
        ..BASE
    },
    OptionSpec {
        name: "tls-key-file",
        redis: Some("tls-key-file"),
        takes: "FILE",
        help: "Private key of the server, in PEM form",
        get: |config| tls::path(config, |tls| Some(&tls.key_file)),
        set: tls::set_key_file,
        ..BASE
    },
    OptionSpec {
        name: "tls-ca-cert-file",
        redis: Some("tls-ca-cert-file"),
        takes: "FILE",
        help: "Certificates of the authorities that sign client certificates, in PEM form",
        get: |config| tls::path(config, |tls| tls.ca_cert_file.as_ref()),
        set: tls::set_ca_cert_file,
        ..BASE
    },
    OptionSpec {
        name: "tls-auth-clients",
        redis: Some("tls-auth-clients"),
        takes: "yes|no|optional",
        help: "Whether TLS clients need a certificate",
        get: tls::clients,
        set: tls::set_clients,
        ..BASE
    },
    OptionSpec {
        name: "maxclients",
        redis: Some("maxclients"),
        takes: "N",
        bounds: "1 to 1048576",
        change: Change::Runtime,
        help: "Maximum number of connected clients",
        get: |config| shown(config.clients_max),
        set: |config, values| kinds::number(values, 1, CLIENTS_MAX).map(|count| config.clients_max = count),
        ..BASE
    },
    OptionSpec {
        name: "timeout",
        redis: Some("timeout"),
        takes: "SECONDS",
        bounds: "0 to 2147483647",
        change: Change::Runtime,
        help: "Seconds after which an idle client is disconnected; 0: never",
        get: |config| shown(config.idle_timeout.as_secs()),
        set: |config, values| kinds::seconds(values).map(|time| config.idle_timeout = time),
        ..BASE
    },
    OptionSpec {
        name: "tcp-keepalive",
        redis: Some("tcp-keepalive"),
        takes: "SECONDS",
        bounds: "0 to 32767",
        change: Change::Runtime,
        help: "Seconds after which the system probes a silent client; 0: never. Applies to new connections",
        get: |config| shown(config.keepalive.as_secs()),
        set: |config, values| setters::set_keepalive(config, values),
        ..BASE
    },
    OptionSpec {
        name: "maxmemory",
        redis: Some("maxmemory"),
        takes: "SIZE",
        change: Change::Runtime,
        help: "Used bytes of the store above which writes that need space are refused; 0: the store's capacity",
        get: |config| shown(config.memory_max),
        set: |config, values| kinds::size(values).map(|bytes| config.memory_max = bytes),
        ..BASE
    },
    OptionSpec {
        name: "databases",
        redis: Some("databases"),
        takes: "N",
        bounds: "1 to 1024",
        help: "Number of databases; a store with more databases keeps all of them",
        get: |config| shown(config.databases),
        set: |config, values| kinds::number(values, 1, DATABASES_MAX).map(|count| config.databases = count),
        ..BASE
    },
    OptionSpec {
        name: "proto-max-bulk-len",
        redis: Some("proto-max-bulk-len"),
        takes: "SIZE",
        bounds: "1M to 512M",
        change: Change::Runtime,
        help: "Maximum bytes of an argument of a command",
        get: |config| shown(config.bulk_bytes_max),
        set: |config, values| {
            kinds::size_within(values, BULK_BYTES_MIN, BULK_BYTES_MAX).map(|bytes| config.bulk_bytes_max = bytes)
        },
        ..BASE
    },
    OptionSpec {
        name: "output-pause",
        takes: "SIZE",
        bounds: "64K to 1G",
        change: Change::Runtime,
        help: "Bytes of unsent replies of a client at which the server stops reading its commands",
        get: |config| shown(config.output_bytes_pause),
        set: |config, values| {
            kinds::size_within(values, 64 << 10, 1 << 30).map(|bytes| config.output_bytes_pause = bytes)
        },
        ..BASE
    },
    OptionSpec {
        name: "reply-max-len",
        takes: "SIZE",
        bounds: "1M to 1T",
        change: Change::Runtime,
        help: "Maximum bytes of a reply of a read command; a longer reply becomes an error",
        get: |config| shown(config.reply_bytes_max),
        set: |config, values| kinds::size_within(values, 1 << 20, 1 << 40).map(|bytes| config.reply_bytes_max = bytes),
        ..BASE
    },
    OptionSpec {
        name: "client-query-buffer-limit",
        redis: Some("client-query-buffer-limit"),
        takes: "SIZE",
        bounds: "1M to 1T",
        change: Change::Runtime,
        help: "Bytes of commands, queued commands, watched keys and subscriptions above which a client is closed",
        get: |config| shown(config.query_bytes_max),
        set: |config, values| kinds::size_within(values, 1 << 20, 1 << 40).map(|bytes| config.query_bytes_max = bytes),
        ..BASE
    },
    OptionSpec {
        name: "maxmemory-clients",
        redis: Some("maxmemory-clients"),
        takes: "SIZE",
        change: Change::Runtime,
        help: "Bytes of all clients above which the largest clients are closed; 0: no limit",
        get: |config| shown(config.clients_memory_max),
        set: |config, values| kinds::size(values).map(|bytes| config.clients_memory_max = bytes),
        ..BASE
    },
    OptionSpec {
        name: "client-output-buffer-limit",
        redis: Some("client-output-buffer-limit"),
        takes: "LIMITS",
        change: Change::Runtime,
        help: "Output limits: groups of class (normal, replica, pubsub), hard bytes, soft bytes and seconds; 0: no \
               limit",
        get: messaging::limits,
        set: messaging::set_limits,
        ..BASE
    },
    OptionSpec {
        name: "notify-keyspace-events",
        redis: Some("notify-keyspace-events"),
        takes: "LETTERS",
        bounds: "letters of KEA$lszhxetdgmn",
        change: Change::Runtime,
        help: "Classes of published keyspace events",
        get: messaging::notify,
        set: messaging::set_notify,
        ..BASE
    },
    OptionSpec {
        name: "tracking-table-max-keys",
        redis: Some("tracking-table-max-keys"),
        takes: "N",
        change: Change::Runtime,
        help: "Maximum number of tracked keys for client-side caching; 0: no limit",
        get: |config| shown(config.tracking_keys_max),
        set: |config, values| messaging::count(values).map(|keys| config.tracking_keys_max = keys),
        ..BASE
    },
    OptionSpec {
        name: "slowlog-log-slower-than",
        redis: Some("slowlog-log-slower-than"),
        takes: "MICROSECONDS",
        change: Change::Runtime,
        help: "Minimum time of commands in the slow log; -1: no command is logged",
        get: |config| shown(config.slow_microseconds),
        set: messaging::set_slow_time,
        ..BASE
    },
    OptionSpec {
        name: "slowlog-max-len",
        redis: Some("slowlog-max-len"),
        takes: "N",
        change: Change::Runtime,
        help: "Maximum number of entries of the slow log",
        get: |config| shown(config.slow_log_entries),
        set: |config, values| messaging::count(values).map(|entries| config.slow_log_entries = entries),
        ..BASE
    },
    OptionSpec {
        name: "latency-monitor-threshold",
        redis: Some("latency-monitor-threshold"),
        takes: "MILLISECONDS",
        change: Change::Runtime,
        help: "Minimum recorded latency; 0: nothing is recorded",
        get: |config| shown(config.latency_milliseconds),
        set: |config, values| messaging::count(values).map(|time| config.latency_milliseconds = time),
        ..BASE
    },
    OptionSpec {
        name: "enable-debug-command",
        redis: Some("enable-debug-command"),
        takes: "no|local|yes",
        help: "Clients that may run DEBUG, which can stop an event loop for 10 seconds; local: clients of this machine",
        get: |config| shown(kinds::debug_clients_name(config.debug_clients)),
        set: |config, values| kinds::debug_clients(values).map(|clients| config.debug_clients = clients),
        ..BASE
    },
    OptionSpec {
        name: "backup-dir",
        redis: Some("dir"),
        takes: "DIR",
        help: "Directory in which SAVE and BGSAVE create backups",
        get: |config| shown_option(config.backup_dir.as_ref(), |path| path.display().to_string()),
        set: |config, values| kinds::path(values).map(|path| config.backup_dir = path),
        ..BASE
    },
    OptionSpec {
        name: "metrics",
        takes: "ADDRESS",
        help: "HTTP address and port for /metrics, /healthz, /readyz and the status page",
        get: |config| shown_option(config.metrics.address.as_ref(), SocketAddr::to_string),
        set: |config, values| setters::set_metrics(config, values),
        ..BASE
    },
    OptionSpec {
        name: "metrics-remote",
        is_switch: true,
        takes: "yes|no",
        help: "Allow other machines to reach the address of `metrics`, which needs no password",
        get: |config| shown_boolean(config.metrics.allows_remote),
        set: |config, values| kinds::boolean(values).map(|is_set| config.metrics.allows_remote = is_set),
        ..BASE
    },
    OptionSpec {
        name: "log-level",
        redis: Some("loglevel"),
        takes: "LEVEL",
        bounds: "error, warn, info, debug or trace",
        help: "Lowest level of logged messages; Redis' level names are accepted too",
        get: |config| shown(kinds::level_name(config.log.level)),
        set: |config, values| kinds::level(values).map(|level| config.log.level = level),
        ..BASE
    },
    OptionSpec {
        name: "log-format",
        takes: "FORMAT",
        bounds: "text or json",
        help: "Format of the log on standard error",
        get: |config| shown(LOG_FORMATS[usize::from(config.log.is_json)]),
        set: |config, values| {
            let is_json = kinds::choice(values, &LOG_FORMATS)? == 1;
            config.log = LogConfig { is_json, ..config.log };
            Ok(())
        },
        ..BASE
    },
];
