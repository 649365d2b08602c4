//! The macro [`options!`](crate::options!), which declares options once, and its support code.

use std::fmt;

use super::{OptionEdges, OptionSpec, Options};
use crate::error::Result;

/// The functions of one option of `S`, in addition to its [`OptionSpec`].
pub struct OptionRow<S> {
    /// Reads the option from text into the struct. Returns whether the text is a value.
    pub read: fn(&mut S, &str) -> bool,
    /// Writes the option's value as text.
    pub write: fn(&S) -> String,
    /// Returns whether the option's value is within its bounds.
    pub is_valid: fn(&S) -> bool,
    /// Returns texts at the bounds, for tests.
    pub edges: fn() -> OptionEdges,
}

impl<S> fmt::Debug for OptionRow<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptionRow").finish_non_exhaustive()
    }
}

/// A struct whose options were declared by [`options!`](crate::options!).
pub trait OptionTable: Default + 'static {
    /// The options by name.
    const SPECS: &'static [OptionSpec];
    /// How each option is read and written, in the same order.
    const ROWS: &'static [OptionRow<Self>];

    /// Reads all options of this table that `set` has. Ignores other names.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) with the option, the value and the
    /// accepted values.
    fn read_from(&mut self, set: &Options) -> Result<()> {
        for (spec, row) in Self::SPECS.iter().zip(Self::ROWS) {
            if let Some(text) = set.get(spec.name).filter(|text| !(row.read)(self, text)) {
                return Err(spec.refusal(text));
            }
        }
        Ok(())
    }

    /// Refuses values that are out of bounds.
    ///
    /// # Errors
    /// [`Error::InvalidOption`](crate::Error::InvalidOption) with the option, the value and the
    /// accepted values.
    fn check_bounds(&self) -> Result<()> {
        self.check_bounds_of(|_| true)
    }

    /// Does the same as [`check_bounds`](Self::check_bounds), for the options whose names
    /// `is_checked` accepts.
    ///
    /// # Errors
    /// Those of [`check_bounds`](Self::check_bounds).
    fn check_bounds_of(&self, is_checked: impl Fn(&str) -> bool) -> Result<()> {
        let mut all = Self::SPECS.iter().zip(Self::ROWS).filter(|(spec, _)| is_checked(spec.name));
        let refused = all.find(|(_, row)| !(row.is_valid)(self));
        refused.map_or(Ok(()), |(spec, row)| Err(spec.refusal(&(row.write)(self))))
    }

    /// Returns the value of the option `name` as text; `None` if the table has no such option.
    fn text_of(&self, name: &str) -> Option<String> {
        let mut all = Self::SPECS.iter().zip(Self::ROWS);
        all.find(|(spec, _)| spec.name == name).map(|(_, row)| (row.write)(self))
    }
}

/// Returns the default of a declaration.
///
/// # Panics
/// If the text is not a value of the option. The declaration's test finds this mistake.
#[doc(hidden)]
pub fn declared_default<T>(name: &str, text: &str, value: Option<T>) -> T {
    value.unwrap_or_else(|| panic!("the declared default {name}={text} is not a value of the option"))
}

/// Returns a Markdown table of options: name, default, accepted values, and description.
pub fn options_table(specs: &[OptionSpec]) -> String {
    let mut text = String::from("| option | default | values | meaning |\n|---|---|---|---|\n");
    for spec in specs {
        let default = if spec.default.is_empty() { String::new() } else { format!("`{}`", spec.default) };
        let fixed = if spec.fixed { " Fixed when a store is created." } else { "" };
        let feature = spec.feature.map(|feature| format!(" Only with the feature `{feature}`.")).unwrap_or_default();
        let help = spec.help.replace('|', "\\|");
        text.push_str(&format!("| `{}` | {default} | {} | {help}{fixed}{feature} |\n", spec.name, spec.takes));
    }
    text
}

/// Checks a table for tests. Defaults are read as themselves. Every bound is refused just outside
/// and read just inside. Every text and value is written as it is read.
///
/// # Errors
/// Describes the first option that differs.
#[doc(hidden)]
pub fn check_declaration<S: OptionTable>() -> std::result::Result<(), String> {
    for (spec, row) in S::SPECS.iter().zip(S::ROWS) {
        let mut options = S::default();
        let own = (row.write)(&options);
        if !(row.is_valid)(&options) || !(row.read)(&mut options, spec.default) || (row.write)(&options) != own {
            return Err(format!("{}: the default {} is not read as itself, {own}", spec.name, spec.default));
        }
        let edges = (row.edges)();
        for text in &edges.inside {
            if !(row.read)(&mut options, text) || !(row.is_valid)(&options) {
                return Err(format!("{}={text} is within the bounds and refused", spec.name));
            }
            let written = (row.write)(&options);
            if !(row.read)(&mut options, &written) || (row.write)(&options) != written {
                return Err(format!("{}={text} is written as {written}, and read as something else", spec.name));
            }
        }
        if let Some(text) = edges.outside.iter().find(|text| (row.read)(&mut options, text)) {
            return Err(format!("{}={text} is outside the bounds and taken", spec.name));
        }
    }
    Ok(())
}

/// Declares the options of an engine once.
///
/// From a declaration come the struct with documented public fields, its `Default`, and the table
/// of [`OptionSpec`](crate::OptionSpec)s. The declaration also provides reading from text, the
/// check of bounds ([`OptionTable`](crate::OptionTable)), and a settings type with a typed setter
/// for each option.
///
/// The first block has the fields that are no options, each with its default. The second one has
/// the options: a documentation comment, which is the help too; `fixed` (counts when a store is
/// created only) or `tunable` (counts for one open); the field and its type; the default as text;
/// the kind with its bounds; and the name in texts. Kinds are the arms of
/// [`option_kind!`](crate::option_kind!).
///
/// `#[cfg(feature = "...")]` after the comment makes an option depend on a cargo feature of the
/// crate. A build without the feature has no field and no setter, and accepts only the default as
/// text.
///
/// ```
/// lodestore_contract::options! {
///     /// Options of a queue.
///     #[derive(Clone, Debug)]
///     pub struct QueueOptions {
///         /// The queue's name, which is no option.
///         pub title: String = "queue".into(),
///     }
///     /// Options of a queue that were set.
///     pub settings QueueSettings {
///         /// Entries of the queue.
///         fixed length: u32 = "64", power_of_two(2, 4096), as "length";
///         /// Whether entries are kept in order.
///         tunable is_ordered: bool = "on", switch(), as "ordered";
///     }
/// }
/// use lodestore_contract::{OptionTable, Options};
///
/// let mut options = QueueOptions::default();
/// options.read_from(&QueueSettings::new().length(128).into())?;
/// assert_eq!((options.length, options.is_ordered), (128, true));
/// options.length = 5000;
/// let refused = options.check_bounds().expect_err("out of bounds").to_string();
/// assert_eq!(refused, "option length=5000: the value must be a power of two from 2 to 4096");
/// # Ok::<(), lodestore_contract::Error>(())
/// ```
#[macro_export]
macro_rules! options {
    (
        $(#[$attribute:meta])*
        pub struct $Options:ident {
            $( $(#[$plain_attribute:meta])* pub $plain:ident: $Plain:ty = $plain_default:expr, )*
        }
        $(#[$settings_attribute:meta])*
        pub settings $Settings:ident {
            $(
                $(#[doc = $doc:literal])+
                $(#[cfg(feature = $feature:tt)])?
                $life:ident $field:ident: $Type:ty = $default:literal, $kind:ident($($bound:tt)*), as $name:literal;
            )*
        }
    ) => {
        $(#[$attribute])*
        pub struct $Options {
            $( $(#[$plain_attribute])* pub $plain: $Plain, )*
            $(
                $(#[doc = $doc])+
                #[doc = ""]
                #[doc = $crate::option_facts!($life, $name, $default, $kind($($bound)*))]
                $(#[doc = concat!("Only with the feature `", $feature, "`.")])?
                $(#[cfg(feature = $feature)])?
                pub $field: $Type,
            )*
        }

        impl Default for $Options {
            fn default() -> Self {
                Self {
                    $( $plain: $plain_default, )*
                    $( $(#[cfg(feature = $feature)])? $field: {
                        let kind = $crate::option_kind!($kind($($bound)*));
                        let value = $crate::OptionKind::<$Type>::read(&kind, $default);
                        $crate::options::declared_default($name, $default, value)
                    }, )*
                }
            }
        }

        impl $crate::OptionTable for $Options {
            const SPECS: &'static [$crate::OptionSpec] = &[
                $( $crate::OptionSpec {
                    name: $name,
                    default: $default,
                    takes: $crate::option_takes!($kind($($bound)*)),
                    help: concat!($($doc),+).trim_ascii(),
                    fixed: $crate::option_is_fixed!($life),
                    feature: $crate::option_feature!($($feature)?),
                    is_built: $crate::option_is_built!($($feature)?),
                }, )*
            ];
            const ROWS: &'static [$crate::options::OptionRow<Self>] = &[
                $( $(#[cfg(feature = $feature)])? $crate::options::OptionRow {
                    read: |options, text| {
                        let kind = $crate::option_kind!($kind($($bound)*));
                        $crate::OptionKind::<$Type>::read(&kind, text).map(|value| options.$field = value).is_some()
                    },
                    write: |options| {
                        let kind = $crate::option_kind!($kind($($bound)*));
                        $crate::OptionKind::<$Type>::write(&kind, &options.$field)
                    },
                    is_valid: |options| {
                        let kind = $crate::option_kind!($kind($($bound)*));
                        let text = $crate::OptionKind::<$Type>::write(&kind, &options.$field);
                        $crate::OptionKind::<$Type>::read(&kind, &text).as_ref() == Some(&options.$field)
                    },
                    edges: || $crate::OptionKind::<$Type>::edges(&$crate::option_kind!($kind($($bound)*))),
                },
                $(
                    #[cfg(not(feature = $feature))]
                    $crate::options::OptionRow {
                        read: |_, text| text == $default,
                        write: |_| $default.into(),
                        is_valid: |_| true,
                        edges: || $crate::options::OptionEdges { inside: vec![$default.into()], outside: Vec::new() },
                    },
                )? )*
            ];
        }

        $(#[$settings_attribute])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[must_use = "settings do nothing until a store is opened with them"]
        pub struct $Settings {
            set: $crate::Options,
        }

        impl $Settings {
            /// Sets no option: each has its default, or for a fixed option the value of the store.
            pub const fn new() -> Self {
                Self { set: $crate::Options::new() }
            }

            $(
                $(#[doc = $doc])+
                #[doc = ""]
                #[doc = $crate::option_facts!($life, $name, $default, $kind($($bound)*))]
                #[doc = "A value out of bounds is refused when the store is opened or created."]
                $(#[doc = concat!("Only with the feature `", $feature, "`.")])?
                $(#[cfg(feature = $feature)])?
                pub fn $field(mut self, value: $Type) -> Self {
                    let kind = $crate::option_kind!($kind($($bound)*));
                    self.set.set($name, $crate::OptionKind::<$Type>::write(&kind, &value));
                    self
                }
            )*

            /// Returns the options that are set, as text.
            pub const fn options(&self) -> &$crate::Options {
                &self.set
            }
        }

        impl From<$Settings> for $crate::Options {
            fn from(settings: $Settings) -> Self {
                settings.set
            }
        }
    };
}

/// Expands to whether an option is `fixed` rather than `tunable`.
#[doc(hidden)]
#[macro_export]
macro_rules! option_is_fixed {
    (fixed) => {
        true
    };
    (tunable) => {
        false
    };
}

/// Expands to the cargo feature that adds an option.
#[doc(hidden)]
#[macro_export]
macro_rules! option_feature {
    () => {
        None
    };
    ($feature:tt) => {
        Some($feature)
    };
}

/// Expands to whether the build of the calling crate has an option.
#[doc(hidden)]
#[macro_export]
macro_rules! option_is_built {
    () => {
        true
    };
    ($feature:tt) => {
        cfg!(feature = $feature)
    };
}

/// The facts of an option, for its documentation.
#[doc(hidden)]
#[macro_export]
macro_rules! option_facts {
    (fixed, $name:literal, $default:literal, $($kind:tt)*) => {
        concat!($crate::option_facts!(tunable, $name, $default, $($kind)*), " Fixed when a store is created.")
    };
    (tunable, $name:literal, "", $($kind:tt)*) => {
        concat!("As text `", $name, "`. Accepts ", $crate::option_takes!($($kind)*), "; empty by default.")
    };
    (tunable, $name:literal, $default:literal, $($kind:tt)*) => {
        concat!("As text `", $name, "`. Accepts ", $crate::option_takes!($($kind)*), "; default `", $default, "`.")
    };
}

/// The kind of an option, from its declaration.
#[macro_export]
macro_rules! option_kind {
    (number($least:literal)) => {
        const { $crate::options::Whole::number($least, u64::MAX) }
    };
    (number($least:literal, $most:literal)) => {
        const { $crate::options::Whole::number($least, $most) }
    };
    (number($least:literal, $most:literal, multiple of $step:literal)) => {
        const { $crate::options::Whole::number($least, $most).multiple_of($step) }
    };
    (power_of_two($least:literal, $most:literal)) => {
        const { $crate::options::Whole::number($least, $most).power_of_two() }
    };
    (size()) => {
        const { $crate::options::Whole::size_from("0") }
    };
    (size($least:literal)) => {
        const { $crate::options::Whole::size_from($least) }
    };
    (size($least:literal, $most:literal)) => {
        const { $crate::options::Whole::size($least, $most) }
    };
    (size($least:literal, $most:literal, multiple of $step:literal)) => {
        const { $crate::options::Whole::size($least, $most).multiple_of_size($step) }
    };
    (size($least:literal, $most:literal, power of two)) => {
        const { $crate::options::Whole::size($least, $most).power_of_two() }
    };
    (share($least:literal, $most:literal)) => {
        $crate::options::Share { least: $least, most: $most }
    };
    (switch()) => {
        $crate::options::OneOf(&[("on", true), ("off", false)])
    };
    (one_of($($word:literal => $value:expr),+)) => {
        $crate::options::OneOf(&[$(($word, $value)),+])
    };
    (word_or($word:literal, $($kind:tt)*)) => {
        $crate::options::WordOr { word: $word, kind: $crate::option_kind!($($kind)*) }
    };
    (zero_or($($kind:tt)*)) => {
        $crate::options::ZeroOr($crate::option_kind!($($kind)*))
    };
    (zero_is_none($($kind:tt)*)) => {
        $crate::options::ZeroIsNone($crate::option_kind!($($kind)*))
    };
    (cores_or($($kind:tt)*)) => {
        $crate::options::CoresOr($crate::option_kind!($($kind)*))
    };
    (millis($($bound:tt)*)) => {
        $crate::options::Millis($crate::option_kind!(number($($bound)*)))
    };
    (nanos($($bound:tt)*)) => {
        $crate::option_kind!(number($($bound)*))
    };
    (paths()) => {
        $crate::options::Paths
    };
    (text($takes:literal)) => {
        $crate::options::AnyText
    };
}

/// The accepted values of an option, in words.
#[doc(hidden)]
#[macro_export]
macro_rules! option_takes {
    (number($least:literal)) => {
        concat!("a number from ", $least)
    };
    (number($least:literal, $most:literal)) => {
        concat!("a number from ", $least, " to ", $most)
    };
    (number($least:literal, $most:literal, multiple of $step:literal)) => {
        concat!("a multiple of ", $step, " from ", $least, " to ", $most)
    };
    (power_of_two($least:literal, $most:literal)) => {
        concat!("a power of two from ", $least, " to ", $most)
    };
    (size()) => {
        "a size such as 4096 or 64M"
    };
    (size($least:literal)) => {
        concat!("a size from ", $least)
    };
    (size($least:literal, $most:literal)) => {
        concat!("a size from ", $least, " to ", $most)
    };
    (size($least:literal, $most:literal, multiple of $step:literal)) => {
        concat!("a size from ", $least, " to ", $most, ", a multiple of ", $step)
    };
    (size($least:literal, $most:literal, power of two)) => {
        concat!("a size from ", $least, " to ", $most, ", a power of two")
    };
    (share($least:literal, $most:literal)) => {
        concat!("a number from ", $least, " to ", $most)
    };
    (switch()) => {
        "on or off"
    };
    (one_of($first:literal => $value:expr, $last:literal => $other:expr)) => {
        concat!($first, " or ", $last)
    };
    (one_of($first:literal => $value:expr, $($rest:tt)+)) => {
        concat!($first, ", ", $crate::option_takes!(one_of($($rest)+)))
    };
    (word_or($word:literal, $($kind:tt)*)) => {
        concat!($word, ", or ", $crate::option_takes!($($kind)*))
    };
    (zero_or($($kind:tt)*)) => {
        concat!("0, or ", $crate::option_takes!($($kind)*))
    };
    (zero_is_none($($kind:tt)*)) => {
        concat!("0, or ", $crate::option_takes!($($kind)*))
    };
    (cores_or($($kind:tt)*)) => {
        concat!("cores, or ", $crate::option_takes!($($kind)*))
    };
    (millis($least:literal)) => {
        concat!("milliseconds from ", $least)
    };
    (millis($least:literal, $most:literal)) => {
        concat!("milliseconds from ", $least, " to ", $most)
    };
    (nanos($least:literal, $most:literal)) => {
        concat!("nanoseconds from ", $least, " to ", $most)
    };
    (paths()) => {
        "directories separated by commas"
    };
    (text($takes:literal)) => {
        $takes
    };
}
