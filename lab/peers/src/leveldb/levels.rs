//! When a compaction is due in LevelDB, by the rule of its `VersionSet::Finalize`, from its list of
//! tables (`leveldb.sstables`).

/// Number of levels. The last level is never due.
const LEVEL_COUNT: usize = 7;
/// Tables at which level 0 is due: `kL0_CompactionTrigger` of its `dbformat.h`.
const DUE_TABLE_COUNT: u64 = 4;
/// Bytes at which level 1 is due. Each further level is due at ten times as many.
/// `MaxBytesForLevel` of its `version_set.cc`.
const DUE_BYTES: u64 = 10 << 20;

/// Returns whether any level is due.
pub(super) fn is_due(tables: &str) -> bool {
    let (mut at, mut counts, mut bytes) = (0, [0; LEVEL_COUNT], [0; LEVEL_COUNT]);
    for line in tables.lines() {
        if let Some(level) = line.strip_prefix("--- level ") {
            at = level.trim_end_matches(" ---").parse().unwrap_or(LEVEL_COUNT - 1).min(LEVEL_COUNT - 1);
        } else if let Some(size) = size(line) {
            counts[at] += 1;
            bytes[at] += size;
        }
    }
    let mut limit = DUE_BYTES;
    let mut full = |level: usize| {
        let full = bytes[level] >= limit;
        limit *= 10;
        full
    };
    counts[0] >= DUE_TABLE_COUNT || (1..LEVEL_COUNT - 1).any(&mut full)
}

/// Returns the bytes of a table from its line: ` 17:2041['first' .. 'last']`.
fn size(line: &str) -> Option<u64> {
    line.split_once(':')?.1.split('[').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_tables_or_ten_mebibytes_are_due_above_and_ten_times_as_much_below() {
        let table = |number: u32, size: u64| format!(" {number}:{size}['a\\x00:[' @ 7 : 1 .. 'b' @ 9 : 1]\n");
        let three: String = (1..4).map(|number| table(number, 9 << 20)).collect();
        let level = |at: usize, tables: &str| format!("--- level {at} ---\n{tables}");
        assert!(!is_due("") && !is_due(&level(0, &three)));
        assert!(is_due(&level(0, &(three.clone() + &table(4, 1)))));
        assert!(is_due(&(level(0, "") + &level(1, &three))));
        assert!(!is_due(&(level(1, &table(5, 10 << 20).replace("10485760", "10485759")) + &level(2, &three))));
        assert!(is_due(&level(2, &table(6, 100 << 20))) && !is_due(&level(6, &table(6, 1 << 60))));
    }
}
