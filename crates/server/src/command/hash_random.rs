//! `HRANDFIELD`.
//!
//! Each field has the same chance. The command draws ranks and walks over the hash up to the
//! greatest one, so its time is proportional to the number of fields.

use lodestore_wire::Protocol;

use super::arguments::{integer, is_word};
use super::context::Context;
use super::hash_read::{LargeView, read_hash};
use super::scan::random_number;
use crate::data::access::elements::{FieldValue, WHOLE_STEP};
use crate::error::{COUNT_OUT_OF_RANGE, CommandResult, OUT_OF_RANGE, SYNTAX};

/// Most fields of a reply. Redis has no such bound; its reply would fill the memory.
const FIELDS_MAX: u64 = 1 << 20;

/// Most bytes of the fields and values of a reply that repeats fields.
const REPEATED_BYTES_MAX: usize = 64 << 20;

/// A source of random numbers: xorshift64*, seeded by the standard library.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn new() -> Self {
        Self(random_number() | 1)
    }

    /// Returns a number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D);
        // The upper half of the product is below the bound.
        ((u128::from(number) * u128::from(bound)) >> 64) as u64
    }
}

/// The fields of a reply, which may be too long.
#[derive(Debug)]
struct DrawnFields {
    fields: Vec<FieldValue>,
    bytes: usize,
    bytes_max: usize,
}

impl DrawnFields {
    fn new(wanted: FieldRequest, count: usize) -> Self {
        let bytes_max = match wanted {
            // The reply is no longer than the hash.
            FieldRequest::Distinct(_) => usize::MAX,
            FieldRequest::Repeated(_) => REPEATED_BYTES_MAX,
        };
        Self { fields: vec![FieldValue::default(); count], bytes: 0, bytes_max }
    }

    /// Sets a field of the reply, unless the reply is too long already.
    fn set(&mut self, at: usize, field: &[u8], value: &[u8]) {
        self.bytes = self.bytes.saturating_add(field.len() + value.len());
        if self.bytes <= self.bytes_max {
            self.fields[at] = (field.to_vec(), value.to_vec());
        }
    }
}

/// The requested number of fields, and whether a field may repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldRequest {
    /// At most this many different fields.
    Distinct(u64),
    /// Exactly this many, each drawn from all fields.
    Repeated(u64),
}

impl FieldRequest {
    fn parse(count: i64) -> CommandResult<Self> {
        if count >= 0 {
            return Ok(Self::Distinct(count.unsigned_abs()));
        }
        match count.unsigned_abs() {
            _ if count == i64::MIN => Err(COUNT_OUT_OF_RANGE),
            repeated if repeated > FIELDS_MAX => Err(OUT_OF_RANGE),
            repeated => Ok(Self::Repeated(repeated)),
        }
    }

    /// Draws the ranks of the fields of the reply.
    fn draw(self, count: u64) -> Vec<u64> {
        let mut random = Random::new();
        match self {
            Self::Repeated(_) if count == 0 => Vec::new(),
            Self::Repeated(wanted) => (0..wanted).map(|_| random.below(count)).collect(),
            Self::Distinct(wanted) if wanted >= count => (0..count).collect(),
            Self::Distinct(wanted) => {
                // Floyd's choice: each set of ranks has the same chance.
                let mut chosen = std::collections::BTreeSet::new();
                for last in count - wanted..count {
                    let rank = random.below(last + 1);
                    if !chosen.insert(rank) {
                        chosen.insert(last);
                    }
                }
                chosen.into_iter().collect()
            }
        }
    }
}

/// `HRANDFIELD key [count [WITHVALUES]]`
pub(crate) fn hrandfield(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let (wanted, has_values) = match &arguments[2..] {
        [] => (None, false),
        [count] => (Some(FieldRequest::parse(integer(count)?)?), false),
        [count, word] => {
            let wanted = FieldRequest::parse(integer(count)?)?;
            if !is_word(word, "withvalues") {
                return Err(SYNTAX);
            }
            (Some(wanted), true)
        }
        _ => return Err(SYNTAX),
    };
    let fields = draw_fields(context, arguments[1], wanted.unwrap_or(FieldRequest::Distinct(1)))?;
    let is_nested = has_values && context.reply.protocol() == Protocol::Resp3;
    match (wanted, fields.first()) {
        (None, Some((field, _))) => context.reply.write_bulk(field),
        (None, None) => context.reply.write_null(),
        (Some(_), _) => {
            context.reply.write_array(fields.len() * if has_values && !is_nested { 2 } else { 1 });
            for (field, value) in &fields {
                if is_nested {
                    context.reply.write_array(2);
                }
                context.reply.write_bulk(field);
                if has_values {
                    context.reply.write_bulk(value);
                }
            }
        }
    }
    Ok(())
}

fn draw_fields(context: &mut Context<'_, '_>, key: &[u8], wanted: FieldRequest) -> CommandResult<Vec<FieldValue>> {
    let drawn = read_hash(
        context,
        key,
        |hash, _| {
            let pairs: Vec<(&[u8], &[u8])> = hash.into_iter().flat_map(|hash| hash.pairs()).collect();
            let ranks = wanted.draw(pairs.len() as u64);
            let mut drawn = DrawnFields::new(wanted, ranks.len());
            for (at, rank) in ranks.into_iter().enumerate() {
                // Ranks are below the number of fields.
                let (field, value) = pairs[rank as usize];
                drawn.set(at, field, value);
            }
            drawn
        },
        |hash, _| draw_large(hash, wanted),
    )?;
    if drawn.bytes > drawn.bytes_max { Err(OUT_OF_RANGE) } else { Ok(drawn.fields) }
}

/// Draws fields of a large hash by one walk, in the order of their ranks.
fn draw_large(hash: LargeView<'_>, wanted: FieldRequest) -> CommandResult<DrawnFields> {
    let mut ranks: Vec<(u64, usize)> =
        wanted.draw(hash.len()).into_iter().enumerate().map(|(at, rank)| (rank, at)).collect();
    ranks.sort_unstable();
    let mut drawn = DrawnFields::new(wanted, ranks.len());
    let mut rest = &ranks[..];
    let (mut first, mut after) = (0, None);
    while !rest.is_empty() {
        let page = hash.page(after.as_deref(), WHOLE_STEP)?;
        let end = first + page.pairs.len() as u64;
        while let [(rank, at), later @ ..] = rest
            && *rank < end
        {
            let (field, value) = &page.pairs[(rank - first) as usize];
            drawn.set(*at, field, value);
            rest = later;
        }
        first = end;
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_ranks_differ_and_all_are_drawn() {
        let mut seen = [0_u32; 10];
        for _ in 0..2000 {
            let ranks = FieldRequest::Distinct(3).draw(10);
            assert_eq!(ranks.len(), 3);
            assert!(ranks.is_sorted_by(|first, second| first < second), "{ranks:?}");
            ranks.iter().for_each(|rank| seen[*rank as usize] += 1);
        }
        // 600 on the average: a share below 400 is 10 standard deviations away.
        assert!(seen.iter().all(|count| *count > 400), "{seen:?}");
        assert_eq!(FieldRequest::Distinct(99).draw(4), [0, 1, 2, 3]);
        assert_eq!(FieldRequest::Repeated(5).draw(0), Vec::<u64>::new());
        assert_eq!(FieldRequest::Repeated(5).draw(1), [0; 5]);
        assert!(FieldRequest::parse(i64::MIN).is_err());
    }
}
