use std::path::PathBuf;
use std::time::Duration;

use super::{OptionEdges, OptionRow, OptionSpec, OptionTable, Options, check_declaration, options_table};
use crate::error::Error;

crate::options! {
    /// Options of every kind.
    #[derive(Clone, Debug, PartialEq)]
    pub struct EveryOptions {
        /// A field that is no option.
        pub plain: u8 = 7,
    }
    /// The options that were set.
    pub settings EverySettings {
        /// A number
        /// of two lines.
        tunable number: usize = "8", number(1, 64), as "number";
        /// A number without an upper bound.
        tunable open: u64 = "1", number(1), as "open";
        /// A multiple.
        fixed multiple: u32 = "224", number(7, 448, multiple of 7), as "multiple";
        /// A power of two.
        fixed power: u32 = "64", power_of_two(1, 256), as "power";
        /// Any size.
        tunable size: u64 = "0", size(), as "size";
        /// A size with a step.
        fixed pages: u64 = "256M", size("64K", "1T", multiple of "4K"), as "pages";
        /// A size or 0.
        tunable some: u64 = "4K", zero_or(size("32", "1G")), as "some";
        /// A size, or 0 for none.
        fixed first: Option<u64> = "0", zero_is_none(size("8K", "16M", power of two)), as "first";
        /// A share.
        tunable share: u32 = "0.8", share(0.1, 0.95), as "share";
        /// A switch.
        tunable switch: bool = "on", switch(), as "switch";
        /// A word.
        tunable word: u8 = "b", one_of("a" => 1, "b" => 2, "c" => 3), as "word";
        /// A seed.
        fixed seed: Option<u64> = "random", word_or("random", number(0)), as "seed";
        /// Threads.
        tunable threads: usize = "cores", cores_or(number(2, 64)), as "threads";
        /// A time.
        tunable pause: Duration = "1000", millis(10, 86400000), as "pause-ms";
        /// Directories.
        fixed paths: Vec<PathBuf> = "", paths(), as "paths";
        /// A setting for tests.
        #[cfg(feature = "testing")]
        tunable tested: bool = "off", switch(), as "tested";
        /// A name.
        fixed name: String = "x", text("a name"), as "name";
    }
}

fn read(sets: &[&str]) -> crate::Result<EveryOptions> {
    let (mut set, mut options) = (Options::new(), EveryOptions::default());
    for text in sets {
        set.set_text(text)?;
    }
    options.read_from(&set).map(|()| options)
}

#[test]
fn every_kind_accepts_its_default_and_bounds_and_refuses_values_just_outside() {
    assert_eq!(check_declaration::<EveryOptions>(), Ok(()));
}

/// A table with one option, `odd`, whose default or edge is wrong.
#[derive(Default)]
struct Odd<const TAKES_ALL: bool>;

impl<const TAKES_ALL: bool> OptionTable for Odd<TAKES_ALL> {
    const SPECS: &'static [OptionSpec] = &[OptionSpec {
        name: "odd",
        default: "2",
        takes: "1",
        help: "an odd option",
        fixed: false,
        feature: None,
        is_built: true,
    }];
    const ROWS: &'static [OptionRow<Self>] = &[OptionRow {
        read: |_, text| TAKES_ALL || text == "1",
        write: |_| "1".into(),
        is_valid: |_| true,
        edges: || OptionEdges { inside: vec!["1".into()], outside: vec!["0".into()] },
    }];
}

#[test]
fn a_declaration_check_finds_a_wrong_default_and_a_wrong_bound() {
    assert!(check_declaration::<Odd<false>>().is_err_and(|why| why.contains("the default 2")));
    assert!(check_declaration::<Odd<true>>().is_err_and(|why| why.contains("odd=0 is outside the bounds and taken")));
}

#[test]
fn text_with_units_is_read_into_fields() {
    let options =
        read(&["number=64", "pages=1G", "some=0", "first=64K", "seed=7", "pause-ms=10", "paths=a,/b", "word=c"]);
    let options = options.expect("valid");
    assert_eq!((options.number, options.pages, options.some, options.first), (64, 1 << 30, 0, Some(64 << 10)));
    assert_eq!((options.seed, options.pause, options.word), (Some(7), Duration::from_millis(10), 3));
    assert_eq!((options.paths.len(), options.plain, options.share), (2, 7, 80));
}

#[test]
fn a_refusal_names_the_option_the_value_and_the_accepted_values() {
    for (text, takes) in [
        ("number=65", "a number from 1 to 64"),
        ("multiple=8", "a multiple of 7 from 7 to 448"),
        ("power=3", "a power of two from 1 to 256"),
        ("pages=1K", "a size from 64K to 1T, a multiple of 4K"),
        ("some=31", "0, or a size from 32 to 1G"),
        ("first=3M", "0, or a size from 8K to 16M, a power of two"),
        ("share=80", "a number from 0.1 to 0.95"),
        ("word=d", "a, b or c"),
        ("seed=-1", "random, or a number from 0"),
        ("threads=1", "cores, or a number from 2 to 64"),
        ("pause-ms=9", "milliseconds from 10 to 86400000"),
    ] {
        let refused = read(&[text]).expect_err(text).to_string();
        assert_eq!(refused, format!("option {text}: the value must be {takes}"));
    }
}

#[test]
fn a_field_out_of_bounds_is_refused_with_its_value() {
    type Set = fn(&mut EveryOptions);
    let cases: [(Set, &str, &str); 6] = [
        (|options| options.number = 65, "number", "65"),
        (|options| options.first = Some(0), "first", "0"),
        (|options| options.share = 96, "share", "0.96"),
        (|options| options.pause = Duration::from_micros(10_500), "pause-ms", "10.500000"),
        (|options| options.word = 9, "word", "?"),
        (|options| options.paths = vec!["a,b".into()], "paths", "a,b\0"),
    ];
    for (set, option, given) in cases {
        let mut options = EveryOptions::default();
        options.check_bounds().expect("the defaults are within their bounds");
        set(&mut options);
        match options.check_bounds() {
            Err(Error::InvalidOption { name, value, .. }) => assert_eq!((&*name, &*value), (option, given)),
            other => panic!("{option}: {other:?}"),
        }
    }
}

#[test]
fn settings_contain_only_the_options_that_were_set() {
    let settings = EverySettings::new().pages(1 << 20).switch(false).seed(None).paths(vec!["a".into()]);
    let set: Options = settings.into();
    let texts: Vec<_> = set.iter().collect();
    assert_eq!(texts, [("pages", "1048576"), ("paths", "a"), ("seed", "random"), ("switch", "off")]);
    let mut options = EveryOptions::default();
    options.read_from(&set).expect("setters write what is read");
    assert_eq!((options.pages, options.switch, options.paths.len()), (1 << 20, false, 1));
}

#[test]
fn the_table_of_options_has_a_line_for_each_option() {
    let table = options_table(EveryOptions::SPECS);
    assert_eq!(table.lines().count(), 2 + EveryOptions::SPECS.len());
    assert!(table.contains("| `number` | `8` | a number from 1 to 64 | A number of two lines. |"), "{table}");
    assert!(table.contains("| a power of two from 1 to 256 | A power of two. Fixed when a store is created. |"));
    assert!(table.contains("| on or off | A setting for tests. Only with the feature `testing`. |"), "{table}");
}
