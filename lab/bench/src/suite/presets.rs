//! The experiments that run presets: their size, and the measures that compare their stores.

use clap::ValueEnum;

use super::list::{Draw, Experiment, Medium, Run, Scale, Size, briefly, rates, size};
use super::metric::Measure;
use super::run::read;
use crate::args::Args;
use crate::args::preset::{Preset, Told};

/// Note on the question of a preset that adds latency to persists.
const EMULATED: &str = ". Each persist of ours waits as slower memory would have it; stores of others feel nothing of it, so a line that is lost to one of them says what \
     that memory costs and not who is the faster.";

/// Returns the experiment of a preset, with the preset's own description.
pub(super) fn of_preset(preset: Preset) -> Experiment {
    let name = preset.name();
    let told = preset.to_possible_value().and_then(|value| value.get_help().map(ToString::to_string));
    let told = told.unwrap_or_default();
    let measures = measures_of(preset);
    let timed = measures.iter().any(|measure| matches!(measure, Measure::Rate | Measure::Mean));
    let emulated = if timed && preset.words().contains("--persist-ns") { EMULATED } else { "" };
    let medium = if on_disk(preset) { Medium::Disk } else { Medium::Memory };
    let title = told.split(": ").next().unwrap_or_default();
    let draw = match measures[0] {
        // A line for each store and value is too many for a picture.
        Measure::Mean if !preset.words().contains("--sweep") => Draw::Latency,
        Measure::Dram => Draw::Memory,
        _ => Draw::Rates,
    };
    Experiment {
        medium,
        runs: vec![Run::new(format!("--preset {name}"))],
        measures,
        draw: Some(draw),
        preset: Some(preset),
        ..rates(&name, &format!("{name}: {title}"), &format!("{told}{emulated}"), "", sizes_of(preset))
    }
}

fn on_disk(preset: Preset) -> bool {
    preset.name().starts_with("hashkv")
}

/// Returns the measures of a paper's figure, if the preset is named after one; else of the paper's
/// description of the experiment.
fn measures_of(preset: Preset) -> Vec<Measure> {
    if let Some(figure) = preset.figure() {
        let measure = |told: &Told| match told {
            Told::Rate => Measure::Rate,
            Told::Latency => Measure::Mean,
            Told::Dram => Measure::Dram,
            Told::Medium => Measure::Medium,
        };
        return figure.told.iter().map(measure).collect();
    }
    match preset {
        // A higher load factor is meant to save space.
        Preset::NvhtLoadFactor | Preset::NvhtInitialCapacity => vec![Measure::Rate, Measure::Medium],
        Preset::FluidkvThreads | Preset::FluidkvValueSize => vec![Measure::Rate, Measure::Dram],
        // The slides of the talk show throughput, write size and the size of the store.
        Preset::HashkvP123 | Preset::HashkvReserve => vec![Measure::Rate, Measure::OnDevice, Measure::Medium],
        Preset::HashkvValueSize | Preset::HashkvThreshold => vec![Measure::Rate, Measure::OnDevice],
        // Tables 1, 3 and 5 also have a latency.
        Preset::MkvsTables => vec![Measure::Rate, Measure::Mean],
        _ => vec![Measure::Rate],
    }
}

/// Returns the sizes at which a preset runs. A swept parameter is not repeated, because a single
/// value would replace the sweep.
fn sizes_of(preset: Preset) -> [Size; 2] {
    match preset {
        // 25 times, as in the paper.
        Preset::HikvFig9 => [
            size(briefly!("--sweep records=10000,50000,250000 --ops 20000"), 10),
            size("--sweep records=40000,200000,1000000 --ops 60000 --rounds 3", 40),
        ],
        // A small store needs a larger reserve relative to its data than a large store. With less
        // data than the preset's, memory is no longer the limit. A complete run needs more time
        // than three rounds of most other presets.
        Preset::HashkvP123 => [size(briefly!("--records 50000 --reserve 70 --memory 0"), 23), size("", 460)],
        Preset::HashkvReserve => [
            size(briefly!("--load-bytes 48M --memory 0 --write-buffer 4M"), 21),
            size("--load-bytes 192M --memory 0 --write-buffer 4M --rounds 3", 85),
        ],
        Preset::HashkvValueSize => {
            [size(briefly!("--load-bytes 16M --memory 0"), 30), size("--load-bytes 64M --memory 0 --rounds 3", 95)]
        }
        Preset::HashkvThreshold => {
            [size(briefly!("--load-bytes 24M --sweep value-size=64,192,512"), 28), size("--rounds 3", 200)]
        }
        Preset::MkvsTables => [size("--rounds 3 --sweep threads=1,4,16", 46), size("", 260)],
        // Up to 8 threads, and a server in which each write waits for a sync.
        Preset::HikvFig7 | Preset::NvhtRedis => {
            [size(briefly!("--records 30000 --ops 10000"), 34), size("--records 150000 --ops 50000 --rounds 3", 150)]
        }
        _ => [size(briefly!("--records 30000 --ops 10000"), 10), size("--records 150000 --ops 50000 --rounds 3", 60)],
    }
}

/// Returns the swept parameter, or the amount of data, in the order of a record.
fn sizes(args: &Args) -> Vec<(&'static str, String)> {
    let none = || "none".to_string();
    let bytes = |bytes: Option<u64>| bytes.filter(|bytes| *bytes > 0).map_or_else(none, lodestore::stats::format_size);
    let swept = args.sweep.as_ref().map(|sweep| sweep.name.as_str());
    let mut all = vec![];
    match (swept, args.load_bytes) {
        (Some("records"), _) => all.push(("sweep", args.sweep.as_ref().map_or_else(none, ToString::to_string))),
        (_, Some(load)) => all.push(("bytes loaded", bytes(Some(load)))),
        _ => all.push(("records", args.records.to_string())),
    }
    if args.load_bytes.is_none() && swept != Some("records") || args.ops.is_some() {
        all.push(("operations", args.op_count().to_string()));
    }
    if swept != Some("reserve") {
        all.push(("reserve", args.reserve.map_or_else(none, |percent| format!("{percent} %"))));
    }
    all.extend([
        ("memory", bytes(args.memory)),
        ("write buffer", bytes(args.write_buffer)),
        ("rounds", args.rounds.to_string()),
    ]);
    all
}

/// Returns how the size at which a preset ran differs from its own size; `None` for other
/// experiments.
pub(super) fn size_told(experiment: &Experiment, scale: Scale) -> Option<String> {
    let own = format!("--preset {}", experiment.preset?.name());
    let (own, here) = (read(&own).ok()?.0, read(&format!("{own} {}", experiment.size(scale).words)).ok()?.0);
    let differ: Vec<_> = sizes(&own)
        .into_iter()
        .zip(sizes(&here))
        .filter(|(own, here)| own != here)
        .map(|((name, own), (other, here))| match name == other {
            true => format!("{name} {here} where the preset has {own}"),
            false => format!("{other} {here} where the preset has {name} {own}"),
        })
        .collect();
    Some(if differ.is_empty() { "the preset's own".into() } else { differ.join("; ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(preset: Preset, scale: Scale) -> String {
        size_told(&of_preset(preset), scale).expect("it is a preset")
    }

    #[test]
    fn a_preset_is_compared_by_what_its_figure_shows() {
        let of = |preset| measures_of(preset);
        for preset in [Preset::HikvFig5, Preset::HikvFig10, Preset::HikvFig12] {
            assert_eq!(of(preset), [Measure::Mean], "{preset:?}");
        }
        for preset in [Preset::HikvFig6, Preset::HikvFig7, Preset::HikvFig8, Preset::HikvFig9, Preset::HikvFig11] {
            assert_eq!(of(preset), [Measure::Rate], "{preset:?}");
        }
        assert_eq!(of(Preset::HikvFig13), [Measure::Dram, Measure::Medium]);
        assert_eq!(of(Preset::FluidkvThreads), [Measure::Rate, Measure::Dram]);
        assert_eq!(of(Preset::MkvsTables), [Measure::Rate, Measure::Mean]);
        let drawn = |preset| of_preset(preset).draw;
        assert_eq!(drawn(Preset::HikvFig13), Some(Draw::Memory));
        assert_eq!((drawn(Preset::HikvFig5), drawn(Preset::HikvFig10)), (Some(Draw::Latency), Some(Draw::Rates)));
    }

    #[test]
    fn what_is_written_is_by_the_devices_count_on_a_disk_alone() {
        for preset in Preset::value_variants() {
            let of_device = measures_of(*preset).contains(&Measure::OnDevice);
            assert!(!of_device || on_disk(*preset), "{preset:?}");
            assert!(!measures_of(*preset).contains(&Measure::Written) || !on_disk(*preset), "{preset:?}");
        }
        assert!(measures_of(Preset::HashkvP123).contains(&Measure::OnDevice));
    }

    #[test]
    fn a_page_says_by_how_much_it_differs_from_its_preset() {
        assert_eq!(
            told(Preset::HikvFig6, Scale::Full),
            "records 150000 where the preset has 1000000; operations 50000 where the preset has 200000; rounds 3 where the preset has 1"
        );
        assert!(
            told(Preset::HikvFig9, Scale::Full)
                .starts_with("sweep records=40000,200000,1000000 where the preset has records=200000,")
        );
        let reserve = told(Preset::HashkvReserve, Scale::Small);
        assert!(reserve.starts_with("bytes loaded 48M where the preset has 1G; memory none where"), "{reserve}");
        assert_eq!(told(Preset::MkvsTables, Scale::Full), "the preset's own");
        assert_eq!(size_told(&crate::suite::sample::experiment(), Scale::Full), None);
    }

    #[test]
    fn at_full_scale_those_presets_have_their_own_size_that_the_scale_says() {
        let own = |preset: &&Preset| {
            !told(**preset, Scale::Full).replace("rounds 3 where the preset has 1", "").contains("where")
        };
        let own: Vec<_> = Preset::value_variants().iter().filter(own).map(|preset| preset.name()).collect();
        assert_eq!(own, ["hashkv-p123", "hashkv-threshold", "mkvs-tables"]);
    }
}
