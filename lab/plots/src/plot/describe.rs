//! What a plot shows, in words: its rows' durabilities, sizes and rounds.

use crate::row::{Row, distinct};

/// Returns the durabilities of the acknowledged writes in these rows.
fn levels<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<&'a str> {
    distinct(rows.filter(|row| row.failed.is_none()).map(|row| row.durability.as_str()))
}

/// Returns the workloads of these rows at a durability, and the durability.
fn of_level<'a>(rows: impl Iterator<Item = &'a Row>, level: &str) -> String {
    let own = rows.filter(|row| row.durability == level && row.failed.is_none());
    format!("{}: {level}", distinct(own.map(|row| row.workload.as_str())).join(" "))
}

/// Returns the name of a store in a plot, with its durability if the stores of a workload differ in
/// it.
pub(crate) fn named(rows: &[&Row], store: &str) -> String {
    let of_workload = |workload: &str| levels(rows.iter().copied().filter(|row| row.workload == workload));
    let differ = rows.iter().any(|row| of_workload(&row.workload).len() > 1);
    let own = || rows.iter().copied().filter(|row| row.store == store);
    let own_levels = levels(own());
    // Of several durabilities, as with a weaker one for the load, the last one counts; the others
    // are listed with their workloads.
    let Some((last, others)) = own_levels.split_last().filter(|_| differ) else { return store.into() };
    let others: Vec<_> = others.iter().map(|level| of_level(own(), level)).collect();
    let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
    format!("{store}: {last}{others}")
}

/// Returns the durability of the rows. If workloads differ in it, each is listed; if stores differ,
/// their names show it.
fn durabilities(rows: &[&Row]) -> String {
    let all = || rows.iter().copied();
    match levels(all()).as_slice() {
        [] => String::new(),
        [one] => (*one).into(),
        several if rows.iter().any(|row| named(rows, &row.store) != row.store) => several.join(" and "),
        several => several.iter().map(|level| of_level(all(), level)).collect::<Vec<_>>().join(", "),
    }
}

/// Returns the least and the greatest of these numbers, or their only number.
fn range(numbers: impl Iterator<Item = u64>) -> String {
    let numbers: Vec<u64> = numbers.collect();
    match (numbers.iter().min(), numbers.iter().max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (Some(one), _) => one.to_string(),
        _ => "no".into(),
    }
}

/// Returns the records, sizes, threads, durability and rounds of the rows.
pub(crate) fn describe(rows: &[&Row]) -> String {
    let swept = |name: &str| rows.iter().any(|row| row.sweep.as_ref().is_some_and(|swept| swept.name == name));
    let records = range(rows.iter().map(|row| row.records));
    let rounds = range(rows.iter().map(|row| row.rounds as u64).filter(|rounds| *rounds > 0));
    let size = |of: fn(&Row) -> String| distinct(rows.iter().map(|row| of(row))).join(" or ");
    let (key, value) = (size(|row| row.key_size.to_string()), size(|row| row.value_size.to_string()));
    let sizes = match (swept("key-size"), swept("value-size")) {
        (true, _) => format!("{value} bytes of value"),
        (_, true) => format!("{key} bytes of key"),
        _ => format!("{key} + {value} bytes"),
    };
    let threads = range(rows.iter().map(|row| row.threads as u64));
    let threads = match (threads.as_str(), swept("threads")) {
        (_, true) => String::new(),
        ("1", _) => ", one thread".into(),
        (several, _) => format!(", {several} threads"),
    };
    let emulates = rows.iter().any(|row| row.settings.get("emulate-dax").is_some_and(|value| value == "true"));
    let emulated = if emulates { "; every flush and fence executed" } else { "" };
    let durability = durabilities(rows);
    let medians = if rounds == "1" { "one round".into() } else { format!("medians of {rounds} rounds") };
    format!("{records} records of {sizes}{threads}; durability {durability}{emulated}; {medians}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(store: &str, workload: &str, level: &str) -> Row {
        Row { durability: level.into(), ..Row::of_rate(store, workload, 1e6) }
    }

    fn told(rows: &[Row], store: &str) -> (String, String) {
        let rows: Vec<&Row> = rows.iter().collect();
        (named(&rows, store), durabilities(&rows))
    }

    #[test]
    fn stores_of_another_durability_say_so_in_their_names() {
        let all = |level: &str| [row("hikv", "get", "process"), row("hashmap", "get", level)];
        assert_eq!(told(&all("process"), "hikv"), ("hikv".into(), "process".into()));
        assert_eq!(told(&all("none"), "hashmap"), ("hashmap: none".into(), "process and none".into()));
        // A load with a weaker durability than the later workloads does not belong to another
        // store.
        let staged = [row("hikv", "load", "process"), row("hikv", "get", "power"), row("hikv", "a", "power")];
        assert_eq!(told(&staged, "hikv"), ("hikv".into(), "load: process, get a: power".into()));
        let beside = [&staged[..], &[row("redb", "load", "power")]].concat();
        assert_eq!(told(&beside, "hikv").0, "hikv: power (load: process)");
        assert_eq!(told(&beside, "redb").0, "redb: power");
        let failed = Row { failed: Some("full".into()), ..row("nvht", "get", "none") };
        assert_eq!(told(&[&all("process")[..], &[failed]].concat(), "hikv").1, "process");
        assert_eq!(told(&[], "hikv").1, "");
    }

    #[test]
    fn a_description_has_the_sizes_that_are_not_swept() {
        let mut one = Row { records: 5, threads: 1, rounds: 3, ..row("hikv", "get", "process") };
        (one.key_size, one.value_size) = (16_u64.into(), 256_u64.into());
        assert_eq!(
            describe(&[&one]),
            "5 records of 16 + 256 bytes, one thread; durability process; medians of 3 rounds"
        );
        one.sweep = Some(crate::row::Swept { name: "value-size".into(), value: "256".into() });
        let other = Row { records: 50, rounds: 1, ..one.clone() };
        assert!(describe(&[&one, &other]).starts_with("5 to 50 records of 16 bytes of key, one thread;"));
        assert!(describe(&[&other]).ends_with("one round"));
    }
}
