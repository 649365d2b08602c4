//! Sizes of keys and values: a number of bytes, or a distribution.
//!
//! The sizes of a record derive from the seed and its number, for every version: an update keeps
//! them. The length of every returned value is therefore checked exactly, and the number of live
//! bytes is known. Values that grow are not measured.
//!
//! `facebook` is the mix of pool ETC of Facebook's memcached: B. Atikoglu et al., "Workload
//! analysis of a large-scale key-value store" (SIGMETRICS 2012), section 5.1. Key sizes have a
//! generalized extreme value distribution. Value sizes have a generalized Pareto distribution,
//! whose mean is 329 bytes. The paper has a separate table of shares for the 15 smallest values;
//! here they follow the law too.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize, Serializer};

/// Number of parts of equal probability for which a distribution's sizes are stored. In the first
/// and the last part a size is computed.
const PART_COUNT: usize = 4096;
/// Bits of a random number that select a part.
const PART_BITS: u32 = PART_COUNT.trailing_zeros();
/// Number of parts for the calculation of a mean.
const MEAN_PART_COUNT: u32 = 1 << 16;

/// The law of keys: location, scale and shape.
const KEY_LAW: [f64; 3] = [30.7984, 8.204_49, 0.078_688];
/// The law of values: scale and shape, above 0.
const VALUE_LAW: [f64; 2] = [214.476, 0.348_238];
/// Minimum and maximum of its keys: the bench's minimum, and memcached's maximum.
const KEY_LIMITS: [usize; 2] = [8, 250];
/// Minimum and maximum of its values: memcached's maximum.
const VALUE_LIMITS: [usize; 2] = [1, 1 << 20];

/// Requested bytes of a key or a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub enum Size {
    /// A fixed number.
    Fixed(usize),
    /// Uniformly distributed from one number to another, both included.
    Uniform(usize, usize),
    /// As in Facebook's pool ETC: keys of 8 to 250 bytes, values of 1 byte to 1 MiB.
    Facebook,
}

/// Selects the size of a key or of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Key,
    Value,
}

impl Default for Size {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

impl From<usize> for Size {
    fn from(bytes: usize) -> Self {
        Self::Fixed(bytes)
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let why = "the value must be a number of bytes, two of them as 64..1024, or facebook";
        let number = |text: &str| text.parse::<usize>().map_err(|_| why.to_string());
        match text.split_once("..") {
            _ if text == "facebook" => Ok(Self::Facebook),
            None => number(text).map(Self::Fixed),
            Some((least, most)) => match (number(least)?, number(most)?) {
                (least, most) if least < most => Ok(Self::Uniform(least, most)),
                _ => Err(format!("{why}, the first smaller than the second")),
            },
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Uniform(least, most) => write!(f, "{least}..{most}"),
            Self::Facebook => f.write_str("facebook"),
        }
    }
}

impl Serialize for Size {
    /// Writes a fixed number as a number, and other sizes as on the command line.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(bytes) => bytes.serialize(to),
            other => to.collect_str(other),
        }
    }
}

/// A size in JSON.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Bytes(usize),
    Text(String),
}

impl TryFrom<Written> for Size {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Bytes(bytes) => Ok(Self::Fixed(bytes)),
            Written::Text(text) => text.parse(),
        }
    }
}

impl Size {
    /// Returns the minimum and the maximum.
    pub(crate) fn limits(self, of: Of) -> [usize; 2] {
        match self {
            Self::Fixed(bytes) => [bytes; 2],
            Self::Uniform(least, most) => [least, most],
            Self::Facebook => of.limits(),
        }
    }

    /// Returns the mean over all possible records.
    pub(crate) fn mean(self, of: Of) -> f64 {
        match self {
            Self::Fixed(bytes) => bytes as f64,
            Self::Uniform(least, most) => f64::midpoint(least as f64, most as f64),
            Self::Facebook => of.law().mean,
        }
    }

    /// Returns the size for this number, all of whose bits are random.
    #[inline]
    pub(crate) fn draw(self, of: Of, random: u64) -> usize {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform(least, most) => {
                least + ((u128::from(random) * (most - least + 1) as u128) >> u64::BITS) as usize
            }
            Self::Facebook => of.law().draw(of, random),
        }
    }
}

impl Of {
    fn limits(self) -> [usize; 2] {
        if self == Self::Key { KEY_LIMITS } else { VALUE_LIMITS }
    }

    /// Returns the size that this share of Facebook's keys or values does not exceed.
    fn quantile(self, share: f64) -> usize {
        let bytes = match self {
            Self::Key => {
                let [location, scale, shape] = KEY_LAW;
                location + scale / shape * ((-share.ln()).powf(-shape) - 1.0)
            }
            Self::Value => {
                let [scale, shape] = VALUE_LAW;
                scale / shape * ((1.0 - share).powf(-shape) - 1.0)
            }
        };
        let [least, most] = self.limits();
        (bytes.ceil() as usize).clamp(least, most)
    }

    #[inline]
    fn law(self) -> &'static Law {
        static KEYS: LazyLock<Law> = LazyLock::new(|| Law::of(Of::Key));
        static VALUES: LazyLock<Law> = LazyLock::new(|| Law::of(Of::Value));
        if self == Self::Key { &KEYS } else { &VALUES }
    }
}

/// Facebook's sizes of keys or of values, precomputed.
struct Law {
    /// The median of each part.
    parts: Vec<u32>,
    mean: f64,
}

impl Law {
    fn of(of: Of) -> Self {
        let middle = |part: u32, parts: u32| of.quantile((f64::from(part) + 0.5) / f64::from(parts));
        let parts = (0..PART_COUNT as u32).map(|part| middle(part, PART_COUNT as u32) as u32).collect();
        let sum: f64 = (0..MEAN_PART_COUNT).map(|part| middle(part, MEAN_PART_COUNT) as f64).sum();
        Self { parts, mean: sum / f64::from(MEAN_PART_COUNT) }
    }

    #[inline]
    fn draw(&self, of: Of, random: u64) -> usize {
        let part = (random >> (u64::BITS - PART_BITS)) as usize;
        if part == 0 || part == PART_COUNT - 1 {
            // In 0..1, excluding both ends.
            of.quantile(((random >> 12) as f64 + 0.5) / (1_u64 << 52) as f64)
        } else {
            self.parts[part] as usize
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::dist::Rng;

    const SEED: u64 = 20_120_611;

    #[test]
    fn a_size_is_written_as_it_is_read() {
        for (text, size) in
            [("256", Size::Fixed(256)), ("64..1024", Size::Uniform(64, 1024)), ("facebook", Size::Facebook)]
        {
            assert_eq!(text.parse(), Ok(size));
            assert_eq!(size.to_string(), text);
            let json = serde_json::to_string(&size).expect("JSON");
            assert_eq!(serde_json::from_str::<Size>(&json).expect("a size"), size);
        }
        let json = |size: Size| serde_json::to_string(&size).expect("JSON");
        assert_eq!((json(Size::Fixed(8)), json(Size::Uniform(1, 2))), ("8".into(), "\"1..2\"".into()));
        for text in ["", "x", "-1", "1..", "..1", "2..1", "3..3", "1..2..3", "Facebook"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_uniform_size_is_each_from_the_first_to_the_last_as_often() {
        let (mut rng, size, mut seen) = (Rng::new(SEED, 1), Size::Uniform(64, 163), vec![0_u32; 100]);
        (0..1_000_000).for_each(|_| seen[size.draw(Of::Value, rng.next()) - 64] += 1);
        let chi: f64 = seen.iter().map(|n| (f64::from(*n) - 1e4).powi(2) / 1e4).sum();
        // 99 degrees of freedom: mean 99, deviation 14; five deviations in either direction.
        assert!((29.0..169.0).contains(&chi), "seed {SEED}: chi-square {chi}");
        assert_eq!((size.draw(Of::Key, 0), size.draw(Of::Key, u64::MAX)), (64, 163));
        assert!((size.mean(Of::Value) - 113.5).abs() < 1e-9);
    }

    /// Checks the shares of sizes up to each of `ends` against the distribution function of the
    /// paper.
    fn follows(of: Of, ends: &[usize], below: impl Fn(f64) -> f64) {
        let (mut rng, draws) = (Rng::new(SEED, 2), 1_000_000);
        let sizes: Vec<usize> = (0..draws).map(|_| Size::Facebook.draw(of, rng.next())).collect();
        for end in ends {
            let (is, should) =
                (sizes.iter().filter(|size| *size <= end).count() as f64 / f64::from(draws), below(*end as f64));
            // Five deviations of a share, and half a part, because all sizes within a part are
            // equal.
            let slack = 5.0 * (should * (1.0 - should) / f64::from(draws)).sqrt() + 0.5 / PART_COUNT as f64;
            assert!((is - should).abs() < slack, "seed {SEED}: {of:?} of {end} bytes at most: {is} for {should}");
        }
        let mean = sizes.iter().sum::<usize>() as f64 / f64::from(draws);
        // A value's deviation is 1.8 of its mean, so the deviation of this mean is 0.0018 of it.
        assert!((mean / Size::Facebook.mean(of) - 1.0).abs() < 0.01, "seed {SEED}: {of:?}: {mean}");
    }

    #[test]
    fn facebooks_values_follow_the_published_pareto_law() {
        let ends = [1, 2, 11, 50, 100, 200, 300, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000];
        follows(Of::Value, &ends, |x| 1.0 - (1.0 + 0.348238 * x / 214.476_f64).powf(-1.0 / 0.348238));
        // Scale / (1 - shape), plus half a byte because partial bytes are rounded up.
        assert!((Size::Facebook.mean(Of::Value) - 329.56).abs() < 1.0, "{}", Size::Facebook.mean(Of::Value));
    }

    #[test]
    fn facebooks_keys_follow_the_published_extreme_value_law() {
        let ends = [15, 18, 20, 24, 28, 31, 36, 40, 50, 60, 80, 100];
        follows(Of::Key, &ends, |x| (-(1.0 + 0.078688 * (x - 30.7984) / 8.20449_f64).powf(-1.0 / 0.078688)).exp());
    }

    #[test]
    fn no_size_is_beyond_the_limits() {
        for (of, least, most) in [(Of::Key, 8, 250), (Of::Value, 1, 1 << 20)] {
            assert_eq!(Size::Facebook.draw(of, 0), least, "{of:?}");
            assert_eq!(Size::Facebook.draw(of, u64::MAX), most, "{of:?}");
            assert_eq!(Size::Facebook.limits(of), [least, most]);
        }
    }
}
