//! Kinds of option values: the texts that an option accepts, and how its values are written as
//! text.
//!
//! A kind is the only place with the bounds of an option. A value is checked by writing it and
//! reading it again.

use std::path::PathBuf;
use std::time::Duration;

use crate::size::parse_size;

/// How values of type `T` are read from text and written as text.
pub trait OptionKind<T> {
    /// Reads a value. Returns `None` if `text` is not a value of this kind, or is out of bounds.
    fn read(&self, text: &str) -> Option<T>;

    /// Writes a value, so that [`read`](Self::read) returns the same value if it is in bounds.
    fn write(&self, value: &T) -> String;

    /// Returns texts at the bounds, for tests.
    fn edges(&self) -> OptionEdges;
}

/// Texts at the bounds of an option, for tests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OptionEdges {
    /// Texts just inside the bounds, which are read.
    pub inside: Vec<String>,
    /// Texts just outside the bounds, which are refused.
    pub outside: Vec<String>,
}

impl OptionEdges {
    fn and_inside(mut self, text: &str) -> Self {
        self.inside.push(text.into());
        self
    }
}

/// A whole number within bounds, as digits or as a size with a unit (`64M`).
#[derive(Debug, Clone, Copy)]
pub struct Whole {
    least: u64,
    most: u64,
    /// Every value is a multiple of this number.
    step: u64,
    is_power_of_two: bool,
    has_unit: bool,
}

impl Whole {
    /// A number from `least` to `most`.
    pub const fn number(least: u64, most: u64) -> Self {
        assert!(least <= most, "the lower bound of an option is above its upper bound");
        Self { least, most, step: 1, is_power_of_two: false, has_unit: false }
    }

    /// Bytes from `least` to `most`, which are sizes as text.
    pub const fn size(least: &str, most: &str) -> Self {
        Self { has_unit: true, ..Self::number(declared_size(least), declared_size(most)) }
    }

    /// Bytes from `least` on.
    pub const fn size_from(least: &str) -> Self {
        Self { has_unit: true, ..Self::number(declared_size(least), u64::MAX) }
    }

    /// Accepts only multiples of `step`; both bounds must be multiples.
    #[must_use]
    pub const fn multiple_of(self, step: u64) -> Self {
        assert!(self.least.is_multiple_of(step) && self.most.is_multiple_of(step), "a bound is not a multiple");
        Self { step, ..self }
    }

    /// Accepts only multiples of the size `step`.
    #[must_use]
    pub const fn multiple_of_size(self, step: &str) -> Self {
        self.multiple_of(declared_size(step))
    }

    /// Accepts only powers of two; both bounds must be powers of two.
    #[must_use]
    pub const fn power_of_two(self) -> Self {
        assert!(self.least.is_power_of_two() && self.most.is_power_of_two(), "a bound is not a power of two");
        Self { is_power_of_two: true, ..self }
    }

    const fn admits(&self, value: u64) -> bool {
        self.least <= value
            && value <= self.most
            && value.is_multiple_of(self.step)
            && (!self.is_power_of_two || value.is_power_of_two())
    }

    fn read_u64(&self, text: &str) -> Option<u64> {
        let value = if self.has_unit { parse_size(text).ok() } else { text.parse().ok() };
        value.filter(|value| self.admits(*value))
    }
}

/// Reads the size of a declaration at compile time.
const fn declared_size(text: &str) -> u64 {
    let bytes = text.as_bytes();
    let (mut value, mut at) = (0u64, 0);
    while at < bytes.len() {
        value = match bytes[at] {
            digit @ b'0'..=b'9' => value * 10 + (digit - b'0') as u64,
            b'K' if at + 1 == bytes.len() => value << 10,
            b'M' if at + 1 == bytes.len() => value << 20,
            b'G' if at + 1 == bytes.len() => value << 30,
            b'T' if at + 1 == bytes.len() => value << 40,
            _ => panic!("a declared size has digits, and perhaps K, M, G or T"),
        };
        at += 1;
    }
    value
}

impl<T: TryFrom<u64> + Copy> OptionKind<T> for Whole
where
    u64: TryFrom<T>,
{
    fn read(&self, text: &str) -> Option<T> {
        self.read_u64(text).and_then(|value| T::try_from(value).ok())
    }

    fn write(&self, value: &T) -> String {
        // A negative number has no text here, and is refused.
        u64::try_from(*value).map_or_else(|_| "negative".into(), |value| value.to_string())
    }

    fn edges(&self) -> OptionEdges {
        let next = |value: u64| if self.is_power_of_two { value.checked_mul(2) } else { value.checked_add(self.step) };
        let mut outside: Vec<_> = self.least.checked_sub(1).into_iter().collect();
        let mut inside = vec![self.least];
        if self.most != u64::MAX {
            inside.push(self.most);
            outside.extend(next(self.most));
            outside.extend(self.most.checked_add(1));
        }
        outside.extend((self.step > 1).then_some(self.least + 1));
        outside.extend((self.is_power_of_two && self.most > 4).then_some(self.most - 1));
        let texts = |values: Vec<u64>| values.into_iter().map(|value| value.to_string());
        let words = ["", "-1", "many", "1.5"].map(String::from);
        OptionEdges { inside: texts(inside).collect(), outside: texts(outside).chain(words).collect() }
    }
}

/// A share of 1, from `least` to `most`, stored in percent.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// The smallest share.
    pub least: f64,
    /// The largest share.
    pub most: f64,
}

impl OptionKind<u32> for Share {
    fn read(&self, text: &str) -> Option<u32> {
        let share: f64 = text.parse().ok()?;
        let percent = (share * 100.0).round();
        let is_within = (self.least * 100.0).round() <= percent && percent <= (self.most * 100.0).round();
        is_within.then_some(percent as u32)
    }

    fn write(&self, percent: &u32) -> String {
        (f64::from(*percent) / 100.0).to_string()
    }

    fn edges(&self) -> OptionEdges {
        let text = |share: f64| share.to_string();
        OptionEdges {
            inside: vec![text(self.least), text(self.most)],
            outside: vec![text(self.least - 0.01), text(self.most + 0.01), "NaN".into(), "much".into()],
        }
    }
}

/// A word of a list; each word represents a value.
#[derive(Debug, Clone, Copy)]
pub struct OneOf<T: 'static>(
    /// The words and their values.
    pub &'static [(&'static str, T)],
);

impl<T: Clone + PartialEq> OptionKind<T> for OneOf<T> {
    fn read(&self, text: &str) -> Option<T> {
        self.0.iter().find(|(word, _)| *word == text).map(|(_, value)| value.clone())
    }

    fn write(&self, value: &T) -> String {
        self.0.iter().find(|(_, known)| known == value).map_or("?", |(word, _)| word).into()
    }

    fn edges(&self) -> OptionEdges {
        let inside = self.0.iter().map(|(word, _)| (*word).into()).collect();
        OptionEdges { inside, outside: vec![String::new(), "frob".into(), "ON".into()] }
    }
}

/// A word for `None`, or a value of another kind.
#[derive(Debug, Clone, Copy)]
pub struct WordOr<K> {
    /// The word.
    pub word: &'static str,
    /// The kind of all other values.
    pub kind: K,
}

impl<T, K: OptionKind<T>> OptionKind<Option<T>> for WordOr<K> {
    fn read(&self, text: &str) -> Option<Option<T>> {
        if text == self.word { Some(None) } else { self.kind.read(text).map(Some) }
    }

    fn write(&self, value: &Option<T>) -> String {
        value.as_ref().map_or_else(|| self.word.into(), |value| self.kind.write(value))
    }

    fn edges(&self) -> OptionEdges {
        self.kind.edges().and_inside(self.word)
    }
}

/// 0, or a value of another kind.
#[derive(Debug, Clone, Copy)]
pub struct ZeroOr<K>(
    /// The kind of all other values.
    pub K,
);

fn is_zero(text: &str) -> bool {
    parse_size(text) == Ok(0)
}

impl<T: TryFrom<u64>, K: OptionKind<T>> OptionKind<T> for ZeroOr<K> {
    fn read(&self, text: &str) -> Option<T> {
        if is_zero(text) { T::try_from(0).ok() } else { self.0.read(text) }
    }

    fn write(&self, value: &T) -> String {
        self.0.write(value)
    }

    fn edges(&self) -> OptionEdges {
        let edges = self.0.edges();
        let outside = edges.outside.into_iter().filter(|text| !is_zero(text)).collect();
        OptionEdges { outside, ..edges }.and_inside("0")
    }
}

/// 0 for `None`, or a value of another kind.
#[derive(Debug, Clone, Copy)]
pub struct ZeroIsNone<K>(
    /// The kind of all other values.
    pub K,
);

impl<T, K: OptionKind<T>> OptionKind<Option<T>> for ZeroIsNone<K> {
    fn read(&self, text: &str) -> Option<Option<T>> {
        if is_zero(text) { Some(None) } else { self.0.read(text).map(Some) }
    }

    fn write(&self, value: &Option<T>) -> String {
        value.as_ref().map_or_else(|| "0".into(), |value| self.0.write(value))
    }

    fn edges(&self) -> OptionEdges {
        let edges = self.0.edges();
        let outside = edges.outside.into_iter().filter(|text| !is_zero(text)).collect();
        OptionEdges { outside, ..edges }.and_inside("0")
    }
}

/// `cores` for the number of processors (within the bounds), or a number.
#[derive(Debug, Clone, Copy)]
pub struct CoresOr(
    /// The bounds.
    pub Whole,
);

impl<T: TryFrom<u64> + Copy> OptionKind<T> for CoresOr
where
    u64: TryFrom<T>,
{
    fn read(&self, text: &str) -> Option<T> {
        if text != "cores" {
            return self.0.read(text);
        }
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        T::try_from(cores.clamp(self.0.least, self.0.most)).ok()
    }

    fn write(&self, value: &T) -> String {
        self.0.write(value)
    }

    fn edges(&self) -> OptionEdges {
        OptionKind::<T>::edges(&self.0).and_inside("cores")
    }
}

/// A time in whole milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Millis(
    /// The bounds, in milliseconds.
    pub Whole,
);

impl OptionKind<Duration> for Millis {
    fn read(&self, text: &str) -> Option<Duration> {
        self.0.read_u64(text).map(Duration::from_millis)
    }

    fn write(&self, value: &Duration) -> String {
        let (millis, rest) = (value.as_millis(), value.as_nanos() % 1_000_000);
        // A time with a fraction is written as a text that is refused.
        if rest == 0 { millis.to_string() } else { format!("{millis}.{rest:06}") }
    }

    fn edges(&self) -> OptionEdges {
        OptionKind::<u64>::edges(&self.0)
    }
}

/// Paths separated by commas. A path with a comma, or one that is not UTF-8, is refused.
#[derive(Debug, Clone, Copy)]
pub struct Paths;

/// A character that no path contains, to mark a list that cannot be written as text.
const UNWRITABLE: char = '\0';

impl OptionKind<Vec<PathBuf>> for Paths {
    fn read(&self, text: &str) -> Option<Vec<PathBuf>> {
        let paths = || text.split(',').filter(|path| !path.is_empty()).map(PathBuf::from).collect();
        (!text.contains(UNWRITABLE)).then(paths)
    }

    fn write(&self, paths: &Vec<PathBuf>) -> String {
        let is_writable = |path: &PathBuf| path.to_str().is_some_and(|text| !text.is_empty() && !text.contains(','));
        let all = paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join(",");
        if paths.iter().all(is_writable) { all } else { format!("{all}{UNWRITABLE}") }
    }

    fn edges(&self) -> OptionEdges {
        OptionEdges { inside: ["", "a", "/a,b/c"].map(String::from).into(), outside: vec![UNWRITABLE.into()] }
    }
}

/// Any text; its reader checks it.
#[derive(Debug, Clone, Copy)]
pub struct AnyText;

impl OptionKind<String> for AnyText {
    fn read(&self, text: &str) -> Option<String> {
        Some(text.into())
    }

    fn write(&self, value: &String) -> String {
        value.clone()
    }

    fn edges(&self) -> OptionEdges {
        OptionEdges::default()
    }
}
