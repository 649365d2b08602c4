//! `HSCAN`.
//!
//! A small hash is answered in one step, as Redis does. A large one is walked in the order of its
//! fields, and the server keeps the field at which each cursor continues, as for `SCAN`. A step
//! has bounded memory. A field that exists during the whole walk is returned exactly once.

use super::context::Context;
use super::hash_read::read_hash;
use super::scan::{parse_cursor, parse_scan_options, unknown_cursor};
use crate::data::access::elements::{FieldValue, PageLimit};
use crate::data::cursors::Position;
use crate::error::{CommandError, CommandResult, SYNTAX};
use crate::glob;

/// Maximum fields of a step, whatever `COUNT` the client sends.
const STEP_FIELDS_MAX: usize = 4096;

/// Bytes of fields and values after which a step ends.
const STEP_BYTES_MAX: usize = 1 << 20;

/// Fields of a step and the field after which the walk continues.
#[derive(Debug, Default)]
struct Step {
    pairs: Vec<FieldValue>,
    next: Option<Vec<u8>>,
}

/// Refuses the options of `HSCAN`. A key that is absent or no hash comes first, as in Redis.
fn refuse_options(context: &mut Context<'_, '_>, key: &[u8], error: CommandError) -> CommandResult {
    if read_hash(context, key, |hash, _| hash.is_some(), |_, _| Ok(true))? {
        return Err(error);
    }
    context.reply.write_array(2);
    context.reply.write_bulk(b"0");
    context.reply.write_array(0);
    Ok(())
}

/// `HSCAN key cursor [MATCH pattern] [COUNT count]`
pub(crate) fn hscan(context: &mut Context<'_, '_>, arguments: &[&[u8]]) -> CommandResult {
    let cursor = parse_cursor(arguments[2])?;
    let options = parse_scan_options(&arguments[3..]);
    let options = match options.and_then(|options| if options.type_name.is_some() { Err(SYNTAX) } else { Ok(options) })
    {
        Ok(options) => options,
        Err(error) => return refuse_options(context, arguments[1], error),
    };
    let position = context.shared.cursors.find(cursor);
    let limit = PageLimit { elements: options.count.min(STEP_FIELDS_MAX), bytes: STEP_BYTES_MAX };
    let is_match = |field: &[u8]| options.pattern.is_none_or(|pattern| glob::matches(pattern, field));
    let step = read_hash(
        context,
        arguments[1],
        |hash, _| {
            let pairs = hash.into_iter().flat_map(|hash| hash.pairs()).filter(|(field, _)| is_match(field));
            Step { pairs: pairs.map(|(field, value)| (field.to_vec(), value.to_vec())).collect(), next: None }
        },
        |hash, _| {
            // A small hash has no cursors, and Redis accepts any number for it.
            let after = match &position {
                Position::After(field) => Some(field.as_slice()),
                Position::Flushed => return Ok(Step::default()),
                Position::Unknown if cursor == 0 => None,
                Position::Unknown => return Err(unknown_cursor()),
            };
            let mut page = hash.page(after, limit)?;
            page.pairs.retain(|(field, _)| is_match(field));
            Ok(Step { pairs: page.pairs, next: page.next })
        },
    )?;
    let next = step.next.map_or(0, |field| context.shared.cursors.keep(field));
    context.reply.write_array(2);
    context.reply.write_bulk(next.to_string().as_bytes());
    context.reply.write_array(step.pairs.len() * 2);
    for (field, value) in &step.pairs {
        context.reply.write_bulk(field);
        context.reply.write_bulk(value);
    }
    Ok(())
}
