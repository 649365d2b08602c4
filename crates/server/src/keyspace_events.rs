//! Keyspace events, and the flags that choose them: `notify-keyspace-events`.

/// Classes of events, as bits.
pub(crate) mod class {
    /// `K`: messages on `__keyspace@<db>__:<key>`.
    pub(crate) const KEYSPACE: u32 = 1;
    /// `E`: messages on `__keyevent@<db>__:<event>`.
    pub(crate) const KEYEVENT: u32 = 1 << 1;
    /// `g`: commands on keys of any type.
    pub(crate) const GENERIC: u32 = 1 << 2;
    /// `$`: strings.
    pub(crate) const STRING: u32 = 1 << 3;
    /// `l`: lists.
    pub(crate) const LIST: u32 = 1 << 4;
    /// `s`: sets.
    pub(crate) const SET: u32 = 1 << 5;
    /// `h`: hashes.
    pub(crate) const HASH: u32 = 1 << 6;
    /// `z`: sorted sets.
    pub(crate) const SORTED_SET: u32 = 1 << 7;
    /// `x`: keys that expired.
    pub(crate) const EXPIRED: u32 = 1 << 8;
    /// `e`: keys that were evicted. The server evicts none.
    pub(crate) const EVICTED: u32 = 1 << 9;
    /// `t`: streams.
    pub(crate) const STREAM: u32 = 1 << 10;
    /// `d`: keys of modules.
    pub(crate) const MODULE: u32 = 1 << 11;
    /// `m`: reads of absent keys.
    pub(crate) const MISS: u32 = 1 << 12;
    /// `n`: keys that did not exist before.
    pub(crate) const NEW: u32 = 1 << 13;
    /// `A`: all classes but `m` and `n`.
    pub(crate) const ALL: u32 = GENERIC | STRING | LIST | SET | HASH | SORTED_SET | EXPIRED | EVICTED | STREAM | MODULE;
}

/// The letters of single classes, in the order in which Redis shows them.
const CLASS_LETTERS: [(u8, u32); 10] = [
    (b'g', class::GENERIC),
    (b'$', class::STRING),
    (b'l', class::LIST),
    (b's', class::SET),
    (b'h', class::HASH),
    (b'z', class::SORTED_SET),
    (b'x', class::EXPIRED),
    (b'e', class::EVICTED),
    (b't', class::STREAM),
    (b'd', class::MODULE),
];

/// The letters that `A` does not include.
const OTHER_LETTERS: [(u8, u32); 4] =
    [(b'K', class::KEYSPACE), (b'E', class::KEYEVENT), (b'm', class::MISS), (b'n', class::NEW)];

/// Reads flags. Returns `None` if a letter is unknown.
pub(crate) fn parse_flags(text: &[u8]) -> Option<u32> {
    let bit_of = |letter: &u8| match letter {
        b'A' => Some(class::ALL),
        letter => CLASS_LETTERS.iter().chain(&OTHER_LETTERS).find(|(known, _)| known == letter).map(|(_, bit)| *bit),
    };
    text.iter().try_fold(0, |flags, letter| Some(flags | bit_of(letter)?))
}

/// Returns the text of flags.
pub(crate) fn format_flags(flags: u32) -> String {
    let mut text = String::new();
    let mut push = |letters: &[(u8, u32)]| {
        for (letter, bit) in letters {
            if flags & bit != 0 {
                text.push(char::from(*letter));
            }
        }
    };
    if flags & class::ALL == class::ALL {
        push(&[(b'A', class::ALL)]);
    } else {
        push(&CLASS_LETTERS);
    }
    push(&OTHER_LETTERS);
    text
}

/// Whether flags make the server publish events of a class.
pub(crate) fn wants(flags: u32, class: u32) -> bool {
    flags & class != 0 && flags & (class::KEYSPACE | class::KEYEVENT) != 0
}

/// An event of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) database: usize,
    pub(crate) name: &'static str,
    pub(crate) key: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_shown_as_redis_does() {
        for (text, shown) in [("KEA", "AKE"), ("", ""), ("Kxg", "gxK"), ("g$lshzxetd", "A"), ("EAmn", "AEmn")] {
            assert_eq!(parse_flags(text.as_bytes()).map(format_flags), Some(shown.to_string()), "{text}");
        }
        assert_eq!(parse_flags(b"KEy"), None);
    }

    #[test]
    fn events_need_a_kind_of_channel() {
        assert!(!wants(class::STRING, class::STRING));
        assert!(wants(class::STRING | class::KEYEVENT, class::STRING));
        assert!(!wants(class::KEYSPACE, class::STRING));
    }
}
