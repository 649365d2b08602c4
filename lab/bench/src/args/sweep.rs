//! Sweeps: one run for each of several values of a parameter.

use std::fmt;
use std::str::FromStr;

use lodestore_contract::{Error, Result};

use crate::args::Args;
use crate::peers;
use crate::store_name;

/// Maximum number of values of a sweep.
const VALUES_MAX: usize = 64;

/// The bench's own numbers that apply to every store.
const NUMBERS: [&str; 11] = [
    "threads",
    "records",
    "ops",
    "rate",
    "key-size",
    "value-size",
    "multiget",
    "persist-ns",
    "budget",
    "write-buffer",
    "load-bytes",
];

/// A parameter and its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, values) = text.split_once('=').ok_or("it has the form name=v1,v2,...")?;
        let values: Vec<String> = values.split(',').map(str::to_string).collect();
        let distinct = values.iter().enumerate().all(|(at, value)| !values[..at].contains(value));
        if name.is_empty() || values.iter().any(String::is_empty) || values.len() > VALUES_MAX || !distinct {
            return Err(format!("it has the form name=v1,v2,... with 1 to {VALUES_MAX} values, each once"));
        }
        Ok(Self { name: name.into(), values })
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.values.join(","))
    }
}

impl Sweep {
    /// Returns whether this is a number of the bench. Any other name is an option of an engine.
    pub(crate) fn is_number(name: &str) -> bool {
        name == "reserve" || NUMBERS.contains(&name)
    }

    /// Returns whether this parameter applies to this store. Peers have no capacity. An option
    /// applies to the engines that have it and whose own names do not set it.
    pub(crate) fn means(&self, store: &str) -> bool {
        match self.name.as_str() {
            "reserve" => !peers::is_peer(store),
            name if NUMBERS.contains(&name) => true,
            name => store_name::takes(store, name),
        }
    }
}

/// A store of a run, with its value in a sweep.
#[derive(Debug, Clone)]
pub(crate) struct Variant {
    /// The store.
    pub(crate) target: String,
    /// The value of the swept parameter.
    pub(crate) swept: Option<String>,
    /// The arguments with this value.
    pub(crate) args: Args,
}

impl Variant {
    /// Returns its name among the variants of a run.
    pub(crate) fn label(&self) -> String {
        match (&self.swept, &self.args.sweep) {
            (Some(value), Some(sweep)) => format!("{} {}={value}", self.target, sweep.name),
            _ => self.target.clone(),
        }
    }
}

impl Variant {
    /// Returns the arguments that measure this variant again; without a sweep, its whole run.
    pub(crate) fn alone(&self) -> Args {
        if self.swept.is_some() { self.by_itself() } else { self.args.clone() }
    }
}

impl Args {
    /// Returns the variants measured in each round, in order.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if the sweep's parameter is not known, or does not accept a value.
    pub(crate) fn variants(&self) -> Result<Vec<Variant>> {
        let Some(sweep) = &self.sweep else {
            let variant = |target| Variant { target, swept: None, args: self.clone() };
            return Ok(self.targets().into_iter().map(variant).collect());
        };
        let mut all = Vec::new();
        for value in &sweep.values {
            let args = self.with(&sweep.name, value)?;
            let variant = |target| Variant { target, swept: Some(value.clone()), args: args.clone() };
            all.extend(self.targets().into_iter().map(variant));
        }
        Ok(all)
    }

    /// Returns these arguments with another value of a parameter: a number of the bench, or an
    /// option of the engine.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub(crate) fn with(&self, name: &str, value: &str) -> Result<Self> {
        let refuse = |why: String| Error::InvalidOption { name: "sweep".into(), value: format!("{name}={value}"), why };
        let number = || value.parse::<u64>().map_err(|_| refuse(format!("{name} takes a number")));
        let size = || number().and_then(|n| usize::try_from(n).map_err(|_| refuse("it is too large".into())));
        let mut args = self.clone();
        match name {
            "threads" => args.threads = size()?,
            "ops" => args.ops = Some(number()?),
            "rate" => args.rate = Some(number()?),
            "key-size" => args.key_size = value.parse().map_err(refuse)?,
            "value-size" => args.value_size = value.parse().map_err(refuse)?,
            "multiget" => args.multiget = size()?,
            "write-buffer" => args.write_buffer = Some(lodestore::stats::parse_size(value).map_err(refuse)?),
            "budget" => args.budget = Some(lodestore::stats::parse_size(value).map_err(refuse)?),
            "reserve" if self.size.is_some() => return Err(refuse("--size is given".into())),
            "reserve" => args.reserve = Some(u32::try_from(number()?).unwrap_or(u32::MAX)),
            "records" if self.load_bytes.is_some() => return Err(refuse("they follow from --load-bytes".into())),
            "records" => args.records = number()?,
            "load-bytes" => args.load_bytes = Some(lodestore::stats::parse_size(value).map_err(refuse)?),
            "persist-ns" => args.persist_ns = number()?,
            _ => {
                if !store_name::takes(&self.engine, name) {
                    return Err(refuse(format!("{} has no such option to set, nor has the bench", self.engine)));
                }
                args.set.push(format!("{name}={value}"));
            }
        }
        args.derive();
        args.check_ranges()?;
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed;

    #[test]
    fn a_sweep_is_written_as_it_is_read() {
        for text in ["region=64M,128M", "threads=1", "a=1,2,3"] {
            assert_eq!(text.parse::<Sweep>().expect("a sweep").to_string(), text);
        }
        for text in ["", "region", "=1", "region=", "region=1,,2", "region=1,1"] {
            assert!(text.parse::<Sweep>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_value_is_a_variant_with_that_value() {
        let swept = parsed("--engine hikv --sweep threads=1,2,4").variants().expect("variants");
        assert_eq!(swept.iter().map(|variant| variant.args.threads).collect::<Vec<_>>(), [1, 2, 4]);
        assert_eq!(swept[1].label(), "hikv threads=2");
        let swept = parsed("--engine hikv --set region=1G --sweep region=64M,128M").variants().expect("variants");
        assert_eq!(swept[1].args.set, ["region=1G", "region=128M"], "the last word counts");
    }

    #[test]
    fn without_a_sweep_each_store_is_a_variant() {
        let labels: Vec<_> = parsed("--engine hikv").variants().expect("variants").iter().map(Variant::label).collect();
        assert_eq!(labels, ["hikv", "btreemap"]);
    }

    #[test]
    fn peers_that_are_given_run_beside_a_sweep_that_means_something_to_them() {
        let labels = |sweep: &str| -> Vec<_> {
            let words = format!("--engine hikv --peers hikv:region=64M,nvht,btreemap --sweep {sweep}");
            parsed(&words).variants().expect("variants").iter().map(Variant::label).collect()
        };
        let (first, second) = ("hikv reserve=10", "hikv:region=64M reserve=10");
        assert_eq!(labels("reserve=10"), [first, second, "nvht reserve=10"]);
        assert_eq!(labels("threads=2").len(), 4);
        assert_eq!(labels("region=1M,2M"), ["hikv region=1M", "nvht region=1M", "hikv region=2M", "nvht region=2M"]);
        let alone = parsed("--peers nvht --sweep threads=2").variants().expect("variants")[1].alone();
        assert_eq!((alone.engine.as_str(), alone.targets().len(), alone.threads), ("nvht", 1, 2));
    }

    #[test]
    fn what_is_loaded_in_bytes_stays_as_the_size_of_a_value_changes() {
        let swept =
            parsed("--load-bytes 1M --key-size 24 --sweep value-size=100,1000,1048576").variants().expect("variants");
        assert_eq!(swept.iter().map(|it| it.args.records).collect::<Vec<_>>(), [8456, 1024, 1]);
        assert_eq!(swept.iter().map(|it| it.args.op_count()).collect::<Vec<_>>(), [8456, 1024, 1]);
        let swept =
            parsed("--load-bytes 1M --key-size 8..40 --sweep value-size=1..199,76").variants().expect("variants");
        assert_eq!(swept.iter().map(|it| it.args.records).collect::<Vec<_>>(), [8456, 10_485], "by the mean size");
        assert!(swept[0].args.command(&[]).contains("--key-size 8..40 --value-size 1..199 "));
        let swept =
            parsed("--records 100 --key-size 24 --value-size 76 --sweep reserve=10,50").variants().expect("variants");
        assert_eq!(swept.iter().map(|it| it.args.capacity()).collect::<Vec<_>>(), [11_000, 15_000]);
    }

    #[test]
    fn what_cannot_be_swept_is_refused_before_anything_runs() {
        for words in [
            "threads=x",
            "threads=0",
            "records=99999999999",
            "no-such-option=1",
            "reserve=0",
            "value-size=x",
            "key-size=7..9",
        ] {
            assert!(parsed(&format!("--engine hikv --sweep {words}")).variants().is_err(), "{words}");
        }
    }
}
