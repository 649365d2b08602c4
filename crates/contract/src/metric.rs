//! Numbers of an engine, each with its name, kind, unit and help.
//!
//! An engine declares its numbers once, with [`engine_statistics!`](crate::engine_statistics), as
//! its own struct. [`EngineCounters`] holds that struct in [`Stats`](crate::Stats).

use std::any::Any;
use std::fmt;
use std::ops::Index;
use std::sync::Arc;

/// Whether a number only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricKind {
    /// Counts since the open of the store, and only grows.
    Counter,
    /// Describes the present state, and may fall.
    Gauge,
}

/// Unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// A count of things.
    Count,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// Nanoseconds.
    Nanoseconds,
    /// Parts of 100.
    Percent,
    /// Parts of 1000.
    PerMille,
    /// Parts of 1,000,000.
    PerMillion,
}

impl Unit {
    /// Returns the end of the name of each number in this unit.
    pub fn name_suffix(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Bytes => "_bytes",
            Self::BytesPerSecond => "_bytes_per_s",
            Self::Nanoseconds => "_ns",
            Self::Percent => "_percent",
            Self::PerMille => "_per_mille",
            Self::PerMillion => "_per_million",
        }
    }
}

/// The declaration of a number.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name, which is the name of the field.
    pub name: &'static str,
    /// Whether it only grows.
    pub kind: MetricKind,
    /// Unit.
    pub unit: Unit,
    /// Description in one line.
    pub help: &'static str,
}

/// The statistics of an engine: a struct that [`engine_statistics!`](crate::engine_statistics)
/// declares.
pub trait EngineStatistics: Any + fmt::Debug + Send + Sync {
    /// Calls `visit` with each number and its declaration, in the order of the declarations.
    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'static Metric, &'a u64));
}

/// The statistics of the engine of a store. Clones share them.
///
/// [`EngineCounters::of`] returns the engine's own struct. The numbers can also be read by name.
#[derive(Clone, Default)]
pub struct EngineCounters(Option<Arc<dyn EngineStatistics>>);

impl EngineCounters {
    /// Wraps these statistics.
    pub fn new(statistics: impl EngineStatistics) -> Self {
        Self(Some(Arc::new(statistics)))
    }

    /// Returns the statistics as the struct of an engine. `None` if another engine made them.
    pub fn of<T: EngineStatistics>(&self) -> Option<&T> {
        let any: &dyn Any = &**self.0.as_ref()?;
        any.downcast_ref()
    }

    /// Returns the number of this name.
    pub fn get(&self, name: &str) -> Option<&u64> {
        self.iter().find_map(|(metric, number)| (metric.name == name).then_some(number))
    }

    /// Returns all numbers with their declarations.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Metric, &u64)> {
        let mut all = Vec::new();
        if let Some(statistics) = &self.0 {
            statistics.visit(&mut |metric, number| all.push((metric, number)));
        }
        all.into_iter()
    }
}

impl Index<&str> for EngineCounters {
    type Output = u64;

    /// Returns the number of this name.
    ///
    /// # Panics
    /// If the engine has no such number; [`EngineCounters::get`] does not panic.
    fn index(&self, name: &str) -> &u64 {
        self.get(name).unwrap_or_else(|| panic!("the engine has no number {name:?}"))
    }
}

impl fmt::Debug for EngineCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(metric, number)| (metric.name, number))).finish()
    }
}

/// Declares the statistics of an engine: a struct of public `u64` fields.
///
/// Each field has one line of documentation, which is its help, then its [`MetricKind`] and its
/// [`Unit`]. A name ends in its unit ([`Unit::name_suffix`]). The statistics of a part follow
/// after `..`.
///
/// ```
/// use lodestore_contract::{EngineCounters, ScrubStats, engine_statistics};
///
/// engine_statistics! {
///     /// Statistics of an engine.
///     pub struct QueueStats {
///         /// Bytes that wait in the queue now.
///         Gauge Bytes queue_bytes,
///         /// Entries that were taken from the queue.
///         Counter Count queue_taken,
///         ..scrub: ScrubStats,
///     }
/// }
///
/// let counters = EngineCounters::new(QueueStats { queue_bytes: 7, ..QueueStats::default() });
/// assert_eq!(counters["queue_bytes"], 7);
/// assert_eq!(counters.of::<QueueStats>().map(|stats| stats.queue_bytes), Some(7));
/// ```
#[macro_export]
macro_rules! engine_statistics {
    (
        $(#[$of_type:meta])*
        pub struct $name:ident {
            $(#[doc = $help:literal] $kind:ident $unit:ident $field:ident,)*
            $(..$part:ident: $part_type:ty,)*
        }
    ) => {
        $(#[$of_type])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name {
            $(#[doc = $help] pub $field: u64,)*
            $(#[doc = "Statistics of this part."] pub $part: $part_type,)*
        }

        impl $crate::EngineStatistics for $name {
            fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'static $crate::Metric, &'a u64)) {
                $({
                    static METRIC: $crate::Metric = $crate::Metric {
                        name: stringify!($field),
                        kind: $crate::MetricKind::$kind,
                        unit: $crate::Unit::$unit,
                        help: $help.trim_ascii(),
                    };
                    visit(&METRIC, &self.$field);
                })*
                $($crate::EngineStatistics::visit(&self.$part, visit);)*
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ScrubStats;

    engine_statistics! {
        /// Statistics of a test.
        pub struct TestStats {
            /// Bytes in the log now.
            Gauge Bytes log_bytes,
            /// Flushes of the log.
            Counter Count flushes,
            ..scrub: ScrubStats,
        }
    }

    #[test]
    fn numbers_are_found_by_name_and_by_the_struct_of_their_engine() {
        let mut stats = TestStats { log_bytes: 7, flushes: 2, ..TestStats::default() };
        stats.scrub.scrub_passes = 3;
        let counters = EngineCounters::new(stats);
        assert_eq!((counters["log_bytes"], counters["flushes"], counters["scrub_passes"]), (7, 2, 3));
        assert_eq!((counters.get("frob"), counters.of::<ScrubStats>()), (None, None));
        assert_eq!(counters.of::<TestStats>(), Some(&stats));
        let names: Vec<_> = counters.iter().map(|(metric, _)| metric.name).collect();
        assert_eq!(names, ["log_bytes", "flushes", "scrub_passes", "scrub_findings"]);
        let (metric, _) = counters.iter().next().expect("the first");
        assert_eq!((metric.kind, metric.unit, metric.help), (MetricKind::Gauge, Unit::Bytes, "Bytes in the log now."));
        assert!(format!("{counters:?}").contains(r#""flushes": 2"#), "{counters:?}");
        assert_eq!(EngineCounters::default().iter().count(), 0);
    }
}
