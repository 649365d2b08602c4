//! The engines' results against the best peers, as Markdown: a table for each durability, and the
//! losses of each engine.

use super::compare::{Best, distinct};
use super::contest::{Bout, Contest, Ratio, Standing};
use super::page::table;

/// The text above a table.
const LEGEND: &str = "How many times better each of our engines is than the best peer whose writes survive the same, also where less is better: **below 1 the peer is \
     ahead**. Of rates the median of the ratios of the rounds, which need not be the ratio of the medians above: where the two fall on different sides of 1 the line is \
     `undecided`. `~`: the slowest and the fastest rounds of both cross, so that another run may end otherwise; both are said of rates alone, all other figures are medians of the rounds. `failed`: the engine did not finish what the peer did, \
     and loses the line. `cannot`: a run of keys, asked of an engine without order. `-`: not asked, or without meaning.";

/// Formats a ratio in short form, but never as 1 unless it is 1.
fn times_text(times: f64) -> String {
    match times {
        times if times > 1000.0 => "over 1000".into(),
        times if times < 0.01 || (times < 1.0 && times > 0.99) => format!("{times:.4}"),
        times => format!("{times:.2}"),
    }
}

fn ratio_text(ratio: &Ratio) -> String {
    let times = times_text(ratio.times);
    let close = if ratio.close() { " ~" } else { "" };
    match &ratio.at {
        // Not a loss.
        Some(level) => format!("{times}{close} (at {level})"),
        None if ratio.undecided() => format!("{times} undecided"),
        None if ratio.lost() => format!("**{times}**{close}"),
        None => format!("{times}{close}"),
    }
}

fn cell(ours: &Standing) -> String {
    match ours {
        Standing::Ran(ratio) => ratio_text(ratio),
        Standing::Failed(_) => "**failed**".into(),
        Standing::Cannot => "cannot".into(),
        Standing::NotAsked => "-".into(),
    }
}

/// Returns a table of these lines, with a column for each engine that was asked in one of them.
fn of_bouts(engines: &[&str], bouts: &[&Bout<'_>]) -> String {
    let asked = |place: &usize| bouts.iter().any(|bout| bout.ours[*place] != Standing::NotAsked);
    let places: Vec<usize> = (0..engines.len()).filter(asked).collect();
    let heads = ["workload", "by", "best peer", ""].map(String::from).into_iter();
    let heads: Vec<_> = heads.chain(places.iter().map(|place| format!("`{}`", engines[*place]))).collect();
    let line = |bout: &&Bout<'_>| {
        let Best { row, figure } = bout.peer;
        let measure = bout.measure;
        let first = [bout.line.clone(), measure.name().into(), format!("`{}`", row.store), measure.text(figure)];
        first.into_iter().chain(places.iter().map(|place| cell(&bout.ours[*place]))).collect()
    };
    table(&heads, bouts.iter().map(line))
}

/// Returns each engine's results against the best peer of a durability; nothing if there is none.
pub(super) fn of_level(contest: &Contest<'_>, level: &str) -> String {
    let bouts: Vec<_> = contest.bouts.iter().filter(|bout| bout.level == level).collect();
    if bouts.is_empty() {
        return String::new();
    }
    // Once per page.
    let first = contest.bouts.first().is_some_and(|bout| bout.level == level);
    let legend = if first { format!("{LEGEND}\n\n") } else { String::new() };
    format!("\n### Each of our engines beside the best peer\n\n{legend}{}", of_bouts(&contest.engines, &bouts))
}

/// Returns the engines' results against peers with a weaker durability; nothing if there are none.
pub(super) fn uneven(contest: &Contest<'_>) -> String {
    let bouts: Vec<_> = contest.uneven.iter().collect();
    if bouts.is_empty() {
        return String::new();
    }
    format!(
        "\n## Beside peers that survive less\n\n\
         Of no equal durability, so nobody wins or loses here: how many times better ours is, which survives what its field says.\n\n{}",
        of_bouts(&contest.engines, &bouts)
    )
}

/// Returns the losses of each engine.
pub(super) fn lost(contest: &Contest<'_>) -> String {
    let mut text = "\n## Where we lose\n\n".to_string();
    if contest.bouts.is_empty() {
        let equal = if contest.uneven.is_empty() { "" } else { " of an equal durability" };
        return text + &format!("No peer{equal} was measured.\n");
    }
    let lines = (0..contest.engines.len()).filter_map(|place| of_engine(contest, place));
    lines.for_each(|line| text += &format!("* {line}\n"));
    text
}

/// Returns a level and a measure, if a page has several of them.
fn group(contest: &Contest<'_>, bout: &Bout<'_>) -> String {
    let levels = distinct(contest.bouts.iter().map(|bout| bout.level)).len();
    let measures = distinct(contest.bouts.iter().map(|bout| bout.measure)).len();
    let by = if measures > 1 { format!(" by {}", bout.measure.name()) } else { String::new() };
    let level = if levels > 1 { format!(" at {}", bout.level) } else { String::new() };
    by + &level
}

/// Returns the lines of an engine that `text` selects and formats, in groups by level and measure.
fn grouped(contest: &Contest<'_>, place: usize, text: impl Fn(&Bout<'_>, &Standing) -> Option<String>) -> Vec<String> {
    let told: Vec<_> = contest
        .bouts
        .iter()
        .filter_map(|bout| Some((group(contest, bout), format!("{}{}", bout.line, text(bout, &bout.ours[place])?))))
        .collect();
    let groups = distinct(told.iter().map(|(group, _)| group));
    let lines = |group: &String| {
        let own: Vec<_> = told.iter().filter(|(of, _)| of == group).map(|(_, line)| line.as_str()).collect();
        format!("{group}: {}", own.join(", "))
    };
    groups.into_iter().map(lines).collect()
}

/// Returns the lines of an engine that `stands` selects, each once, over all measures.
fn listed(contest: &Contest<'_>, place: usize, stands: impl Fn(&Standing) -> bool) -> String {
    let lines = contest.bouts.iter().filter(|bout| stands(&bout.ours[place])).map(|bout| bout.line.as_str());
    distinct(lines).join(", ")
}

/// Returns the losses of an engine, in one line; `None` if it was never asked.
fn of_engine(contest: &Contest<'_>, place: usize) -> Option<String> {
    let tally = contest.tally(place);
    if tally.lines + tally.cannot == 0 {
        return None;
    }
    let behind = grouped(contest, place, |bout, ours| match ours {
        Standing::Ran(ratio) if ratio.lost() => {
            let close = if ratio.close() { " ~" } else { "" };
            Some(format!(" {}{close} of `{}`", times_text(ratio.times), bout.peer.row.store))
        }
        _ => None,
    });
    let undecided = grouped(contest, place, |_, ours| match ours {
        Standing::Ran(ratio) if ratio.undecided() => Some(String::new()),
        _ => None,
    });
    let cannot = listed(contest, place, |ours| *ours == Standing::Cannot);
    let mut text =
        format!("`{}` is behind the best peer in {} of {} lines", contest.engines[place], tally.lost, tally.lines);
    if !behind.is_empty() {
        let first = if behind[0].starts_with(':') { "" } else { "," };
        text += &format!("{first}{}", behind.join(";"));
    }
    // Grouped by the reason, of which there are few.
    let reasons = contest.bouts.iter().filter_map(|bout| match &bout.ours[place] {
        Standing::Failed(why) => Some(why.as_str()),
        _ => None,
    });
    for reason in distinct(reasons) {
        let lines = listed(contest, place, |ours| matches!(ours, Standing::Failed(why) if why == reason));
        text += &format!("; failed in {lines}: {reason}");
    }
    text.extend(undecided.iter().map(|lines| format!("; undecided{lines}")));
    if !cannot.is_empty() {
        text += &format!("; cannot, as it keeps no order: {cannot}");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Measure;
    use crate::pages::compare::Level;
    use crate::pages::sample::{at, failed, row};
    use crate::row::Row;

    fn written(rows: &[Row], measures: &[Measure]) -> String {
        let levels = Level::all(rows);
        let contest = Contest::of(rows, &levels, measures);
        let tables: String = levels.iter().map(|level| of_level(&contest, level.name)).collect();
        tables + &uneven(&contest) + &lost(&contest)
    }

    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|known| known == *line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_ratio_is_never_written_as_one_where_it_is_less() {
        for (times, text) in [(0.996, "0.9960"), (1.0, "1.00"), (0.5, "0.50"), (0.004, "0.0040"), (2e3, "over 1000")] {
            assert_eq!(times_text(times), text);
        }
    }

    #[test]
    fn the_table_has_a_field_for_each_engine_and_the_section_names_each_line_that_is_lost() {
        let mut close = row("fluidkv", "get", 9e6);
        close.ratio_to.insert("lmdb".into(), 1.1);
        let ranged = Row { ops_per_s_min: 7e6, ops_per_s_max: 2e7, ..row("hikv", "get", 8e6) };
        let rows = [
            ranged,
            row("nvht", "get", 2e7),
            close,
            row("rocksdb", "get", 1e6),
            row("lmdb", "get", 1e7),
            row("hikv", "scan", 2e7),
            row("lmdb", "scan", 4e7),
            failed("fluidkv", "it is full"),
        ];
        let text = written(&rows, &[Measure::Rate]);
        has(
            &text,
            &[
                "| workload | by | best peer |  | `hikv` | `nvht` | `fluidkv` |",
                "| get | ops/s | `lmdb` | 10.00 M | **0.80** ~ | 2.00 | 1.10 undecided |",
                "| scan | ops/s | `lmdb` | 40.00 M | **0.50** | cannot | **failed** |",
                "* `hikv` is behind the best peer in 2 of 2 lines: get 0.80 ~ of `lmdb`, scan 0.50 of `lmdb`",
                "* `nvht` is behind the best peer in 0 of 1 lines; cannot, as it keeps no order: scan",
                "* `fluidkv` is behind the best peer in 1 of 2 lines; failed in scan: it is full; undecided: get",
            ],
        );
        has(&written(&rows[..1], &[Measure::Rate]), &["No peer was measured."]);
    }

    #[test]
    fn each_durability_has_a_table_of_its_own_and_lines_say_which_where_there_are_several() {
        let rows = [
            row("hikv", "load", 1.0),
            row("lmdb", "load", 2.0),
            at("power", row("hikv", "get", 1.0)),
            at("power", row("lmdb", "get", 2.0)),
        ];
        let text = written(&rows, &[Measure::Rate]);
        assert_eq!(text.matches("### Each of our engines beside the best peer").count(), 2);
        has(
            &text,
            &[
                "* `hikv` is behind the best peer in 2 of 2 lines, at power: get 0.50 of `lmdb`; at process: load 0.50 of `lmdb`",
            ],
        );
    }

    #[test]
    fn what_is_lost_is_grouped_by_the_figure_and_a_failure_is_told_once() {
        let sized = |store: &str, rate: f64| Row { rss_anon_bytes_per_key: rate, ..row(store, "load", rate) };
        let rows = [sized("hikv", 1.0), sized("lmdb", 2.0), failed("fluidkv", "it is full")];
        let text = written(&rows, &[Measure::Rate, Measure::Dram]);
        has(
            &text,
            &[
                "* `hikv` is behind the best peer in 1 of 2 lines, by ops/s: load 0.50 of `lmdb`",
                "* `fluidkv` is behind the best peer in 2 of 2 lines; failed in load: it is full",
            ],
        );
    }

    #[test]
    fn peers_that_survive_less_stand_apart_and_nobody_loses_to_them() {
        let rows = [row("hikv", "get", 9e6), at("none", row("hashmap", "get", 2e7))];
        let text = written(&rows, &[Measure::Rate]);
        has(&text, &["## Beside peers that survive less", "| get | ops/s | `hashmap` | 20.00 M | 0.45 (at process) |"]);
        has(&text, &["No peer of an equal durability was measured."]);
    }
}
